/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning: the search of a threshold on functions that are known, and that of several methods. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "src/tune/threshold.h"
#include "src/tune/tune.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

/* ---- the search ---- */

typedef double figure_fn(double x);

static double rising(double x)
{
	return sqrt(x);
}

static double falling(double x)
{
	return 1 - x * x * x;
}

/* As a recall over alpha: most of it happens near 0. */
static double near_zero(double x)
{
	return 1 / (1 + 2000 * x);
}

/* As a recall over a mass: most of it happens near 1. */
static double near_one(double x)
{
	return 1 - sqrt(1 - x);
}

static double stairs(double x)
{
	return floor(10 * x) / 10;
}

/* Rises, falls and rises again. */
static double bent(double x)
{
	return 0.5 + 0.7 * (x - 0.5) + 0.4 * sin(4 * M_PI * x);
}

/* As the share of 50 answers that are exact, over an alpha. */
static double few_answers(double x)
{
	return ceil(50 * (1 - cbrt(x))) / 50;
}

static double flat(double x)
{
	return 0 * x + 0.3;
}

static double nothing(double x)
{
	return 0 * x + NAN;
}

/* The search of at least a figure, where the cost falls with the value. */
static struct threshold search_least(figure_fn *f, double want, double near, bool costs_known)
{
	struct threshold t;
	double x;

	threshold_init(&t, 0, 1, want, near);
	t.least = true;
	while (threshold_next(&t, &x))
		threshold_tell(&t, f(x), costs_known ? 1 - x : NAN);
	return t;
}

static struct threshold search(figure_fn *f, double want, double near)
{
	struct threshold t;
	double x, tried[40];

	threshold_init(&t, 0, 1, want, near);
	while (threshold_next(&t, &x)) {
		char text[32];

		for (int i = 0; i < t.steps; i++)
			if (tried[i] == x)
				bail_out("%.17g is asked for twice", x);
		snprintf(text, sizeof text, "%.8g", x);
		if (strtod(text, NULL) != x || x < 0 || x > 1 || t.steps == 40)
			bail_out("value %d is %.17g", t.steps, x);
		tried[t.steps] = x;
		threshold_tell(&t, f(x), NAN);
	}
	return t;
}

static void test_found(void)
{
	static const struct {
		figure_fn *f;
		const char *name;
	} v[] = { { rising, "rising" },
		  { falling, "falling" },
		  { near_zero, "steep near 0" },
		  { near_one, "steep near 1" } };

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		int bad = 0, most = 0;

		for (double want = 0.05; want < 0.999; want += 0.03) {
			struct threshold t = search(v[i].f, want, 0.001);

			bad += !threshold_reached(&t) || threshold_beyond(&t) || t.bends ||
			       fabs(v[i].f(t.best.value) - want) > 0.001 ||
			       t.best.figure != v[i].f(t.best.value);
			most = t.steps > most ? t.steps : most;
		}
		ok(!bad && most <= 18, "%s: every figure is found, in at most %d steps", v[i].name,
		   most);
	}
}

static void test_random(void)
{
	struct rng rng = { 5 };
	int bad = 0;

	/* Powers of x and of 1 - x, with a slope of either sign and any range. */
	for (int k = 0; k < 2000; k++) {
		double power = exp(2 * rng_unit(&rng) - 1), x;
		double want = 0.03 + 0.94 * rng_unit(&rng);
		double min = 10 * rng_unit(&rng), max = min + 0.1 + rng_unit(&rng);
		bool down = rng_unit(&rng) < 0.5, mirror = rng_unit(&rng) < 0.5;
		struct threshold t;

		threshold_init(&t, min, max, want, 0.02);
		while (threshold_next(&t, &x)) {
			double u = (x - min) / (max - min);
			double y = pow(mirror ? 1 - u : u, power);

			bad += x < min || x > max;
			threshold_tell(&t, down ? 1 - y : y, NAN);
		}
		bad += !threshold_reached(&t) || t.bends || t.steps > 32;
	}
	is_int(bad, 0, "random monotone functions reach random figures");
}

static void test_not_found(void)
{
	struct threshold t = search(rising, 1.2, 0.001);

	ok(!threshold_reached(&t) && threshold_beyond(&t) && t.best.value == 1 && t.steps == 2,
	   "a figure beyond both ends is told, with the nearer end");
	t = search(falling, -1, 0.001);
	ok(threshold_beyond(&t) && t.best.value == 1, "... below as well");
	t = search(flat, 0.5, 0.001);
	ok(threshold_beyond(&t) && t.best.figure == 0.3, "a value without effect");
	t = search(nothing, 0.5, 0.001);
	ok(!threshold_reached(&t) && t.steps == 2, "no figure at all");
	t = search(stairs, 0.75, 0.001);
	ok(!threshold_reached(&t) && !threshold_beyond(&t) && !t.bends &&
		   fabs(t.best.figure - 0.75) < 0.051 && t.hi.value - t.lo.value < 1e-3,
	   "a figure inside a jump: the nearest is %g, the gap closes at %g", t.best.figure,
	   t.lo.value);
	t = search(rising, 1, 0.001);
	ok(threshold_reached(&t) && t.best.value == 1 && t.steps == 2,
	   "an end may have the figure");
}

