/* SPDX-License-Identifier: Apache-2.0 */
/* Executors: every reference over every shape that it takes; plans and counts of some. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/exec/pool/pool.h"
#include "kernels/methods/method.h"
#include "kernels/methods/shapes.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static const struct attn_shape small = {
	.q_heads = 6, .kv_heads = 2, .head_dim = 16, .page_tok = 8
};

static void small_case(struct batch_case *c, struct rng *rng, bool one_row)
{
	int ctx[3], rows[3];

	for (int r = 0; r < 3; r++) {
		ctx[r] = (int)rng_below(rng, 90);
		rows[r] = one_row ? 1 : 1 + (int)rng_below(rng, 40);
	}
	case_chunks(c, rng, FILL_NORMAL, small, 3, ctx, rows);
}

/* ---- against sums in double precision ---- */

/* Attention of a row over the positions up to its own that are visible.  Returns the log sum. */
static double naive(const struct batch_case *c, int r, int row, int h, const bool *visible,
		    double *out)
{
	const struct attn_shape *s = &c->b.shape;
	size_t dim = (size_t)s->head_dim, tok = (size_t)s->page_tok;
	size_t q_row = (size_t)(c->row0[r] + row) * (size_t)s->q_heads + (size_t)h;
	const bf16_t *q = c->q + q_row * dim;
	double sum = c->sink ? exp(c->sink[h]) : 0;

	memset(out, 0, dim * sizeof *out);
	for (size_t t = 0; t <= (size_t)(c->ctx[r] + row); t++) {
		size_t page = (size_t)c->page[(size_t)c->page0[r] + t / tok];
		size_t kv_head = (size_t)(h / (s->q_heads / s->kv_heads));
		size_t at = ((page * (size_t)s->kv_heads + kv_head) * tok + t % tok) * dim;
		double x = 0;

		for (size_t d = 0; d < dim; d++)
			x += (double)bf16_to_f32(q[d]) * bf16_to_f32(c->kv.k[at + d]);
		x = visible[t] ? exp(x / sqrt(s->head_dim)) : 0;
		sum += x;
		for (size_t d = 0; d < dim && visible[t]; d++)
			out[d] += x * bf16_to_f32(c->kv.v[at + d]);
	}
	for (size_t d = 0; d < dim && sum > 0; d++)
		out[d] /= sum;
	return log(sum);
}

static void see_all(const struct batch_case *c, const struct executor_lists *l, int r, int row,
		    int h, bool *visible)
{
	(void)l, (void)h;
	for (int t = 0; t <= c->ctx[r] + row; t++)
		visible[t] = true;
}

static void see_blocks(const struct batch_case *c, const struct executor_lists *l, int list,
		       bool *visible)
{
	const struct block_lists *x = &l->blocks;

	for (int i = 0; i < x->n[list]; i++)
		for (int t = 0, tok = c->b.shape.page_tok; t < tok; t++)
			visible[x->block[list * x->stride + i] * tok + t] = true;
}

static void see_mask(const struct batch_case *c, const struct executor_lists *l, int r, int row,
		     int h, bool *visible)
{
	const struct attn_shape *s = &c->b.shape;
	int blk = (c->ctx[r] + row) / s->page_tok - c->ctx[r] / s->page_tok;

	see_blocks(c, l, (c->qblk0[r] + blk) * s->q_heads + h, visible);
}

static void see_table(const struct batch_case *c, const struct executor_lists *l, int r, int row,
		      int h, bool *visible)
{
	const struct attn_shape *s = &c->b.shape;
	int group = s->q_heads / s->kv_heads, each = (group + l->heads - 1) / l->heads;
	int table = h / group * each + h % group / l->heads;

	(void)row;
	see_blocks(c, l, r * union_groups(l->heads, s) + table, visible);
}

