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
	enum ar_status st = method_split(r->o.methods, &r->method, &n, err);

	if (st)
		return st;
	r->n_methods = n;
	r->n_runs = n * (size_t)r->o.repeats;
	r->plan = calloc(r->n_runs, sizeof *r->plan);
	if (!r->plan)
		st = ar_nomem(err);
	for (size_t i = 0; i < r->n_runs && !st; i++)
		st = plan_parse(&r->plan[i], r->method[i % n], err);
	for (size_t i = 0; i < n && !st && r->o.limits.prefix_cache; i++)
		if (r->plan[i]->drop)
			st = ar_fail(
				err, AR_USAGE,
				"method '%s': its dropper keeps other tokens in each request, so "
				"requests cannot share KV blocks; leave out "
				"--enable-prefix-caching",
				r->plan[i]->name);
	return st;
}

/* A plan that does not fit the model fails before anything runs. */
static enum ar_status try_plans(const struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < r->n_methods && !st; i++) {
		struct layer_plan l;

		st = plan_init(&l, r->plan[i], &r->model, err);
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
	st = plan_init(&l, p, &r->model, err);
	plan_release(&l);
	if (!st)
		st = run_try_method(r, name, err);
	if (st) {
		plan_free(p);
		return st;
	}
	plan_free(r->plan[i]);
	r->plan[i] = p;
	return AR_OK;
}

/* A run with --costs has the costs of a run that loaded this. */
static enum ar_status load_dense_as(struct run *r, struct ar_err *err)
{
	return r->o.dense_as ? dense_as_load(&r->dense_as, r->o.dense_as, err) : AR_OK;
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
	if (!st && r->o.extend == RUN_EXTEND_TILE)
		st = ar_fail(
			err, AR_USAGE,
			"extend tile has no effect with %s, which has any length; leave it out",
			name);
	return st;
}

static enum ar_status load_captures(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	size_t n = r->o.captures.n;

	if (r->o.weights)
		return run_load_weights(r, err);
	if (!n && r->backend && r->backend->modelled)
		return AR_OK;
	if (!n)
		return ar_fail(err, AR_USAGE,
			       "no capture given; name one with --capture FILE, replay random "
			       "values with --capture random:0, run a model itself with --weights "
			       "DIR, or replay without kernels with --backend cost");
	r->capture = calloc(n, sizeof *r->capture);
	if (!r->capture)
		return ar_nomem(err);
	for (; r->n_capture < n && !st; r->n_capture += !st)
		st = load_capture(r, r->o.captures.v[r->n_capture], &r->capture[r->n_capture], err);
	return st;
}

/* Make the random captures, as long as the longest request. */
static enum ar_status draw_captures(struct run *r, struct ar_err *err)
{
	const struct layer_spec *l = model_attention(&r->model);
	const struct capture_info shape = { .n_layers = r->model.n_layers,
					    .q_heads = l->q_heads,
					    .kv_heads = l->kv_heads,
					    .head_dim = l->head_dim,
					    .n_tok = run_longest_request(r) };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < r->n_capture && !st; i++)
		if (!r->capture[i])
			st = capture_random(&r->capture[i], r->o.captures.v[i], &shape, err);
	return st;
}

static enum ar_status load_model(struct run *r, struct ar_err *err)
{
	enum ar_status st;

	if (!r->o.model && !r->o.weights)
		return ar_fail(err, AR_USAGE,
			       "no model given; name one with --model, or replay "
			       "without kernels with --backend cost");
	st = model_load(&r->model, r->o.model ? r->o.model : r->o.weights, err);
	if (st)
		return st;
	r->whole_q_heads = model_attention(&r->model)->q_heads;
	r->whole_kv_heads = model_attention(&r->model)->kv_heads;
	if (!r->limits.max_len)
		r->limits.max_len = r->model.max_len;
	/* auto is known when it is open; backend cuda checks again there. */
	st = r->backend && r->backend->uses_gpu ? prepare_check_kernels(&r->model, err) : AR_OK;
	if (!st)
		st = model_split(&r->model, (int)r->o.tp, err);
	return st ? st : run_set_groups(r, &r->model, err);
}

