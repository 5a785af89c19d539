/* SPDX-License-Identifier: Apache-2.0 */
/* Backend "cpu": the references in C.  With captures it runs the attention core only: there are no
 * projections, no MLP, no linear layers and no language-model head.  With weights it runs the whole
 * model.  The cost is the wall time of what runs. */
#include "config.h"
#include "replay/engine/backend_cpu.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/available.h"
#include "kernels/methods/accuracy.h"
#include "replay/forward/decoder_ref.h"
#include "replay/ranks/world.h"

static void *cpu_array(size_t n, size_t size)
{
	return calloc(n ? n : 1, size);
}

static void cpu_close(void *self)
{
	struct cpu *c = self;

	if (!c)
		return;
	for (int i = 0; i < c->env.n_run_layers; i++) {
		for (int p = 0; c->kv && p < CACHE_PLANES; p++)
			free(c->kv[i].plane[p]);
		if (c->state)
			free(c->state[i]);
		if (c->aux)
			free(c->aux[i]);
	}
	free(c->kv);
	free(c->state);
	free(c->aux);
	cpu_evict_close(c);
	free(c->slot);
	free(c->lists);
	free(c->rows.mem);
	rows_env_release(&c->rows);
	row_set_release(&c->set);
	free(c->q);
	free(c->k);
	free(c->out);
	free(c->out_dense);
	free(c->lse);
	free(c->lse_dense);
	decoder_ref_close(c->decoder);
	free(c->logits);
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
	c->sample.layer = -1;
	st = attn_engine_open(&c->engine, env, false, err);
	if (!st)
		st = c->engine.act->load_ref(c->engine.act_self, err);
	if (!st)
		st = cpu_evict_open(c, err);
	if (!st)
		st = attn_engine_rows(&c->engine, env, &c->rows, err);
	if (!st)
		st = row_set_init(&c->set, &c->rows, err);
	if (!st && env->weights)
		st = decoder_ref_open(&c->decoder, env->weights, cpu_phase, c, err);
	if (!st && env->weights)
		decoder_ref_join(c->decoder, env->world);
	if (st) {
		cpu_close(c);
		return st;
	}
	*self = c;
	return AR_OK;
}

/* ---- memory of a run ---- */

/* The aux cache of executed layer i. */
static bool alloc_aux(struct cpu *c, int i)
{
	const struct cache_group *g = attn_engine_group(&c->engine, i);

	if (!c->decoder || !g->aux_bytes || g->aux_layer != c->env.run_layer[i])
		return true;
	c->aux[i] = cpu_array((size_t)g->n_page, g->aux_bytes);
	return c->aux[i];
}

static bool alloc_planes(struct kv_cache *kv, const struct cache_group *g)
{
	bool ok = true;

	for (int i = 0; i < cache_layout(g->layout)->n_plane; i++) {
		kv->plane[i] = cpu_array((size_t)g->n_page, groups_plane_bytes(g, i));
		ok &= kv->plane[i] != NULL;
	}
	return ok;
}

static bool alloc_cache(struct cpu *c)
{
	int n = c->env.n_run_layers;

	c->kv = cpu_array((size_t)n, sizeof *c->kv);
	c->state = cpu_array((size_t)n, sizeof *c->state);
	c->aux = cpu_array((size_t)n, sizeof *c->aux);
	if (!c->kv || !c->state || !c->aux)
		return false;
	for (int i = 0; i < n; i++) {
		const struct cache_group *g = attn_engine_group(&c->engine, i);
		bool planes;

		if (cpu_skips(c, i))
			continue;
		planes = alloc_planes(&c->kv[i], g);
		if (g->state_bytes)
			c->state[i] = cpu_array((size_t)g->n_page, g->state_bytes);
		if (!planes || (g->state_bytes && !c->state[i]) || !alloc_aux(c, i))
			return false;
	}
	return true;
}