static void see_tokens(const struct batch_case *c, const struct executor_lists *l, int r, int row,
		       int h, bool *visible)
{
	const struct attn_shape *s = &c->b.shape;
	int kv_head = h / (s->q_heads / s->kv_heads);
	const int32_t *tok = l->tokens.tok +
			     attn_token_row(s, c->page0[r], c->page0[r + 1] - c->page0[r], kv_head);

	for (int i = 0; i < l->tokens.n[r * s->kv_heads + kv_head]; i++)
		visible[tok[i]] = true;
	for (int i = 0; i <= row; i++)
		visible[c->ctx[r] + i] = true;
}

static void see_columns(const struct batch_case *c, const struct executor_lists *l, int r, int row,
			int h, bool *visible)
{
	const struct attn_shape *s = &c->b.shape;
	const struct column_lists *x = &l->columns;
	int blk = (c->ctx[r] + row) / s->page_tok - c->ctx[r] / s->page_tok;
	int list = (c->qblk0[r] + blk) * s->q_heads + h, pos = c->ctx[r] + row;
	const struct attn_band *band = &x->band[list];

	for (int i = 0; i < x->n_run[list]; i++)
		for (int t = x->run[list * x->max_run + i], end = t + s->page_tok; t < end; t++)
			visible[t] = !band->local || t < band->init || pos - t < band->local ||
				     pos >= c->len[r] - band->last;
	for (int i = 0; i < x->n_col[list]; i++)
		visible[x->col[list * x->max_col + i]] = true;
}

static void see_pieces(const struct batch_case *c, const struct executor_lists *l, int r, int row,
		       int h, bool *visible)
{
	const struct piece_lists *x = &l->pieces;
	int list = r * (c->b.shape.q_heads / x->heads) + h / x->heads;

	(void)row;
	for (int i = list * x->stride; i < list * x->stride + x->n[list]; i++)
		for (int t = 0; t < x->tok && (!x->mask || x->mask[i] >> h % x->heads & 1); t++)
			visible[x->piece[i] * x->tok + t] = true;
}

typedef void see_fn(const struct batch_case *c, const struct executor_lists *l, int r, int row,
		    int h, bool *visible);

/* Rows that are off, of all rows and heads of the batch. */
static int rows_off(const struct batch_case *c, const struct executor *x,
		    const struct executor_lists *l, see_fn *see)
{
	const struct attn_shape *s = &c->b.shape;
	size_t n_row = (size_t)(c->b.rows.n_row * s->q_heads);
	bf16_t *out = malloc(c->q_len * sizeof *out);
	float *lse = malloc(n_row * sizeof *lse);
	bool visible[256];
	double want[16], sum;
	struct ar_err err;
	int bad = 0;

	if (x->ref(&(struct attn_call){ .b = &c->b,
					.q = c->q,
					.kv = c->kv,
					.sink = c->sink,
					.out = out,
					.lse = lse },
		   l, &err))
		bail_out("%s", err.msg);
	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int i = 0; i < c->row0[r + 1] - c->row0[r]; i++)
			for (int h = 0; h < s->q_heads; h++) {
				int at = (c->row0[r] + i) * s->q_heads + h;
				bool off;

				memset(visible, 0, sizeof visible);
				see(c, l, r, i, h, visible);
				sum = naive(c, r, i, h, visible, want);
				off = isnan(sum)       ? !isnan(lse[at]) :
				      sum == -INFINITY ? lse[at] != sum :
							 !(fabs(lse[at] - sum) < 1e-3);
				for (int d = 0; d < 16; d++) {
					double e = bf16_to_f32(out[at * 16 + d]) - want[d];

					off |= isnan(sum) ? !isnan(e) : !(fabs(e) < 0.02);
				}
				bad += off;
			}
	free(out);
	free(lse);
	return bad;
}

/* The keys that lists of a shape let a row see. */
static const struct sees {
	unsigned shape;
	see_fn *see;
} all_sees[] = { { SHAPE_ALL, see_all },
		 { SHAPE_MASK, see_mask },
		 { SHAPE_TABLE, see_table },
		 { SHAPE_TOKENS, see_tokens },
		 { SHAPE_COLUMNS, see_columns },
		 { SHAPE_PIECES, see_pieces },
		 { 0 } };

