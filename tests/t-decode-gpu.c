/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode attention on the device against the reference, on random batches: over all blocks, over
 * block tables and piece lists, under windows and sinks, and over keys in any order.
 * ATTNREPLAY_TEST_CASES (60) is the number of batches, ATTNREPLAY_TEST_SEED (1) their seed.
 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/batch_case.h"
#include "tests/gpu_test.h"
#include "tests/tap.h"

enum { N_EMPTY = 5, N_TEST = N_EMPTY + 1 + 18 };

#if HAVE_CUDA

enum { MAX_REQ = 80 };

/* A batch on both sides.  All launches of a case use the same work, as it is left to them. */
struct pair {
	struct batch_case c;
	struct attn_batch b;
	struct kv_cache kv;
	bf16_t *q, *out;
	float *sink; /* NULL: none */
	float *lse;
	void *work;
};

/* Bounds of the rows of a batch. */
struct bounds {
	int window; /* -1: none; 0: random first keys */
	bool sinks;
	int rows; /* at random positions of each request; 0: its last one */
};
static const struct bounds unbounded = { -1, false, 0 };

static void pair_make(struct pair *p, struct attn_shape s, int n_req, const int *ctx,
		      enum case_fill fill, struct bounds bounds, struct rng *rng)
{
	const struct attn_limits most = { .max_req = n_req, .max_row = n_req };
	int rows[MAX_REQ] = { 0 }, more[MAX_REQ];

	for (int r = 0; r < n_req; r++)
		rows[r] = 1;
	case_chunks(&p->c, rng, fill, s, n_req, ctx, rows);
	if (bounds.window >= 0)
		case_window(&p->c, bounds.window, rng);
	for (int r = 0; r < n_req; r++)
		more[r] = (int)rng_below(rng, (uint64_t)bounds.rows + 1);
	if (bounds.rows) {
		more[0]++;
		case_positions(&p->c, more, rng);
	}
	p->sink = NULL;
	if (bounds.sinks) {
		case_sinks(&p->c, rng);
		p->sink = gpu_copy(p->c.sink, (size_t)s.q_heads * sizeof *p->sink);
	}
	if (rng_below(rng, 4) == 0)
		case_overflow(&p->c, rng);
	p->b = gpu_batch(&p->c.b);
	p->kv = gpu_kv(&p->c.kv, p->c.kv_len);
	p->q = gpu_copy(p->c.q, p->c.q_len * sizeof *p->q);
	p->out = gpu_new(p->c.q_len * sizeof *p->out, 0xff);
	p->lse = gpu_new((size_t)(p->c.b.rows.n_row * s.q_heads) * sizeof *p->lse, 0xff);
	p->work = gpu_new(decode_work_bytes(&s, &most), 0xff);
}

static void pair_release(struct pair *p)
{
	gpu_free_all();
	case_release(&p->c);
}

/* Of the reference. */
struct output {
	bf16_t *out;
	float *lse;
};

static struct attn_call device_call(struct pair *p)
{
	gpu_fill(p->out, p->c.q_len * sizeof *p->out, 0xff);
	return (struct attn_call){ .b = &p->b,
				   .q = p->q,
				   .kv = p->kv,
				   .sink = p->sink,
				   .out = p->out,
				   .lse = p->lse,
				   .work = p->work };
}

static struct attn_call host_call(struct pair *p, struct output *o)
{
	o->out = gpu_host(p->c.q_len * sizeof *o->out);
	o->lse = gpu_host((size_t)(p->c.b.rows.n_row * p->c.b.shape.q_heads) * sizeof *o->lse);
	return (struct attn_call){ .b = &p->c.b,
				   .q = p->c.q,
				   .kv = p->c.kv,
				   .sink = p->c.sink,
				   .out = o->out,
				   .lse = o->lse };
}

/* Output of the device; the caller frees it. */
static bf16_t *output_of(struct pair *p)
{
	bf16_t *got = gpu_host(p->c.q_len * sizeof *got);

	gpu_read(got, p->out, p->c.q_len * sizeof *got);
	return got;
}

/* The same after a launch for the case.  l NULL: all blocks. */
static bf16_t *run(struct pair *p, int heads, const struct block_lists *l, int n_list)
{
	struct attn_call call = device_call(p);
	struct block_lists lists = { 0 };
	struct ar_err err;

	if (l)
		lists = gpu_lists(l, n_list);
	gpu_must(decode_enqueue(&call, heads, l ? &lists : NULL, &err), &err);
	return output_of(p);
}

