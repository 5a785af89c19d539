/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "traces/capture/random.h"

static enum ar_status load_methods(struct run *r, struct ar_err *err)
{
	size_t n = 0;
	enum ar_status st = method_split(r->session.o.methods, &r->in.method, &n, err);

	if (st)
		return st;
	r->in.n_methods = n;
	r->in.n_runs = n * (size_t)r->session.o.repeats;
	r->in.plan = calloc(r->in.n_runs, sizeof *r->in.plan);
	if (!r->in.plan)
		st = ar_nomem(err);
	for (size_t i = 0; i < r->in.n_runs && !st; i++)
		st = plan_parse(&r->in.plan[i], r->in.method[i % n], err);
	for (size_t i = 0; i < n && !st && r->session.o.limits.prefix_cache; i++)
		if (r->in.plan[i]->drop)
			st = ar_fail(
				err, AR_USAGE,
				"method '%s': its dropper keeps other tokens in each request, so "
				"requests cannot share KV blocks; leave out "
				"--enable-prefix-caching",
				r->in.plan[i]->name);
	return st;
}

/* A plan that does not fit the model fails before anything runs. */
static enum ar_status try_plans(const struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < r->in.n_methods && !st; i++) {
		struct layer_plan l;

		st = plan_init(&l, r->in.plan[i], &r->in.model, err);
		plan_release(&l);
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

/* A run with --costs has the costs of a run that loaded this. */
static enum ar_status load_dense_as(struct run *r, struct ar_err *err)
{
	return r->session.o.dense_as ? dense_as_load(&r->in.dense_as, r->session.o.dense_as, err) :
				       AR_OK;
}

/* *c stays NULL if it is random: its length is known when the trace is. */
static enum ar_status load_capture(const struct run *r, const char *name, struct capture **c,
				   struct ar_err *err)
{
	uint64_t seed;
	enum ar_status st;

	if (!random_named(name))
		return capture_open(c, name, err);
	st = random_seed(name, &seed, err);
	if (!st && r->session.o.extend == RUN_EXTEND_TILE)
		st = ar_fail(
			err, AR_USAGE,
			"extend tile has no effect with %s, which has any length; leave it out",
			name);
	return st;
}

static enum ar_status load_captures(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	size_t n = r->session.o.captures.n;

	if (r->session.o.weights)
		return run_load_weights(r, err);
	if (!n && r->session.backend && r->session.backend->modelled)
		return AR_OK;
	if (!n)
		return ar_fail(err, AR_USAGE,
			       "no capture given; name one with --capture FILE, replay random "
			       "values with --capture random:0, run a model itself with --weights "
			       "DIR, or replay without kernels with --backend cost");
	r->in.capture = calloc(n, sizeof *r->in.capture);
	if (!r->in.capture)
		return ar_nomem(err);
	for (; r->in.n_capture < n && !st; r->in.n_capture += !st)
		st = load_capture(r, r->session.o.captures.v[r->in.n_capture],
				  &r->in.capture[r->in.n_capture], err);
	return st;
}

/* Make the random captures, as long as the longest request. */
static enum ar_status draw_captures(struct run *r, struct ar_err *err)
{
	const struct layer_spec *l = model_attention(&r->in.model);
	const struct capture_info shape = { .n_layers = r->in.model.n_layers,
					    .q_heads = l->q_heads,
					    .kv_heads = l->kv_heads,
					    .head_dim = l->head_dim,
					    .n_tok = run_longest_request(r) };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < r->in.n_capture && !st; i++)
		if (!r->in.capture[i])
			st = capture_random(&r->in.capture[i], r->session.o.captures.v[i], &shape,
					    err);
	return st;
}

static enum ar_status load_model(struct run *r, struct ar_err *err)
{
	enum ar_status st;

	if (!r->session.o.model && !r->session.o.weights)
		return ar_fail(err, AR_USAGE,
			       "no model given; name one with --model, or replay "
			       "without kernels with --backend cost");
	st = model_load(&r->in.model,
			r->session.o.model ? r->session.o.model : r->session.o.weights, err);
	if (st)
		return st;
	r->in.whole_q_heads = model_attention(&r->in.model)->q_heads;
	r->in.whole_kv_heads = model_attention(&r->in.model)->kv_heads;
	if (!r->in.limits.max_len)
		r->in.limits.max_len = r->in.model.max_len;
	/* auto is known when it is open; backend cuda checks again there. */
	st = r->session.backend && r->session.backend->uses_gpu ?
		     prepare_check_kernels(&r->in.model, err) :
		     AR_OK;
	if (!st)
		st = model_split(&r->in.model, (int)r->session.o.tp, err);
	return st ? st : run_set_groups(r, &r->in.model, err);
}

