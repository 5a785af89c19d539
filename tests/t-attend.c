/* SPDX-License-Identifier: Apache-2.0 */
/* Tile plans and the reference of attention, without a GPU. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/attend/attend.h"
#include "kernels/attend/attend_cut.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

struct result {
	bf16_t *out;
	float *f, *lse; /* f: out in fp32 */
	size_t n, n_row;
};

static struct result result_new(const struct batch_case *c)
{
	struct result x = { .n = c->q_len, .n_row = c->q_len / (size_t)c->b.shape.head_dim };

	x.out = malloc((x.n + 1) * sizeof *x.out);
	x.f = malloc((x.n + 1) * sizeof *x.f);
	x.lse = malloc((x.n_row + 1) * sizeof *x.lse);
	if (!x.out || !x.f || !x.lse)
		bail_out("out of memory");
	memset(x.out, 0xff, x.n * sizeof *x.out);
	return x;
}

static void result_free(struct result *x)
{
	free(x->out);
	free(x->f);
	free(x->lse);
}

static void ref(struct result *x, const struct batch_case *c, attend_plan_fn *cut, int heads,
		const struct block_lists *lists)
{
	struct ar_err err;

	if (attend_ref(&(struct attn_call){ .b = &c->b,
					    .q = c->q,
					    .kv = c->kv,
					    .sink = c->sink,
					    .out = x->out,
					    .lse = x->lse },
		       cut, heads, lists, &err))
		bail_out("reference: %s", err.msg);
	for (size_t i = 0; i < x->n; i++)
		x->f[i] = bf16_to_f32(x->out[i]);
}

/* ---- the vectors ---- */

static void check_vector(const struct result *x, enum case_example which, const char *what)
{
	float want[16];

	case_example_out(which, want);
	is_f32(x->f, want, 16, 0, 0x1p-8, "%s", what);
}

static void vector_case(struct batch_case *c)
{
	case_example(c);
	case_cut(c, (int[]){ 10 }, (int[]){ 4 });
}

static void test_vectors(void)
{
	uint16_t fp[4][3] = { { 0, 2, 5 }, { 0, 1, 5 }, { 0, 2, 6 }, { 0, 3, 6 } };
	uint16_t t[6] = { 0, 1, 2, 3, 5, 6 };
	uint16_t twice[4][6];
	int32_t n_fp[4] = { 3, 3, 3, 3 }, n_t[2] = { 6, 6 }, n_twice[4] = { 6, 6, 6, 6 };
	struct block_lists all = { 0 };
	struct batch_case c;
	struct result x;

	for (int i = 0; i < 4; i++)
		memcpy(twice[i], t, sizeof t);
	vector_case(&c);
	x = result_new(&c);
	ref(&x, &c, attend_plan_rows, 0, &all);
	check_vector(&x, EXAMPLE_DENSE, "paged: every block gives the dense vector");
	ref(&x, &c, attend_plan_blocks, 0, &all);
	check_vector(&x, EXAMPLE_DENSE, "blocksparse: every block gives the dense vector");
	ref(&x, &c, attend_plan_blocks, 0, &(struct block_lists){ fp[0], n_fp, 3 });
	check_vector(&x, EXAMPLE_BLOCKS, "blocksparse: lists per query block and head");
	ref(&x, &c, attend_plan_rows, 2, &(struct block_lists){ t, n_t, 6 });
	check_vector(&x, EXAMPLE_UNION, "paged: one table for the group");
	ref(&x, &c, attend_plan_rows, 1, &(struct block_lists){ twice[0], n_t, 6 });
	check_vector(&x, EXAMPLE_UNION, "paged: the same table for each head");
	ref(&x, &c, attend_plan_blocks, 0, &(struct block_lists){ twice[0], n_twice, 6 });
	check_vector(&x, EXAMPLE_UNION, "blocksparse: the same table for each query block");
	result_free(&x);
	case_release(&c);
}

/* ---- against a naive softmax in double ---- */