static void test_bends(void)
{
	int seen = 0, wrong = 0;

	for (double want = 0.2; want < 0.8; want += 0.02) {
		struct threshold t = search(bent, want, 0.001);

		seen += t.bends;
		wrong += !threshold_reached(&t);
	}
	ok(!wrong && seen > 10, "a function that bends reaches figures, and it is told (%d times)",
	   seen);
}

static void test_least(void)
{
	struct threshold t;
	int bad = 0;

	for (int known = 0; known < 2; known++)
		for (int n = 1; n < 50; n++) {
			double edge = pow(1 - (n - 1) / 50.0, 3), x;

			t = search_least(few_answers, n / 50.0, 0.0005, known);
			x = t.best.value;
			bad += !threshold_reached(&t) || t.best.figure != n / 50.0 || x >= edge ||
			       (n > 1 && log(edge / (1 - edge)) - log(x / (1 - x)) > 0.13) ||
			       t.steps > 11;
		}
	is_int(bad, 0, "at least a figure with steps: the search ends at the edge of its step");
	for (int known = 0; known < 2; known++) {
		t = search_least(flat, 0.2, 0.001, known);
		ok(threshold_reached(&t) && t.best.value == 1 && t.steps == 2,
		   "if all values have it, the cheaper end");
	}
	t = search_least(flat, 0.4, 0.001, true);
	ok(threshold_beyond(&t), "or none has");
}

/* Of values that are as near, the cheapest. */
static void test_ties(void)
{
	for (int rises = 0; rises < 2; rises++) {
		struct threshold t;
		double x;

		threshold_init(&t, 0, 1, 0.3, 0.001);
		while (threshold_next(&t, &x))
			threshold_tell(&t, flat(x), rises ? x : 1 - x);
		ok(t.best.value == 1 - rises, "of equal figures the cheaper is taken");
	}
}

/* ---- targets ---- */

enum { BOTH = TUNE_CAPTURES | TUNE_PROMPTS };

static void test_samples(void)
{
	struct tune_goal g;
	struct ar_err err;

	ok(tune_goal_parse(&g, "exact=1", TUNE_CAPTURES, 0, &err) == AR_USAGE &&
		   strstr(err.msg, "want one of recall=X, rel-l2=X, density=X") &&
		   !strstr(err.msg, "logprob"),
	   "a target of another sample is none: %s", err.msg);
	ok(tune_goal_parse(&g, "recall=1", TUNE_PROMPTS, 0, &err) == AR_USAGE &&
		   strstr(err.msg, "want one of logprob=X, exact=X"),
	   "... of either: %s", err.msg);
	is_int(tune_goal_parse(&g, "logprob=-0.01", TUNE_PROMPTS, 0, &err), AR_OK,
	       "one of the sample is taken");
}

static void test_targets(void)
{
	struct tune_goal g;
	struct ar_err err;
	int bad = 0, n = 0;

	for (const struct tune_target *t = tune_targets; t->name; t++, n++) {
		char text[64];

		snprintf(text, sizeof text, "%s=%g", t->name, t->max);
		bad += tune_goal_parse(&g, text, BOTH, 0, &err) || g.target != t ||
		       g.want != t->max || g.near != t->near || !(t->near > 0) || !t->title ||
		       !t->measure;
		snprintf(text, sizeof text, "%s=%g", t->name, t->max + 1e-3);
		bad += tune_goal_parse(&g, text, BOTH, 0, &err) != AR_USAGE;
	}
	ok(!bad && n >= 5, "each of %d targets has values", n);
	if (tune_goal_parse(&g, "recall=0.9", BOTH, 0.02, &err))
		bail_out("%s", err.msg);
	ok(g.near == 0.02 && tune_figure(&g, &(struct tune_figures){ .recall = 0.7 }) == 0.7,
	   "a tolerance may be given, and a target names a figure");
}

/* ---- several methods ---- */

/* Figures that are known: recall 1 - alpha^(1/3) for an alpha, 1 - (1 - mass)^2 for a mass, 0.99
 * without them. */
struct made_up {
	int calls, settings, fails_at; /* fails_at: the call that fails, from 1; 0: none */
};

static double value_of(const char *setting, const char *key)
{
	const char *at = strstr(setting, key);

	return at ? strtod(at + strlen(key), NULL) : NAN;
}

