/* SPDX-License-Identifier: Apache-2.0 */
/* FlexPrefill on the device.  Its sums, by position and by block, are compared with the reference.
 * Its masks are compared with the masks that the reference makes from the same sums. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/select/flexprefill/flexprefill.h"
#include "kernels/select/lastq/lastq.h"
#include "kernels/select/means/means.h"
#include "kernels/select/selectors.h"
#include "tests/select_gpu.h"
#include "tests/tap.h"

enum { N_SHAPE = 7, N_TEST = 6 * (N_SHAPE + 3) + 2 };

#if HAVE_CUDA
/* Whether sums of n positions agree: to 1e-4 of each, and to as much less where all are small. */
static bool close(const float *a, const float *b, int n)
{
	for (int i = 0; i < n; i++)
		if (!(fabsf(a[i] - b[i]) <= 1e-4f * b[i] + 1e-9f))
			return false;
	return true;
}

static bool rows_equal(const struct batch_case *c, int r, int h, const uint32_t *a,
		       const uint32_t *b)
{
	size_t words = (size_t)c->b.keys.mask_words;

	for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++) {
		size_t at = (size_t)(i * c->b.shape.q_heads + h) * words;

		if (memcmp(a + at, b + at, words * sizeof *a))
			return false;
	}
	return true;
}

/* Bits of a head that are in a and not in b. */
static int bits_beyond(const struct batch_case *c, int r, int h, const uint32_t *a,
		       const uint32_t *b)
{
	int n = 0;

	for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++)
		for (int w = 0; w < c->b.keys.mask_words; w++) {
			size_t at = (size_t)(i * c->b.shape.q_heads + h) *
					    (size_t)c->b.keys.mask_words +
				    (size_t)w;

			n += __builtin_popcount(a[at] & ~b[at]);
		}
	return n;
}

/* Whether a head's mask follows from the sums.  JS may lie on either side of a tau within 1e-4.
 * Cells of a query-aware head that are at the threshold may change places. */
static bool follows(struct select_pair *p, int r, int h, const float *column, const float *slash,
		    const uint32_t *const *pool)
{
	const struct flexprefill *param = p->self;
	static const double tau[] = { 0, -1e-4, 1e-4 };
	struct batch_case *c = &p->c;
	struct ar_err err;

	for (int i = 0; i < 3; i++) {
		struct flexprefill near = *param;

		near.tau += tau[i];
		gpu_must(flexprefill_head(&c->b, &near, r, h, c->q, p->state_ref, column, slash,
					  pool, c->mask, &err),
			 &err);
		if (rows_equal(c, r, h, p->got, c->mask))
			return true;
		if (param->tau > 0 && bits_beyond(c, r, h, p->got, c->mask) <= 1 &&
		    bits_beyond(c, r, h, c->mask, p->got) <= 1)
			return true;
	}
	return false;
}

static struct tally {
	int cases, means, sums, blocks, wanted, old_sums, masks;
} t;

/* Arrays of the device, read back. */
static struct lastq read_back(const struct lastq *dev, size_t heads)
{
	size_t n = heads * (size_t)dev->stride, bytes = n * sizeof *dev->column;
	struct lastq x = { malloc(bytes), malloc(bytes), dev->stride };

	gpu_read(x.column, dev->column, bytes);
	gpu_read(x.slash, dev->slash, bytes);
	return x;
}

static void release(struct lastq *x)
{
	free(x->column);
	free(x->slash);
}

/* By blocks, and for the wanted heads by position. */
static void read_sums(const struct select_pair *p, const int *want, struct lastq *blocks,
		      struct lastq *sums)
{
	const struct attn_shape *s = &p->c.b.shape;
	const struct attn_limits limits = select_limits(&p->c.b);
	size_t heads = (size_t)(p->c.b.rows.n_req * s->q_heads);
	const int *dev = gpu_copy(want, heads * sizeof *want);
	void *work = gpu_new(lastq_blocks_work_bytes(s, &limits), 0xff);
	struct ar_err err;

