/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Backend "cuda": events of an evictor.
 *
 * They run behind the iteration, or before the next one, in a timed part of their own: an iteration
 * may be run twice, but keys leave once.  The iteration's layers keep the queries that the event
 * reads, for up to SLOTS prompts at a time.  What its rows add to the evictor's state is taken
 * once, behind the iteration.
 */
#include "config.h"
#include "replay/engine/backend_cuda.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { SLOTS = 64 };

/* Numbers of a request as a batch of one, then its pages. */
enum { ROW0, POS0 = 2, QBLK0, LEFT = 5, LEN, PAGE0, POS = 9, PAGES };

static size_t q_row(const struct cuda *c)
{
	const struct attn_shape *s = attn_engine_shape(&c->engine, 0);

	return (size_t)(s->q_heads * s->head_dim);
}

/* ---- memory ---- */

static int most_slots(const struct cuda *c)
{
	return c->env.max_seqs < SLOTS ? (int)c->env.max_seqs : SLOTS;
}

/* Fill pos[n] on the device: 0, 1, ... */
static enum ar_status list_positions(int32_t *pos, int64_t n, struct ar_err *err)
{
	int32_t *host = malloc((size_t)n * sizeof *host);
	enum ar_status st = AR_OK;

	if (!host)
		return ar_nomem(err);
	for (int64_t t = 0; t < n; t++)
		host[t] = (int32_t)t;
	CU(cudaMemcpy(pos, host, (size_t)n * sizeof *host, cudaMemcpyHostToDevice));
out:
	free(host);
	return st;
}

enum ar_status cuda_evict_open(struct cuda *c, cuda_take_fn *take, struct ar_err *err)
{
	const struct attn_shape s = attn_engine_widest(&c->engine);
	const struct evict *e = c->env.evict;
	struct cuda_evict *x = &c->evict;
	const int64_t most = c->env.max_len, n_page = most / s.page_tok + 1;
	enum ar_status st = evictions_open(&x->list, &c->env, err);
	size_t rows;

	if (st || !e)
		return st;
	x->n_number = PAGES + 2 * (size_t)n_page;
	rows = (size_t)(most_slots(c) * c->env.n_run_layers * x->list.window);
	x->slot = calloc(c->env.trace->n + 1, sizeof *x->slot);
	x->used = calloc(SLOTS, sizeof *x->used);
	st = x->slot && x->used ? AR_OK : ar_nomem(err);
	if (!st)
		st = take(&c->device, &x->window, rows * q_row(c) * sizeof *x->window,
			  "the queries that an evictor reads", err);
	if (!st)
		st = take(&c->device, &x->keep,
			  (size_t)(evict_kept(e, most) * s.kv_heads) * sizeof *x->keep,
			  "the tokens that an evictor keeps", err);
	if (!st)
		st = take(&c->device, &x->work, evict_work_bytes(e, &s, (int)most) + 1,
			  "the workspace of an evictor", err);
	if (!st)
		st = take(&c->device, &x->number, x->n_number * sizeof *x->number,
			  "the pages of an evictor", err);
	if (!st)
		st = take(&c->device, &x->pos, (size_t)most * sizeof *x->pos,
			  "the positions of an evictor", err);
	if (st)
		return st;
	CU(cudaMallocHost((void **)&x->host, x->n_number * sizeof *x->host));
	CU(cudaEventCreate(&x->begin));
	CU(cudaEventCreate(&x->end));
	st = list_positions(x->pos, most, err);
out:
	return st;
}

void cuda_evict_close(struct cuda_evict *x)
{
	if (x->begin)
		cudaEventDestroy(x->begin);
	if (x->end)
		cudaEventDestroy(x->end);
	cudaFreeHost(x->host);
	free(x->slot);
	free(x->used);
	evictions_close(&x->list);
}

static void free_slot(struct cuda_evict *x, uint32_t req)
{
	if (x->slot[req])
		x->used[x->slot[req] - 1] = false;
	x->slot[req] = 0;
}

