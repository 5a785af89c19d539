/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "replay/engine/attn_engine.h"
#include "replay/engine/record.h"
#include "src/revision.h"

/* Open the CUPTI session first: it must precede the first CUDA call of the process.  Without it
 * CUDA events are the clock. */
static enum ar_status open_as(struct run *r, const struct backend *b, struct ar_err *err)
{
	struct ar_err no_prof = { 0 };
	enum ar_status st;

	if (b->uses_gpu && r->o.prof == RUN_PROF_ACTIVITY) {
		st = prof_open(&r->prof, &no_prof);
		if (st && st != AR_NODEV) {
			*err = no_prof;
			return st;
		}
	}
	r->env.prof = b->uses_gpu ? r->prof : NULL;
	st = b->open(&r->self, run_options_of(&r->o, b), &r->env, err);
	if (!st && no_prof.status)
		log_warn("%s; CUDA events are the clock and no kernels are stored", no_prof.msg);
	return st;
}

/* auto: cuda, or cpu where this program or this machine has no CUDA. */
static enum ar_status open_auto(struct run *r, struct ar_err *err)
{
	const struct backend *cuda = backend_find("cuda"), *cpu = backend_find("cpu");
	enum ar_status st = AR_NODEV;

	if (cuda) {
		st = open_as(r, cuda, err);
		if (!st)
			r->backend = cuda;
		if (st != AR_NODEV)
			return st;
		prof_close(r->prof);
		r->prof = NULL;
	}
	if (!cpu)
		return ar_fail(err, AR_NODEV,
			       "this program has no backend that runs kernels; use "
			       "--backend cost");
	/* Times of a CPU say nothing about a GPU, so -q does not hide this line. */
	log_line(LOG_INFO, "%s; using backend cpu",
		 cuda ? err->msg : "this program was built without CUDA");
	r->backend = cpu;
	return open_as(r, cpu, err);
}

static void set_env(struct run *r, struct plan *p)
{
	r->env = (struct backend_env){ .trace = r->trace,
				       .max_batched_tok = r->limits.max_batched_tok,
				       .max_seqs = r->limits.max_seqs,
				       .max_len = run_longest_request(r),
				       .num_blocks = r->o.limits.num_blocks,
				       .block_tok = r->limits.block_tok,
				       .blocks = &r->blocks,
				       .seed = (uint64_t)r->o.seed,
				       .costs = r->costs };
	if (!run_needs_model(r))
		return;
	r->env.model = &r->model;
	r->env.capture = r->capture;
	r->env.n_capture = r->n_capture;
	r->env.capture_of = r->prep.capture_of;
	r->env.captured_layer = r->prep.captured_layer;
	r->env.run_layer = r->prep.run_layer;
	r->env.n_run_layers = r->prep.n_run_layers;
	r->env.weights = r->o.weights ? &r->weights : NULL;
	r->env.tokens = r->tokens;
	r->env.tile = r->o.extend == RUN_EXTEND_TILE;
	r->env.plan = p;
	r->env.page_tok = r->o.page_size ? selector_block_tok(r->o.page_size - 1) : 0;
	r->env.attention_only = r->o.attention_only;
}

static enum ar_status open_backend(struct run *r, struct plan *p, struct ar_err *err)
{
	bool settled = r->backend;
	enum ar_status st;

	set_env(r, p);
	st = settled ? open_as(r, r->backend, err) : open_auto(r, err);
	if (!st && !settled)
		st = run_options_check(&r->o, r->backend, err);
	if (!st && r->o.dense_as && r->backend->uses_gpu && !r->prof)
		st = ar_fail(err, AR_USAGE,
			     "dense-as-engine has no effect without the times of kernels; leave it "
			     "out, or make CUPTI usable");
	return st;
}

/* All methods use the pool of the first, so that their schedules can be compared.  A method with
 * less room shrinks the pool for itself and for later ones. */
static enum ar_status size_pool(struct run *r, struct ar_err *err)
{
	struct sched_limits l = r->limits;
	int64_t n;

