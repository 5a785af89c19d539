/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Synthetic traces.  Arrivals and lengths have separate generators, so that a change of one leaves
 * the other unchanged.
 *
 * Lengths "trace" repeats the requests of the trace in order.  Each pass (lap) has prefixes of its
 * own, so lengths, their correlation and prefix reuse stay the same.
 */
#include "config.h"
#include "traces/algebra/synth.h"

#include <cjson/cJSON.h>
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/log.h"
#include "base/rng.h"
#include "traces/algebra/renumber.h"
#include "traces/algebra/repeat.h"
#include "traces/algebra/synth_sessions.h"

#define OFF(member) offsetof(struct synth_args, member)

/* clang-format off */
const struct opt synth_opts[] = {
	{ .name = "count", .type = OPT_INT, .off = OFF(count), .arg = "N", .def = "0",
	  .min = 0, .max = UINT32_MAX - 1.0,
	  .help = "requests to make; 0: as many as the trace has, or 1000 without a trace" },
	{ .name = "sessions", .type = OPT_INT, .off = OFF(sessions), .arg = "N", .def = "0",
	  .min = 0, .max = 1 << 20,
	  .help = "make N sessions of agents, not single requests; --arrivals then draws their "
		  "starts" },
	{ .name = "arrivals", .type = OPT_STR, .off = OFF(arrivals), .arg = "HOW[:NAME=VALUE,...]",
	  .def = "poisson", .help = "arrival process: constant, poisson, gamma, onoff or trace" },
	{ .name = "lengths", .type = OPT_STR, .off = OFF(lengths), .arg = "HOW[:NAME=VALUE,...]",
	  .help = "lengths: trace, sample or lognormal; if not given, trace, or lognormal without "
		  "a trace" },
	{ 0 }
};
/* clang-format on */

/* ---- options ---- */

enum process { CONSTANT, POISSON, GAMMA, ONOFF, AS_TRACE };

struct arrival_params {
	double rate, cv;
	int64_t on_ns, off_ns;
};

#define RATE \
	{ \
		.name = "rate", .type = OPT_REAL, .off = offsetof(struct arrival_params, rate), \
		.def = "0", .min = 0, .max = 1e9 \
	}

static const struct opt no_params[] = { { 0 } };
static const struct opt rate_params[] = { RATE, { 0 } };
static const struct opt gamma_params[] = { RATE,
					   { .name = "cv",
					     .type = OPT_REAL,
					     .off = offsetof(struct arrival_params, cv),
					     .def = "2",
					     .min = 0.01,
					     .max = 100 },
					   { 0 } };
static const struct opt onoff_params[] = { RATE,
					   { .name = "on",
					     .type = OPT_TIME,
					     .off = offsetof(struct arrival_params, on_ns),
					     .def = "10s",
					     .min = 1,
					     .max = 3.6e18 },
					   { .name = "off",
					     .type = OPT_TIME,
					     .off = offsetof(struct arrival_params, off_ns),
					     .def = "20s",
					     .min = 0,
					     .max = 3.6e18 },
					   { 0 } };

enum lengths { BY_ROW, BY_SAMPLE, LOGNORMAL };

struct length_params {
	double prompt, output, prompt_cv, output_cv;
};

#define LENGTH(text, member, value, least, most) \
	{ \
		.name = text, .type = OPT_REAL, .off = offsetof(struct length_params, member), \
		.def = value, .min = least, .max = most \
	}

/* clang-format off */
static const struct opt lognormal_params[] = {
	LENGTH("prompt", prompt, "1024", 1, 1e8),
	LENGTH("output", output, "128", 1, 1e8),
	LENGTH("prompt-cv", prompt_cv, "0", 0, 100),
	LENGTH("output-cv", output_cv, "0", 0, 100),
	{ 0 }
};
/* clang-format on */

struct kind {
	const char *name;
	const struct opt *params;
	bool needs_trace;
};
static const struct kind processes[] = { [CONSTANT] = { "constant", rate_params, false },
					 [POISSON] = { "poisson", rate_params, false },
					 [GAMMA] = { "gamma", gamma_params, false },
					 [ONOFF] = { "onoff", onoff_params, false },
					 [AS_TRACE] = { "trace", no_params, true },
					 { 0 } };
