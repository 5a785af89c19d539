/* SPDX-License-Identifier: Apache-2.0 */
/* Methods on the host: properties that follow from their parts, and the reference. */
#include "config.h"
#include "kernels/methods/shapes.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "base/gpu.h"
#include "kernels/methods/guarded.h"
#include "kernels/select/plugin.h"
#include "kernels/support.h"

unsigned method_shape(const struct method_part *p)
{
	if (p->dense)
		return SHAPE_ALL;
	if (p->selector->gives)
		return p->selector->gives;
	return p->u == UNION_NONE ? SHAPE_MASK : SHAPE_TABLE;
}

int method_page_tok(const struct method *m)
{
	const struct method_part *p = method_prefill(m);

	return p->selector->block_tok ? p->selector->block_tok(p->param) : 128;
}

const struct opt *method_threshold(const struct method *m)
{
	const struct selector *s = method_prefill(m)->selector;
	const struct opt *o = s->params;

	while (s->threshold && strcmp(o->name, s->threshold) != 0)
		o++;
	return s->threshold ? o : NULL;
}

size_t method_spell_with(char *buf, size_t n, const char *text, const char *key, double value)
{
	int end = (int)(method_parts(text) - text);
	bool more = strcspn(text, ":/") < (size_t)end;

	return (size_t)snprintf(buf, n, "%.*s%c%s=%.8g%s", end, text, more ? ',' : ':', key, value,
				text + end);
}

const struct support *method_rows(const struct method_part *p, struct support *own)
{
	const struct selector *x = p->selector;
	const struct selector_support *s = &x->support;

	own[0] = (struct support){ x->name,	 s->cc_min,    s->cc_max,
				   s->head_dims, s->page_toks, .layouts = CACHE_KV_BF16 };
	own[1] = (struct support){ 0 };
	return x->enqueue && s->cc_min ? own : supports;
}

enum ar_status method_supported(const struct method_part *p, const struct attn_shape *s,
				const struct cache_layout *layout, int cc, struct ar_err *err)
{
	struct support own[2];
	enum ar_status st = AR_OK;

	if (!p->dense)
		st = support_check_in(method_rows(p, own), p->selector->name, s, layout, cc, err);
	if (!st)
		st = support_check(p->executor->kernel, s, layout, cc, err);
	return st || !p->skips ? st : support_check(p->skips, s, layout, cc, err);
}

int method_tail(const struct method_part *p)
{
	return method_shape(p) == SHAPE_TABLE && p->selector->tail ? p->selector->tail(p->param) :
								     0;
}

static enum ar_status check_device(const struct method *m, const struct selector_env *env,
				   struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	for (int k = 0; k < ROW_KINDS && !st; k++)
		st = method_supported(&m->part[k], &env->shape, env->layout, gpu->cc, err);
	if (!st && m->part[ROW_DECODE].prune)
		st = method_supported(m->part[ROW_DECODE].prune, &env->shape, env->layout, gpu->cc,
				      err);
	return st;
}

/* References read kv-bf16 alone. */
static enum ar_status check_reference(const struct selector_env *env, struct ar_err *err)
{
	const struct cache_layout *l = cache_layout(env->layout);

	if (l->bit == CACHE_KV_BF16)
		return AR_OK;
	return ar_fail(err, AR_USAGE, "cache %s; references take %s", l->name, cache_layouts->name);
}

/* Whether pieces fit the pages, and the heads of a list the bits of a mask. */
static enum ar_status check_pieces(const struct method_part *p, const struct attn_shape *s,
				   struct ar_err *err)
{
	struct piece_form f;

	if (!p->selector->pieces)
		return AR_OK;
	f = p->selector->pieces(p->self, s, 1);
	if (s->page_tok % f.tok)
		return ar_fail(err, AR_USAGE,
			       "selector '%s': page=%d does not divide the %d tokens of a page of "
			       "the cache: use a lower power of two",
			       p->selector->name, f.tok, s->page_tok);
	if (f.heads > 16)
		return ar_fail(err, AR_USAGE,
			       "selector '%s': %d query heads share a KV head; it takes up to 16",
			       p->selector->name, f.heads);
	return AR_OK;
}

static enum ar_status open_pruner(struct method_part *p, const struct selector_env *env,
				  struct ar_err *err)
{
	return p->selector->open ? p->selector->open(&p->self, p->param, env, err) : AR_OK;
}

enum ar_status method_open(struct method *m, const struct selector_env *env, struct ar_err *err)
{
	enum ar_status st = env->device ? check_device(m, env, err) : check_reference(env, err);

	for (int k = 0; k < ROW_KINDS && !st; k++) {
		struct method_part *p = &m->part[k];

		st = p->selector->open ? p->selector->open(&p->self, p->param, env, err) : AR_OK;
		if (!st)
			st = check_pieces(p, &env->shape, err);
	}
	if (!st && m->part[ROW_DECODE].prune)
		st = open_pruner(m->part[ROW_DECODE].prune, env, err);
	if (st)
		ar_err_prefix(err, "method '%s'", m->name);
	return st;
}

