/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "profiler/store/store_disk.h"
#include "replay/cost/backend_cost.h"
#include "replay/engine/attn_engine.h"
#include "replay/engine/record.h"
#include "src/revision.h"
#include "src/run/replicates.h"
#include "src/run/workers.h"

enum ar_status run_open_prof(struct run_session *s, const struct backend *b, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (b->uses_gpu && s->o.prof == RUN_PROF_ACTIVITY && !s->prof)
		st = prof_open(&s->prof, &s->no_prof);
	if (!st || st == AR_NODEV)
		return AR_OK;
	*err = s->no_prof;
	return st;
}

/* Open the CUPTI session first: it must precede the first CUDA call of the process.  Without it
 * CUDA events are the clock. */
static enum ar_status open_as(struct run_session *s, const struct backend *b, struct ar_err *err)
{
	enum ar_status st = run_open_prof(s, b, err);

	if (st)
		return st;
	s->env.prof = b->uses_gpu ? s->prof : NULL;
	st = backend_open(b, &s->self, run_options_of(&s->o, b), &s->env, err);
	if (!st && !s->env.prof && s->no_prof.status)
		log_warn("%s; CUDA events are the clock and no kernels are stored", s->no_prof.msg);
	return st;
}

/* auto: cuda, or cpu where this program or this machine has no CUDA. */
static enum ar_status open_auto(struct run_session *s, struct ar_err *err)
{
	const struct backend *cuda = backend_find("cuda"), *cpu = backend_find("cpu");
	enum ar_status st = AR_NODEV;

	if (cuda) {
		st = open_as(s, cuda, err);
		if (!st)
			s->backend = cuda;
		if (st != AR_NODEV)
			return st;
		prof_close(s->prof);
		s->prof = NULL;
	}
	if (!cpu)
		return ar_fail(err, AR_NODEV,
			       "this program has no backend that runs kernels; use "
			       "--backend cost");
	/* Times of a CPU say nothing about a GPU, so -q does not hide this line. */
	log_line(LOG_INFO, "%s; using backend cpu",
		 cuda ? err->msg : "this program was built without CUDA");
	s->backend = cpu;
	return open_as(s, cpu, err);
}

static void set_env(const struct run_inputs *in, struct run_session *s, struct plan *p)
{
	s->env = (struct backend_env){ .trace = in->trace,
				       .max_batched_tok = in->limits.max_batched_tok,
				       .max_seqs = in->limits.max_seqs,
				       .max_captured = run_most_captured(&s->o),
				       .max_len = run_longest_request(in),
				       .num_blocks = s->o.limits.num_blocks,
				       .block_tok = in->limits.block_tok,
				       .memory_share = s->o.memory_share,
				       .blocks = &s->blocks,
				       .seed = (uint64_t)s->o.seed,
				       .costs = in->costs,
				       .policy = in->limits.policy->name,
				       .world = s->world };
	if (!run_needs_model(s))
		return;
	s->env.model = &in->model;
	s->env.capture = in->capture;
	s->env.n_capture = in->n_capture;
	s->env.capture_of = in->prep.capture_of;
	s->env.captured_layer = in->prep.captured_layer;
	s->env.run_layer = in->prep.run_layer;
	s->env.n_run_layers = in->prep.n_run_layers;
	s->env.weights = s->o.weights ? &in->weights : NULL;
	s->env.tokens = s->tokens;
	s->env.tile = s->o.extend == RUN_EXTEND_TILE;
	s->env.plan = p;
	s->env.evict = plan_evict(p);
	s->env.page_tok = s->o.page_size ? selector_block_tok(s->o.page_size - 1) : 0;
	s->env.attention_only = s->o.attention_only;
	s->env.experts = run_draws_experts(s) ? in->experts : NULL;
}

void run_attach(struct run *r, size_t i)
{
	struct run_session *s = &r->session;
	const struct backend *b = s->backend;
	struct ar_err later; /* open() says it */

	if (!b || !b->attach || run_open_prof(s, b, &later))
		return;
	set_env(&r->in, s, r->in.plan ? r->in.plan[i] : NULL);
	s->env.prof = s->prof;
	b->attach(run_options_of(&s->o, b), &s->env);
}

/* Requests that share pages list them together: those of the largest requests, each by itself. */
static enum ar_status count_listed(const struct run_inputs *in, struct run_session *s,
				   struct ar_err *err)
{
	struct sched_limits l = in->limits;

