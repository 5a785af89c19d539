/* SPDX-License-Identifier: Apache-2.0 */
/* XAttention on the device.  Its masses are compared with the reference.  Its masks must follow
 * from its masses bit for bit.  ATTNREPLAY_TEST_CASES sets the number of batches. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/selectors.h"
#include "kernels/select/xattention/xattention.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

static const struct {
	struct attn_shape shape;
	int stride;
} settings[] = {
	{ { 4, 2, 128, 128 }, 4 }, { { 8, 2, 128, 128 }, 8 },  { { 16, 4, 128, 128 }, 16 },
	{ { 6, 2, 64, 128 }, 8 },  { { 5, 1, 256, 128 }, 16 }, { { 4, 4, 256, 128 }, 8 },
	{ { 8, 2, 64, 64 }, 4 },   { { 7, 1, 128, 64 }, 8 },   { { 8, 4, 128, 64 }, 16 },
	{ { 3, 3, 64, 64 }, 16 },
};
enum { N_SETTING = sizeof settings / sizeof *settings, N_TEST = N_SETTING + 6 };

#if HAVE_CUDA
struct pair { /* a case on the host, and the results of the device */
	struct select_pair s;
	struct xattention_self *x;
	uint32_t *mass; /* [query block][head][reduced row][max_kv_blk], in the first row */
	int per;	/* reduced rows */
};

static struct xattention_self *rule(int stride, int q_heads, struct rng *rng)
{
	struct xattention_self *x = calloc(1, sizeof *x + (size_t)q_heads * 2 * sizeof(float));

	x->stride = stride;
	x->q_heads = q_heads;
	x->last_dense = (int64_t)rng_below(rng, 100);
	x->tail = (int)rng_below(rng, 2);
	for (int i = 0; i < 2 * q_heads; i++)
		x->threshold[i] = rng_below(rng, 8) ? (float)rng_unit(rng) :
						      (float)rng_below(rng, 2);
	return x;
}

static void pair_run(struct pair *p)
{
	const struct attn_batch *b = &p->s.c.b;
	size_t bytes;

	p->s.selector = selector_find("xattention");
	p->s.self = p->x;
	p->s.layer = 1; /* of two */
	select_both(&p->s);
	p->per = b->shape.page_tok / p->x->stride;
	bytes = (size_t)(b->rows.n_qblk * b->shape.q_heads * p->per) * (size_t)b->keys.max_kv_blk *
		sizeof *p->mass;
	p->mass = malloc(bytes);
	gpu_read(p->mass, p->s.work, bytes);
}

static void pair_release(struct pair *p)
{
	select_release(&p->s);
	free(p->x);
	free(p->mass);
}

static bool kept(const struct pair *p, const uint32_t *mask, int row, int j)
{
	mask += (size_t)row * (size_t)p->s.c.b.keys.mask_words;
	return mask[j / 32] >> j % 32 & 1;
}

/* The rule on one row of masses, block by block. */
static bool row_follows(const struct pair *p, int row, int qa, float threshold, bool all,
			const uint32_t *mass)
{
	int n_blk = p->s.c.b.keys.mask_words * 32;
	bool *keep = calloc((size_t)n_blk, sizeof *keep), same = true;
	uint64_t total = 0, sum;

	for (int j = 0; j <= qa; j++) {
		total += mass[j];
		keep[j] = all || !j || j == qa;
	}
	sum = mass[0] + (qa ? (uint64_t)mass[qa] : 0);
	while (!all && (double)sum < (double)threshold * (double)total) {
		int best = -1;

		for (int j = 1; j < qa; j++)
			if (!keep[j] && (best < 0 || mass[j] > mass[best]))
				best = j;
		keep[best] = true;
		sum += mass[best];
	}
	for (int j = 0; j < n_blk; j++)
		same &= kept(p, p->s.got, row, j) == keep[j];
	free(keep);
	return same;
}

/* Errors of request r under one head: wrong masses, or masks that do not follow from them. */
static void compare(const struct pair *p, int r, int h, int *far_off, int *wrong)
{
	const struct attn_batch *b = &p->s.c.b;
	size_t blks = (size_t)b->keys.max_kv_blk;
	uint32_t *want = malloc(((size_t)b->rows.n_qblk * blks + 1) * sizeof *want);
	float threshold = p->x->threshold[p->x->q_heads + h];
	bool all = threshold >= 1 || b->rows.row0[r + 1] - b->rows.row0[r] == 1 ||
		   xattention_in_tail(p->x->last_dense, p->x->tail, b->rows.left[r]);
	struct ar_err err;

	gpu_must(xattention_masses(b, p->x->stride, r, h, p->s.c.q, p->s.c.kv.k, want, &err), &err);
	for (int i = 0; i < b->rows.qblk0[r + 1] - b->rows.qblk0[r]; i++) {
		int row = (b->rows.qblk0[r] + i) * b->shape.q_heads + h;
		int qa = b->rows.pos0[r] / b->shape.page_tok + i;
		const uint32_t *got = p->mass + (size_t)(row * p->per) * blks;
		const uint32_t *ref = want + (size_t)i * blks;

		for (int j = 0; !all && j <= qa; j++)
			*far_off += fabs((double)got[j] - ref[j]) > 1e-4 * ref[j] + 64;
		*wrong += !row_follows(p, row, qa, threshold, all, all ? ref : got);
	}
	free(want);
}

