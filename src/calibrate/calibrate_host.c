/* SPDX-License-Identifier: Apache-2.0 */
/* Calibrate the host model from step logs of an engine. */
#include "config.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/stats.h"
#include "base/text.h"
#include "replay/cost/costs.h"
#include "src/calibrate/calibrate.h"
#include "src/calibrate/host_fit.h"
#include "src/model_opt.h"

struct args {
	char *model, *as_model, *costs, *about;
};

/* vLLM's sizes of CUDA graphs, for logs that do not have them (vllm/config/vllm.py). */
enum { DEFAULT_CAPTURED = 512 };

struct gather {
	const struct args *args;
	struct costs *costs; /* or NULL */
	struct host_fit_step *step;
	struct host_fit_line *line;
	size_t n_step, n_line, cap_step, cap_line;
	int64_t *size; /* [n_size] captured sizes */
	size_t n_size;
	struct probe sum;	    /* of the logs' probes */
	int n_probe[PROBE_N_TIMES]; /* logs that have the time */
	char about[128];
};

static enum ar_status load_model(const struct gather *g, const struct engine_log *log,
				 struct model *m, struct ar_err *err)
{
	if (g->args->model)
		return model_load_as(m, g->args->model, g->args->as_model, err);
	if (log->model_json)
		return model_parse(m, log->name, log->model_json, err);
	return ar_fail(err, AR_USAGE,
		       "%s: the log has no model; give the model that the engine ran with --model",
		       log->name);
}

/* The batch of step s.  start: [n_request] positions that each request has computed. */
static struct host_load load_of(const struct engine_log *log, const struct engine_step *s,
				const struct host *h, struct batch_entry *entry, uint32_t *start,
				struct batch_shape *shape)
{
	struct batch b = { .entry = entry, .n = s->n_entry };

	for (size_t i = 0; i < s->n_entry; i++) {
		const struct engine_entry *e = &log->entry[s->first + i];
		uint32_t *at = e->req < 0 ? NULL : &start[e->req];
		uint32_t prompt = at ? log->request[e->req].prompt_tok : 0;
		bool decode = e->n_tok == 1 && (!at || !prompt || *at >= prompt);

		entry[i] = (struct batch_entry){ .start = at ? *at : 0,
						 .n_tok = e->n_tok,
						 .kind = decode ? ROW_DECODE : ROW_PREFILL,
						 .n_emit = at && *at + e->n_tok >= prompt,
						 .chunk_no = at ? *at > 0 : decode };
		if (at)
			*at += e->n_tok;
		if (decode)
			b.decode_tok++;
		else
			b.prefill_tok += e->n_tok;
	}
	*shape = batch_shape(&b);
	return host_load(h, &b);
}

/* The time of a step outside of its parts, such as handing out tokens.  It belongs to the last
 * part. */
static int64_t rest(const struct engine_step *s)
{
	int64_t rest = s->end_ns - s->begin_ns;

	for (int i = 0; i < ENGINE_PARTS; i++) {
		if (s->part_ns[i] < 0)
			return 0;
		rest -= s->part_ns[i];
	}
	return rest > 0 ? rest : 0;
}

static enum ar_status add_steps(struct gather *g, const struct engine_log *log,
				const struct host *h, const struct model *m, struct ar_err *err)
{
	struct batch_entry *entry = calloc(log->n_entry + 1, sizeof *entry);
	uint32_t *start = calloc(log->n_request + 1, sizeof *start);

	if (!entry || !start || !GROW(g->step, g->cap_step, g->n_step + log->n_step)) {
		free(entry);
		free(start);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < log->n_step; i++) {
		const struct engine_step *s = &log->step[i];
		struct host_fit_step *to = &g->step[g->n_step++];
		struct batch_shape shape;
		int outside;

		*to = (struct host_fit_step){ .begin_ns = s->begin_ns,
					      .end_ns = s->end_ns,
					      .gpu_ns = -1,
					      .n_layers = m->n_layers,
					      .n_kernels = host_kernels(m),
					      .async = log->async,
					      .first = !i };
		to->load = load_of(log, s, h, entry, start, &shape);
		memcpy(to->part_ns, s->part_ns, sizeof to->part_ns);
		to->part_ns[ENGINE_UPDATE] += rest(s);
		to->load.idle = !i || !log->step[i - 1].n_entry;
		if (g->costs && s->n_entry)
			cost_table_find(g->costs->table, &shape, &to->gpu_ns, &outside);
	}
	free(entry);
	free(start);
	return AR_OK;
}

/* The terms of a time of the front end; by HTTP, two more times are on top. */
static struct host_fit_line front_line(const struct engine_log *log, struct host_fit_term own,
				       struct host_fit_term http, int64_t n, int64_t ns)
{
	return (struct host_fit_line){ { own, http }, log->http ? 2 : 1, n, ns > 0 ? ns : 0 };
}

static void add_term(struct host_fit_line *l, enum host_time at)
{
	l->term[l->n_term++] = (struct host_fit_term){ at, -1 };
}