size_t method_state_bytes(const struct method_part *p, const struct attn_shape *s)
{
	return p->selector->state_bytes && !p->reuse.takes ? p->selector->state_bytes(p->self, s) :
							     0;
}

int method_table_heads(const struct method_part *p, const struct attn_shape *s)
{
	return method_shape(p) == SHAPE_TABLE ? union_heads(p->u, s) : 0;
}

int method_plan(const struct method_part *p, const struct attn_batch *b, struct attn_tile *tile)
{
	assert(attn_is_chunked(b));
	return p->executor->plan(b, method_table_heads(p, &b->shape), tile);
}

/* ---- reference ---- */

void method_selection_release(struct method_selection *x)
{
	shape_release(x);
}

enum ar_status method_selection_init(struct method_selection *x, const struct method_part *p,
				     const struct attn_batch *b, struct ar_err *err)
{
	struct shape_extent e = shape_extent(p, b);

	return shape_alloc(x, p, &e) ? AR_OK : ar_nomem(err);
}

size_t method_lists_bytes(const struct method_part *p, const struct attn_shape *s,
			  const struct attn_limits *l)
{
	struct shape_extent e = shape_most(p, s, l);

	return reuse_on(&p->reuse) ? shape_bytes(&e) : 0;
}

enum ar_status method_append_ref(const struct method_part *p, const struct attn_call *call,
				 struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (p->reuse.takes)
		return AR_OK;
	if (p->selector->append_ref)
		st = p->selector->append_ref(call, p->self, err);
	if (!st && p->prune) {
		struct attn_call own = method_prune_call(call, NULL);

		st = method_append_ref(p->prune, &own, err);
	}
	return st;
}

struct attn_call method_prune_call(const struct attn_call *call, const struct piece_lists *from)
{
	struct attn_call own = *call;

	own.state = call->prune_state;
	own.from = from;
	return own;
}

/* Make the lists of a decode: the selector writes them, and a pruner shortens them. */
static enum ar_status choose_pieces(const struct method_part *p, const struct attn_call *call,
				    struct method_selection *x, struct ar_err *err)
{
	const struct attn_call own = method_prune_call(call, &x->from);
	enum ar_status st = p->selector->ref(call, p->self,
					     &(struct selection){ .pieces = x->from }, err);

	return st ? st : p->prune->selector->ref(&own, p->prune->self, &x->chosen, err);
}

/* Copy a selection to or from the lists that pass between layers. */
static void pass_lists(const struct method_part *p, const struct attn_call *call,
		       const struct method_selection *x)
{
	struct shape_extent e = shape_extent(p, call->b);
	char *at = call->lists;

	for (const struct shape_array *a = e.row->array; a->bytes; a++) {
		size_t n = a->bytes(&e);

		if (p->reuse.takes && n)
			memcpy(shape_array(x, a), at, n);
		else if (n)
			memcpy(at, shape_array(x, a), n);
		at += shape_room(a, &e);
	}
}

static enum ar_status choose_ref(const struct method_part *p, const struct attn_call *call,
				 struct method_selection *x, struct ar_err *err)
{
	enum ar_status st;

	if (p->prune)
		return choose_pieces(p, call, x, err);
	if (!plugin_of(p->selector))
		return p->selector->ref(call, p->self, &x->chosen, err);
	st = guarded_ref(p, call, x, err);
	if (st)
		ar_err_prefix(err, "%s", plugin_of(p->selector)->path);
	return st;
}

enum ar_status method_choose_ref(const struct method_part *p, const struct attn_call *call,
				 struct method_selection *x, struct ar_err *err)
{
	enum ar_status st = method_selection_init(x, p, call->b, err);

	if (!st && !p->dense && !p->reuse.takes)
		st = choose_ref(p, call, x, err);
	if (!st && reuse_on(&p->reuse))
		pass_lists(p, call, x);
	return st;
}

void method_lower_ref(const struct attn_batch *b, struct method_selection *x)
{
	int heads = x->lists.heads;

	if (heads)
		union_ref(b, heads, x->chosen.mask, x->table);
	lists_ref(heads ? x->table : x->chosen.mask,
		  heads ? b->rows.n_req * union_groups(heads, &b->shape) :
			  b->rows.n_qblk * b->shape.q_heads,
		  b->keys.mask_words, &x->lists.blocks);
}

enum ar_status method_select_ref(const struct method_part *p, const struct attn_call *call,
				 struct method_selection *x, struct ar_err *err)
{
	enum ar_status st = method_choose_ref(p, call, x, err);

	if (!st && x->chosen.mask)
		method_lower_ref(call->b, x);
	return st;
}

enum ar_status method_ref(const struct method_part *p, const struct attn_call *call,
			  struct selection_count *count, struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = method_select_ref(p, call, &x, err);

	if (!st)
		st = p->executor->ref(call, &x.lists, err);
	if (!st && count)
		st = method_count(p, call->b, &x.chosen, x.table, count, err);
	method_selection_release(&x);
	return st;
}