static bf16_t *run_pieces(struct pair *p, const struct piece_lists *l)
{
	const int n = p->c.b.rows.n_req * p->c.b.shape.q_heads / l->heads;
	const struct piece_lists lists = gpu_pieces(l, n);
	struct attn_call call = device_call(p);
	struct ar_err err;

	gpu_must(decode_pieces_enqueue(&call, &lists, &err), &err);
	return output_of(p);
}

/* Elements that are off by more than rounding, and a share of errors that is not small. */
static bool near(const bf16_t *got, const bf16_t *want, size_t n)
{
	double diff = 0, norm = 0;
	int bad = 0;

	for (size_t i = 0; i < n; i++) {
		double w = bf16_to_f32(want[i]), e = fabs(bf16_to_f32(got[i]) - w);

		if (isnan(w)) {
			bad += !isnan(e);
			continue;
		}
		bad += !(e <= 2e-2 * fmax(1, fabs(w)));
		diff += e * e;
		norm += w * w;
	}
	return !bad && sqrt(diff) <= 5e-3 * sqrt(norm);
}

/* Log sums of the last launch: of sums of 128 products in another order. */
static bool near_lse(const struct pair *p, const float *want)
{
	const size_t n = (size_t)(p->c.b.rows.n_row * p->c.b.shape.q_heads);
	float *got = gpu_host(n * sizeof *got);
	int bad = 0;

	gpu_read(got, p->lse, n * sizeof *got);
	for (size_t i = 0; i < n; i++)
		bad += isfinite(want[i]) ?
			       !(fabsf(got[i] - want[i]) <= 1e-3f * fmaxf(1, fabsf(want[i]))) :
			       isnan(want[i]) != isnan(got[i]) ||
				       (isinf(want[i]) && got[i] != want[i]);
	free(got);
	return !bad;
}

/* Whether got, and the log sums on the device, are near those of the reference.  Frees both. */
static bool agree(const struct pair *p, bf16_t *got, struct output *want)
{
	bool good = near(got, want->out, p->c.q_len) && near_lse(p, want->lse);

	free(want->out);
	free(want->lse);
	free(got);
	return good;
}

static bool run_both(struct pair *p, int heads, const struct block_lists *l, int n_list)
{
	struct output want;
	struct attn_call call = host_call(p, &want);
	struct ar_err err;

	gpu_must(decode_ref(&call, heads, l, &err), &err);
	return agree(p, run(p, heads, l, n_list), &want);
}

static bool pieces_both(struct pair *p, const struct piece_lists *l)
{
	struct output want;
	struct attn_call call = host_call(p, &want);
	struct ar_err err;

	gpu_must(decode_pieces_ref(&call, l, &err), &err);
	return agree(p, run_pieces(p, l), &want);
}

/* ---- batches ---- */

static struct attn_shape draw_shape(struct rng *rng)
{
	int kv_heads = 1 + (int)rng_below(rng, 3), group = 1 << rng_below(rng, 4);

	if (rng_below(rng, 6) == 0)
		group = 1 + (int)rng_below(rng, 40);
	return (struct attn_shape){ .q_heads = kv_heads * group,
				    .kv_heads = kv_heads,
				    .head_dim = 64 << rng_below(rng, 3),
				    .page_tok = 64 << rng_below(rng, 2) };
}

/* Mixed lengths, or in one of three batches lengths that differ by an eighth at most. */
static void draw_pair(struct pair *p, enum case_fill fill, struct bounds bounds, struct rng *rng)
{
	int n = 1 + (int)rng_below(rng, MAX_REQ), most = n < 10 ? 20000 : 2000, ctx[MAX_REQ];
	bool alike = rng_below(rng, 3) == 0;
	int longest = case_draw_len(rng, most);

	for (int r = 0; r < n; r++) {
		int less = (int)rng_below(rng, (uint64_t)longest / 8 + 1);

		ctx[r] = (alike ? longest - less : case_draw_len(rng, most)) - 1;
	}
	pair_make(p, draw_shape(rng), n, ctx, fill, bounds, rng);
}

/* Tables over the blocks up to each row's own, each kept with probability density. */
static int draw_tables(const struct batch_case *c, int heads, double density, struct block_lists *l,
		       struct rng *rng)
{
	const struct attn_shape *s = &c->b.shape;
	int group = s->q_heads / s->kv_heads;
	int per_req = s->kv_heads * ((group + heads - 1) / heads), n = c->b.rows.n_req * per_req;

