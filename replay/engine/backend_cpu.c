/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cpu": the references in C.  Attention core only: there are no projections, no MLP, no linear
 * layers and no language-model head.  The cost is the wall time of the method and of decode attention. */
#include "config.h"
#include "replay/engine/backend_cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "kernels/methods/accuracy.h"

static void *array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

static int64_t now_ns(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void cpu_close(void *self)
{
	struct cpu *c = self;

	if (!c)
		return;
	for (int i = 0; i < c->env.n_run_layers; i++) {
		if (c->kv) {
			free(c->kv[i].k);
			free(c->kv[i].v);
		}
		if (c->state)
			free(c->state[i]);
	}
	free(c->kv);
	free(c->state);
	free(c->rows.mem);
	rows_env_release(&c->rows);
	row_set_release(&c->set);
	free(c->q);
	free(c->k);
	free(c->out);
	free(c->out_dense);
	free(c->lse);
	free(c->lse_dense);
	attn_engine_release(&c->engine);
	free(c);
}

/* ---- opening ---- */

static enum ar_status cpu_open(void **self, const void *opts, const struct backend_env *env,
			       struct ar_err *err)
{
	struct cpu *c = calloc(1, sizeof *c);
	enum ar_status st;

	(void)opts;
	*self = NULL;
	if (!c)
		return ar_nomem(err);
	c->env = *env;
	st = attn_engine_open(&c->engine, env, false, err);
	if (!st)
		st = c->engine.act->load_ref(c->engine.act_self, err);
	if (!st)
		st = attn_engine_rows(&c->engine, env, &c->rows, err);
	if (!st)
		st = row_set_init(&c->set, &c->rows, err);
	if (st) {
		cpu_close(c);
		return st;
	}
	*self = c;
	return AR_OK;
}

/* ---- memory of a run ---- */

/* Linear layers are not executed. */
static bool is_skipped(const struct cpu *c, int i)
{
	return attn_engine_mixer(&c->engine, i) == MIX_LINEAR;
}

static bool alloc_cache(struct cpu *c)
{
	int n = c->env.n_run_layers;

	c->kv = array((size_t)n, sizeof *c->kv);
	c->state = array((size_t)n, sizeof *c->state);
	if (!c->kv || !c->state)
		return false;
	for (int i = 0; i < n; i++) {
		const struct cache_group *g = attn_engine_group(&c->engine, i);
		size_t n_page = (size_t)g->n_page;

		if (is_skipped(c, i))
			continue;
		c->kv[i].k = array(n_page, g->kv_bytes);
		c->kv[i].v = array(n_page, g->kv_bytes);
		if (g->state_bytes)
			c->state[i] = array(n_page, g->state_bytes);
		if (!c->kv[i].k || !c->kv[i].v || (g->state_bytes && !c->state[i]))
			return false;
	}
	return true;
}

static bool alloc_rows(struct cpu *c)
{
	const struct attn_shape s = attn_engine_widest(&c->engine);
	size_t row = (size_t)(c->rows.prefill.max_row + c->rows.decode.max_row);
	size_t q = row * (size_t)s.q_heads, k = row * (size_t)s.kv_heads;
	size_t dim = (size_t)s.head_dim * sizeof(bf16_t);

	c->rows.bytes = rows_bytes(&c->rows);
	c->rows.mem = array(c->rows.bytes, 1);
	c->q = array(q, dim);
	c->k = array(k, dim);
	c->out = array(q, dim);
	c->out_dense = array(q, dim);
	c->lse = array(q, sizeof *c->lse);
	c->lse_dense = array(q, sizeof *c->lse);
	return c->rows.mem && c->q && c->k && c->out && c->out_dense && c->lse && c->lse_dense;
}

static enum ar_status cpu_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	struct cpu *c = self;
	const struct backend_env *env = &c->env;
	enum ar_status st = groups_open_pages(&c->engine.groups, num_blocks, env->block_tok,
					      env->trace->n, err);

	if (st)
		return st;
	if (!alloc_rows(c) || !alloc_cache(c))
		return ar_nomem(err);
	return AR_OK;
}

/* ---- iterations ---- */

/* Add the time since *t to the phase, and set *t to now. */
static void lap(struct iter_cost *cost, enum phase phase, int64_t *t)
{
	int64_t now = now_ns();

	cost->phase_ns[phase] += now - *t;
	*t = now;
}

/* The attention call of executed layer i: from c->q to c->out. */
static struct attn_call call_of(const struct cpu *c, const struct attn_batch *b, int i)
{
	return (struct attn_call){ .b = b,
				   .layer = c->env.run_layer[i],
				   .q = c->q,
				   .kv = c->kv[i],
				   .state = c->state[i],
				   .sink = attn_engine_sink(&c->engine, c->engine.sink, i),
				   .out = c->out };
}

/* Run the method on the chunks in executed layer i.  An executor that copies blocks does so in
 * ref(), in PHASE_ATTEND. */