	gpu_must(lastq_blocks_enqueue(&p->b, p->q, p->kv.k, blocks, work, NULL, &err), &err);
	gpu_must(lastq_wanted_enqueue(&p->b, p->q, p->kv.k, dev, sums, work, NULL, &err), &err);
	*blocks = read_back(blocks, heads);
	*sums = read_back(sums, heads);
}

/* Sums by block of n positions, first the one at from[0], then from[step] and so on. */
static void pool(float *out, const float *from, int step, int n, int tok)
{
	for (int i = 0; i < n; i += tok) {
		double sum = 0;

		for (int k = i; k < n && k < i + tok; k++)
			sum += from[k * step];
		out[i / tok] = (float)sum;
	}
}

/* Whether the sums of wanted heads have the same bits without the others. */
static bool wanted_alike(const struct select_pair *p, const struct lastq *all)
{
	const struct batch_case *c = &p->c;
	int heads = c->b.rows.n_req * c->b.shape.q_heads;
	struct rng rng = { (uint64_t)c->b.rows.n_row };
	int *want = malloc((size_t)heads * sizeof *want);
	struct lastq blocks, some;
	bool alike = true;

	for (int i = 0; i < heads; i++)
		want[i] = select_draw(&rng, 0, 1);
	read_sums(p, want, &blocks, &some);
	for (int i = 0; i < heads; i++) {
		int r = i / c->b.shape.q_heads, rows = c->row0[r + 1] - c->row0[r];
		size_t at = (size_t)i * (size_t)all->stride;
		size_t bytes = rows ? (size_t)(c->ctx[r] + rows) * sizeof *all->column : 0;

		if (want[i])
			alike &= !memcmp(some.column + at, all->column + at, bytes) &&
				 !memcmp(some.slash + at, all->slash + at, bytes);
	}
	release(&blocks);
	release(&some);
	free(want);
	return alike;
}

/* The same sums by the kernels for devices before compute capability 9. */
static void read_old_sums(const struct select_pair *p, float *out)
{
	const struct attn_shape *s = &p->c.b.shape;
	const struct attn_limits limits = select_limits(&p->c.b);
	int stride = p->c.b.keys.max_kv_blk * s->page_tok;
	size_t n = (size_t)(p->c.b.rows.n_req * s->q_heads) * (size_t)stride;
	float *sums = gpu_new(2 * n * sizeof *sums, 0xff);
	void *work = gpu_new(lastq_sm80_work_bytes(s, &limits), 0xff);
	struct ar_err err;

	gpu_must(lastq_sm80_enqueue(&p->b, s->page_tok, p->q, p->kv.k,
				    &(struct lastq){ sums, sums + n, stride }, work, NULL, &err),
		 &err);
	gpu_read(out, sums, 2 * n * sizeof *sums);
}