static void naive_row(const struct batch_case *c, int r, int row, int h, const uint16_t *list,
		      int n, double *out, double *lse)
{
	const struct attn_shape *s = &c->b.shape;
	int dim = s->head_dim, pos = c->b.rows.pos0[r] + row;
	int first = c->b.rows.first ? c->b.rows.first[c->b.rows.row0[r] + row] : 0;
	const bf16_t *q = c->q + ((c->b.rows.row0[r] + row) * s->q_heads + h) * dim;
	double sum = c->sink ? exp(c->sink[h]) : 0;

	for (int d = 0; d < dim; d++)
		out[d] = 0;
	for (int i = 0; i < n; i++)
		for (int t = 0; t < s->page_tok && list[i] * s->page_tok + t <= pos; t++) {
			int page = c->b.keys.page[c->b.keys.page0[r] + list[i]];
			size_t at = (size_t)((page * s->kv_heads + h / (s->q_heads / s->kv_heads)) *
						     s->page_tok +
					     t) *
				    (size_t)dim;
			double dot = 0, e;

			if (list[i] * s->page_tok + t < first)
				continue;
			for (int d = 0; d < dim; d++)
				dot += (double)bf16_to_f32(q[d]) *
				       bf16_to_f32(c->kv.k[at + (size_t)d]);
			e = exp(dot / sqrt(dim));
			sum += e;
			for (int d = 0; d < dim; d++)
				out[d] += e * bf16_to_f32(c->kv.v[at + (size_t)d]);
		}
	for (int d = 0; d < dim && sum > 0; d++)
		out[d] /= sum;
	*lse = log(sum);
}

/* Which list row (row, h) of request r is under. */
static int list_of(const struct batch_case *c, attend_plan_fn *cut, int heads, int r, int row,
		   int h)
{
	const struct attn_shape *s = &c->b.shape;
	int group = s->q_heads / s->kv_heads, per;

	if (cut != attend_plan_rows)
		return (c->b.rows.qblk0[r] + (c->b.rows.pos0[r] + row) / s->page_tok -
			c->b.rows.pos0[r] / s->page_tok) *
			       s->q_heads +
		       h;
	heads = heads ? heads : group;
	per = (group + heads - 1) / heads;
	return (r * s->kv_heads + h / group) * per + h % group / heads;
}

static void naive(struct result *x, const struct batch_case *c, attend_plan_fn *cut, int heads,
		  const struct block_lists *l)
{
	const struct attn_shape *s = &c->b.shape;
	double out[256];

	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int row = 0; row < c->b.rows.row0[r + 1] - c->b.rows.row0[r]; row++)
			for (int h = 0; h < s->q_heads; h++) {
				int i = list_of(c, cut, heads, r, row, h);
				size_t at = (size_t)((c->b.rows.row0[r] + row) * s->q_heads + h);
				double lse;

				naive_row(c, r, row, h, l->block + i * l->stride, l->n[i], out,
					  &lse);
				x->lse[at] = (float)lse;
				for (int d = 0; d < s->head_dim; d++)
					x->f[at * (size_t)s->head_dim + (size_t)d] = (float)out[d];
			}
}

static int same_lse(const float *a, const float *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] != b[i] && !(fabsf(a[i] - b[i]) < 1e-4f))
			return 0;
	return 1;
}

struct draw {
	struct attn_shape s;
	int n_req, ctx[4], rows[4];
	int heads;
};

static struct draw draw_shape(struct rng *rng)
{
	static const int page[] = { 1, 2, 8, 16, 64 }, dim[] = { 1, 2, 5, 16, 64 };
	int kv_heads = 1 + (int)rng_below(rng, 3), group = 1 + (int)rng_below(rng, 8);
	struct draw d = {
		.s = { .q_heads = kv_heads * group,
		       .kv_heads = kv_heads,
		       .head_dim = dim[rng_below(rng, 5)],
		       .page_tok = page[rng_below(rng, 5)] },
		.n_req = 1 + (int)rng_below(rng, 4),
		.heads = (int)rng_below(rng, (uint64_t)group + 1),
	};

	for (int r = 0; r < d.n_req; r++) {
		d.ctx[r] = (int)rng_below(rng, 40);
		d.rows[r] = (int)rng_below(rng, 40);
	}
	return d;
}

static void full_lists(const struct batch_case *c, int n, struct block_lists *l, struct rng *rng)
{
	case_lists(c, n, 0, l, rng);
	for (int i = 0; i < n; i++) {
		l->n[i] = l->stride;
		for (int j = 0; j < l->stride; j++)
			l->block[i * l->stride + j] = (uint16_t)j;
	}
}

/* A window of a case: about the size of a block, or any first keys. */
static int draw_window(const struct batch_case *c, int i)
{
	const int tok = c->b.shape.page_tok, window[] = { 1, 7, tok, tok + 1, 1000, 0 };

	return window[i % 6];
}

