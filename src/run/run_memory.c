/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a run: what its engine would have on the GPU, and the pool that follows. */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/log.h"
#include "model/layer_size.h"
#include "model/params.h"
#include "replay/engine/graph_sizes.h"

enum { MOST_RANKS = 1024 };

/* ---- the GPU ---- */

/* Set the name and the memory of the GPU: the real one that is open, else that of the defaults. */
static void find_gpu(const struct run_session *s, struct run_memory *m)
{
	const struct store_gpu *gpu = s->self ? backend_gpu(s->backend, s->self) : NULL;
	const struct engine_gpu *of = &s->o.engine_gpu;

	snprintf(m->gpu, sizeof m->gpu, "%s", gpu ? gpu->name : of->name);
	m->gpu_bytes = gpu ? gpu->mem_bytes : of->bytes;
	m->free_bytes = gpu ? gpu->free_bytes : 0;
}

/* ---- the model ---- */

static int64_t token_bytes(const struct model *m)
{
	int64_t n = 0;

	for (int i = 0; i < m->n_layers; i++)
		if (mixer_attends(m->layer[i].mixer))
			n += layer_cache_bytes(&m->layer[i]);
	return n;
}

/* Fill what engine_memory() wants of rank m. */
static enum ar_status describe(const struct run_inputs *in, const struct run_options *o,
			       const struct model *m, struct engine_memory_in *e,
			       struct ar_err *err)
{
	const struct sched_limits *l = &in->limits;
	const struct run_memory *mem = &in->memory;
	static const struct kv_rules none = { .spread = 1 };
	const struct kv_rules *rules = l->policy->groups ? l->policy->groups : &none;
	struct graph_sizes sizes;
	struct model_groups g = { 0 };
	enum ar_status st = graph_sizes_open(&sizes, NULL, l->max_seqs, run_most_captured(o),
					     l->max_batched_tok, err);

	*e = (struct engine_memory_in){
		.model = m,
		.block_bytes = l->block_tok * token_bytes(m),
		.max_batched_tok = l->max_batched_tok,
		.max_seqs = l->max_seqs,
		.n_graph = st ? 0 : sizes.n,
		.gpu_bytes = mem->gpu_bytes,
		.share = o->memory_share,
		.rule = policy_defaults(l->policy, mem->gpu, mem->gpu_bytes)->pool,
	};
	if (!st)
		graph_sizes_release(&sizes);
	if (!st)
		st = model_groups_init(&g, m, o->limits.block_tok, rules, l->prefix_cache, err);
	/* Else window layers have blocks of full ones. */
	if (!st && (l->group || model_groups_plain(&g)))
		e->block_bytes = g.block_bytes;
	model_groups_release(&g);
	return st;
}

/* The smallest number of ranks that divides the model and leaves it KV blocks; 0: there is none. */
static int ranks_that_fit(const struct run_inputs *in, const struct run_options *o,
			  const char *json)
{
	for (int tp = 2; tp <= MOST_RANKS; tp++) {
		struct engine_memory_in e;
		struct model m;
		bool fits = !model_parse(&m, "", json, NULL) &&
			    !run_set_formats(&m, o, false, NULL) && !model_split(&m, tp, NULL) &&
			    !describe(in, o, &m, &e, NULL) && engine_memory(&e).num_blocks;

		model_release(&m);
		if (fits)
			return tp;
	}
	return 0;
}

/* ---- the pool ---- */

int64_t run_pool_tokens(const struct run_inputs *in)
{
	const struct sched_limits *l = &in->limits;
	int64_t len = l->max_len ? l->max_len : l->block_tok;

	if (!l->group)
		return l->num_blocks * l->block_tok;
	return (int64_t)((double)l->num_blocks * (double)len / (double)sched_length_blocks(l, len));
}

/* The model does not fit: refuse it, but warn where the pool was typed, or where nobody named the
 * GPU. */
static enum ar_status refuse(const struct run_inputs *in, const struct run_session *s,
			     const struct model *m, struct ar_err *err)
{
	const struct run_memory *mem = &in->memory;
	const struct engine_memory *e = &mem->engine;
	const bool typed = s->o.limits.num_blocks;
	const bool named = s->backend->modelled || (in->costs && in->costs->run.gpu);
	struct ar_err why = { 0 };
	char fits[64] = "no --tp fits";
	int tp = ranks_that_fit(in, &s->o, m->json);

	if (tp)
		snprintf(fits, sizeof fits, "--tp %d fits", tp);
	ar_fail(&why, AR_USAGE,
		"%s needs %.1f GB of weights a rank and %.1f GB beside them, %s has %.1f GB "
		"(%.1f GiB), of which %.4g may be used; %s",
		m->name, (double)e->weights / 1e9,
		(double)(e->activations + e->graphs + e->other) / 1e9, mem->gpu,
		(double)mem->gpu_bytes / 1e9, (double)mem->gpu_bytes / 0x1p30, s->o.memory_share,
		fits);
	if (!typed && named) {
		*err = why;
		return AR_USAGE;
	}
	if (!s->point)
		log_warn("%s%s", why.msg, typed ? "" : "; the pool is what the trace can use");
	return AR_OK;
}

