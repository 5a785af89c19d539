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

	if (b->uses_gpu && r->session.o.prof == RUN_PROF_ACTIVITY) {
		st = prof_open(&r->session.prof, &no_prof);
		if (st && st != AR_NODEV) {
			*err = no_prof;
			return st;
		}
	}
	r->session.env.prof = b->uses_gpu ? r->session.prof : NULL;
	st = b->open(&r->session.self, run_options_of(&r->session.o, b), &r->session.env, err);
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
			r->session.backend = cuda;
		if (st != AR_NODEV)
			return st;
		prof_close(r->session.prof);
		r->session.prof = NULL;
	}
	if (!cpu)
		return ar_fail(err, AR_NODEV,
			       "this program has no backend that runs kernels; use "
			       "--backend cost");
	/* Times of a CPU say nothing about a GPU, so -q does not hide this line. */
	log_line(LOG_INFO, "%s; using backend cpu",
		 cuda ? err->msg : "this program was built without CUDA");
	r->session.backend = cpu;
	return open_as(r, cpu, err);
}

static void set_env(struct run *r, struct plan *p)
{
	r->session.env = (struct backend_env){ .trace = r->in.trace,
					       .max_batched_tok = r->in.limits.max_batched_tok,
					       .max_seqs = r->in.limits.max_seqs,
					       .max_len = run_longest_request(r),
					       .num_blocks = r->session.o.limits.num_blocks,
					       .block_tok = r->in.limits.block_tok,
					       .blocks = &r->session.blocks,
					       .seed = (uint64_t)r->session.o.seed,
					       .costs = r->in.costs };
	if (!run_needs_model(r))
		return;
	r->session.env.model = &r->in.model;
	r->session.env.capture = r->in.capture;
	r->session.env.n_capture = r->in.n_capture;
	r->session.env.capture_of = r->in.prep.capture_of;
	r->session.env.captured_layer = r->in.prep.captured_layer;
	r->session.env.run_layer = r->in.prep.run_layer;
	r->session.env.n_run_layers = r->in.prep.n_run_layers;
	r->session.env.weights = r->session.o.weights ? &r->in.weights : NULL;
	r->session.env.tokens = r->session.tokens;
	r->session.env.tile = r->session.o.extend == RUN_EXTEND_TILE;
	r->session.env.plan = p;
	r->session.env.page_tok = r->session.o.page_size ?
					  selector_block_tok(r->session.o.page_size - 1) :
					  0;
	r->session.env.attention_only = r->session.o.attention_only;
}

static enum ar_status open_backend(struct run *r, struct plan *p, struct ar_err *err)
{
	bool settled = r->session.backend;
	enum ar_status st;

	set_env(r, p);
	st = settled ? open_as(r, r->session.backend, err) : open_auto(r, err);
	if (!st && !settled)
		st = run_options_check(&r->session.o, r->session.backend, err);
	if (!st && r->session.o.dense_as && r->session.backend->uses_gpu && !r->session.prof)
		st = ar_fail(err, AR_USAGE,
			     "dense-as-engine has no effect without the times of kernels; leave it "
			     "out, or make CUPTI usable");
	return st;
}

/* All methods use the pool of the first, so that their schedules can be compared.  A method with
 * less room shrinks the pool for itself and for later ones. */
static enum ar_status size_pool(struct run *r, struct ar_err *err)
{
	struct sched_limits l = r->in.limits;
	int64_t n;

	if (r->session.o.limits.num_blocks)
		return AR_OK;
	l.num_blocks = 0;
	if (!r->session.backend->fit_blocks) {
		enum ar_status st = sched_ample_blocks(r->in.trace, &l, &n, err);

		if (st)
			return st;
	} else {
		n = r->session.backend->fit_blocks(r->session.self);
		/* 1 % reserve: later methods may keep more beside the cache */
		if (r->in.n_runs > 1 && !r->in.limits.num_blocks)
			n -= n / 100;
	}
	if (n < 2)
		return ar_fail(err, AR_USAGE,
			       "no room for KV blocks on the GPU; stop other programs there, "
			       "lower --max-num-batched-tokens or take a smaller model");
	if (r->in.limits.num_blocks && n < r->in.limits.num_blocks)
		log_warn("method '%s' leaves room for %" PRId64 " KV blocks, not %" PRId64
			 "; its schedule and later ones may differ from those before",
			 r->session.env.plan->name, n, r->in.limits.num_blocks);
	if (!r->in.limits.num_blocks || n < r->in.limits.num_blocks)
		r->in.limits.num_blocks = n;
	return AR_OK;
}

/* Blocks to allocate.  A backend stores a shared block once for each request that shares it.  So
 * with a prefix cache it gets room for the largest requests that can run together, at most what
 * fits the device and at least the scheduler's pool. */
