/* SPDX-License-Identifier: Apache-2.0 */
/* Tuning methods to a sparsity: the search for a value, and real selectors with their
 * references. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "src/bench/bench_match.h"
#include "src/bench/bench_sample.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

/* ---- made-up methods: sparsity over the threshold ---- */

struct made_up {
	double (*of)(double x);
	const char *threshold; /* as it is spelled in the method */
	double def;
	int n;	     /* calls */
	int fail_at; /* the call that fails, from 1; 0: none */
};

static enum ar_status made_up(void *ctx, const char *method, double *sparsity, struct ar_err *err)
{
	struct made_up *m = ctx;
	const char *at = NULL;

	for (const char *c = method; (c = strstr(c, m->threshold)); c++)
		at = c;
	if (++m->n == m->fail_at)
		return ar_fail(err, AR_CUDA, "made to fail");
	*sparsity = m->of(at ? strtod(at + strlen(m->threshold), NULL) : m->def);
	return AR_OK;
}

static double rising(double x)
{
	return 100 * sqrt(x);
}

static double falling(double x)
{
	return 90 - 90 * x * x * x;
}

static double steps(double x)
{
	return x < 0.3 ? 0 : 50;
}

static double none(double x)
{
	(void)x;
	return 30;
}

static double nothing(double x)
{
	return 0 * x + NAN;
}

static enum ar_status find(const char *method, double want, struct made_up m, struct bench_match *x)
{
	struct ar_err err;

	memset(x, 0, sizeof *x);
	return bench_match(method, want, made_up, &m, x, &err);
}

static void test_search(void)
{
	struct bench_match x;
	struct made_up up = { rising, "alpha=", 0.01, 0, 0 };
	struct made_up down = { falling, "mass=", 0.95, 0, 0 };
	struct made_up jump = { steps, "alpha=", 0.01, 0, 0 };
	struct made_up flat = { none, "alpha=", 0.01, 0, 0 };
	struct made_up empty = { nothing, "alpha=", 0.01, 0, 0 };

	is_int(find("flashprefill", 11, up, &x), AR_OK, "a method near enough is found");
	ok(x.how == BENCH_MATCH_STATED && !x.threshold && x.sparsity == 10 &&
		   !strcmp(x.method, "flashprefill"),
	   "and left as it is");
	is_int(find("flashprefill", 69.8, up, &x), AR_OK,
	       "the parameter of another method is tuned");
	ok(x.how == BENCH_MATCH_TUNED && !strcmp(x.threshold, "alpha") &&
		   fabs(x.sparsity - 69.8) <= 0.25 && fabs(rising(x.value) - 69.8) <= 0.25,
	   "up to what leaves out as much: %s", x.method);
	find("compact-fp:sink=1", 3, up, &x);
	ok(!strncmp(x.method, "compact-fp:sink=1,alpha=0.00", 28), "after what it has: %s",
	   x.method);
	find("select=flashprefill,alpha=0.5/union=group/exec=paged", 60, up, &x);
	ok(strstr(x.method, "/exec=paged,alpha=0.3"), "and as a composition: %s", x.method);
	find("proxyattn", 12.5, down, &x);
	is_int(x.how, BENCH_MATCH_STATED, "a threshold may keep more the higher it is");
	find("proxyattn", 60, down, &x);
	ok(x.how == BENCH_MATCH_TUNED && fabs(falling(x.value) - 60) <= 0.25,
	   "and is turned the other way: %s", x.method);
	find("flashprefill", 100, up, &x);
	ok(x.how == BENCH_MATCH_TUNED && x.value == 1, "the end of the range may match");
	find("proxyattn", 99, down, &x);
	ok(x.how == BENCH_MATCH_NONE && x.value == 0 && x.sparsity == 90,
	   "what no value reaches is not matched, and the nearest is told");
	find("flashprefill", 25, jump, &x);
	ok(x.how == BENCH_MATCH_NONE, "a sparsity inside a jump is not matched");
	find("flashprefill", 60, flat, &x);
	ok(x.how == BENCH_MATCH_NONE && !x.threshold && !strcmp(x.method, "flashprefill"),
	   "a threshold without effect is not turned");
	find("trishape", 60, flat, &x);
	ok(x.how == BENCH_MATCH_NONE && !x.threshold, "a method without one is not matched");
	find("flashprefill", 60, empty, &x);
	is_int(x.how, BENCH_MATCH_STATED, "where nothing can be left out nothing is matched");
}

static void test_failures(void)
{
	struct bench_match x;
	struct made_up up = { rising, "alpha=", 0.01, 0, 0 };
	char text[BENCH_MATCH_TEXT + 64];
	int bad = 0;

	is_int(find("nope", 60, up, &x), AR_USAGE, "an unknown method is refused");
	for (up.fail_at = 1; up.fail_at <= 5; up.fail_at++)
		bad += find("flashprefill", 60, up, &x) != AR_CUDA || x.method[0];
	is_int(bad, 0, "a measurement that fails is reported, whichever it is");
	up.fail_at = 0;
	snprintf(text, sizeof text, "seer:gate=%0*d", BENCH_MATCH_TEXT, 0);
	is_int(find(text, 60, up, &x), AR_USAGE, "a method too long to be changed is refused");
	snprintf(text, sizeof text, "seer:gate=%0*d", BENCH_MATCH_TEXT - 12, 0);
	is_int(find(text, 60, up, &x), AR_USAGE, "a changed method that is too long is refused");
}

