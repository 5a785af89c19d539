/* SPDX-License-Identifier: Apache-2.0 */
/* Norms, activations, gates and products on the device against their references. */
#include "config.h"
#include "kernels/layer/layer.h"

#include <stdlib.h>

#include "tests/gpu_test.h"
#include "tests/gpu_both.h"
#include "tests/tap.h"

enum { N_TEST = 15 };

#if HAVE_CUDA

#include <math.h>

#include "kernels/layer/gemm.h"

enum { CASES = 20 };

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
		float plus = (float)(n % 2);

		layer_norm_ref(&(struct layer_norm_args){ x.host, add.host, n_add, w.host, y.host,
							  rows, width, 1e-5f, NULL, plus });
		gpu_must(layer_norm(&(struct layer_norm_args){ x.dev, add.dev, n_add, w.dev, y.dev,
							       rows, width, 1e-5f, NULL, plus },
				    NULL, &err),
			 &err);
		residual &= equal(&x);
		norm &= plus > 0 ? close_by(&y, 1e-6f, "1 + w") : close_to(&y);
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
		struct layer_norm_args a = { x.host, add.host, n_add, w.host,	 y.host,
					     rows,   width,    1e-5f, post.host, (float)(n % 2) };
		bf16_t *got;

		upload(&x);
		layer_norm_ref(&a);
		gpu_must(layer_norm(&(struct layer_norm_args){ x.dev, add.dev, n_add, w.dev, y.dev,
							       rows, width, 1e-5f, post.dev,
							       a.plus },
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
	static const char *const name[] = { "silu", "gelu", "clamp", "relu2" };
	struct rng r = { 13 };
	struct ar_err err;

	for (int act = ACT_SILU; act <= ACT_RELU2; act++) {
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
			gpu_must(layer_act(act, in.dev, rows, width, out.dev, NULL, &err), &err);
			same &= close_by(&out, 1e-6f, name[act]);
			both_free(&in);
			both_free(&out);
		}
		ok(same, "%s: the activation equals the reference within one bf16 step", name[act]);
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
				       .gated = n / 5 % 2,
				       .plus = (float)(n / 10 % 2) };
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
			gpu_must(layer_out_gate(&dev, attn.dev, out.dev, NULL, &err), &err);
			gate &= close_by(&out, 1e-30f, "gated");
		}
		layer_qk_norm_ref(&p, w.host, 1e-5f);
		gpu_must(layer_qk_norm(&dev, w.dev, 1e-5f, NULL, &err), &err);
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
		gpu_must(layer_sum(&dev, NULL, &err), &err);
		same &= close_by(&add, 1e-5f, "sum");
		both_free(&add);
		both_free(&shared);
		both_free(&gate);
	}
	ok(same, "the sum of experts equals the reference within one bf16 step");
}

static void test_embed(void)
{
	struct rng r = { 19 };
	struct ar_err err;
	bool same = true;

	for (int n = 0; n < CASES; n++) {
		int rows = 1 + below(&r, 300), width = 8 * (1 + below(&r, 300));
		int vocab = 1 + below(&r, 500);
		struct both table = both_normal((size_t)(vocab * width), &r);
		struct both row = both_new((size_t)rows * sizeof(struct layer_row));
		struct both out = both_new((size_t)(rows * width) * sizeof(bf16_t));
		float scale = n % 2 ? 1 : sqrtf((float)width);

		for (int i = 0; i < rows; i++)
			((struct layer_row *)row.host)[i].tok = below(&r, vocab);
		upload(&row);
		layer_embed_ref(table.host, row.host, rows, width, scale, out.host);
		gpu_must(layer_embed(table.dev, row.dev, rows, width, scale, out.dev, NULL, &err),
			 &err);
		same &= equal(&out);
		both_free(&table);
		both_free(&row);
		both_free(&out);
	}
	ok(same, "embeddings equal the reference bit for bit");
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
	gpu_must(gemm_run(g, &x, &err), &err);
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

/* The sums of one product as they are: off by the rounding of fp32 only. */
static bool is_exact(struct gemm *g, struct gemm_args x, struct rng *r)
{
	struct both a = both_normal((size_t)(x.m * x.k), r);
	struct both w = both_normal((size_t)(x.n * x.k), r);
	struct both real = both_new((size_t)(x.m * x.n) * sizeof(float));
	const bf16_t *host_a = a.host, *host_w = w.host;
	struct ar_err err;
	float most = 0, *got;

	x.a = a.dev;
	x.w = w.dev;
	x.real = real.dev;
	gpu_must(gemm_run(g, &x, &err), &err);
	got = download(&real);
	for (int i = 0; i < x.m * x.n; i++)
		most = fmaxf(most, fabsf(got[i] - bf16_dot(host_a + i / x.n * x.k,
							   host_w + i % x.n * x.k, x.k)));
	free(got);
	both_free(&a);
	both_free(&w);
	both_free(&real);
	return most < 1e-5f * (float)x.k;
}

static void test_gemm(void)
{
	const char *required = getenv("ATTNREPLAY_REQUIRE_GPU");
	struct rng r = { 18 };
	struct gemm *g;
	struct ar_err err;
	enum ar_status st;
	bool plain = true, bias = true, exact = true;

	gemm_load_early();
	st = gemm_open(&g, NULL, &err);
	if (st && (st != AR_NODEV || (required && !strcmp(required, "1"))))
		bail_out("%s", err.msg);
	if (st) {
		skip(3, "no cuBLAS");
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
		x.n = 8 * (1 + below(&r, 60));
		exact &= is_exact(g, x, &r);
	}
	ok(plain, "products equal the reference");
	ok(bias, "and those with a bias, of one matrix and of several");
	ok(exact, "and those that are not rounded");
	gemm_close(g);
}

static void run_all(void)
{
	test_norm();
	test_post_norm();
	test_acts();
	test_qkv();
	test_sum();
	test_embed();
	test_gemm();
	gpu_free_all();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
