/* SPDX-License-Identifier: Apache-2.0 */
/* The memory of a prefill, and the chunks that fill it. */
#include "config.h"
#include "src/bench/bench_prefill_state.h"

#include <stdlib.h>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"

enum { STATE_TOK = 1024, FILL_TOK = 4096, MOST_SETS = 8 };

/* ---- chunks ---- */

enum ar_status bench_prefill_stage(struct bench_prefill *p, int ctx, int n,
				   const struct method *tiles, struct ar_err *err)
{
	struct bench_engine *e = &p->e;
	size_t used = 0;
	enum ar_status st = bench_engine_rows(e, ctx, n, tiles, &used, err);

	if (st)
		return st;
	CU(cudaMemcpy(p->rows, e->rows.mem, used, cudaMemcpyHostToDevice));
	row_set_at(&p->dev, &e->host, e->rows.mem, p->rows);
	p->c.b = e->host.view[0].part[ROW_PREFILL];
	p->l.b = p->dev.view[0].part[ROW_PREFILL];
out:
	return st;
}

/* Make Q of the staged rows in set 0, and K and V in the cache kv; NULL: they are there. */
static enum ar_status make_qkv(struct bench_prefill *p, const struct kv_cache *kv,
			       struct ar_err *err)
{
	const struct attn_engine *e = &p->e.engine;
	const struct rows *r = &p->dev.view[0];
	const struct qkv out = { p->l.q, p->k, kv };

	return e->act->qkv(e->act_self, 0, r->row, r->n_row, NULL, &out, err);
}

/* Copy a member of set 0 to the next n - 1 sets. */
static enum ar_status copy_sets(const struct bench_prefill *p, void *first, size_t bytes, int n,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 1; i < n; i++)
		CU(cudaMemcpyAsync((char *)first + (size_t)i * bytes, first, bytes,
				   cudaMemcpyDeviceToDevice, p->l.d->stream));
out:
	return st;
}

enum ar_status bench_prefill_queries(struct bench_prefill *p, int ctx, int n, int n_set,
				     struct ar_err *err)
{
	enum ar_status st = bench_prefill_stage(p, ctx, n, NULL, err);

	if (!st)
		st = make_qkv(p, NULL, err);
	return st ? st : copy_sets(p, p->l.q, p->l.q_len * sizeof *p->l.q, n_set, err);
}

struct attn_call bench_prefill_call(const struct bench_prefill *p, int set)
{
	struct attn_call call = bench_call(&p->l, set);

	call.layer = p->e.layer;
	call.state = p->state ? p->state + (size_t)set * p->state_bytes : NULL;
	return call;
}

void bench_no_phase(void *ctx, int layer, enum phase phase)
{
	(void)ctx;
	(void)layer;
	(void)phase;
}

/* ---- the sets ---- */

/* Do something with the chunks before position end, which are as long as rows allow. */
typedef enum ar_status chunk_fn(struct bench_prefill *p, int ctx, int n, struct ar_err *err);

static enum ar_status each_chunk(struct bench_prefill *p, int end, chunk_fn *fn, struct ar_err *err)
{
	int step = p->e.rows.limit[ROW_PREFILL].max_row / (int)p->e.trace.n;
	enum ar_status st = AR_OK;

	for (int ctx = 0; ctx < end && !st; ctx += step)
		st = fn(p, ctx, end - ctx < step ? end - ctx : step, err);
	return st;
}

static enum ar_status cache_chunk(struct bench_prefill *p, int ctx, int n, struct ar_err *err)
{
	struct kv_cache kv = bench_kv_at(&p->l, 0);
	enum ar_status st = bench_prefill_stage(p, ctx, n, NULL, err);

	return st ? st : make_qkv(p, &kv, err);
}

static enum ar_status fill_cache(struct bench_prefill *p, struct ar_err *err)
{
	struct bench_load *l = &p->l;
	size_t bytes = l->kv_len * sizeof *l->kv.k;
	enum ar_status st;

	CU(cudaMemsetAsync(l->kv.k, 0, bytes, l->d->stream));
	CU(cudaMemsetAsync(l->kv.v, 0, bytes, l->d->stream));
	st = each_chunk(p, (int)p->e.env.max_len, cache_chunk, err);
	if (!st)
		st = copy_sets(p, l->kv.k, bytes, l->n_set, err);
	if (!st)
		st = copy_sets(p, l->kv.v, bytes, l->n_set, err);
out:
	return st;
}

static enum ar_status show_chunk(struct bench_prefill *p, int ctx, int n, struct ar_err *err)
{
	enum ar_status st = bench_prefill_queries(p, ctx, n, 1, err);
	struct attn_call call = bench_prefill_call(p, 0);

	return st ? st : method_choose(method_prefill(bench_engine_method(&p->e)), &call, err);
}

/* Show the selector all tokens before the last chunk, some at a time, as a prefill does. */
static enum ar_status fill_state(struct bench_prefill *p, struct ar_err *err)
{
	enum ar_status st;

	CU(cudaMemsetAsync(p->state, 0, p->state_bytes, p->l.d->stream));
	st = each_chunk(p, (int)p->e.env.max_len - p->chunk, show_chunk, err);
	if (!st)
		st = copy_sets(p, p->state, p->state_bytes, p->l.n_set, err);
out:
	return st;
}

/* ---- memory ---- */

static enum ar_status take_sets(struct bench_prefill *p, struct ar_err *err)
{
	struct bench_load *l = &p->l;
	const struct attn_shape *s = attn_engine_shape(&p->e.engine, 0);
	size_t q = l->q_len * sizeof *l->q, kv = l->kv_len * sizeof *l->q, n;
	size_t rows = p->e.trace.n * (size_t)p->chunk * (size_t)(s->kv_heads * s->head_dim);
	enum ar_status st;

