/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/gpu.h"
#include "base/number.h"
#include "model/layer_gap.h"
#include "replay/engine/evictions.h"
#include "replay/host/host_probe.h"
#include "traces/capture/random.h"

/* An evictor runs with a prefix cache. */
static enum ar_status check_evict_cache(const struct plan *p, const struct run_options *o,
					struct ar_err *err)
{
	const struct sched_limits *l = &o->limits;

	if (l->evict_cache == SCHED_EVICT_REFUSE)
		return ar_fail(err, AR_USAGE,
			       "method '%s': its evictor takes tokens out of the blocks that "
			       "requests share; say by --evict-cache whether it shall keep what is "
			       "cached or drop it, or leave out --enable-prefix-caching",
			       p->name);
	if (l->evict_cache == SCHED_EVICT_DROP && l->policy->radix_tree)
		return ar_fail(err, AR_USAGE,
			       "evict-cache=drop: the prefix cache of policy %s is a tree, from "
			       "which no request takes blocks; take keep",
			       l->policy->name);
	return AR_OK;
}

/* --evict-cache is for the evictor of one of the methods.  A point of a search or sweep has one
 * method of several. */
static enum ar_status check_evictors(const struct run_inputs *in, const struct run_session *s,
				     struct ar_err *err)
{
	bool any = in->cost_plan || s->point || !opt_given(s->o.group, "evict-cache");

	for (size_t i = 0; in->plan && i < in->n_methods; i++)
		any = any || plan_evict(in->plan[i]);
	if (any)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "evict-cache has no effect without an evictor; give a method one, as in "
		       "--evict streaming, or leave it out");
}

static enum ar_status load_methods(struct run_inputs *in, const struct run_options *o,
				   struct ar_err *err)
{
	size_t n = 0;
	enum ar_status st = method_split(o->methods, &in->method, &n, err);

	if (st)
		return st;
	in->n_methods = n;
	in->n_runs = n * (size_t)o->repeats;
	in->plan = calloc(in->n_runs, sizeof *in->plan);
	if (!in->plan)
		st = ar_nomem(err);
	for (size_t i = 0; i < in->n_runs && !st; i++)
		st = plan_parse(&in->plan[i], in->method[i % n], err);
	for (size_t i = 0; i < n && !st && o->limits.prefix_cache; i++)
		if (plan_evict(in->plan[i]))
			st = check_evict_cache(in->plan[i], o, err);
		else if (in->plan[i]->drop)
			st = ar_fail(
				err, AR_USAGE,
				"method '%s': its dropper keeps other tokens in each request, so "
				"requests cannot share KV blocks; leave out "
				"--enable-prefix-caching",
				in->plan[i]->name);
	return st;
}

/* A plan that does not fit the model fails before anything runs. */
static enum ar_status try_plans(const struct run_inputs *in, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < in->n_methods && !st; i++) {
		struct layer_plan l;

		st = plan_init(&l, in->plan[i], &in->model, err);
		plan_release(&l);
		if (!st)
			st = evictions_check(plan_evict(in->plan[i]), &in->model, err);
	}
	return st;
}

enum ar_status run_set_method(struct run *r, size_t i, const char *name, struct ar_err *err)
{
	struct layer_plan l;
	struct plan *p;
	enum ar_status st = plan_parse(&p, name, err);

	if (st)
		return st;
	st = plan_init(&l, p, &r->in.model, err);
	plan_release(&l);
	if (!st)
		st = run_try_method(r, name, err);
	if (st) {
		plan_free(p);
		return st;
	}
	plan_free(r->in.plan[i]);
	r->in.plan[i] = p;
	return AR_OK;
}

static enum ar_status load_dense_as(struct run_inputs *in, const struct run_options *o,
				    struct ar_err *err)
{
	return o->dense_as ? dense_as_load(&in->dense_as, o->dense_as, err) : AR_OK;
}

/* *c stays NULL if it is random: its length is known when the trace is. */
static enum ar_status load_capture(const struct run_options *o, const char *name,
				   struct capture **c, struct ar_err *err)
{
	uint64_t seed;
	enum ar_status st;