static see_fn *see_of(unsigned shape)
{
	const struct sees *x = all_sees;

	while (x->shape && x->shape != shape)
		x++;
	return x->see;
}

static void test_reference(const struct executor *e, const struct selection_shape *s)
{
	see_fn *see = see_of(s->bit);
	int bad = 0;

	if (!ok(see, "%s: the keys that it lets a row see are known", s->title)) {
		diag("add the shape to all_sees[] here and to case_shape() in tests/batch_case.c");
		return;
	}
	for (int k = 0; k < 12; k++) {
		struct rng rng = { (uint64_t)k };
		struct executor_lists l;
		struct batch_case c;

		small_case(&c, &rng, e->one_row);
		bad += !case_shape(&c, s->bit, 3, &l, &rng);
		if (k % 2)
			case_sinks(&c, &rng);
		if (k % 3 == 0)
			case_overflow(&c, &rng);
		bad += rows_off(&c, e, &l, see);
		shape_lists_free(&l);
		case_release(&c);
	}
	is_int(bad, 0, "%s: %s, by sums in double precision", e->name, s->title);
}

/* Each executor over each shape that it takes. */
static void for_each(void (*test)(const struct executor *e, const struct selection_shape *s))
{
	for (int i = 0; executors[i]; i++)
		for (const struct selection_shape *s = selection_shapes; s->bit; s++)
			if (executors[i]->takes & s->bit)
				test(executors[i], s);
}

/* ---- the same thing in several ways ---- */

static bf16_t *run(const struct batch_case *c, const char *name)
{
	bf16_t *out = malloc(c->q_len * sizeof *out);
	struct method *m;
	struct ar_err err;

	if (method_parse(&m, name, &err) ||
	    method_ref(method_prefill(m),
		       &(struct attn_call){
			       .b = &c->b, .q = c->q, .kv = c->kv, .state = c->state, .out = out },
		       NULL, &err))
		bail_out("%s", err.msg);
	method_free(m);
	return out;
}

static void test_equal(void)
{
	static const char *const same[] = { "union-bs:alpha=0.3,window=1",
					    "compact-fp-copy:alpha=0.3,window=1" };
	struct batch_case c;
	struct rng rng = { 4 };
	bf16_t *want;

	case_make(&c, &rng, FILL_BLOCKS, small, 2, (int[]){ 203, 90 });
	case_cut(&c, (int[2]){ 0 }, c.len);
	free(run(&c, "flashprefill"));
	case_cut(&c, (int[]){ 150, 33 }, (int[]){ 41, 57 });
	want = run(&c, "compact-fp:alpha=0.3,window=1");
	for (int i = 0; i < 2; i++) {
		bf16_t *got = run(&c, same[i]);

		ok(!memcmp(got, want, c.q_len * sizeof *got), "%s is compact-fp to the last bit",
		   same[i]);
		free(got);
	}
	free(want);
	case_release(&c);
}

/* ---- plans ---- */

static void test_plans(void)
{
	static const struct attn_shape uneven = { 14, 2, 16, 8 };
	const struct executor *sparse = executor_find("blocksparse");
	struct rng rng = { 8 };
	struct batch_case c, d;
	int bad = 0;

	case_bare_chunks(&c, &rng, uneven, 2, (int[]){ 60, 13 }, (int[]){ 30, 20 });
	case_bare_chunks(&d, &rng, uneven, 2, (int[]){ 60, 13 }, (int[]){ 30, 20 });
	case_plan(&c, attend_plan_rows, 4);
	case_plan(&d, pool_plan, 4);
	for (int i = 0; i < c.b.n_tile; i++) {
		struct attn_tile t = c.tile[i];

		int n_page = c.page0[t.req + 1] - c.page0[t.req];

		t.page0 = c.page0[t.req] * 4 + t.list % 4 * n_page;
		t.pos -= c.ctx[t.req];
		bad += memcmp(&t, &d.tile[i], sizeof t) != 0;
	}
	ok(c.b.n_tile == d.b.n_tile && !bad, "in a pool every list has pages of its own");
	case_plan(&c, sparse->plan, 4);
	for (int i = 0; i < c.b.n_tile; i++) {
		const struct attn_tile *t = &c.tile[i];

		bad += t->list != t->req * 4 + t->head / 7 * 2 + (t->head % 7 >= 4);
	}
	ok(c.b.n_tile && !bad, "block-sparse tiles are under their group's table");
	case_release(&c);
	case_release(&d);
}

