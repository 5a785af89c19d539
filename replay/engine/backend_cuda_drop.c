/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": droppers.
 *
 * Which rows go on is found before the iteration, outside of the timed region.  So the host knows
 * the rows of each layer, and plans them.  Q and K come from captures, so the droppers need nothing
 * of the layers before; with real weights those run first.  The iteration runs all of it again, for
 * its time.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <string.h>

size_t cuda_drop_work(const struct cuda *c, const struct attn_shape *s, const struct attn_limits *l)
{
	const struct drop *d = c->engine.plan.drop;

	return d ? drop_work_bytes(d, s, l) : 0;
}

enum ar_status cuda_take_drops(struct cuda *c, cuda_take_fn *take, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	size_t rows = (size_t)d->max_row, entries = (size_t)d->max_entry;
	struct cuda_drops *x = &c->drops;
	enum ar_status st = AR_OK;

	if (d->n == 1)
		return AR_OK;
	st = take(c, &x->kept.keep, rows * sizeof *x->kept.keep, "the rows that stay", err);
	if (!st)
		st = take(c, &x->kept.n_keep, entries * sizeof *x->kept.n_keep,
			  "the rows that stay", err);
	if (!st)
		st = take(c, &x->kept.index, rows * sizeof *x->kept.index, "the rows that stay",
			  err);
	if (!st)
		st = take(c, &x->chunk, entries * sizeof *x->chunk, "the rows that stay", err);
	if (!st)
		st = take(c, &x->index, (size_t)d->n * rows * sizeof *x->index,
			  "the rows that stay", err);
	if (!st && d->back)
		st = take(c, &x->whole, (size_t)d->n * rows * sizeof *x->whole,
			  "the rows that come back", err);
	return st;
}

enum ar_status cuda_drop_rows(struct cuda *c, int i, const struct attn_call *at, int n_row,
			      struct ar_err *err)
{
	prof_phase(c->env.prof, at->layer, PHASE_DROP);
	return drop_enqueue(attn_engine_drop(&c->engine, i),
			    &(struct drop_call){ at, c->drops.chunk, n_row }, &c->drops.kept, err);
}

enum ar_status cuda_stage_chunks(struct cuda *c, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(c->drops.chunk, d->chunk, (size_t)d->max_entry * sizeof *d->chunk,
			   cudaMemcpyHostToDevice, c->stream));
out:
	return st;
}

enum ar_status cuda_read_drops(struct cuda *c, const struct batch *b, int s, int n_prefill,
			       struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(d->kept.keep, c->drops.kept.keep, (size_t)n_prefill,
			   cudaMemcpyDeviceToHost, c->stream));
	CU(cudaStreamSynchronize(c->stream));
	drops_apply(d, b, s, d->kept.keep);
	st = cuda_put_index(c, attn_engine_drop_layer(&c->engine, s), d->index + s * d->max_row,
			    d->n_index[s], err);
	if (!st && d->back)
		CU(cudaMemcpyAsync(c->drops.whole + (ptrdiff_t)(s + 1) * d->max_row,
				   d->whole + (ptrdiff_t)(s + 1) * d->max_row,
				   (size_t)d->n_whole * sizeof *d->whole, cudaMemcpyHostToDevice,
				   c->stream));
out:
	return st;
}

const struct drop *cuda_drop_at(const struct cuda *c, int i, const struct rows *r)
{
	return r->n_prefill ? attn_engine_drop(&c->engine, i) : NULL;
}

int cuda_kept(const struct cuda *c, int i)
{
	return c->engine.drops.n_index[attn_engine_drop_no(&c->engine, i)];
}

/* The rows that stay after executed layer i, on the device. */
static int32_t *index_of(const struct cuda *c, int i)
{
	return c->drops.index +
	       (ptrdiff_t)attn_engine_drop_no(&c->engine, i) * c->engine.drops.max_row;
}

enum ar_status cuda_put_index(struct cuda *c, int i, const int32_t *index, int n,
			      struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(index_of(c, i), index, (size_t)n * sizeof *index, cudaMemcpyHostToDevice,
			   c->stream));
out:
	return st;
}

enum ar_status cuda_keep_rows(struct cuda *c, int i, int n, struct ar_err *err)
{
	return decoder_keep(c->decoder, c->env.run_layer[i], index_of(c, i), n, err);
}

enum ar_status cuda_bring_back(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	int s = cuda_drop_at(c, i, r) && d->back ? attn_engine_drop_no(&c->engine, i) : 0;

	if (!s || !c->decoder)
		return AR_OK;
	return decoder_bring_back(c->decoder, c->env.run_layer[i],
				  c->drops.whole + (ptrdiff_t)s * d->max_row, r->n_row, err);
}

/* The memory of staged rows holds these for once. */
static enum ar_status make_rows(void *ctx, int i, const struct layer_row *row, int n_row, bf16_t *q,
				bf16_t *k, struct ar_err *err)
{
	struct cuda *c = ctx;
	const struct attn_shape *s = attn_engine_shape(&c->engine, i);
	size_t rows = (size_t)n_row, dim = (size_t)s->head_dim * sizeof *q;
	enum ar_status st = AR_OK;

	memcpy(c->rows.mem, row, rows * sizeof *row);
	CU(cudaMemcpyAsync(c->rows_dev, c->rows.mem, rows * sizeof *row, cudaMemcpyHostToDevice,
			   c->stream));
	st = c->engine.act->qkv(c->engine.act_self, i, c->rows_dev, n_row, NULL,
				&(struct qkv){ c->q, c->k, NULL }, err);
	if (st)
		return st;
	CU(cudaStreamSynchronize(c->stream));
	CU(cudaMemcpy(q, c->q, rows * (size_t)s->q_heads * dim, cudaMemcpyDeviceToHost));
	CU(cudaMemcpy(k, c->k, rows * (size_t)s->kv_heads * dim, cudaMemcpyDeviceToHost));
out:
	return st;
}

enum ar_status cuda_kept_share(void *self, const struct batch_entry *e, int i,
			       struct kept_share *out, struct ar_err *err)
{
	struct cuda *c = self;

	*out = (struct kept_share){ 0 };
	if (c->env.weights)
		return AR_OK;
	c->stale = true;
	return attn_engine_kept(&c->engine, e, i, c->rows.prefill.max_row, make_rows, c, out, err);
}
