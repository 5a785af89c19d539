/* SPDX-License-Identifier: Apache-2.0 */
/* How much a selection kept. */
#include "config.h"
#include "kernels/methods/shapes.h"

#include <stdlib.h>

static bool kept(const uint32_t *row, int j)
{
	return !row || row[j / 32] >> j % 32 & 1;
}

static bool is_empty(const uint32_t *row, int words)
{
	int w = 0;

	while (w < words && !row[w])
		w++;
	return w == words;
}

/* Marks of a kept past block: the unions that have not counted it yet, by head, by sub-group and by
 * KV head. */
enum { IN_HEAD = 1, IN_SUB = 2, IN_KV = 4, IN_ALL = 7 };

static int64_t take_marks(uint8_t *mark, int past, uint8_t bit)
{
	int64_t n = 0;

	for (int j = 0; j < past; j++) {
		n += (mark[j] & bit) != 0;
		mark[j] &= (uint8_t)~bit;
	}
	return n;
}

/* Count the unions that end with query head k of a KV head. */
static void count_unions(const struct attn_shape *s, int k, uint8_t *mark, int past,
			 struct selection_count *c)
{
	int end = k + 1, group = s->q_heads / s->kv_heads;

	c->qunion_total += past;
	c->qunion_sel += take_marks(mark, past, IN_HEAD);
	if (end == group || end % union_heads(UNION_SUBGROUP, s) == 0) {
		c->sub_total += past;
		c->sub_sel += take_marks(mark, past, IN_SUB);
	}
	if (end == group) {
		c->kv_total += past;
		c->kv_sel += take_marks(mark, past, IN_KV);
	}
}

/* Kept blocks before the chunk in a row; row NULL: all blocks before it. */
static int64_t count_past(const uint32_t *row, int past)
{
	int64_t n = 0;

	for (int j = 0; j < past; j++)
		n += kept(row, j);
	return n;
}

/* Count the (row, key) pairs of request 0's query block i under one head, and the kept ones. */
static void count_pairs(const struct attn_batch *b, int i, const uint32_t *row, int64_t *total,
			int64_t *sel)
{
	int64_t tok = b->shape.page_tok, ctx = b->rows.pos0[0], end = b->keys.len[0];
	int64_t qa = ctx / tok + i, first = qa * tok;
	int64_t lo = (first > ctx ? first : ctx) - first;
	int64_t hi = (first + tok < end ? first + tok : end) - first;
	int64_t full = (hi - lo) * tok, own = (hi * (hi + 1) - lo * (lo + 1)) / 2;

	for (int j = 0; j < qa; j++)
		*sel += kept(row, j) ? full : 0;
	*sel += kept(row, (int)qa) ? own : 0;
	*total += qa * full + own;
}

/* Blocks before the chunk of request 0; 0 if the whole chunk is in the dense tail. */
static int past_blocks(const struct attn_batch *b)
{
	return attn_body(b, 0) ? b->rows.pos0[0] / b->shape.page_tok : 0;
}

/* One query head of request 0, all of its query blocks. */
static void count_head(const struct attn_batch *b, int head, int heads, const uint32_t *mask,
		       const uint32_t *table_row, uint8_t *mark, struct selection_count *c)
{
	int past = past_blocks(b), n = attn_body(b, 0);
	size_t words = (size_t)b->keys.mask_words, pitch = (size_t)b->shape.q_heads * words;
	const uint32_t *row = mask ? mask + (size_t)head * words : NULL;

	for (int i = 0; i < b->rows.qblk0[1]; i++) {
		const uint32_t *own = row ? row + (size_t)i * pitch : NULL;

		count_pairs(b, i, heads && i < n ? table_row : own, &c->exec_total, &c->exec_sel);
		c->empty_rows += !heads && own && is_empty(own, b->keys.mask_words);
		if (i >= n)
			continue;
		for (int j = 0; j < past; j++)
			if (kept(own, j)) {
				mark[j] = IN_ALL;
				c->tiles_sel++;
			}
		for (int j = 0; j <= i; j++)
			c->chunk_sel += kept(own, past + j);
		c->tiles_total += past;
		c->chunk_total += i + 1;
		c->chunk_full += b->rows.qblk0[1];
	}
}

