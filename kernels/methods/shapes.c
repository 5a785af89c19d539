/* SPDX-License-Identifier: Apache-2.0 */
/* The table of shapes, and functions that follow from its rows. */
#include "config.h"
#include "kernels/methods/shapes.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- blocks: a mask, and tables made of it ---- */

/* Rows of a mask, or of any array with a row per (query block, query head). */
static size_t n_mask(const struct shape_extent *e)
{
	return e->n_qblk * (size_t)e->shape.q_heads;
}

static size_t n_list(const struct shape_extent *e)
{
	return e->table_heads ? e->n_req * (size_t)union_groups(e->table_heads, &e->shape) :
				n_mask(e);
}

static size_t row_bytes(const struct shape_extent *e)
{
	return ((size_t)e->max_kv_blk + 31) / 32 * sizeof(uint32_t);
}

static size_t mask_bytes(const struct shape_extent *e)
{
	return n_mask(e) * row_bytes(e);
}

static size_t table_bytes(const struct shape_extent *e)
{
	return n_list(e) * row_bytes(e);
}

static size_t block_bytes(const struct shape_extent *e)
{
	return n_list(e) * (size_t)e->max_kv_blk * sizeof(uint16_t);
}

static size_t n_block_bytes(const struct shape_extent *e)
{
	return n_list(e) * sizeof(int32_t);
}

static void fit_table(const struct method_part *p, struct shape_extent *e)
{
	e->table_heads = union_heads(p->u, &e->shape);
}

static void link_blocks(struct method_selection *x, const struct shape_extent *e)
{
	x->lists.heads = e->table_heads;
	x->lists.blocks.stride = e->max_kv_blk;
}

static int next_block(const struct method_selection *x, const struct shape_place *at, int *k)
{
	size_t words = ((size_t)at->n_blk + 31) / 32;
	const uint32_t *row = x->chosen.mask +
			      (size_t)(at->qblk * at->shape->q_heads + at->head) * words;

	while (*k < at->n_blk) {
		int j = (*k)++;

		if (row[j / 32] >> j % 32 & 1)
			return j;
	}
	return -1;
}

/* Every block up to the query block's own. */
static int next_any(const struct method_selection *x, const struct shape_place *at, int *k)
{
	(void)x;
	return *k <= at->past + at->qblk ? (*k)++ : -1;
}

#define AT(member) offsetof(struct method_selection, member)

static const struct shape_array mask_arrays[] = { { AT(chosen.mask), mask_bytes },
						  { AT(lists.blocks.block), block_bytes },
						  { AT(lists.blocks.n), n_block_bytes },
						  { 0 } };

static const struct shape_array table_arrays[] = { { AT(chosen.mask), mask_bytes },
						   { AT(table), table_bytes },
						   { AT(lists.blocks.block), block_bytes },
						   { AT(lists.blocks.n), n_block_bytes },
						   { 0 } };

static const struct shape_list all_lists[] = { { "blocks", "", ENTRY_BLOCK, next_any }, { 0 } };
static const struct shape_list mask_lists[] = { { "blocks", "", ENTRY_BLOCK, next_block }, { 0 } };

/* ---- tokens ---- */

static size_t token_bytes(const struct shape_extent *e)
{
	return e->n_page * (size_t)(e->shape.page_tok * e->shape.kv_heads) * sizeof(int32_t);
}

static size_t n_token_bytes(const struct shape_extent *e)
{
	return e->n_req * (size_t)e->shape.kv_heads * sizeof(int32_t);
}

static void link_tokens(struct method_selection *x, const struct shape_extent *e)
{
	(void)e;
	x->lists.tokens = x->chosen.tokens;
}

static int next_token(const struct method_selection *x, const struct shape_place *at, int *k)
{
	const struct token_lists *l = &x->chosen.tokens;
	int kv = at->head / (at->shape->q_heads / at->shape->kv_heads);
	const int32_t *tok = l->tok + attn_token_row(at->shape, 0, at->n_blk, kv);

	return *k < l->n[kv] ? tok[(*k)++] : -1;
}