static enum ar_status prepare(struct run *r, struct ar_err *err)
{
	const struct capture_info **info;
	enum ar_status st;

	if (!r->in.n_capture)
		return prepare_all_layers(&r->in.prep, &r->in.model, err);
	info = malloc(r->in.n_capture * sizeof *info);
	if (!info)
		return ar_nomem(err);
	for (size_t i = 0; i < r->in.n_capture; i++)
		info[i] = capture_info(r->in.capture[i]);
	st = prepare_run(&r->in.prep,
			 &(struct prepare_in){ .trace = r->in.trace,
					       .limits = &r->in.limits,
					       .model = &r->in.model,
					       .whole_q_heads = r->in.whole_q_heads,
					       .whole_kv_heads = r->in.whole_kv_heads,
					       .info = info,
					       .n_capture = r->in.n_capture,
					       .layers = r->session.o.layers,
					       .sample_layers = r->session.o.sample_layers,
					       .tile = r->session.o.extend == RUN_EXTEND_TILE,
					       .seed = (uint64_t)r->session.o.seed },
			 err);
	free(info);
	return st;
}

/* A GPU or a density that backend roofline cannot use fails before anything runs. */
static enum ar_status try_roofline(const struct run *r, struct ar_err *err)
{
	const struct roofline_options *o = run_options_of(&r->session.o, &backend_roofline);
	struct roofline_gpu unused;
	enum ar_status st;

	if (r->session.backend != &backend_roofline)
		return AR_OK;
	st = roofline_gpu_load(&unused, o->gpu, err);
	return st ? st :
		    roofline_check_density(o, r->in.plan, r->in.n_runs, r->session.o.captures.n,
					   err);
}

/* Load --costs.  The measured run also supplies its model's length limit and, if it had a GPU, the
 * size of its KV pool in tokens. */
static enum ar_status load_costs(struct run *r, struct ar_err *err)
{
	const struct cost_options *o = run_options_of(&r->session.o, &backend_cost);
	const struct store_run *m;
	enum ar_status st;

	if (!o->costs)
		return AR_OK;
	r->in.costs = r->in.lent_costs;
	st = r->in.costs ? AR_OK : costs_open(&r->in.costs, o->costs, err);
	if (!st)
		st = run_options_adopt(&r->session.o, r->in.costs, err);
	if (!st)
		st = run_set_cost_groups(r, err);
	if (st)
		return st;
	m = &r->in.costs->run;
	if (!r->in.limits.max_len)
		r->in.limits.max_len = r->in.costs->max_len;
	if (!r->in.limits.num_blocks && m->gpu) {
		int64_t n = m->num_blocks * m->block_tok / r->in.limits.block_tok;

		r->session.o.limits.num_blocks = r->in.limits.num_blocks = n < 2 ? 2 :
									   n > UINT32_MAX ?
										   UINT32_MAX :
										   n;
	}
	return AR_OK;
}

/* The times of a GPU move the clock: measured now, or in the run that --costs names, or modelled. */
static bool gpu_clock(const struct run *r)
{
	return r->session.o.clock == RUN_CLOCK_MEASURED &&
	       (r->in.costs ? r->in.costs->run.gpu != NULL :
			      r->session.backend->uses_gpu || r->session.backend->modelled);
}

/* Set the model whose layers the host launches: the run's own, or that of --costs. */
static enum ar_status bind_host(struct run *r, struct ar_err *err)
{
	struct model m;
	enum ar_status st;

	if (run_needs_model(r)) {
		host_bind(&r->in.host, r->in.model.n_layers, host_kernels(&r->in.model));
		return AR_OK;
	}
	if (!r->in.costs || !r->in.costs->run.model_json)
		return AR_OK;
	st = model_parse(&m, r->in.costs->name, r->in.costs->run.model_json, err);
	if (st)
		return st;
	host_bind(&r->in.host, m.n_layers, host_kernels(&m));
	model_release(&m);
	return AR_OK;
}

enum ar_status run_load_host(struct run *r, struct ar_err *err)
{
	const char *preset = r->in.limits.policy->host, *name = r->session.o.host;
	enum ar_status st;

