/* SPDX-License-Identifier: Apache-2.0 */
/* Selection, unions and lists on the device against the reference, on random ragged batches.
 * ATTNREPLAY_TEST_CASES sets their number. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/flashprefill/flashprefill.h"
#include "kernels/select/selectors.h"
#include "kernels/union/union.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

enum { N_SHAPE = 24, N_TEST = 4 * (N_SHAPE + 1) + 1 };

#if HAVE_CUDA
static bool means_equal(const struct select_pair *p)
{
	void *got = malloc(p->state_bytes);
	bool same;

	gpu_read(got, p->state, p->state_bytes);
	same = !memcmp(got, p->state_ref, p->state_bytes);
	free(got);
	return same;
}

/* ---- masks, with the band in which rounding decides ---- */

/* The weights of one (query block, head) in double; returns the largest and the largest |logit|. */
static double weights(const struct select_pair *p, int r, int i, int h, double *w, double *reach)
{
	const struct batch_case *c = &p->c;
	const bf16_t *mean = p->state_ref;
	const struct attn_shape *s = &c->b.shape;
	int qa = c->ctx[r] / s->page_tok + i, end = c->ctx[r] + c->row0[r + 1] - c->row0[r];
	double *x = calloc((size_t)s->page_tok * (size_t)(qa + 1), sizeof *x);
	double max = -INFINITY, top = 0;

	*reach = 0;
	for (int pass = 0; pass < 2; pass++)
		for (int pos = qa * s->page_tok; pos < (qa + 1) * s->page_tok && pos < end; pos++) {
			size_t row = (size_t)(c->row0[r] + pos - c->ctx[r]);
			const bf16_t *q = c->q + (row * (size_t)s->q_heads + (size_t)h) *
							 (size_t)s->head_dim;

			for (int j = 0; pos >= c->ctx[r] && j < (pos + 1) / s->page_tok; j++) {
				size_t at = (size_t)c->page[c->page0[r] + j] * (size_t)s->kv_heads +
					    (size_t)(h / (s->q_heads / s->kv_heads));
				double *xj = &x[pos % s->page_tok * (qa + 1) + j];

				for (int d = 0; !pass && d < s->head_dim; d++)
					*xj += (double)bf16_to_f32(q[d]) *
					       bf16_to_f32(
						       mean[at * (size_t)s->head_dim + (size_t)d]) *
					       1.4426950408889634 / sqrt(s->head_dim);
				max = fmax(max, *xj);
				*reach = fmax(*reach, fabs(*xj));
				if (pass)
					w[j] += exp2(*xj - max);
			}
		}
	for (int j = 0; j <= qa; j++)
		top = fmax(top, w[j]);
	free(x);
	return top;
}

/* Differing bits of one row that rounding does not explain. */
static int row_faults(const struct select_pair *p, int r, int i, int h, const uint32_t *got,
		      const uint32_t *want)
{
	double alpha = (float)((const struct flashprefill *)p->self)->alpha, top, reach, slack;
	int n_blk = p->c.b.keys.mask_words * 32, faults = 0;
	double *w = calloc((size_t)n_blk, sizeof *w);

	top = weights(p, r, i, h, w, &reach);
	slack = fmax(1e-5, 2e-6 * reach) * top;
	for (int j = 0; j < n_blk; j++)
		if ((got[j / 32] ^ want[j / 32]) >> j % 32 & 1)
			faults += fabs(w[j] - alpha * top) > slack;
	free(w);
	return faults;
}

/* ---- unions and lists ---- */