void cuda_evict_drop(struct cuda *c, uint32_t req)
{
	if (c->env.evict)
		free_slot(&c->evict, req);
	evictions_drop(&c->evict.list, req);
}

/* ---- windows ---- */

/* The window of a request in executed layer i.  It has a slot. */
static bf16_t *window_of(const struct cuda *c, uint32_t req, int i)
{
	const struct cuda_evict *x = &c->evict;
	size_t at = (size_t)((x->slot[req] - 1) * c->env.n_run_layers + i);

	return x->window + at * (size_t)x->list.window * q_row(c);
}

static enum ar_status take_slot(struct cuda *c, uint32_t req, struct ar_err *err)
{
	struct cuda_evict *x = &c->evict;
	int s = 0;

	if (x->slot[req])
		return AR_OK;
	while (s < most_slots(c) && x->used[s])
		s++;
	if (s == most_slots(c))
		return ar_fail(err, AR_USAGE,
			       "evictor '%s': more than %d prompts are about to end at a time; "
			       "lower --max-num-seqs or --max-num-batched-tokens",
			       c->env.evict->evictor->name, s);
	x->used[s] = true;
	x->slot[req] = (uint8_t)(s + 1);
	return AR_OK;
}

enum ar_status cuda_evict_begin(struct cuda *c, const struct batch *b, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	c->evict.batch = b;
	for (size_t k = 0; c->evict.list.window && k < b->n && !st; k++) {
		int64_t first, from, to;

		evictions_window(&c->evict.list, &b->entry[k], &first, &from, &to);
		if (from < to)
			st = take_slot(c, b->entry[k].req, err);
	}
	return st;
}

/* In the order of entries, prefill rows come first. */
static enum ar_status keep_windows(struct cuda *c, int i, struct ar_err *err)
{
	const struct batch *b = c->evict.batch;
	const int32_t *row0 = row_set_of(&c->pass.host, i)->part[ROW_PREFILL].rows.row0;
	const size_t row = q_row(c);
	enum ar_status st = AR_OK;

	for (size_t k = 0; b && c->evict.list.window && k < b->n; k++) {
		const struct batch_entry *e = &b->entry[k];
		int64_t first, from, to;
		size_t at;

		if (e->kind != ROW_PREFILL)
			continue;
		at = (size_t)*row0++;
		evictions_window(&c->evict.list, e, &first, &from, &to);
		if (from == to)
			continue;
		prof_phase(c->env.prof, c->env.run_layer[i], PHASE_EVICT);
		CU(cudaMemcpyAsync(window_of(c, e->req, i) + (size_t)(from - first) * row,
				   c->pass.q + (at + (size_t)(from - e->start)) * row,
				   (size_t)(to - from) * row * sizeof *c->pass.q,
				   cudaMemcpyDeviceToDevice, c->device.stream));
	}
out:
	return st;
}

/* ---- state ---- */

/* The evictor's state in executed layer i, or NULL. */
static void *state_of(const struct cuda *c, int i)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);

	return groups_state(g, c->pass.state[i], (size_t)g->n_page + 1, STATE_EVICT);
}

typedef enum ar_status state_fn(const struct evict *e, const struct attn_call *call,
				struct ar_err *err);

/* Call fn with the rows r of each kind in executed layer i. */
static enum ar_status each_rows(struct cuda *c, int i, const struct rows *r, state_fn *fn,
				struct ar_err *err)
{
	void *state = state_of(c, i);
	enum ar_status st = AR_OK;

	if (!state)
		return AR_OK;
	prof_phase(c->env.prof, c->env.run_layer[i], PHASE_EVICT);
	for (int k = 0; k < ROW_REVIVED && !st; k++) {
		struct attn_call call = cuda_call(c, r, k, i);

		call.state = state;
		if (rows_count(r, k))
			st = fn(c->env.evict, &call, err);
	}
	return st;
}