	if (r->o.limits.num_blocks)
		return AR_OK;
	l.num_blocks = 0;
	if (!r->backend->fit_blocks) {
		enum ar_status st = sched_ample_blocks(r->trace, &l, &n, err);

		if (st)
			return st;
	} else {
		n = r->backend->fit_blocks(r->self);
		/* 1 % reserve: later methods may keep more beside the cache */
		if (r->n_runs > 1 && !r->limits.num_blocks)
			n -= n / 100;
	}
	if (n < 2)
		return ar_fail(err, AR_USAGE,
			       "no room for KV blocks on the GPU; stop other programs there, "
			       "lower --max-num-batched-tokens or take a smaller model");
	if (r->limits.num_blocks && n < r->limits.num_blocks)
		log_warn("method '%s' leaves room for %" PRId64 " KV blocks, not %" PRId64
			 "; its schedule and later ones may differ from those before",
			 r->env.plan->name, n, r->limits.num_blocks);
	if (!r->limits.num_blocks || n < r->limits.num_blocks)
		r->limits.num_blocks = n;
	return AR_OK;
}

/* Blocks to allocate.  A backend stores a shared block once for each request that shares it.  So
 * with a prefix cache it gets room for the largest requests that can run together, at most what
 * fits the device and at least the scheduler's pool. */
static enum ar_status physical_blocks(struct run *r, int64_t *n, struct ar_err *err)
{
	struct sched_limits l = r->limits;
	enum ar_status st = AR_OK;

	*n = l.num_blocks;
	if (!l.prefix_cache)
		return AR_OK;
	st = sched_ample_blocks(r->trace, &l, n, err);
	if (!st && r->backend->fit_blocks && *n > r->backend->fit_blocks(r->self))
		*n = r->backend->fit_blocks(r->self);
	if (*n < l.num_blocks)
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
static struct store_capture *record_captures(const struct run *r)
{
	struct store_capture *c = calloc(r->n_capture + 1, sizeof *c);

	for (size_t i = 0; c && i < r->n_capture; i++) {
		const struct capture_info *info = capture_info(r->capture[i]);

		c[i] = (struct store_capture){
			.row = { .name = info->name,
				 .sha256 = info->sha256,
				 .model = info->model,
				 .n_tokens = info->n_tok,
				 .n_layers = info->n_layers,
				 .q_heads = info->q_heads,
				 .kv_heads = info->kv_heads,
				 .head_dim = info->head_dim },
			.origin = capture_origin_names[capture_origin(info, r->model.name)]
		};
	}
	return c;
}

enum ar_status run_make_key(struct run *r, size_t i, char key[RUN_KEY_SIZE], struct ar_err *err)
{
	const struct store_gpu *gpu = r->self && r->backend->gpu ? r->backend->gpu(r->self) : NULL;
	const struct run_key k = { .o = &r->o,
				   .backend = r->backend ? r->backend->name : r->o.backend,
				   .method = r->method ? r->method[i % r->n_methods] : NULL,
				   .repeat = i / r->n_methods,
				   .device = gpu ? gpu->name : NULL,
				   .version = AR_REVISION,
				   .trace_sha256 = r->trace->sha256 };

	return run_key(key, &k, &r->inputs, err);
}

static enum ar_status begin_record(struct run *r, size_t i, const struct plan *p,
				   struct ar_err *err)
{
	bool kernels = r->backend->needs_model;
	const struct layer_spec *heads = kernels ? model_attention(&r->model) : NULL;
	/* clang-format off */
	struct store_run s = {
		.trace_name = r->trace->name, .trace_sha256 = r->trace->sha256,
		.trace_format = r->trace->format, .n_requests = (int64_t)r->trace->n,
		.policy = r->limits.policy->name, .backend = r->backend->name,
		.seed = (uint64_t)r->o.seed, .version = AR_REVISION, .cmdline = r->cmdline,
		.options = r->options, .setup = r->setup, .clock = run_clock_name(r),
		.num_blocks = r->limits.num_blocks, .block_tok = r->limits.block_tok,
		.pid = r->pid, .command_utc_ns = r->command_utc_ns,
		.method_no = (int64_t)(i % r->n_methods),
		.repeat_no = (int64_t)(i / r->n_methods), .n_capture = r->n_capture };
	struct store_capture *capture;
	char key[RUN_KEY_SIZE];
	enum ar_status st;