static const struct shape_array token_arrays[] = { { AT(chosen.tokens.tok), token_bytes },
						   { AT(chosen.tokens.n), n_token_bytes },
						   { 0 } };

static const struct shape_list token_lists[] = { { "tokens", "", ENTRY_KEY, next_token }, { 0 } };

/* ---- vertical-slash lists ---- */

static size_t run_bytes(const struct shape_extent *e)
{
	return n_mask(e) * (size_t)e->max_run * sizeof(int32_t);
}

static size_t column_bytes(const struct shape_extent *e)
{
	return n_mask(e) * (size_t)e->max_col * sizeof(int32_t);
}

static size_t n_row_bytes(const struct shape_extent *e)
{
	return n_mask(e) * sizeof(int32_t);
}

static size_t band_bytes(const struct shape_extent *e)
{
	return n_mask(e) * sizeof(struct attn_band);
}

/* Bound runs by blocks, because they do not overlap, and columns by keys: none is listed twice. */
static void fit_columns(const struct method_part *p, struct shape_extent *e)
{
	int runs = e->max_kv_blk + 1, keys = e->max_kv_blk * e->shape.page_tok;

	p->selector->columns(p->self, &e->shape, &e->max_run, &e->max_col);
	e->max_run = e->max_run < runs ? e->max_run : runs;
	e->max_col = e->max_col < keys ? e->max_col : keys;
}

static void link_columns(struct method_selection *x, const struct shape_extent *e)
{
	x->chosen.columns.max_run = e->max_run;
	x->chosen.columns.max_col = e->max_col;
	x->lists.columns = x->chosen.columns;
}

static int next_run(const struct method_selection *x, const struct shape_place *at, int *k)
{
	const struct column_lists *l = &x->chosen.columns;
	size_t row = (size_t)(at->qblk * at->shape->q_heads + at->head);

	return *k < l->n_run[row] ? l->run[row * (size_t)l->max_run + (size_t)(*k)++] : -1;
}

static int next_column(const struct method_selection *x, const struct shape_place *at, int *k)
{
	const struct column_lists *l = &x->chosen.columns;
	size_t row = (size_t)(at->qblk * at->shape->q_heads + at->head);

	return *k < l->n_col[row] ? l->col[row * (size_t)l->max_col + (size_t)(*k)++] : -1;
}

static const struct shape_array column_arrays[] = {
	{ AT(chosen.columns.run), run_bytes },	  { AT(chosen.columns.n_run), n_row_bytes },
	{ AT(chosen.columns.col), column_bytes }, { AT(chosen.columns.n_col), n_row_bytes },
	{ AT(chosen.columns.band), band_bytes },  { 0 }
};

static const struct shape_list column_lists[] = { { "runs", "runs from", ENTRY_RUN, next_run },
						  { "columns", "columns", ENTRY_KEY, next_column },
						  { 0 } };

/* ---- piece lists ---- */

static size_t n_lists(const struct shape_extent *e, const struct piece_form *f)
{
	return f->most ? e->n_req * (size_t)(e->shape.q_heads / f->heads) : 0;
}

static size_t n_pieces(const struct shape_extent *e, const struct piece_form *f)
{
	return n_lists(e, f) * (size_t)f->most;
}

#define PIECE_SIZES(name) \
	static size_t name##_bytes(const struct shape_extent *e) \
	{ \
		return n_pieces(e, &e->name) * sizeof(int32_t); \
	} \
	static size_t name##_n_bytes(const struct shape_extent *e) \
	{ \
		return n_lists(e, &e->name) * sizeof(int32_t); \
	} \
	static size_t name##_mask_bytes(const struct shape_extent *e) \
	{ \
		return e->name.mask ? n_pieces(e, &e->name) * sizeof(uint16_t) : 0; \
	}
PIECE_SIZES(pieces)
PIECE_SIZES(from)
#undef PIECE_SIZES

