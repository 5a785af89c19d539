/* attnreplay run: replay a trace, once for each method. */
#include "config.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/number.h"
#include "kernels/methods/method.h"
#include "profiler/cupti/prof.h"
#include "profiler/store/store.h"
#include "replay/engine/attn_engine.h"
#include "replay/engine/prepare.h"
#include "replay/engine/replay.h"
#include "src/cmd.h"
#include "src/revision.h"
#include "src/run_options.h"

struct run {
	struct run_options o;
	char *cmdline, *options;	/* for the record */
	struct trace *trace;
	const struct policy *policy;
	struct sched_limits limits;	/* num_blocks 0 until the backend is open */

	/* Only where a backend needs a model. */
	struct model model;
	int whole_q_heads, whole_kv_heads;
	struct capture **capture;
	size_t n_capture;
	struct prepared prep;
	struct method **method;

	size_t n_runs;			/* methods, or 1 */
	struct costs *costs;		/* of backend cost, or NULL: the formula */
	struct store *store;
	struct prof *prof;
	const struct backend *backend;	/* NULL until --backend auto is settled */
	struct backend_env env;		/* the open backend keeps a pointer to it */
	void *self;
};

static bool needs_model(const struct run *r)
{
	return !r->backend || r->backend->needs_model;
}

/* ---- loading ---- */

static char *join_args(int argc, char **argv)
{
	size_t n = sizeof "attnreplay run";
	char *s;

	for (int i = 0; i < argc; i++)
		n += strlen(argv[i]) + 1;
	s = malloc(n);
	if (!s)
		return NULL;
	strcpy(s, "attnreplay run");
	for (int i = 0; i < argc; i++) {
		strcat(s, " ");
		strcat(s, argv[i]);
	}
	return s;
}

static char *options_json(const struct opt_group *g)
{
	cJSON *object = cJSON_CreateObject();
	char *s = object && opt_json(g, object) ? cJSON_PrintUnformatted(object) : NULL;

	cJSON_Delete(object);
	return s;
}

static enum ar_status load_methods(struct run *r, struct ar_err *err)
{
	char **name = NULL;
	size_t n = 0;
	enum ar_status st = method_split(r->o.methods, &name, &n, err);

	if (st)
		return st;
	r->method = calloc(n + 1, sizeof *r->method);
	if (!r->method)
		st = ar_nomem(err);
	for (size_t i = 0; i < n && !st; i++)
		st = method_parse(&r->method[i], name[i], err);
	for (size_t i = 0; i < n; i++)
		free(name[i]);
	free(name);
	r->n_runs = n;
	return st;
}

static enum ar_status load_captures(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	size_t n = r->o.captures.n;

	if (!n)
		return ar_fail(err, AR_USAGE, "no capture given; name one with --capture FILE, or "
			       "replay without kernels with --backend cost");
	r->capture = calloc(n, sizeof *r->capture);
	if (!r->capture)
		return ar_nomem(err);
	for (; r->n_capture < n && !st; r->n_capture += !st)
		st = capture_open(&r->capture[r->n_capture], r->o.captures.v[r->n_capture], err);
	return st;
}

static enum ar_status load_model(struct run *r, struct ar_err *err)
{
	enum ar_status st;

	if (!r->o.model)
		return ar_fail(err, AR_USAGE, "no model given; name one with --model, or replay "
			       "without kernels with --backend cost");
	st = model_load(&r->model, r->o.model, err);
	if (st)
		return st;
	r->whole_q_heads = r->model.layer[0].q_heads;
	r->whole_kv_heads = r->model.layer[0].kv_heads;
	if (!r->limits.max_len)
		r->limits.max_len = r->model.max_len;
	return model_split(&r->model, (int)r->o.tp, err);
}

static enum ar_status prepare(struct run *r, struct ar_err *err)
{
	const struct capture_info **info = malloc(r->n_capture * sizeof *info);
	enum ar_status st;