	if (!r->store)
		return AR_OK;
	st = run_make_key(r, i, key, err);
	if (st)
		return st;
	s.run_key = key;
	if (kernels) {
		s.model_name = r->model.name;
		s.model_json = r->model.json;
		s.n_layers = r->model.n_layers;
		s.hidden = r->model.hidden;
		s.q_heads = heads->q_heads;
		s.kv_heads = heads->kv_heads;
		s.head_dim = heads->head_dim;
		s.tp = r->model.tp;
		s.method_name = p->name;
		s.method_params = p->params;
		s.dense = p->dense;
		s.layers_run = r->prep.n_run_layers;
	}
	/* clang-format on */
	if (r->costs)
		record_costs(&s, &r->costs->run);
	if (r->backend->gpu)
		s.gpu = r->backend->gpu(r->self);
	s.gpu_state = run_gpu_state(r);
	if (r->prof)
		s.cupti_api = prof_api_version(r->prof);
	s.capture = capture = record_captures(r);
	st = capture ? store_run_begin(r->store, &s, &r->run_id, err) : ar_nomem(err);
	free(capture);
	return st;
}

/* Store how the run ended.  A failure of the run itself is reported before a failure to store
 * it. */
static enum ar_status end_record(struct run *r, const struct replay_result *res, enum ar_status st,
				 struct ar_err *err)
{
	const char *status = !st ? "done" : st == AR_INTERRUPTED ? "aborted" : "failed";
	enum ar_status st2;

	if (!r->store)
		return st;
	st2 = run_put_groups(r, res, st ? NULL : err);
	if (!st2)
		st2 = run_put_layers(r, st ? NULL : err);
	if (!st2 && r->energy.ns)
		st2 = store_energy(r->store, &r->energy, st ? NULL : err);
	if (!st2)
		st2 = store_run_end(r->store, status, r->prof ? prof_loss(r->prof) : NULL,
				    st ? NULL : err);
	return st ? st : st2;
}

/* Returns st, or if it is AR_OK what the watch returns. */
static enum ar_status end_watch(const struct run *r, size_t i, const struct replay_result *res,
				enum ar_status st, struct ar_err *err)
{
	enum ar_status st2 = AR_OK;

	if (r->watch)
		st2 = r->watch->end(r->watch->ctx, i, res, r->store, st ? NULL : err);
	return st ? st : st2;
}

/* The head of the progress line. */
static void set_title(const struct run *r, size_t i, char *title, size_t n)
{
	if (r->point)
		snprintf(title, n, "%s, %s", run_label(r, i), r->point);
	else
		snprintf(title, n, "method %zu of %zu, %s", i + 1, r->n_runs, run_label(r, i));
}

/* Store, print and keep what the run did; st: how it ended, which a later failure does not hide. */
static enum ar_status end_method(struct run *r, size_t i, const struct plan *p,
				 const struct replay_result *res, enum ar_status st,
				 struct ar_err *err)
{
	const bool ended = !st || st == AR_INTERRUPTED;
	enum ar_status st2 = AR_OK;