static bool alloc_rows(struct cpu *c)
{
	const struct attn_shape s = attn_engine_widest(&c->engine);
	size_t row = (size_t)rows_max(&c->rows);
	size_t q = row * (size_t)s.q_heads, k = row * (size_t)s.kv_heads;
	size_t dim = (size_t)s.head_dim * sizeof(bf16_t);

	c->rows.bytes = rows_bytes(&c->rows);
	c->rows.mem = cpu_array(c->rows.bytes, 1);
	c->slot = cpu_array((size_t)c->rows.limit[ROW_REVIVED].max_row, sizeof *c->slot);
	c->lists = cpu_array(attn_engine_lists_bytes(&c->engine, &c->rows.limit[ROW_DECODE]), 1);
	c->q = cpu_array(q, dim);
	c->k = cpu_array(k, dim);
	c->out = cpu_array(q, dim);
	c->out_dense = cpu_array(q, dim);
	c->lse = cpu_array(q, sizeof *c->lse);
	c->lse_dense = cpu_array(q, sizeof *c->lse);
	return c->rows.mem && c->slot && c->lists && c->q && c->k && c->out && c->out_dense &&
	       c->lse && c->lse_dense;
}

static enum ar_status alloc_decoder(struct cpu *c, struct ar_err *err)
{
	size_t vocab = cpu_vocab(c);

	if (!c->decoder)
		return AR_OK;
	c->logits = cpu_array(CPU_LOGIT_ROWS * vocab, sizeof *c->logits);
	return c->logits ? decoder_ref_room(c->decoder, rows_max(&c->rows), err) : ar_nomem(err);
}

/* Refuse a run that the machine's memory cannot hold.  Captures touch few of the pages, so this
 * checks runs with weights only. */
static enum ar_status check_memory(const struct cpu *c, int64_t num_blocks, struct ar_err *err)
{
	const struct backend_env *env = &c->env;
	const struct cache_groups *g = &c->engine.groups;
	int64_t n_page = blocks_pages(num_blocks, env->block_tok, env->max_seqs,
				      c->engine.plan.page_tok);
	double cache = groups_bytes(g, env->run_layer, env->n_run_layers, n_page);
	double rows = decoder_ref_bytes(env->model, rows_max(&c->rows)), have = memory_available();

	if (!c->decoder || cache + rows <= have)
		return AR_OK;
	return ar_fail(err, AR_NOMEM,
		       "the whole model %s needs %.1f GiB for %lld KV blocks and %.1f GiB for the "
		       "rows of a batch beside its weights, but %.1f GiB of memory are available; "
		       "lower --num-gpu-blocks, --max-num-seqs or --max-num-batched-tokens",
		       env->model->name, cache / 0x1p30, (long long)num_blocks, rows / 0x1p30,
		       have / 0x1p30);
}

static enum ar_status cpu_start(void *self, int64_t num_blocks, struct ar_err *err)
{
	struct cpu *c = self;
	const struct backend_env *env = &c->env;
	enum ar_status st = groups_open_blocks(&c->engine.groups, env->blocks, num_blocks,
					       env->block_tok, env->trace->n, err);

	if (!st)
		st = check_memory(c, num_blocks, err);
	if (st)
		return st;
	if (!alloc_rows(c) || !alloc_cache(c))
		return ar_nomem(err);
	attn_engine_log_aux(&c->engine);
	return alloc_decoder(c, err);
}

/* ---- iterations ---- */

/* In a pass over an entry whose K and V the pages hold: bring the selector's state up to date.  For
 * that it selects; the selection is not used, so Q need not be right. */
static enum ar_status refresh(struct cpu *c, int i, const struct rows *r, void *ctx,
			      struct ar_err *err)
{
	struct method_selection x = { 0 };
	struct attn_call call = cpu_call(c, r, ROW_PREFILL, i);
	enum ar_status st = AR_OK;