static const struct kind length_kinds[] = { [BY_ROW] = { "trace", no_params, true },
					    [BY_SAMPLE] = { "sample", no_params, true },
					    [LOGNORMAL] = { "lognormal", lognormal_params, false },
					    { 0 } };

static enum ar_status parse_spec(const struct kind *kinds, const char *option, const char *spec,
				 const struct trace *t, void *params, int *which,
				 struct ar_err *err)
{
	size_t n = strcspn(spec, ":");
	struct opt_group g[2] = { { .base = params } };
	enum ar_status st;

	for (*which = 0; kinds[*which].name; ++*which)
		if (!strncmp(kinds[*which].name, spec, n) && !kinds[*which].name[n])
			break;
	if (!kinds[*which].name)
		return ar_fail(err, AR_USAGE, "--%s '%s': there is no such kind; see --help",
			       option, spec);
	if (kinds[*which].needs_trace && !t)
		return ar_fail(err, AR_USAGE, "--%s %s needs a trace; name a FILE", option, spec);
	g->opts = kinds[*which].params;
	st = opt_init(g, err);
	if (!st && spec[n])
		st = opt_set_all(g, spec + n + 1, err);
	if (st)
		ar_err_prefix(err, "--%s %s", option, spec);
	return st;
}

/* ---- random numbers ---- */

/* Uniform in (0, 1]. */
static double positive(struct rng *r)
{
	return 1 - rng_unit(r);
}

static double exponential(struct rng *r)
{
	return -log(positive(r));
}

/* Standard normal, by Box and Muller. */
static double normal(struct rng *r)
{
	double u = positive(r), v = rng_unit(r);

	return sqrt(-2 * log(u)) * cos(6.283185307179586 * v);
}

/* Gamma variate of shape a and scale 1, by Marsaglia and Tsang (2000). */
static double gamma_variate(struct rng *r, double a)
{
	double d = (a < 1 ? a + 1 : a) - 1.0 / 3, c = 1 / sqrt(9 * d), x, v;

	do {
		x = normal(r);
		v = 1 + c * x;
		v *= v * v;
	} while (v <= 0 || log(positive(r)) >= x * x / 2 + d - d * v + d * log(v));
	return a < 1 ? d * v * pow(positive(r), 1 / a) : d * v;
}

/* ---- generators ---- */

struct lognormal {
	double mu, sigma;
};

struct synth {
	struct trace *t; /* the trace to follow; n 0: none */
	int process, lengths;
	struct arrival_params arrival;
	struct rng times, sizes;
	double gap_ns;	   /* mean */
	double on_left_ns; /* rest of the current burst */
	struct lognormal prompt, output;
	double correlation; /* of the logarithms of prompt and output */
	double period_ns;   /* length of a lap */
	uint64_t n_ids;	    /* prefix block ids of a lap */
	int64_t now_ns;
};

/* Requests arrive only in state on.  The times in both states are exponential. */
static double onoff_gap(struct synth *s)
{
	double on = (double)s->arrival.on_ns, off = (double)s->arrival.off_ns, gap = 0;
	double need = exponential(&s->times) * s->gap_ns * (on / (on + off));

	while (need > s->on_left_ns) {
		gap += s->on_left_ns + exponential(&s->times) * off;
		need -= s->on_left_ns;
		s->on_left_ns = exponential(&s->times) * on;
	}
	s->on_left_ns -= need;
	return gap + need;
}

static double next_gap(struct synth *s)
{
	double shape = 1 / (s->arrival.cv * s->arrival.cv);

	switch (s->process) {
	case POISSON: return exponential(&s->times) * s->gap_ns;
	case GAMMA: return gamma_variate(&s->times, shape) / shape * s->gap_ns;
	case ONOFF: return onoff_gap(s);
	default: return s->gap_ns;
	}
}

static double draw_arrival(struct synth *s, size_t i)
{
	const struct trace *t = s->t;

	if (s->process == AS_TRACE)
		return floor((double)(i / t->n) * s->period_ns) +
		       (double)(t->req[i % t->n].arrival_ns - t->req[0].arrival_ns);
	return i ? (double)s->now_ns + floor(next_gap(s) + 0.5) : 0;
}