	if (ended)
		st = end_watch(r, i, res, st, err);
	st = end_record(r, res, st, err);
	if (ended && r->print & RUN_PRINT_RESULT)
		st2 = run_print_result(r, i, run_label(r, i), res, st ? NULL : err);
	if (ended)
		r->figures = run_figures(r, res);
	if (!st && !st2)
		st2 = run_json_put(r, i, p, res, err);
	return st ? st : st2;
}

static enum ar_status replay_method(struct run *r, size_t i, const struct plan *p,
				    struct ar_err *err)
{
	const struct cost_options *cost = run_options_of(&r->o, &backend_cost);
	bool formula = r->o.clock == RUN_CLOCK_FORMULA;
	char title[96];
	struct dense_as dense_as = r->dense_as;
	struct recorder recorder = { .store = r->store,
				     .entries = r->o.keep_entries,
				     .phases = r->backend->needs_model,
				     .kernels = r->o.keep_kernels };
	const struct observer observer = recorder_observer(&recorder);
	struct replay cfg = { .title = title,
			      .trace = r->trace,
			      .arrival = r->o.arrival,
			      .limits = r->limits,
			      .backend = r->backend,
			      .self = r->self,
			      .dense_as = p && r->o.dense_as ? &dense_as : NULL,
			      .host = r->host,
			      .host_seed = rng_mix((uint64_t)r->o.host_seed) +
					   rng_mix(i / r->n_methods),
			      .observer = r->store ? &observer : NULL,
			      .rejects_known = r->point && !(r->print & RUN_PRINT_HEADER),
			      .formula = formula ? &cost->formula : NULL,
			      .accuracy = r->o.accuracy,
			      .seed = (uint64_t)r->o.seed,
			      .run_layer = r->prep.run_layer,
			      .n_run_layers = r->prep.n_run_layers,
			      .model = &r->model,
			      .q_heads = p ? model_attention(&r->model)->q_heads : 0,
			      .kv_heads = p ? model_attention(&r->model)->kv_heads : 0 };
	struct replay_result res;
	enum ar_status st = begin_record(r, i, p, err);

	if (st)
		return st;
	if (p && !p->dense) /* its decodes are dense */
		dense_as.prefill = (struct dense_as_curve){ 1, { { 1, 1 } } };
	set_title(r, i, title, sizeof title);
	cfg.limits.blocks = r->blocks.n ? &r->blocks : NULL;
	run_set_limits(&cfg, &r->o.objectives);
	if (r->watch)
		r->watch->begin(r->watch->ctx, i);
	run_energy_begin(r);
	st = replay_run(&cfg, &res, err);
	run_energy_end(r);
	recorder_release(&recorder);
	st = end_method(r, i, p, &res, st, err);
	replay_result_release(&res);
	return st;
}

static enum ar_status run_on_backend(struct run *r, size_t i, struct ar_err *err)
{
	struct plan *p = r->plan ? r->plan[i] : NULL;
	enum ar_status st = run_open_tokens(r, err);
	int64_t n_block = 0;

	if (!st)
		st = open_backend(r, p, err);
	r->limits.cache_root = prefix_cache_root(p && !r->o.share_kv ? p->params : NULL);
	if (!st)
		st = size_pool(r, err);
	if (!st)
		st = physical_blocks(r, &n_block, err);
	if (!st)
		st = r->backend->start(r->self, n_block, err);
	if (!st)
		st = run_load_host(r, err);
	if (!st && i == r->first && r->print & RUN_PRINT_HEADER)
		st = run_print_header(r, err);
	if (!st)
		st = replay_method(r, i, p, err);
	if (r->self)
		r->backend->close(r->self);
	r->self = NULL;
	blocks_release(&r->blocks);
	return st;
}

enum ar_status run_method(struct run *r, size_t i, struct ar_err *err)
{
	struct ar_err close_err = { 0 };
	enum ar_status st = AR_OK;

	if (r->o.db)
		st = store_open(&r->store, r->o.db, err);
	if (!st)
		st = run_on_backend(r, i, err);
	if (r->store && store_close(r->store, &close_err) && !st)
		log_warn("%s", close_err.msg); /* store_run_end() has committed all of the run */
	r->store = NULL;
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
	set_env(r, p);
	st = r->n_capture || r->o.weights ? attn_engine_try(&r->env, err) : AR_OK;
	plan_free(p);
	return st;
}