	(void)ctx;
	if (call.state)
		st = method_choose_ref(method_prefill(attn_engine_method(&c->engine, i)), &call, &x,
				       err);
	method_selection_release(&x);
	return st;
}

/* The same for an entry whose K and V are missing: store them first. */
static enum ar_status store_missing(struct cpu *c, int i, const struct rows *r, void *ctx,
				    struct ar_err *err)
{
	enum ar_status st = cpu_qkv(c, i, r, true, err);

	if (!st)
		st = cpu_evict_see(c, i, r, ctx, err);
	return st ? st : refresh(c, i, r, ctx, err);
}

/* Find the tokens that e needs in shared pages, compute those that are not there, and make room for
 * its own.  Real hidden states go through whole layers. */
static enum ar_status fill_missing(struct cpu *c, const struct batch_entry *e, struct ar_err *err)
{
	struct batch_entry piece;
	enum ar_status st = blocks_hit(c->env.blocks, e, err);

	while (!st &&
	       blocks_missing(c->env.blocks, e, c->rows.limit[ROW_PREFILL].max_row, &piece)) {
		bool held = blocks_hold(c->env.blocks, &piece);

		st = cpu_pass(c,
			      &(struct batch){ .entry = &piece, .n = 1, .blocks = c->env.blocks },
			      !held,
			      held	 ? refresh :
			      c->decoder ? cpu_attend :
					   store_missing,
			      NULL, err);
	}
	return st ? st : blocks_place(c->env.blocks, e, err);
}

static void begin_times(struct cpu *c)
{
	cpu_phase(c, PHASE_NO_LAYER, PHASE_NONE);
	memset(c->ns, 0, sizeof c->ns);
}

/* Run b, and measure its time by phase from 0 on. */
static enum ar_status run_timed(struct cpu *c, const struct batch *b, struct ar_err *err)
{
	struct batch all = *b;
	enum ar_status st;

	begin_times(c);
	st = cpu_pass(c, b, true, cpu_attend, &all, err);
	if (!st && c->decoder)
		st = cpu_emit(c, b, err);
	evictions_after(&c->evict, b);
	if (!st)
		st = cpu_evict(c, err);
	c->ns[PHASE_NONE] = 0;
	return st;
}

/* Run the events of the last decodes.  *ns: their time. */
static enum ar_status evict_late(struct cpu *c, const struct batch *b, int64_t *ns,
				 struct ar_err *err)
{
	enum ar_status st;

	begin_times(c);
	evictions_before(&c->evict, b);
	st = cpu_evict(c, err);
	*ns = c->ns[PHASE_EVICT];
	return st;
}

static enum ar_status run_batch(struct cpu *c, const struct batch *b, struct iter_cost *cost,
				struct ar_err *err)
{
	struct iter_cost x = { .event_ns = -1, .span_ns = -1, .busy_ns = -1 };
	int64_t sum = 0, late;
	enum ar_status st = attn_engine_check(&c->engine, b, err);

	if (!st)
		st = evict_late(c, b, &late, err);
	for (size_t i = 0; i < b->n && !st; i++)
		st = fill_missing(c, &b->entry[i], err);
	if (!st)
		st = run_timed(c, b, err);
	if (st)
		return st;
	attn_engine_tally(&c->engine, b);
	attn_engine_count_scores(&c->engine, &c->set);
	st = drops_end(&c->engine.drops, err);
	if (st)
		return st;
	drops_cost(&c->engine.drops, &x);
	memcpy(x.phase_ns, c->ns, sizeof x.phase_ns);
	x.phase_ns[PHASE_EVICT] += late;
	for (int p = 0; p < PHASE_COUNT; p++)
		sum += x.phase_ns[p];
	x.cost_ns = sum * c->env.model->n_layers / c->env.n_run_layers;
	*cost = x;
	return AR_OK;
}

static enum ar_status cpu_run(void *self, const struct batch *b, struct iter_cost *cost,
			      struct ar_err *err)
{
	struct cpu *c = self;
	enum ar_status st;