	l->stride = c->b.keys.max_kv_blk;
	l->block = gpu_host((size_t)n * (size_t)l->stride * sizeof *l->block);
	l->n = gpu_host((size_t)n * sizeof *l->n);
	memset(l->block, 0xff, (size_t)n * (size_t)l->stride * sizeof *l->block);
	for (int i = 0; i < n; i++) {
		l->n[i] = 0;
		for (int j = 0; j <= c->ctx[i / per_req] / s->page_tok; j++)
			if (rng_unit(rng) < density)
				l->block[i * l->stride + l->n[i]++] = (uint16_t)j;
	}
	return n;
}

static void test_dense(long cases, long seed)
{
	static const int len[] = { 1, 63, 64, 65, 127, 128, 129, 2048, 2049, 4096, 4097, 20000 };
	enum { N = sizeof len / sizeof *len };
	struct rng rng = { rng_mix((uint64_t)seed) };
	bool good = true;
	struct pair p;
	int ctx[N];

	for (int i = 0; i < N; i++)
		ctx[i] = len[i] - 1;
	for (int k = 0; k < 6; k++) {
		int dim = 64 << k / 2, page_tok = 64 << k % 2;

		for (int i = 0; i < N; i++) {
			pair_make(&p, (struct attn_shape){ 4 << i % 2, 1 + i % 2, dim, page_tok },
				  1, &ctx[i], FILL_NORMAL, unbounded, &rng);
			good &= run_both(&p, 0, NULL, 0);
			pair_release(&p);
		}
		pair_make(&p, (struct attn_shape){ 40, 2, dim, page_tok }, N, ctx, FILL_HUGE,
			  unbounded, &rng);
		good &= run_both(&p, 0, NULL, 0);
		pair_release(&p);
	}
	ok(good, "lengths around the block sizes, 32 blocks and a long one, alone and together");
	good = true;
	for (long i = 0; i < cases && good; i++) {
		draw_pair(&p, (enum case_fill)(i % 3), unbounded, &rng);
		good = run_both(&p, 0, NULL, 0);
		if (!good)
			diag("seed %ld, case %ld", seed, i);
		pair_release(&p);
	}
	ok(good, "random batches of mixed lengths");
}

/* Segments of equal length, fewer than multiprocessors to more than teams of warps: none of them is
 * cut, or all are cut alike.  Lists of all blocks are cut as they are, bit for bit. */
static void test_even(long seed)
{
	static const struct {
		int n_req, kv_heads, len;
	} batch[] = { { 4, 1, 4100 }, { 3, 11, 700 }, { 64, 2, 300 }, { 80, 3, 200 },
		      { 66, 8, 130 }, { 43, 3, 150 }, { 8, 2, 2100 }, { 33, 1, 600 } };
	struct rng rng = { rng_mix((uint64_t)seed) };
	bool good = true, same = true;
	int ctx[MAX_REQ];

	for (int i = 0; i < 2 * (int)(sizeof batch / sizeof *batch); i++) {
		const int n = batch[i / 2].n_req, heads = batch[i / 2].kv_heads;
		const int len = batch[i / 2].len, dim = i % 2 ? 64 << 2 * (i / 2 % 2) : 128;
		const struct attn_shape s = { 4 * heads, heads, dim, 64 << (i / 2 + i) % 2 };
		struct block_lists l;
		bf16_t *dense, *listed;
		struct pair p;

		for (int r = 0; r < n; r++)
			ctx[r] = len - r % 5;
		pair_make(&p, s, n, ctx, FILL_NORMAL, unbounded, &rng);
		good &= run_both(&p, 0, NULL, 0);
		draw_tables(&p.c, 4, 1.1, &l, &rng);
		dense = run(&p, 0, NULL, 0);
		listed = run(&p, 4, &l, n * heads);
		same &= !memcmp(dense, listed, p.c.q_len * sizeof *dense);
		free(dense);
		free(listed);
		lists_free(&l);
		pair_release(&p);
	}
	ok(good, "segments of equal length");
	ok(same, "and lists of all of their blocks");
}

