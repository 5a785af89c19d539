/* SPDX-License-Identifier: Apache-2.0 */
/* Synthetic traces have the requested statistics, and the same seed gives the same bytes. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <unistd.h>

#include "base/log.h"
#include "tests/alloc_fault.h"
#include "tests/trace_text.h"
#include "traces/algebra/summary.h"
#include "traces/algebra/synth.h"
#include "traces/algebra/synth_sessions.h"

/* Requests of a trace, and how much wider bounds are if there are fewer. */
static size_t n_req;
static double wider;
enum { N = 100000 };
static const char azure[] = "traces/samples/azure-2023-code-200.csv";
static const char mooncake[] = "tests/data/mooncake-14.jsonl";
static const char weka[] = "tests/data/weka-2.jsonl";

static struct trace *model(const char *file)
{
	struct trace *t = NULL;
	char name[400];

	if (!file)
		return NULL;
	snprintf(name, sizeof name, "%s/%s", getenv("srcdir") ? getenv("srcdir") : ".", file);
	if (trace_read(&t, name, &whole, NULL))
		bail_out("cannot read %s", name);
	return t;
}

/* The bytes, to be freed, or NULL. */
static char *made(const char *file, int64_t count, const char *arrivals, const char *lengths,
		  int64_t seed, struct ar_err *err)
{
	struct synth_args a = { .count = count,
				.arrivals = strdup(arrivals),
				.lengths = lengths ? strdup(lengths) : NULL };
	struct trace *t = model(file);
	char *text = NULL;
	size_t n;
	FILE *f = open_memstream(&text, &n);
	enum ar_status st = trace_synthesize(t, &a, seed, f, err);

	fclose(f);
	trace_free(t);
	free(a.arrivals);
	free(a.lengths);
	if (!st)
		return text;
	free(text);
	return NULL;
}

/* Made, and read again. */
static struct trace *synth(const char *file, int64_t count, const char *arrivals,
			   const char *lengths, int64_t seed)
{
	struct ar_err err;
	char *text = made(file, count, arrivals, lengths, seed, &err);
	struct trace *t;

	if (!text)
		bail_out("%s", err.msg);
	t = read_text(text);
	free(text);
	if (!t)
		bail_out("a synthetic trace cannot be read");
	return t;
}

static struct summary summary(const struct trace *t)
{
	struct summary s;

	if (trace_summarize(&s, t, NULL))
		bail_out("no summary");
	return s;
}

static bool near(double got, double want, double tolerance)
{
	bool yes = fabs(got - want) <= tolerance * wider * fabs(want);

	if (!yes)
		diag("got %g, want %g within %g %%", got, want, 100 * tolerance * wider);
	return yes;
}

/* Bounds are five standard errors or more: of a rate cv / sqrt(n_req), of a cv somewhat more. */
static void test_arrivals(void)
{
	static const struct {
		const char *how;
		double rate, cv, tolerance;
	} cases[] = {
		{ "constant:rate=50", 50, 0, 0 },
		{ "poisson:rate=3", 3, 1, 0.03 },
		{ "poisson", 1, 1, 0.03 },
		{ "gamma:rate=20,cv=0.3", 20, 0.3, 0.03 },
		{ "gamma:rate=20,cv=1", 20, 1, 0.03 },
		{ "gamma:rate=0.5,cv=4", 0.5, 4, 0.1 },
	};
	struct summary s;
	struct trace *t;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		t = synth(NULL, (int64_t)n_req, cases[i].how, NULL, 1);
		s = summary(t);
		ok(t->n == n_req && near(s.rate, cases[i].rate,
					 fmax(cases[i].tolerance, 2.0 / (double)n_req)),
		   "%s: the rate is as asked for", cases[i].how);
		ok(near(s.gap_cv, cases[i].cv, cases[i].tolerance), "%s: and the variation",
		   cases[i].how);
		trace_free(t);
	}
	t = synth(NULL, (int64_t)n_req, "poisson:rate=10", NULL, 2);
	s = summary(t);
	ok(near(s.window[0].dispersion, 1, 0.05) && near(s.window[1].dispersion, 1, 0.2),
	   "a Poisson process has no bursts");
	ok(near((double)s.gap_ns.p50, 1e8 * log(2), 0.03) &&
		   near((double)s.gap_ns.p99, 1e8 * log(100), 0.05),
	   "its gaps are exponential");
	trace_free(t);
	t = synth(NULL, (int64_t)n_req, "onoff:rate=10,on=2s,off=6s", NULL, 3);
	s = summary(t);
	/* off for three quarters of the time, and a second of it whole with exp(-1/6) of that */
	ok(near(s.rate, 10, 0.1) && near(s.window[0].idle, 0.75 * exp(-1 / 6.0), 0.1) &&
		   s.window[0].dispersion > 10,
	   "bursts come while on, at a rate that makes up for off");
	ok(near((double)s.gap_ns.p50, 1e9 / 40 * log(2), 0.1), "they are a Poisson process");
	trace_free(t);
	t = synth(NULL, (int64_t)n_req, "onoff:rate=10,off=0", NULL, 3);
	ok(near(summary(t).gap_cv, 1, 0.03), "without off there is one burst only");
	trace_free(t);
}

