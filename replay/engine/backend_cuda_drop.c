/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": droppers.
 *
 * Which rows go on is found before the iteration, outside of the timed region.  So the host knows
 * the rows of each layer, and plans them.  Q and K come from captures, so the droppers need nothing
 * of the layers before; with real weights these layers run first.  The iteration runs all of it
 * again, for its time.
 *
 * Tokens that decodes revive are found in the same way.  Batches of decodes run from CUDA graphs,
 * which have room for the most rows: rows that are not needed lie in the scratch page.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <stdlib.h>
#include <string.h>

#include "replay/ranks/world.h"

size_t cuda_drop_work(const struct cuda *c, const struct attn_shape *s, const struct attn_limits *l)
{
	const struct drop *d = c->engine.plan.drop;

	return d ? drop_work_bytes(d, c->env.world ? world_size(c->env.world) : 1, s, l) : 0;
}

/* Room for the rows that decodes revive. */
static enum ar_status take_revived(struct cuda *c, cuda_take_fn *take, struct ar_err *err)
{
	static const char what[] = "the rows that are revived";
	const struct drops *d = &c->engine.drops;
	struct cuda_drops *x = &c->pass.drops;
	size_t segs = (size_t)d->n, n = (size_t)c->pass.rows.limit[ROW_REVIVED].max_row;
	size_t req = (size_t)c->pass.rows.limit[ROW_DECODE].max_req;
	enum ar_status st = take(&c->device, &x->chosen.n, req * sizeof *x->chosen.n, what, err);

	if (!st)
		st = take(&c->device, &x->chosen.index, n * sizeof *x->chosen.index, what, err);
	if (!st)
		st = take(&c->device, &x->left, segs * (size_t)d->max_row * sizeof *x->left, what,
			  err);
	if (!st)
		st = take(&c->device, &x->slot, segs * n * sizeof *x->slot, what, err);
	if (!st)
		CU(cudaMallocHost((void **)&x->slot_host, n * sizeof *x->slot_host));
out:
	return st;
}

enum ar_status cuda_open_aux(struct cuda *c, cuda_take_fn *take, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	enum ar_status st = AR_OK;

	if (!d->revives || !c->decoder)
		return AR_OK;
	c->pass.drops.aux = calloc((size_t)d->n, sizeof *c->pass.drops.aux);
	if (!c->pass.drops.aux)
		return ar_nomem(err);
	for (int s = 0; s < d->n - 1 && !st; s++) {
		int i = attn_engine_drop_layer(&c->engine, s);
		const struct cache_group *g = attn_engine_group(&c->engine, i);
		size_t bytes = (size_t)(g->n_page + 1) * g->aux_bytes; /* and the scratch page */

		st = take(&c->device, &c->pass.drops.aux[s], bytes,
			  "the aux cache (lower --num-gpu-blocks)", err);
		if (!st)
			CU(cudaMemsetAsync(c->pass.drops.aux[s], 0, bytes, c->device.stream));
	}
out:
	return st;
}

enum ar_status cuda_take_drops(struct cuda *c, cuda_take_fn *take, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	size_t rows = (size_t)d->max_row, entries = (size_t)d->max_entry;
	struct cuda_drops *x = &c->pass.drops;
	enum ar_status st = AR_OK;

	if (d->n == 1)
		return AR_OK;
	st = take(&c->device, &x->kept.keep, rows * sizeof *x->kept.keep, "the rows that stay",
		  err);
	if (!st)
		st = take(&c->device, &x->kept.n_keep, entries * sizeof *x->kept.n_keep,
			  "the rows that stay", err);
	if (!st)
		st = take(&c->device, &x->kept.index, rows * sizeof *x->kept.index,
			  "the rows that stay", err);
	if (!st)
		st = take(&c->device, &x->chunk, entries * sizeof *x->chunk, "the rows that stay",
			  err);
	if (!st)
		st = take(&c->device, &x->index, (size_t)d->n * rows * sizeof *x->index,
			  "the rows that stay", err);
	if (!st && d->back)
		st = take(&c->device, &x->whole, (size_t)d->n * rows * sizeof *x->whole,
			  "the rows that come back", err);
	return st || !d->revives ? st : take_revived(c, take, err);
}