static enum ar_status prepare(struct run *r, struct ar_err *err)
{
	const struct capture_info **info;
	enum ar_status st;

	if (!r->n_capture)
		return prepare_all_layers(&r->prep, &r->model, err);
	info = malloc(r->n_capture * sizeof *info);
	if (!info)
		return ar_nomem(err);
	for (size_t i = 0; i < r->n_capture; i++)
		info[i] = capture_info(r->capture[i]);
	st = prepare_run(&r->prep,
			 &(struct prepare_in){ .trace = r->trace,
					       .limits = &r->limits,
					       .model = &r->model,
					       .whole_q_heads = r->whole_q_heads,
					       .whole_kv_heads = r->whole_kv_heads,
					       .info = info,
					       .n_capture = r->n_capture,
					       .layers = r->o.layers,
					       .sample_layers = r->o.sample_layers,
					       .tile = r->o.extend == RUN_EXTEND_TILE,
					       .seed = (uint64_t)r->o.seed },
			 err);
	free(info);
	return st;
}

/* A GPU or a density that backend roofline cannot use fails before anything runs. */
static enum ar_status try_roofline(const struct run *r, struct ar_err *err)
{
	const struct roofline_options *o = run_options_of(&r->o, &backend_roofline);
	struct roofline_gpu unused;
	enum ar_status st;

	if (r->backend != &backend_roofline)
		return AR_OK;
	st = roofline_gpu_load(&unused, o->gpu, err);
	return st ? st : roofline_check_density(o, r->plan, r->n_runs, r->o.captures.n, err);
}

/* Load --costs.  The measured run also supplies its model's length limit and, if it had a GPU, the
 * size of its KV pool in tokens. */
static enum ar_status load_costs(struct run *r, struct ar_err *err)
{
	const struct cost_options *o = run_options_of(&r->o, &backend_cost);
	const struct store_run *m;
	enum ar_status st;

	if (!o->costs)
		return AR_OK;
	r->costs = r->lent_costs;
	st = r->costs ? AR_OK : costs_open(&r->costs, o->costs, err);
	if (!st)
		st = run_options_adopt(&r->o, r->costs, err);
	if (!st)
		st = run_set_cost_groups(r, err);
	if (st)
		return st;
	m = &r->costs->run;
	if (!r->limits.max_len)
		r->limits.max_len = r->costs->max_len;
	if (!r->limits.num_blocks && m->gpu) {
		int64_t n = m->num_blocks * m->block_tok / r->limits.block_tok;

		r->o.limits.num_blocks = r->limits.num_blocks = n < 2	       ? 2 :
								n > UINT32_MAX ? UINT32_MAX :
										 n;
	}
	return AR_OK;
}

/* The times of a GPU move the clock: measured now, or in the run that --costs names, or modelled. */
static bool gpu_clock(const struct run *r)
{
	return r->o.clock == RUN_CLOCK_MEASURED &&
	       (r->costs ? r->costs->run.gpu != NULL :
			   r->backend->uses_gpu || r->backend->modelled);
}

/* Set the model whose layers the host launches: the run's own, or that of --costs. */
static enum ar_status bind_host(struct run *r, struct ar_err *err)
{
	struct model m;
	enum ar_status st;

	if (run_needs_model(r)) {
		host_bind(&r->host, r->model.n_layers, host_kernels(&r->model));
		return AR_OK;
	}
	if (!r->costs || !r->costs->run.model_json)
		return AR_OK;
	st = model_parse(&m, r->costs->name, r->costs->run.model_json, err);
	if (st)
		return st;
	host_bind(&r->host, m.n_layers, host_kernels(&m));
	model_release(&m);
	return AR_OK;
}