/* bounded: rows have first keys, or heads have sinks, or both; every other case has no lists. */
static void test_naive(attend_plan_fn *cut, bool bounded, const char *name)
{
	struct rng rng = { 2 };
	int bad = 0, bad_lse = 0;

	for (int i = 0; i < 60; i++) {
		struct draw d = draw_shape(&rng);
		struct block_lists l, none = { 0 };
		struct batch_case c;
		struct result got, want;

		case_chunks(&c, &rng, i % 3, d.s, d.n_req, d.ctx, d.rows);
		if (bounded && i / 2 % 3)
			case_window(&c, draw_window(&c, i / 6), &rng);
		if (bounded && i / 2 % 3 != 1)
			case_sinks(&c, &rng);
		if (bounded && i % 2)
			full_lists(&c, case_n_list(&c, cut, d.heads), &l, &rng);
		else
			case_lists(&c, case_n_list(&c, cut, d.heads), 0.6, &l, &rng);
		got = result_new(&c);
		want = result_new(&c);
		ref(&got, &c, cut, d.heads, bounded && i % 2 ? &none : &l);
		naive(&want, &c, cut, d.heads, &l);
		for (size_t k = 0; k < got.n; k++)
			bad += !(fabsf(got.f[k] - want.f[k]) <= 1e-4f + 0x1p-8f * fabsf(want.f[k]));
		bad_lse += i % 3 != FILL_HUGE && !same_lse(got.lse, want.lse, got.n_row);
		result_free(&got);
		result_free(&want);
		lists_free(&l);
		case_release(&c);
	}
	is_int(bad, 0, "%s: the outputs are those of a softmax in double", name);
	is_int(bad_lse, 0, "%s: so is the log-sum-exp, -inf where no key is seen", name);
}

/* ---- properties ---- */

static void test_dense(void)
{
	struct rng rng = { 3 };
	int differ_full = 0, differ_pack = 0, differ_alone = 0, nonzero = 0;

	for (int i = 0; i < 40; i++) {
		struct draw d = draw_shape(&rng);
		struct block_lists all = { 0 }, full;
		struct batch_case c;
		struct result a, b;

		case_chunks(&c, &rng, FILL_NORMAL, d.s, d.n_req, d.ctx, d.rows);
		full_lists(&c, case_n_list(&c, attend_plan_rows, d.heads), &full, &rng);
		a = result_new(&c);
		b = result_new(&c);
		ref(&a, &c, attend_plan_rows, d.heads, &all);
		ref(&b, &c, attend_plan_rows, d.heads, &full);
		differ_full += memcmp(a.out, b.out, a.n * sizeof *a.out) != 0 ||
			       memcmp(a.lse, b.lse, a.n_row * sizeof *a.lse) != 0;
		c.b.n_sm = 132;
		ref(&b, &c, attend_plan_blocks, 0, &all);
		differ_pack += memcmp(a.out, b.out, a.n * sizeof *a.out) != 0;
		fault_threads(true);
		ref(&b, &c, attend_plan_rows, d.heads, &all);
		fault_threads(false);
		differ_alone += memcmp(a.out, b.out, a.n * sizeof *a.out) != 0;
		for (int k = 0; k < case_n_list(&c, attend_plan_rows, d.heads); k++)
			full.n[k] = 0;
		ref(&b, &c, attend_plan_rows, d.heads, &full);
		for (size_t k = 0; k < b.n; k++)
			nonzero += b.out[k] != 0;
		for (size_t k = 0; k < b.n_row; k++)
			nonzero += b.lse[k] != -INFINITY;
		result_free(&a);
		result_free(&b);
		lists_free(&full);
		case_release(&c);
	}
	is_int(differ_full, 0, "no lists equal full lists bit for bit");
	is_int(differ_pack, 0, "how rows are packed and tiles might be cut changes no bit");
	is_int(differ_alone, 0, "the number of threads changes no bit");
	is_int(nonzero, 0, "empty lists give 0 and -inf");
}

/* Run one chunk of 90 rows, then the same rows as chunks of 37 and 53 over the same cache. */
static void test_chunks(void)
{
	struct attn_shape s = { .q_heads = 4, .kv_heads = 2, .head_dim = 16, .page_tok = 8 };
	struct rng rng = { 4 };
	struct block_lists all = { 0 };
	struct batch_case c;
	struct result whole, part;
	size_t row = (size_t)s.q_heads * (size_t)s.head_dim;
	int32_t row0[2] = { 0, 37 }, ctx = 21, len = 58;
	const bf16_t *q;
	struct batch_case half;

	case_chunks(&c, &rng, FILL_NORMAL, s, 1, (const int[]){ 21 }, (const int[]){ 90 });
	whole = result_new(&c);
	part = result_new(&c);
	ref(&whole, &c, attend_plan_rows, 0, &all);
	half = c;
	half.b.rows.row0 = row0;
	half.b.rows.pos0 = &ctx;
	half.b.keys.len = &len;
	q = c.q;
	attend_ref(&(struct attn_call){ .b = &half.b, .q = q, .kv = c.kv, .out = part.out },
		   attend_plan_rows, 0, &all, NULL);
	row0[1] = 53;
	ctx += 37;
	len += 53;
	half.b.rows.pos += 37;
	attend_ref(
		&(struct attn_call){
			.b = &half.b, .q = q + 37 * row, .kv = c.kv, .out = part.out + 37 * row },
		attend_plan_rows, 0, &all, NULL);
	ok(!memcmp(part.out, whole.out, part.n * sizeof *part.out),
	   "two chunks see the keys that one chunk sees");
	result_free(&whole);
	result_free(&part);
	case_release(&c);
}

