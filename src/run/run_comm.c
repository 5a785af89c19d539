/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of a run, as --comm says. */
#include "config.h"
#include "src/run/run.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "replay/cost/comm_preset.h"

bool run_comm_is_word(const char *comm)
{
	return !strcmp(comm, "auto") || !strcmp(comm, "model") || !strcmp(comm, "none");
}

/* tp: ranks of an engine. */
static enum ar_status load_table(struct run_inputs *in, const struct run_options *o,
				 const char *name, int64_t tp, struct ar_err *err)
{
	const enum expert_way way = o->ep_backend;
	int ranks[COMM_N_OPS] = { 0 };
	char path[PATH_MAX];

	if (tp > 1)
		ranks[COMM_REDUCE] = ranks[COMM_GATHER] = (int)tp;
	if (run_shares_experts(o))
		ranks[comm_experts_op(way, false)] = ranks[comm_experts_op(way, true)] = (int)o->ep;
	if (o->pp > 1)
		ranks[COMM_SEND] = 2;
	comm_table_release(&in->comm_table);
	return comm_table_load(&in->comm_table,
			       comm_preset_find(name, path, sizeof path) ? path : name, ranks, err);
}

enum ar_status run_try_comm(struct run_inputs *in, const struct run_session *s, struct ar_err *err)
{
	const struct run_options *o = &s->o;
	const bool any = o->tp > 1 || run_shares_experts(o) || o->pp > 1;
	const char *without = !any ? "--tp 1" : o->attention_only ? "--attention-only" : NULL;

	if (!opt_given(o->group, "comm"))
		return AR_OK;
	if (without)
		return ar_fail(err, AR_USAGE, "comm has no effect with %s; leave it out", without);
	return run_comm_is_word(o->comm) ? AR_OK : load_table(in, o, o->comm, o->tp, err);
}

/* Find the preset of a real GPU by its name.  Cards for PCIe have another link. */
static enum ar_status load_real(struct roofline_gpu *g, const char *device, struct ar_err *err)
{
	*g = (struct roofline_gpu){ 0 };
	snprintf(g->name, sizeof g->name, "%.63s", device);
	if (strcasestr(device, "PCIe") || strstr(device, " NVL"))
		return AR_OK;
	for (int i = 0; roofline_gpu_names[i]; i++)
		if (strcasestr(device, roofline_gpu_names[i]))
			return roofline_gpu_load(g, roofline_gpu_names[i], err);
	return AR_OK;
}

/* The GPU whose times are the clock. */
static enum ar_status load_gpu(struct roofline_gpu *g, const struct run_inputs *in,
			       const struct run_session *s, struct ar_err *err)
{
	const struct roofline_options *roof = run_options_of(&s->o, &backend_roofline);
	enum ar_status st;

	if (!s->backend->modelled)
		return load_real(
			g, in->costs ? in->costs->gpu.name : backend_gpu(s->backend, s->self)->name,
			err);
	st = roofline_gpu_load(g, roof->gpu, err);
	if (!st && roof->rates == ROOFLINE_RATES_ENGINE)
		roofline_gpu_take(g, in->limits.policy->name);
	return st;
}

static void use_table(struct run_inputs *in, const char *name)
{
	in->comm.table = &in->comm_table;
	in->comm_name = name;
	if (comm_ranks(&in->comm) > 1)
		snprintf(in->comm_text, sizeof in->comm_text, "of %d ranks, measured: %s",
			 comm_ranks(&in->comm), name);
	else
		snprintf(in->comm_text, sizeof in->comm_text, "between stages, measured: %s", name);
}

static enum ar_status use_ring(struct run_inputs *in, const struct roofline_gpu *g,
			       struct ar_err *err)
{
	const size_t size = sizeof in->comm_text;
	int n;

	if (!(g->link_gbps > 0))
		return ar_fail(err, AR_USAGE,
			       "the link between GPUs of %s is not known, so collectives cannot be "
			       "modelled; give a table with --comm FILE, or leave them out with "
			       "--comm none",
			       g->name);
	in->comm.ring = g->ring;
	in->comm.gbps = g->link_gbps;
	in->comm_name = "model";
	n = comm_ranks(&in->comm) > 1 ?
		    snprintf(in->comm_text, size, "a ring of %d ranks", comm_ranks(&in->comm)) :
		    snprintf(in->comm_text, size, "between stages");
	snprintf(in->comm_text + n, size - (size_t)n,
		 " over %s, %g GB/s a way: modelled, not measured", g->link, g->link_gbps);
	return AR_OK;
}