	if (!strcmp(name, "auto"))
		name = preset && gpu_clock(r) ? preset : "none";
	st = host_load_file(&r->in.host, name, err);
	if (!r->session.o.host_seed)
		memset(r->in.host.spread, 0, sizeof r->in.host.spread);
	if (!st)
		st = bind_host(r, err);
	if (r->session.backend->max_captured)
		r->in.host.max_captured = r->session.backend->max_captured(r->session.self);
	r->in.host.ns[HOST_SCHEDULE] = num_add(r->in.host.ns[HOST_SCHEDULE],
					       r->session.o.host_fixed_ns);
	r->in.host.ns[HOST_SCHEDULE_REQ] = num_add(r->in.host.ns[HOST_SCHEDULE_REQ],
						   r->session.o.host_per_request_ns);
	r->in.host.ns[HOST_PREPARE_TOK] = num_add(r->in.host.ns[HOST_PREPARE_TOK],
						  r->session.o.host_per_tok_ns);
	return st;
}

/* A bad file fails before anything runs. */
static enum ar_status try_host(const struct run *r, struct ar_err *err)
{
	struct host unused;

	return strcmp(r->session.o.host, "auto") ? host_load_file(&unused, r->session.o.host, err) :
						   AR_OK;
}

enum ar_status run_load(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	r->in.limits = r->session.o.limits;
	r->session.backend = backend_find(r->session.o.backend);
	r->in.n_methods = 1;
	r->in.n_runs = (size_t)r->session.o.repeats;
	if (r->session.backend)
		st = run_options_check(&r->session.o, r->session.backend, err);
	if (!st && r->session.tuner && r->session.o.match)
		st = r->session.tuner->open(&r->session.match, r->session.o.match, err);
	if (!st)
		st = try_host(r, err);
	if (!st)
		st = load_costs(r, err);
	if (!st && run_needs_model(r))
		st = load_methods(r, err);
	if (!st)
		st = try_roofline(r, err);
	if (!st && run_needs_model(r))
		st = load_dense_as(r, err);
	if (!st && run_needs_model(r))
		st = load_model(r, err);
	if (!st && run_needs_model(r))
		st = try_plans(r, err);
	if (!st && run_needs_model(r))
		st = load_captures(r, err);
	r->in.trace = r->in.lent_trace;
	if (!st && !r->in.trace)
		st = trace_read(&r->in.trace, r->session.o.trace, &r->session.o.trace_args, err);
	if (!st && r->session.o.arrival.loop == LOOP_SESSIONS && !r->in.trace->n_session)
		st = ar_fail(err, AR_USAGE,
			     "%s: the trace has no sessions; replay it with --loop "
			     "open or users",
			     r->in.trace->name);
	if (!st && r->session.o.resumed)
		st = resume_check(r, err);
	if (!st)
		st = run_open_tokens(r, err); /* a prompt that is wrong fails now */
	if (!st && run_needs_model(r))
		st = draw_captures(r, err);
	if (!st && run_needs_model(r))
		st = prepare(r, err);
	if (!st && r->session.match)
		st = r->session.tuner->tune(r->session.match, r, err);
	for (size_t i = 0; i < r->in.n_capture && !st && !r->session.point; i++)
		capture_warn(capture_info(r->in.capture[i]), r->in.model.name);
	if (!st)
		run_warn_rank(r);
	while (!st && !run_is_left(r, r->session.first))
		r->session.first++;
	if (r->session.o.resumed && !r->session.o.limits.num_blocks)
		r->in.limits.num_blocks = r->session.o.resumed->num_blocks;
	return st;
}

void run_unload(struct run *r)
{
	prof_close(r->session.prof);
	if (!r->in.lent_costs)
		costs_close(r->in.costs);
	prepared_release(&r->in.prep);
	if (r->session.match)
		r->session.tuner->close(r->session.match);
	if (!r->in.lent_trace)
		trace_free(r->in.trace);
	for (size_t i = 0; i < r->in.n_capture; i++)
		capture_close(r->in.capture[i]);
	free(r->in.capture);
	run_unload_weights(r);
	model_groups_release(&r->in.groups);
	model_release(&r->in.model);
	for (size_t i = 0; r->in.plan && i < r->in.n_runs; i++)
		plan_free(r->in.plan[i]);
	free(r->in.plan);
	for (size_t i = 0; r->in.method && i < r->in.n_methods; i++)
		free(r->in.method[i]);
	free(r->in.method);
	key_inputs_release(&r->session.keys);
	free(r->session.options);
	free(r->session.setup);
	free(r->session.cmdline);
	run_options_release(&r->session.o);
}
