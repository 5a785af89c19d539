/* SPDX-License-Identifier: Apache-2.0 */
/* KV cache groups of a run, from the layers of its model. */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>

/* The one group of full attention that an engine makes without its hybrid KV cache manager. */
static enum ar_status without_manager(const struct model_groups *g, const char *model,
				      struct ar_err *err)
{
	if (model_groups_plain(g))
		return ar_fail(err, AR_USAGE,
			       "disable-hybrid-kv-cache-manager has no effect with %s, whose "
			       "layers are alike; leave it out",
			       model);
	for (size_t i = 0; i < g->n; i++)
		if (!mixer_attends(g->group[i].mixer))
			return ar_fail(err, AR_USAGE,
				       "disable-hybrid-kv-cache-manager: the model has linear "
				       "layers, which have no other KV cache; leave it out");
	return AR_OK;
}

const char *run_uncached(const struct policy *p, const struct model *m)
{
	const struct kv_rules *r = p->groups;

	for (int i = 0; i < m->n_layers; i++) {
		if (m->layer[i].mixer == MIX_LINEAR && !(r && r->states))
			return "no prefix cache of linear layers is modelled";
		if (m->layer[i].mixer == MIX_SSM && !(r && r->saves))
			return "no prefix cache of state-space layers is modelled";
	}
	return NULL;
}

static enum ar_status check_groups(const struct run_inputs *in, const struct model *m,
				   struct ar_err *err)
{
	const struct policy *p = in->limits.policy;
	const char *why = in->limits.prefix_cache ? run_uncached(p, m) : NULL;

	if (!p->groups)
		return ar_fail(err, AR_USAGE,
			       "%s: policy '%s' has no rules here for KV blocks of layers that "
			       "differ; take a policy of vLLM, or add "
			       "--disable-hybrid-kv-cache-manager",
			       m->name, p->name);
	if (why)
		return ar_fail(err, AR_USAGE,
			       "%s: with policy '%s' %s; take a newer policy of vLLM, or leave "
			       "--enable-prefix-caching out",
			       m->name, p->name, why);
	return AR_OK;
}

static bool has_states(const struct sched_limits *l)
{
	for (size_t i = 0; i < l->n_group; i++)
		if (!mixer_attends(l->group[i].mixer))
			return true;
	return false;
}

/* Chunks end where blocks with states do.  Where no chunk can be shorter, one must fit. */
static enum ar_status check_states(const struct sched_limits *l, const char *model,
				   struct ar_err *err)
{
	int64_t most = l->max_batched_tok;

	if (l->long_prefill_tok && l->long_prefill_tok < most)
		most = l->long_prefill_tok;
	if (!l->prefix_cache || !has_states(l))
		return AR_OK;
	if (l->chunks == SCHED_CHUNKS_NONE)
		return ar_fail(
			err, AR_USAGE,
			"%s: a prefix cache of linear layers cuts prompts at KV blocks; leave "
			"--no-enable-chunked-prefill or --enable-prefix-caching out",
			model);
	if (l->policy->groups->saves || l->block_tok <= most)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "%s: a chunk of %" PRId64
		       " tokens is shorter than a block, which has %" PRId64
		       "; policy '%s' refuses that with a prefix cache, so raise "
		       "--max-num-batched-tokens and --long-prefill-token-threshold",
		       model, most, l->block_tok, l->policy->name);
}

enum ar_status run_set_groups(struct run_inputs *in, const struct run_options *o,
			      const struct model *m, struct ar_err *err)
{
	static const struct kv_rules none = { .spread = 1 };
	struct sched_limits *l = &in->limits;
	const struct kv_rules *rules = l->policy->groups ? l->policy->groups : &none;
	enum ar_status st = model_groups_init(&in->groups, m, l->block_tok, rules, l->prefix_cache,
					      err);

	if (st)
		return st;
	if (o->no_hybrid)
		return without_manager(&in->groups, m->name, err);
	if (model_groups_plain(&in->groups))
		return AR_OK;
	l->group = in->groups.group;
	l->n_group = in->groups.n;
	l->block_tok = in->groups.block_tok;
	st = check_groups(in, m, err);
	return st ? st : check_states(l, m->name, err);
}

enum ar_status run_set_cost_groups(struct run_inputs *in, const struct run_options *o,
				   struct ar_err *err)
{
	const struct store_run *from = &in->costs->run;
	struct model m;
	enum ar_status st;

	if (!from->model_json)
		return AR_OK;
	st = model_parse(&m, in->costs->name, from->model_json, err);
	if (st)
		return st;
	st = model_split(&m, from->tp, err);
	if (!st)
		st = run_set_groups(in, o, &m, err);
	model_release(&m);
	return st;
}

const char *run_kind(enum mixer m)
{
	static const char *const kinds[] = {
		[MIX_FULL] = "full",	 [MIX_WINDOW] = "window", [MIX_CHUNK] = "window",
		[MIX_LINEAR] = "linear", [MIX_SSM] = "ssm",	  [MIX_NONE] = "none",
		[MIX_LATENT] = "latent"
	};

	return kinds[m];
}

enum ar_status run_put_groups(const struct run_inputs *in, struct store *store,
			      const struct replay_result *res, struct ar_err *err)
{
	const struct sched_limits *l = &in->limits;
	enum ar_status st = AR_OK;

	for (size_t i = 0; res->group_peak && i < l->n_group && !st; i++) {
		const struct kv_group *g = &l->group[i];
		const struct row_kv_group row = { .group_no = (int64_t)i,
						  .kind = run_kind(g->mixer),
						  .window = g->window ? g->window : -1,
						  .n_layers = g->n_layers,
						  .block_tokens = g->block_tok ? g->block_tok : -1,
						  .block_bytes = in->groups.block_bytes,
						  .peak_blocks = res->group_peak[i] };

		st = store_group(store, &row, err);
	}
	return st;
}
