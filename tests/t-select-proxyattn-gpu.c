/* SPDX-License-Identifier: Apache-2.0 */
/* ProxyAttn's masks on the device equal the reference, except blocks where rounding decides. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "kernels/methods/method.h"
#include "kernels/select/proxyattn/proxyattn.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

static const char *const specs[] = {
	"proxyattn",
	"proxyattn:mass=0.6,q-stride=8",
	"proxyattn:block=64,groups=1,mass=0.8,q-stride=3",
	"proxyattn:block=64,groups=8,mass=0.3",
	"proxyattn:groups=3,mass=0.7,q-stride=128",
	"proxyattn:block=64,groups=3,mass=0.7,q-stride=5",
};
enum { N_SPEC = sizeof specs / sizeof *specs, N_TEST = 6 * N_SPEC + 1 };

#if HAVE_CUDA
/* ---- blocks where rounding decides ---- */

static double mean(const bf16_t *x, int n, size_t pitch)
{
	float sum = 0;

	for (int h = 0; h < n; h++)
		sum += bf16_to_f32(x[(size_t)h * pitch]);
	return bf16_round(sum / (float)n);
}

/* The attention of a row of request r to out[0 ... pos]. */
static void attend(const struct batch_case *c, int r, int pos, const struct proxy_heads *h,
		   double *out)
{
	const struct attn_shape *s = &c->b.shape;
	size_t dim = (size_t)s->head_dim, pitch = (size_t)s->page_tok * dim;
	size_t row = (size_t)(c->row0[r] + pos - c->ctx[r]) * (size_t)s->q_heads + (size_t)h->q;
	double max = -INFINITY, sum = 0, q[256];

	for (size_t d = 0; d < dim; d++)
		q[d] = mean(c->q + row * dim + d, h->q_end - h->q, dim);
	for (int x = 0; x <= pos; x++) {
		size_t page = (size_t)c->page[c->page0[r] + x / s->page_tok];
		size_t at = (page * (size_t)s->kv_heads + (size_t)h->kv) * pitch +
			    (size_t)(x % s->page_tok) * dim;

		out[x] = 0;
		for (size_t d = 0; d < dim; d++)
			out[x] += q[d] * mean(c->kv.k + at + d, h->kv_end - h->kv, pitch);
		out[x] /= sqrt(s->head_dim);
		max = fmax(max, out[x]);
	}
	for (int x = 0; x <= pos; x++)
		sum += out[x] = exp(out[x] - max);
	for (int x = 0; x <= pos; x++)
		out[x] /= sum;
}

/* The fewest and the most blocks that rounding may find a head to need. */
static void need(const struct batch_case *c, const struct proxyattn *p, int r, int head, double *x,
		 int out[2])
{
	const struct attn_shape *s = &c->b.shape;
	int kv = head / (s->q_heads / s->kv_heads), n_row = c->row0[r + 1] - c->row0[r];
	int end = c->ctx[r] + n_row, n = (end + s->page_tok - 1) / s->page_tok;
	const struct proxy_heads own = { head, head + 1, kv, kv + 1 };
	double *mass = calloc((size_t)n, sizeof *mass), all = 0;

	for (int i = 0; i < n_row && i < s->page_tok; i += (int)p->stride) {
		attend(c, r, end - 1 - i, &own, x);
		for (int t = 0; t < end - i; t++) {
			mass[t / s->page_tok] += x[t];
			all += x[t];
		}
	}
	qsort(mass, (size_t)n, sizeof *mass, order_f64);
	for (int side = 0; side < 2; side++) {
		double sum = 0, goal = (p->mass + (side ? 5e-4 : -5e-4)) * all;
		int k = 0;

		while (k < n && (!k || sum < goal))
			sum += mass[n - ++k];
		out[side] = k;
	}
	free(mass);
}

/* Scores of the blocks of query block qa. */
static void scores(const struct batch_case *c, const struct proxyattn *p, int r, int qa, int g,
		   double *x, double *score)
{
	struct proxy_heads h = proxyattn_heads(p, &c->b.shape, g);
	int tok = c->b.shape.page_tok, end = c->ctx[r] + c->row0[r + 1] - c->row0[r];
	int last = (qa + 1) * tok < end ? (qa + 1) * tok : end;

	memset(score, 0, (size_t)(qa + 1) * sizeof *score);
	for (int pos = last - 1; pos >= qa * tok && pos >= c->ctx[r]; pos -= (int)p->stride) {
		attend(c, r, pos, &h, x);
		for (int t = 0; t <= pos; t++)
			score[t / tok] = fmax(score[t / tok], x[t]);
	}
}