/* ---- whole methods over token and vertical-slash selections ---- */

static struct executor_lists drawn;

static enum ar_status draw_tokens(const struct attn_call *call, const void *self,
				  const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	size_t n = (size_t)b->shape.kv_heads * (size_t)b->rows.n_req;

	(void)self, (void)err;
	memcpy(out->tokens.n, drawn.tokens.n, n * sizeof *out->tokens.n);
	memcpy(out->tokens.tok, drawn.tokens.tok,
	       (size_t)b->keys.n_page * (size_t)b->shape.page_tok * (size_t)b->shape.kv_heads *
		       sizeof *out->tokens.tok);
	return AR_OK;
}

static enum ar_status draw_columns(const struct attn_call *call, const void *self,
				   const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct column_lists *from = &drawn.columns, *to = &out->columns;

	(void)self, (void)err;
	for (int i = 0; i < b->rows.n_qblk * b->shape.q_heads; i++) {
		to->n_run[i] = from->n_run[i];
		to->n_col[i] = from->n_col[i];
		to->band[i] = from->band[i];
		memcpy(to->run + i * to->max_run, from->run + i * from->max_run,
		       (size_t)from->n_run[i] * sizeof *to->run);
		memcpy(to->col + i * to->max_col, from->col + i * from->max_col,
		       (size_t)from->n_col[i] * sizeof *to->col);
	}
	return AR_OK;
}

static void plenty(const void *self, const struct attn_shape *s, int *max_run, int *max_col)
{
	(void)self, (void)s;
	*max_run = *max_col = 1 << 20;
}

static const struct selector picks_tokens = { .name = "tokens",
					      .gives = SHAPE_TOKENS,
					      .ref = draw_tokens };
static const struct selector picks_columns = {
	.name = "columns", .gives = SHAPE_COLUMNS, .columns = plenty, .ref = draw_columns
};

/* A chunk of tokens 10 to 13 in blocks of four: two query blocks, the first of two rows. */
static void counted_case(struct batch_case *c)
{
	static const struct attn_shape s = { 2, 1, 16, 4 };
	struct rng rng = { 2 };

	case_chunks(c, &rng, FILL_NORMAL, s, 1, (int[]){ 10 }, (int[]){ 4 });
}

static struct selection_count counts_of(const struct batch_case *c, const struct selector *s,
					const char *exec)
{
	struct method_part m = { .selector = s, .executor = executor_find(exec) };
	bf16_t *out = malloc(c->q_len * sizeof *out);
	struct selection_count count;
	struct ar_err err;

	if (method_ref(&m, &(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv, .out = out },
		       &count, &err))
		bail_out("%s", err.msg);
	free(out);
	return count;
}