/* The preset with the collectives that the engine runs on the GPU.  NULL: there is none. */
static const char *find_preset(const struct run_inputs *in, const struct run_session *s,
			       const struct roofline_gpu *g)
{
	const struct roofline_options *roof = run_options_of(&s->o, &backend_roofline);
	const bool own = s->backend->modelled && roof->rates != ROOFLINE_RATES_ENGINE;

	return comm_preset_of(g->name, own ? NULL : in->limits.policy->name);
}

/* Those of a preset where it has as many ranks, else those of a ring. */
static enum ar_status use_default(struct run_inputs *in, const struct run_session *s,
				  struct ar_err *err)
{
	const char *name = NULL;
	struct roofline_gpu g;
	enum ar_status st = load_gpu(&g, in, s, err);

	if (st)
		return st;
	if (!strcmp(s->o.comm, "auto"))
		name = find_preset(in, s, &g);
	if (name)
		st = load_table(in, &s->o, name, in->comm.ranks, err);
	if (name && !st)
		use_table(in, name);
	return name && st != AR_USAGE ? st : use_ring(in, &g, err);
}

/* Whether the costs of a run on a GPU have its collectives.  Runs of older versions have none. */
static bool has_comm(const struct costs *c)
{
	cJSON *options = cJSON_Parse(c->run.options);
	const char *comm = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(options, "comm"));
	const bool has = comm && strcmp(comm, "none") != 0;

	cJSON_Delete(options);
	return has;
}

/* Leave them to the costs, which have them. */
static enum ar_status leave_to_costs(struct run_inputs *in, const struct run_session *s,
				     struct ar_err *err)
{
	if (opt_given(s->o.group, "comm"))
		return ar_fail(err, AR_USAGE,
			       "comm has no effect: the costs of %s have collectives; leave it "
			       "out",
			       in->costs->name);
	in->comm_name = "costs";
	snprintf(in->comm_text, sizeof in->comm_text, "those in the run with the costs");
	return AR_OK;
}

/* They run. */
static enum ar_status leave_to_ranks(struct run_inputs *in, const struct run_session *s,
				     const struct model *m, struct ar_err *err)
{
	char version[16];

	if (opt_given(s->o.group, "comm"))
		return ar_fail(
			err, AR_USAGE,
			"comm has no effect with --ranks local or env, whose collectives run; "
			"leave it out");
	snprintf(in->comm_text, sizeof in->comm_text, "of %d ranks, by NCCL %s: part of the times",
		 m->tp, nccl_version_text(world_nccl(s->world)->version, version));
	return AR_OK;
}

enum ar_status run_load_comm(struct run_inputs *in, const struct run_session *s,
			     const struct model *m, struct ar_err *err)
{
	const char *comm = s->o.comm;
	const int ranks = run_shares_experts(&s->o) ? (int)s->o.ep : m->tp;

	in->comm = (struct comm){ .ranks = 1 };
	*in->comm_text = 0;
	in->comm_name = NULL;
	if ((ranks == 1 && s->o.pp == 1) || s->o.attention_only)
		return AR_OK;
	if (!run_gpu_clock(in, s))
		return strcmp(comm, "auto") ?
			       ar_fail(err, AR_USAGE,
				       "comm has no effect where no GPU is the clock; leave it "
				       "out") :
			       AR_OK;
	if (s->world && s->backend->uses_gpu)
		return leave_to_ranks(in, s, m, err);
	if (in->costs && m->tp > 1 && has_comm(in->costs))
		return leave_to_costs(in, s, err);
	if (!strcmp(comm, "none")) {
		in->comm_name = "none";
		if (ranks > 1)
			snprintf(
				in->comm_text, sizeof in->comm_text,
				"none: those of %d ranks are left out, so iterations are too short",
				ranks);
		else
			snprintf(in->comm_text, sizeof in->comm_text,
				 "none: stages send in no time");
		return AR_OK;
	}
	if (run_shares_experts(&s->o))
		in->comm.experts = (struct comm_experts){ .experts = in->experts,
							  .way = s->o.ep_backend,
							  .ranks = ranks };
	in->stages.comm = s->o.pp > 1 ? &in->comm : NULL;
	comm_bind(&in->comm, m, in->prep.run_layer, in->prep.n_run_layers);
	if (run_comm_is_word(comm))
		return use_default(in, s, err);
	use_table(in, comm);
	return AR_OK;
}