static void test_lengths(void)
{
	struct summary s, m;
	struct trace *t, *from = model(azure);

	m = summary(from);
	t = synth(NULL, (int64_t)n_req, "poisson", "lognormal:prompt=2000,output=50,prompt-cv=1.5",
		  4);
	s = summary(t);
	ok(near((double)s.prompt.sum / (double)n_req, 2000, 0.03) &&
		   near((double)s.prompt.p50, 2000 / sqrt(1 + 1.5 * 1.5), 0.03),
	   "lengths have the mean and the median of the distribution");
	ok(s.output.min == 50 && s.output.max == 50, "without variation they are constant");
	trace_free(t);
	t = synth(azure, (int64_t)n_req, "poisson", "sample", 5);
	s = summary(t);
	ok(near((double)s.prompt.sum / (double)n_req, (double)m.prompt.sum / 200, 0.03) &&
		   near((double)s.output.sum / (double)n_req, (double)m.output.sum / 200, 0.05) &&
		   s.prompt.max == m.prompt.max && s.output.min == m.output.min,
	   "samples have the lengths of the trace");
	ok(near(s.prompt.p50, m.prompt.p50, 0.1) && near(s.prompt.p90, m.prompt.p90, 0.1) &&
		   fabs(s.correlation - m.correlation) < 0.03,
	   "its percentiles and its correlation");
	ok(near(s.rate, m.rate, 0.03), "the rate of the trace is the default");
	trace_free(t);
	t = synth(azure, (int64_t)n_req, "poisson", "lognormal", 6);
	for (int out = 0; out < 2; out++) {
		double x1 = 0, x2 = 0, y1 = 0, y2 = 0;

		for (size_t i = 0; i < 200; i++) {
			double x = log(out ? from->req[i].output_tok : from->req[i].prompt_tok);

			x1 += x / 200;
			x2 += x * x / 200;
		}
		for (size_t i = 0; i < n_req; i++) {
			double y = log(out ? t->req[i].output_tok : t->req[i].prompt_tok);

			y1 += y / (double)n_req;
			y2 += y * y / (double)n_req;
		}
		ok(near(y1, x1, 0.01) && near(sqrt(y2 - y1 * y1), sqrt(x2 - x1 * x1), 0.03),
		   "a lognormal fit has the logarithms of the trace's %s",
		   out ? "outputs" : "prompts");
	}
	trace_free(t);
	trace_free(from);
}

/* Sessions like those of real agents, or those of a trace. */
static struct trace *sessions(const char *file, size_t n, uint64_t seed)
{
	struct trace *t = file ? model(file) : calloc(1, sizeof *t);
	int64_t *start_ns = calloc(n, sizeof *start_ns);
	struct ar_err err;

	for (size_t i = 0; i < n; i++)
		start_ns[i] = (int64_t)i * 1000000000;
	if (trace_make_sessions(t, start_ns, n, seed, &err))
		bail_out("%s", err.msg);
	free(start_ns);
	return t;
}

static void is_spread(struct spread got, double p50, double p90, double most, double unit,
		      const char *what)
{
	ok(near((double)got.p50 / unit, p50, 0.08) && near((double)got.p90 / unit, p90, 0.15) &&
		   (double)got.max / unit <= most * 1.0001,
	   "%s have the quantiles of real sessions", what);
}