/* Cut a prompt at random; every chunk has lost the blocks that its rows do not see. */
static void test_window_chunks(int window)
{
	struct attn_shape s = { .q_heads = 6, .kv_heads = 2, .head_dim = 16, .page_tok = 16 };
	size_t row = (size_t)s.q_heads * (size_t)s.head_dim;
	const int len = 150;
	struct rng rng = { 7 };
	struct block_lists all = { 0 };
	struct batch_case c;
	struct result whole, part;
	int same = 0, n = 0;

	case_make(&c, &rng, FILL_NORMAL, s, 1, &len);
	case_cut(&c, (const int[]){ 0 }, &len);
	case_window(&c, window, &rng);
	case_sinks(&c, &rng);
	whole = result_new(&c);
	ref(&whole, &c, attend_plan_rows, 0, &all);
	for (int ctx = 0, rows; ctx < len; ctx += rows, n++) {
		size_t at = (size_t)ctx * row;

		rows = 1 + (int)rng_below(&rng, 40);
		rows = rows < len - ctx ? rows : len - ctx;
		case_cut(&c, &ctx, &rows);
		case_window(&c, window, &rng);
		part = result_new(&c);
		ref(&part, &c, attend_plan_rows, 0, &all);
		same += !memcmp(part.out, whole.out + at, part.n * sizeof *part.out) &&
			!memcmp(part.lse, whole.lse + ctx * s.q_heads,
				part.n_row * sizeof *part.lse);
		result_free(&part);
	}
	is_int(same, n, "chunks under a window of %d have the bits of the whole prompt", window);
	result_free(&whole);
	case_release(&c);
}

/* A sink takes weight and gives no value. */
static void test_sink_alone(void)
{
	struct attn_shape s = { .q_heads = 2, .kv_heads = 1, .head_dim = 4, .page_tok = 4 };
	int32_t n[2] = { 0 };
	uint16_t block[2] = { 0 };
	struct rng rng = { 8 };
	struct batch_case c;
	struct result x;
	int bad = 0;

	case_chunks(&c, &rng, FILL_NORMAL, s, 1, (const int[]){ 3 }, (const int[]){ 3 });
	case_sinks(&c, &rng);
	x = result_new(&c);
	ref(&x, &c, attend_plan_rows, 0, &(struct block_lists){ block, n, 1 });
	for (size_t i = 0; i < x.n; i++)
		bad += x.out[i] != 0;
	for (size_t i = 0; i < x.n_row; i++)
		bad += x.lse[i] != c.sink[i % 2];
	is_int(bad, 0, "a row that sees no key but a sink is 0, and its lse is the sink");
	result_free(&x);
	case_release(&c);
}

static void test_decode(void)
{
	struct attn_shape s = { .q_heads = 6, .kv_heads = 2, .head_dim = 8, .page_tok = 8 };
	int ctx[] = { 0, 1, 7, 8, 60 }, rows[] = { 1, 1, 1, 1, 1 };
	struct rng rng = { 5 };
	struct block_lists full;
	struct batch_case c;
	struct result got, want;

	case_chunks(&c, &rng, FILL_NORMAL, s, 5, ctx, rows);
	full_lists(&c, case_n_list(&c, attend_plan_rows, 0), &full, &rng);
	got = result_new(&c);
	want = result_new(&c);
	naive(&want, &c, attend_plan_rows, 0, &full);
	is_int(decode_ref(&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = got.out }, 0,
			  NULL, NULL),
	       AR_OK, "decode runs");
	for (size_t i = 0; i < got.n; i++)
		got.f[i] = bf16_to_f32(got.out[i]);
	is_f32(got.f, want.f, got.n, 1e-4, 0x1p-8, "a decode row sees all tokens up to its own");
	lists_free(&full);
	result_free(&got);
	result_free(&want);
	case_release(&c);
}

/* ---- plans ---- */

/* Number of blocks that the tile's rows can see; the tile's part is [part_begin, part_end). */
static int n_blocks(const struct batch_case *c, const struct attn_tile *t)
{
	int first = c->b.rows.first ? c->b.rows.first[t->row] : 0, tok = c->b.shape.page_tok;

	return (t->pos + t->n_row - 1) / tok + 1 - first / tok;
}