	if (!random_named(name))
		return capture_open(c, name, err);
	st = random_seed(name, &seed, err);
	if (!st && o->extend == RUN_EXTEND_TILE)
		st = ar_fail(
			err, AR_USAGE,
			"extend tile has no effect with %s, which has any length; leave it out",
			name);
	return st;
}

static enum ar_status load_captures(struct run_inputs *in, const struct run_session *s,
				    struct ar_err *err)
{
	enum ar_status st = AR_OK;
	size_t n = s->o.captures.n;

	if (s->o.weights)
		return run_load_weights(in, s, err);
	if (!n && s->backend && s->backend->modelled)
		return AR_OK;
	if (!n)
		return ar_fail(err, AR_USAGE,
			       "no capture given; name one with --capture FILE, replay random "
			       "values with --capture random:0, run a model itself with --weights "
			       "DIR, or replay without kernels with --backend cost");
	in->capture = calloc(n, sizeof *in->capture);
	if (!in->capture)
		return ar_nomem(err);
	for (; in->n_capture < n && !st; in->n_capture += !st)
		st = load_capture(&s->o, s->o.captures.v[in->n_capture],
				  &in->capture[in->n_capture], err);
	return st;
}

/* Make the random captures, as long as the longest request. */
static enum ar_status draw_captures(struct run_inputs *in, const struct run_options *o,
				    struct ar_err *err)
{
	const struct layer_spec *l = model_attention(&in->model);
	const struct capture_info shape = { .n_layers = in->model.n_layers,
					    .q_heads = l->q_heads,
					    .kv_heads = l->kv_heads,
					    .head_dim = l->head_dim,
					    .n_tok = run_longest_request(in) };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < in->n_capture && !st; i++)
		if (!in->capture[i])
			st = capture_random(&in->capture[i], o->captures.v[i], &shape, err);
	return st;
}

static enum ar_status check_stored(const struct model *m, const char *db, struct ar_err *err)
{
	size_t n = strlen(m->json);

	if (!db || n < STORE_TEXT_MAX)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "model %s: its config.json has %.1f MiB, but a database holds one of less "
		       "than %d MiB; leave --db out, or shorten the lists in the file",
		       m->name, (double)n / 0x1p20, STORE_TEXT_MAX >> 20);
}

static enum ar_status load_model(struct run_inputs *in, const struct run_session *s,
				 struct ar_err *err)
{
	enum ar_status st;

	if (!s->o.model && !s->o.weights)
		return ar_fail(err, AR_USAGE,
			       "no model given; name one with --model, or replay "
			       "without kernels with --backend cost");
	st = model_load_as(&in->model, s->o.model ? s->o.model : s->o.weights, s->o.as_model, err);
	if (st)
		return st;
	st = check_stored(&in->model, s->o.db, err);
	if (st)
		return st;
	in->whole_q_heads = model_attention(&in->model)->q_heads;
	in->whole_kv_heads = model_attention(&in->model)->kv_heads;
	in->memory.n_params = model_params(&in->model);
	if (!in->limits.max_len)
		in->limits.max_len = in->model.max_len;
	st = s->backend && s->backend->modelled ? AR_OK : model_check_gap(&in->model, err);
	if (!st)
		st = run_set_formats(&in->model, &s->o,
				     !s->backend || !s->backend->modelled || s->o.captures.n, err);
	/* auto is known when it is open; backend cuda checks again there. */
	if (!st && s->backend && s->backend->uses_gpu)
		st = prepare_check_kernels(&in->model, err);
	if (!st)
		st = run_spread_experts(&in->model, &s->o, err);
	if (!st)
		st = model_split(&in->model, (int)s->o.tp, err);
	if (!st)
		st = run_load_experts(in, s, &in->model, err);
	if (!st)
		st = run_set_stages(in, &s->o, &in->model, err);
	return st ? st : run_set_groups(in, &s->o, &in->model, err);
}

static enum ar_status prepare_inputs(struct run_inputs *in, const struct run_options *o,
				     struct ar_err *err)
{
	const struct capture_info **info;
	enum ar_status st;

