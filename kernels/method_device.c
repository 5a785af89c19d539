/* Methods on the device: the layout of their work memory and the order of launches. */
#include "config.h"
#include "kernels/method.h"

#include <stdlib.h>

#include "kernels/cuda.h"

/* Offsets into work; mask comes first, so that its place does not depend on the batch.  A dense
 * method has none of this, its executor works at 0. */
struct layout {
	int heads, groups;
	size_t n_mask, n_list;		/* rows */
	size_t mask, table, block, n;
	size_t end;			/* then scratch of the selector, later of the executor */
};

static size_t place(size_t *end, size_t bytes)
{
	size_t at = *end;

	*end += (bytes + 255) / 256 * 256;
	return at;
}

static struct layout layout(const struct method *m, const struct attn_shape *s, int n_req,
			    int n_qblk, int max_kv_blk)
{
	size_t words = ((size_t)max_kv_blk + 31) / 32;
	struct layout l = { .heads = union_heads(m->u, s) };

	l.groups = union_groups(l.heads, s);
	l.n_mask = (size_t)n_qblk * (size_t)s->q_heads;
	l.n_list = l.heads ? (size_t)n_req * (size_t)l.groups : l.n_mask;
	l.mask = place(&l.end, l.n_mask * words * sizeof(uint32_t));
	l.table = place(&l.end, l.heads ? l.n_list * words * sizeof(uint32_t) : 0);
	l.block = place(&l.end, l.n_list * (size_t)max_kv_blk * sizeof(uint16_t));
	l.n = place(&l.end, l.n_list * sizeof(int32_t));
	return l;
}

static struct layout batch_layout(const struct method *m, const struct attn_batch *b)
{
	return layout(m, &b->shape, b->n_req, b->n_qblk, b->max_kv_blk);
}

size_t method_work_bytes(const struct method *m, const struct attn_shape *s,
			 const struct attn_limits *l)
{
	size_t attend = m->executor->work_bytes(s, l), select;

	if (m->dense)
		return attend;
	select = m->selector->work_bytes ? m->selector->work_bytes(m->self, s, l) : 0;
	return layout(m, s, l->max_req, attn_max_qblk(l, s->page_tok), l->max_kv_blk).end +
	       (select > attend ? select : attend);
}

/* Union and lists: *lists points into work. */
static enum ar_status lower(const struct layout *l, const struct attn_batch *b, char *work,
			    struct block_lists *lists, void *stream, struct ar_err *err)
{
	uint32_t *mask = (uint32_t *)(void *)(work + l->mask);
	uint32_t *table = (uint32_t *)(void *)(work + l->table);
	enum ar_status st = AR_OK;

	lists->block = (uint16_t *)(void *)(work + l->block);
	lists->n = (int32_t *)(void *)(work + l->n);
	lists->stride = b->max_kv_blk;
	if (l->heads)
		st = union_enqueue(b, l->heads, mask, table, stream, err);
	if (st)
		return st;
	return lists_enqueue(l->heads ? table : mask, (int)l->n_list, b->mask_words, lists, stream,
			     err);
}

enum ar_status method_enqueue(const struct method *m, const struct attn_batch *b, const bf16_t *q,
			      const struct kv_cache *kv, void *state, bf16_t *out, float *lse,
			      void *work, void *stream, phase_fn *phase, void *phase_ctx,
			      int layer, struct ar_err *err)
{
	struct layout l = batch_layout(m, b);
	struct block_lists lists = { 0 };
	char *base = work;
	const struct selection chosen = { .mask = (uint32_t *)(void *)(base + l.mask) };
	enum ar_status st = AR_OK;

	if (!m->dense) {
		phase(phase_ctx, layer, PHASE_SELECT);
		st = m->selector->enqueue(b, m->self, layer, q, kv, state, &chosen, base + l.end,
					  stream, err);
		if (st)
			return st;
		phase(phase_ctx, layer, PHASE_METADATA);
		st = lower(&l, b, base, &lists, stream, err);
		if (st)
			return st;
	}
	phase(phase_ctx, layer, PHASE_ATTEND);
	return m->executor->enqueue(b, m->dense ? 0 : l.heads, &lists, q, kv, out, lse,
				    base + (m->dense ? 0 : l.end), stream, err);
}

enum ar_status method_count_device(const struct method *m, const struct attn_batch *host,
				   const void *work, struct selection_count *count,
				   struct ar_err *err)
{
	struct layout l = batch_layout(m, host);
	size_t row = (size_t)host->mask_words * sizeof(uint32_t);
	size_t mask_bytes = (size_t)host->qblk0[1] * (size_t)host->shape.q_heads * row;
	size_t table_bytes = (size_t)l.groups * row;
	uint32_t *mask = NULL, *table = NULL;
	enum ar_status st = AR_OK;

	if (m->dense) {
		method_count(m, host, NULL, NULL, count);
		return AR_OK;
	}
	mask = malloc(mask_bytes + table_bytes);
	if (!mask)
		return ar_nomem(err);
	CU(cudaMemcpy(mask, (const char *)work + l.mask, mask_bytes, cudaMemcpyDeviceToHost));
	if (table_bytes) {
		table = mask + mask_bytes / sizeof *mask;
		CU(cudaMemcpy(table, (const char *)work + l.table, table_bytes,
			      cudaMemcpyDeviceToHost));
	}
	method_count(m, host, mask, table, count);
out:
	free(mask);
	return st;
}