static int part_begin(const struct batch_case *c, const struct attn_tile *t)
{
	int n = n_blocks(c, t);

	return !t->len ? n * t->part / t->n_part : t->part * t->len < n ? t->part * t->len : n;
}

static int part_end(const struct batch_case *c, const struct attn_tile *t)
{
	struct attn_tile next = *t;

	next.part++;
	return part_begin(c, &next);
}

/* left: the blocks of each (row, head) that no tile had yet, -1 at first.  False when the tile has
 * a block that another had, or does not fit the batch or the packing. */
static int mark(const struct batch_case *c, attend_plan_fn *cut, int heads,
		const struct attn_tile *t, int *left)
{
	const struct attn_batch *b = &c->b;
	int group = b->shape.q_heads / b->shape.kv_heads, row;

	if (t->req < 0 || t->req >= b->rows.n_req)
		return 0;
	row = t->row - b->rows.row0[t->req];
	if (t->n_row < 1 || t->n_head < 1 || row < 0 || t->pos != b->rows.pos0[t->req] + row ||
	    t->page0 != b->keys.page0[t->req] || t->row + t->n_row > b->rows.row0[t->req + 1] ||
	    t->head < 0 || t->head + t->n_head > b->shape.q_heads ||
	    t->n_row * t->n_head > ATTEND_ROWS ||
	    t->head / group != (t->head + t->n_head - 1) / group)
		return 0;
	for (int i = row; i < row + t->n_row; i++)
		for (int h = t->head; h < t->head + t->n_head; h++) {
			int *l = &left[(b->rows.row0[t->req] + i) * b->shape.q_heads + h];

			if (*l != (t->part ? n_blocks(c, t) - part_begin(c, t) : -1) ||
			    list_of(c, cut, heads, t->req, i, h) != t->list)
				return 0;
			*l = n_blocks(c, t) - part_end(c, t);
		}
	return 1;
}

/* Even parts and parts of a level have their least length; the last of a level has a block.
 * shares: parts of this plan may share rows. */
static int well_cut(const struct batch_case *c, const struct attn_tile *t, int shares)
{
	int few = shares && t->n_part <= ATTEND_SHARES;
	int n = n_blocks(c, t);
	int least = (few ? ATTEND_SHARE_KEYS : ATTEND_PART_KEYS) / c->b.shape.page_tok;

	if (t->part < 0 || t->part >= t->n_part || t->joined)
		return 0;
	if (!t->len)
		return t->n_part == 1 || n / t->n_part >= least;
	return t->len >= least && t->n_part == (n - 1) / t->len + 1;
}

/* Every tile has a place of its own, next to the places of its other parts. */
static int well_placed(const struct attn_tile *tile, int n)
{
	struct attn_tile *at = calloc((size_t)n + 1, sizeof *at);
	int good = 1;

	if (!at)
		bail_out("out of memory");
	for (int i = 0; i < n; i++) {
		int place = tile[i].place + tile[i].part;

		good = good && place >= 0 && place < n && !at[place].n_part;
		if (good)
			at[place] = tile[i];
	}
	for (int i = 1; i < n && good; i++) {
		struct attn_tile before = at[i];

		before.part--;
		good = !at[i].part || !memcmp(&before, &at[i - 1], sizeof before);
	}
	free(at);
	return good;
}

struct faults {
	int misfit, uncovered, unsorted, miscounted, miscut, misplaced, too_many, parts;
};

static void check_plan(struct faults *f, const struct batch_case *c, attend_plan_fn *cut, int heads)
{
	enum { MOST = 4 * 40 * 24 };
	int left[MOST], n = cut(&c->b, heads, NULL), n_whole, rank = 255;
	struct attn_tile tile[MOST + EXECUTOR_WAVES * 300];
	struct attn_batch whole = c->b;
	int half = cut != attend_plan_rows && c->b.shape.page_tok <= ATTEND_ROWS / 2;
	int shares = cut == attend_plan_rows && c->b.shape.head_dim <= 128 && n <= c->b.n_sm;

	memset(left, 0xff, sizeof left);
	whole.n_sm = 0;
	n_whole = cut(&whole, heads, NULL);
	f->too_many += n != n_whole &&
		       (n_whole >= (2 << half) * c->b.n_sm || n > EXECUTOR_WAVES * c->b.n_sm);
	f->miscounted += cut(&c->b, heads, tile) != n;
	for (int k = 0; k < n; k++) {
		int own = tile[k].len ? part_end(c, &tile[k]) - part_begin(c, &tile[k]) :
					(n_blocks(c, &tile[k]) - 1) / tile[k].n_part + 1;
		int now = attend_rank(own);

		f->misfit += !mark(c, cut, heads, &tile[k], left);
		f->miscut += !well_cut(c, &tile[k], shares);
		f->unsorted += now > rank;
		rank = now;
	}
	for (int k = 0; k < c->b.rows.n_row * c->b.shape.q_heads; k++)
		f->uncovered += left[k] != 0;
	f->misplaced += !well_placed(tile, n);
	f->parts += executor_count_parts(tile, n);
}