/* States of all sequences stand beside the pool on a real GPU. */
enum ar_status run_no_room(const struct run_inputs *in, struct ar_err *err)
{
	const struct run_memory *mem = &in->memory;
	const int64_t seqs = in->limits.max_seqs;
	const int64_t state = model_state_bytes(&in->model);
	const double left = mem->share * (double)mem->gpu_bytes - (double)mem->weight_bytes;
	const int64_t fit = run_states_fit(state, left);

	if (fit > 0 && fit < seqs)
		return ar_fail(err, AR_USAGE,
			       "no room for KV blocks on the GPU beside %.1f GB of weights and "
			       "%.1f GB of states of %" PRId64 " sequences: %s has %.1f GB, of "
			       "which %.4g may be used; take --max-num-seqs %" PRId64,
			       (double)mem->weight_bytes / 1e9, (double)(state * seqs) / 1e9, seqs,
			       mem->gpu, (double)mem->gpu_bytes / 1e9, mem->share, fit);
	return ar_fail(err, AR_USAGE,
		       "no room for KV blocks on the GPU beside %.1f GB of weights: %s has %.1f "
		       "GB, of which %.4g may be used; stop other programs there, lower "
		       "--max-num-batched-tokens or take a smaller model",
		       (double)mem->weight_bytes / 1e9, mem->gpu, (double)mem->gpu_bytes / 1e9,
		       mem->share);
}

/* vLLM wants a pool that holds one request of the greatest length: v1/core/kv_cache_utils.py,
 * check_enough_kv_cache_memory().  A length that was not typed is the model's. */
static enum ar_status check_length(const struct run_inputs *in, const struct run_session *s,
				   struct ar_err *err)
{
	const struct sched_limits *l = &in->limits;
	const int64_t have = in->memory.engine.num_blocks;
	const int64_t need = sched_length_blocks(l, l->max_len);

	if (need <= have)
		return AR_OK;
	if (s->o.limits.max_len)
		return ar_fail(err, AR_USAGE,
			       "max-model-len %" PRId64 " needs %" PRId64 " KV blocks, but %s has "
			       "memory for %" PRId64 "; lower it, or raise --tp or "
			       "--gpu-memory-utilization",
			       l->max_len, need, in->memory.gpu, have);
	if (!s->point)
		log_warn("a request of the model's %" PRId64 " tokens needs %" PRId64
			 " KV blocks, but %s has memory for %" PRId64
			 "; vLLM would ask for a lower --max-model-len",
			 l->max_len, need, in->memory.gpu, have);
	return AR_OK;
}

/* Set *e to what the stage has that has room for the fewest KV blocks, and *part to its share of
 * rank m. */
static enum ar_status find_tightest(const struct run_inputs *in, const struct run_options *o,
				    const struct model *m, struct model *part,
				    struct engine_memory_in *e, struct ar_err *err)
{
	int64_t least = INT64_MAX;
	enum ar_status st = AR_OK;

	for (int i = 0; i < in->stages.n && !st; i++) {
		struct model x = run_stage_model(&in->stages, m, i);
		struct engine_memory_in y;
		int64_t n;

		st = describe(in, o, &x, &y, err);
		n = st ? 0 : engine_memory(&y).num_blocks;
		if (st || n >= least)
			continue;
		least = n;
		*part = x;
		*e = y;
		e->model = part;
	}
	return st;
}

static enum ar_status plan_memory(struct run_inputs *in, const struct run_session *s,
				  const struct model *m, struct ar_err *err)
{
	struct run_memory *mem = &in->memory;
	const int64_t typed = s->o.limits.num_blocks;
	struct engine_memory_in e;
	struct model part;
	enum ar_status st;

	find_gpu(s, mem);
	st = find_tightest(in, &s->o, m, &part, &e, err);
	if (st)
		return st;
	mem->token_bytes = token_bytes(&part);
	mem->block_bytes = e.block_bytes;
	mem->weight_bytes = model_weight_bytes(&part);
	mem->share = s->o.memory_share;
	if (!mem->gpu_bytes || s->backend->uses_gpu || s->o.engine_defaults == RUN_DEFAULTS_NONE)
		return AR_OK;
	mem->engine = engine_memory(&e);
	if (!mem->engine.num_blocks)
		return refuse(in, s, m, err);
	if (mem->engine.num_blocks > UINT32_MAX)
		mem->engine.num_blocks = UINT32_MAX;
	if (typed > mem->engine.num_blocks && !s->point)
		log_warn("num-gpu-blocks %" PRId64 ": %s has memory for %" PRId64, typed, mem->gpu,
			 mem->engine.num_blocks);
	return typed || !in->limits.max_len ? AR_OK : check_length(in, s, err);
}

enum ar_status run_plan_memory(struct run_inputs *in, const struct run_session *s,
			       struct ar_err *err)
{
	const struct store_run *from = in->costs ? &in->costs->run : NULL;
	struct model m;
	enum ar_status st;

	if (run_needs_model(s))
		return plan_memory(in, s, &in->model, err);
	if (!from || !from->model_json)
		return AR_OK;
	st = model_parse(&m, from->model_name, from->model_json, err);
	if (!st)
		st = run_set_cost_formats(&m, in->costs, &s->o, err);
	if (!st) {
		in->memory.n_params = model_params(&m);
		st = run_spread_experts(&m, &s->o, err);
	}
	if (!st)
		st = model_split(&m, from->tp, err);
	if (!st)
		st = run_set_stages(in, &s->o, &m, err);
	if (!st)
		st = plan_memory(in, s, &m, err);
	model_release(&m);
	return st;
}
