/* SPDX-License-Identifier: Apache-2.0 */
/* Uses of the scope of options: refuse options without effect; take options from the run of
 * --costs, or from the command that is resumed. */
#include "config.h"
#include "src/run/options.h"

#include <cjson/cJSON.h>
#include <inttypes.h>
#include <string.h>

#include "base/json.h"
#include "replay/engine/run_scope.h"

/* Options with one of the bits in their scope have no effect unless the rule holds. */
struct scope_rule {
	unsigned scope;
	bool holds;
	const char *why, *name; /* message: "OPTION has no effect WHY[NAME]"; name may be
					 * NULL */
};

static enum ar_status no_effect(const struct opt *o, const char *why, const char *name,
				struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "%s has no effect %s%s; leave it out", o->name, why,
		       name ? name : "");
}

static enum ar_status check_rules(const struct run_options *o, const struct scope_rule *rule,
				  size_t n, struct ar_err *err)
{
	for (size_t i = 0; i < n; i++) {
		const struct opt *x = rule[i].holds ? NULL : opt_given_of(o->group, rule[i].scope);

		if (x)
			return no_effect(x, rule[i].why, rule[i].name, err);
	}
	return AR_OK;
}

/* The rules of options that are for routers.  A list of values of --replicas may begin with 1. */
static enum ar_status check_router(const struct run_options *o, struct ar_err *err)
{
	const struct request_router *r = request_routers[o->router];
	const bool routed = opt_given(o->group, "replicas") || o->replicas > 1 || o->apart.prefill;
	const struct {
		const char *name;
		bool holds;
	} list[] = { { "router", true },
		     { "router-stats", r->published },
		     { "router-seed", r->drawn } };

	for (size_t i = 0; i < sizeof list / sizeof *list; i++)
		if (opt_given(o->group, list[i].name) && !(routed && list[i].holds))
			return ar_fail(err, AR_USAGE, "%s has no effect with%s%s; leave it out",
				       list[i].name, routed ? " --router " : "out --replicas",
				       routed ? r->name : "");
	return AR_OK;
}

/* The rules that do not depend on the backend. */
enum ar_status run_options_check_early(const struct run_options *o, struct ar_err *err)
{
	const struct policy *p = policies[o->policy];
	const struct scope_rule rules[] = {
		{ RUN_USERS, o->arrival.loop == LOOP_USERS, "without --loop users", NULL },
		{ RUN_ANSWERS, o->arrival.loop != LOOP_OPEN, "with --loop open", NULL },
		{ POLICY_SETTINGS & ~p->can, false, "with policy ", p->name },
		{ POLICY_CHUNK_UNIT, o->limits.chunks != SCHED_CHUNKS_NONE,
		  "with --chunk-policy none", NULL },
	};

	return check_rules(o, rules, sizeof rules / sizeof *rules, err);
}

/* Refuse options of backends other than b.  Options with a scope are left to check_rules(). */
static enum ar_status check_others(const struct run_options *o, const struct backend *b,
				   struct ar_err *err)
{
	for (int i = 0; backends[i]; i++) {
		const struct opt_group *g = &o->group[RUN_GROUP_BACKEND + i];
		uint64_t given = backends[i] == b ? 0 : g->given | g->from_job;

		for (int k = 0; g->opts[k].name; k++)
			if (given & 1ull << k && !g->opts[k].scope)
				return no_effect(&g->opts[k], "with backend ", b->name, err);
	}
	return AR_OK;
}

/* Kernels keep the KV blocks of one engine. */
static enum ar_status check_replicas(const struct run_options *o, const struct backend *b,
				     struct ar_err *err)
{
	if ((o->replicas == 1 && !o->apart.prefill) || !b->needs_model ||
	    (b->modelled && !o->captures.n))
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "replicas %" PRId64 ": backend %s%s runs the kernels of one engine; take "
		       "--backend cost, or roofline without --capture",
		       o->replicas + o->apart.prefill, b->name,
		       b->modelled ? " with --capture" : "");
}

/* Refuse repeats that would be equal: nothing is measured, and no spread of the host is drawn. */
static enum ar_status check_repeats(const struct run_options *o, const struct backend *b,
				    struct ar_err *err)
{
	const bool measured = b->needs_model && o->clock != RUN_CLOCK_FORMULA;
	const bool host = strcmp(o->host, "auto") ? strcmp(o->host, "none") != 0 :
						    run_options_costs(o) != NULL;

	if (measured || (host && o->host_seed) || !opt_given(o->group, "repeats"))
		return AR_OK;
	return ar_fail(err, AR_USAGE, "repeats has no effect with %s%s; leave it out",
		       b->needs_model ? "--clock formula" : "backend ",
		       b->needs_model ? "" : b->name);
}

enum ar_status run_options_check(const struct run_options *o, const struct backend *b,
				 struct ar_err *err)
{
	bool cost = b == &backend_cost, costs = run_options_costs(o), kernels = b->needs_model;
	bool by_formula = o->clock == RUN_CLOCK_FORMULA;
	const struct scope_rule rules[] = {
		{ RUN_MODEL | RUN_COSTED | RUN_KERNELS, kernels || costs, "with backend ",
		  b->name },
		{ RUN_KERNELS, kernels, "with backend ", b->name },
		{ RUN_CAPTURE, !b->modelled || o->captures.n, "without --capture", NULL },
		{ RUN_DENSITY, b->modelled, "with backend ", b->name },
		{ RUN_DENSITY, !o->captures.n, "with --capture", NULL },
		{ RUN_FORMULA | RUN_CLOCK, !costs, "with --costs", NULL },
		{ RUN_GPU, b->uses_gpu, "with backend ", b->name },
		{ RUN_FORMULA | RUN_COSTS, cost || by_formula, "with --clock measured", NULL },
		{ RUN_COSTS, costs, "without --costs", NULL },
		{ RUN_CLOCK, !cost || by_formula, "as 'measured' with backend ", b->name },
		{ RUN_PREFIX_CACHE, o->limits.prefix_cache, "without --enable-prefix-caching",
		  NULL },
		{ RUN_REFERENCE, backend_compares(b), "with a backend that computes no reference",
		  NULL },
		{ RUN_WEIGHTS, o->weights, "without --weights", NULL },
		{ RUN_REPLAYED, !o->weights, "with --weights", NULL },
		{ RUN_DB, o->db, "without --db", NULL },
		{ RUN_MEASURED, !by_formula, "with --clock formula", NULL },
		{ RUN_TRACED, o->prof == RUN_PROF_ACTIVITY, "with --prof events", NULL },
	};
	enum ar_status st = check_others(o, b, err);

