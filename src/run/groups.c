/* SPDX-License-Identifier: Apache-2.0 */
/* KV cache groups of a run, from the layers of its model. */
#include "config.h"
#include "src/run/run.h"

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
		if (g->group[i].mixer == MIX_LINEAR)
			return ar_fail(err, AR_USAGE,
				       "disable-hybrid-kv-cache-manager: the model has linear "
				       "layers, which have no other KV cache; leave it out");
	return AR_OK;
}

static enum ar_status check(const struct run *r, const char *model, struct ar_err *err)
{
	const struct policy *p = r->in.limits.policy;

	if (!p->spread)
		return ar_fail(err, AR_USAGE,
			       "%s: policy '%s' has no rules here for KV blocks of layers that "
			       "differ; take --policy vllm-0.16 or vllm-0.19, or add "
			       "--disable-hybrid-kv-cache-manager",
			       model, p->name);
	for (size_t i = 0; r->in.limits.prefix_cache && i < r->in.groups.n; i++)
		if (r->in.groups.group[i].mixer == MIX_LINEAR)
			return ar_fail(err, AR_USAGE,
				       "%s: no prefix cache of linear layers is modelled; leave "
				       "--enable-prefix-caching out",
				       model);
	return AR_OK;
}

enum ar_status run_set_groups(struct run *r, const struct model *m, struct ar_err *err)
{
	struct sched_limits *l = &r->in.limits;
	double spread = l->policy->spread;
	enum ar_status st = model_groups_init(&r->in.groups, m, l->block_tok, spread ? spread : 1,
					      err);

	if (st)
		return st;
	if (r->session.o.no_hybrid)
		return without_manager(&r->in.groups, m->name, err);
	if (model_groups_plain(&r->in.groups))
		return AR_OK;
	l->group = r->in.groups.group;
	l->n_group = r->in.groups.n;
	l->block_tok = r->in.groups.block_tok;
	return check(r, m->name, err);
}

enum ar_status run_set_cost_groups(struct run *r, struct ar_err *err)
{
	const struct store_run *from = &r->in.costs->run;
	struct model m;
	enum ar_status st;

	if (!from->model_json)
		return AR_OK;
	st = model_parse(&m, r->in.costs->name, from->model_json, err);
	if (st)
		return st;
	st = model_split(&m, from->tp, err);
	if (!st)
		st = run_set_groups(r, &m, err);
	model_release(&m);
	return st;
}

const char *run_kind(enum mixer m)
{
	static const char *const kinds[] = {
		[MIX_FULL] = "full", [MIX_WINDOW] = "window", [MIX_LINEAR] = "linear"
	};

	return kinds[m];
}

enum ar_status run_put_groups(const struct run *r, const struct replay_result *res,
			      struct ar_err *err)
{
	const struct sched_limits *l = &r->in.limits;
	enum ar_status st = AR_OK;

	for (size_t i = 0; res->group_peak && i < l->n_group && !st; i++) {
		const struct kv_group *g = &l->group[i];
		const struct row_kv_group row = { .group_no = (int64_t)i,
						  .kind = run_kind(g->mixer),
						  .window = g->window ? g->window : -1,
						  .n_layers = g->n_layers,
						  .block_tokens = g->block_tok ? g->block_tok : -1,
						  .block_bytes = r->in.groups.block_bytes,
						  .peak_blocks = res->group_peak[i] };

		st = store_group(r->session.store, &row, err);
	}
	return st;
}
