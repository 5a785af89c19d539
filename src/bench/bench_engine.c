/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_engine.h"

#include <stdlib.h>

#include "base/rng.h"
#include "src/bench/bench_plan.h"

/* ---- a run's model, capture, prompts and pages ---- */

static enum ar_status open_model(struct bench_engine *e, const struct bench_input *x,
				 struct ar_err *err)
{
	const struct layer_spec full = { .mixer = MIX_FULL,
					 .q_heads = x->shape.q_heads,
					 .kv_heads = x->shape.kv_heads,
					 .head_dim = x->shape.head_dim };

	e->model = (struct model){ .name = "bench" };
	return model_set_layers(&e->model, x->n_layers, &full, err);
}

static enum ar_status open_capture(struct bench_engine *e, const struct bench_input *x,
				   struct ar_err *err)
{
	static char name[] = "the input";
	int layer = x->layer;
	const struct capture_info info = {
		.name = name,
		.n_layers = 1,
		.layer = &layer,
		.q_heads = x->shape.q_heads,
		.kv_heads = x->shape.kv_heads,
		.head_dim = x->shape.head_dim,
		.n_tok = x->n_tok,
		.rope_applied = x->rope_applied,
		.rope = x->rope,
	};

	return capture_memory(&e->capture, &info, x->data, err);
}

static enum ar_status open_env(struct bench_engine *e, const struct bench_engine_env *env,
			       struct ar_err *err)
{
	const struct bench_shape *s = env->shape;
	const struct bench_input *x = env->input;
	size_t batch = (size_t)s->batch;
	enum ar_status st = open_model(e, x, err);

	if (!st)
		st = open_capture(e, x, err);
	if (st)
		return st;
	e->layer = x->layer;
	e->trace.n = batch;
	e->prompt = (uint32_t)(s->context + s->left);
	e->capture_of = calloc(batch, sizeof *e->capture_of);
	e->captured_layer = calloc((size_t)x->n_layers, sizeof *e->captured_layer);
	e->entry = calloc(batch, sizeof *e->entry);
	e->env = (struct backend_env){ .trace = &e->trace,
				       .model = &e->model,
				       .capture = &e->capture,
				       .n_capture = 1,
				       .capture_of = e->capture_of,
				       .captured_layer = e->captured_layer,
				       .run_layer = &e->layer,
				       .n_run_layers = 1,
				       .tile = s->context > x->n_tok,
				       .repeats = x->repeats,
				       .plan = &e->methods,
				       .max_batched_tok = env->max_row,
				       .max_seqs = s->batch,
				       .max_len = s->context,
				       .attention_only = true };
	return e->capture_of && e->captured_layer && e->entry ? AR_OK : ar_nomem(err);
}

/* ---- pages and rows ---- */

/* Shuffle the list of free pages: for a while each of n requests has one, and they leave in random
 * order. */
static enum ar_status shuffle_pages(struct blocks *b, int n, uint64_t seed, struct ar_err *err)
{
	int32_t *order = malloc((size_t)n * sizeof *order);
	enum ar_status st = order ? AR_OK : ar_nomem(err);

	blocks_begin(b);
	for (int i = 0; i < n && !st; i++)
		st = blocks_grow(b, 0, (uint32_t)i, 1, err);
	blocks_end(b);
	if (!st)
		bench_shuffle(order, n, &(struct rng){ seed });
	for (int i = n; i-- > 0 && !st;)
		blocks_leave(b, (uint32_t)order[i]); /* the last one's page is taken first */
	free(order);
	return st;
}

static enum ar_status take_pages(struct bench_engine *e, const struct bench_engine_env *env,
				 struct ar_err *err)
{
	struct blocks *b = &e->blocks;
	enum ar_status st = shuffle_pages(b, (int)bench_engine_group(e)->n_page, env->seed, err);

	blocks_begin(b);
	for (uint32_t r = 0; r < e->trace.n && !st; r++)
		st = blocks_grow(b, 0, r, env->shape->context, err);
	blocks_end(b);
	return st;
}

