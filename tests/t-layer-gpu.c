/* SPDX-License-Identifier: Apache-2.0 */
/* The row kernels on the device against their references. */
#include "config.h"
#include "kernels/layer/layer.h"

#include <stdlib.h>
#include <string.h>

#include "tests/gpu.h"
#include "tests/tap.h"

enum { N_TEST = 20 };

#if HAVE_CUDA

#include <math.h>

#include "base/rng.h"
#include "kernels/layer/gemm.h"

enum { CASES = 20 };

/* ---- arrays on both sides ---- */

struct both {
	void *host, *dev;
	size_t bytes;
};

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

static struct both both_new(size_t bytes)
{
	/* bf16 NaN: unwritten places show */
	struct both b = { calloc(1, bytes), gpu_new(bytes, 0xff), bytes };

	if (!b.host)
		bail_out("out of memory");
	return b;
}

static struct both both_normal(size_t n, struct rng *r)
{
	struct both b = both_new(n * sizeof(bf16_t));
	bf16_t *x = b.host;

	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32(rng_normal(r));
	gpu_write(b.dev, b.host, b.bytes);
	return b;
}

static void upload(const struct both *b)
{
	gpu_write(b->dev, b->host, b->bytes);
}

/* Copy of device memory; the caller frees it. */
static void *download(const struct both *b)
{
	void *p = malloc(b->bytes);

	if (!p)
		bail_out("out of memory");
	gpu_read(p, b->dev, b->bytes);
	return p;
}

static bool equal(const struct both *b)
{
	void *got = download(b);
	bool same = !memcmp(got, b->host, b->bytes);

	free(got);
	return same;
}

/* Within one unit of the last place of bf16 and atol, and NaN nowhere.  what: for the message. */
static bool close_by(const struct both *b, float atol, const char *what)
{
	bf16_t *got = download(b);
	const bf16_t *want = b->host;
	size_t n = b->bytes / sizeof *got, n_bad = 0, first = 0;

	for (size_t i = 0; i < n; i++) {
		float g = bf16_to_f32(got[i]), w = bf16_to_f32(want[i]);

		if (fabsf(g - w) <= 0x1p-7f * fabsf(w) + atol)
			continue;
		first = n_bad++ ? first : i;
	}
	if (n_bad)
		diag("%s: %zu of %zu off; the first, %zu: got %g, want %g", what, n_bad, n, first,
		     (double)bf16_to_f32(got[first]), (double)bf16_to_f32(want[first]));
	free(got);
	return !n_bad;
}

static bool close_to(const struct both *b)
{
	return close_by(b, 1e-30f, "values");
}

/* The host's side; gpu_free_all frees the other. */
static void both_free(struct both *b)
{
	free(b->host);
}

static int below(struct rng *r, int n)
{
	return (int)rng_below(r, (uint64_t)n);
}

/* ---- sequences ---- */

/* Random tokens, rows that read them, and a cache they fit. */
struct scene {
	struct attn_shape s;
	struct both data, row, trig;
	struct layer_seq host, dev;
	int dim; /* channels that rotate */
	float q_scale;
	int n_layers, n_row, n_page;
};

static void scene_init(struct scene *c, struct rng *r)
{
	static const int dims[] = { 16, 64, 128, 256 };
	const int turns = 50, group = 1 + below(r, 3), n_tok = 1 + below(r, 300);
	struct layer_row *row;

	c->s.kv_heads = 1 + below(r, 20); /* more than a thread block takes, too */
	c->s.q_heads = c->s.kv_heads * group;
	c->s.head_dim = dims[below(r, 4)];
	c->s.page_tok = 128;
	c->dim = below(r, 2) ? c->s.head_dim : 16 * (1 + below(r, c->s.head_dim / 16));
	c->q_scale = below(r, 2) ? 1 : 0.8125f;
	c->n_layers = 1 + below(r, 3);
	c->n_row = 1 + below(r, 700);
	c->n_page = c->n_row / 128 + 2;
	c->data = both_normal((size_t)(c->n_layers * (c->s.q_heads + 2 * c->s.kv_heads) * n_tok *
				       c->s.head_dim),
			      r);
	c->host = (struct layer_seq){ c->data.host, n_tok };
	c->dev = (struct layer_seq){ c->data.dev, n_tok };
	c->row = both_new((size_t)c->n_row * sizeof *row);
	row = c->row.host;
	for (int i = 0; i < c->n_row; i++)
		row[i] = (struct layer_row){ below(r, n_tok), below(r, turns),
					     c->n_page * 128 - 1 - i };
	upload(&c->row);
	c->trig = both_new((size_t)(turns * c->s.head_dim) * sizeof(float));
	for (int i = 0; i < turns * c->s.head_dim / 2; i++) {
		((float *)c->trig.host)[2 * i] = cosf((float)i);
		((float *)c->trig.host)[2 * i + 1] = sinf((float)i);
	}
	upload(&c->trig);
}