static enum ar_status prefill(struct cpu *c, int i, const struct attn_batch *b,
			      struct iter_cost *cost, struct ar_err *err)
{
	const struct method *m = attn_engine_method(&c->engine, i);
	struct method_selection x = { 0 };
	int64_t t = now_ns();
	struct attn_call call = call_of(c, b, i);
	enum ar_status st = AR_OK;

	if (!m->dense) {
		st = method_choose_ref(m, &call, &x, err);
		lap(cost, PHASE_SELECT, &t);
	}
	if (!st && x.chosen.mask) {
		method_lower_ref(b, &x);
		lap(cost, PHASE_METADATA, &t);
	}
	if (!st)
		st = m->executor->ref(&call, &x.lists, err);
	lap(cost, PHASE_ATTEND, &t);
	method_selection_release(&x);
	return st;
}

/* Run attention of executed layer i, and add its times to *cost. */
static enum ar_status attend(struct cpu *c, int i, const struct rows *r, struct iter_cost *cost,
			     struct ar_err *err)
{
	const struct attn_shape *s = attn_engine_shape(&c->engine, i);
	size_t skip = (size_t)(r->n_prefill * s->q_heads * s->head_dim);
	struct attn_call call = call_of(c, &r->decode, i);
	enum ar_status st = r->prefill.rows.n_req ? prefill(c, i, &r->prefill, cost, err) : AR_OK;
	int64_t t = now_ns();

	if (st || !r->decode.rows.n_req)
		return st;
	call.q += skip;
	call.out += skip;
	st = decode_ref(&call, 0, NULL, err);
	lap(cost, PHASE_DECODE, &t);
	return st;
}

/* Update the selector's state beside the pages of the rows: select, and drop the selection. */
static enum ar_status refresh(struct cpu *c, int i, const struct rows *r, struct ar_err *err)
{
	struct method_selection x = { 0 };
	struct attn_call call = call_of(c, &r->prefill, i);
	enum ar_status st = method_choose_ref(attn_engine_method(&c->engine, i), &call, &x, err);

	method_selection_release(&x);
	return st;
}

/* Make Q and K of the rows in executed layer i.  store: write K and V to the cache too. */
static enum ar_status make_qkv(struct cpu *c, int i, const struct rows *r, bool store,
			       struct ar_err *err)
{
	const struct qkv out = { c->q, c->k, store ? &c->kv[i] : NULL };

	return c->engine.act->qkv_ref(c->engine.act_self, i, r->row, r->n_row, NULL, &out, err);
}

static enum ar_status build(struct cpu *c, const struct batch *b, const struct row_segment *segment,
			    struct ar_err *err)
{
	size_t used;

	return rows_build(&c->set, &c->rows, b, segment, NULL, 0, &used, err);
}

/* Run the dropper of executed layer i, on the rows of that layer. */
static enum ar_status drop_rows(struct cpu *c, int i, const struct rows *r, struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	struct attn_call at = call_of(c, &r->prefill, i);

	return drop_ref(attn_engine_drop(&c->engine, i),
			&(struct drop_call){ &at, d->chunk, r->n_row }, &d->kept, err);
}

/* Find the rows of b in each segment, and build them.  The dropper of a layer needs Q and K of the
 * rows there only. */
static enum ar_status build_segments(struct cpu *c, const struct batch *b, struct ar_err *err)
{
	struct drops *d = &c->engine.drops;
	enum ar_status st = AR_OK;

	drops_begin(d, b);
	for (int s = 0; s < d->n && !st; s++) {
		bool last = s == d->n - 1;
		int i = last ? 0 : attn_engine_drop_layer(&c->engine, s);
		const struct rows *r = row_set_of(&c->set, i);

		st = drops_grow(d, &c->engine.groups, b, s, err);
		if (!st)
			st = build(c, b, drops_segments(d), err);
		if (!st && !last && r->n_prefill) {
			st = make_qkv(c, i, r, true, err);
			if (!st)
				st = drop_rows(c, i, r, err);
		}
		if (!st && !last)
			drops_apply(d, b, s, d->kept.keep);
	}
	return st;
}

/* Run b: store K and V of its rows, and run attention.  fill: b is one entry from groups_missing();
 * store K and V unless decodes have, and update the selector's state instead of attention. */
static enum ar_status iterate(struct cpu *c, const struct batch *b, bool fill,
			      struct iter_cost *cost, struct ar_err *err)
{
	bool held = fill && groups_hold(&c->engine.groups, b->entry);
	enum ar_status st = build_segments(c, b, err);

	for (int i = 0; i < c->env.n_run_layers && !st; i++) {
		const struct rows *r = row_set_of(&c->set, i);

		if (is_skipped(c, i))
			continue;
		st = make_qkv(c, i, r, !held, err);
		if (!st && !fill)
			st = attend(c, i, r, cost, err);
		else if (!st && c->state[i])
			st = refresh(c, i, r, err);
		if (!st && r->n_prefill && attn_engine_drop(&c->engine, i)) {
			int64_t t = now_ns();

			st = drop_rows(c, i, r, err);
			lap(cost, PHASE_DROP, &t);
		}
	}
	return st;
}