	if (!in->n_capture)
		return prepare_all_layers(&in->prep, &in->model, err);
	info = malloc(in->n_capture * sizeof *info);
	if (!info)
		return ar_nomem(err);
	for (size_t i = 0; i < in->n_capture; i++)
		info[i] = capture_info(in->capture[i]);
	st = prepare_run(&in->prep,
			 &(struct prepare_in){ .trace = in->trace,
					       .limits = &in->limits,
					       .model = &in->model,
					       .whole_q_heads = in->whole_q_heads,
					       .whole_kv_heads = in->whole_kv_heads,
					       .info = info,
					       .n_capture = in->n_capture,
					       .layers = o->layers,
					       .sample_layers = o->sample_layers,
					       .tile = o->extend == RUN_EXTEND_TILE,
					       .seed = (uint64_t)o->seed },
			 err);
	free(info);
	return st;
}

/* Say whose kernels have the rates, and how far off they are. */
static void describe_rates(struct run_inputs *in, struct roofline_gpu *g, int rates)
{
	const struct roofline_engine *e = rates == ROOFLINE_RATES_ENGINE ?
						  roofline_gpu_take(g, in->limits.policy->name) :
						  NULL;
	const size_t size = sizeof in->rates;
	size_t n;

	if (!e) {
		snprintf(in->rates, size, "of the kernels here%s",
			 rates == ROOFLINE_RATES_ENGINE ? ": it has none of the policy's engine" :
							  "");
		return;
	}
	n = (size_t)snprintf(in->rates, size, "of %s's kernels", e->name);
	if (e->error > 0)
		snprintf(in->rates + n, size - n,
			 ", off by %.1f %% on average, by %.1f %% with experts", e->error,
			 e->error_experts);
}

/* A GPU or a density that backend roofline cannot use fails before anything runs. */
static enum ar_status try_roofline(struct run_inputs *in, const struct run_session *s,
				   struct ar_err *err)
{
	const struct roofline_options *o = run_options_of(&s->o, &backend_roofline);
	struct roofline_gpu g;
	enum ar_status st;

	if (s->backend != &backend_roofline)
		return AR_OK;
	st = roofline_gpu_load(&g, o->gpu, err);
	if (!st)
		describe_rates(in, &g, o->rates);
	return st ? st : roofline_check_density(o, in->plan, in->n_runs, s->o.captures.n, err);
}

/* The pool of the run with the costs, in tokens, where it is not the engine's. */
static void adopt_pool(struct run_inputs *in, struct run_options *o)
{
	const struct store_run *m = &in->costs->run;
	int64_t n = m->num_blocks * m->block_tok / in->limits.block_tok;

	if (in->limits.num_blocks || !m->gpu || o->engine_defaults != RUN_DEFAULTS_NONE)
		return;
	n = n < 2 ? 2 : n > UINT32_MAX ? UINT32_MAX : n;
	o->limits.num_blocks = in->limits.num_blocks = n;
}

/* Tokens leave the cache as they did in the measured run. */
static enum ar_status load_cost_plan(struct run_inputs *in, const struct run_options *o,
				     struct ar_err *err)
{
	const struct store_run *from = &in->costs->run;
	enum ar_status st;

	if (!from->method_params || !strstr(from->method_params, "\"evict\":"))
		return AR_OK;
	st = plan_parse(&in->cost_plan, from->method_name, err);
	return st || !o->limits.prefix_cache ? st : check_evict_cache(in->cost_plan, o, err);
}

/* Load --costs.  The measured run also supplies its model's length limit. */
static enum ar_status load_costs(struct run_inputs *in, struct run_options *o, struct ar_err *err)
{
	const char *name = run_options_costs(o);
	enum ar_status st;

	if (!name)
		return AR_OK;
	st = load_dense_as(in, o, err);
	in->costs = in->lent_costs;
	if (!st && !in->costs)
		st = costs_open_as(&in->costs, name, o->dense_as ? &in->dense_as : NULL, err);
	if (!st)
		st = run_options_adopt(o, in->costs, err);
	if (!st)
		st = run_set_cost_groups(in, o, err);
	if (!st)
		st = load_cost_plan(in, o, err);
	if (st)
		return st;
	if (!in->limits.max_len)
		in->limits.max_len = in->costs->max_len;
	adopt_pool(in, o);
	return AR_OK;
}