	if (!info)
		return ar_nomem(err);
	for (size_t i = 0; i < r->n_capture; i++)
		info[i] = capture_info(r->capture[i]);
	st = prepare_run(&r->prep, &(struct prepare_in){
		.trace = r->trace, .limits = &r->limits, .model = &r->model,
		.whole_q_heads = r->whole_q_heads, .whole_kv_heads = r->whole_kv_heads,
		.info = info, .n_capture = r->n_capture, .layers = r->o.layers,
		.sample_layers = r->o.sample_layers, .tile = r->o.extend == RUN_EXTEND_TILE,
		.seed = (uint64_t)r->o.seed }, err);
	free(info);
	return st;
}

/* The run that was measured stands for what this one does not execute: its model's limit, and where
 * it had a device, its pool in tokens. */
static enum ar_status load_costs(struct run *r, struct ar_err *err)
{
	const struct cost_options *o = run_options_of(&r->o, &backend_cost);
	const struct store_run *m;
	enum ar_status st;

	if (!o->costs)
		return AR_OK;
	st = costs_open(&r->costs, o->costs, err);
	if (!st)
		st = run_options_adopt(&r->o, r->costs, err);
	if (st)
		return st;
	m = &r->costs->run;
	if (!r->limits.max_len)
		r->limits.max_len = r->costs->max_len;
	if (!r->limits.num_blocks && m->gpu) {
		int64_t n = m->num_blocks * m->block_tok / r->limits.block_tok;

		r->o.limits.num_blocks = r->limits.num_blocks =
			n < 2 ? 2 : n > UINT32_MAX ? UINT32_MAX : n;
	}
	return AR_OK;
}

static enum ar_status load(struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	r->limits = r->o.limits;
	r->policy = policies[r->o.policy];
	r->backend = backend_find(r->o.backend);
	r->n_runs = 1;
	if (r->backend)
		st = run_options_check(&r->o, r->backend, err);
	if (!st)
		st = load_costs(r, err);
	if (!st && needs_model(r))
		st = load_methods(r, err);
	if (!st && needs_model(r))
		st = load_model(r, err);
	if (!st && needs_model(r))
		st = load_captures(r, err);
	if (!st)
		st = trace_read(&r->trace, r->o.trace, &r->o.trace_args, err);
	if (!st && r->o.arrival.loop == LOOP_SESSIONS && !r->trace->n_session)
		st = ar_fail(err, AR_USAGE, "%s: no sessions to wait for; replay it with --loop "
			     "open or users", r->trace->name);
	if (!st && needs_model(r))
		st = prepare(r, err);
	return st;
}

static void unload(struct run *r)
{
	prof_close(r->prof);
	costs_close(r->costs);
	prepared_release(&r->prep);
	trace_free(r->trace);
	for (size_t i = 0; i < r->n_capture; i++)
		capture_close(r->capture[i]);
	free(r->capture);
	model_release(&r->model);
	for (size_t i = 0; r->method && i < r->n_runs; i++)
		method_free(r->method[i]);
	free(r->method);
	free(r->options);
	free(r->cmdline);
	run_options_release(&r->o);
}

/* ---- printing ---- */

static const char *clock_name(const struct run *r)
{
	if (!r->backend->needs_model || r->o.clock == RUN_CLOCK_FORMULA)
		return "cost";
	return !r->backend->uses_gpu ? "cpu" : r->prof ? "cupti" : "events";
}

static void print_model(const struct run *r)
{
	const struct model *m = &r->model;
	const struct layer_spec *l = &m->layer[0];

	printf("model     %s, %d layers, %d/%d heads of %d", m->name, m->n_layers, l->q_heads,
	       l->kv_heads, l->head_dim);
	if (m->tp > 1)
		printf(" on each of %d ranks", m->tp);
	if (r->prep.n_run_layers < m->n_layers)
		printf(", %d layers executed and scaled to %d", r->prep.n_run_layers, m->n_layers);
	printf("\ncapture  ");
	for (size_t i = 0; i < r->n_capture; i++)
		printf(" %s", capture_info(r->capture[i])->name);
	printf("%s\n", r->o.extend == RUN_EXTEND_TILE ? ", repeated for longer requests" : "");
}

static void print_host(const struct host_cost *h)
{
	char fixed[32], request[32], tok[32];

	if (!h->fixed_ns && !h->per_request_ns && !h->per_tok_ns) {
		puts("host      0 an iteration (host time is not modelled)");
		return;
	}
	printf("host      %s an iteration",
	       num_time_str(fixed, sizeof fixed, (double)h->fixed_ns));
	if (h->per_request_ns)
		printf(" + %s a request",
		       num_time_str(request, sizeof request, (double)h->per_request_ns));
	if (h->per_tok_ns)
		printf(" + %s a token", num_time_str(tok, sizeof tok, (double)h->per_tok_ns));
	putchar('\n');
}

