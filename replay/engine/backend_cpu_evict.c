/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cpu": events of an evictor. */
#include "config.h"
#include "replay/engine/backend_cpu.h"

#include <stdlib.h>
#include <string.h>

static size_t q_row(const struct cpu *c, int i)
{
	const struct attn_shape *s = attn_engine_shape(&c->engine, i);

	return (size_t)(s->q_heads * s->head_dim);
}

/* ---- memory ---- */

enum ar_status cpu_evict_open(struct cpu *c, struct ar_err *err)
{
	enum ar_status st = evictions_open(&c->evict, &c->env, err);

	if (st || !c->evict.evict)
		return st;
	c->window = calloc(c->env.trace->n + 1, sizeof *c->window);
	return c->window ? AR_OK : ar_nomem(err);
}

/* The evictor's state in executed layer i, or NULL. */
static void *state_of(const struct cpu *c, int i)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);

	return groups_state(g, c->state[i], (size_t)g->n_page, STATE_EVICT);
}

void cpu_evict_close(struct cpu *c)
{
	for (size_t r = 0; c->window && r < c->env.trace->n; r++)
		free(c->window[r]);
	free(c->window);
	evictions_close(&c->evict);
}

static void free_window(struct cpu *c, uint32_t req)
{
	free(c->window[req]);
	c->window[req] = NULL;
}

void cpu_evict_drop(struct cpu *c, uint32_t req)
{
	if (c->evict.evict)
		free_window(c, req);
	evictions_drop(&c->evict, req);
}

/* ---- what the event reads ---- */

/* The window of a request in executed layer i. */
static bf16_t *window_of(const struct cpu *c, uint32_t req, int i)
{
	size_t row = (size_t)c->evict.window * q_row(c, 0);

	return c->window[req] + (size_t)i * row;
}

/* Keep the queries of entry e that its event will read.  q: of its rows. */
static enum ar_status keep_window(struct cpu *c, int i, const struct batch_entry *e,
				  const bf16_t *q, struct ar_err *err)
{
	size_t row = q_row(c, i), all = (size_t)(c->env.n_run_layers * c->evict.window);
	int64_t first, from, to;

	evictions_window(&c->evict, e, &first, &from, &to);
	if (from == to)
		return AR_OK;
	if (!c->window[e->req])
		c->window[e->req] = calloc(all * row, sizeof *q);
	if (!c->window[e->req])
		return ar_nomem(err);
	memcpy(window_of(c, e->req, i) + (size_t)(from - first) * row,
	       q + (size_t)(from - e->start) * row, (size_t)(to - from) * row * sizeof *q);
	return AR_OK;
}

/* In the order of entries, prefill rows come first. */
static enum ar_status keep_windows(struct cpu *c, int i, const struct rows *r,
				   const struct batch *b, struct ar_err *err)
{
	const int32_t *row0 = r->part[ROW_PREFILL].rows.row0;
	enum ar_status st = AR_OK;

	for (size_t k = 0; b && c->evict.window && k < b->n && !st; k++)
		if (b->entry[k].kind == ROW_PREFILL)
			st = keep_window(c, i, &b->entry[k], c->q + (size_t)*row0++ * q_row(c, i),
					 err);
	return st;
}

enum ar_status cpu_evict_see(struct cpu *c, int i, const struct rows *r, const struct batch *b,
			     struct ar_err *err)
{
	void *state;
	enum ar_status st;

	if (!c->evict.evict)
		return AR_OK;
	state = state_of(c, i);
	cpu_phase(c, c->env.run_layer[i], PHASE_EVICT);
	st = keep_windows(c, i, r, b, err);
	for (int k = 0; state && k < ROW_REVIVED && !st; k++) {
		struct attn_call call = cpu_call(c, r, k, i);

		call.state = state;
		if (rows_count(r, k))
			st = evict_add_ref(c->evict.evict, &call, err);
	}
	cpu_phase(c, c->env.run_layer[i], PHASE_NONE);
	return st;
}

/* ---- events ---- */

/* The first n keys of a request lie in new places: make the states of the selector of decodes and
 * of its pruner anew. */
static enum ar_status append_anew(struct cpu *c, int i, const struct evict_call *at, int n,
				  struct ar_err *err)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	void *state = groups_state(g, c->state[i], (size_t)g->n_page, ROW_DECODE);
	void *prune = groups_state(g, c->state[i], (size_t)g->n_page, STATE_PRUNE);
	const struct evict_req all = { .n_key = n };
	const struct evict_call moved = { .shape = at->shape, .page = at->to };
	struct attn_batch b = evict_batch(&moved, &all);
	const int32_t row0[] = { 0, n }, zero[] = { 0, 0 };
	const int32_t blk0[] = { 0, b.keys.n_page };
	int32_t *pos = state || prune ? malloc((size_t)n * sizeof *pos) : NULL;
	enum ar_status st;

	if (!state && !prune)
		return AR_OK;
	if (!pos)
		return ar_nomem(err);
	for (int t = 0; t < n; t++)
		pos[t] = t;
	b.rows = (struct attn_rows){ 1, n, blk0[1], row0, pos, zero, blk0, zero, NULL, NULL };
	st = method_append_ref(&attn_engine_method(&c->engine, i)->part[ROW_DECODE],
			       &(struct attn_call){ .b = &b,
						    .layer = at->layer,
						    .kv = at->kv,
						    .state = state,
						    .prune_state = prune },
			       err);
	free(pos);
	return st;
}