static void test_faults(void)
{
	struct bench_match x;
	struct made_up up = { rising, "alpha=", 0.01, 0, 0 };
	bool hit = true;
	int bad = 0, k = 0;

	for (; hit && k < 200; k++) {
		enum ar_status st;

		fault_arm(k);
		st = find("flashprefill", 60, up, &x);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 2 && !hit, "every allocation that fails is reported");
}

/* ---- every threshold ---- */

static void test_thresholds(void)
{
	int bad = 0, n = 0;

	for (int i = 0; selectors[i]; i++) {
		const struct selector *s = selectors[i];
		const struct opt *o = s->params;

		while (s->threshold && o->name && strcmp(o->name, s->threshold))
			o++;
		n += s->threshold != NULL;
		bad += s->threshold &&
		       (!o->name || o->type != OPT_REAL || o->min != 0 || o->max != 1);
	}
	ok(!bad && n >= 8, "thresholds are real parameters from 0 to 1, in %d selectors", n);
}

/* ---- random blocks ---- */

static void test_random(void)
{
	struct bench_goal goal = { 70, false };
	char text[BENCH_MATCH_TEXT];
	struct ar_err err;

	is_int(bench_match_random("compact-fp", goal, text, &err), AR_OK, "tables can be drawn");
	is_str(text, "select=density,density=0.3,block=128,per=group/union=group/exec=paged",
	       "once for a KV head");
	bench_match_random("seer:gate=mean", goal, text, &err);
	is_str(text, "select=density,density=0.3,block=64,per=head/union=none/exec=blocksparse",
	       "lists for each head, of the method's blocks");
	is_int(bench_match_random("quoka", goal, text, &err), AR_USAGE, "tokens cannot");
	ok(strstr(err.msg, "cannot be drawn"), "and the message says so");
	goal.selected = true;
	is_int(bench_match_random("flashprefill", goal, text, &err), AR_OK,
	       "without a union what is selected is what is attended to");
	is_int(bench_match_random("compact-fp", goal, text, &err), AR_USAGE,
	       "with one what it would leave of the drawn is another matter");
	is_int(bench_match_random("nope", goal, text, &err), AR_USAGE,
	       "an unknown method cannot be drawn");
}

/* ---- the references ---- */

enum { DIM = 64, CHUNK = 256, CONTEXT = 2048 };

static enum ar_status count_chunks(struct batch_case *c, const struct method *m, void *state,
				   struct selection_count *sum, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int ctx = 0; ctx < CONTEXT && !st; ctx += CHUNK) {
		struct selection_count x[2];
		struct method_selection s = { 0 };

		case_cut(c, &ctx, (int[]){ CHUNK });
		st = method_select_ref(method_prefill(m),
				       &(struct attn_call){
					       .b = &c->b, .q = c->q, .kv = c->kv, .state = state },
				       &s, err);
		if (!st)
			st = method_count(method_prefill(m), &c->b, &s.chosen, s.table, x, err);
		for (int h = 0; h < 2 && !st; h++)
			selection_add(sum, &x[h], 1);
		method_selection_release(&s);
	}
	return st;
}

/* Of a whole prefill. */
static enum ar_status reference(void *ctx, const char *method, double *sparsity, struct ar_err *err)
{
	struct batch_case *c = ctx;
	struct selection_count sum = { 0 };
	struct method *m = NULL;
	float inv[DIM / 2];
	const struct selector_env env = { .shape = c->b.shape, .n_layers = 1, .rope_inv = inv };
	void *state = NULL;
	enum ar_status st = method_parse(&m, method, err);

	for (int k = 0; k < DIM / 2; k++)
		inv[k] = powf(10000, -2.0f * (float)k / DIM);
	if (!st)
		st = method_open(m, &env, err);
	if (!st) {
		state = calloc((size_t)c->n_page + 1,
			       method_state_bytes(method_prefill(m), &c->b.shape) + 1);
		st = count_chunks(c, m, state, &sum, err);
		*sparsity = 100 * (1 - bench_ratio(sum.group_sel, sum.group_total));
	}
	free(state);
	method_free(m);
	return st;
}

static void test_references(void)
{
	static const struct {
		const char *method;
		int page_tok;
		double want;
	} v[] = {
		{ "flashprefill", 128, 45 },
		{ "compact-fp", 128, 20 },
		{ "quoka", 128, 75 },
		{ "quoka", 128, 60 },
		{ "xattention", 128, 50 },
		{ "seer:gate=mean", 64, 60 },
		{ "compact-sa:gate=mean", 64, 30 },
		{ "proxyattn:q-stride=32", 128, 40 },
	};
	const int len = CONTEXT;

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		const struct attn_shape s = { 4, 2, DIM, v[i].page_tok };
		struct rng rng = { 11 };
		struct bench_match x;
		struct batch_case c;
		struct ar_err err;

		case_make(&c, &rng, FILL_BLOCKS, s, 1, &len);
		if (bench_match(v[i].method, v[i].want, reference, &c, &x, &err))
			bail_out("%s: %s", v[i].method, err.msg);
		ok(x.how != BENCH_MATCH_NONE && fabs(x.sparsity - v[i].want) <= bench_match_near,
		   "%s can leave out %g %%: %.2f by %s", v[i].method, v[i].want, x.sparsity,
		   x.method);
		case_release(&c);
	}
}

int main(void)
{
	plan(0);
	test_search();
	test_failures();
	test_faults();
	test_thresholds();
	test_random();
	test_references();
	return done_testing();
}
