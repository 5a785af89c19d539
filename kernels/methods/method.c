/* Methods on the host: what goes with what, and the reference. */
#include "config.h"
#include "kernels/methods/method.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

unsigned method_shape(const struct method *m)
{
	if (m->dense)
		return TAKES_ALL;
	if (m->selector->tokens)
		return TAKES_TOKENS;
	if (m->selector->columns)
		return TAKES_COLUMNS;
	return m->u == UNION_NONE ? TAKES_MASK : TAKES_TABLE;
}

int method_page_tok(const struct method *m)
{
	return m->selector->block_tok ? m->selector->block_tok(m->param) : 128;
}

int method_tail(const struct method *m)
{
	return method_shape(m) == TAKES_TABLE && m->selector->tail ? m->selector->tail(m->param) :
								     0;
}

enum ar_status method_open(struct method *m, const struct selector_env *env, struct ar_err *err)
{
	enum ar_status st;

	if (!m->selector->open)
		return AR_OK;
	st = m->selector->open(&m->self, m->param, env, err);
	if (st)
		ar_err_prefix(err, "method '%s'", m->name);
	return st;
}

size_t method_state_bytes(const struct method *m, const struct attn_shape *s)
{
	return m->selector->state_bytes ? m->selector->state_bytes(m->self, s) : 0;
}

int method_table_heads(const struct method *m, const struct attn_shape *s)
{
	return method_shape(m) == TAKES_TABLE ? union_heads(m->u, s) : 0;
}

int method_plan(const struct method *m, const struct attn_batch *b, struct attn_tile *tile)
{
	return m->executor->plan(b, method_table_heads(m, &b->shape), tile);
}

void method_columns(const struct method *m, const struct attn_shape *s, int max_kv_blk,
		    struct column_lists *l)
{
	int most = max_kv_blk * s->page_tok;

	m->selector->columns(m->self, s, &l->max_run, &l->max_col);
	l->max_run = l->max_run < max_kv_blk + 1 ? l->max_run : max_kv_blk + 1;
	l->max_col = l->max_col < most ? l->max_col : most;
}

/* ---- reference ---- */

void method_selection_release(struct method_selection *x)
{
	free(x->chosen.mask);
	free(x->chosen.tokens.tok);
	free(x->chosen.tokens.n);
	free(x->chosen.columns.run);
	free(x->chosen.columns.n_run);
	free(x->chosen.columns.col);
	free(x->chosen.columns.n_col);
	free(x->chosen.columns.band);
	free(x->chosen.score);
	free(x->table);
	free(x->lists.blocks.block);
	free(x->lists.blocks.n);
	*x = (struct method_selection){ .scored = x->scored };
}

/* At least one element, so that an empty batch is no failure. */
static void *array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

/* Elements of a batch's token lists. */
static size_t all_tokens(const struct attn_batch *b)
{
	return (size_t)b->n_page * (size_t)b->shape.page_tok * (size_t)b->shape.kv_heads;
}

static bool alloc_tokens(const struct attn_batch *b, struct token_lists *l)
{
	size_t heads = (size_t)b->shape.kv_heads;

	l->tok = array(all_tokens(b), sizeof *l->tok);
	l->n = array((size_t)b->n_req * heads, sizeof *l->n);
	return l->tok && l->n;
}

static bool alloc_columns(const struct method *m, const struct attn_batch *b,
			  struct column_lists *l)
{
	size_t n = (size_t)b->n_qblk * (size_t)b->shape.q_heads;

	method_columns(m, &b->shape, b->max_kv_blk, l);
	l->run = array(n * (size_t)l->max_run, sizeof *l->run);
	l->n_run = array(n, sizeof *l->n_run);
	l->col = array(n * (size_t)l->max_col, sizeof *l->col);
	l->n_col = array(n, sizeof *l->n_col);
	l->band = array(n, sizeof *l->band);
	return l->run && l->n_run && l->col && l->n_col && l->band;
}