	if (!run_needs_model(s) || !l.prefix_cache || !l.share_pages)
		return AR_OK;
	l.num_blocks = 0;
	return sched_ample_blocks(in->trace, &l, &s->env.listed_blocks, err);
}

static enum ar_status open_backend(const struct run_inputs *in, struct run_session *s,
				   struct plan *p, struct ar_err *err)
{
	bool settled = s->backend;
	enum ar_status st;

	set_env(in, s, p);
	st = count_listed(in, s, err);
	if (st)
		return st;
	st = settled ? open_as(s, s->backend, err) : open_auto(s, err);
	if (!st && !settled)
		st = run_options_check(&s->o, s->backend, err);
	if (!st && s->o.dense_as && s->backend->uses_gpu && !s->prof)
		st = ar_fail(err, AR_USAGE,
			     "dense-as-engine has no effect without the times of kernels; leave it "
			     "out, or make CUPTI usable");
	return st;
}

/* Blocks for a run whose pool is not given: what fits a real GPU; what an engine would have on a
 * modelled one; else what the trace can use. */
static enum ar_status auto_blocks(const struct run_inputs *in, const struct run_session *s,
				  int64_t *n, struct ar_err *err)
{
	struct sched_limits l = in->limits;

	*n = backend_fit_blocks(s->backend, s->self);
	if (*n != BACKEND_ANY_BLOCKS)
		return AR_OK;
	*n = in->memory.engine.num_blocks;
	l.num_blocks = 0;
	return *n ? AR_OK : sched_ample_blocks(in->trace, &l, n, err);
}

/* All methods use the pool of the first, so that their schedules can be compared.  A method with
 * less room on a real GPU shrinks the pool for itself and for later ones. */
static enum ar_status size_pool(struct run_inputs *in, const struct run_session *s,
				struct ar_err *err)
{
	const int64_t had = in->limits.num_blocks;
	enum ar_status st;
	int64_t n;

	if (s->o.limits.num_blocks || (had && !s->backend->uses_gpu))
		return AR_OK;
	st = auto_blocks(in, s, &n, err);
	if (st)
		return st;
	if (s->backend->uses_gpu && in->n_runs > 1 && !had)
		n -= n / 100; /* a reserve: later methods may keep more beside the cache */
	if (n < 2)
		return run_no_room(in, err);
	if (had && n < had)
		log_warn("method '%s' leaves room for %" PRId64 " KV blocks, not %" PRId64
			 "; its schedule and later ones may differ from those before",
			 s->env.plan->name, n, had);
	if (!had || n < had)
		in->limits.num_blocks = n;
	return AR_OK;
}

/* Set *n to the number of blocks to allocate: the scheduler's pool.  Without shared pages a backend
 * stores a block once for each request that shares it.  So with a prefix cache it then gets room
 * for the largest requests that can run together: at most what fits the device, and at least the
 * pool.  Of a pool that was not asked for it gets no more than these requests need or, with shared
 * pages, all requests: to allocate the rest and to free it takes a tenth of a second.  The pool of
 * a GPU stays as it is if there are more requests than blocks_pages() has spare pages for, or if an
 * evictor takes more. */
static enum ar_status physical_blocks(const struct run_inputs *in, const struct run_session *s,
				      int64_t *n, struct ar_err *err)
{
	const int64_t fit = backend_fit_blocks(s->backend, s->self);
	struct sched_limits l = in->limits;
	const bool few = (int64_t)in->trace->n <= l.max_seqs && !l.evict;
	const bool less = !s->o.limits.num_blocks && (fit == BACKEND_ANY_BLOCKS || few);
	enum ar_status st;
	int64_t ample;

	*n = l.num_blocks;
	l.prefix_cache &= !l.share_pages;
	if (!l.prefix_cache && !less)
		return AR_OK;
	if (in->limits.prefix_cache && l.share_pages)
		l.max_seqs = (int64_t)in->trace->n;
	st = sched_ample_blocks(in->trace, &l, &ample, err);
	if (!st && (less ? l.prefix_cache || ample < *n : ample > *n))
		*n = ample < fit ? ample : fit;
	if (*n < l.num_blocks && !less)
		*n = l.num_blocks;
	return st;
}