static void print_clock(const struct run *r)
{
	const struct cost_options *o = run_options_of(&r->o, &backend_cost);
	const struct costs *c = r->costs;
	char fixed[32], per_tok[32];

	printf("clock     %s", clock_name(r));
	if (c) {
		printf(", from %zu iterations of %s", cost_table_size(c->table), c->name);
		if (c->run.method_name)
			printf(", %s on %s", c->run.method_name, c->run.model_name);
		if (c->run.gpu)
			printf(", %s", c->gpu.name);
	} else if (!strcmp(clock_name(r), "cost")) {
		printf(", %s + %s a token",
		       num_time_str(fixed, sizeof fixed, (double)o->formula.fixed_ns),
		       num_time_str(per_tok, sizeof per_tok, (double)o->formula.per_tok_ns));
	}
	putchar('\n');
}

static void print_arrivals(const struct run *r)
{
	const struct arrival_rule *a = &r->o.arrival;
	char think[32] = "0";

	if (a->think_ns)
		num_time_str(think, sizeof think, (double)a->think_ns);
	if (a->loop == LOOP_SESSIONS)
		printf("arrivals  follow answers in a session, think time %s where the trace has "
		       "none\n", think);
	if (a->loop == LOOP_USERS)
		printf("arrivals  of %" PRId64 " users, think time %s where the trace has none; "
		       "its times are not used\n", a->users, think);
}

static enum ar_status end_print(struct ar_err *err)
{
	if (fflush(stdout))
		return ar_fail(err, AR_IO, "cannot write standard output: %s", strerror(errno));
	return AR_OK;
}

/* What cannot be printed is known before the hours of a long run, not after them. */
static enum ar_status print_header(const struct run *r, struct ar_err *err)
{
	const struct sched_limits *l = &r->limits;

	printf("trace     %s (%s), %zu requests\n", r->trace->name, r->trace->format, r->trace->n);
	print_arrivals(r);
	if (r->backend->needs_model)
		print_model(r);
	printf("policy    %s, %" PRId64 " tokens and %" PRId64 " requests an iteration%s\n",
	       r->policy->name, l->max_batched_tok, l->max_seqs,
	       l->async ? ", planned ahead" : "");
	printf("blocks    %" PRId64 " of %" PRId64 " tokens%s, one reserved%s\n", l->num_blocks,
	       l->block_tok, r->o.limits.num_blocks ? "" : " (auto)",
	       !l->prefix_cache ? "" : r->o.share_kv ? ", prefix cache across methods" :
	       ", prefix cache");
	printf("backend   %s\n", r->backend->name);
	print_clock(r);
	print_host(&r->o.host);
	return end_print(err);
}

static enum ar_status print_result(const char *label, const struct replay_result *res,
				   bool prefix_cache, struct ar_err *err)
{
	const int64_t *from = res->cost_sources;

	printf("\n%s: %" PRId64 " requests ok, %" PRId64 " rejected, %" PRId64
	       " unfinished in %.6f s\n", label, res->ok, res->rejected, res->unfinished,
	       (double)res->end_ns / 1e9);
	printf("%" PRId64 " iterations, %" PRId64 " entries, %" PRId64 " prefill and %" PRId64
	       " decode tokens, %" PRId64 " preemptions, %" PRId64 " tokens recomputed\n",
	       res->iterations, res->entries, res->prefill_tok, res->decode_tok, res->preemptions,
	       res->recomputed_tok);
	if (from[COST_MEASURED] + from[COST_INTERPOLATED] + from[COST_EXTRAPOLATED])
		printf("costs: %" PRId64 " iterations measured, %" PRId64 " interpolated, %" PRId64
		       " extrapolated\n", from[COST_MEASURED], from[COST_INTERPOLATED],
		       from[COST_EXTRAPOLATED]);
	if (prefix_cache)
		printf("%" PRId64 " tokens found in the prefix cache\n", res->cached_tok);
	printf("%-8s%10s%14s%14s%14s%14s\n", "ms", "count", "mean", "p50", "p90", "p99");
	for (int m = 0; m < LATENCY_COUNT; m++) {
		const struct series *s = &res->latency[m];

		printf("%-8s%10" PRIu64, latency_names[m], s->n);
		if (s->n)
			printf("%14.3f%14.3f%14.3f%14.3f", series_mean(s) / 1e6,
			       series_percentile(s, 50) / 1e6, series_percentile(s, 90) / 1e6,
			       series_percentile(s, 99) / 1e6);
		putchar('\n');
	}
	if (res->n_heads)
		printf("against dense, %" PRId64 " samples: relative L2 mean %.3g max %.3g, "
		       "cosine min %.6f, recall mean %.4f\n", res->n_samples,
		       res->rel_l2_sum / (double)res->n_heads, res->rel_l2_max, res->cosine_min,
		       res->recall_sum / (double)res->n_heads);
	return end_print(err);
}