/* A list has no more pieces than the keys have. */
static struct piece_form piece_form(const struct method_part *p, const struct shape_extent *e)
{
	int keys = e->max_kv_blk * e->shape.page_tok;
	struct piece_form f = p->selector->pieces(p->self, &e->shape, keys);
	int all = keys / f.tok, below = (e->all_below + f.tok - 1) / f.tok;

	f.most = f.most > below ? f.most : below;
	f.most = f.most < all ? f.most : all;
	return f;
}

static void fit_pieces(const struct method_part *p, struct shape_extent *e)
{
	e->all_below = (int)p->min_tokens;
	e->pieces = piece_form(p, e);
	if (!p->prune)
		return;
	e->from = e->pieces;
	e->pieces = p->prune->selector->pieces(p->prune->self, &e->shape, 0);
	e->pieces.heads = e->from.heads;
	e->pieces.most = e->from.most * e->from.tok / e->pieces.tok;
}

static void link_form(struct piece_lists *l, const struct shape_extent *e,
		      const struct piece_form *f)
{
	l->tok = f->tok;
	l->heads = f->heads;
	l->stride = f->most;
	l->all_below = e->all_below;
}

static void link_pieces(struct method_selection *x, const struct shape_extent *e)
{
	link_form(&x->from, e, &e->from);
	link_form(&x->chosen.pieces, e, &e->pieces);
	x->lists.pieces = x->chosen.pieces;
}

/* Positions of pieces that the head sees. */
static int next_piece(const struct method_selection *x, const struct shape_place *at, int *k)
{
	const struct piece_lists *l = &x->chosen.pieces;
	int row = at->head / l->heads, bit = at->head % l->heads;
	const int32_t *piece = l->piece + (size_t)row * (size_t)l->stride;

	for (; *k < l->n[row]; ++*k)
		if (!l->mask || l->mask[(size_t)row * (size_t)l->stride + (size_t)*k] >> bit & 1)
			return piece[(*k)++] * l->tok;
	return -1;
}

static const struct shape_array piece_arrays[] = { { AT(chosen.pieces.piece), pieces_bytes },
						   { AT(chosen.pieces.n), pieces_n_bytes },
						   { AT(chosen.pieces.mask), pieces_mask_bytes },
						   { AT(from.piece), from_bytes },
						   { AT(from.n), from_n_bytes },
						   { AT(from.mask), from_mask_bytes },
						   { 0 } };

static const struct shape_list piece_lists[] = { { "pieces", "pieces from", ENTRY_KEY, next_piece },
						 { 0 } };

/* ---- the table ---- */

static const struct shape_array no_arrays[] = { { 0 } };

/* clang-format off */
const struct selection_shape selection_shapes[] = {
	{ .bit = SHAPE_ALL, .title = "all blocks", .array = no_arrays, .list = all_lists,
	  .count = count_blocks },
	{ .bit = SHAPE_MASK, .title = "a list per query block and head", .array = mask_arrays,
	  .list = mask_lists, .link = link_blocks, .count = count_blocks },
	{ .bit = SHAPE_TABLE, .title = "a table per head group", .array = table_arrays,
	  .list = mask_lists, .fit = fit_table, .link = link_blocks, .count = count_blocks },
	{ .bit = SHAPE_TOKENS, .title = "a token list per KV head", .array = token_arrays,
	  .list = token_lists, .per_kv = true, .link = link_tokens, .count = count_tokens },
	{ .bit = SHAPE_COLUMNS, .title = "a vertical-slash list per query block and head",
	  .array = column_arrays, .list = column_lists, .fit = fit_columns,
	  .link = link_columns, .count = count_columns },
	{ .bit = SHAPE_PIECES, .title = "a piece list of decodes", .array = piece_arrays,
	  .list = piece_lists, .fit = fit_pieces, .link = link_pieces, .count = count_pieces },
	{ 0 }
};
/* clang-format on */

const struct selection_shape *shape_of(const struct method_part *p)
{
	const struct selection_shape *row = selection_shapes;

	while (row->bit != method_shape(p))
		row++;
	return row;
}