void count_blocks(const struct method_part *p, const struct attn_batch *b,
		  const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		  struct selection_count *count)
{
	const struct attn_shape *s = &b->shape;
	const uint32_t *mask = chosen ? chosen->mask : NULL;
	int heads = method_table_heads(p, s), group = s->q_heads / s->kv_heads;
	int past = past_blocks(b);

	for (int kv = 0; kv < s->kv_heads; kv++) {
		struct selection_count *c = &count[kv];

		*c = (struct selection_count){ .chunk_open = attn_body(b, 0) ? b->rows.qblk0[1] :
									       0 };
		for (int k = 0; k < group; k++) {
			if (heads && k && k % heads == 0)
				table += b->keys.mask_words;
			if (heads && k % heads == 0) {
				c->group_total += past;
				c->group_sel += count_past(table, past);
			}
			count_head(b, kv * group + k, heads, mask, table, mark, c);
			count_unions(s, k, mark, past, c);
		}
		if (heads)
			table += b->keys.mask_words;
		else
			c->group_total = c->tiles_total, c->group_sel = c->tiles_sel;
	}
}

/* One list for all heads and query blocks of a KV head. */
void count_tokens(const struct method_part *p, const struct attn_batch *b,
		  const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		  struct selection_count *count)
{
	const struct token_lists *l = &chosen->tokens;
	int64_t ctx = b->rows.pos0[0], rows = b->rows.row0[1], n_qblk = b->rows.qblk0[1];
	int64_t group = b->shape.q_heads / b->shape.kv_heads;
	int64_t sub = union_groups(union_heads(UNION_SUBGROUP, &b->shape), &b->shape) /
		      b->shape.kv_heads;

	(void)p, (void)table, (void)mark;
	for (int kv = 0; kv < b->shape.kv_heads; kv++)
		count[kv] = (struct selection_count){
			.tiles_total = group * n_qblk * ctx,
			.tiles_sel = group * n_qblk * l->n[kv],
			.qunion_total = group * ctx,
			.qunion_sel = group * l->n[kv],
			.sub_total = sub * ctx,
			.sub_sel = sub * l->n[kv],
			.kv_total = ctx,
			.kv_sel = l->n[kv],
			.group_total = ctx,
			.group_sel = l->n[kv],
			.exec_total = group * (rows * ctx + rows * (rows + 1) / 2),
			.exec_sel = group * (rows * l->n[kv] + rows * (rows + 1) / 2),
		};
}

/* Mark the n keys from first on that lie before the chunk of request 0. */
static void mark_past(const struct attn_batch *b, int first, int n, uint8_t *mark,
		      struct selection_count *c)
{
	int ctx = b->rows.pos0[0], before = ctx - first < n ? ctx - first : n;

	for (int i = 0; i < before; i++)
		mark[first + i] = IN_ALL;
	c->tiles_sel += before > 0 ? before : 0;
}

/* The sum of min(x, most) over x from 1 to n. */
static int64_t sum_up_to(int64_t n, int64_t most)
{
	int64_t slope = n < most ? n : most;

	return n > 0 ? slope * (slope + 1) / 2 + (n - slope) * most : 0;
}

/* (row, key) pairs of the rows at [lo, hi) and the keys of [first, last) that lie at least back
 * before their row. */
static int64_t count_below(int lo, int hi, int first, int last, int back)
{
	int64_t none = first + back - 1; /* the last row that sees none */
	int64_t most = last - first;

	return hi > lo && most > 0 ?
		       sum_up_to(hi - 1 - none, most) - sum_up_to(lo - 1 - none, most) :
		       0;
}

/* Count the run of keys from first on for the rows [lo, hi) of request 0. */
static void count_run(const struct attn_batch *b, int first, const struct attn_band *band, int lo,
		      int hi, uint8_t *mark, struct selection_count *c)
{
	int ctx = b->rows.pos0[0], last = first + b->shape.page_tok;
	int tail = b->keys.len[0] + b->rows.left[0] - band->last - ctx;
	int shown = first > band->init ? first : band->init;

	mark_past(b, first, b->shape.page_tok, mark, c);
	c->exec_sel += count_below(ctx + lo, ctx + hi, first, last, 0);
	if (band->local)
		c->exec_sel -= count_below(ctx + lo, ctx + (hi < tail ? hi : tail), shown, last,
					   band->local);
}