	blocks_begin(c->env.blocks);
	st = run_batch(c, b, cost, err);
	blocks_end(c->env.blocks);
	return st;
}

/* Select for the rows.  *x: the selection.  count: its counts, [kv_heads]. */
static enum ar_status select_counted(struct cpu *c, int i, const struct rows *r, enum row_kind kind,
				     struct selection_count *count, struct method_selection *x,
				     struct ar_err *err)
{
	const struct method_part *p = &attn_engine_method(&c->engine, i)->part[kind];
	struct attn_call call = cpu_call(c, r, kind, i);
	enum ar_status st = method_select_ref(p, &call, x, err);

	return st ? st : method_count(p, call.b, &x->chosen, x->table, count, err);
}

/* Make the lists that the decode of a sample takes in executed layer i.  With weights the layers
 * before have made them. */
static enum ar_status choose_before(struct cpu *c, int i, enum row_kind kind, struct ar_err *err)
{
	int from = kind == ROW_DECODE && !c->decoder ? attn_engine_source(&c->engine, i) : -1;
	struct method_selection x = { 0 };
	struct attn_call call;
	const struct rows *r;
	enum ar_status st;

	if (from < 0)
		return AR_OK;
	r = row_set_of(&c->set, from);
	st = cpu_qkv(c, from, r, false, err);
	call = cpu_call(c, r, kind, from);
	if (!st)
		st = method_select_ref(&attn_engine_method(&c->engine, from)->part[kind], &call, &x,
				       err);
	method_selection_release(&x);
	return st ? st : cpu_qkv(c, i, row_set_of(&c->set, i), false, err);
}

/* The same, then attention. */
static enum ar_status attend_counted(struct cpu *c, int i, const struct rows *r, enum row_kind kind,
				     struct selection_count *count, struct method_selection *x,
				     struct ar_err *err)
{
	const struct method *m = attn_engine_method(&c->engine, i);
	struct attn_call call = cpu_call(c, r, kind, i);
	struct attn_batch b = *call.b;
	enum ar_status st = select_counted(c, i, r, kind, count, x, err);

	if (st)
		return st;
	b.skip.count = calloc(2 * (size_t)b.shape.kv_heads, sizeof *b.skip.count);
	if (!b.skip.count)
		return ar_nomem(err);
	call.b = &b;
	call.lse = c->lse;
	st = m->part[kind].executor->ref(&call, &x->lists, err);
	selection_set_skips(count, b.skip.count, b.shape.kv_heads);
	free(b.skip.count);
	return st;
}

/* Of a pass that counts in layers that see all keys; ctx: [n_run_layers][kv_heads]. */
static enum ar_status count_layer(struct cpu *c, int i, const struct rows *r, void *ctx,
				  struct ar_err *err)
{
	struct selection_count *count = ctx;
	struct method_selection x = { 0 };
	enum ar_status st;

	if (attn_engine_mixer(&c->engine, i) != MIX_FULL)
		return AR_OK;
	st = cpu_qkv(c, i, r, true, err);
	if (!st)
		st = select_counted(c, i, r, ROW_PREFILL,
				    count + i * attn_engine_widest(&c->engine).kv_heads, &x, err);
	method_selection_release(&x);
	return st;
}

enum ar_status backend_cpu_count(void *self, const struct batch_entry *e,
				 struct selection_count *count, struct ar_err *err)
{
	struct cpu *c = self;
	struct batch_entry one = *e;
	int heads = attn_engine_widest(&c->engine).kv_heads;
	enum ar_status st;

	assert(!c->decoder);
	blocks_begin(c->env.blocks);
	st = fill_missing(c, e, err);
	memset(count, 0, (size_t)(c->env.n_run_layers * heads) * sizeof *count);
	if (!st)
		st = cpu_pass(c, &(struct batch){ .entry = &one, .n = 1, .blocks = c->env.blocks },
			      false, count_layer, count, err);
	blocks_end(c->env.blocks);
	return st;
}