static void scene_release(struct scene *c)
{
	both_free(&c->data);
	both_free(&c->row);
	both_free(&c->trig);
}

static void test_rope_cache(void)
{
	struct ar_err err;
	struct rng r = { 11 };
	bool rope = true, cache = true;

	for (int n = 0; n < CASES; n++) {
		struct scene c;
		struct both q, k, pk, pv;
		struct kv_cache host, dev;
		int layer;

		scene_init(&c, &r);
		layer = below(&r, c.n_layers);
		q = both_new((size_t)(c.n_row * c.s.q_heads * c.s.head_dim) * sizeof(bf16_t));
		k = both_new((size_t)(c.n_row * c.s.kv_heads * c.s.head_dim) * sizeof(bf16_t));
		pk = both_new((size_t)(c.n_page * c.s.kv_heads * 128 * c.s.head_dim) *
			      sizeof(bf16_t));
		pv = both_new(pk.bytes);
		memset(pk.host, 0xff, pk.bytes);
		memset(pv.host, 0xff, pv.bytes);
		host = (struct kv_cache){ pk.host, pv.host };
		dev = (struct kv_cache){ pk.dev, pv.dev };
		layer_rope_ref(&c.s, &c.host, layer, c.row.host, c.n_row,
			       &(struct layer_angles){ c.trig.host, c.dim, c.q_scale }, q.host,
			       k.host);
		must(layer_rope(&c.s, &c.dev, layer, c.row.dev, c.n_row,
				&(struct layer_angles){ c.trig.dev, c.dim, c.q_scale }, q.dev,
				k.dev, NULL, &err),
		     &err);
		if (!equal(&q) || !equal(&k)) {
			diag("%d of %d channels rotate, Q times %g", c.dim, c.s.head_dim,
			     (double)c.q_scale);
			rope = false;
		}
		layer_cache_ref(&c.s, &c.host, layer, c.row.host, c.n_row, k.host, &host);
		must(layer_cache(&c.s, &c.dev, layer, c.row.dev, c.n_row, k.dev, &dev, NULL, &err),
		     &err);
		cache &= equal(&pk) && equal(&pv);
		both_free(&q);
		both_free(&k);
		both_free(&pk);
		both_free(&pv);
		scene_release(&c);
	}
	ok(rope, "rope equals the reference bit for bit");
	is_int(layer_rope(&(struct attn_shape){ 1, 1, 64, 128 }, &(struct layer_seq){ 0 }, 0, NULL,
			  1, &(struct layer_angles){ NULL, 24, 1 }, NULL, NULL, NULL, &err),
	       AR_USAGE, "24 channels are no multiple of 16: %s", err.msg);
	ok(cache, "the cache write equals the reference, and writes nothing else");
}

/* ---- rows ---- */

static void test_trig(void)
{
	enum { HALF = 64, TURNS = 3000 };
	struct both inv = both_new(HALF * sizeof(float)),
		    trig = both_new(HALF * TURNS * 2 * sizeof(float));
	struct ar_err err;
	float *got;

	for (int k = 0; k < HALF; k++)
		((float *)inv.host)[k] = powf(500000, -(float)k / HALF);
	upload(&inv);
	layer_trig_ref(inv.host, HALF, TURNS, 1.25f, trig.host);
	must(layer_trig(inv.dev, HALF, TURNS, 1.25f, trig.dev, NULL, &err), &err);
	got = download(&trig);
	is_f32(got, trig.host, HALF * TURNS * 2, 1e-7, 0,
	       "the table of angles equals the reference");
	free(got);
	both_free(&inv);
	both_free(&trig);
}