enum ar_status cuda_evict_see(struct cuda *c, int i, const struct rows *r, struct ar_err *err)
{
	enum ar_status st = keep_windows(c, i, err);

	return st ? st : each_rows(c, i, r, evict_add, err);
}

static bool has_state(const struct cuda *c)
{
	return c->env.evict && c->env.evict->evictor->state_bytes;
}

/* ---- events ---- */

/* Give the device the numbers of a request of n keys as a batch, with n_row rows from row0 on at
 * positions that end with its keys; and its pages, then n_to pages of what an event leaves. */
static enum ar_status stage(struct cuda *c, int n, int n_row, const int32_t *page,
			    const int32_t *to, int n_to, int page_tok, struct ar_err *err)
{
	struct cuda_evict *x = &c->evict;
	const int n_page = (n + page_tok - 1) / page_tok, first = n - n_row;
	const int32_t number[PAGES] = { [ROW0] = 0,
					[ROW0 + 1] = n_row,
					[POS0] = first,
					[QBLK0] = 0,
					[QBLK0 + 1] = n_page - first / page_tok,
					[LEFT] = 0,
					[LEN] = n,
					[PAGE0] = 0,
					[PAGE0 + 1] = n_page,
					[POS] = first };
	enum ar_status st = AR_OK;

	assert(PAGES + (size_t)(n_page + n_to) <= x->n_number);
	CU(cudaStreamSynchronize(c->device.stream)); /* host is read no more */
	memcpy(x->host, number, sizeof number);
	for (int j = 0; j < n_page; j++)
		x->host[PAGES + j] = page ? page[j] : j;
	for (int j = 0; j < n_to; j++)
		x->host[PAGES + n_page + j] = to ? to[j] : j;
	CU(cudaMemcpyAsync(x->number, x->host, (size_t)(PAGES + n_page + n_to) * sizeof *x->host,
			   cudaMemcpyHostToDevice, c->device.stream));
out:
	return st;
}

/* The batch of what was staged, on the device. */
static struct attn_batch staged(const struct cuda *c, const struct attn_shape *s, int n_row)
{
	const struct cuda_evict *x = &c->evict;
	const int32_t *d = x->number, *h = x->host;

	return (struct attn_batch){ .shape = *s,
				    .rows = { 1, n_row, h[QBLK0 + 1], d + ROW0,
					      n_row > 1 ? x->pos : d + POS, d + POS0, d + QBLK0,
					      d + LEFT, NULL, NULL },
				    .keys = { h[PAGE0 + 1], h[PAGE0 + 1], (h[PAGE0 + 1] + 31) / 32,
					      d + LEN, d + PAGE0, d + PAGES, NULL } };
}

/* Event k of the list in executed layer i.  The pages are staged. */
static enum ar_status evict_layer(struct cuda *c, int i, int k, struct ar_err *err)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	struct cuda_evict *x = &c->evict;
	struct evict_req r = x->list.req[k];
	const uint32_t id = x->list.id[k];
	const struct evict_call call = { .shape = g->shape,
					 .n_req = 1,
					 .req = &r,
					 .page = x->number + PAGES,
					 .to = x->number + PAGES + x->host[PAGE0 + 1],
					 .layer = c->env.run_layer[i],
					 .kv = c->pass.kv[i],
					 .state = state_of(c, i),
					 .q = x->slot[id] ? window_of(c, id, i) : NULL,
					 .keep = x->keep,
					 .work = x->work,
					 .stream = c->device.stream };

	r.keep0 = 0;
	r.row0 = x->list.window - r.n_row; /* the last ones */
	prof_phase(c->env.prof, c->env.run_layer[i], PHASE_EVICT);
	return evict_enqueue(c->env.evict, &call, err);
}