static enum ar_status physical_blocks(struct run *r, int64_t *n, struct ar_err *err)
{
	struct sched_limits l = r->in.limits;
	enum ar_status st = AR_OK;

	*n = l.num_blocks;
	if (!l.prefix_cache)
		return AR_OK;
	st = sched_ample_blocks(r->in.trace, &l, n, err);
	if (!st && r->session.backend->fit_blocks &&
	    *n > r->session.backend->fit_blocks(r->session.self))
		*n = r->session.backend->fit_blocks(r->session.self);
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
	struct store_capture *c = calloc(r->in.n_capture + 1, sizeof *c);

	for (size_t i = 0; c && i < r->in.n_capture; i++) {
		const struct capture_info *info = capture_info(r->in.capture[i]);

		c[i] = (struct store_capture){
			.row = { .name = info->name,
				 .sha256 = info->sha256,
				 .model = info->model,
				 .n_tokens = info->n_tok,
				 .n_layers = info->n_layers,
				 .q_heads = info->q_heads,
				 .kv_heads = info->kv_heads,
				 .head_dim = info->head_dim },
			.origin = capture_origin_names[capture_origin(info, r->in.model.name)]
		};
	}
	return c;
}

enum ar_status run_make_key(struct run *r, size_t i, char key[RUN_KEY_SIZE], struct ar_err *err)
{
	const struct store_gpu *gpu = r->session.self && r->session.backend->gpu ?
					      r->session.backend->gpu(r->session.self) :
					      NULL;
	const struct run_key k = {
		.o = &r->session.o,
		.backend = r->session.backend ? r->session.backend->name : r->session.o.backend,
		.method = r->in.method ? r->in.method[i % r->in.n_methods] : NULL,
		.repeat = i / r->in.n_methods,
		.device = gpu ? gpu->name : NULL,
		.version = AR_REVISION,
		.trace_sha256 = r->in.trace->sha256
	};

	return run_key(key, &k, &r->session.keys, err);
}

static enum ar_status begin_record(struct run *r, size_t i, const struct plan *p,
				   struct ar_err *err)
{
	bool kernels = r->session.backend->needs_model;
	const struct layer_spec *heads = kernels ? model_attention(&r->in.model) : NULL;
	/* clang-format off */
	struct store_run s = {
		.trace_name = r->in.trace->name, .trace_sha256 = r->in.trace->sha256,
		.trace_format = r->in.trace->format, .n_requests = (int64_t)r->in.trace->n,
		.policy = r->in.limits.policy->name, .backend = r->session.backend->name,
		.seed = (uint64_t)r->session.o.seed, .version = AR_REVISION, .cmdline = r->session.cmdline,
		.options = r->session.options, .setup = r->session.setup, .clock = run_clock_name(r),
		.num_blocks = r->in.limits.num_blocks, .block_tok = r->in.limits.block_tok,
		.pid = r->session.pid, .command_utc_ns = r->session.command_utc_ns,
		.method_no = (int64_t)(i % r->in.n_methods),
		.repeat_no = (int64_t)(i / r->in.n_methods), .n_capture = r->in.n_capture };
	struct store_capture *capture;
	enum ar_status st;

	if (!r->session.store)
		return AR_OK;
	st = run_make_key(r, i, r->out.key, err);
	if (st)
		return st;
	s.run_key = r->out.key;
	if (kernels) {
		s.model_name = r->in.model.name;
		s.model_json = r->in.model.json;
		s.n_layers = r->in.model.n_layers;
		s.hidden = r->in.model.hidden;
		s.q_heads = heads->q_heads;
		s.kv_heads = heads->kv_heads;
		s.head_dim = heads->head_dim;
		s.tp = r->in.model.tp;
		s.method_name = p->name;
		s.method_params = p->params;
		s.dense = p->dense;
		s.layers_run = r->in.prep.n_run_layers;
	}
	/* clang-format on */
	if (r->in.costs)
		record_costs(&s, &r->in.costs->run);
	if (r->session.backend->gpu)
		s.gpu = r->session.backend->gpu(r->session.self);
	s.gpu_state = run_gpu_state(r);
	if (r->session.prof)
		s.cupti_api = prof_api_version(r->session.prof);
	s.capture = capture = record_captures(r);
	st = capture ? store_run_begin(r->session.store, &s, &r->out.run_id, err) : ar_nomem(err);
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

	if (!r->session.store)
		return st;
	st2 = run_put_groups(r, res, st ? NULL : err);
	if (!st2)
		st2 = run_put_layers(r, st ? NULL : err);
	if (!st2 && r->out.energy.ns)
		st2 = store_energy(r->session.store, &r->out.energy, st ? NULL : err);
	if (!st2)
		st2 = store_run_end(r->session.store, status,
				    r->session.prof ? prof_loss(r->session.prof) : NULL,
				    st ? NULL : err);
	return st ? st : st2;
}