/* Copy model, method and GPU from the run the costs came from. */
static void record_costs(struct store_run *s, const struct store_run *from)
{
	s->model_name = from->model_name;
	s->model_json = from->model_json;
	s->n_layers = from->n_layers;
	s->hidden = from->hidden;
	s->q_heads = from->q_heads;
	s->kv_heads = from->kv_heads;
	s->head_dim = from->head_dim;
	s->tp = from->tp;
	s->method_name = from->method_name;
	s->method_params = from->method_params;
	s->dense = from->dense;
	s->layers_run = from->layers_run;
	s->gpu = from->gpu;
}

/* The captures of the run.  The caller frees them; NULL: no memory. */
static struct store_capture *record_captures(const struct run_inputs *in)
{
	struct store_capture *c = calloc(in->n_capture + 1, sizeof *c);

	for (size_t i = 0; c && i < in->n_capture; i++) {
		const struct capture_info *info = capture_info(in->capture[i]);

		c[i] = (struct store_capture){
			.row = { .name = info->name,
				 .sha256 = info->sha256,
				 .model = info->model,
				 .n_tokens = info->n_tok,
				 .n_layers = info->n_layers,
				 .q_heads = info->q_heads,
				 .kv_heads = info->kv_heads,
				 .head_dim = info->head_dim },
			.origin = capture_origin_names[capture_origin(info, in->model.name)]
		};
	}
	return c;
}

static struct store_memory record_memory(const struct run_inputs *in)
{
	const struct run_memory *m = &in->memory;

	if (!m->n_params)
		return (struct store_memory){ 0 };
	return (struct store_memory){ .n_params = m->n_params,
				      .weight_bytes = m->weight_bytes,
				      .block_bytes = m->block_bytes,
				      .pool_tokens = run_pool_tokens(in),
				      .gpu_bytes = m->gpu_bytes,
				      .gpu_share = m->gpu_bytes ? m->share : 0 };
}

static struct run_key key_of(const struct run_inputs *in, const struct run_session *s, size_t i)
{
	const struct store_gpu *gpu = s->self ? backend_gpu(s->backend, s->self) : NULL;

	return (struct run_key){ .o = &s->o,
				 .backend = s->backend ? s->backend->name : s->o.backend,
				 .method = in->method ? in->method[i % in->n_methods] : NULL,
				 .repeat = i / in->n_methods,
				 .device = gpu ? gpu->name : NULL,
				 .version = AR_REVISION,
				 .trace_sha256 = in->trace->sha256 };
}

enum ar_status run_make_key(const struct run_inputs *in, struct run_session *s, size_t i,
			    char key[RUN_KEY_SIZE], struct ar_err *err)
{
	const struct run_key k = key_of(in, s, i);

	return run_key(key, &k, &s->keys, err);
}

enum ar_status run_make_lines(const struct run_inputs *in, struct run_session *s, size_t i,
			      char **text, struct ar_err *err)
{
	const struct run_key k = key_of(in, s, i);

	return run_key_lines(text, &k, &s->keys, err);
}

static enum ar_status begin_record(struct run *r, size_t i, const struct plan *p,
				   struct ar_err *err)
{
	const struct run_inputs *in = &r->in;
	struct run_session *s = &r->session;
	bool kernels = s->backend->needs_model;
	const struct layer_spec *heads = kernels ? model_attention(&in->model) : NULL;
	/* clang-format off */
	struct store_run row = {
		.trace_name = in->trace->name, .trace_sha256 = in->trace->sha256,
		.trace_format = in->trace->format, .n_requests = (int64_t)in->trace->n,
		.policy = in->limits.policy->name, .backend = s->backend->name,
		.seed = (uint64_t)s->o.seed, .version = AR_REVISION, .cmdline = s->cmdline,
		.options = s->options, .setup = s->setup, .clock = run_clock_name(s),
		.num_blocks = in->limits.num_blocks, .block_tok = in->limits.block_tok,
		.pid = s->pid, .command_utc_ns = s->command_utc_ns,
		.method_no = (int64_t)(i % in->n_methods),
		.repeat_no = (int64_t)(i / in->n_methods), .n_capture = in->n_capture };
	struct store_capture *capture;
	char *params = NULL, nccl[512];
	enum ar_status st;