static void test_plan(attend_plan_fn *cut, int max_sm, bool window, const char *name)
{
	static const int page[] = { 2, 16, 64, 128 };
	struct rng rng = { 6 };
	struct faults f = { 0 };

	for (int i = 0; i < 200; i++) {
		struct draw d = draw_shape(&rng);
		struct batch_case c;

		d.s.page_tok = page[i % 4];
		for (int r = 0; r < d.n_req; r++)
			d.ctx[r] *= 1 << rng_below(&rng, 12);
		case_bare_chunks(&c, &rng, d.s, d.n_req, d.ctx, d.rows);
		if (window)
			case_window(&c, i % 3 ? case_draw_len(&rng, 20000) : 0, &rng);
		c.b.n_sm = max_sm ? 1 + (int)rng_below(&rng, (uint64_t)max_sm) : 0;
		check_plan(&f, &c, cut, d.heads);
		case_release(&c);
	}
	is_int(f.misfit, 0, "%s: tiles stay in their request, KV head, list and size", name);
	is_int(f.uncovered, 0, "%s: every (row, head, block) is in one tile", name);
	is_int(f.unsorted, 0, "%s: the longest come first", name);
	is_int(f.miscounted, 0, "%s: counting gives the same number", name);
	is_int(f.miscut, 0, "%s: parts have their least length", name);
	is_int(f.misplaced, 0, "%s: the places of a tile's parts adjoin", name);
	is_int(f.too_many, 0, "%s: enough tiles stay whole, parts are not too many", name);
	is_int(f.parts > 0, max_sm > 0, "%s: there are parts where they are asked for", name);
}

enum { SLOTS = 132, PART_COST = 600 };

/* When the last of n tiles ends, in keys: a slot takes the next one as soon as it is free. */
static int last_end(const struct batch_case *c, const struct attn_tile *tile, int n)
{
	int end[SLOTS] = { 0 }, last = 0, page = c->b.shape.page_tok;

	for (int i = 0; i < n; i++) {
		int first = 0;

		for (int k = 1; k < SLOTS; k++)
			first = end[k] < end[first] ? k : first;
		end[first] += PART_COST + (part_end(c, &tile[i]) - part_begin(c, &tile[i])) * page;
		last = end[first] > last ? end[first] : last;
	}
	return last;
}

struct split {
	int n, parts; /* tiles, and the parts of the first tile */
	int len;
	int end;
};

/* One request of 16 heads over 4 on 132 multiprocessors. */
static struct split split_plan(attend_plan_fn *cut, int heads, int page, int rows, int ctx)
{
	struct attn_shape s = { .q_heads = 16, .kv_heads = 4, .head_dim = 128, .page_tok = page };
	struct rng rng = { 1 };
	struct batch_case c;
	struct split x;

	case_bare_chunks(&c, &rng, s, 1, &ctx, &rows);
	c.b.n_sm = SLOTS;
	case_plan(&c, cut, heads);
	x = (struct split){ c.b.n_tile, c.tile[0].n_part, c.tile[0].len,
			    last_end(&c, c.tile, c.b.n_tile) };
	case_release(&c);
	return x;
}