static void test_counts(void)
{
	int32_t tok[16] = { 0, 3, 9 }, n_tok = 3;
	int32_t n_run[] = { 1, 1, 2, 0 }, run[4][2] = { { 6 }, { 8 }, { 3, 10 }, { 0 } };
	int32_t n_col[] = { 1, 0, 2, 1 }, col[4][2] = { { 2 }, { 0 }, { 0, 7 }, { 2 } };
	struct attn_band band[4] = { 0 };
	struct selection_count c;
	struct batch_case b;

	counted_case(&b);
	drawn.tokens = (struct token_lists){ tok, &n_tok };
	c = counts_of(&b, &picks_tokens, "gather");
	ok(c.tiles_sel == 12 && c.tiles_total == 40,
	   "three of ten tokens for two heads, two blocks");
	ok(c.qunion_sel == 6 && c.qunion_total == 20 && c.group_sel == 3 && c.group_total == 10,
	   "one list is the union of all");
	ok(c.exec_sel == 2 * (4 * 3 + 10) && c.exec_total == 100, "and the chunk's own are run");

	/* rows are (block 0, head 0), (block 0, head 1), (block 1, head 0), (block 1, head 1) */
	drawn.columns = (struct column_lists){ run[0], n_run, col[0], n_col, 2, 2, band };
	c = counts_of(&b, &picks_columns, "columns");
	ok(c.tiles_sel == 5 + 2 + 6 + 1 && c.tiles_total == 40,
	   "runs count for their keys before the chunk");
	ok(c.qunion_sel == 9 + 3 && c.qunion_total == 20,
	   "a token of two query blocks counts once");
	ok(c.group_sel == c.tiles_sel && c.group_total == 40, "the method has no other union");
	ok(c.exec_sel == 5 + 5 + (3 + 4) + (6 + 3) + (6 + 4) + 2 && c.exec_total == 100,
	   "what a run has past a row is not run");

	/* of 10 to 13 rows 12 and 13 miss 3 and 3, 4; row 13 is the prompt's last */
	band[2] = (struct attn_band){ 3, 9, 0 };
	c = counts_of(&b, &picks_columns, "columns");
	ok(c.exec_sel == 38 - 1 - 2, "pairs that the band of the list hides do not count");
	band[2].last = 1;
	c = counts_of(&b, &picks_columns, "columns");
	ok(c.exec_sel == 38 - 1, "unless a row is the last of the prompt");
	case_release(&b);
}

static void test_methods(void)
{
	int bad = 0;

	for (int k = 0; k < 5; k++) {
		struct rng rng = { 40 + (uint64_t)k };
		struct method_part gather = { .selector = &picks_tokens,
					      .executor = executor_find("gather") };
		struct method_part columns = { .selector = &picks_columns,
					       .executor = executor_find("columns") };
		bf16_t *got, *want;
		struct batch_case c;
		struct ar_err err;

		small_case(&c, &rng, false);
		case_tokens(&c, 0.3, &drawn.tokens, &rng);
		case_columns(&c, 0.2, &drawn.columns, &rng);
		got = malloc(2 * c.q_len * sizeof *got);
		want = got + c.q_len;
		for (int i = 0; i < 2; i++) {
			const struct method_part *m = i ? &columns : &gather;

			if (method_ref(m,
				       &(struct attn_call){
					       .b = &c.b, .q = c.q, .kv = c.kv, .out = got },
				       NULL, &err) ||
			    m->executor->ref(
				    &(struct attn_call){
					    .b = &c.b, .q = c.q, .kv = c.kv, .out = want },
				    &drawn, &err))
				bail_out("%s", err.msg);
			bad += memcmp(got, want, c.q_len * sizeof *got) != 0;
		}
		free(got);
		tokens_free(&drawn.tokens);
		columns_free(&drawn.columns);
		case_release(&c);
	}
	is_int(bad, 0, "methods hand token lists, runs and columns on as they were selected");
}

/* ---- failures ---- */