/* Returns st, or if it is AR_OK what the watch returns. */
static enum ar_status end_watch(const struct run *r, size_t i, const struct replay_result *res,
				enum ar_status st, struct ar_err *err)
{
	enum ar_status st2 = AR_OK;

	if (r->session.watch)
		st2 = r->session.watch->end(r->session.watch->ctx, i, res, r->session.store,
					    st ? NULL : err);
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
	if (ended && r->session.print & RUN_PRINT_RESULT)
		st2 = run_print_result(r, i, run_label(r, i), res, st ? NULL : err);
	if (ended)
		r->out.figures = run_figures(r, res);
	if (!st && !st2)
		st2 = run_json_put(r, i, p, res, err);
	return st ? st : st2;
}

static enum ar_status replay_method(struct run *r, size_t i, const struct plan *p,
				    struct ar_err *err)
{
	const struct cost_options *cost = run_options_of(&r->session.o, &backend_cost);
	bool formula = r->session.o.clock == RUN_CLOCK_FORMULA;
	char title[96];
	struct dense_as dense_as = r->in.dense_as;
	struct recorder recorder = { .store = r->session.store,
				     .entries = r->session.o.keep_entries,
				     .phases = r->session.backend->needs_model,
				     .kernels = r->session.o.keep_kernels };
	const struct observer observer = recorder_observer(&recorder);
	struct replay cfg = { .title = title,
			      .trace = r->in.trace,
			      .arrival = r->session.o.arrival,
			      .limits = r->in.limits,
			      .backend = r->session.backend,
			      .self = r->session.self,
			      .dense_as = p && r->session.o.dense_as ? &dense_as : NULL,
			      .host = r->in.host,
			      .host_seed = rng_mix((uint64_t)r->session.o.host_seed) +
					   rng_mix(i / r->in.n_methods),
			      .observer = r->session.store ? &observer : NULL,
			      .rejects_known = r->session.point &&
					       !(r->session.print & RUN_PRINT_HEADER),
			      .formula = formula ? &cost->formula : NULL,
			      .accuracy = r->session.o.accuracy,
			      .seed = (uint64_t)r->session.o.seed,
			      .run_layer = r->in.prep.run_layer,
			      .n_run_layers = r->in.prep.n_run_layers,
			      .model = &r->in.model,
			      .q_heads = p ? model_attention(&r->in.model)->q_heads : 0,
			      .kv_heads = p ? model_attention(&r->in.model)->kv_heads : 0 };
	struct replay_result res;
	enum ar_status st = begin_record(r, i, p, err);

	if (st)
		return st;
	if (p && !p->dense) /* its decodes are dense */
		dense_as.prefill = (struct dense_as_curve){ 1, { { 1, 1 } } };
	set_title(r, i, title, sizeof title);
	cfg.limits.blocks = r->session.blocks.n ? &r->session.blocks : NULL;
	run_set_limits(&cfg, &r->session.o.objectives);
	if (r->session.watch)
		r->session.watch->begin(r->session.watch->ctx, i);
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
	struct plan *p = r->in.plan ? r->in.plan[i] : NULL;
	enum ar_status st = run_open_tokens(r, err);
	int64_t n_block = 0;

	if (!st)
		st = open_backend(r, p, err);
	r->in.limits.cache_root = prefix_cache_root(p && !r->session.o.share_kv ? p->params : NULL);
	if (!st)
		st = size_pool(r, err);
	if (!st)
		st = physical_blocks(r, &n_block, err);
	if (!st)
		st = r->session.backend->start(r->session.self, n_block, err);
	if (!st)
		st = run_load_host(r, err);
	if (!st && i == r->session.first && r->session.print & RUN_PRINT_HEADER)
		st = run_print_header(r, err);
	if (!st)
		st = replay_method(r, i, p, err);
	if (r->session.self)
		r->session.backend->close(r->session.self);
	r->session.self = NULL;
	blocks_release(&r->session.blocks);
	return st;
}

enum ar_status run_method(struct run *r, size_t i, struct ar_err *err)
{
	struct ar_err close_err = { 0 };
	enum ar_status st = AR_OK;

	if (r->session.o.db)
		st = store_open(&r->session.store, r->session.o.db, err);
	if (!st)
		st = run_on_backend(r, i, err);
	if (r->session.store && store_close(r->session.store, &close_err) && !st)
		log_warn("%s", close_err.msg); /* store_run_end() has committed all of the run */
	r->session.store = NULL;
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
	st = r->in.n_capture || r->session.o.weights ? attn_engine_try(&r->session.env, err) :
						       AR_OK;
	plan_free(p);
	return st;
}