/* step: [log->n_step] of the log. */
static enum ar_status add_lines(struct gather *g, const struct engine_log *log,
				const struct host_fit_step *step, struct ar_err *err)
{
	if (!GROW(g->line, g->cap_line, g->n_line + 2 * log->n_request + log->n_step))
		return ar_nomem(err);
	for (size_t i = 0; i < log->n_request; i++) {
		const struct engine_request *q = &log->request[i];

		if (q->admit_ns >= 0)
			g->line[g->n_line++] = (struct host_fit_line){
				{ { HOST_ADMIT, HOST_ADMIT_TOK } }, 1, q->prompt_tok, q->admit_ns
			};
		if (q->received_ns >= 0 && q->arrival_ns >= 0)
			g->line[g->n_line++] = front_line(
				log, (struct host_fit_term){ HOST_RECEIVE, HOST_RECEIVE_TOK },
				(struct host_fit_term){ HOST_HTTP, HOST_HTTP_TOK }, q->prompt_tok,
				q->received_ns - q->arrival_ns);
	}
	for (size_t i = 0; i < log->n_step; i++) {
		const struct engine_step *s = &log->step[i];

		if (s->seen_ns < 0)
			continue;
		g->line[g->n_line] =
			front_line(log, (struct host_fit_term){ HOST_DELIVER, HOST_DELIVER_REQ },
				   (struct host_fit_term){ HOST_HTTP_SEND, HOST_HTTP_SEND_REQ },
				   s->n_seen, s->seen_ns - s->end_ns);
		if (step[i].load.n_req && step[i].load.kind == HOST_KIND_EAGER)
			add_term(&g->line[g->n_line], HOST_DELIVER_EAGER);
		g->n_line++;
	}
	return AR_OK;
}

/* All logs are of one engine, so the first one names it and its sizes. */
static enum ar_status take_engine(struct gather *g, const struct engine_log *log, struct host *h,
				  struct ar_err *err)
{
	static const int64_t by_default[] = { DEFAULT_CAPTURED };
	const int64_t *size = log->n_capture_size ? log->capture_size : by_default;

	g->n_size = log->n_capture_size ? log->n_capture_size : 1;
	g->size = malloc(g->n_size * sizeof *g->size);
	if (!g->size)
		return ar_nomem(err);
	memcpy(g->size, size, g->n_size * sizeof *g->size);
	h->max_captured = size[g->n_size - 1];
	if (g->args->about)
		snprintf(h->about, sizeof h->about, "%s", g->args->about);
	else
		snprintf(h->about, sizeof h->about, "%s %s on %s",
			 log->engine ? log->engine : "an engine", log->version ? log->version : "",
			 log->gpu ? log->gpu : "a GPU");
	return AR_OK;
}

static void add_probe(struct gather *g, const struct probe *p)
{
	for (int i = 0; i < PROBE_N_TIMES; i++) {
		g->sum.ns[i] += p->ns[i];
		g->n_probe[i] += p->ns[i] > 0;
	}
}

static enum ar_status add_log(struct gather *g, const char *path, struct host *h,
			      struct ar_err *err)
{
	struct engine_log *log;
	struct model m = { 0 };
	enum ar_status st = engine_log_open(&log, path, err);

	if (st)
		return st;
	if (!log->n_step)
		st = ar_fail(err, AR_DATA, "%s: no steps; give a log that has the engine's steps",
			     path);
	else if (log->async < 0)
		st = ar_fail(err, AR_DATA,
			     "%s: the log does not say whether scheduling was asynchronous; add "
			     "\"async\": true or false to its header",
			     path);
	if (!st)
		st = load_model(g, log, &m, err);
	if (!st && !g->size)
		st = take_engine(g, log, h, err);
	if (!st)
		add_probe(g, &log->probe);
	if (!st)
		st = add_steps(g, log, h, &m, err);
	if (!st)
		st = add_lines(g, log, &g->step[g->n_step - log->n_step], err);
	model_release(&m);
	engine_log_close(log);
	return st;
}

/* ---- the result ---- */

static void print_times(const struct host *h, const struct host_fit_result *res)
{
	static const char *const about[] = {
#define X(name, key, text) text,
		HOST_TIMES(X)
#undef X
	};

	printf("%-20s%12s  %s\n", "time", "ns", "of");
	for (int i = 0; i < HOST_N_TIMES; i++)
		printf("%-20s%12" PRId64 "  %s%s\n", host_keys[i], h->ns[i], about[i],
		       res->identified[i] ? "" : "; not identifiable from these logs");
}

static double percentile_ms(double *x, size_t n, double p)
{
	return stats_percentile(x, n, p) / 1e6;
}

/* Measured and predicted times of the steps of a kind, and the differences. */
static enum ar_status print_kind(const struct gather *g, const struct host_fit_result *res,
				 enum host_kind kind, struct ar_err *err)
{
	double *x = malloc((4 * g->n_step + 1) * sizeof *x);
	double *got = x, *want = x + g->n_step, *diff = want + g->n_step, *off = diff + g->n_step;
	size_t n = 0;