	if (!s->store)
		return AR_OK;
	st = run_make_key(in, s, i, r->out.key, err);
	if (st)
		return st;
	row.run_key = r->out.key;
	row.engine_defaults = s->defaults;
	row.rates = *in->rates ? in->rates : NULL;
	row.host = *in->host.about ? in->host.about : NULL;
	row.nccl = run_nccl_text(s, nccl);
	row.comm = in->comm_name;
	row.barrier_spread_ns = s->barrier.p50_ns;
	row.barrier_p99_ns = s->barrier.p99_ns;
	if (kernels) {
		row.model_name = in->model.name;
		row.model_json = in->model.json;
		row.n_layers = in->model.n_layers;
		row.hidden = in->model.hidden;
		row.q_heads = heads->q_heads;
		row.kv_heads = heads->kv_heads;
		row.head_dim = heads->head_dim;
		row.tp = in->model.tp;
		row.method_name = p->name;
		row.method_params = params = run_params(&in->model, p);
		row.dense = p->dense;
		row.layers_run = in->prep.n_run_layers;
	}
	/* clang-format on */
	row.gpu = backend_gpu(s->backend, s->self);
	if (in->costs)
		record_costs(&row, &in->costs->run);
	row.gpu_state = run_gpu_state(s);
	row.memory = record_memory(in);
	if (s->prof)
		row.cupti_api = prof_api_version(s->prof);
	row.capture = capture = record_captures(in);
	st = capture && (params || !kernels) ?
		     store_run_begin(s->store, &row, &r->out.run_id, err) :
		     ar_nomem(err);
	free(capture);
	free(params);
	return st ? st : run_put_ranks(s, err);
}

/* Store how the run ended.  A failure of the run itself is reported before a failure to store
 * it. */
static enum ar_status end_record(struct run *r, const struct replay_result *res, enum ar_status st,
				 struct ar_err *err)
{
	const char *status = !st ? "done" : st == AR_INTERRUPTED ? "aborted" : "failed";
	const struct store_counts counts = { res->kv_refilled, res->evict_waits };
	enum ar_status st2;

	if (!r->session.store)
		return st;
	st2 = run_put_groups(&r->in, r->session.store, res, st ? NULL : err);
	if (!st2)
		st2 = run_put_layers(r, st ? NULL : err);
	if (!st2)
		st2 = run_put_turns(&r->in, r->session.store, st ? NULL : err);
	if (!st2)
		st2 = run_put_hot(r, &res->hot, res->hot_layer, st ? NULL : err);
	if (!st2 && r->out.energy.ns)
		st2 = store_energy(r->session.store, &r->out.energy, st ? NULL : err);
	if (!st2)
		st2 = store_run_end(r->session.store, status,
				    r->session.prof ? prof_loss(r->session.prof) : NULL,
				    st ? NULL : &counts, st ? NULL : err);
	return st ? st : st2;
}

/* Tell the watch that run i has ended.  Returns st, or the watch's status if st is AR_OK. */
static enum ar_status end_watch(const struct run_session *s, size_t i,
				const struct replay_result *res, enum ar_status st,
				struct ar_err *err)
{
	enum ar_status st2 = AR_OK;

	if (s->watch && !s->muted)
		st2 = s->watch->end(s->watch->ctx, i, res, s->store, st ? NULL : err);
	return st ? st : st2;
}

/* The head of the progress line. */
static void set_title(const struct run *r, size_t i, char *title, size_t n)
{
	if (r->session.point)
		snprintf(title, n, "%s, %s", run_label(r, i), r->session.point);
	else
		snprintf(title, n, "method %zu of %zu, %s", i + 1, r->in.n_runs, run_label(r, i));
}

static bool has_ended(enum ar_status st)
{
	return !st || st == AR_INTERRUPTED;
}

/* Store, print and keep the results of the run.  st: how it ended; a later failure does not hide
 * it. */
static enum ar_status end_method(struct run *r, size_t i, const struct plan *p,
				 const struct replay_result *res, enum ar_status st,
				 struct ar_err *err)
{
	const bool ended = has_ended(st);
	enum ar_status st2 = AR_OK;

	if (ended)
		st = end_watch(&r->session, i, res, st, err);
	st = end_record(r, res, st, err);
	if (ended && r->session.print & RUN_PRINT_RESULT)
		st2 = run_print_rest(r, i, res, st ? NULL : err);
	if (ended)
		r->out.figures = run_figures(r->in.trace, &r->session.o.objectives, res);
	if (!st && !st2)
		st2 = run_json_put(r, i, p, res, err);
	return st ? st : st2;
}