enum ar_status cuda_drop_rows(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct drop *d = attn_engine_drop(&c->engine, i);
	struct attn_call at = cuda_call(c, r, ROW_PREFILL, i);
	struct attn_call decode = cuda_call(c, r, ROW_DECODE, i);
	const struct drop_link link = { c->env.world, prof_phase, c->env.prof, at.layer };
	const struct drop_ranks ranks = drops_ranks(&link);
	enum ar_status st = AR_OK;

	prof_phase(c->env.prof, at.layer, PHASE_DROP);
	if (rows_count(r, ROW_PREFILL))
		st = drop_enqueue(d,
				  &(struct drop_call){ &at, c->pass.drops.chunk, r->n_row, ranks },
				  &c->pass.drops.kept, err);
	if (st || !c->engine.drops.revives || !rows_count(r, ROW_DECODE))
		return st;
	c->pass.drops.chosen.gone = r->gone;
	return drop_revive_enqueue(d, &(struct drop_call){ &decode, NULL, r->n_row, ranks },
				   &c->pass.drops.chosen, err);
}

enum ar_status cuda_stage_chunks(struct cuda *c, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(c->pass.drops.chunk, d->chunk, (size_t)d->max_entry * sizeof *d->chunk,
			   cudaMemcpyHostToDevice, c->device.stream));
out:
	return st;
}

/* Copy the slots of revived rows and the dropped rows after segment s to the device, for the aux
 * cache. */
static enum ar_status stage_aux(struct cuda *c, int s, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	const struct cache_group *g = attn_engine_group(&c->engine,
							attn_engine_drop_layer(&c->engine, s));
	int most = c->pass.rows.limit[ROW_REVIVED].max_row;
	int n = drops_slots(d, c->env.blocks, g, s + 1, c->pass.drops.slot_host);
	int32_t *left = d->left + (ptrdiff_t)s * d->max_row;
	enum ar_status st = AR_OK;

	for (; n < most; n++)
		c->pass.drops.slot_host[n] = (int32_t)g->n_page * g->shape.page_tok;
	CU(cudaMemcpyAsync(c->pass.drops.slot + (ptrdiff_t)(s + 1) * most, c->pass.drops.slot_host,
			   (size_t)most * sizeof *c->pass.drops.slot, cudaMemcpyHostToDevice,
			   c->device.stream));
	CU(cudaMemcpyAsync(c->pass.drops.left + (ptrdiff_t)s * d->max_row, left,
			   (size_t)d->n_left[s] * sizeof *left, cudaMemcpyHostToDevice,
			   c->device.stream));
	CU(cudaStreamSynchronize(c->device.stream)); /* slot_host is free again */
out:
	return st;
}

/* Copy the tokens that the n decodes revive to the host. */
static enum ar_status read_revived(struct cuda *c, int n, struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	const struct drop_revived *from = &c->pass.drops.chosen;
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(d->chosen.n, from->n, (size_t)n * sizeof *from->n,
			   cudaMemcpyDeviceToHost, c->device.stream));
	CU(cudaMemcpyAsync(d->chosen.index, from->index,
			   (size_t)(n * d->revives) * sizeof *from->index, cudaMemcpyDeviceToHost,
			   c->device.stream));
out:
	return st;
}

enum ar_status cuda_read_drops(struct cuda *c, const struct batch *b, int s, const struct rows *r,
			       struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(d->kept.keep, c->pass.drops.kept.keep,
			   (size_t)rows_count(r, ROW_PREFILL), cudaMemcpyDeviceToHost,
			   c->device.stream));
	if (d->revives)
		st = read_revived(c, rows_count(r, ROW_DECODE), err);
	if (st)
		return st;
	st = cuda_wait(c, err);
	if (st)
		return st;
	drops_apply(d, b, s, d->kept.keep);
	st = cuda_put_index(c, attn_engine_drop_layer(&c->engine, s), d->index + s * d->max_row,
			    d->n_index[s], err);
	if (!st && d->back)
		CU(cudaMemcpyAsync(c->pass.drops.whole + (ptrdiff_t)(s + 1) * d->max_row,
				   d->whole + (ptrdiff_t)(s + 1) * d->max_row,
				   (size_t)d->n_whole * sizeof *d->whole, cudaMemcpyHostToDevice,
				   c->device.stream));
	if (!st && d->revives)
		st = stage_aux(c, s, err);