/* ---- running ---- */

static int64_t longest_request(const struct run *r)
{
	int64_t max = 1;
	char why[160];

	for (size_t i = 0; i < r->trace->n; i++) {
		int64_t len = sched_goal(&r->limits, &r->trace->req[i]);

		if (len > max && !sched_rejects(&r->limits, &r->trace->req[i], why, sizeof why))
			max = len;
	}
	return max;
}

/* The tracing session has to be there before the first CUDA call of the process.  Without it CUDA
 * events are the clock. */
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
		log_info("%s; taking backend cpu", err->msg);
		prof_close(r->prof);
		r->prof = NULL;
	}
	if (!cpu)
		return ar_fail(err, AR_NODEV, "no backend that runs kernels in this program; take "
			       "--backend cost");
	r->backend = cpu;
	return open_as(r, cpu, err);
}

static void set_env(struct run *r, struct method *m)
{
	r->env = (struct backend_env){
		.trace = r->trace, .max_batched_tok = r->limits.max_batched_tok,
		.max_seqs = r->limits.max_seqs, .max_len = longest_request(r),
		.num_blocks = r->o.limits.num_blocks, .block_tok = r->limits.block_tok,
		.seed = (uint64_t)r->o.seed, .costs = r->costs };
	if (!needs_model(r))
		return;
	r->env.model = &r->model;
	r->env.capture = r->capture;
	r->env.n_capture = r->n_capture;
	r->env.capture_of = r->prep.capture_of;
	r->env.captured_layer = r->prep.captured_layer;
	r->env.run_layer = r->prep.run_layer;
	r->env.n_run_layers = r->prep.n_run_layers;
	r->env.tile = r->o.extend == RUN_EXTEND_TILE;
	r->env.method = m;
	r->env.attention_only = r->o.attention_only;
}

static enum ar_status open_backend(struct run *r, struct method *m, struct ar_err *err)
{
	bool settled = r->backend;
	enum ar_status st;

	set_env(r, m);
	st = settled ? open_as(r, r->backend, err) : open_auto(r, err);
	if (!st && !settled)
		st = run_options_check(&r->o, r->backend, err);
	return st;
}

/* The pool of the first method serves all, so that their schedules can be compared, unless a later
 * one leaves less room. */
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
		/* room for what later methods keep beside the cache: all get one pool */
		if (r->n_runs > 1 && !r->limits.num_blocks)
			n -= n / 100;
	}
	if (n < 2)
		return ar_fail(err, AR_USAGE, "no room for KV blocks; lower "
			       "--max-num-batched-tokens or take a smaller model");
	if (r->limits.num_blocks && n < r->limits.num_blocks)
		log_warn("this method leaves room for %" PRId64 " KV blocks, the one before "
			 "for %" PRId64, n, r->limits.num_blocks);
	if (!r->limits.num_blocks || n < r->limits.num_blocks)
		r->limits.num_blocks = n;
	return AR_OK;
}

/* A backend keeps the blocks that requests share once for each of them.  It gets room for the
 * largest requests that can run together, as far as the device has it. */
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

/* What a run with costs of another one is a run of. */
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