static void test_sessions(void)
{
	const size_t n = (size_t)rounds(1000);
	struct trace *t = sessions(NULL, n, 1), *u;
	struct summary s = summary(t);
	long bad = 0;

	wider = sqrt(1000 / (double)n);
	is_int((long long)s.session.n, (long long)n, "as many sessions as asked for");
	is_spread(s.session, 45, 155, 514, 1, "turns");
	is_spread(s.later, 705, 4064, 894371, 1, "new tokens of later turns");
	is_spread(s.output, 216, 899, 18195, 1, "outputs");
	is_spread(s.think_ns, 10, 171, 77589, 1e9, "think times");
	ok(s.prompt.min >= 6343 && s.prompt.max <= 894371 && s.think_ns.n == t->n - n,
	   "prompts are no longer than real ones, and all later turns have a think time");
	u = sessions(NULL, 3, 1);
	for (size_t i = 0, k = 0; i < t->n; i++) {
		const struct request *q = &t->req[i];

		if (q->session < 3 && (q->prompt_tok != u->req[k].prompt_tok ||
				       q->arrival_ns != u->req[k].arrival_ns))
			bad++;
		k += q->session < 3;
	}
	is_int(bad, 0, "a session does not depend on those after it");
	trace_free(u);
	trace_free(t);
	t = sessions(weka, 50, 2);
	s = summary(t);
	ok(s.session.min == 2 && s.session.max == 3 && s.prompt.max <= 20617 &&
		   s.think_ns.max == 145000000000,
	   "with a trace, sessions have its values");
	trace_free(t);
}

static bool same_lengths(const struct trace *a, const struct trace *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a->req[i].prompt_tok != b->req[i % b->n].prompt_tok ||
		    a->req[i].output_tok != b->req[i % b->n].output_tok)
			return false;
	return true;
}

static void test_rows(void)
{
	struct trace *from = model(mooncake), *t = synth(mooncake, 14 * 50, "gamma", NULL, 7), *u;
	struct summary s = summary(t), m = summary(from);

	ok(t->n == 700 && same_lengths(t, from, 700),
	   "rows of the trace come in order, lap after lap");
	ok(s.blocks_reused == 50 * m.blocks_reused && s.tok_reused == 50 * m.tok_reused &&
		   s.distinct_blocks == 50 * m.distinct_blocks,
	   "the reuse of prefixes stays what it is");
	u = synth(mooncake, 14 * 50, "poisson:rate=9", NULL, 7);
	ok(same_lengths(t, u, 700), "lengths do not depend on arrivals");
	trace_free(u);
	trace_free(t);
	t = synth(mooncake, 0, "trace", NULL, 8);
	ok(t->n == 14 && same_lengths(t, from, 14) &&
		   t->req[13].arrival_ns == from->req[13].arrival_ns,
	   "with its own arrivals it is the trace");
	trace_free(t);
	t = synth(mooncake, 28, "trace", NULL, 8);
	ok(t->req[27].arrival_ns - t->req[14].arrival_ns == from->req[13].arrival_ns &&
		   near((double)t->req[14].arrival_ns, (double)from->req[13].arrival_ns * 14 / 13,
			1e-9),
	   "and goes on after a mean gap");
	trace_free(t);
	trace_free(from);
}

static void test_bytes(void)
{
	static const char *const arrivals[] = { "poisson", "gamma", "onoff", "trace" };
	static const char *const lengths[] = { "trace", "sample", "lognormal" };
	struct ar_err err;

	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 3; k++) {
			char *a = made(mooncake, 100, arrivals[i], lengths[k], 1, &err);
			char *b = made(mooncake, 100, arrivals[i], lengths[k], 1, &err);
			char *c = made(mooncake, 100, arrivals[i], lengths[k], 2, &err);

			is_str(a ? a : "", b ? b : "-",
			       "%s, %s: the same seed gives the same bytes", arrivals[i],
			       lengths[k]);
			/* rows at the times of the trace leave nothing to chance */
			is_int(a && c && !strcmp(strchr(a, '\n'), strchr(c, '\n')), i == 3 && !k,
			       "%s, %s: another seed gives another trace", arrivals[i], lengths[k]);
			free(a);
			free(b);
			free(c);
		}
}