static void test_split(void)
{
	/* clang-format off */
	static const struct {
		attend_plan_fn *cut;
		int heads, page, rows, ctx, n, parts;
	} want[] = {
		{ attend_plan_rows, 4, 128, 512, 32768, 128, 2 },	/* 64 tiles */
		{ attend_plan_rows, 4, 64, 512, 32768, 128, 2 },
		{ attend_plan_rows, 4, 128, 128, 32768, 128, 8 },	/* 16 tiles */
		{ attend_plan_rows, 4, 64, 128, 32768, 128, 8 },
		{ attend_plan_rows, 4, 128, 128, 256, 16, 1 },	/* 3 blocks are too few */
		{ attend_plan_rows, 4, 128, 128, 768, 48, 3 },	/* 7 blocks are enough for three */
		{ attend_plan_rows, 4, 64, 128, 768, 48, 3 },
		{ attend_plan_rows, 4, 128, 128, 1024, 64, 4 },	/* 9 for four */
		{ attend_plan_rows, 4, 128, 32, 2048, 32, 8 },	/* 17 for eight */
		{ attend_plan_rows, 4, 128, 32, 4096, 32, 8 },	/* 33 blocks: four each */
		{ attend_plan_rows, 4, 128, 1024, 32768, 128, 1 },	/* one full wave */
		{ attend_plan_rows, 0, 128, 2112, 65536, 264, 1 },	/* two full waves */
		{ attend_plan_blocks, 0, 128, 1024, 64512, 512, 4 },	/* room for four waves */
		{ attend_plan_blocks, 0, 64, 1024, 64512, 512, 2 },	/* 256 half as large */
		{ attend_plan_blocks, 0, 128, 128, 65536, 528, 33 },	/* for these, too */
		{ attend_plan_blocks, 0, 128, 1024, 7168, 512, 4 },
		{ attend_plan_blocks, 0, 128, 2176, 65536, 272, 1 },	/* two full waves */
		{ attend_plan_blocks, 0, 64, 2176, 65536, 544, 1 },
		{ attend_plan_blocks, 0, 64, 128, 4032, 64, 2 },	/* 64 blocks, 24 a part */
		{ attend_plan_blocks, 0, 128, 128, 1024, 16, 1 },	/* of 9, not 12 */
	};
	/* clang-format on */

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		struct split x = split_plan(want[i].cut, want[i].heads, want[i].page, want[i].rows,
					    want[i].ctx);

		ok(x.n == want[i].n && x.parts == want[i].parts && !x.len,
		   "%s of %d, %d rows after %d tokens: %d tiles, %d parts each",
		   want[i].cut == attend_plan_rows ? "pages" : "lists", want[i].page, want[i].rows,
		   want[i].ctx, want[i].n, want[i].parts);
		if (x.n != want[i].n || x.parts != want[i].parts)
			diag("%d tiles, %d parts", x.n, x.parts);
	}
}

/* Every block is read.  end: of the last part, in keys, merges left out. */
static void test_level(void)
{
	static const struct {
		int page, rows, ctx, n, len, end;
	} want[] = {
		{ 128, 1024, 31744, 224, 250, 32600 }, /* 128 tiles of 249 to 256 blocks */
		{ 64, 1024, 31744, 208, 502, 32728 },
		{ 128, 128, 65536, 144, 63, 8664 }, /* 16 tiles */
		{ 128, 128, 32768, 144, 32, 4696 },
		{ 128, 512, 32768, 160, 129, 17112 }, /* 64 tiles */
		{ 128, 1024, 7168, 128, 0, 8792 },   /* 128 tiles of 57 to 64: too little to gain */
		{ 128, 1056, 32768, 132, 0, 34520 }, /* nothing is idle */
		{ 128, 2048, 0, 256, 0, 3376 }, /* 256 of 1 to 16: short ones follow long ones */
		{ 128, 1250, 0, 160, 0, 1880 }, /* 160 of 1 to 10 */
	};

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		struct split x = split_plan(attend_plan_rows, 0, want[i].page, want[i].rows,
					    want[i].ctx);

		ok(x.n == want[i].n && x.len == want[i].len && x.end == want[i].end,
		   "pages of %d, %d rows after %d tokens: %d tiles, a level of %d, they end at %d",
		   want[i].page, want[i].rows, want[i].ctx, want[i].n, want[i].len, want[i].end);
		if (x.n != want[i].n || x.len != want[i].len || x.end != want[i].end)
			diag("%d tiles, %d, %d", x.n, x.len, x.end);
	}
}

/* A tile of a window visits few blocks, however long the context is, and is not cut. */
static void test_window_plan(void)
{
	struct attn_shape s = { .q_heads = 16, .kv_heads = 4, .head_dim = 128, .page_tok = 64 };
	const int ctx = 100000, rows = 512, window = 300;
	struct rng rng = { 1 };
	struct batch_case c;
	int most = 0;

	case_bare_chunks(&c, &rng, s, 1, &ctx, &rows);
	case_window(&c, window, &rng);
	c.b.n_sm = SLOTS;
	case_plan(&c, attend_plan_rows, 0);
	for (int i = 0; i < c.b.n_tile; i++)
		most = n_blocks(&c, &c.tile[i]) > most ? n_blocks(&c, &c.tile[i]) : most;
	ok(most <= (window + 32) / 64 + 2, "tiles of 32 rows under a window of 300: %d blocks",
	   most);
	is_int(c.b.n_part, 0, "they are not cut");
	case_release(&c);
}