/* The cost that advances the clock.  *d: gets the factors of --dense-as-engine, if they do. */
static struct cost run_cost(const struct run *r, const struct plan *p, struct dense_as_run *d)
{
	const struct run_inputs *in = &r->in;
	const struct run_options *o = &r->session.o;
	const struct cost_options *cost = run_options_of(o, &backend_cost);
	const struct dense_as_curve one = { 1, { { 1, 1 } } };

	if (o->clock == RUN_CLOCK_FORMULA)
		return cost_by_formula(&cost->formula);
	if (!p || !o->dense_as)
		return (struct cost){ 0 };
	*d = (struct dense_as_run){ in->dense_as, in->host.n_layers, in->prep.n_run_layers, 0 };
	for (int i = 0; i < in->prep.n_run_layers; i++)
		d->n_walk_layers += in->model.layer[in->prep.run_layer[i]].mixer == MIX_FULL;
	if (p->drop || !plan_dense_rows(p, ROW_PREFILL)) {
		d->factors.prefill = one;
		d->factors.mixed.prefill = 1;
	}
	if (!plan_dense_rows(p, ROW_DECODE)) { /* they have a launch of their own */
		d->factors.decode = one;
		d->factors.has_mixed = false;
	}
	return cost_dense_as(d);
}

/* The share of decodes to compare: dense ones have no error. */
static double share_of_decodes(const struct run_options *o, const struct plan *p)
{
	if (o->accuracy_decode >= 0)
		return o->accuracy_decode;
	return p && !plan_dense_decodes(p) ? o->accuracy : 0;
}

/* Fill in the configuration of a replay of method i.  It points to title, dense_as and observer. */
static struct replay replay_config(struct run *r, size_t i, const struct plan *p, const char *title,
				   struct dense_as_run *dense_as, const struct observer *observer)
{
	const struct run_inputs *in = &r->in;
	const struct run_session *s = &r->session;

	return (struct replay){ .title = title,
				.trace = in->trace,
				.arrival = s->o.arrival,
				.front = s->o.front,
				.route = run_options_route(&s->o),
				.apart = in->apart,
				.share_experts = run_shares_experts(&s->o),
				.stages = in->stages,
				.limits = in->limits,
				.backend = s->backend,
				.self = s->self,
				.cost = run_cost(r, p, dense_as),
				.comm = comm_ranks(&in->comm) > 1 ? &in->comm : NULL,
				.world = s->world,
				.host = in->host,
				.host_seed = rng_mix((uint64_t)s->o.host_seed) +
					     rng_mix(i / in->n_methods),
				.observer = s->store ? observer : NULL,
				.rejects_known = s->point && !(s->print & RUN_PRINT_HEADER),
				.accuracy = s->o.accuracy,
				.accuracy_decode = share_of_decodes(&s->o, p),
				.hot_size = s->o.hot_size,
				.n_hot_size = p && !plan_dense_decodes(p) ? s->o.n_hot_size : 0,
				.seed = (uint64_t)s->o.seed,
				.weights = s->o.weights,
				.run_layer = in->prep.run_layer,
				.n_run_layers = in->prep.n_run_layers,
				.model = &in->model,
				.q_heads = p ? model_attention(&in->model)->q_heads : 0,
				.kv_heads = p ? model_attention(&in->model)->kv_heads : 0,
				.whole_kv_heads = in->whole_kv_heads };
}

static enum ar_status replay_method(struct run *r, size_t i, const struct plan *p,
				    struct ar_err *err)
{
	struct run_session *s = &r->session;
	const int kept = s->o.keep_tables;
	struct dense_as_run dense_as;
	char title[96];
	struct recorder recorder = { .store = s->store,
				     .iterations = kept >= RUN_KEPT_ITERATIONS,
				     .entries = kept >= RUN_KEPT_ENTRIES && s->o.keep_entries,
				     .phases = kept >= RUN_KEPT_PHASES && s->backend->needs_model,
				     .kernels = s->o.keep_kernels };
	const struct observer record = recorder_observer(&recorder);
	struct collector collector = { 0 };
	struct observer observer;
	struct replay cfg = replay_config(r, i, p, title, &dense_as, &observer);
	struct run_wall *wall = &r->out.wall;
	struct replay_result res;
	enum ar_status st = collector_open(&collector, r, &record, &observer, err);