static enum ar_status cpu_compare(void *self, const struct batch_entry *e, int i,
				  struct accuracy *acc, struct selection_count *count,
				  struct method_selection *sel, struct ar_err *err)
{
	struct cpu *c = self;
	const struct rows *r = row_set_of(&c->set, i);
	struct method_selection own = { 0 };
	const bool lists = !reuse_sees_all(&attn_engine_method(&c->engine, i)->part[e->kind].reuse);
	struct attn_batch all;
	struct attn_call dense;
	enum ar_status st;

	assert(backend_compares_kind(e->kind) && attn_engine_mixer(&c->engine, i) == MIX_FULL);
	st = cpu_sample(c, e, i, err);
	if (!st)
		st = choose_before(c, i, e->kind, err);
	if (st)
		return st;
	dense = cpu_call(c, r, e->kind, i);
	all = *dense.b;
	all.skip = (struct attn_skip){ 0 };
	dense.b = &all;
	dense.out = c->out_dense;
	dense.lse = c->lse_dense;
	st = attend_counted(c, i, r, e->kind, count, sel && lists ? sel : &own, err);
	if (!st && e->gone)
		st = cpu_evict_dense(c, e, i, &dense, err);
	else if (!st)
		st = method_ref(&c->engine.dense->part[e->kind], &dense, NULL, err);
	if (!st)
		st = accuracy_measure(attn_engine_shape(&c->engine, i), dense.b->rows.n_row, c->out,
				      c->out_dense, c->lse, c->lse_dense, acc, err);
	method_selection_release(&own);
	return st;
}

static enum ar_status make_rows(void *ctx, int i, const struct layer_row *row, int n_row, bf16_t *q,
				bf16_t *k, struct ar_err *err)
{
	const struct cpu *c = ctx;

	return c->engine.act->qkv_ref(c->engine.act_self, i, row, n_row, NULL,
				      &(struct qkv){ q, k, NULL }, err);
}

static enum ar_status cpu_kept(void *self, const struct batch_entry *e, int i,
			       struct kept_share *out, struct ar_err *err)
{
	struct cpu *c = self;

	*out = (struct kept_share){ 0 };
	if (c->env.weights)
		return AR_OK;
	return attn_engine_kept(&c->engine, e, i, c->rows.limit[ROW_PREFILL].max_row, make_rows, c,
				out, err);
}

static void cpu_layer_work(const void *self, int i, struct layer_work *out)
{
	attn_engine_work(&((const struct cpu *)self)->engine, i, out);
}

static void cpu_drop(void *self, uint32_t req)
{
	struct cpu *c = self;

	drops_forget(&c->engine.drops, req);
	cpu_evict_drop(c, req);
}

/* Ranks meet when each has something of all. */
static enum ar_status cpu_barriers(void *self, int n, int64_t *ns, struct ar_err *err)
{
	struct cpu *c = self;
	const char mine = 0;
	char all[RANKS_MAX];
	enum ar_status st = AR_OK;

	for (int i = 0; i < n && !st; i++) {
		st = world_gather(c->env.world, &mine, all, 1, err);
		ns[i] = -cpu_now_ns();
		if (!st)
			st = world_gather(c->env.world, &mine, all, 1, err);
		ns[i] += cpu_now_ns();
	}
	return st;
}

const struct backend backend_cpu = {
	.name = "cpu",
	.title = "the C references: the attention core, with --weights the whole model",
	.needs_model = true,
	.open = cpu_open,
	.start = cpu_start,
	.run = cpu_run,
	.compare = cpu_compare,
	.kept = cpu_kept,
	.layer_work = cpu_layer_work,
	.drop = cpu_drop,
	.barriers = cpu_barriers,
	.close = cpu_close,
};