static void test_norm(void)
{
	struct rng r = { 12 };
	struct ar_err err;
	bool residual = true, norm = true;

	for (int n = 0; n < CASES; n++) {
		/* A thread of the kernel has one piece of a row, or more. */
		int rows = 1 + below(&r, 90), width = 8 * (1 + below(&r, n % 4 ? 700 : 3000)),
		    n_add = below(&r, 4);
		size_t size = (size_t)(rows * width);
		struct both x = both_normal(size, &r), w = both_normal((size_t)width, &r);
		struct both add = both_normal(size * (size_t)(n_add + 1), &r);
		struct both y = both_new(size * sizeof(bf16_t));

		layer_norm_ref(&(struct layer_norm_args){ x.host, add.host, n_add, w.host, y.host,
							  rows, width, 1e-5f, NULL });
		must(layer_norm(&(struct layer_norm_args){ x.dev, add.dev, n_add, w.dev, y.dev,
							   rows, width, 1e-5f, NULL },
				NULL, &err),
		     &err);
		residual &= equal(&x);
		norm &= close_to(&y);
		both_free(&x);
		both_free(&w);
		both_free(&add);
		both_free(&y);
	}
	ok(residual, "the residual equals the reference bit for bit");
	ok(norm, "the norm equals the reference within one bf16 step");
}

/* To a residual of 0 the addend is added alone.  y is compared with the norm of the x that the
 * device has. */
static void test_post_norm(void)
{
	struct rng r = { 15 };
	struct ar_err err;
	bool addend = true, norm = true;

	for (int n = 0; n < CASES; n++) {
		int rows = 1 + below(&r, 90), width = 8 * (1 + below(&r, n % 4 ? 700 : 3000)),
		    n_add = below(&r, 4);
		size_t size = (size_t)(rows * width);
		struct both x = both_new(size * sizeof(bf16_t)), y = both_new(x.bytes);
		struct both w = both_normal((size_t)width, &r),
			    post = both_normal((size_t)width, &r);
		struct both add = both_normal(size * (size_t)(n_add + 1), &r);
		struct layer_norm_args a = { x.host, add.host, n_add, w.host,	y.host,
					     rows,   width,    1e-5f, post.host };
		bf16_t *got;

		upload(&x);
		layer_norm_ref(&a);
		must(layer_norm(&(struct layer_norm_args){ x.dev, add.dev, n_add, w.dev, y.dev,
							   rows, width, 1e-5f, post.dev },
				NULL, &err),
		     &err);
		addend &= close_by(&x, 1e-30f, "addend");
		got = download(&x);
		a.x = got;
		a.n_add = 0;
		layer_norm_ref(&a);
		norm &= close_by(&y, 1e-30f, "norm");
		free(got);
		both_free(&x);
		both_free(&y);
		both_free(&w);
		both_free(&post);
		both_free(&add);
	}
	ok(addend, "a normalised addend equals the reference within one bf16 step");
	ok(norm, "and so does the norm after it");
}

static void test_acts(void)
{
	static const char *const name[] = { "silu", "gelu", "clamp" };
	struct rng r = { 13 };
	struct ar_err err;

	for (int act = ACT_SILU; act <= ACT_SWIGLU_CLAMP; act++) {
		bool same = true;

		for (int n = 0; n < CASES; n++) {
			int rows = 1 + below(&r, 300), width = 8 * (1 + below(&r, 200));
			struct both in = both_normal((size_t)(2 * rows * width), &r);
			struct both out = both_new((size_t)(rows * width) * sizeof(bf16_t));
			bf16_t *x = in.host;

			for (int i = 0; i < 2 * rows * width; i += 7) /* past the clamp, too */
				x[i] = bf16_from_f32(4 * bf16_to_f32(x[i]));
			upload(&in);
			layer_act_ref(act, in.host, rows, width, out.host);
			must(layer_act(act, in.dev, rows, width, out.dev, NULL, &err), &err);
			same &= close_by(&out, 1e-6f, name[act]);
			both_free(&in);
			both_free(&out);
		}
		ok(same, "%s: the gated activation equals the reference within one bf16 step",
		   name[act]);
	}
}