/* Event k of the list in executed layer i. */
static enum ar_status evict_layer(struct cpu *c, int i, int k, int32_t *keep, struct ar_err *err)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	struct evict_req r = c->evict.req[k];
	uint32_t id = c->evict.id[k];
	const struct evict_call call = { .shape = g->shape,
					 .n_req = 1,
					 .req = &r,
					 .page = blocks_table(c->env.blocks, g->no, id),
					 .to = blocks_forked(c->env.blocks, g->no),
					 .layer = c->env.run_layer[i],
					 .kv = c->kv[i],
					 .state = state_of(c, i),
					 .q = c->window[id] ? window_of(c, id, i) : NULL,
					 .keep = keep };
	enum ar_status st;

	r.keep0 = 0;
	r.row0 = c->evict.window - r.n_row; /* the last ones */
	st = evict_ref(c->evict.evict, &call, err);
	return st ? st : append_anew(c, i, &call, r.n_keep + r.n_key - r.n_cand, err);
}

enum ar_status cpu_evict(struct cpu *c, struct ar_err *err)
{
	int heads = attn_engine_widest(&c->engine).kv_heads;
	enum ar_status st = AR_OK;

	for (int k = 0; k < c->evict.n && !st; k++) {
		size_t n = (size_t)(c->evict.req[k].n_keep * heads);
		int32_t *keep = malloc(n * sizeof *keep);

		st = keep ? evictions_begin(&c->evict, k, c->env.blocks, err) : ar_nomem(err);
		for (int i = 0; i < c->env.n_run_layers && !st; i++) {
			cpu_phase(c, c->env.run_layer[i], PHASE_EVICT);
			st = evict_layer(c, i, k, keep, err);
		}
		cpu_phase(c, PHASE_NO_LAYER, PHASE_NONE);
		free_window(c, c->evict.id[k]);
		free(keep);
		if (!st)
			evictions_end(&c->evict, k, c->env.blocks);
	}
	return st;
}

/* ---- comparisons ---- */

/* Store K and V of the first n tokens of e's request, in places of their own. */
static enum ar_status store_all(struct cpu *c, const struct batch_entry *e, int i, int n,
				const struct kv_cache *kv, struct ar_err *err)
{
	int most = rows_max(&c->rows);
	struct layer_row *row = calloc((size_t)most, sizeof *row);
	bf16_t *q = malloc((size_t)most * q_row(c, i) * sizeof *q);
	enum ar_status st = row && q ? AR_OK : ar_nomem(err);

	for (int at = 0, len; at < n && !st; at += len) {
		len = n - at < most ? n - at : most;
		st = c->engine.act->begin(c->engine.act_self, e->req, at, (uint32_t)len, row, err);
		for (int t = 0; t < len && !st; t++)
			row[t].slot = at + t;
		if (!st)
			st = c->engine.act->qkv_ref(c->engine.act_self, i, row, len, NULL,
						    &(struct qkv){ q, c->k, kv }, err);
	}
	free(row);
	free(q);
	return st;
}

/* Attention of the rows of call, of entry e, over all tokens so far: pages [0, n_page) of kv. */
static enum ar_status attend_all(struct cpu *c, const struct batch_entry *e, struct attn_call *call,
				 int n_page, int32_t *page, int32_t *pos, struct ar_err *err)
{
	struct attn_batch b = *call->b;
	const int tok = b.shape.page_tok, n = (int)(e->start + e->n_tok);
	const int32_t len[] = { n }, pos0[] = { (int32_t)e->start }, page0[] = { 0, n_page };
	const int32_t blk0[] = { 0, (n + tok - 1) / tok - (int)e->start / tok };

	for (int j = 0; j < n_page; j++)
		page[j] = j;
	for (int t = 0; t < (int)e->n_tok; t++)
		pos[t] = (int32_t)e->start + t;
	b.keys = (struct attn_keys){ n_page, n_page, (n_page + 31) / 32, len, page0, page, NULL };
	b.rows.pos = pos;
	b.rows.pos0 = pos0;
	b.rows.qblk0 = blk0;
	b.rows.n_qblk = blk0[1];
	call->b = &b;
	return method_ref(&c->engine.dense->part[e->kind], call, NULL, err);
}

enum ar_status cpu_evict_dense(struct cpu *c, const struct batch_entry *e, int i,
			       struct attn_call *call, struct ar_err *err)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);
	int n = (int)(e->start + e->n_tok),
	    n_page = (n + g->shape.page_tok - 1) / g->shape.page_tok;
	int32_t *page = malloc((size_t)(n_page + n) * sizeof *page);
	struct kv_cache kv = { .k = calloc((size_t)n_page, groups_plane_bytes(g, 0)),
			       .v = calloc((size_t)n_page, groups_plane_bytes(g, 1)) };
	enum ar_status st = page && kv.k && kv.v ? store_all(c, e, i, n, &kv, err) : ar_nomem(err);

	call->kv = kv;
	if (!st)
		st = attend_all(c, e, call, n_page, page, page + n_page, err);
	free(page);
	free(kv.k);
	free(kv.v);
	return st;
}