static bool agrees(struct pair *p)
{
	int far_off = 0, wrong = 0;

	pair_run(p);
	for (int r = 0; r < p->s.c.b.rows.n_req; r++)
		for (int h = 0; h < p->s.c.b.shape.q_heads; h++)
			compare(p, r, h, &far_off, &wrong);
	if (far_off || wrong)
		diag("%d masses far off, %d rows wrong", far_off, wrong);
	pair_release(p);
	return !far_off && !wrong;
}

/* A ragged batch of up to five chunks that begin and end anywhere; old: on the kernels of devices
 * before Hopper. */
static bool random_batch(int which, uint64_t seed, bool old)
{
	static const enum case_fill fill[] = { FILL_NORMAL, FILL_BLOCKS, FILL_EQUAL, FILL_HUGE };
	struct rng rng = { seed };
	int n = 1 + (int)rng_below(&rng, 5), len[5], ctx[5], rows[5];
	struct pair p = { .x = rule(settings[which].stride, settings[which].shape.q_heads, &rng),
			  .s.enqueue = old ? xattention_sm80_enqueue : NULL };

	for (int r = 0; r < n; r++) {
		ctx[r] = (int)rng_below(&rng, 3) ? (int)rng_below(&rng, 3000) : 0;
		rows[r] = 1 + (int)rng_below(&rng, rng_below(&rng, 2) ? 40 : 500);
		len[r] = ctx[r] + rows[r] + (int)rng_below(&rng, 150);
	}
	case_make(&p.s.c, &rng, fill[seed % 4], settings[which].shape, n, len);
	case_cut(&p.s.c, ctx, rows);
	return agrees(&p);
}

/* More requests than lanes of a warp.  Some have no row, and one is longer: there are thread blocks
 * enough for wide tiles. */
static bool many(int stride, int page_tok)
{
	enum { N = 70 };
	struct rng rng = { 70 };
	int ctx[N], rows[N];
	struct pair p = { .x = rule(stride, 4, &rng) };

	for (int r = 0; r < N; r++) {
		ctx[r] = (int)rng_below(&rng, r ? 400 : 10000);
		rows[r] = r % 9 == 4 ? 0 : 1 + (int)rng_below(&rng, 90);
	}
	p.x->last_dense = 0;
	case_chunks(&p.s.c, &rng, FILL_NORMAL, (struct attn_shape){ 4, 2, 64, page_tok }, N, ctx,
		    rows);
	return agrees(&p);
}

/* A context so long that thread blocks take several column tiles. */
static bool long_context(void)
{
	struct rng rng = { 64 };
	int ctx = 60000, rows = 1100;
	struct pair p = { .x = rule(4, 16, &rng) };

	p.x->last_dense = 0;
	case_chunks(&p.s.c, &rng, FILL_NORMAL, (struct attn_shape){ 16, 8, 64, 128 }, 1, &ctx,
		    &rows);
	return agrees(&p);
}

static bool refuses(void)
{
	struct rng rng = { 1 };
	struct attn_batch b = { .shape = { 300, 300, 64, 128 }, .rows.n_qblk = 1 };
	struct xattention_self *x = rule(8, 4, &rng);
	struct ar_err err;
	bool good = xattention_enqueue(&(struct attn_call){ .b = &b }, x, &(struct selection){ 0 },
				       &err) == AR_USAGE &&
		    strstr(err.msg, "at most 256 query heads");

	free(x);
	return good;
}

static void run_all(void)
{
	int n = (int)gpu_test_number("ATTNREPLAY_TEST_CASES", 16);

	for (int i = 0; i < N_SETTING; i++) {
		const struct attn_shape *s = &settings[i].shape;
		int good = 0;

		for (int k = 0; k < n; k++)
			good += random_batch(i, (uint64_t)(i * 100000 + k), false) &&
				random_batch(i, (uint64_t)(i * 100000 + k), true);
		is_int(good, n, "stride %d, blocks of %d, %d heads of %d over %d",
		       settings[i].stride, s->page_tok, s->q_heads, s->head_dim, s->kv_heads);
	}
	for (int per = 4; per <= 32; per *= 2) {
		int tok = per < 16 ? 64 : 128;

		ok(many(tok / per, tok), "70 requests, some without a row, stride %d", tok / per);
	}
	ok(long_context(), "1100 rows on 60000 tokens");
	ok(refuses(), "more heads than it has thresholds for are refused");
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