	if (!st)
		st = check_rules(o, rules, sizeof rules / sizeof *rules, err);
	if (!st)
		st = check_router(o, err);
	if (!st)
		st = check_replicas(o, b, err);
	if (!st)
		st = run_check_apart(o, err);
	if (!st)
		st = run_check_ranks(o, b, err);
	if (!st)
		st = run_check_experts(o, b, err);
	if (!st)
		st = run_check_stages(o, b, err);
	return st ? st : check_repeats(o, b, err);
}

/* ---- costs of an earlier run ---- */

static enum ar_status adopt(struct run_options *o, const struct costs *c, const char *name,
			    const cJSON *ours, const cJSON *theirs, struct ar_err *err)
{
	char a[32], b[32];
	const char *our = json_text(cJSON_GetObjectItemCaseSensitive(ours, name), a, sizeof a);
	const char *their = json_text(cJSON_GetObjectItemCaseSensitive(theirs, name), b, sizeof b);

	if (!c->run.model_name)
		their = NULL;
	else if (!strcmp(name, "method")) /* not its whole list of methods */
		their = c->run.method_name;
	if (c->dense_as && !strcmp(name, "dense-as-engine"))
		return AR_OK;
	if (!opt_given(o->group, name))
		return their ? opt_set(o->group, name, their, err) : AR_OK;
	if (our && their && !strcmp(our, their))
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "%s '%s' contradicts %s, whose costs were measured with "
		       "%s%s%s; leave it out",
		       name, our, c->name, their ? "'" : "none", their ? their : "",
		       their ? "'" : "");
}

enum ar_status run_options_adopt(struct run_options *o, const struct costs *c, struct ar_err *err)
{
	cJSON *ours = cJSON_CreateObject(), *theirs = cJSON_Parse(c->run.options);
	enum ar_status st = AR_OK;

	if (!ours || !theirs || !opt_json(o->group, ours))
		st = ar_nomem(err);
	for (const struct opt_group *g = o->group; g->opts; g++)
		for (const struct opt *x = g->opts; x->name && !st; x++)
			if (x->scope & RUN_COSTED)
				st = adopt(o, c, x->name, ours, theirs, err);
	if (!st)
		st = opt_set(o->group, "costs", c->name, err);
	cJSON_Delete(ours);
	cJSON_Delete(theirs);
	return st;
}

/* ---- options of a resumed command ---- */

static enum ar_status check_given(const struct run_options *o, struct ar_err *err)
{
	for (const struct opt_group *g = o->group; g->opts; g++)
		for (const struct opt *x = g->opts; x->name; x++)
			if ((g->given | g->from_job) & 1ull << (x - g->opts) &&
			    (!x->record_only || !strcmp(x->name, "db")))
				return ar_fail(err, AR_USAGE,
					       "with --resume, option '%s' comes from run %" PRId64
					       " of %s; leave it out",
					       x->name, o->resumed->run, o->resumed->db);
	return AR_OK;
}

/* A database may be from elsewhere, so it does not decide which code runs. */
static enum ar_status check_selectors(const struct run_options *o, const cJSON *stored,
				      struct ar_err *err)
{
	const char *file = cJSON_GetStringValue(
		cJSON_GetArrayItem(cJSON_GetObjectItemCaseSensitive(stored, "selector"), 0));

	if (!file || o->selectors.n)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "a selector is from a file, which is code, and only an option loads it: add "
		       "--selector %s",
		       file);
}

static enum ar_status take_stored(struct run_options *o, cJSON *stored, struct ar_err *err)
{
	/* These are set below, or each command has its own. */
	static const char *const own[] = { "resume", "db", "backend", "json", "selector" };
	const struct policy *p;
	enum ar_status st = check_selectors(o, stored, err);

	if (st)
		return st;
	for (size_t i = 0; i < sizeof own / sizeof *own; i++)
		cJSON_DeleteItemFromObjectCaseSensitive(stored, own[i]);
	/* Another watermark than the policy's own was given. */
	p = policy_find(cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(stored, "policy")));
	if (p)
		o->limits.watermark = p->watermark;
	st = opt_set_json(o->group, stored, err);
	if (!st)
		st = opt_set(o->group, "backend", o->resumed->backend, err);
	return st ? st : opt_set(o->group, "db", o->resumed->db, err);
}

enum ar_status run_options_resume(struct run_options *o, struct ar_err *err)
{
	enum ar_status st = check_given(o, err);
	cJSON *stored;

	if (st)
		return st;
	stored = json_parse_all(o->resumed->options, NULL);
	st = stored ? take_stored(o, stored, err) : ar_nomem(err);
	if (st)
		ar_err_prefix(err, "%s: run %" PRId64, o->resumed->db, o->resumed->run);
	cJSON_Delete(stored);
	return st;
}