static void test_qkv(void)
{
	static const int dims[] = { 16, 64, 80, 128, 256 };
	struct rng r = { 16 };
	struct ar_err err;
	bool norm = true, gate = true;

	for (int n = 0; n < 2 * CASES; n++) {
		struct layer_qkv p = { .n_row = 1 + below(&r, 200),
				       .kv_heads = 1 + below(&r, 5),
				       .head_dim = dims[n % 5],
				       .gated = n / 5 % 2 };
		struct both x, w = both_normal((size_t)(2 * p.head_dim), &r), attn, out;
		struct layer_qkv dev;

		p.q_heads = p.kv_heads * (1 + below(&r, 8));
		x = both_normal((size_t)(p.n_row * layer_qkv_row(&p)), &r);
		attn = both_normal((size_t)(p.n_row * p.q_heads * p.head_dim), &r);
		out = both_new(attn.bytes);
		dev = p;
		p.x = x.host;
		dev.x = x.dev;
		if (p.gated) {
			layer_out_gate_ref(&p, attn.host, out.host);
			must(layer_out_gate(&dev, attn.dev, out.dev, NULL, &err), &err);
			gate &= close_by(&out, 1e-30f, "gated");
		}
		layer_qk_norm_ref(&p, w.host, 1e-5f);
		must(layer_qk_norm(&dev, w.dev, 1e-5f, NULL, &err), &err);
		if (!close_by(&x, 1e-30f, "norm of Q and K")) {
			diag("%d + %d heads of %d, gated %d, %d rows", p.q_heads, p.kv_heads,
			     p.head_dim, p.gated, p.n_row);
			norm = false;
		}
		both_free(&x);
		both_free(&w);
		both_free(&attn);
		both_free(&out);
	}
	ok(norm, "the norm of Q and K equals the reference within one bf16 step");
	ok(gate, "and so does the gated output");
}

static void test_sum(void)
{
	struct rng r = { 17 };
	struct ar_err err;
	bool same = true;

	for (int n = 0; n < CASES; n++) {
		int rows = 1 + below(&r, 200), width = 8 * (1 + below(&r, 300)),
		    n_add = 1 + below(&r, 10);
		size_t size = (size_t)(rows * width);
		struct both add = both_normal(size * (size_t)n_add, &r);
		struct both shared = both_normal(size, &r), gate = both_normal((size_t)rows, &r);
		struct layer_sum_args host = {
			add.host, n_add, shared.host, gate.host, rows, width
		};
		struct layer_sum_args dev = { add.dev, n_add, shared.dev, gate.dev, rows, width };

		if (n % 3 == 1)
			host.gate = dev.gate = NULL;
		if (n % 3 == 2)
			host.shared = dev.shared = NULL;
		layer_sum_ref(&host);
		must(layer_sum(&dev, NULL, &err), &err);
		same &= close_by(&add, 1e-5f, "sum");
		both_free(&add);
		both_free(&shared);
		both_free(&gate);
	}
	ok(same, "the sum of experts equals the reference within one bf16 step");
}

/* ---- products ---- */

static void multiply_ref(const struct gemm_args *x)
{
	for (int b = 0; b < x->n_batch; b++)
		for (int i = 0; i < x->m; i++)
			for (int j = 0; j < x->n; j++) {
				int a = b * x->m + i, w = b * x->n + j;
				float bias = x->bias ? bf16_to_f32(x->bias[w]) : 0;

				x->c[a * x->n + j] = bf16_from_f32(
					bias + bf16_dot(x->a + a * x->k, x->w + w * x->k, x->k));
			}
}

/* Whether the device computes one product.  Parts of a sum may be rounded to bf16. */
static bool product_agrees(struct gemm *g, struct gemm_args x, bool with_bias, struct rng *r)
{
	struct both a = both_normal((size_t)(x.n_batch * x.m * x.k), r);
	struct both w = both_normal((size_t)(x.n_batch * x.n * x.k), r);
	struct both bias = both_normal((size_t)(x.n_batch * x.n), r);
	struct both c = both_new((size_t)(x.n_batch * x.m * x.n) * sizeof(bf16_t));
	struct ar_err err;
	bf16_t *b = bias.host;
	bool same;

	for (int i = 0; i < x.n_batch * x.n; i++) /* as large as the product */
		b[i] = bf16_from_f32(bf16_to_f32(b[i]) * sqrtf((float)x.k));
	upload(&bias);
	x.a = a.dev;
	x.w = w.dev;
	x.bias = with_bias ? bias.dev : NULL;
	x.c = c.dev;
	must(gemm_run(g, &x, &err), &err);
	x.a = a.host;
	x.w = w.host;
	x.bias = with_bias ? bias.host : NULL;
	x.c = c.host;
	multiply_ref(&x);
	same = close_by(&c, 0x1p-7f * sqrtf((float)x.k), "product");
	if (!same)
		diag("%d products of m %d, n %d, k %d, bias %d", x.n_batch, x.m, x.n, x.k,
		     with_bias);
	both_free(&a);
	both_free(&w);
	both_free(&bias);
	both_free(&c);
	return same;
}