	if (!st)
		st = begin_record(r, i, p, err);
	if (st) {
		collector_release(&collector);
		return st;
	}
	set_title(r, i, title, sizeof title);
	cfg.limits.blocks = s->blocks.n ? &s->blocks : NULL;
	run_set_limits(&cfg, &s->o.objectives);
	if (s->watch && !s->muted)
		s->watch->begin(s->watch->ctx, i);
	run_energy_begin(s, &r->out.energy);
	wall->replay_ns = workers_now_ns();
	st = replay_run(&cfg, &res, err);
	wall->replay_ns = workers_now_ns() - wall->replay_ns;
	run_leave_ranks(s, st);
	cfg.world = NULL; /* resamples are replayed by one rank */
	run_energy_end(s, &r->out.energy);
	run_tell_replayed(s);
	recorder_release(&recorder);
	if (has_ended(st) && s->print & RUN_PRINT_RESULT)
		run_print_latencies(r, i, run_label(r, i), &res); /* replicates take longer */
	wall->replicates_ns = workers_now_ns();
	if (!st)
		st = replicates_put(r, &cfg, &res, &collector, err);
	wall->replicates_ns = workers_now_ns() - wall->replicates_ns;
	collector_release(&collector);
	st = end_method(r, i, p, &res, st, err);
	replay_result_release(&res);
	return st;
}

static enum ar_status run_on_backend(struct run *r, size_t i, struct ar_err *err)
{
	struct run_inputs *in = &r->in;
	struct run_session *s = &r->session;
	struct plan *p = in->plan ? in->plan[i] : NULL;
	const int64_t began = workers_now_ns();
	int64_t n_block = 0;
	enum ar_status st = run_open_tokens(in, s, err);

	/* What an evictor keeps beside the pages is of one request. */
	in->limits.share_pages = s->o.limits.share_pages &&
				 !(p && plan_evict(p) && plan_evict(p)->evictor->state_bytes);
	if (!st)
		st = open_backend(in, s, p, err);
	run_wait_alone(s);
	in->limits.evict = p ? plan_evict(p) : in->cost_plan ? plan_evict(in->cost_plan) : NULL;
	in->limits.cache_root = prefix_cache_root(p && !s->o.share_kv ? p->params : NULL);
	if (!st && (s->backend->uses_gpu || !in->memory.block_bytes))
		st = run_plan_memory(in, s, err);
	if (!st)
		st = run_set_apart(in, &s->o, err);
	if (!st)
		st = run_check_stage_limits(in, &s->o, err);
	if (!st)
		st = size_pool(in, s, err);
	if (!st)
		st = run_meet_ranks(in, s, err);
	if (!st)
		st = physical_blocks(in, s, &n_block, err);
	if (!st)
		st = backend_start(s->backend, s->self, n_block, err);
	if (!st)
		st = run_load_host(in, s, err);
	if (!st)
		st = run_share_host(in, s, err);
	if (!st)
		st = run_time_barriers(s, err);
	r->out.wall.open_ns = workers_now_ns() - began;
	if (!st && i == s->first && s->print & RUN_PRINT_HEADER)
		st = run_print_header(r, err);
	if (!st)
		st = replay_method(r, i, p, err);
	if (s->self)
		backend_close(s->backend, s->self);
	s->self = NULL;
	blocks_release(&s->blocks);
	return st;
}

enum ar_status run_method(struct run *r, size_t i, struct ar_err *err)
{
	struct run_session *s = &r->session;
	struct ar_err close_err = { 0 };
	enum ar_status st = AR_OK;

	if (s->o.db)
		st = store_open(&s->store, s->o.db, err);
	if (s->store && i == s->first)
		store_disk_warn(s->o.db);
	if (!st)
		st = run_on_backend(r, i, err);
	if (s->store && store_close(s->store, &close_err) && !st)
		log_warn("%s", close_err.msg); /* store_run_end() has committed all of the run */
	s->store = NULL;
	return st;
}

/* Read the files of a later method now, so that a bad one fails before the first run.  Its own run
 * reads them again. */
enum ar_status run_try_method(struct run *r, const char *name, struct ar_err *err)
{
	struct plan *p;
	enum ar_status st = plan_parse(&p, name, err);

	if (st)
		return st;
	set_env(&r->in, &r->session, p);
	st = r->in.n_capture || r->session.o.weights ? attn_engine_try(&r->session.env, err) :
						       AR_OK;
	plan_free(p);
	return st;
}