/* One query head of request 0. */
static void count_head_columns(const struct attn_batch *b, int head, const struct column_lists *l,
			       uint8_t *mark, struct selection_count *c)
{
	int ctx = b->rows.pos0[0], rows = b->rows.row0[1], tok = b->shape.page_tok;

	for (int i = 0; i < b->rows.qblk0[1]; i++) {
		size_t row = (size_t)i * (size_t)b->shape.q_heads + (size_t)head;
		const int32_t *run = l->run + row * (size_t)l->max_run;
		const int32_t *col = l->col + row * (size_t)l->max_col;
		int lo = (ctx / tok + i) * tok - ctx, hi = lo + tok < rows ? lo + tok : rows;

		lo = lo > 0 ? lo : 0;
		for (int k = 0; k < l->n_run[row]; k++)
			count_run(b, run[k], &l->band[row], lo, hi, mark, c);
		for (int k = 0; k < l->n_col[row]; k++)
			mark_past(b, col[k], 1, mark, c);
		c->exec_sel += (int64_t)l->n_col[row] * (hi - lo); /* each row sees a column */
		c->empty_rows += !l->n_run[row] && !l->n_col[row];
	}
}

/* One query head of a decode.  The pieces of its list count as its own where the mask has them. */
static void count_head_pieces(const struct attn_batch *b, int head, const struct piece_lists *l,
			      uint8_t *mark, struct selection_count *c)
{
	int ctx = b->rows.pos0[0], bit = head % l->heads;
	size_t row = (size_t)(head / l->heads) * (size_t)l->stride;

	for (int i = 0; i < l->n[head / l->heads]; i++) {
		int first = l->piece[row + (size_t)i] * l->tok, end = first + l->tok;
		int past = end < ctx ? end : ctx;

		c->exec_sel += (end < ctx + 1 ? end : ctx + 1) - first;
		c->group_sel += bit ? 0 : past - first;
		if (l->mask && !(l->mask[row + (size_t)i] >> bit & 1))
			continue;
		c->tiles_sel += past - first;
		for (int t = first; t < past; t++)
			mark[t] = IN_ALL;
	}
	c->group_total += bit ? 0 : ctx;
	c->empty_rows += !l->n[head / l->heads];
}

void count_pieces(const struct method_part *p, const struct attn_batch *b,
		  const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		  struct selection_count *count)
{
	int64_t ctx = b->rows.pos0[0];
	int group = b->shape.q_heads / b->shape.kv_heads;

	(void)p, (void)table;
	for (int kv = 0; kv < b->shape.kv_heads; kv++) {
		struct selection_count *c = &count[kv];

		*c = (struct selection_count){ .tiles_total = group * ctx,
					       .exec_total = group * (ctx + 1) };
		for (int k = 0; k < group; k++) {
			count_head_pieces(b, kv * group + k, &chosen->pieces, mark, c);
			count_unions(&b->shape, k, mark, (int)ctx, c);
		}
	}
}

void count_columns(const struct method_part *p, const struct attn_batch *b,
		   const struct selection *chosen, const uint32_t *table, uint8_t *mark,
		   struct selection_count *count)
{
	const struct column_lists *l = &chosen->columns;
	int64_t ctx = b->rows.pos0[0], rows = b->rows.row0[1];
	int group = b->shape.q_heads / b->shape.kv_heads;

	(void)p, (void)table;
	for (int kv = 0; kv < b->shape.kv_heads; kv++) {
		struct selection_count *c = &count[kv];

		*c = (struct selection_count){
			.tiles_total = group * b->rows.qblk0[1] * ctx,
			.exec_total = group * (rows * ctx + rows * (rows + 1) / 2),
		};
		for (int k = 0; k < group; k++) {
			count_head_columns(b, kv * group + k, l, mark, c);
			count_unions(&b->shape, k, mark, (int)ctx, c);
		}
		c->group_total = c->tiles_total, c->group_sel = c->tiles_sel;
	}
}

enum ar_status method_count(const struct method_part *p, const struct attn_batch *b,
			    const struct selection *chosen, const uint32_t *table,
			    struct selection_count *count, struct ar_err *err)
{
	uint8_t *mark = calloc((size_t)b->rows.pos0[0] + 1, sizeof *mark);

	if (!mark)
		return ar_nomem(err);
	(reuse_sees_all(&p->reuse) ? count_blocks : shape_of(p)->count)(p, b, chosen, table, mark,
									count);
	free(mark);
	return AR_OK;
}
