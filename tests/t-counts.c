/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of random selections against a direct count.  The direct count visits every (head, query
 * block, block) and every (row, key) pair. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static void many(const void *self, const struct attn_shape *s, int *max_run, int *max_col)
{
	(void)self, (void)s;
	*max_run = *max_col = 1 << 20;
}

static const struct selector of_blocks = { .name = "blocks" };
static const struct selector of_tokens = { .name = "tokens", .gives = SHAPE_TOKENS };
static const struct selector of_columns = { .name = "columns",
					    .gives = SHAPE_COLUMNS,
					    .columns = many };

/* Request 0 of a batch and its selection. */
struct picked {
	struct batch_case c;
	struct method_part m;
	struct selection sel;
	uint32_t *table;
	int group, past, body, n_qblk; /* past: blocks, or tokens */
	bool blocks;
};

static bool in_mask(const struct picked *x, int i, int h, int j)
{
	size_t row = (size_t)i * (size_t)x->c.b.shape.q_heads + (size_t)h;

	return x->m.dense ||
	       x->sel.mask[row * (size_t)x->c.b.keys.mask_words + (size_t)(j / 32)] >> j % 32 & 1;
}

static bool in_tokens(const struct picked *x, int h, int key)
{
	const struct token_lists *l = &x->sel.tokens;
	int kv = h / x->group, n = 0;
	const int32_t *tok = l->tok + attn_token_row(&x->c.b.shape, 0, x->c.b.keys.page0[1], kv);

	while (n < l->n[kv] && tok[n] != key)
		n++;
	return n < l->n[kv];
}

/* pos -1: any row. */
static bool in_columns(const struct picked *x, int i, int h, int key, int pos)
{
	const struct column_lists *l = &x->sel.columns;
	int row = i * x->c.b.shape.q_heads + h, tok = x->c.b.shape.page_tok;
	int total = x->c.b.rows.pos0[0] + x->c.b.rows.row0[1] + x->c.b.rows.left[0];

	for (int k = 0; k < l->n_run[row]; k++) {
		int first = l->run[row * l->max_run + k];

		if (key >= first && key < first + tok)
			return pos < 0 || !attn_band_hides(&l->band[row], total, pos, key);
	}
	for (int k = 0; k < l->n_col[row]; k++)
		if (l->col[row * l->max_col + k] == key)
			return true;
	return false;
}

/* Block j, or token j. */
static bool keeps(const struct picked *x, int i, int h, int j)
{
	return x->blocks			    ? in_mask(x, i, h, j) :
	       x->m.selector->gives == SHAPE_TOKENS ? in_tokens(x, h, j) :
						      in_columns(x, i, h, j, -1);
}

/* Any of the heads [h, h + n) in any query block before the tail. */
static bool united(const struct picked *x, int h, int n, int j)
{
	for (int k = h; k < h + n; k++)
		for (int i = 0; i < x->body; i++)
			if (keeps(x, i, k, j))
				return true;
	return false;
}

/* The group of a number of heads that h is in: its first head, and how many they are. */
static int group_of(const struct picked *x, int h, int heads, int *n)
{
	int first = h - h % x->group % heads, end = h - h % x->group + x->group;

	*n = heads < end - first ? heads : end - first;
	return first;
}

static bool runs(const struct picked *x, int i, int h, int pos, int key)
{
	int heads = union_heads(x->m.u, &x->c.b.shape), j = key / x->c.b.shape.page_tok, n;

	if (x->m.selector->gives == SHAPE_TOKENS)
		return key >= x->c.b.rows.pos0[0] || in_tokens(x, h, key);
	if (!x->blocks)
		return in_columns(x, i, h, key, pos);
	if (!heads || i >= x->body)
		return in_mask(x, i, h, j);
	h = group_of(x, h, heads, &n);
	return j >= x->past || united(x, h, n, j);
}

/* ---- definitions ---- */

static void define_pairs(const struct picked *x, int h, struct selection_count *c)
{
	int ctx = x->c.b.rows.pos0[0], tok = x->c.b.shape.page_tok;

	for (int pos = ctx; pos < ctx + x->c.b.rows.row0[1]; pos++)
		for (int key = 0; key <= pos; key++) {
			c->exec_total++;
			c->exec_sel += runs(x, pos / tok - ctx / tok, h, pos, key);
		}
}

static void define_tiles(const struct picked *x, int h, struct selection_count *c)
{
	for (int i = 0; i < x->body; i++) {
		for (int j = 0; j < x->past; j++) {
			c->tiles_total++;
			c->tiles_sel += keeps(x, i, h, j);
		}
		for (int j = 0; j < x->n_qblk && x->blocks; j++) {
			c->chunk_full++;
			c->chunk_total += j <= i;
			c->chunk_sel += j <= i && keeps(x, i, h, x->past + j);
		}
	}
}

static void define_union(const struct picked *x, int kv, int heads, int64_t *total, int64_t *sel)
{
	for (int h = kv * x->group, n; h < (kv + 1) * x->group; h += n) {
		group_of(x, h, heads, &n);
		for (int j = 0; j < x->past; j++) {
			++*total;
			*sel += united(x, h, n, j);
		}
	}
}

static int64_t define_empty_rows(const struct picked *x, int h)
{
	int tok = x->c.b.shape.page_tok;
	int end = (x->c.b.rows.pos0[0] / tok + x->n_qblk) * (x->blocks ? 1 : tok);
	int64_t n = 0;

	if (x->m.dense || x->m.u || x->m.selector->gives == SHAPE_TOKENS)
		return 0;
	for (int i = 0; i < x->n_qblk; i++) {
		int j = 0;

		while (j < end && !keeps(x, i, h, j))
			j++;
		n += j == end;
	}
	return n;
}