bool run_gpu_clock(const struct run_inputs *in, const struct run_session *s)
{
	return s->o.clock == RUN_CLOCK_MEASURED &&
	       (in->costs ? in->costs->run.gpu != NULL :
			    s->backend->uses_gpu || s->backend->modelled);
}

/* Collectives of rank m of a model that the host launches; 0 if they are left out. */
static int64_t launched_collectives(const struct run_inputs *in, const struct model *m)
{
	struct comm c = in->comm;

	if (!*in->comm_text || (in->comm_name && !strcmp(in->comm_name, "none")))
		return 0;
	comm_bind(&c, m, NULL, 0);
	return comm_launches(&c);
}

/* m: a rank of the model, whose layers have so many kernels. */
static void bind_host(struct run_inputs *in, const struct model *m, int64_t kernels)
{
	const int64_t collectives = launched_collectives(in, m);

	host_bind(&in->host, m->n_layers, kernels + collectives);
	in->host.ranks = collectives ? m->tp : 1;
}

/* Set the model whose layers the host launches and whose ranks have collectives: the run's own, or
 * that of --costs. */
static enum ar_status bind_model(struct run_inputs *in, const struct run_session *s,
				 struct ar_err *err)
{
	struct model m;
	enum ar_status st;
	int64_t kernels;

	if (run_needs_model(s)) {
		st = run_load_comm(in, s, &in->model, err);
		if (!st)
			bind_host(in, &in->model, host_kernels(&in->model));
		return st;
	}
	if (!in->costs || !in->costs->run.model_json)
		return AR_OK;
	st = model_parse(&m, in->costs->name, in->costs->run.model_json, err);
	if (st)
		return st;
	kernels = host_kernels(&m);
	st = model_split(&m, in->costs->run.tp, err);
	if (!st)
		st = run_load_experts(in, s, &m, err);
	if (!st)
		st = run_load_comm(in, s, &m, err);
	if (!st)
		bind_host(in, &m, kernels);
	model_release(&m);
	in->comm.model = NULL; /* which costs need not: they have no rows that are dropped */
	return st;
}

/* X of --host-speed; 0: it is a word. */
static double speed_number(const char *text)
{
	double x;

	return num_real(text, &x) && x >= 0.01 && x <= 100 ? x : 0;
}

/* A run on a GPU has this host, unless the command says otherwise. */
static bool has_this_host(const struct run_session *s)
{
	return !strcmp(s->o.host_speed, "probe") ||
	       (!strcmp(s->o.host_speed, "auto") && (!s->backend || s->backend->uses_gpu));
}

/* The GPU on which a probe of this host measures launches: the one where kernels run.  *exclusive
 * is set to whether one process at a time may use that GPU, if there is one. */
static int probed_gpu(const struct run_session *s, bool *exclusive)
{
	int64_t device = 0;
	struct gpu gpu;

	opt_get_int(s->o.group, "device", &device);
	if (s->world)
		device = world_device(s->world);
	if ((s->backend && !s->backend->uses_gpu) || gpu_ask((int)device, &gpu, NULL))
		return HOST_PROBE_NO_GPU;
	*exclusive = gpu.exclusive;
	return (int)device;
}

static enum ar_status measure_host(const struct run_session *s, struct probe *here,
				   struct ar_err *err)
{
	bool unused;

	return host_probe_apart(here, probed_gpu(s, &unused), err);
}

/* Let in->host take as long as this one. */
static enum ar_status probe_host(struct run_inputs *in, const struct run_session *s,
				 struct ar_err *err)
{
	struct probe here;
	enum ar_status st = measure_host(s, &here, err);

	if (st)
		return st;
	in->host_scale = probe_ratio(&in->host.probe, &here);
	in->host_probed = in->host_scale > 0;
	if (!in->host_probed && !strcmp(s->o.host_speed, "probe"))
		return ar_fail(err, AR_DATA,
			       "%s: the file has no probe of its host to compare with; give "
			       "--host-speed a number",
			       in->host.name);
	return AR_OK;
}