	/* The first chunk reads no more than itself. */
	l->n_set = bench_sets(l, q + 2 * rows * sizeof *l->q, q + 2 * kv + p->state_bytes);
	l->n_set = l->n_set < MOST_SETS ? l->n_set : MOST_SETS;
	n = (size_t)l->n_set;
	st = bench_take(l, &l->q, n * q, err);
	if (!st)
		st = bench_take(l, &l->kv.k, n * kv, err);
	if (!st)
		st = bench_take(l, &l->kv.v, n * kv, err);
	if (!st && p->state_bytes)
		st = bench_take(l, &p->state, n * p->state_bytes, err);
	if (!st)
		st = bench_take(l, &l->out, q, err);
	if (!st && l->d->env.sample)
		st = bench_take(l, &p->dense_out, q, err);
	return st;
}

/* Allocate the arrays that the dropper writes and reads. */
static enum ar_status take_kept(struct bench_prefill *p, struct ar_err *err)
{
	size_t rows = (size_t)p->e.rows.limit[ROW_PREFILL].max_row, n_req = p->e.trace.n;
	enum ar_status st = bench_take(&p->l, &p->kept.keep, rows * sizeof *p->kept.keep, err);

	if (!st)
		st = bench_take(&p->l, &p->kept.n_keep, n_req * sizeof *p->kept.n_keep, err);
	if (!st)
		st = bench_take(&p->l, &p->kept.index, rows * sizeof *p->kept.index, err);
	if (!st)
		st = bench_take(&p->l, &p->tok, n_req * sizeof *p->tok, err);
	return st;
}

static enum ar_status take_work(struct bench_prefill *p, struct ar_err *err)
{
	struct bench_load *l = &p->l;
	const struct attn_shape *s = attn_engine_shape(&p->e.engine, 0);
	const struct attn_limits *limits = &p->e.rows.limit[ROW_PREFILL];
	const struct drop *drop = p->e.plan->drop;
	size_t work = method_work_bytes(method_prefill(bench_engine_method(&p->e)), s, limits);
	size_t more = drop ? drop_work_bytes(drop, 1, s, limits) : 0;
	enum ar_status st = drop ? take_kept(p, err) : AR_OK;

	if (!st)
		st = bench_take(l, &l->work, more > work ? more : work, err);
	if (!st && l->d->env.sample)
		st = bench_take(l, &p->dense_work,
				method_work_bytes(method_prefill(p->e.engine.dense), s, limits),
				err);
	return st;
}

static enum ar_status take_device(void *ctx, void *to, size_t bytes, const char *what,
				  struct ar_err *err)
{
	(void)what;
	return bench_take(ctx, to, bytes, err);
}

static enum ar_status load_input(struct bench_prefill *p, struct ar_err *err)
{
	const struct attn_engine *e = &p->e.engine;
	const struct activations_device d = { .take = take_device,
					      .take_ctx = &p->l,
					      .stream = p->l.d->stream,
					      .phase = bench_no_phase };

	return e->act->load(e->act_self, &d, err);
}

static enum ar_status take_all(struct bench_prefill *p, struct ar_err *err)
{
	struct bench_load *l = &p->l;
	const struct attn_shape *s = attn_engine_shape(&p->e.engine, 0);
	const struct cache_group *g = bench_engine_group(&p->e);
	size_t max_row = (size_t)p->e.rows.limit[ROW_PREFILL].max_row, n_page = (size_t)g->n_page;
	enum ar_status st = row_set_init(&p->dev, &p->e.rows, err);

	l->q_len = max_row * (size_t)(s->q_heads * s->head_dim);
	l->kv_len = n_page * groups_plane_bytes(g, 0) / sizeof *l->kv.k;
	p->state_bytes = workspace_aligned(n_page * g->state_bytes);
	if (!st)
		st = load_input(p, err);
	if (!st)
		st = bench_take(l, &p->rows, p->e.rows.bytes, err);
	if (!st)
		st = bench_take(l, &p->k,
				max_row * (size_t)(s->kv_heads * s->head_dim) * sizeof *p->k, err);
	if (!st)
		st = take_work(p, err);
	return st ? st : take_sets(p, err);
}

enum ar_status bench_prefill_open(struct bench_prefill **out, struct bench_device *d,
				  const char *method, const struct bench_shape *s,
				  const struct bench_input *input, struct ar_err *err)
{
	struct bench_prefill *p = calloc(1, sizeof *p);
	struct bench_engine_env env = { .shape = s, .input = input, .seed = d->env.seed };
	enum ar_status st;

	*out = NULL;
	if (!p)
		return ar_nomem(err);
	p->l.d = d;
	p->l.c = &p->c;
	p->chunk = (int)s->chunk;
	env.max_row = (int)(s->batch * (s->chunk > STATE_TOK ? s->chunk : STATE_TOK));
	env.max_row = env.max_row > FILL_TOK ? env.max_row : FILL_TOK;
	st = gpu_current(&env.gpu, err);
	if (!st)
		st = bench_engine_open(&p->e, &env, method, err);
	if (!st)
		st = take_all(p, err);
	if (!st)
		st = fill_cache(p, err);
	if (!st && p->state)
		st = fill_state(p, err);
	if (st)
		bench_prefill_close(p);
	else
		*out = p;
	return st;
}

enum ar_status bench_prefill_use(struct bench_prefill *p, const char *method, struct ar_err *err)
{
	return bench_engine_use(&p->e, method, err);
}

void bench_prefill_close(struct bench_prefill *p)
{
	if (!p)
		return;
	bench_drop(&p->l, 0);
	row_set_release(&p->dev);
	bench_engine_release(&p->e);
	free(p);
}