/* Each launch twice: the sums of pieces do not depend on chance. */
static void test_bounds(long cases, long seed, bool window, bool sinks, const char *what)
{
	static const int windows[] = { 1, 7, 64, 65, 128, 129, 1000, 4096, 100000, 0, 0, 0 };
	struct rng rng = { rng_mix((uint64_t)seed) };
	bool good = true;

	for (long i = 0; i < cases && good; i++) {
		struct bounds bounds = { window ? windows[i % 12] : -1, sinks, 0 };
		bf16_t *first, *again;
		struct pair p;

		draw_pair(&p, (enum case_fill)(i / 3 % 3), bounds, &rng);
		first = run(&p, 0, NULL, 0);
		again = run(&p, 0, NULL, 0);
		good = run_both(&p, 0, NULL, 0) && !memcmp(first, again, p.c.q_len * sizeof *first);
		if (!good)
			diag("seed %ld, case %ld: %d requests, window %d, %d heads over %d, size "
			     "%d, pages of %d",
			     seed, i, p.c.b.rows.n_req, bounds.window, p.c.b.shape.q_heads,
			     p.c.b.shape.kv_heads, p.c.b.shape.head_dim, p.c.b.shape.page_tok);
		free(first);
		free(again);
		pair_release(&p);
	}
	ok(good, "%s", what);
}

/* Requests with rows in the middle, whose keys have come in any order. */
static void test_positions(long cases, long seed)
{
	struct rng rng = { rng_mix((uint64_t)seed) };
	bool good = true;

	for (long i = 0; i < cases && good; i++) {
		struct bounds bounds = { -1, i % 3 == 2, 1 + (int)rng_below(&rng, 3) };
		struct pair p;

		draw_pair(&p, (enum case_fill)(i / 3 % 3), bounds, &rng);
		good = run_both(&p, 0, NULL, 0);
		if (!good)
			diag("seed %ld, case %ld: %d rows, %d heads over %d, size %d, pages of %d",
			     seed, i, p.c.b.rows.n_req, p.c.b.shape.q_heads, p.c.b.shape.kv_heads,
			     p.c.b.shape.head_dim, p.c.b.shape.page_tok);
		pair_release(&p);
	}
	ok(good, "keys in any order");
}

/* Rows at the first positions, which see few of many keys: most pieces hold no key for them. */
static void test_few(long seed)
{
	struct rng rng = { rng_mix((uint64_t)seed) };
	const struct bounds bounds = { -1, false, 3 };
	const int ctx[] = { 50000 };
	struct pair p;
	bool good = true;

	for (int dim = 64; dim <= 256; dim *= 2) {
		pair_make(&p, (struct attn_shape){ 4, 1, dim, 64 }, 1, ctx, FILL_NORMAL, bounds,
			  &rng);
		for (int r = 0; r < p.c.b.rows.n_row; r++)
			((int32_t *)(uintptr_t)p.c.b.rows.own)[r] = r;
		p.b = gpu_batch(&p.c.b);
		good &= run_both(&p, 0, NULL, 0);
		pair_release(&p);
	}
	ok(good, "few keys of many");
}

/* After a launch under tables, and before one, dense attention finds the work as they left it. */
static void test_tables(long cases, long seed, double density, const char *what)
{
	struct rng rng = { rng_mix((uint64_t)seed) };
	bool good = true;

	for (long i = 0; i < cases && good; i++) {
		struct block_lists l;
		struct pair p;
		int group, heads, n;

		draw_pair(&p, (enum case_fill)(i % 3), unbounded, &rng);
		group = p.c.b.shape.q_heads / p.c.b.shape.kv_heads;
		heads = 1 + (int)rng_below(&rng, (uint64_t)group);
		n = draw_tables(&p.c, heads, density, &l, &rng);
		good = run_both(&p, heads, &l, n) && run_both(&p, 0, NULL, 0) &&
		       run_both(&p, heads, &l, n);
		if (!good)
			diag("seed %ld, case %ld: heads %d of %d", seed, i, heads, group);
		lists_free(&l);
		pair_release(&p);
	}
	ok(good, "%s", what);
}

/* Tables of whole KV heads cut the work as dense attention does. */
static void test_full(long cases, long seed)
{
	struct rng rng = { rng_mix((uint64_t)seed) };
	int same = 0;

	for (long i = 0; i < cases; i++) {
		struct block_lists l;
		bf16_t *dense, *listed;
		struct pair p;
		int group, n;

		draw_pair(&p, FILL_NORMAL, unbounded, &rng);
		group = p.c.b.shape.q_heads / p.c.b.shape.kv_heads;
		n = draw_tables(&p.c, group, 1.1, &l, &rng);
		dense = run(&p, 0, NULL, 0);
		listed = run(&p, i % 2 ? 0 : group, &l, n);
		same += !memcmp(dense, listed, p.c.q_len * sizeof *dense);
		free(dense);
		free(listed);
		lists_free(&l);
		pair_release(&p);
	}
	is_int(same, cases, "tables of all blocks give the bits of dense attention");
}