/* Lists of n_rows rows of a mask on the device against the reference. */
static bool lists_equal(const struct attn_batch *b, const uint32_t *host, const uint32_t *device,
			int n_rows)
{
	size_t n = (size_t)n_rows, stride = (size_t)b->keys.max_kv_blk;
	struct block_lists want = { malloc(n * stride * 2), malloc(n * 4), b->keys.max_kv_blk };
	struct block_lists got = { malloc(n * stride * 2), malloc(n * 4), b->keys.max_kv_blk };
	struct block_lists dev = { gpu_new(n * stride * 2, 0xff), gpu_new(n * 4, 0xff),
				   b->keys.max_kv_blk };
	struct ar_err err;
	bool same;

	memset(want.block, 0xff, n * stride * 2);
	lists_ref(host, n_rows, b->keys.mask_words, &want);
	gpu_must(lists_enqueue(device, n_rows, b->keys.mask_words, &dev, NULL, &err), &err);
	gpu_read(got.block, dev.block, n * stride * 2);
	gpu_read(got.n, dev.n, n * 4);
	same = !memcmp(want.block, got.block, n * stride * 2) && !memcmp(want.n, got.n, n * 4);
	free(want.block);
	free(want.n);
	free(got.block);
	free(got.n);
	return same;
}

static bool union_equal(struct select_pair *p, int heads, const uint32_t *mask, bool *lists)
{
	int n_rows = p->b.rows.n_req * union_groups(heads, &p->b.shape);
	size_t bytes = (size_t)n_rows * (size_t)p->b.keys.mask_words * sizeof(uint32_t);
	uint32_t *want = malloc(bytes), *got = malloc(bytes), *dev = gpu_new(bytes, 0xff);
	struct ar_err err;
	bool same;

	union_ref(&p->c.b, heads, mask, want);
	gpu_must(union_enqueue(&p->b, heads, p->mask, dev, NULL, &err), &err);
	gpu_read(got, dev, bytes);
	same = !memcmp(want, got, bytes);
	*lists &= lists_equal(&p->c.b, want, dev, n_rows);
	free(want);
	free(got);
	return same;
}

/* ---- cases ---- */

/* Block borders and their neighbours half of the time. */
static int draw_length(struct rng *rng, int least, int most)
{
	static const int edge[] = { 1, 63, 64, 127, 128, 129, 255, 256, 384 };
	int n = edge[rng_below(rng, sizeof edge / sizeof *edge)];

	return rng_below(rng, 2) && n >= least && n <= most ? n : select_draw(rng, least, most);
}

/* Scale the keys: 0 makes all scores equal, 30 makes few blocks overwhelm the others. */
static void scale_keys(struct batch_case *c, float by)
{
	for (size_t i = 0; i < c->kv_len; i++)
		c->kv.k[i] = bf16_from_f32(bf16_to_f32(c->kv.k[i]) * by);
}

struct tally {
	int cases, means, masks, unions, lists;
};

/* Sequences of ctx[i] + rows[i] + rest[i] tokens: every alpha and union. */
static void run_cut(struct tally *t, struct attn_shape s, struct rng *rng, uint64_t seed, int n,
		    const int *ctx, const int *rows, const int *rest)
{
	static const double alphas[] = { 0, 0.001, 0.01, 0.06, 0.3, 1 };
	static const float scales[] = { 1, 1, 1, 0, 30 };
	struct flashprefill param = { .sink = (int64_t)(seed % 3),
				      .window = 1 + (int64_t)(seed % 4),
				      .last_n = seed % 5 ? 0 : 1 + (int64_t)(seed % 3),
				      .last_rule = seed % 2,
				      .dense_first = true };
	struct select_pair p = { .selector = selector_find("flashprefill"), .self = &param };
	bool means_same, masks_same = true, unions_same = true, lists_same = true;
	int len[3];

	for (int r = 0; r < n; r++)
		len[r] = ctx[r] + rows[r] + rest[r];
	case_make(&p.c, rng, FILL_BLOCKS, s, n, len);
	p.c.b.tail = (int)(seed % 3);
	scale_keys(&p.c, scales[seed % 5]);
	case_cut(&p.c, (int[3]){ 0 }, ctx); /* open by dense-first: only the means are formed */
	select_both(&p);
	case_cut(&p.c, ctx, rows);
	param.dense_first = seed % 2;
	for (size_t a = 0; a < sizeof alphas / sizeof *alphas; a++) {
		const uint32_t *mask;

		param.alpha = alphas[a];
		mask = select_both(&p);
		masks_same &= select_agrees(&p, row_faults);
		for (int u = 1; unions[u].name; u++)
			unions_same &= union_equal(&p, union_heads(unions[u].kind, &s), mask,
						   &lists_same);
		lists_same &= lists_equal(&p.c.b, mask, p.mask, p.b.rows.n_qblk * s.q_heads);
	}
	means_same = means_equal(&p);
	t->cases++;
	t->means += means_same;
	t->masks += masks_same;
	t->unions += unions_same;
	t->lists += lists_same;
	if (!means_same || !masks_same || !unions_same || !lists_same)
		diag("seed %llu", (unsigned long long)seed);
	select_release(&p);
}