static uint32_t draw_tokens(const struct lognormal *d, double z)
{
	double n = floor(exp(d->mu + d->sigma * z) + 0.5);

	return n < 1 ? 1 : n < INT32_MAX ? (uint32_t)n : INT32_MAX;
}

static void lengths(struct synth *s, size_t i, struct request *q)
{
	struct trace *t = s->t;

	if (s->lengths == LOGNORMAL) {
		double x = normal(&s->sizes), y = normal(&s->sizes), c = s->correlation;

		q->prompt_tok = draw_tokens(&s->prompt, x);
		q->output_tok = draw_tokens(&s->output, c * x + sqrt(1 - c * c) * y);
		return;
	}
	*q = t->req[s->lengths == BY_ROW ? i % t->n : rng_below(&s->sizes, t->n)];
	q->session = -1;
	if (s->lengths == BY_SAMPLE)
		q->n_block = q->n_run = 0;
	else if (i && i % t->n == 0)
		for (size_t k = 0; k < t->n_run; k++)
			t->run[k].id += s->n_ids;
}

/* ---- setting up ---- */

/* Maximum-likelihood fit of mean and standard deviation of the logarithms. */
static void fit_lengths(struct synth *s)
{
	double n = (double)s->t->n, x1 = 0, x2 = 0, y1 = 0, y2 = 0, xy = 0;

	for (size_t i = 0; i < s->t->n; i++) {
		double x = log(s->t->req[i].prompt_tok), y = log(s->t->req[i].output_tok);

		x1 += x;
		x2 += x * x;
		y1 += y;
		y2 += y * y;
		xy += x * y;
	}
	s->prompt = (struct lognormal){ x1 / n, sqrt(fmax(x2 / n - x1 / n * (x1 / n), 0)) };
	s->output = (struct lognormal){ y1 / n, sqrt(fmax(y2 / n - y1 / n * (y1 / n), 0)) };
	if (s->prompt.sigma > 0 && s->output.sigma > 0)
		s->correlation = (xy / n - x1 / n * (y1 / n)) / (s->prompt.sigma * s->output.sigma);
	s->correlation = fmax(-1, fmin(1, s->correlation));
}

static struct lognormal with_mean(double mean, double cv)
{
	double variance = log1p(cv * cv);

	return (struct lognormal){ log(mean) - variance / 2, sqrt(variance) };
}

static enum ar_status set_rate(struct synth *s, struct ar_err *err)
{
	s->period_ns = s->t->n ? trace_period_ns(s->t) : 0;
	if (s->arrival.rate > 0)
		s->gap_ns = 1e9 / s->arrival.rate;
	else if (!s->t->n)
		s->gap_ns = 1e9;
	else if (s->period_ns > 0)
		s->gap_ns = s->period_ns / (double)s->t->n;
	else
		return ar_fail(err, AR_USAGE,
			       "%s: requests that arrive together have no rate; give one, as in "
			       "--arrivals poisson:rate=2",
			       s->t->name);
	return AR_OK;
}

/* Without a trace to follow, an empty trace holds the members that the header needs. */
static enum ar_status prepare_trace(struct synth *s, struct trace *t, const struct synth_args *a,
				    struct ar_err *err)
{
	struct length_params length = { 0 };
	const char *how = a->lengths ? a->lengths : t ? "trace" : "lognormal";
	enum ar_status st = parse_spec(processes, "arrivals", a->arrivals, t, &s->arrival,
				       &s->process, err);

	if (!st)
		st = parse_spec(length_kinds, "lengths", how, t, &length, &s->lengths, err);
	if (!st && t && s->lengths == LOGNORMAL && strchr(how, ':'))
		st = ar_fail(err, AR_USAGE,
			     "--lengths %s: a trace settles the lengths; leave out "
			     "the parameters or the FILE",
			     how);
	if (!st)
		st = set_rate(s, err);
	if (st)
		return st;
	if (t && s->lengths == LOGNORMAL)
		fit_lengths(s);
	s->on_left_ns = exponential(&s->times) * (double)s->arrival.on_ns;
	if (!t) {
		s->prompt = with_mean(length.prompt, length.prompt_cv);
		s->output = with_mean(length.output, length.output_cv);
	}
	if (s->lengths != BY_ROW)
		s->t->block_tok = 0;
	s->t->has_epoch = false;
	st = trace_number_blocks(s->t, &s->n_ids, err);
	return st ? st : trace_note(s->t, err, "synth,arrivals=%s,lengths=%s", a->arrivals, how);
}