static enum ar_status begin_record(struct run *r, const struct method *m, struct ar_err *err)
{
	bool kernels = r->backend->needs_model;
	int64_t id;
	struct store_run s = {
		.trace_name = r->trace->name, .trace_sha256 = r->trace->sha256,
		.trace_format = r->trace->format, .n_requests = (int64_t)r->trace->n,
		.policy = r->policy->name, .backend = r->backend->name,
		.seed = (uint64_t)r->o.seed, .version = AR_REVISION, .cmdline = r->cmdline,
		.options = r->options, .clock = clock_name(r),
		.num_blocks = r->limits.num_blocks, .block_tok = r->limits.block_tok };

	if (!r->store)
		return AR_OK;
	if (kernels) {
		s.model_name = r->model.name;
		s.model_json = r->model.json;
		s.n_layers = r->model.n_layers;
		s.hidden = r->model.hidden;
		s.q_heads = r->model.layer[0].q_heads;
		s.kv_heads = r->model.layer[0].kv_heads;
		s.head_dim = r->model.layer[0].head_dim;
		s.tp = r->model.tp;
		s.method_name = m->name;
		s.method_params = m->params;
		s.dense = m->dense;
		s.layers_run = r->prep.n_run_layers;
	}
	if (r->costs)
		record_costs(&s, &r->costs->run);
	if (r->backend->gpu)
		s.gpu = r->backend->gpu(r->self);
	if (r->prof)
		s.cupti_api = prof_api_version(r->prof);
	return store_run_begin(r->store, &s, &id, err);
}

/* The run's own failure is the one to report. */
static enum ar_status end_record(struct run *r, enum ar_status st, struct ar_err *err)
{
	const char *status = !st ? "done" : st == AR_INTERRUPTED ? "aborted" : "failed";
	enum ar_status st2;

	if (!r->store)
		return st;
	st2 = store_run_end(r->store, status, r->prof ? prof_loss(r->prof) : NULL, st ? NULL : err);
	return st ? st : st2;
}

static enum ar_status replay_method(struct run *r, struct method *m, struct ar_err *err)
{
	const struct cost_options *cost = run_options_of(&r->o, &backend_cost);
	bool formula = r->o.clock == RUN_CLOCK_FORMULA;
	const char *label = m ? m->name : r->costs && r->costs->run.method_name ?
			    r->costs->run.method_name : r->backend->name;
	struct replay_result res;
	enum ar_status st = begin_record(r, m, err), st2 = AR_OK;
	bool ended;

	if (st)
		return st;
	st = replay_run(&(struct replay){
		.trace = r->trace, .arrival = r->o.arrival, .policy = r->policy,
		.limits = r->limits, .backend = r->backend,
		.self = r->self, .host = r->o.host, .store = r->store,
		.formula = formula ? &cost->formula : NULL,
		.keep_entries = r->o.keep_entries, .keep_kernels = r->o.keep_kernels,
		.accuracy = r->o.accuracy, .seed = (uint64_t)r->o.seed,
		.run_layer = r->prep.run_layer,
		.n_run_layers = r->prep.n_run_layers,
		.q_heads = m ? r->model.layer[0].q_heads : 0,
		.kv_heads = m ? r->model.layer[0].kv_heads : 0 }, &res, err);
	ended = !st || st == AR_INTERRUPTED;
	st = end_record(r, st, err);
	if (ended)
		st2 = print_result(label, &res, r->limits.prefix_cache, st ? NULL : err);
	replay_result_release(&res);
	return st ? st : st2;
}

static enum ar_status run_method(struct run *r, size_t i, struct ar_err *err)
{
	struct method *m = r->method ? r->method[i] : NULL;
	enum ar_status st = open_backend(r, m, err);
	int64_t n_block = 0;

	r->limits.cache_root = prefix_cache_root(m && !r->o.share_kv ? m->params : NULL);
	if (!st)
		st = size_pool(r, err);
	if (!st)
		st = physical_blocks(r, &n_block, err);
	if (!st)
		st = r->backend->start(r->self, n_block, err);
	if (!st && !i)
		st = print_header(r, err);
	if (!st)
		st = replay_method(r, m, err);
	if (r->self)
		r->backend->close(r->self);
	r->self = NULL;
	return st;
}

/* One run with the database open around it. */
static enum ar_status run_stored(struct run *r, size_t i, struct ar_err *err)
{
	enum ar_status st = AR_OK, st2;