static enum ar_status made_up(void *sample, char *const *setting, size_t n,
			      struct tune_figures *out, struct ar_err *err)
{
	struct made_up *m = sample;

	if (++m->calls == m->fails_at)
		return ar_fail(err, AR_DATA, "made to fail");
	m->settings += (int)n;
	for (size_t i = 0; i < n; i++) {
		double alpha = value_of(setting[i], "alpha="), mass = value_of(setting[i], "mass=");
		double recall = !isnan(alpha) ? 1 - cbrt(alpha) :
				!isnan(mass)  ? 1 - (1 - mass) * (1 - mass) :
						0.99;

		out[i] = tune_unknown;
		out[i].recall = recall;
		out[i].rel_l2 = 1 - recall;
		out[i].executed = recall / 3;
	}
	return AR_OK;
}

static const struct tune_target known = {
	.name = "recall", .near = 0.001, .sample = TUNE_CAPTURES, .measure = made_up
};

enum { METHODS = 5 };
static char *methods[METHODS] = { (char[]){ "flashprefill:sink=1" }, (char[]){ "dense" },
				  (char[]){ "proxyattn" }, (char[]){ "compact-fp:alpha=0.001" },
				  (char[]){ "select=flashprefill/union=group/exec=paged" } };

static void test_methods(void)
{
	const struct tune_goal g = { &known, 0.75, 0.001 };
	struct tuned t[METHODS];
	struct made_up m = { 0 };
	struct ar_err err;
	int most = 0;

	if (tune_methods(&g, &m, methods, METHODS, t, &err))
		bail_out("%s", err.msg);
	ok(t[0].how == TUNE_REACHED && fabs(t[0].figures.recall - 0.75) <= 0.001 &&
		   fabs(t[0].value - 1.0 / 64) < 1e-3 && !strcmp(t[0].threshold, "alpha"),
	   "a method has the wanted figure: %s", t[0].setting);
	ok(t[2].how == TUNE_REACHED && fabs(t[2].figures.recall - 0.75) <= 0.001 &&
		   fabs(t[2].value - 0.5) < 1e-2 && !strcmp(t[2].threshold, "mass"),
	   "so has one whose threshold goes the other way: %s", t[2].setting);
	ok(!strncmp(t[0].setting, "flashprefill:sink=1,alpha=0.01", 30) &&
		   !strncmp(t[4].setting, "select=flashprefill/union=group/exec=paged,alpha=0.01",
			    53),
	   "parameters and compositions stay as they are: %s", t[4].setting);
	ok(t[1].how == TUNE_FIXED && !t[1].threshold && t[1].figures.recall == 0.99 &&
		   !strcmp(t[1].setting, "dense"),
	   "a method without a threshold is measured");
	ok(t[3].how == TUNE_GIVEN && fabs(t[3].figures.recall - 0.9) < 1e-9 &&
		   !strcmp(t[3].setting, methods[3]),
	   "a threshold that is stated stays");
	for (int i = 0; i < METHODS; i++) {
		most = t[i].steps > most ? t[i].steps : most;
		m.settings -= t[i].steps;
	}
	ok(m.calls == most && !m.settings, "the searches share %d measures", m.calls);
	tuned_release(t, METHODS);
}