	if (!x)
		return ar_nomem(err);
	for (size_t i = 0; i < g->n_step; i++) {
		const struct host_fit_step *s = &g->step[i];

		if (!s->load.n_req || s->load.kind != kind)
			continue;
		want[n] = (double)(s->end_ns - s->begin_ns);
		got[n] = (double)res->predicted_ns[i];
		diff[n] = got[n] - want[n];
		off[n] = diff[n] < 0 ? -diff[n] : diff[n];
		n++;
	}
	printf("%-8s%8zu", host_kind_names[kind], n);
	if (n) {
		stats_sort(want, n);
		stats_sort(got, n);
		stats_sort(diff, n);
		stats_sort(off, n);
		printf("%12.3f%12.3f%12.3f%12.3f%12.3f%12.3f", percentile_ms(want, n, 50),
		       percentile_ms(want, n, 90), percentile_ms(got, n, 50),
		       percentile_ms(got, n, 90), percentile_ms(diff, n, 50),
		       percentile_ms(off, n, 90));
	}
	putchar('\n');
	free(x);
	return AR_OK;
}

/* The time of preparing and launching relative to the fitted one.  A kind with few steps, or whose
 * logs have no parts, has no spread. */
static void print_spread(const struct host *h)
{
	static const int at[] = { 1, HOST_SPREAD / 2, HOST_SPREAD - 2 };

	printf("\n%-8s%24s\n%-8s", "", "preparing and launching", "kind");
	for (size_t i = 0; i < sizeof at / sizeof *at; i++)
		printf("    p%-3.0f", 100 * (at[i] + 0.5) / HOST_SPREAD);
	putchar('\n');
	for (int k = 0; k < HOST_KINDS; k++) {
		printf("%-8s", host_kind_names[k]);
		for (size_t i = 0; i < sizeof at / sizeof *at; i++)
			if (h->spread[k][0])
				printf("%8.3f", (double)h->spread[k][at[i]] / 1000);
			else
				printf("%8s", "-");
		putchar('\n');
	}
}

static enum ar_status print_result(const struct gather *g, const struct host *h,
				   const struct host_fit_result *res, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	printf("%zu steps and %zu times of requests and outputs of ", g->n_step, g->n_line);
	text_put(h->about, stdout);
	puts(g->costs ? ", GPU times from --costs" : ", GPU times fitted as lines");
	print_times(h, res);
	printf("\n%-8s%8s%24s%24s%24s\n%-8s%8s%12s%12s%12s%12s%12s%12s\n", "", "", "measured ms",
	       "predicted ms", "error ms", "kind", "steps", "p50", "p90", "p50", "p90", "p50",
	       "p90 of |.|");
	for (int k = 0; k < HOST_KINDS && !st; k++)
		st = print_kind(g, res, k, err);
	if (!st)
		print_spread(h);
	return st;
}

static enum ar_status run_host(const void *arg, char *const *path, size_t n, const char *out,
			       struct ar_err *err)
{
	struct gather g = { .args = arg };
	struct host_fit_result res = { 0 };
	struct host h = { 0 };
	enum ar_status st = AR_OK;

	if (g.args->costs)
		st = costs_open_list(&g.costs, g.args->costs, err);
	for (size_t i = 0; i < n && !st; i++)
		st = add_log(&g, path[i], &h, err);
	if (!st)
		st = host_fit(&h, &(struct host_fit_input){ g.step, g.n_step, g.line, g.n_line },
			      &res, err);
	for (int i = 0; i < PROBE_N_TIMES; i++)
		h.probe.ns[i] = g.n_probe[i] ? g.sum.ns[i] / g.n_probe[i] : 0;
	if (!st)
		st = host_write(&h, g.size, g.n_size, out, err);
	if (!st)
		st = print_result(&g, &h, &res, err);
	free(res.predicted_ns);
	free(g.step);
	free(g.line);
	free(g.size);
	costs_close(g.costs);
	return st;
}

#define OFF(member) offsetof(struct args, member)
/* clang-format off */
static const struct opt opts[] = {
	{ .name = "model", .type = OPT_STR, .off = OFF(model), .arg = "NAME",
	  .help = "model that the engine ran: preset, config.json, or folder with one; the log's "
		  "own if not given" },
	AS_MODEL_OPT(OFF(as_model)),
	{ .name = "costs", .type = OPT_STR, .off = OFF(costs), .arg = "DB[:RUN],...",
	  .help = "take the GPU's time of each step from runs, instead of fitting it, too" },
	{ .name = "about", .type = OPT_STR, .off = OFF(about), .arg = "TEXT",
	  .help = "what the file says of itself; engine and GPU of the log if not given" },
	{ 0 }
};
/* clang-format on */

const struct calibrator calibrate_host = {
	.name = "host",
	.title = "the time of an engine's host, from its step logs, for run --host",
	.operand = "step log",
	.opts = opts,
	.arg_size = sizeof(struct args),
	.run_logs = run_host,
};