/* ---- sizes ---- */

static struct shape_extent fitted(const struct method_part *p, struct shape_extent e)
{
	e.row = shape_of(p);
	if (e.row->fit)
		e.row->fit(p, &e);
	return e;
}

struct shape_extent shape_extent(const struct method_part *p, const struct attn_batch *b)
{
	return fitted(p, (struct shape_extent){ .shape = b->shape,
						.n_req = (size_t)b->rows.n_req,
						.n_qblk = (size_t)b->rows.n_qblk,
						.n_page = (size_t)b->keys.n_page,
						.max_kv_blk = b->keys.max_kv_blk });
}

struct shape_extent shape_most(const struct method_part *p, const struct attn_shape *s,
			       const struct attn_limits *l)
{
	return fitted(p, (struct shape_extent){ .shape = *s,
						.n_req = (size_t)l->max_req,
						.n_qblk = (size_t)attn_max_qblk(l, s->page_tok),
						.n_page = (size_t)l->max_page,
						.max_kv_blk = l->max_kv_blk });
}

/* ---- memory ---- */

void shape_set(struct method_selection *x, const struct shape_array *a, void *p)
{
	memcpy((char *)x + a->at, &p, sizeof p);
}

void *shape_array(const struct method_selection *x, const struct shape_array *a)
{
	void *p;

	memcpy(&p, (const char *)x + a->at, sizeof p);
	return p;
}

size_t shape_bytes(const struct shape_extent *e)
{
	size_t sum = 0;

	for (const struct shape_array *a = e->row->array; a->bytes; a++)
		sum += shape_room(a, e);
	return sum;
}

static void finish_lists(struct method_selection *x, const struct shape_extent *e)
{
	if (e->row->link)
		e->row->link(x, e);
}

void shape_lay(struct method_selection *x, const struct shape_extent *e, void *mem)
{
	char *at = mem;

	*x = (struct method_selection){ 0 };
	for (const struct shape_array *a = e->row->array; a->bytes; a++) {
		shape_set(x, a, a->bytes(e) ? at : NULL);
		at += shape_room(a, e);
	}
	finish_lists(x, e);
}

/* At least one byte, so that an empty batch is no failure. */
static void *new_array(size_t bytes)
{
	return calloc(bytes ? bytes : 1, 1);
}

size_t shape_score_bytes(const struct shape_extent *e)
{
	return e->row->per_kv ? token_bytes(e) / sizeof(int32_t) * sizeof(float) :
				n_mask(e) * (size_t)e->max_kv_blk * sizeof(float);
}

static bool alloc_scores(struct method_selection *x, const struct shape_extent *e)
{
	size_t n = shape_score_bytes(e) / sizeof *x->chosen.score;

	x->chosen.score = new_array(shape_score_bytes(e));
	for (size_t i = 0; x->chosen.score && i < n; i++)
		x->chosen.score[i] = NAN;
	return x->chosen.score;
}

bool shape_alloc(struct method_selection *x, const struct method_part *p,
		 const struct shape_extent *e)
{
	*x = (struct method_selection){ .scored = x->scored };
	if (x->scored && p->selector->scores && !alloc_scores(x, e))
		return false;
	for (const struct shape_array *a = e->row->array; a->bytes; a++) {
		size_t bytes = a->bytes(e);
		void *mem = bytes ? calloc(bytes, 1) : NULL;

		if (bytes && !mem)
			return false;
		shape_set(x, a, mem);
	}
	finish_lists(x, e);
	return true;
}

/* Shapes share arrays: each is freed once. */
void shape_release(struct method_selection *x)
{
	for (const struct selection_shape *row = selection_shapes; row->bit; row++)
		for (const struct shape_array *a = row->array; a->bytes; a++) {
			free(shape_array(x, a));
			shape_set(x, a, NULL);
		}
	free(x->chosen.score);
	*x = (struct method_selection){ .scored = x->scored };
}