enum ar_status run_load_host(struct run *r, struct ar_err *err)
{
	const char *preset = r->limits.policy->host, *name = r->o.host;
	enum ar_status st;

	if (!strcmp(name, "auto"))
		name = preset && gpu_clock(r) ? preset : "none";
	st = host_load_file(&r->host, name, err);
	if (!r->o.host_seed)
		memset(r->host.spread, 0, sizeof r->host.spread);
	if (!st)
		st = bind_host(r, err);
	if (r->backend->max_captured)
		r->host.max_captured = r->backend->max_captured(r->self);
	r->host.ns[HOST_SCHEDULE] = num_add(r->host.ns[HOST_SCHEDULE], r->o.host_fixed_ns);
	r->host.ns[HOST_SCHEDULE_REQ] = num_add(r->host.ns[HOST_SCHEDULE_REQ],
						r->o.host_per_request_ns);
	r->host.ns[HOST_PREPARE_TOK] = num_add(r->host.ns[HOST_PREPARE_TOK], r->o.host_per_tok_ns);
	return st;
}

/* A bad file fails before anything runs. */
static enum ar_status try_host(const struct run *r, struct ar_err *err)
{
	struct host unused;

	return strcmp(r->o.host, "auto") ? host_load_file(&unused, r->o.host, err) : AR_OK;
}

enum ar_status run_load(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	r->limits = r->o.limits;
	r->backend = backend_find(r->o.backend);
	r->n_methods = 1;
	r->n_runs = (size_t)r->o.repeats;
	if (r->backend)
		st = run_options_check(&r->o, r->backend, err);
	if (!st && r->tuner && r->o.match)
		st = r->tuner->open(&r->match, r->o.match, err);
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
	r->trace = r->lent_trace;
	if (!st && !r->trace)
		st = trace_read(&r->trace, r->o.trace, &r->o.trace_args, err);
	if (!st && r->o.arrival.loop == LOOP_SESSIONS && !r->trace->n_session)
		st = ar_fail(err, AR_USAGE,
			     "%s: the trace has no sessions; replay it with --loop "
			     "open or users",
			     r->trace->name);
	if (!st && r->o.resumed)
		st = resume_check(r, err);
	if (!st)
		st = run_open_tokens(r, err); /* a prompt that is wrong fails now */
	if (!st && run_needs_model(r))
		st = draw_captures(r, err);
	if (!st && run_needs_model(r))
		st = prepare(r, err);
	if (!st && r->match)
		st = r->tuner->tune(r->match, r, err);
	for (size_t i = 0; i < r->n_capture && !st && !r->point; i++)
		capture_warn(capture_info(r->capture[i]), r->model.name);
	if (!st)
		run_warn_rank(r);
	while (!st && !run_is_left(r, r->first))
		r->first++;
	if (r->o.resumed && !r->o.limits.num_blocks)
		r->limits.num_blocks = r->o.resumed->num_blocks;
	return st;
}

void run_unload(struct run *r)
{
	prof_close(r->prof);
	if (!r->lent_costs)
		costs_close(r->costs);
	prepared_release(&r->prep);
	if (r->match)
		r->tuner->close(r->match);
	if (!r->lent_trace)
		trace_free(r->trace);
	for (size_t i = 0; i < r->n_capture; i++)
		capture_close(r->capture[i]);
	free(r->capture);
	run_unload_weights(r);
	model_groups_release(&r->groups);
	model_release(&r->model);
	for (size_t i = 0; r->plan && i < r->n_runs; i++)
		plan_free(r->plan[i]);
	free(r->plan);
	for (size_t i = 0; r->method && i < r->n_methods; i++)
		free(r->method[i]);
	free(r->method);
	key_inputs_release(&r->inputs);
	free(r->options);
	free(r->setup);
	free(r->cmdline);
	run_options_release(&r->o);
}