static void compare(struct select_pair *p)
{
	struct batch_case *c = &p->c;
	const struct attn_shape *s = &c->b.shape;
	int tok = s->page_tok, max_nb = c->b.keys.max_kv_blk, heads = c->b.rows.n_req * s->q_heads;
	size_t n = (size_t)max_nb * (size_t)tok;
	float *x = malloc((2 * n + 2 * (size_t)max_nb) * sizeof *x), *v = x + 2 * n;
	uint32_t *unit = malloc(2 * (size_t)max_nb * sizeof *unit);
	const uint32_t *const pools[2] = { unit, unit + max_nb };
	float *old = malloc(2 * (size_t)heads * n * sizeof *old);
	int *want = malloc((size_t)heads * sizeof *want);
	bool sums = true, blocks = true, old_sums = true, masks = true;
	struct lastq block, all;
	struct ar_err err;

	for (int i = 0; i < heads; i++)
		want[i] = 1;
	read_sums(p, want, &block, &all);
	read_old_sums(p, old);
	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int h = 0; h < s->q_heads && c->row0[r + 1] > c->row0[r]; h++) {
			size_t head = (size_t)(r * s->q_heads + h), at = head * n;
			const float *column = all.column + at, *slash = all.slash + at;
			const float *column_of = block.column + head * (size_t)block.stride;
			const float *slash_of = block.slash + head * (size_t)block.stride;
			int end = c->ctx[r] + c->row0[r + 1] - c->row0[r];
			int nb = (end + tok - 1) / tok;

			gpu_must(lastq_ref(&c->b, r, h, tok, c->q, c->kv.k, x, x + n, &err), &err);
			sums &= close(column, x, end) && close(slash, x + n, end);
			old_sums &= close(old + at, x, end) &&
				    close(old + (size_t)heads * n + at, x + n, end);
			pool(v, x, 1, end, tok);
			pool(v + max_nb, x + n + end - 1, -1, end, tok);
			blocks &= close(column_of, v, nb) && close(slash_of, v + max_nb, nb);
			for (int j = 0; j < nb; j++) {
				unit[j] = flexprefill_units(column_of[j], 31);
				unit[max_nb + j] = flexprefill_units(slash_of[j], 31);
			}
			masks &= follows(p, r, h, column, slash, pools);
		}
	t.cases++;
	t.sums += sums;
	t.blocks += blocks;
	t.wanted += wanted_alike(p, &all);
	t.old_sums += old_sums;
	t.masks += masks;
	release(&block);
	release(&all);
	free(want);
	free(old);
	free(unit);
	free(x);
}

static void run_tau(struct attn_shape s, uint64_t seed, double tau, int n, const int *ctx,
		    const int *rows)
{
	static const enum case_fill fill[] = { FILL_NORMAL, FILL_RISING, FILL_BLOCKS, FILL_HUGE,
					       FILL_EQUAL };
	struct flexprefill param = { .gamma = 0.5 + 0.1 * (double)(seed % 5),
				     .tau = tau,
				     .min_budget = seed % 2 ? 1 : 256,
				     .max_budget = seed % 4 ? 0 : 1024 };
	struct select_pair p = { .selector = selector_find("flexprefill"), .self = &param };
	struct rng rng = { seed };
	int len[3];
	void *means;

	for (int r = 0; r < n; r++)
		len[r] = ctx[r] + rows[r] + (int)rng_below(&rng, 2) * 50;
	case_make(&p.c, &rng, fill[seed % 5], s, n, len);
	select_load(&p);
	case_cut(&p.c, (int[3]){ 0 }, ctx); /* the means of cached tokens */
	means_update(&p.c.b, p.c.kv.k, p.state_ref);
	gpu_write(p.state, p.state_ref, p.state_bytes);
	case_cut(&p.c, ctx, rows);
	p.c.b.n_sm = seed % 4 ? select_draw(&rng, 1, 200) : 0;
	means_update(&p.c.b, p.c.kv.k, p.state_ref);
	select_masks(&p);
	means = malloc(p.state_bytes);
	gpu_read(means, p.state, p.state_bytes);
	t.means += !memcmp(means, p.state_ref, p.state_bytes);
	compare(&p);
	free(means);
	select_release(&p);
}

static void run_case(struct attn_shape s, uint64_t seed, int n, const int *ctx, const int *rows)
{
	run_tau(s, seed, seed % 3 ? 0.3 * (double)(seed % 3) : 0, n, ctx, rows);
}

/* Scores so large that neighbours in fp32 are further apart than exponents of its range.  The
 * selection does not matter: a step that never fits would not come back. */
static void run_vast(struct attn_shape s)
{
	struct flexprefill param = { .gamma = 0.9, .tau = 0.1, .min_budget = 1 };
	struct select_pair p = { .selector = selector_find("flexprefill"), .self = &param };
	struct rng rng = { 77 };
	size_t n;

	case_make(&p.c, &rng, FILL_NORMAL, s, 1, (int[]){ 3000 });
	n = p.c.at[1] * (size_t)(s.q_heads * s.head_dim);
	for (size_t i = 0; i < n; i++)
		p.c.all_q[i] = bf16_from_f32(0x1p36f * bf16_to_f32(p.c.all_q[i]));
	select_load(&p);
	case_cut(&p.c, (int[]){ 0 }, (int[]){ 3000 });
	select_masks(&p);
	select_release(&p);
}

