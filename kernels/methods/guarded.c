/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "kernels/methods/guarded.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/methods/shapes.h"

/* ---- copies with guard words ---- */

enum { GUARD = 256, PATTERN = 0xa5 }; /* bytes before and after */

struct copy {
	void *of; /* the original */
	unsigned char *mem;
	size_t n;
};

static void *copy_make(struct copy *c, void *of, size_t n)
{
	*c = (struct copy){ of, malloc(n + 2 * GUARD), n };
	if (!c->mem)
		return NULL;
	memset(c->mem, PATTERN, GUARD);
	memcpy(c->mem + GUARD, of, n);
	memset(c->mem + GUARD + n, PATTERN, GUARD);
	return c->mem + GUARD;
}

static bool copy_is_whole(const struct copy *c)
{
	for (size_t i = 0; i < GUARD; i++)
		if (c->mem[i] != PATTERN || c->mem[GUARD + c->n + i] != PATTERN)
			return false;
	return true;
}

static void copy_back(const struct copy *c)
{
	memcpy(c->of, c->mem + GUARD, c->n);
}

/* ---- the copies of one call ---- */

enum { ARRAYS_MAX = 8 }; /* of a shape */

struct guarded {
	const struct method_part *part;
	struct attn_call call;
	struct method_selection x;
	struct copy array[ARRAYS_MAX], score, state;
	int n_array;
	size_t page_bytes; /* of state */
};

static bool copy_arrays(struct guarded *g, const struct method_selection *x,
			const struct shape_extent *e)
{
	for (const struct shape_array *a = e->row->array; a->bytes; a++) {
		void *p = copy_make(&g->array[g->n_array++], shape_array(x, a), a->bytes(e));

		if (!p)
			return false;
		shape_set(&g->x, a, p);
	}
	if (x->chosen.score)
		g->x.chosen.score = copy_make(&g->score, x->chosen.score, shape_score_bytes(e));
	return !x->chosen.score || g->x.chosen.score;
}

static bool copy_state(struct guarded *g)
{
	const struct attn_keys *k = &g->call.b->keys;
	int32_t pages = 0;

	for (int i = 0; i < k->n_page; i++)
		pages = k->page[i] >= pages ? k->page[i] + 1 : pages;
	if (!g->page_bytes || !g->call.state)
		return true;
	g->call.state = copy_make(&g->state, g->call.state, (size_t)pages * g->page_bytes);
	return g->call.state;
}

/* Whether the state of pages that are not of the batch is as it was. */
static bool state_is_own(const struct guarded *g)
{
	const struct attn_keys *k = &g->call.b->keys;
	unsigned char *now = g->state.mem + GUARD;

	/* Pages of the batch become equal first. */
	for (int i = 0; i < k->n_page; i++) {
		size_t at = (size_t)k->page[i] * g->page_bytes;

		memcpy((unsigned char *)g->state.of + at, now + at, g->page_bytes);
	}
	return !memcmp(g->state.of, now, g->state.n);
}

static void guarded_release(struct guarded *g)
{
	for (int i = 0; i < g->n_array; i++)
		free(g->array[i].mem);
	free(g->score.mem);
	free(g->state.mem);
}

/* ---- check of the writes ---- */

static const char *check_bounds(const struct guarded *g)
{
	for (int i = 0; i < g->n_array; i++)
		if (!copy_is_whole(&g->array[i]))
			return "it wrote outside of its selection";
	if (g->score.mem && !copy_is_whole(&g->score))
		return "it wrote outside of its scores";
	if (g->state.mem && !copy_is_whole(&g->state))
		return "it wrote outside of its state";
	return NULL;
}

/* Bits past a query block's own. */
static const char *check_mask(const struct attn_batch *b, const uint32_t *mask, int row, int own)
{
	const uint32_t *word = mask + (size_t)row * (size_t)b->keys.mask_words;

	for (int j = own + 1; j < b->keys.mask_words * 32; j++)
		if (word[j / 32] >> j % 32 & 1)
			return "its mask has blocks after a query block";
	return NULL;
}