/* On prompts plans of layers and droppers are measured, which captures cannot. */
static void test_plans(void)
{
	struct tune_target on_prompts = known;
	const struct tune_goal g = { &on_prompts, 0.75, 0.001 };
	char *list[] = { (char[]){ "0-:dense" }, (char[]){ "flashprefill+uniprefill" },
			 (char[]){ "flashprefill" } };
	struct tuned t[3];
	struct made_up m = { 0 };
	struct ar_err err;

	is_int(tune_methods(&g, &m, list, 1, t, &err), AR_USAGE, "captures take no plan of layers");
	tuned_release(t, 1);
	on_prompts.sample = TUNE_PROMPTS;
	if (tune_methods(&g, &m, list, 3, t, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 2; i++)
		ok(t[i].how == TUNE_GIVEN && t[i].steps == 1 && !strcmp(t[i].setting, list[i]),
		   "on prompts %s is measured as it is", list[i]);
	is_int(t[2].how, TUNE_REACHED, "... and a method for all layers is tuned");
	tuned_release(t, 3);
}

static void test_failures(void)
{
	const struct tune_goal g = { &known, 0.75, 0.001 };
	struct tuned t[METHODS];
	struct ar_err err;
	int bad = 0;
	char *wrong[] = { methods[0], (char[]){ "nope" } };

	for (int k = 1; k < 6; k++) {
		struct made_up m = { .fails_at = k };

		bad += tune_methods(&g, &m, methods, METHODS, t, &err) != AR_DATA || m.calls != k;
		tuned_release(t, METHODS);
	}
	is_int(bad, 0, "a measure that fails ends the search");
	is_int(tune_methods(&g, &(struct made_up){ 0 }, wrong, 2, t, &err), AR_USAGE,
	       "an unknown method is refused");
	tuned_release(t, 2);
}

static void test_print(void)
{
	const struct tune_goal g = { &known, 0.5, 0.001 };
	struct tuned t[2] = { { .method = "m",
				.setting = (char[]){ "m:a=1" },
				.threshold = "a",
				.value = 1,
				.how = TUNE_BEYOND,
				.bends = true,
				.steps = 2,
				.figures = tune_unknown },
			      { .method = "p",
				.setting = (char[]){ "p" },
				.how = TUNE_GIVEN,
				.figures = tune_unknown } };
	char *text = NULL;
	size_t n = 0;
	FILE *f = open_memstream(&text, &n);

	if (!f)
		bail_out("no memory");
	t[0].figures.recall = 0.75;
	t[0].figures.rel_l2 = 0.25;
	t[1].figures.recall = 1;
	t[1].figures.exact = 0.5;
	tune_print(&g, t, 2, f);
	fclose(f);
	is_str(text,
	       "    recall    rel L2     exact  steps  method\n"
	       "    0.7500    0.2500         -      2  m:a=1\n"
	       "    1.0000         -    0.5000         p (as given)\n"
	       "m: no a has recall 0.5; the nearest, 1, has 0.7500, at an end of its range\n"
	       "m: recall both rises and falls with a, so other values may have it too\n",
	       "what is not as wanted is said below the table");
	free(text);
}

/* ---- captures ---- */

struct sample {
	struct calib_input in;
	struct tune_captures c;
};

static void sample_open(struct sample *s, int64_t tokens, int64_t chunk)
{
	const char *data = getenv("ATTNREPLAY_DATA");
	char path[512], *v[] = { path };
	const struct opt_list list = { .v = v, .n = 1 };
	struct ar_err err;

	snprintf(path, sizeof path, "%s/traces/samples/niah-2k.arc", data ? data : ".");
	*s = (struct sample){ .in.tokens = tokens };
	s->c = (struct tune_captures){ .in = &s->in, .how = { .chunk = chunk, .n_chunk = 1 } };
	if (calib_open(&s->in, &list, &err))
		bail_out("%s", err.msg);
}

static void sample_close(struct sample *s)
{
	tune_captures_release(&s->c);
	calib_close(&s->in);
}

/* Pages of both sizes in one list. */
static void test_captures(void)
{
	char *setting[] = { (char[]){ "quoka:kv-ratio=0.5" },
			    (char[]){ "seer:gate=mean,threshold=0.03" }, (char[]){ "dense" },
			    (char[]){ "quoka:kv-ratio=0.5" } };
	struct tune_figures all[4], one;
	struct sample s;
	struct ar_err err;
	bool same = true;

	sample_open(&s, 500, 40);
	if (tune_measure_captures(&s.c, setting, 4, all, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 4; i++) {
		if (tune_measure_captures(&s.c, &setting[i], 1, &one, &err))
			bail_out("%s", err.msg);
		same &= !memcmp(&one, &all[i], sizeof one);
	}
	ok(same, "settings of both page sizes are measured together as alone");
	ok(all[2].recall == 1 && all[2].executed == 1 && fabs(all[0].selected - 0.5) < 0.01 &&
		   all[0].recall < 1 && all[1].recall < 1,
	   "each has its figures");
	is_int((long long)(s.c.dense[0].n + s.c.dense[1].n), 2,
	       "dense attention is run once for each page size");
	sample_close(&s);
}

static void test_faults(void)
{
	const struct tune_goal g = { &tune_targets[0], 0.9, 0.2 };
	char *list[] = { (char[]){ "quoka" }, (char[]){ "seer:gate=mean,threshold=0.1" } };
	bool clean = true, hit = true;
	long k;

	for (k = 0; hit; k += fault_stride(7)) {
		struct tuned t[2];
		struct sample s;
		struct ar_err err;
		enum ar_status st;
		cJSON *o = NULL;

		sample_open(&s, 140, 10);
		fault_arm(k);
		st = tune_methods(&g, &s.c, list, 2, t, &err);
		if (!st)
			o = tune_json(t, 2);
		hit = fault_disarm();
		clean &= hit ? st == AR_NOMEM || (!st && !o) : o != NULL;
		cJSON_Delete(o);
		tuned_release(t, 2);
		sample_close(&s);
	}
	ok(clean && k > 50, "each of %ld allocations may fail", k);
}

int main(void)
{
	plan(0);
	test_found();
	test_random();
	test_not_found();
	test_bends();
	test_least();
	test_ties();
	test_targets();
	test_samples();
	test_methods();
	test_plans();
	test_failures();
	test_print();
	test_captures();
	test_faults();
	return done_testing();
}