/* Make the state of the selector of decodes anew, of all that is left.  It is staged. */
static enum ar_status append_anew(struct cuda *c, int i, int n, struct ar_err *err)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	void *state = groups_state(g, c->pass.state[i], (size_t)g->n_page + 1, ROW_DECODE);
	const struct attn_batch b = staged(c, &g->shape, n);
	const struct attn_call call = { .b = &b,
					.layer = c->env.run_layer[i],
					.kv = c->pass.kv[i],
					.state = state,
					.work = c->pass.work,
					.stream = c->device.stream };

	return state ? method_append(&attn_engine_method(&c->engine, i)->part[ROW_DECODE], &call,
				     prof_phase, c->env.prof, err) :
		       AR_OK;
}

/* Enqueue event k in the layers of group g. */
static enum ar_status evict_group(struct cuda *c, int k, int g, struct ar_err *err)
{
	const struct evict_req *r = &c->evict.list.req[k];
	const struct cache_group *group = &c->engine.groups.group[g];
	const int32_t *page = blocks_table(c->env.blocks, group->no, c->evict.list.id[k]);
	const int32_t *to = blocks_forked(c->env.blocks, group->no);
	const int left = r->n_key - r->n_cand + r->n_keep, tok = group->shape.page_tok;
	enum ar_status st = stage(c, r->n_key, 1, page, to, (left + tok - 1) / tok, tok, err);

	CU(cudaEventRecord(c->evict.begin, c->device.stream));
	for (int i = 0; i < c->env.n_run_layers && !st; i++)
		if (attn_engine_group(&c->engine, i) == group)
			st = evict_layer(c, i, k, err);
	CU(cudaEventRecord(c->evict.end, c->device.stream));
	if (!st)
		st = stage(c, left, left, to, NULL, 0, tok, err);
	for (int i = 0; i < c->env.n_run_layers && !st; i++)
		if (attn_engine_group(&c->engine, i) == group)
			st = append_anew(c, i, left, err);
out:
	return st;
}

/* Add the time of the event that was enqueued last. */
static enum ar_status add_time(struct cuda *c, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	float ms;

	CU(cudaStreamSynchronize(c->device.stream));
	CU(cudaEventElapsedTime(&ms, c->evict.begin, c->evict.end));
	c->evict.ns += (int64_t)((double)ms * 1e6);
out:
	return st;
}

/* The rows are still staged. */
enum ar_status cuda_evict_commit(struct cuda *c, bool timed, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!has_state(c))
		return AR_OK;
	c->clock.stale = true;
	CU(cudaEventRecord(c->evict.begin, c->device.stream));
	for (int i = 0; i < c->env.n_run_layers && !st; i++)
		st = each_rows(c, i, row_set_of(&c->pass.dev, i), evict_commit, err);
	CU(cudaEventRecord(c->evict.end, c->device.stream));
	if (!st && timed)
		st = add_time(c, err);
out:
	return st;
}

enum ar_status cuda_evict(struct cuda *c, struct ar_err *err)
{
	struct cuda_evict *x = &c->evict;
	enum ar_status st = AR_OK;

	x->batch = NULL;
	for (int k = 0; k < x->list.n && !st; k++) {
		c->clock.stale = true;
		st = evictions_begin(&x->list, k, c->env.blocks, err);
		for (int g = 0; g < c->engine.groups.n && !st; g++) {
			st = evict_group(c, k, g, err);
			if (!st)
				st = add_time(c, err);
		}
		free_slot(x, x->list.id[k]);
		if (!st)
			evictions_end(&x->list, k, c->env.blocks);
	}
	return st;
}

enum ar_status cuda_evict_warm(struct cuda *c, int n, struct ar_err *err)
{
	struct evictions *list = &c->evict.list;
	enum ar_status st;

	if (!list->evict || evict_kept(list->evict, n) == n)
		return AR_OK;
	list->n = 1;
	list->id[0] = 0;
	list->req[0] = (struct evict_req){ .n_key = n,
					   .n_cand = n,
					   .n_keep = (int32_t)evict_kept(list->evict, n),
					   .n_row = list->window };
	st = take_slot(c, 0, err);
	blocks_begin(c->env.blocks);
	if (!st)
		st = cuda_evict(c, err);
	blocks_end(c->env.blocks);
	c->evict.ns = 0;
	cuda_evict_drop(c, 0);
	return st;
}

