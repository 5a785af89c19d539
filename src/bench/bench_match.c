/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Find the value of a selector's threshold at which a method has the wanted sparsity.  The search
 * is that of threshold.h.  If no value is near enough, the nearest one is returned.
 */
#include "config.h"
#include "src/bench/bench_match.h"

#include <math.h>
#include <stdio.h>

#include "kernels/methods/method.h"
#include "src/tune/threshold.h"

const double bench_match_near = 2;

/* The search goes on until the difference is this many percentage points. */
static const double near_enough = 0.25;

static enum ar_status too_long(const char *method, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE,
		       "method '%.40s...' is too long to tune; shorten its "
		       "paths",
		       method);
}

/* The method with its threshold at x. */
static enum ar_status with_threshold(const char *method, const char *threshold, double x,
				     char text[BENCH_MATCH_TEXT], struct ar_err *err)
{
	size_t n = method_spell_with(text, BENCH_MATCH_TEXT, method, threshold, x);

	return n < BENCH_MATCH_TEXT ? AR_OK : too_long(method, err);
}

/* *best: the method as given, and the nearest one at the end. */
static enum ar_status tune_threshold(const char *method, const struct opt *o, double want,
				     bench_sparsity_fn *sparsity, void *ctx,
				     struct bench_match *best, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	struct threshold t;
	double x, at;

	threshold_init(&t, o->min, o->max, want, near_enough);
	while (!st && threshold_next(&t, &x)) {
		char text[BENCH_MATCH_TEXT];

		st = with_threshold(method, o->name, x, text, err);
		if (!st)
			st = sparsity(ctx, text, &at, err);
		if (!st)
			threshold_tell(&t, at, NAN);
	}
	if (st || fabs(best->sparsity - want) <= fabs(t.best.figure - want))
		return st;
	best->threshold = o->name;
	best->value = t.best.value;
	best->sparsity = t.best.figure;
	return with_threshold(method, o->name, t.best.value, best->method, err);
}

enum ar_status bench_match(const char *method, double want, bench_sparsity_fn *sparsity, void *ctx,
			   struct bench_match *out, struct ar_err *err)
{
	struct bench_match best = { .how = BENCH_MATCH_STATED, .value = NAN };
	const struct opt *threshold = NULL;
	struct method *m;
	enum ar_status st = method_parse(&m, method, err);

	if (st)
		return st;
	threshold = method_threshold(m);
	method_free(m);
	if ((size_t)snprintf(best.method, sizeof best.method, "%s", method) >= sizeof best.method)
		return too_long(method, err);
	st = sparsity(ctx, method, &best.sparsity, err);
	if (!st && fabs(best.sparsity - want) > bench_match_near) {
		if (threshold)
			st = tune_threshold(method, threshold, want, sparsity, ctx, &best, err);
		best.how = fabs(best.sparsity - want) <= bench_match_near ? BENCH_MATCH_TUNED :
									    BENCH_MATCH_NONE;
	}
	if (!st)
		*out = best;
	return st;
}

enum ar_status bench_match_random(const char *method, struct bench_goal goal,
				  char text[BENCH_MATCH_TEXT], struct ar_err *err)
{
	struct method *m;
	enum ar_status st = method_parse(&m, method, err);
	unsigned shape;

	if (st)
		return st;
	shape = method_shape(method_prefill(m));
	if (shape == SHAPE_MASK || (shape == SHAPE_TABLE && !goal.selected))
		snprintf(text, BENCH_MATCH_TEXT,
			 "select=density,density=%.8g,block=%d,per=%s/union=%s/exec=%s",
			 1 - goal.sparsity / 100, method_page_tok(m),
			 shape == SHAPE_TABLE ? "group" : "head", unions[method_prefill(m)->u].name,
			 method_prefill(m)->executor->name);
	else
		st = ar_fail(err, AR_USAGE, "%s: what it keeps cannot be drawn", method);
	method_free(m);
	return st;
}
