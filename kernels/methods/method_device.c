/* SPDX-License-Identifier: Apache-2.0 */
/* Methods on the device: the layout of their work memory and the order of launches. */
#include "config.h"
#include "kernels/methods/shapes.h"

#include "kernels/prim/cuda.h"

static size_t select_bytes(const struct method_part *p, const struct attn_shape *s,
			   const struct attn_limits *l)
{
	return p->selector->work_bytes ? p->selector->work_bytes(p->self, s, l) : 0;
}

void *method_room(const struct method_part *p, const struct attn_call *call)
{
	return reuse_on(&p->reuse) ? call->lists : call->work;
}

/* Work holds the arrays of the selection, then scratch, for the selector and later the executor. */
size_t method_work_bytes(const struct method_part *p, const struct attn_shape *s,
			 const struct attn_limits *l)
{
	struct shape_extent e = shape_most(p, s, l);
	size_t attend = p->executor->work_bytes(s, l, e.table_heads);
	size_t select = select_bytes(p, s, l), prune = p->prune ? select_bytes(p->prune, s, l) : 0;

	select = select > prune ? select : prune;
	return shape_bytes(&e) + (select > attend ? select : attend);
}

/* Union and lists of masks. */
static enum ar_status lower(const struct attn_batch *b, struct method_selection *x, void *stream,
			    struct ar_err *err)
{
	int heads = x->lists.heads;
	enum ar_status st = AR_OK;

	if (heads)
		st = union_enqueue(b, heads, x->chosen.mask, x->table, stream, err);
	if (st)
		return st;
	return lists_enqueue(heads ? x->table : x->chosen.mask,
			     heads ? b->rows.n_req * union_groups(heads, &b->shape) :
				     b->rows.n_qblk * b->shape.q_heads,
			     b->keys.mask_words, &x->lists.blocks, stream, err);
}

/* The call, with the scratch behind the selection as its work. */
static struct attn_call behind(const struct attn_call *call, const struct shape_extent *e)
{
	struct attn_call own = *call;

	own.work = (char *)call->work + shape_bytes(e);
	return own;
}

/* The selector, then the pruner of its lists. */
static enum ar_status choose(const struct method_part *p, const struct attn_call *call,
			     struct method_selection *x, struct ar_err *err)
{
	const struct attn_call own = method_prune_call(call, &x->from);
	enum ar_status st;

	if (p->reuse.takes)
		return AR_OK;
	if (!p->prune)
		return p->selector->enqueue(call, p->self, &x->chosen, err);
	st = p->selector->enqueue(call, p->self, &(struct selection){ .pieces = x->from }, err);
	return st ? st : p->prune->selector->enqueue(&own, p->prune->self, &x->chosen, err);
}

enum ar_status method_choose(const struct method_part *p, const struct attn_call *call,
			     struct ar_err *err)
{
	struct shape_extent e = shape_extent(p, call->b);
	struct attn_call own = behind(call, &e);
	struct method_selection x;

	shape_lay(&x, &e, method_room(p, call));
	return choose(p, &own, &x, err);
}

enum ar_status method_append(const struct method_part *p, const struct attn_call *call,
			     phase_fn *phase, void *phase_ctx, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (p->reuse.takes)
		return AR_OK;
	if (p->selector->append) {
		phase(phase_ctx, call->layer, PHASE_META);
		st = p->selector->append(call, p->self, err);
	}
	if (!st && p->prune) {
		struct attn_call own = method_prune_call(call, NULL);

		st = method_append(p->prune, &own, phase, phase_ctx, err);
	}
	return st;
}

enum ar_status method_enqueue(const struct method_part *p, const struct attn_call *call,
			      phase_fn *phase, void *phase_ctx, struct ar_err *err)
{
	struct shape_extent e = shape_extent(p, call->b);
	struct attn_call own = behind(call, &e);
	struct method_selection x;
	enum ar_status st = AR_OK;

	shape_lay(&x, &e, method_room(p, call));
	if (!p->dense) {
		phase(phase_ctx, call->layer, PHASE_SELECT);
		st = choose(p, &own, &x, err);
	}
	if (!st && e.row->bit & (SHAPE_MASK | SHAPE_TABLE)) {
		phase(phase_ctx, call->layer, PHASE_METADATA);
		st = lower(call->b, &x, call->stream, err);
	}
	if (!st && p->executor->move) {
		phase(phase_ctx, call->layer, PHASE_COPY);
		st = p->executor->move(&own, &x.lists, err);
	}
	if (st)
		return st;
	phase(phase_ctx, call->layer, p->executor->phase);
	return p->executor->enqueue(&own, &x.lists, err);
}

/* Copy request 0, which comes first in every array.  one: the extent of request 0 alone. */
static enum ar_status copy_arrays(const struct shape_extent *all, const struct shape_extent *one,
				  const char *work, struct method_selection *x, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (const struct shape_array *a = all->row->array; a->bytes; a++) {
		CU(cudaMemcpy(shape_array(x, a), work, a->bytes(one), cudaMemcpyDeviceToHost));
		work += shape_room(a, all);
	}
out:
	return st;
}

enum ar_status method_selection_device(const struct method_part *p, const struct attn_batch *host,
				       const void *room, struct method_selection *x,
				       struct ar_err *err)
{
	struct attn_batch first = *host;
	struct shape_extent all = shape_extent(p, host), one;
	enum ar_status st;

	first.rows.n_req = 1;
	first.rows.n_row = host->rows.row0[1];
	first.rows.n_qblk = host->rows.qblk0[1];
	first.keys.n_page = host->keys.page0[1];
	one = shape_extent(p, &first);
	st = method_selection_init(x, p, &first, err);
	return st ? st : copy_arrays(&all, &one, room, x, err);
}

enum ar_status method_count_device(const struct method_part *p, const struct attn_batch *host,
				   const void *room, struct selection_count *count,
				   struct ar_err *err)
{
	struct method_selection x = { 0 };
	enum ar_status st = method_selection_device(p, host, room, &x, err);

	if (!st)
		st = method_count(p, host, &x.chosen, x.table, count, err);
	method_selection_release(&x);
	return st;
}