static bool alloc_blocks(const struct method *m, const struct attn_batch *b,
			 struct method_selection *x)
{
	const struct attn_shape *s = &b->shape;
	size_t n_mask = (size_t)b->n_qblk * (size_t)s->q_heads, n_list = n_mask;
	struct block_lists *l = &x->lists.blocks;

	x->lists.heads = method_table_heads(m, s);
	if (x->lists.heads)
		n_list = (size_t)b->n_req * (size_t)union_groups(x->lists.heads, s);
	x->chosen.mask = array(n_mask * (size_t)b->mask_words, sizeof *x->chosen.mask);
	x->table = array(x->lists.heads ? n_list * (size_t)b->mask_words : 1, sizeof *x->table);
	l->block = array(n_list * (size_t)b->max_kv_blk, sizeof *l->block);
	l->n = array(n_list, sizeof *l->n);
	l->stride = b->max_kv_blk;
	return x->chosen.mask && x->table && l->block && l->n;
}

static bool alloc_scores(const struct method *m, const struct attn_batch *b, float **score)
{
	size_t n = m->selector->tokens ? all_tokens(b) :
		   (size_t)b->n_qblk * (size_t)b->shape.q_heads * (size_t)b->max_kv_blk;

	*score = array(n, sizeof **score);
	for (size_t i = 0; *score && i < n; i++)
		(*score)[i] = NAN;
	return *score;
}

static bool alloc_selection(struct method_selection *x, const struct method *m,
			    const struct attn_batch *b)
{
	if (x->scored && m->selector->scores && !alloc_scores(m, b, &x->chosen.score))
		return false;
	switch (method_shape(m)) {
	case TAKES_ALL: return true;
	case TAKES_TOKENS: return alloc_tokens(b, &x->chosen.tokens);
	case TAKES_COLUMNS: return alloc_columns(m, b, &x->chosen.columns);
	default: return alloc_blocks(m, b, x);
	}
}

enum ar_status method_selection_init(struct method_selection *x, const struct method *m,
				     const struct attn_batch *b, struct ar_err *err)
{
	*x = (struct method_selection){ .scored = x->scored };
	if (!alloc_selection(x, m, b))
		return ar_nomem(err);
	x->lists.tokens = x->chosen.tokens;
	x->lists.columns = x->chosen.columns;
	return AR_OK;
}

enum ar_status method_choose_ref(const struct method *m, const struct attn_batch *b, int layer,
				 const bf16_t *q, const struct kv_cache *kv, void *state,
				 struct method_selection *x, struct ar_err *err)
{
	enum ar_status st = method_selection_init(x, m, b, err);

	if (st || m->dense)
		return st;
	return m->selector->ref(b, m->self, layer, q, kv, state, &x->chosen, err);
}

void method_lower_ref(const struct attn_batch *b, struct method_selection *x)
{
	int heads = x->lists.heads;

	if (heads)
		union_ref(b, heads, x->chosen.mask, x->table);
	lists_ref(heads ? x->table : x->chosen.mask,
		  heads ? b->n_req * union_groups(heads, &b->shape) : b->n_qblk * b->shape.q_heads,
		  b->mask_words, &x->lists.blocks);
}

enum ar_status method_select_ref(const struct method *m, const struct attn_batch *b, int layer,
				 const bf16_t *q, const struct kv_cache *kv, void *state,
				 struct method_selection *x, struct ar_err *err)
{
	enum ar_status st = method_choose_ref(m, b, layer, q, kv, state, x, err);

	if (!st && x->chosen.mask)
		method_lower_ref(b, x);
	return st;
}

enum ar_status method_ref(const struct method *m, const struct attn_batch *b, int layer,
			  const bf16_t *q, const struct kv_cache *kv, void *state, bf16_t *out,
			  float *lse, struct selection_count *count, struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = method_select_ref(m, b, layer, q, kv, state, &x, err);

	if (!st)
		st = m->executor->ref(b, &x.lists, q, kv, out, lse, err);
	if (!st && count)
		st = method_count(m, b, &x.chosen, x.table, count, err);
	method_selection_release(&x);
	return st;
}