	if (r->o.db)
		st = store_open(&r->store, r->o.db, err);
	if (!st)
		st = run_method(r, i, err);
	st2 = r->store ? store_close(r->store, st ? NULL : err) : AR_OK;
	r->store = NULL;
	return st ? st : st2;
}

/* ---- a process for each method ---- */

/* What a run tells the process that started it. */
struct told {
	enum ar_status st;
	struct ar_err err;
	const struct backend *backend;		/* what auto became */
	int64_t num_blocks;
};

static void tell(struct run *r, size_t i, int to)
{
	struct told t = { 0 };

	prctl(PR_SET_PDEATHSIG, SIGKILL);	/* nobody waits any more */
	t.st = run_stored(r, i, &t.err);
	t.backend = r->backend;
	t.num_blocks = r->limits.num_blocks;
	_exit(write(to, &t, sizeof t) != sizeof t);
}

/* From now on the signal ends a system call that waits. */
static void end_waits(int sig)
{
	struct sigaction a;

	if (sigaction(sig, NULL, &a))
		return;
	a.sa_flags &= ~SA_RESTART;
	sigaction(sig, &a, NULL);
}

static enum ar_status hear(struct run *r, size_t i, pid_t child, int from, struct ar_err *err)
{
	struct told t;
	ssize_t n;
	int status;

	end_waits(SIGINT);
	end_waits(SIGTERM);
	while ((n = read(from, &t, sizeof t)) < 0 && errno == EINTR)
		kill(child, SIGTERM);	/* stop it as we are asked to stop */
	while (waitpid(child, &status, 0) < 0 && errno == EINTR)
		;
	if (n != sizeof t)
		return ar_fail(err, AR_IO, "the process of method '%s' ended early, by signal %d",
			       r->method[i]->name, WIFSIGNALED(status) ? WTERMSIG(status) : 0);
	*err = t.err;
	r->backend = t.backend;
	r->limits.num_blocks = t.num_blocks;
	return t.st;
}

/* Runs that are compared with each other each get a process: in one process the CUDA graphs of a
 * second run had 8 % longer spans under trace than those of the first, of the same method. */
static enum ar_status run_apart(struct run *r, size_t i, struct ar_err *err)
{
	enum ar_status st;
	pid_t child;
	int fd[2];

	if (fflush(stdout) || pipe(fd))
		return ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	child = fork();
	if (child < 0) {
		st = ar_fail(err, AR_IO, "cannot start a process: %s", strerror(errno));
	} else if (!child) {
		close(fd[0]);
		tell(r, i, fd[1]);
	}
	close(fd[1]);
	if (child > 0)
		st = hear(r, i, child, fd[0], err);
	close(fd[0]);
	return st;
}

/* What a later method names is read before the first one runs, and then again in its turn. */
static enum ar_status try_method(struct run *r, const char *name, struct ar_err *err)
{
	struct method *m;
	enum ar_status st = method_parse(&m, name, err);

	if (st)
		return st;
	set_env(r, m);
	st = attn_engine_try(&r->env, err);
	method_free(m);
	return st;
}

static enum ar_status run(int argc, char **argv, struct ar_err *err)
{
	struct run r = { .cmdline = join_args(argc, argv) };
	enum ar_status st;

	st = run_options_parse(&r.o, argc, argv, err);
	if (!st && r.o.db)
		signal(SIGPIPE, SIG_IGN);	/* what is stored needs no reader of the output */
	if (!st)
		st = load(&r, err);
	if (!st) {
		r.options = options_json(r.o.group);
		if (!r.options || !r.cmdline)
			st = ar_nomem(err);
	}
	for (size_t i = 1; i < r.n_runs && !st; i++)
		st = try_method(&r, r.method[i]->name, err);
	for (size_t i = 0; i < r.n_runs && !st; i++)
		st = r.n_runs > 1 ? run_apart(&r, i, err) : run_stored(&r, i, err);
	unload(&r);
	return st;
}

const struct cmd cmd_run = {
	.name = "run",
	.usage = "--trace FILE [OPTION]...",
	.title = "replay a request trace and measure latency, kernels and accuracy",
	.run = run,
	.options = run_options_show,
};