static void test_gemm(void)
{
	const char *must_have = getenv("ATTNREPLAY_REQUIRE_GPU");
	struct rng r = { 18 };
	struct gemm *g;
	struct ar_err err;
	enum ar_status st = gemm_open(&g, NULL, &err);
	bool plain = true, bias = true;

	if (st && (st != AR_NODEV || (must_have && !strcmp(must_have, "1"))))
		bail_out("%s", err.msg);
	if (st) {
		skip(2, "no cuBLAS");
		return;
	}
	for (int n = 0; n < CASES; n++) {
		struct gemm_args x = { .n_batch = n % 2 ? 1 : 1 + below(&r, 8),
				       .m = 1 + below(&r, n % 4 ? 8 : 80),
				       .n = 8 * (1 + below(&r, 20)),
				       .k = 8 * (1 + below(&r, 40)) };

		plain &= product_agrees(g, x, false, &r);
		bias &= product_agrees(g, x, true, &r);
		x.n_batch = x.n = 1; /* a gate of one column */
		plain &= product_agrees(g, x, false, &r);
	}
	ok(plain, "products equal the reference");
	ok(bias, "and those with a bias, of one matrix and of several");
	gemm_close(g);
}

static void test_gather_argmax(void)
{
	struct rng r = { 14 };
	struct ar_err err;
	bool gather = true, argmax = true;

	for (int n = 0; n < CASES; n++) {
		int n_in = 1 + below(&r, 200), n_out = 1 + below(&r, 300),
		    stride = 8 * (1 + below(&r, 500));
		int width = stride - below(&r, 8);
		struct both in = both_normal((size_t)(n_in * stride), &r);
		struct both index = both_new((size_t)n_out * sizeof(int32_t));
		struct both best = both_new((size_t)n_in * sizeof(int32_t));
		struct both out = both_new((size_t)(n_out * stride) * sizeof(bf16_t));
		bool by_index = below(&r, 2);

		for (int i = 0; i < n_out; i++)
			((int32_t *)index.host)[i] = below(&r, n_in);
		upload(&index);
		layer_gather_ref(in.host, n_in, by_index ? index.host : NULL, n_out, stride,
				 out.host);
		must(layer_gather(in.dev, n_in, by_index ? index.dev : NULL, n_out, stride, out.dev,
				  NULL, &err),
		     &err);
		gather &= equal(&out);
		/* Normal bf16 values repeat often enough for ties at the top. */
		layer_argmax_ref(in.host, n_in, width, stride, best.host);
		must(layer_argmax(in.dev, n_in, width, stride, best.dev, NULL, &err), &err);
		argmax &= equal(&best);
		both_free(&in);
		both_free(&index);
		both_free(&best);
		both_free(&out);
	}
	ok(gather, "gathered rows equal the reference");
	ok(argmax, "the index of the maximum equals the reference, ties included");
}

static void test_fill(void)
{
	struct ar_err err;
	bool same = true;

	for (int n = 1; n < 5000; n = n * 3 + 1) {
		struct both x = both_new((size_t)n * sizeof(bf16_t));

		layer_fill_ref(x.host, (size_t)n, (uint64_t)n, 0.25f);
		must(layer_fill(x.dev, (size_t)n, (uint64_t)n, 0.25f, NULL, &err), &err);
		same &= equal(&x);
		both_free(&x);
	}
	ok(same, "the random fill equals the reference bit for bit, whatever its length");
}

/* Device memory, as no host writes meanwhile. */
static void test_hold(void)
{
	struct ar_err err;
	struct both go = both_new(sizeof(int));
	int *value = go.host;

	*value = 1;
	upload(&go);
	must(layer_hold(go.dev, INT64_MAX, NULL, &err), &err);
	ok(equal(&go), "what is let go at once leaves the word alone");
	*value = 0;
	upload(&go);
	must(layer_hold(go.dev, 1000, NULL, &err), &err);
	*value = LAYER_HOLD_OVER;
	ok(equal(&go), "what nobody lets go ends, and says so");
	both_free(&go);
}

static void run_all(void)
{
	test_trig();
	test_rope_cache();
	test_norm();
	test_post_norm();
	test_acts();
	test_qkv();
	test_sum();
	test_gemm();
	test_gather_argmax();
	test_fill();
	test_hold();
	gpu_free_all();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