void cuda_evict_cost(struct cuda *c, struct iter_cost *cost)
{
	const int64_t ns = c->evict.ns;

	c->evict.ns = 0;
	if (cost->n_kernel)
		cost->phase_ns[PHASE_EVICT] += ns;
	cost->cost_ns += ns * c->env.model->n_layers / c->env.n_run_layers;
}

/* ---- comparisons ---- */

/* Memory of a comparison. */
struct whole {
	struct kv_cache kv;
	struct layer_row *row, *row_host;
};

static enum ar_status whole_open(struct whole *w, const struct cuda *c, int i, int n,
				 struct ar_err *err)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	const size_t n_page = (size_t)(n / g->shape.page_tok + 1);
	const size_t rows = (size_t)c->pass.rows.limit[ROW_PREFILL].max_row * sizeof *w->row;
	enum ar_status st = AR_OK;

	*w = (struct whole){ .row_host = calloc(1, rows) };
	if (!w->row_host)
		return ar_nomem(err);
	CU(cudaMalloc((void **)&w->row, rows));
	CU(cudaMalloc((void **)&w->kv.k, n_page * groups_plane_bytes(g, 0)));
	CU(cudaMalloc((void **)&w->kv.v, n_page * groups_plane_bytes(g, 1)));
out:
	return st;
}

static void whole_close(struct whole *w)
{
	free(w->row_host);
	cudaFree(w->row);
	cudaFree(w->kv.k);
	cudaFree(w->kv.v);
}

/* Store K and V of the first n tokens of e's request, in places of their own.  q is scratch. */
static enum ar_status store_all(struct cuda *c, const struct batch_entry *e, int i, int n,
				const struct whole *w, bf16_t *q, struct ar_err *err)
{
	const int most = c->pass.rows.limit[ROW_PREFILL].max_row;
	const struct qkv out = { q, c->pass.k, &w->kv };
	enum ar_status st = AR_OK;

	for (int at = 0, len; at < n && !st; at += len) {
		len = n - at < most ? n - at : most;
		CU(cudaStreamSynchronize(c->device.stream)); /* the rows are read no more */
		st = c->engine.act->begin(c->engine.act_self, e->req, at, (uint32_t)len,
					  w->row_host, err);
		for (int t = 0; t < len && !st; t++)
			w->row_host[t].slot = at + t;
		if (st)
			return st;
		CU(cudaMemcpyAsync(w->row, w->row_host, (size_t)len * sizeof *w->row,
				   cudaMemcpyHostToDevice, c->device.stream));
		st = c->engine.act->qkv(c->engine.act_self, i, w->row, len, NULL, &out, err);
	}
out:
	return st;
}

enum ar_status cuda_evict_dense(struct cuda *c, const struct batch_entry *e, int i, bf16_t *out,
				float *lse, struct ar_err *err)
{
	const struct attn_shape *s = attn_engine_shape(&c->engine, i);
	const struct method_part *p = &c->engine.dense->part[ROW_DECODE];
	const int n = (int)e->start + 1;
	struct attn_batch b;
	struct attn_call call;
	struct whole w;
	enum ar_status st = whole_open(&w, c, i, n, err);

	assert(e->kind == ROW_DECODE);
	if (!st)
		st = store_all(c, e, i, n, &w, out, err);
	if (!st)
		st = stage(c, n, 1, NULL, NULL, 0, s->page_tok, err);
	if (st)
		goto out;
	b = staged(c, s, 1);
	call = cuda_call(c, row_set_of(&c->pass.dev, i), ROW_DECODE, i);
	call.b = &b;
	call.kv = w.kv;
	call.state = NULL;
	call.out = out;
	call.lse = lse;
	st = method_enqueue(p, &call, prof_phase, c->env.prof, err);
	if (!st)
		CU(cudaStreamSynchronize(c->device.stream));
out:
	whole_close(&w);
	return st;
}