static void test_refused(void)
{
	static const struct {
		const char *file, *arrivals, *lengths, *message;
	} refused[] = {
		{ NULL, "pois", NULL, "--arrivals 'pois': there is no such kind" },
		{ NULL, "poisson:cv=2", NULL, "--arrivals poisson:cv=2: unknown option 'cv'" },
		{ NULL, "gamma:cv", NULL, "'cv': want NAME=VALUE" },
		{ NULL, "trace", NULL, "--arrivals trace needs a trace" },
		{ NULL, "poisson", "sample", "--lengths sample needs a trace" },
		{ NULL, "poisson", "lognormal:prompt=0", "prompt '0': want a number from 1" },
		{ azure, "poisson", "lognormal:prompt=9", "a trace settles the lengths" },
		{ NULL, "constant:rate=1e-9", NULL, "request 10 arrives beyond 2^63 ns" },
	};
	static char poisson[] = "poisson", as_trace[] = "trace", slow[] = "constant:rate=1e-9";
	static const struct {
		const char *file;
		struct synth_args a;
		const char *message;
	} of_sessions[] = {
		{ NULL,
		  { .sessions = 1, .count = 1, .arrivals = poisson },
		  "--count has no effect with --sessions" },
		{ NULL,
		  { .sessions = 1, .lengths = poisson, .arrivals = poisson },
		  "--lengths has no effect with --sessions" },
		{ mooncake,
		  { .sessions = 1, .arrivals = as_trace },
		  "--arrivals trace has requests, not --sessions" },
		{ azure,
		  { .sessions = 1, .arrivals = poisson },
		  "200.csv: --sessions needs a trace with sessions, or none" },
		{ NULL, { .sessions = 12, .arrivals = slow }, "arrivals would go beyond 2^63 ns" },
	};
	struct ar_err err;
	struct trace *t;

	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		char *text = made(refused[i].file, 20, refused[i].arrivals, refused[i].lengths, 0,
				  &err);

		ok(!text && err.status == AR_USAGE && strstr(err.msg, refused[i].message), "%s: %s",
		   refused[i].arrivals, err.msg);
	}
	for (size_t i = 0; i < sizeof of_sessions / sizeof *of_sessions; i++) {
		struct synth_args a = of_sessions[i].a;

		t = model(of_sessions[i].file);
		ok(trace_synthesize(t, &a, 0, stderr, &err) == AR_USAGE &&
			   strstr(err.msg, of_sessions[i].message),
		   "sessions: %s", err.msg);
		trace_free(t);
	}
	t = read_text(VI "0,1,1\n0,1,1\n");
	ok(trace_synthesize(t, &(struct synth_args){ .arrivals = (char[]){ "poisson" } }, 0, stderr,
			    &err) == AR_USAGE &&
		   strstr(err.msg, "have no rate"),
	   "a trace without a rate lends none");
	trace_free(t);
}

static void test_failures(void)
{
	cJSON_Hooks hooks = { malloc, free };
	struct ar_err err;
	FILE *f = fopen("/dev/full", "w");
	char arrivals[] = "poisson";
	struct synth_args a = { .arrivals = arrivals };

	cJSON_InitHooks(&hooks);
	ok(f && trace_synthesize(NULL, &a, 0, f, &err) == AR_IO, "a full disk is an error");
	fclose(f);
	f = fopen("/dev/null", "w");
	for (int with = 0; with < 4; with++) {
		long n = 0, bad = 0;

		a.sessions = with < 2 ? 0 : 2;

		for (;; n += fault_stride(3)) {
			struct trace *t = model(with == 3 ? weka : with == 1 ? mooncake : NULL);
			enum ar_status st;
			bool fired;

			fault_arm(n);
			st = trace_synthesize(t, &a, 0, f, &err);
			fired = fault_disarm();
			trace_free(t);
			if (!fired)
				break;
			bad += !st;
		}
		ok(n > 3 && !bad, "any of %ld allocations fails cleanly", n);
	}
	fclose(f);
	cJSON_InitHooks(NULL);
}

/* Long traces say how far they are. */
static void test_progress(void)
{
	char text[200] = "";
	const int keep = dup(STDERR_FILENO);
	FILE *f = tmpfile();

	if (keep < 0 || !f || dup2(fileno(f), STDERR_FILENO) < 0)
		bail_out("no file for standard error");
	log_level = LOG_INFO;
	progress_period_s = 0;
	free(made(NULL, 3, "poisson", NULL, 0, NULL));
	dup2(keep, STDERR_FILENO);
	close(keep);
	rewind(f);
	text[fread(text, 1, sizeof text - 1, f)] = 0;
	fclose(f);
	ok(strstr(text, "requests 0/3\n") && strstr(text, "requests 2/3, about "),
	   "the progress of requests is shown");
}

int main(void)
{
	plan(0);
	n_req = (size_t)rounds(N);
	wider = sqrt(N / (double)n_req);
	text_begin();
	test_arrivals();
	test_lengths();
	test_rows();
	test_sessions();
	test_bytes();
	test_refused();
	test_failures();
	test_progress();
	text_end();
	return done_testing();
}