/* Differing bits of a row that rounding does not explain. */
static int row_faults(const struct select_pair *pair, int r, int i, int head, const uint32_t *got,
		      const uint32_t *want)
{
	const struct batch_case *c = &pair->c;
	const struct proxyattn *p = pair->self;
	const struct attn_shape *s = &c->b.shape;
	int end = c->ctx[r] + c->row0[r + 1] - c->row0[r];
	int n = (end + s->page_tok - 1) / s->page_tok;
	int qa = c->ctx[r] / s->page_tok + i, k[2], bad = 0;
	double *x = calloc((size_t)end, sizeof *x), *score = calloc((size_t)n, sizeof *score);

	need(c, p, r, head, x, k);
	scores(c, p, r, qa, head / proxyattn_size(p, s), x, score);
	for (int j = 0; j < c->b.keys.mask_words * 32; j++) {
		int above = 0, not_below = 0;

		if (!((got[j / 32] ^ want[j / 32]) >> j % 32 & 1))
			continue;
		for (int m = 1; m < qa && j > 0 && j < qa; m++) {
			above += score[m] > score[j] * 1.002 + 1e-30;
			not_below += m != j && score[m] >= score[j] * 0.998 - 1e-30;
		}
		bad += j == 0 || j >= qa || not_below < proxyattn_budget(k[0], qa, n) - 2 ||
		       above >= proxyattn_budget(k[1], qa, n) - 2;
	}
	free(score);
	free(x);
	return bad;
}

/* ---- cases ---- */

static bool agrees(const struct method *m, selector_fn *enqueue, int dim, uint64_t seed)
{
	static const enum case_fill fills[] = { FILL_NORMAL, FILL_BLOCKS, FILL_EQUAL };
	struct rng rng = { seed };
	struct attn_shape s = { seed % 2 ? 8 : 6, 2, dim, method_page_tok(m) };
	struct select_pair p = { .selector = method_prefill(m)->selector,
				 .self = method_prefill(m)->self,
				 .enqueue = enqueue };
	int n = 1 + (int)rng_below(&rng, 3), ctx[3], rows[3];
	bool good;

	for (int r = 0; r < n; r++) {
		ctx[r] = (int)rng_below(&rng, 2500);
		rows[r] = 1 + (int)rng_below(&rng, rng_below(&rng, 4) ? 250 : 3);
	}
	case_chunks(&p.c, &rng, fills[seed % 3], s, n, ctx, rows);
	select_both(&p);
	good = select_agrees(&p, row_faults);
	if (!good)
		diag("seed %llu", (unsigned long long)seed);
	select_release(&p);
	return good;
}

/* A context so long that one wave of thread blocks does not take it, and in which logits grow. */
static void test_long(void)
{
	struct rng rng = { 16 };
	int ctx = 16000, rows = 200;
	struct method *m;
	struct ar_err err;
	struct select_pair p = { .enqueue = proxyattn_enqueue };

	gpu_must(method_parse(&m, "proxyattn", &err), &err);
	p.selector = method_prefill(m)->selector;
	p.self = method_prefill(m)->self;
	case_chunks(&p.c, &rng, FILL_HUGE, (struct attn_shape){ 8, 2, 64, method_page_tok(m) }, 1,
		    &ctx, &rows);
	select_both(&p);
	ok(select_agrees(&p, row_faults), "200 rows on 16000 tokens");
	select_release(&p);
	method_free(m);
}

static void test_masks(const struct method *m, const char *spec, selector_fn *enqueue,
		       const char *by, uint64_t seed)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 4);

	for (int dim = 64; dim <= 256; dim *= 2) {
		int good = 0;

		for (int k = 0; k < n; k++)
			good += agrees(m, enqueue, dim, seed + (uint64_t)(dim * 100 + k));
		is_int(good, n, "%s, heads of %d%s", spec, dim, by);
	}
}

static void run_all(void)
{
	for (int i = 0; i < N_SPEC; i++) {
		struct method *m;
		struct ar_err err;

		gpu_must(method_parse(&m, specs[i], &err), &err);
		test_masks(m, specs[i], proxyattn_enqueue, "", (uint64_t)i * 100000);
		test_masks(m, specs[i], proxyattn_sm80_enqueue, ", as before Hopper",
			   (uint64_t)i * 100000);
		method_free(m);
	}
	test_long();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