/* Groups of up to 16 heads have masks in every other case. */
static void test_pieces(long cases, long seed, double density, const char *what)
{
	struct rng rng = { rng_mix((uint64_t)seed) };
	bool good = true;

	for (long i = 0; i < cases && good; i++) {
		int tok = 1 << i % 8, heads;
		struct piece_lists l;
		struct pair p;

		draw_pair(&p, (enum case_fill)(i % 3), unbounded, &rng);
		tok = tok < p.c.b.shape.page_tok ? tok : p.c.b.shape.page_tok;
		heads = i % 5 ? p.c.b.shape.q_heads / p.c.b.shape.kv_heads : 1;
		case_pieces(&p.c, tok, heads, heads <= 16 && i / 8 % 2, density, &l, &rng);
		good = pieces_both(&p, &l) && run_both(&p, 0, NULL, 0) && pieces_both(&p, &l);
		if (!good)
			diag("seed %ld, case %ld: pieces of %d, heads %d, head size %d, pages of "
			     "%d%s",
			     seed, i, tok, heads, p.c.b.shape.head_dim, p.c.b.shape.page_tok,
			     l.mask ? ", masks" : "");
		pieces_free(&l);
		pair_release(&p);
	}
	ok(good, "%s", what);
}

/* Lists of all pieces cut the work as dense attention does in the kernel for all GPUs.  At head
 * size 256 dense attention has no other kernel. */
static void test_all_pieces(long cases, long seed)
{
	struct rng rng = { rng_mix((uint64_t)seed) };
	int same = 0;

	for (long i = 0; i < cases; i++) {
		struct piece_lists l;
		bf16_t *dense, *listed;
		struct pair p;
		int group, tok = 1 << i % 8;
		size_t n;

		draw_pair(&p, FILL_NORMAL, unbounded, &rng);
		group = p.c.b.shape.q_heads / p.c.b.shape.kv_heads;
		tok = tok < p.c.b.shape.page_tok ? tok : p.c.b.shape.page_tok;
		case_pieces(&p.c, tok, group, group <= 16, 1.1, &l, &rng);
		n = (size_t)(p.c.b.rows.n_req * p.c.b.shape.kv_heads * l.stride);
		if (l.mask)
			memset(l.mask, 0xff, n * sizeof *l.mask);
		dense = run(&p, 0, NULL, 0);
		listed = run_pieces(&p, &l);
		same += near(listed, dense, p.c.q_len) &&
			(p.c.b.shape.head_dim < 256 ||
			 !memcmp(dense, listed, p.c.q_len * sizeof *dense));
		free(dense);
		free(listed);
		pieces_free(&l);
		pair_release(&p);
	}
	is_int(same, cases, "lists of all pieces give dense attention, its bits at head size 256");
}

/* Outputs that are not 0 when all n tables are empty. */
static int count_seen(struct pair *p, struct block_lists *l, int n)
{
	bf16_t *got;
	int bad = 0;

	memset(l->n, 0, (size_t)n * sizeof *l->n);
	got = run(p, 1, l, n);
	for (size_t i = 0; i < p->c.q_len; i++)
		bad += got[i] != 0;
	free(got);
	return bad;
}

/* Most or all segments are empty.  There are more of them than thread blocks, or fewer, so that no
 * stretches end with segments. */
static void test_empty(long seed)
{
	const struct attn_shape many = { 32, 8, 128, 64 };
	struct rng rng = { rng_mix((uint64_t)seed) };
	struct block_lists l;
	int ctx[MAX_REQ], n, bad;
	struct pair p;

	for (int r = 0; r < MAX_REQ; r++)
		ctx[r] = r * 10;
	pair_make(&p, many, MAX_REQ, ctx, FILL_NORMAL, unbounded, &rng);
	n = draw_tables(&p.c, 1, 0.02, &l, &rng);
	ok(run_both(&p, 1, &l, n), "thousands of tables, most of them empty");
	bad = count_seen(&p, &l, n);
	lists_free(&l);
	pair_release(&p);
	for (int dim = 64; dim <= 256; dim *= 2) {
		const struct attn_shape few = { 1, 1, dim, 64 };

		pair_make(&p, few, 80, ctx, FILL_NORMAL, unbounded, &rng);
		n = draw_tables(&p.c, 1, 0.02, &l, &rng);
		bad += count_seen(&p, &l, n);
		lists_free(&l);
		pair_release(&p);
	}
	is_int(bad, 0, "where all tables are empty all rows are 0");
}