static enum ar_status set_speed(struct run_inputs *in, const struct run_session *s,
				struct ar_err *err)
{
	const double x = speed_number(s->o.host_speed);
	enum ar_status st = AR_OK;

	in->host_scale = x > 0 ? 1 / x : 0;
	in->host_probed = false;
	if (!strcmp(in->host.name, "none"))
		return AR_OK;
	if (has_this_host(s) && !(s->world && world_rank(s->world))) /* see run_share_host() */
		st = probe_host(in, s, err);
	if (in->host_scale > 0)
		host_scale(&in->host, in->host_scale);
	return st;
}

static enum ar_status set_http(struct run_inputs *in, const struct run_session *s,
			       struct ar_err *err)
{
	if (!host_has_http(&in->host) && opt_given(s->o.group, "host-http"))
		return ar_fail(err, AR_USAGE,
			       "host-http has no effect: host %s has no times of HTTP; leave it "
			       "out",
			       in->host.name);
	for (int i = HOST_HTTP; i <= HOST_HTTP_SEND_REQ && !s->o.host_http; i++)
		in->host.ns[i] = 0;
	return AR_OK;
}

enum ar_status run_load_host(struct run_inputs *in, const struct run_session *s, struct ar_err *err)
{
	const char *preset = in->limits.policy->host, *name = s->o.host;
	int64_t max_captured = backend_max_captured(s->backend, s->self);
	enum ar_status st;

	if (!strcmp(name, "auto"))
		name = preset && run_gpu_clock(in, s) ? preset : "none";
	st = host_load_file(&in->host, name, err);
	if (!st)
		st = set_speed(in, s, err);
	if (!st)
		st = set_http(in, s, err);
	if (!s->o.host_seed)
		memset(in->host.spread, 0, sizeof in->host.spread);
	if (!st)
		st = bind_model(in, s, err);
	if (max_captured >= 0)
		in->host.max_captured = max_captured;
	in->host.ns[HOST_SCHEDULE] = num_add(in->host.ns[HOST_SCHEDULE], s->o.host_fixed_ns);
	in->host.ns[HOST_SCHEDULE_REQ] = num_add(in->host.ns[HOST_SCHEDULE_REQ],
						 s->o.host_per_request_ns);
	in->host.ns[HOST_PREPARE_TOK] = num_add(in->host.ns[HOST_PREPARE_TOK],
						s->o.host_per_tok_ns);
	return st;
}

/* A bad file fails before anything runs. */
static enum ar_status try_host(const struct run_session *s, struct ar_err *err)
{
	const struct run_options *o = &s->o;
	const char *speed = o->host_speed;
	struct host unused;
	enum ar_status st = AR_OK;

	if (!speed_number(speed) && strcmp(speed, "auto") != 0 && strcmp(speed, "probe") != 0 &&
	    strcmp(speed, "preset") != 0)
		return ar_fail(err, AR_USAGE,
			       "host-speed '%s': want probe, preset, or a number from 0.01 to 100",
			       speed);
	if (!strcmp(o->host, "none") && opt_given(o->group, "host-speed"))
		return ar_fail(err, AR_USAGE,
			       "host-speed has no effect with --host none; leave it out");
	if (strcmp(o->host, "auto") != 0)
		st = host_load_file(&unused, o->host, err);
	return st;
}

/* Begin to measure the host while this process is without CUDA and a profiler.  Methods that run in
 * other processes share the result, so wait for it then.  Otherwise the backend says when launches
 * may be measured: see host_probe_take(). */
static enum ar_status probe_early(const struct run *r, struct ar_err *err)
{
	const struct run_session *s = &r->session;
	bool exclusive = false;
	struct probe here;
	enum ar_status st;
	int device;

	if (!strcmp(s->o.host, "none") || !has_this_host(s))
		return AR_OK;
	device = probed_gpu(s, &exclusive);
	host_probe_begin(device);
	if (run_has_one_process(r) && !exclusive && !s->match)
		return AR_OK;
	st = host_probe_apart(&here, device, err);
	if (exclusive)
		host_probe_leave();
	return st;
}