static void run_case(struct tally *t, struct attn_shape s, uint64_t seed)
{
	struct rng rng = { seed };
	int ctx[3], rows[3], rest[3], n = select_draw(&rng, 1, 3);

	for (int r = 0; r < n; r++) {
		ctx[r] = draw_length(&rng, 0, seed % 4 ? 3000 : 20000);
		rows[r] = draw_length(&rng, 1, 700);
		rest[r] = (int)rng_below(&rng, 2) * 50;
	}
	run_cut(t, s, &rng, seed, n, ctx, rows, rest);
}

static void report(const struct tally *t, const char *of)
{
	is_int(t->means, t->cases, "means have the reference's bits: %s", of);
	is_int(t->masks, t->cases, "masks differ only where rounding decides: %s", of);
	is_int(t->unions, t->cases, "unions are the reference's: %s", of);
	is_int(t->lists, t->cases, "lists are the reference's: %s", of);
}

static void test_shape(int head_dim, int group, int page_tok, int n_case)
{
	struct attn_shape s = {
		.q_heads = 2 * group, .kv_heads = 2, .head_dim = head_dim, .page_tok = page_tok
	};
	struct tally t = { 0 };
	char of[64];

	for (int k = 0; k < n_case; k++)
		run_case(&t, s,
			 (uint64_t)(head_dim * 100000 + group * 10000 + page_tok * 1000 + k));
	snprintf(of, sizeof of, "head size %d, group %d, blocks of %d", head_dim, group, page_tok);
	report(&t, of);
}

/* More blocks than a warp has lanes for mask words. */
static void test_long(void)
{
	struct attn_shape s = { .q_heads = 4, .kv_heads = 2, .head_dim = 64, .page_tok = 128 };
	struct rng rng = { 1 };
	struct tally t = { 0 };

	run_cut(&t, s, &rng, 1, 2, (int[]){ 2040 * 128 + 5, 1300 * 128 }, (int[]){ 300, 128 },
		(int[]){ 0, 9 });
	report(&t, "2043 blocks");
}

static void test_empty(void)
{
	struct attn_batch b = {
		.shape = { .q_heads = 2, .kv_heads = 1, .head_dim = 64, .page_tok = 64 }
	};
	struct flashprefill param = { .window = 1 };
	struct kv_cache kv = { 0 };
	struct ar_err err = { 0 };

	ok(!flashprefill_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, &param, NULL, &err) &&
		   !union_enqueue(&b, 1, NULL, NULL, NULL, &err) &&
		   !lists_enqueue(NULL, 0, 1, NULL, NULL, &err),
	   "an empty batch launches nothing");
}

static void run_all(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 40);

	for (int i = 0; i < N_SHAPE; i++)
		test_shape(64 << i / 2 % 3, 1 << i / 6, 64 << i % 2, (n + N_SHAPE - 1) / N_SHAPE);
	test_long();
	test_empty();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