/* Which thread block comes last and adds up a segment's sums is chance. */
static void test_again(long seed)
{
	const int ctx[] = { 30000, 5000, 100 };
	struct rng rng = { rng_mix((uint64_t)seed) };
	enum { N = 20 };
	struct pair p;
	bf16_t *first;
	int same = 0;

	pair_make(&p, (struct attn_shape){ 16, 2, 128, 128 }, 3, ctx, FILL_NORMAL, unbounded, &rng);
	first = run(&p, 0, NULL, 0);
	for (int i = 0; i < N; i++) {
		bf16_t *again = run(&p, 0, NULL, 0);

		same += !memcmp(first, again, p.c.q_len * sizeof *again);
		free(again);
	}
	is_int(same, N, "every launch gives the same bits");
	free(first);
	pair_release(&p);
}

static void test_nothing(void)
{
	struct attn_batch b = { .shape = { 8, 2, 128, 64 } };
	struct kv_cache kv = { 0 };
	float sink = 0;
	int32_t first = 0, n = 0;
	uint16_t block = 0;
	struct block_lists l = { &block, &n, 1 };
	struct ar_err err;

	is_int(decode_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, 0, NULL, &err), AR_OK,
	       "nothing to do");
	is_int(decode_enqueue(&(struct attn_call){ .b = &b, .kv = kv, .sink = &sink }, 0, &l, &err),
	       AR_USAGE, "sinks under block tables");
	b.rows.first = &first;
	is_int(decode_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, 0, &l, &err), AR_USAGE,
	       "a window under block tables");
	b.rows.first = NULL;
	b.keys.pos = &first;
	is_int(decode_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, 0, &l, &err), AR_USAGE,
	       "keys in any order under block tables");
	is_int(decode_pieces_enqueue(&(struct attn_call){ .b = &b, .kv = kv },
				     &(struct piece_lists){ .tok = 1, .heads = 4, .n = &n }, &err),
	       AR_USAGE, "and under piece lists");
}

static void test_failure(void)
{
	struct attn_batch b = { .shape = { 8, 2, 128, 128 }, .rows.n_req = 1 };
	struct kv_cache kv = { 0 };
	struct ar_err err = { 0 };

	ok(decode_enqueue(&(struct attn_call){ .b = &b, .kv = kv }, 0, NULL, &err) == AR_CUDA &&
		   err.msg[0],
	   "without a GPU a launch fails with a message");
}

int main(void)
{
	long cases = gpu_test_number("ATTNREPLAY_TEST_CASES", 18);
	long seed = gpu_test_number("ATTNREPLAY_TEST_SEED", 1);

	plan(N_TEST);
	test_nothing();
	if (!gpu_usable()) {
		test_failure();
		skip(N_TEST - N_EMPTY - 1, "no usable GPU");
		return done_testing();
	}
	skip(1, "there is a GPU");
	test_dense(cases, seed);
	test_even(seed + 14);
	test_tables(cases, seed + 1, 0.3, "random tables, any group size");
	test_tables(cases, seed + 2, 0.02, "short tables, many of them empty");
	test_full(cases / 4 + 1, seed + 3);
	test_pieces(2 * cases, seed + 11, 0.3, "random lists of pieces of any size");
	test_pieces(2 * cases, seed + 12, 0.02, "short lists of pieces, many of them empty");
	test_all_pieces(cases / 2 + 2, seed + 13);
	test_empty(seed + 4);
	test_again(seed + 5);
	test_bounds(cases, seed + 6, true, false, "windows");
	test_bounds(cases / 4 + 1, seed + 7, false, true, "sinks");
	test_bounds(cases, seed + 8, true, true, "windows and sinks");
	test_positions(cases, seed + 9);
	test_few(seed + 10);
	return done_testing();
}

#else
int main(void)
{
	plan(N_TEST);
	gpu_usable();
	skip(N_TEST, "no usable GPU");
	return done_testing();
}
#endif