/* Exactly the pages that the requests need: blocks_pages() adds one of each. */
static enum ar_status open_pages(struct bench_engine *e, const struct bench_engine_env *env,
				 struct ar_err *err)
{
	const struct bench_shape *s = env->shape;
	int tok = e->engine.plan.page_tok;
	int64_t blocks = (s->context + tok - 1) / tok;
	enum ar_status st = groups_open_blocks(&e->engine.groups, &e->blocks,
					       s->batch * (blocks - 1), tok,
					       (size_t)(s->batch * blocks), err);

	return st ? st : take_pages(e, env, err);
}

static enum ar_status open_rows(struct bench_engine *e, const struct bench_engine_env *env,
				struct ar_err *err)
{
	struct rows_env *r = &e->rows;
	enum ar_status st = attn_engine_rows(&e->engine, &e->env, r, err);

	if (!st)
		st = row_set_init(&e->host, r, err);
	if (st)
		return st;
	r->tiles = env->gpu;
	r->limit[ROW_PREFILL].n_sm = env->gpu ? attn_engine_n_sm(&e->engine, env->gpu) : 0;
	r->limit[ROW_PREFILL].max_page = bench_engine_group(e)->n_page;
	r->bytes = rows_bytes(r);
	r->mem = malloc(r->bytes);
	return r->mem ? AR_OK : ar_nomem(err);
}

enum ar_status bench_engine_rows(struct bench_engine *e, int ctx, int n, const struct method *tiles,
				 size_t *used, struct ar_err *err)
{
	size_t n_req = e->trace.n;
	uint32_t end = (uint32_t)(ctx + n);

	for (size_t r = 0; r < n_req; r++)
		e->entry[r] = (struct batch_entry){ .req = (uint32_t)r,
						    .start = (uint32_t)ctx,
						    .n_tok = (uint32_t)n,
						    .known = e->prompt,
						    .kind = ROW_PREFILL,
						    .n_emit = end == e->prompt };
	return rows_build(&e->host, &e->rows,
			  &(struct batch){ .entry = e->entry, .n = n_req, .blocks = &e->blocks },
			  NULL, tiles, 0, used, err);
}

/* ---- the method ---- */

/* Free *plan even after a failure. */
static enum ar_status open_plan(struct plan **plan, const char *text, int layer, struct ar_err *err)
{
	enum ar_status st = bench_plan(plan, text, err);

	return st ? st : bench_plan_drop(*plan, layer, err);
}

static void set_methods(struct bench_engine *e, const struct plan *plan)
{
	e->methods = *plan;
	e->methods.drop = NULL;
}

enum ar_status bench_engine_open(struct bench_engine *e, const struct bench_engine_env *env,
				 const char *method, struct ar_err *err)
{
	enum ar_status st;

	*e = (struct bench_engine){ 0 };
	st = open_env(e, env, err);
	if (!st)
		st = open_plan(&e->plan, method, e->layer, err);
	if (st)
		return st;
	set_methods(e, e->plan);
	st = attn_engine_open(&e->engine, &e->env, env->gpu, err);
	if (!st)
		st = open_pages(e, env, err);
	return st ? st : open_rows(e, env, err);
}

enum ar_status bench_engine_use(struct bench_engine *e, const char *method, struct ar_err *err)
{
	struct plan *plan = NULL, *before = e->plan;
	enum ar_status st = open_plan(&plan, method, e->layer, err);

	if (!st) {
		set_methods(e, plan);
		st = attn_engine_use(&e->engine, &e->env, e->rows.tiles, err);
	}
	if (st) {
		set_methods(e, before);
		plan_free(plan);
		return st;
	}
	e->plan = plan;
	e->rows.view[0].method = bench_engine_method(e);
	plan_free(before);
	return AR_OK;
}

void bench_engine_release(struct bench_engine *e)
{
	attn_engine_release(&e->engine);
	blocks_release(&e->blocks);
	row_set_release(&e->host);
	free(e->rows.mem);
	rows_env_release(&e->rows);
	plan_free(e->plan);
	capture_close(e->capture);
	model_release(&e->model);
	free(e->capture_of);
	free(e->captured_layer);
	free(e->entry);
	*e = (struct bench_engine){ 0 };
}