/* Load the inputs of kernels, except inputs that depend on the trace. */
static enum ar_status load_kernels(struct run_inputs *in, const struct run_session *s,
				   struct ar_err *err)
{
	enum ar_status st = load_methods(in, &s->o, err);

	if (!st)
		st = try_roofline(in, s, err);
	if (!st)
		st = load_dense_as(in, &s->o, err);
	if (!st)
		st = load_model(in, s, err);
	if (!st)
		st = try_plans(in, err);
	return st ? st : load_captures(in, s, err);
}

/* Refuse to change think times that the trace does not have. */
static enum ar_status check_think(const struct run_options *o, const struct trace *t,
				  struct ar_err *err)
{
	const char *given = opt_given(o->group, "think-cap")   ? "think-cap" :
			    opt_given(o->group, "think-scale") ? "think-scale" :
								 NULL;
	bool has = false;

	for (size_t i = 0; i < t->n && !has; i++)
		has = t->req[i].session >= 0 && t->req[i].think_ns >= 0;
	return has || !given ? AR_OK :
			       ar_fail(err, AR_USAGE,
				       "%s has no effect: %s has no think times; leave it out",
				       given, t->name);
}

/* Refuse requests for replicas that the run has not. */
static enum ar_status check_pins(const struct run_options *o, const struct trace *t,
				 struct ar_err *err)
{
	const int64_t n = o->apart.prefill ? o->apart.prefill : o->replicas;

	for (size_t i = 0; i < t->n; i++)
		if (t->req[i].replica > n)
			return ar_fail(err, AR_DATA,
				       "%s:%" PRIu64 ": the request is for replica %u, but the run "
				       "has replicas 0 to %" PRId64 "; give more with --replicas",
				       t->name, t->req[i].line, t->req[i].replica - 1, n - 1);
	return AR_OK;
}

static enum ar_status load_trace(struct run_inputs *in, const struct run_options *o,
				 struct ar_err *err)
{
	struct trace_args args = o->trace_args;
	enum ar_status st = AR_OK;

	/* Users who take another session begin it with its first request. */
	args.start_first = o->arrival.loop == LOOP_USERS ? o->arrival.users : 0;
	in->trace = in->lent_trace;
	if (!in->trace)
		st = trace_read(&in->trace, o->trace, &args, err);
	if (!st && o->arrival.loop == LOOP_SESSIONS && !in->trace->n_session)
		st = ar_fail(err, AR_USAGE,
			     "%s: the trace has no sessions; replay it with --loop open or users",
			     in->trace->name);
	if (!st && o->arrival.loop == LOOP_USERS && o->trace_args.session_starts &&
	    strcmp(o->trace_args.session_starts, "zero") != 0)
		st = ar_fail(err, AR_USAGE,
			     "session-starts has no effect with --loop users, which start at once; "
			     "leave it out, or say zero");
	if (!st)
		st = check_think(o, in->trace, err);
	return st ? st : check_pins(o, in->trace, err);
}

/* Where no prompt is cut, an iteration must have room for the longest: vLLM 0.33.0,
 * config/scheduler.py, verify_max_model_len(). */
static enum ar_status fit_whole_prompts(struct run_inputs *in, const struct run_options *o,
					struct ar_err *err)
{
	struct sched_limits *l = &in->limits;
	int64_t longest = l->max_len ? l->max_len : run_longest_request(in);

	if (o->chunked || l->max_batched_tok >= longest)
		return AR_OK;
	if (opt_given(o->group, "max-num-batched-tokens"))
		return ar_fail(err, AR_USAGE,
			       "max-num-batched-tokens %" PRId64 ": without chunked prefill it "
			       "is at least the most tokens of a request, %" PRId64
			       "; raise it, or lower --max-model-len",
			       l->max_batched_tok, longest);
	l->max_batched_tok = longest;
	return AR_OK;
}