static void report(const char *of)
{
	is_int(t.means, t.cases, "means have the reference's bits: %s", of);
	is_int(t.sums, t.cases, "columns and diagonals add up alike: %s", of);
	is_int(t.blocks, t.cases, "and so do blocks of them: %s", of);
	is_int(t.wanted, t.cases, "heads do not depend on which others are wanted: %s", of);
	is_int(t.old_sums, t.cases, "columns and diagonals on older devices: %s", of);
	is_int(t.masks, t.cases, "masks follow from them: %s", of);
	t = (struct tally){ 0 };
}

static void test_empty(void)
{
	struct attn_batch b = { .shape = { 2, 1, 64, 128 }, .rows.n_req = 1, .keys.max_kv_blk = 1 };
	struct flexprefill param = { .gamma = 1 };
	struct kv_cache kv = { 0 };
	struct selection none = { 0 };
	struct ar_err err = { 0 };

	ok(!flexprefill_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, &param, &none, &err),
	   "an empty batch launches nothing");
}

static void run_all(void)
{
	static const struct select_shape shape[N_SHAPE] = {
		{ { 4, 2, 64, 128 }, "heads of 64, groups of 2" },
		{ { 4, 1, 128, 128 }, "heads of 128, groups of 4" },
		{ { 3, 1, 128, 128 }, "groups of 3" },
		{ { 8, 1, 128, 128 }, "groups of 8" },
		{ { 2, 2, 128, 128 }, "groups of 1" },
		{ { 6, 1, 256, 128 }, "heads of 256, groups of 6" },
		{ { 10, 2, 64, 64 }, "blocks of 64, groups of 5" },
	};

	select_shapes(shape, N_SHAPE, 6000, run_case, report);
	run_case(shape[0].s, 1, 2, (int[]){ 4096 * 4, 4096 }, (int[]){ 300, 1 });
	run_case(shape[1].s, 2, 2, (int[]){ 2048 - 100, 4096 }, (int[]){ 101, 2048 });
	run_case(shape[2].s, 3, 2, (int[]){ 4096 - 100, 4096 - 200 }, (int[]){ 101, 200 });
	run_case(shape[1].s, 5, 3, (int[]){ 0, 0, 100 }, (int[]){ 1, 100, 300 });
	run_case(shape[3].s, 16, 2, (int[]){ 8000 - 30, 2500 }, (int[]){ 200, 140 });
	/* more KV heads of requests than a warp has lanes */
	run_case((struct attn_shape){ 24, 12, 64, 128 }, 6, 3, (int[]){ 500, 1000, 0 },
		 (int[]){ 40, 200, 150 });
	report("on both sides of where work is split");
	for (int k = 0; k < 4; k++) /* one has equal keys only */
		run_case(shape[0].s, (uint64_t)k + 4, 2, (int[]){ 20000 + k, 12288 - 4 + k },
			 (int[]){ 200, 4 });
	report("where a sample is taken");
	for (int i = 0; i < N_SHAPE; i++) { /* tau is amid the values of JS */
		run_tau(shape[i].s, 31, 0.505, 2, (int[]){ 3000, 1500 }, (int[]){ 200, 300 });
		run_tau(shape[i].s, 32, 0.164, 2, (int[]){ 3000, 1500 }, (int[]){ 200, 300 });
		run_tau(shape[i].s, 33, 0.17, 2, (int[]){ 3000, 1500 }, (int[]){ 90, 300 });
	}
	report("where some heads are query-aware");
	run_vast(shape[1].s);
	run_vast(shape[5].s);
	ok(true, "scores past 2^30 come to an end");
	test_empty();
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