/* Of which tiles pieces are made, by their lists. */
static void test_cut_tiles(void)
{
	/* clang-format off */
	static const struct {
		int n_sm, page, dim, blocks, n_tile, n_part, want;
		const char *why;
	} want[] = {
		{ 132, 128, 128, 512, 512, 512, 512, "all, if there are parts" },
		{ 300, 128, 128, 512, 1200, 1200, 0, "none of more parts than it takes" },
		{ 132, 128, 128, 512, 1024, 0, 892, "all after the first round" },
		{ 132, 128, 256, 512, 1024, 0, 892, "the same of head size 256" },
		{ 132, 64, 128, 512, 1024, 0, 0, "none of blocks of 64 tokens" },
		{ 132, 64, 128, 1024, 512, 512, 512, "all of these, if there are parts" },
		{ 600, 128, 128, 512, 4096, 0, 1024, "no more than it takes" },
		{ 132, 128, 128, 512, 200, 0, 200, "all of up to two rounds" },
		{ 132, 128, 128, 512, 132, 0, 0, "none of one round" },
		{ 132, 128, 128, 23, 1024, 0, 0, "none of short contexts" },
		{ 132, 128, 128, 24, 1024, 0, 892, "short lists differ by enough" },
		{ 0, 128, 128, 512, 1024, 0, 0, "none where tiles stay as they are" },
	};
	/* clang-format on */

	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		struct attn_batch b = { .shape = { 16, 4, want[i].dim, want[i].page },
					.keys.max_kv_blk = want[i].blocks,
					.n_sm = want[i].n_sm,
					.n_tile = want[i].n_tile,
					.n_part = want[i].n_part };

		is_int(attend_cut_tiles(&b), want[i].want, "tiles to cut or sort: %s", want[i].why);
	}
}

static void test_rank(void)
{
	int bad = 0;

	for (int n = 2; n < 1 << 20; n++) {
		int step = attend_rank(n) - attend_rank(n - 1);

		bad += step < 0 || step > 1;
	}
	is_int(bad, 0, "ranks grow with the length, one at a time");
	ok(attend_rank(1) < attend_rank(2) && attend_rank(8) < attend_rank(9) &&
		   attend_rank(257) == attend_rank(288) && attend_rank(288) < attend_rank(289),
	   "short lengths have their own rank, long ones share it within an eighth");
	ok(attend_rank(241) == attend_rank(256) && attend_rank(256) < attend_rank(257),
	   "the tiles of a chunk whose end is a power of two share a rank");
	ok(attend_rank(1 << 30) < 256, "the largest rank");
}

/* ---- the rest ---- */

static void test_memory(void)
{
	struct batch_case c;
	struct result x;
	struct block_lists all = { 0 };
	long k;

	vector_case(&c);
	x = result_new(&c);
	for (k = 0; k < 10; k++) {
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = attend_ref(
			&(struct attn_call){
				.b = &c.b, .q = c.q, .kv = c.kv, .out = x.out, .lse = x.lse },
			attend_plan_rows, 0, &all, &err);
		if (!fault_disarm())
			break;
		ok(st == AR_NOMEM && err.msg[0], "allocation %ld fails cleanly", k);
	}
	is_int(k, 2, "every allocation was made to fail");
	result_free(&x);
	case_release(&c);
}

static void test_table(void)
{
	static const struct attn_batch none = { .shape = { 1, 1, 1, 1 } };

	for (int i = 0; executors[i]; i++)
		ok(executor_find(executors[i]->name) == executors[i], "executor %s is found",
		   executors[i]->name);
	ok(!executor_find("nothing"), "an unknown name is not found");
	is_int(attend_plan_rows(&none, 0, NULL), 0, "an empty batch has no tiles");
	is_int(attend_ref(&(struct attn_call){ .b = &none }, attend_plan_rows, 0,
			  &(struct block_lists){ 0 }, NULL),
	       AR_OK, "and nothing is done for it");
}

int main(void)
{
	static const int window[] = { 1, 7, 16, 17, 1000 };

	plan(0);
	test_vectors();
	test_naive(attend_plan_rows, false, "paged");
	test_naive(attend_plan_blocks, false, "blocksparse");
	test_naive(attend_plan_rows, true, "paged, windows and sinks");
	test_naive(attend_plan_blocks, true, "blocksparse, windows and sinks");
	test_dense();
	test_chunks();
	for (size_t i = 0; i < sizeof window / sizeof *window; i++)
		test_window_chunks(window[i]);
	test_sink_alone();
	test_decode();
	test_plan(attend_plan_rows, 0, false, "paged");
	test_plan(attend_plan_blocks, 0, false, "blocksparse");
	test_plan(attend_plan_rows, 300, false, "paged, in parts");
	test_plan(attend_plan_blocks, 300, false, "blocksparse, in parts");
	test_plan(attend_plan_rows, 300, true, "paged, windows in parts");
	test_plan(attend_plan_blocks, 300, true, "blocksparse, windows in parts");
	test_window_plan();
	test_cut_tiles();
	test_split();
	test_level();
	test_rank();
	test_memory();
	test_table();
	return done_testing();
}