static struct selection_count define(const struct picked *x, int kv)
{
	struct selection_count c = { .chunk_open = x->blocks && x->body ? x->n_qblk : 0 };
	int heads = union_heads(x->m.u, &x->c.b.shape);

	for (int h = kv * x->group; h < (kv + 1) * x->group; h++) {
		define_pairs(x, h, &c);
		define_tiles(x, h, &c);
		c.empty_rows += define_empty_rows(x, h);
	}
	define_union(x, kv, 1, &c.qunion_total, &c.qunion_sel);
	define_union(x, kv, x->group < 4 ? x->group : 4, &c.sub_total, &c.sub_sel);
	define_union(x, kv, x->group, &c.kv_total, &c.kv_sel);
	if (x->m.selector->gives == SHAPE_TOKENS)
		heads = x->group;
	if (heads)
		define_union(x, kv, heads, &c.group_total, &c.group_sel);
	else
		c.group_total = c.tiles_total, c.group_sel = c.tiles_sel;
	return c;
}

/* ---- random selections ---- */

static void draw_mask(struct picked *x, struct rng *rng)
{
	const struct attn_batch *b = &x->c.b;
	double density = rng_unit(rng);
	uint32_t *row = x->sel.mask = calloc(case_mask_words(&x->c) + 1, sizeof *row);

	if (!row)
		bail_out("no memory");
	for (int r = 0; r < b->rows.n_req; r++)
		for (int i = 0; i < b->rows.qblk0[r + 1] - b->rows.qblk0[r]; i++)
			for (int h = 0; h < b->shape.q_heads; h++, row += b->keys.mask_words)
				for (int j = 0; rng_below(rng, 4) &&
						j <= b->rows.pos0[r] / b->shape.page_tok + i;
				     j++)
					if (rng_unit(rng) < density)
						row[j / 32] |= 1u << j % 32;
}

static void draw_tables(struct picked *x)
{
	int heads = union_heads(x->m.u, &x->c.b.shape);

	if (!heads)
		return;
	x->table = calloc((size_t)(x->c.b.rows.n_req * union_groups(heads, &x->c.b.shape) *
				   x->c.b.keys.mask_words),
			  sizeof *x->table);
	if (!x->table)
		bail_out("no memory");
	union_ref(&x->c.b, heads, x->sel.mask, x->table);
}

/* Two requests, of which the second is not counted. */
static void draw(struct picked *x, const struct selector *s, struct rng *rng)
{
	const int kv = 1 + (int)rng_below(rng, 3);
	const struct attn_shape shape = { kv * (1 + (int)rng_below(rng, 9)), kv, 16,
					  4 << rng_below(rng, 2) };
	const int ctx[] = { (int)rng_below(rng, 150), 9 };
	const int rows[] = { 1 + (int)rng_below(rng, 30), 5 };

	*x = (struct picked){ .m.selector = s,
			      .group = shape.q_heads / kv,
			      .blocks = s == &of_blocks };
	case_bare_chunks(&x->c, rng, shape, 2, ctx, rows);
	x->c.left[0] = (int)rng_below(rng, 2) * 7;
	if (x->blocks) {
		x->m.dense = !rng_below(rng, 8);
		x->m.u = x->m.dense ? UNION_NONE : (enum union_kind)rng_below(rng, 4);
		x->c.b.tail = x->m.u ? (int)rng_below(rng, 4) : 0;
	}
	x->n_qblk = x->c.b.rows.qblk0[1];
	x->body = attn_body(&x->c.b, 0);
	x->past = !x->blocks ? ctx[0] : x->body ? ctx[0] / shape.page_tok : 0;
	if (s == &of_tokens)
		case_tokens(&x->c, rng_unit(rng), &x->sel.tokens, rng);
	else if (s == &of_columns)
		case_columns(&x->c, rng_unit(rng), &x->sel.columns, rng);
	else if (!x->m.dense)
		draw_mask(x, rng);
	draw_tables(x);
}

static void drop(struct picked *x)
{
	tokens_free(&x->sel.tokens);
	columns_free(&x->sel.columns);
	free(x->sel.mask);
	free(x->table);
	case_release(&x->c);
}

static int differ(const struct selection_count *got, const struct selection_count *want)
{
	int bad = 0;

#define X(name, doc) \
	if (got->name != want->name) { \
		diag(#name " is %lld, not %lld", (long long)got->name, (long long)want->name); \
		bad++; \
	}
	SELECTION_COUNTS(X)
#undef X
	return bad;
}

static void test(const struct selector *s, int n)
{
	struct rng rng = { 17 };
	struct selection_count sum = { 0 };
	int bad = 0;

	for (int k = 0; k < n && !bad; k++) {
		struct selection_count got[3];
		struct picked x;
		struct ar_err err;

		draw(&x, s, &rng);
		if (method_count(&x.m, &x.c.b, &x.sel, x.table, got, &err))
			bail_out("%s", err.msg);
		for (int kv = 0; kv < x.c.b.shape.kv_heads; kv++) {
			struct selection_count want = define(&x, kv);

			bad += differ(&got[kv], &want);
			selection_add(&sum, &got[kv], 1);
		}
		drop(&x);
	}
	is_int(bad, 0, "%s are counted as defined, in %d random batches", s->name, n);
	ok(sum.kv_sel > 0 && sum.kv_sel < sum.kv_total && sum.sub_total > sum.kv_total &&
		   (s == &of_tokens || sum.empty_rows),
	   "the batches differ in the kept blocks");
}

int main(void)
{
	plan(6);
	test(&of_blocks, 400);
	test(&of_tokens, 100);
	test(&of_columns, 100);
	return done_testing();
}