static void test_no_memory(const struct selector *s, const char *exec)
{
	struct method_part m = { .selector = s, .executor = executor_find(exec) };
	struct selection_count count[2];
	struct rng rng = { 6 };
	struct batch_case c;
	struct ar_err err;
	bf16_t *out;

	small_case(&c, &rng, false);
	case_tokens(&c, 0.3, &drawn.tokens, &rng);
	case_columns(&c, 0.2, &drawn.columns, &rng);
	out = malloc(c.q_len * sizeof *out);
	for (long k = 0;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = method_ref(&m,
				&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .out = out },
				count, &err);
		if (!fault_disarm()) {
			is_int(st, AR_OK, "%s runs with all of its memory", exec);
			break;
		}
		ok(st == AR_NOMEM, "%s: allocation %ld fails cleanly", exec, k);
	}
	free(out);
	tokens_free(&drawn.tokens);
	columns_free(&drawn.columns);
	case_release(&c);
}

/* ---- rows at any positions ---- */

enum { WHOLE = 41 + 30 };

/* Some rows of a case, the first and the last of each request among them. */
struct some {
	struct attn_batch b;
	int32_t row0[3], pos[WHOLE];
	int from[WHOLE]; /* row of the case */
	bf16_t *q;
};

static void take_some(struct some *x, const struct batch_case *c, struct rng *rng)
{
	size_t width = (size_t)(c->b.shape.q_heads * c->b.shape.head_dim);
	int n = 0;

	x->row0[0] = 0;
	x->q = malloc(WHOLE * width * sizeof *x->q);
	for (int r = 0; r < 2; r++) {
		for (int i = c->row0[r]; i < c->row0[r + 1]; i++) {
			bool hole = i >= c->row0[r] + 8 && i < c->row0[r] + 24;

			if (i > c->row0[r] && i < c->row0[r + 1] - 1 && (hole || rng_below(rng, 2)))
				continue;
			memcpy(x->q + (size_t)n * width, c->q + (size_t)i * width,
			       width * sizeof *x->q);
			x->from[n] = i;
			x->pos[n++] = c->pos[i];
		}
		x->row0[r + 1] = n;
	}
	x->b = c->b;
	x->b.rows.n_row = n;
	x->b.rows.row0 = x->row0;
	x->b.rows.pos = x->pos;
}

/* Number of values in the rows of x that differ from the same rows of the whole case. */
static int some_off(const struct batch_case *c, const struct some *x, const struct executor *e,
		    const struct executor_lists *l)
{
	int width = c->b.shape.q_heads * c->b.shape.head_dim, bad = 0;
	bf16_t *whole = malloc(c->q_len * sizeof *whole);
	bf16_t *out = malloc(c->q_len * sizeof *out);
	struct ar_err err;

	if (e->ref(&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv, .out = whole }, l,
		   &err) ||
	    e->ref(&(struct attn_call){ .b = &x->b, .q = x->q, .kv = c->kv, .out = out }, l, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < x->b.rows.n_row; i++)
		for (int d = 0; d < width; d++)
			bad += !(fabs(bf16_to_f32(out[i * width + d]) -
				      bf16_to_f32(whole[x->from[i] * width + d])) < 0.01);
	free(whole);
	free(out);
	return bad;
}

static void test_positions(const struct executor *e, const struct selection_shape *s)
{
	static const struct attn_shape shape = { 4, 2, 16, 8 };
	struct executor_lists l;
	struct rng rng = { 12 };
	struct batch_case c;
	struct some x;

	case_chunks(&c, &rng, FILL_NORMAL, shape, 2, (int[]){ 20, 3 }, (int[]){ 41, 30 });
	take_some(&x, &c, &rng);
	ok(attn_is_chunked(&c.b) && !attn_is_chunked(&x.b), "rows with holes are no chunk");
	if (case_shape(&c, s->bit, 2, &l, &rng))
		is_int(some_off(&c, &x, e, &l), 0, "%s: %s, a row gets the same without the others",
		       e->name, s->title);
	shape_lists_free(&l);
	free(x.q);
	case_release(&c);
}

int main(void)
{
	plan(0);
	for_each(test_reference);
	for_each(test_positions);
	test_equal();
	test_plans();
	test_counts();
	test_methods();
	test_no_memory(&picks_tokens, "gather");
	test_no_memory(&picks_columns, "columns");
	return done_testing();
}