/* n ascending numbers of at most max, each below end. */
static bool ascends(const int32_t *v, int n, int max, int end)
{
	if (n < 0 || n > max)
		return false;
	for (int i = 0; i < n; i++)
		if (v[i] < (i ? v[i - 1] + 1 : 0) || v[i] >= end)
			return false;
	return true;
}

static const char *check_columns(const struct column_lists *l, int row, int first, int end)
{
	if (!ascends(l->run + (size_t)row * (size_t)l->max_run, l->n_run[row], l->max_run, end))
		return "its runs do not ascend to the query block, or are too many";
	if (!ascends(l->col + (size_t)row * (size_t)l->max_col, l->n_col[row], l->max_col, first))
		return "its columns do not ascend to the query block, or are too many";
	return NULL;
}

/* The lists of query block i of request r, one for each head. */
static const char *check_query_block(const struct guarded *g, int r, int i)
{
	const struct attn_batch *b = g->call.b;
	const struct selection *s = &g->x.chosen;
	int tok = b->shape.page_tok, heads = b->shape.q_heads;
	int own = b->rows.pos0[r] / tok + i, row = (b->rows.qblk0[r] + i) * heads;
	const char *fault = NULL;

	for (int h = 0; h < heads && !fault; h++)
		fault = s->mask ? check_mask(b, s->mask, row + h, own) :
				  check_columns(&s->columns, row + h, own * tok, (own + 1) * tok);
	return fault;
}

static const char *check_tokens(const struct guarded *g, int r)
{
	const struct attn_batch *b = g->call.b;
	const struct token_lists *l = &g->x.chosen.tokens;
	int n_page = b->keys.page0[r + 1] - b->keys.page0[r], heads = b->shape.kv_heads;

	for (int h = 0; h < heads; h++)
		if (!ascends(l->tok + attn_token_row(&b->shape, b->keys.page0[r], n_page, h),
			     l->n[r * heads + h], b->rows.pos0[r], b->rows.pos0[r]))
			return "its tokens do not ascend to the chunk";
	return NULL;
}

static const char *check_lists(const struct guarded *g)
{
	const struct attn_rows *rows = &g->call.b->rows;
	const char *fault = NULL;

	for (int r = 0; r < rows->n_req && !fault; r++) {
		if (g->part->selector->gives == SHAPE_TOKENS)
			fault = check_tokens(g, r);
		else
			for (int i = 0; i < rows->qblk0[r + 1] - rows->qblk0[r] && !fault; i++)
				fault = check_query_block(g, r, i);
	}
	return fault;
}

static enum ar_status guarded_check(const struct guarded *g, struct ar_err *err)
{
	const char *fault = check_bounds(g);

	if (!fault && g->state.mem && !state_is_own(g))
		fault = "it wrote to the state of pages that are not of the batch";
	if (!fault)
		fault = check_lists(g);
	return fault ? ar_fail(err, AR_DATA, "selector '%s': %s", g->part->selector->name, fault) :
		       AR_OK;
}

enum ar_status guarded_ref(const struct method_part *p, const struct attn_call *call,
			   struct method_selection *x, struct ar_err *err)
{
	struct guarded g = { .part = p,
			     .call = *call,
			     .x = *x,
			     .page_bytes = method_state_bytes(p, &call->b->shape) };
	struct shape_extent e = shape_extent(p, call->b);
	enum ar_status st = copy_arrays(&g, x, &e) && copy_state(&g) ? AR_OK : ar_nomem(err);

	if (!st)
		st = p->selector->ref(&g.call, p->self, &g.x.chosen, err);
	if (!st)
		st = guarded_check(&g, err);
	for (int i = 0; i < g.n_array && !st; i++)
		copy_back(&g.array[i]);
	if (!st && g.score.mem)
		copy_back(&g.score);
	guarded_release(&g);
	return st;
}