out:
	return st;
}

const struct drop *cuda_drop_at(const struct cuda *c, int i, const struct rows *r)
{
	return drops_acts(&c->engine.drops, r) ? attn_engine_drop(&c->engine, i) : NULL;
}

/* Of decodes only, which may be padded, the host does not list the rows. */
int cuda_kept(const struct cuda *c, int i, const struct rows *r)
{
	return rows_count(r, ROW_PREFILL) ?
		       c->engine.drops.n_index[attn_engine_drop_no(&c->engine, i)] :
		       rows_count(r, ROW_DECODE);
}

enum ar_status cuda_put_aux(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	const struct drops *d = &c->engine.drops;
	int s = attn_engine_drop_no(&c->engine, i), layer = c->env.run_layer[i];
	int n_decode = rows_count(r, ROW_DECODE);

	if (rows_count(r, ROW_PREFILL))
		return decoder_put(c->decoder, layer, r->row,
				   c->pass.drops.left + (ptrdiff_t)s * d->max_row, d->n_left[s], 0,
				   c->pass.drops.aux[s], err);
	return decoder_put(c->decoder, layer, r->row + n_decode, NULL, rows_count(r, ROW_REVIVED),
			   n_decode, c->pass.drops.aux[s], err);
}

enum ar_status cuda_take_aux(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	int s = attn_engine_drop_no(&c->engine, i);

	return decoder_take(
		c->decoder, c->env.run_layer[i], cuda_kept(c, i, r), c->pass.drops.aux[s],
		c->pass.drops.slot + (ptrdiff_t)(s + 1) * c->pass.rows.limit[ROW_REVIVED].max_row,
		rows_count(row_set_of(&c->pass.dev, i + 1), ROW_REVIVED), err);
}

/* The rows that stay after executed layer i, on the device. */
static int32_t *index_of(const struct cuda *c, int i)
{
	return c->pass.drops.index +
	       (ptrdiff_t)attn_engine_drop_no(&c->engine, i) * c->engine.drops.max_row;
}

enum ar_status cuda_put_index(struct cuda *c, int i, const int32_t *index, int n,
			      struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaMemcpyAsync(index_of(c, i), index, (size_t)n * sizeof *index, cudaMemcpyHostToDevice,
			   c->device.stream));
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
				  c->pass.drops.whole + (ptrdiff_t)s * d->max_row, r->n_row, err);
}

/* The memory of staged rows holds these for once. */
static enum ar_status make_rows(void *ctx, int i, const struct layer_row *row, int n_row, bf16_t *q,
				bf16_t *k, struct ar_err *err)
{
	struct cuda *c = ctx;
	const struct attn_shape *s = attn_engine_shape(&c->engine, i);
	size_t rows = (size_t)n_row, dim = (size_t)s->head_dim * sizeof *q;
	enum ar_status st = AR_OK;

	memcpy(c->pass.rows.mem, row, rows * sizeof *row);
	CU(cudaMemcpyAsync(c->pass.rows_dev, c->pass.rows.mem, rows * sizeof *row,
			   cudaMemcpyHostToDevice, c->device.stream));
	st = c->engine.act->qkv(c->engine.act_self, i, c->pass.rows_dev, n_row, NULL,
				&(struct qkv){ c->pass.q, c->pass.k, NULL }, err);
	if (st)
		return st;
	CU(cudaStreamSynchronize(c->device.stream));
	CU(cudaMemcpy(q, c->pass.q, rows * (size_t)s->q_heads * dim, cudaMemcpyDeviceToHost));
	CU(cudaMemcpy(k, c->pass.k, rows * (size_t)s->kv_heads * dim, cudaMemcpyDeviceToHost));
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
	c->clock.stale = true;
	return attn_engine_kept(&c->engine, e, i, c->pass.rows.limit[ROW_PREFILL].max_row,
				make_rows, c, out, err);
}