static enum ar_status fill_missing(struct cpu *c, const struct batch *b, struct ar_err *err)
{
	struct batch_entry piece;
	struct iter_cost unused = { 0 };
	enum ar_status st = AR_OK;

	for (size_t e = 0; e < b->n && !st; e++)
		while (!st && groups_missing(&c->engine.groups, &b->entry[e],
					     c->rows.prefill.max_row, &piece))
			st = iterate(c, &(struct batch){ .entry = &piece, .n = 1 }, true, &unused,
				     err);
	return st;
}

static enum ar_status cpu_run(void *self, const struct batch *b, struct iter_cost *cost,
			      struct ar_err *err)
{
	struct cpu *c = self;
	struct iter_cost x = { .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
	int64_t sum = 0;
	enum ar_status st = attn_engine_check(&c->engine, b, err);

	if (!st)
		st = fill_missing(c, b, err);
	if (!st)
		st = iterate(c, b, false, &x, err);
	if (st)
		return st;
	drops_end(&c->engine.drops);
	drops_cost(&c->engine.drops, &x);
	for (int p = 0; p < PHASE_COUNT; p++)
		sum += x.phase_ns[p];
	x.cost_ns = sum * c->env.model->n_layers / c->env.n_run_layers;
	*cost = x;
	return AR_OK;
}

/* Select for the rows.  *x: the selection.  count: its counts, [kv_heads]. */
static enum ar_status select_counted(struct cpu *c, int i, const struct rows *r,
				     struct selection_count *count, struct method_selection *x,
				     struct ar_err *err)
{
	const struct method *m = attn_engine_method(&c->engine, i);
	struct attn_call call = call_of(c, &r->prefill, i);
	enum ar_status st = method_select_ref(m, &call, x, err);

	return st ? st : method_count(m, &r->prefill, &x->chosen, x->table, count, err);
}

/* The same, then attention. */
static enum ar_status attend_counted(struct cpu *c, int i, const struct rows *r,
				     struct selection_count *count, struct method_selection *x,
				     struct ar_err *err)
{
	struct attn_call call = call_of(c, &r->prefill, i);
	enum ar_status st = select_counted(c, i, r, count, x, err);

	call.lse = c->lse;
	return st ? st : attn_engine_method(&c->engine, i)->executor->ref(&call, &x->lists, err);
}

enum ar_status backend_cpu_count(void *self, const struct batch_entry *e,
				 struct selection_count *count, struct ar_err *err)
{
	struct cpu *c = self;
	struct batch_entry one = *e;
	const struct batch b = { .entry = &one, .n = 1 };
	int heads = attn_engine_widest(&c->engine).kv_heads;
	enum ar_status st = fill_missing(c, &b, err);

	memset(count, 0, (size_t)(c->env.n_run_layers * heads) * sizeof *count);
	if (!st)
		st = build_segments(c, &b, err);
	for (int i = 0; i < c->env.n_run_layers && !st; i++) {
		const struct rows *r = row_set_of(&c->set, i);
		struct method_selection x = { 0 };

		if (attn_engine_mixer(&c->engine, i) != MIX_FULL)
			continue;
		st = make_qkv(c, i, r, true, err);
		if (!st)
			st = select_counted(c, i, r, count + i * heads, &x, err);
		method_selection_release(&x);
	}
	return st;
}

static enum ar_status cpu_compare(void *self, const struct batch_entry *e, int i,
				  struct accuracy *acc, struct selection_count *count,
				  struct method_selection *sel, struct ar_err *err)
{
	struct cpu *c = self;
	struct batch_entry one = *e;
	const struct rows *r = row_set_of(&c->set, i);
	struct method_selection own = { 0 };
	struct attn_call dense;
	enum ar_status st;

	assert(!e->decode && attn_engine_mixer(&c->engine, i) == MIX_FULL);
	st = build(c, &(struct batch){ .entry = &one, .n = 1 },
		   drops_entry(&c->engine.drops, e->req), err);
	if (!st)
		st = make_qkv(c, i, r, false, err);
	if (st)
		return st;
	dense = call_of(c, &r->prefill, i);
	dense.out = c->out_dense;
	dense.lse = c->lse_dense;
	st = attend_counted(c, i, r, count, sel ? sel : &own, err);
	if (!st)
		st = method_ref(c->engine.dense, &dense, NULL, err);
	if (!st)
		st = accuracy_measure(attn_engine_shape(&c->engine, i), r->n_row, c->out,
				      c->out_dense, c->lse, c->lse_dense, acc, err);
	method_selection_release(&own);
	return st;
}

static void cpu_drop(void *self, uint32_t req)
{
	struct cpu *c = self;

	groups_drop(&c->engine.groups, req);
	drops_forget(&c->engine.drops, req);
}

const struct backend backend_cpu = {
	.name = "cpu",
	.title = "attention core by the C references; no projections, linear layers, MLP or head",
	.needs_model = true,
	.open = cpu_open,
	.start = cpu_start,
	.run = cpu_run,
	.compare = cpu_compare,
	.drop = cpu_drop,
	.close = cpu_close,
};
