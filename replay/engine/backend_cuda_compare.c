/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cuda": accuracy, a method against dense attention. */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <assert.h>
#include <stdlib.h>

#include "kernels/methods/accuracy.h"

/* Run method m on the staged rows, all of one kind, in executed layer i.  out, lse and skips are on
 * the device; skips: see attn_skip.count. */
static enum ar_status run_one(struct cuda *c, int i, const struct method *m, const struct rows *r,
			      enum row_kind kind, bf16_t *out, float *lse, int64_t *skips,
			      struct ar_err *err)
{
	struct attn_call call = cuda_call(c, r, kind, i);
	struct attn_batch b = *call.b;

	b.skip.count = skips;
	call.b = &b;
	call.state = m->part[kind].dense ? NULL : call.state;
	call.out = out;
	call.lse = lse;
	return method_enqueue(&m->part[kind], &call, prof_phase, c->env.prof, err);
}

/* Make the lists that the staged decode takes in executed layer i.  With weights the layers before
 * have made them. */
static enum ar_status choose_before(struct cuda *c, int i, enum row_kind kind, struct ar_err *err)
{
	int from = kind == ROW_DECODE && !c->env.weights ? attn_engine_source(&c->engine, i) : -1;
	const struct rows *r;
	struct attn_call call;
	enum ar_status st;

	if (from < 0)
		return AR_OK;
	r = row_set_of(&c->pass.dev, from);
	st = cuda_make_qkv(c, from, r, false, err);
	call = cuda_call(c, r, kind, from);
	return st ? st :
		    method_choose(&attn_engine_method(&c->engine, from)->part[kind], &call, err);
}

/* Run the method of the layer, and count its selection; host: the rows on the host. */
static enum ar_status run_counted(struct cuda *c, int i, const struct rows *r,
				  const struct attn_batch *host, enum row_kind kind,
				  struct selection_count *count, struct ar_err *err)
{
	const struct method *m = attn_engine_method(&c->engine, i);
	const struct attn_call call = cuda_call(c, r, kind, i);
	int heads = host->shape.kv_heads;
	size_t bytes = 2 * (size_t)heads * sizeof(int64_t);
	int64_t *n = calloc(1, bytes);
	enum ar_status st = n ? AR_OK : ar_nomem(err);

	if (st)
		return st;
	CU(cudaMemsetAsync(c->pass.compared.skips, 0, bytes, c->device.stream));
	st = run_one(c, i, m, r, kind, c->pass.out, c->pass.lse, c->pass.compared.skips, err);
	if (!st)
		CU(cudaMemcpyAsync(n, c->pass.compared.skips, bytes, cudaMemcpyDeviceToHost,
				   c->device.stream));
	if (!st)
		CU(cudaStreamSynchronize(c->device.stream));
	if (!st)
		st = method_count_device(&m->part[kind], host, method_room(&m->part[kind], &call),
					 count, err);
	if (!st)
		selection_set_skips(count, n, heads);
out:
	free(n);
	return st;
}

enum ar_status cuda_compare(void *self, const struct batch_entry *e, int i, struct accuracy *acc,
			    struct selection_count *count, struct method_selection *sel,
			    struct ar_err *err)
{
	struct cuda *c = self;
	const struct method_part *p = &attn_engine_method(&c->engine, i)->part[e->kind];
	struct batch_entry one = *e;
	const struct batch b = { .entry = &one, .n = 1, .blocks = c->env.blocks };
	const struct row_segment *segment = drops_entry(&c->engine.drops, e->req);
	const struct rows *r = row_set_of(&c->pass.dev, i), *on_host = row_set_of(&c->pass.host, i);
	const struct attn_batch *part = &on_host->part[e->kind];
	const struct attn_call call = cuda_call(c, r, e->kind, i);
	enum ar_status st;

	assert(backend_compares_kind(e->kind) && attn_engine_mixer(&c->engine, i) == MIX_FULL);
	st = cuda_stage(c, &b, segment, NULL, 0, 0, err);
	if (!st)
		st = choose_before(c, i, e->kind, err);
	if (!st)
		st = c->env.weights ? cuda_reach(c, e, i, err) : cuda_make_qkv(c, i, r, false, err);
	if (!st)
		st = run_counted(c, i, r, part, e->kind, count, err);
	if (!st && sel && !reuse_sees_all(&p->reuse))
		st = method_selection_device(p, part, method_room(p, &call), sel, err);
	if (!st && e->gone)
		st = cuda_evict_dense(c, e, i, c->pass.compared.out, c->pass.compared.lse, err);
	else if (!st)
		st = cuda_stage(c, &b, segment, c->engine.dense, 0, 0, err);
	if (!st && !e->gone)
		st = run_one(c, i, c->engine.dense, r, e->kind, c->pass.compared.out,
			     c->pass.compared.lse, NULL, err);
	if (!st)
		st = accuracy_measure_device(attn_engine_shape(&c->engine, i), part->rows.n_row,
					     c->pass.out, c->pass.compared.out, c->pass.lse,
					     c->pass.compared.lse, c->pass.compared.work,
					     c->device.stream, acc, err);
	return st;
}