/* Load all, in an order in which a mistake is found early. */
static enum ar_status load_all(struct run *r, struct ar_err *err)
{
	struct run_inputs *in = &r->in;
	struct run_session *s = &r->session;
	const bool kernels = run_needs_model(s);
	enum ar_status st = try_host(s, err);

	if (!st)
		st = load_costs(in, &s->o, err);
	if (!st)
		st = run_try_comm(in, s, err);
	if (!st)
		st = run_try_experts(s, err);
	if (!st && kernels)
		st = load_kernels(in, s, err);
	if (!st)
		st = check_evictors(in, s, err);
	if (!st && s->backend && !s->backend->uses_gpu)
		st = run_plan_memory(in, s, err);
	if (!st)
		st = load_trace(in, &s->o, err);
	if (!st)
		st = fit_whole_prompts(in, &s->o, err);
	if (!st && s->o.resumed)
		st = resume_check(r, err);
	if (!st)
		st = run_load_tokens(in, s, err);
	if (!st && kernels)
		st = draw_captures(in, &s->o, err);
	if (!st && kernels)
		st = prepare_inputs(in, &s->o, err);
	if (!st)
		st = probe_early(r, err);
	if (!st && s->match)
		st = s->tuner->tune(s->match, r, err);
	return st;
}

/* NULL: auto.  Ranks must know it before any of them has asked for a GPU. */
static const struct backend *find_backend(const struct run_options *o)
{
	const struct backend *b = backend_find(o->backend), *cuda = backend_find("cuda");

	if (o->ranks == RUN_RANKS_ONE || strcmp(o->backend, "auto") != 0)
		return b;
	return cuda ? cuda : backend_find("cpu");
}

enum ar_status run_load(struct run *r, struct ar_err *err)
{
	struct run_inputs *in = &r->in;
	struct run_session *s = &r->session;
	enum ar_status st = AR_OK;

	in->limits = s->o.limits;
	in->limits.async = in->limits.async && s->o.pp == 1;
	s->backend = find_backend(&s->o);
	in->n_methods = 1;
	in->n_runs = (size_t)s->o.repeats;
	if (s->backend)
		st = run_options_check(&s->o, s->backend, err);
	if (!st)
		st = run_find_rank(s, err);
	if (!st && s->tuner && s->o.match)
		st = s->tuner->open(&s->match, s->o.match, err);
	if (!st)
		st = load_all(r, err);
	for (size_t i = 0; i < in->n_capture && !st && !s->point; i++)
		capture_warn(capture_info(in->capture[i]), in->model.name);
	if (!st && !s->point)
		model_warn(&in->model);
	if (!st)
		run_warn_rank(r);
	while (!st && !run_is_left(&s->o, s->first))
		s->first++;
	if (s->o.resumed && !s->o.limits.num_blocks)
		in->limits.num_blocks = s->o.resumed->num_blocks;
	return st;
}

static void unload_methods(struct run_inputs *in)
{
	for (size_t i = 0; in->plan && i < in->n_runs; i++)
		plan_free(in->plan[i]);
	plan_free(in->cost_plan);
	free(in->plan);
	for (size_t i = 0; in->method && i < in->n_methods; i++)
		free(in->method[i]);
	free(in->method);
}

static void unload_inputs(struct run_inputs *in)
{
	if (!in->lent_costs)
		costs_close(in->costs);
	prepared_release(&in->prep);
	if (!in->lent_trace)
		trace_free(in->trace);
	for (size_t i = 0; i < in->n_capture; i++)
		capture_close(in->capture[i]);
	free(in->capture);
	run_unload_weights(in);
	comm_table_release(&in->comm_table);
	experts_close(in->experts);
	model_groups_release(&in->groups);
	model_release(&in->model);
	unload_methods(in);
}

void run_unload(struct run *r)
{
	struct run_session *s = &r->session;

	prof_close(s->prof);
	tokens_close(s->tokens);
	if (s->match)
		s->tuner->close(s->match);
	unload_inputs(&r->in);
	key_inputs_release(&s->keys);
	free(s->options);
	free(s->defaults);
	free(s->setup);
	free(s->cmdline);
	free(s->id_file);
	run_options_release(&s->o);
}
