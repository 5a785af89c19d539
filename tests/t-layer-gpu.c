/* SPDX-License-Identifier: Apache-2.0 */
/* RoPE, the cache, gathering and drawing on the device against their references. */
#include "config.h"
#include "kernels/layer/layer.h"

#include <stdlib.h>
#include <string.h>

#include "tests/gpu_test.h"
#include "tests/gpu_both.h"
#include "tests/tap.h"

enum { N_TEST = 10 };

#if HAVE_CUDA

#include <math.h>

enum { CASES = 20 };

static void must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
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
	const bool product = below(r, 3) == 0; /* instead of captured tokens */
	struct layer_row *row;

	c->s.kv_heads = 1 + below(r, 20); /* more than a thread block takes, too */
	c->s.q_heads = c->s.kv_heads * group;
	c->s.head_dim = dims[below(r, 4)];
	c->s.page_tok = 128;
	c->dim = below(r, 2) ? c->s.head_dim : 16 * (1 + below(r, c->s.head_dim / 16));
	c->q_scale = below(r, 2) ? 1 : 0.8125f;
	c->n_layers = 1 + below(r, 3);
	c->n_row = 1 + below(r, below(r, 2) ? 128 : 700); /* RoPE takes up to 128 another way */
	c->n_page = c->n_row / 128 + 2;
	c->data = both_normal((size_t)((c->s.q_heads + 2 * c->s.kv_heads) * c->s.head_dim *
				       (product ? c->n_row : c->n_layers * n_tok)),
			      r);
	c->host = (struct layer_seq){ c->data.host, product ? 0 : n_tok };
	c->dev = (struct layer_seq){ c->data.dev, product ? 0 : n_tok };
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
		host = (struct kv_cache){ .k = pk.host, .v = pv.host };
		dev = (struct kv_cache){ .k = pk.dev, .v = pv.dev };
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

/* Normal bf16 values repeat often enough for ties at the top.  In fp32 they are the same. */
static bool argmax_agrees(const struct both *in, int n_row, int width, int stride)
{
	struct both best = both_new((size_t)n_row * sizeof(int32_t));
	struct both real = both_new((size_t)(n_row * stride) * sizeof(float));
	const bf16_t *x = in->host;
	struct ar_err err;
	bool same;

	for (int i = 0; i < n_row * stride; i++)
		((float *)real.host)[i] = bf16_to_f32(x[i]);
	upload(&real);
	layer_argmax_ref(&(struct layer_logits){ in->host, NULL, n_row, width, stride }, best.host);
	must(layer_argmax(&(struct layer_logits){ in->dev, NULL, n_row, width, stride }, best.dev,
			  NULL, &err),
	     &err);
	same = equal(&best);
	gpu_fill(best.dev, best.bytes, 0xff);
	must(layer_argmax(&(struct layer_logits){ NULL, real.dev, n_row, width, stride }, best.dev,
			  NULL, &err),
	     &err);
	same &= equal(&best);
	both_free(&best);
	both_free(&real);
	return same;
}

/* Every other row, or the first half, goes to a slot of its own. */
static bool puts_agree(const struct both *in, int n_in, int width, bool by_index, struct rng *r)
{
	int n = (n_in + 1) / 2;
	struct both row = both_new((size_t)n_in * sizeof(struct layer_row));
	struct both index = both_new((size_t)n * sizeof(int32_t));
	struct both out = both_new((size_t)(n_in * width) * sizeof(bf16_t));
	struct ar_err err;
	bool good;

	for (int i = 0; i < n_in; i++) {
		struct layer_row *to = row.host;
		int k = below(r, i + 1);

		to[i] = to[k];
		to[k].slot = i;
	}
	for (int k = 0; k < n; k++)
		((int32_t *)index.host)[k] = 2 * k;
	upload(&row);
	upload(&index);
	upload(&out);
	layer_put_ref(in->host, row.host, by_index ? index.host : NULL, n, width, out.host);
	must(layer_put(in->dev, row.dev, by_index ? index.dev : NULL, n, width, out.dev, NULL,
		       &err),
	     &err);
	good = equal(&out);
	both_free(&row);
	both_free(&index);
	both_free(&out);
	return good;
}

static void test_gather_argmax(void)
{
	struct rng r = { 14 };
	struct ar_err err;
	bool gather = true, put = true, argmax = true;

	for (int n = 0; n < CASES; n++) {
		int n_in = 1 + below(&r, 200), n_out = 1 + below(&r, 300),
		    stride = 8 * (1 + below(&r, 500));
		int width = stride - below(&r, 8);
		struct both in = both_normal((size_t)(n_in * stride), &r);
		struct both index = both_new((size_t)n_out * sizeof(int32_t));
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
		put &= puts_agree(&in, n_in, stride, by_index, &r);
		argmax &= argmax_agrees(&in, n_in, width, stride);
		both_free(&in);
		both_free(&index);
		both_free(&out);
	}
	ok(gather, "gathered rows equal the reference");
	ok(put, "so do rows that are put into slots");
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