static enum ar_status generate(struct synth *s, size_t n, FILE *f, struct ar_err *err)
{
	if (!trace_put_header(s->t, n, f))
		return ar_nomem(err);
	for (size_t i = 0; i < n && !ferror(f); i++) {
		struct request q = request_none;
		double at = draw_arrival(s, i);

		if (at >= 9.2e18)
			return ar_fail(err, AR_USAGE,
				       "request %zu arrives beyond 2^63 ns; give a "
				       "higher rate or a smaller count",
				       i);
		lengths(s, i, &q);
		q.arrival_ns = s->now_ns = (int64_t)at;
		trace_put_request(s->t, NULL, i, &q, f);
		if (ar_interrupted())
			return ar_fail(err, AR_INTERRUPTED, "interrupted");
		progress("requests", i, n);
	}
	progress_end();
	if (fflush(f) || ferror(f))
		return ar_fail(err, AR_IO, "cannot write the trace: %s", strerror(errno));
	return AR_OK;
}

/* ---- sessions ---- */

/* The starts of n sessions come from the same processes as the arrivals of requests. */
static enum ar_status prepare_sessions(struct synth *s, const struct synth_args *a,
				       struct ar_err *err)
{
	enum ar_status st = parse_spec(processes, "arrivals", a->arrivals, s->t, &s->arrival,
				       &s->process, err);

	if (!st && s->process == AS_TRACE)
		st = ar_fail(err, AR_USAGE, "--arrivals trace has requests, not --sessions");
	if (!st && (a->count || a->lengths))
		st = ar_fail(err, AR_USAGE, "--%s has no effect with --sessions",
			     a->count ? "count" : "lengths");
	s->gap_ns = 1e9 / (s->arrival.rate > 0 ? s->arrival.rate : 1);
	s->on_left_ns = exponential(&s->times) * (double)s->arrival.on_ns;
	s->t->has_epoch = false;
	return st ? st :
		    trace_note(s->t, err, "synth,sessions=%" PRId64 ",arrivals=%s", a->sessions,
			       a->arrivals);
}

static enum ar_status generate_sessions(struct synth *s, const struct synth_args *a, FILE *f,
					struct ar_err *err)
{
	const size_t n = (size_t)a->sessions;
	int64_t *start_ns = malloc(n * sizeof *start_ns);
	enum ar_status st = start_ns ? AR_OK : ar_nomem(err);

	for (size_t i = 0; i < n && !st; i++) {
		double at = draw_arrival(s, i);

		start_ns[i] = s->now_ns = at < 9.2e18 ? (int64_t)at : INT64_MAX;
	}
	if (!st)
		st = trace_make_sessions(s->t, start_ns, n, s->sizes.state, err);
	free(start_ns);
	return st ? st : trace_write(s->t, f, err);
}

enum ar_status trace_synthesize(struct trace *t, const struct synth_args *a, int64_t seed, FILE *f,
				struct ar_err *err)
{
	size_t n;
	struct trace *none = NULL;
	struct synth s = { .times = { rng_mix((uint64_t)seed) },
			   .sizes = { rng_mix(~(uint64_t)seed) } };
	enum ar_status st;

	if (!t) {
		none = calloc(1, sizeof *none);
		if (!none)
			return ar_nomem(err);
		none->sources = cJSON_CreateArray();
		none->transforms = cJSON_CreateArray();
		if (!none->sources || !none->transforms) {
			trace_free(none);
			return ar_nomem(err);
		}
	}
	s.t = t ? t : none;
	n = (size_t)(a->count ? a->count : t ? (int64_t)t->n : 1000);
	st = a->sessions ? prepare_sessions(&s, a, err) : prepare_trace(&s, t, a, err);
	if (!st)
		st = trace_note(s.t, err, "trace-seed=%" PRId64, seed);
	if (!st)
		st = a->sessions ? generate_sessions(&s, a, f, err) : generate(&s, n, f, err);
	trace_free(none);
	return st;
}
