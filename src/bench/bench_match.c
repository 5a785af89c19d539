/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Find the value of a selector's threshold at which a method leaves out as much as wanted.  The
 * search halves the parameter's range until it is near enough.  Whether a higher value leaves out
 * more or less is measured at both ends.  If no value is near enough, the nearest one is returned.
 */
#include "config.h"
#include "src/bench/bench_match.h"

#include <math.h>
#include <stdio.h>

#include "kernels/methods/method.h"

const double bench_match_near = 2;

/* At most STEPS halvings, until the difference is near_enough percentage points. */
enum { STEPS = 24 };
static const double near_enough = 0.25;

struct search {
	const char *method;
	double want;
	bench_sparsity_fn *sparsity;
	void *ctx;
	struct bench_match *best;
};

static enum ar_status too_long(const char *method, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE,
		       "method '%.40s...' is too long to tune; shorten its "
		       "paths",
		       method);
}

/* The method with its threshold at x. */
static enum ar_status with_threshold(const struct search *s, const char *threshold, double x,
				     char text[BENCH_MATCH_TEXT], struct ar_err *err)
{
	size_t n = method_spell_with(text, BENCH_MATCH_TEXT, s->method, threshold, x);

	return n < BENCH_MATCH_TEXT ? AR_OK : too_long(s->method, err);
}

/* Measure the method at x, and keep it if it is the nearest so far. */
static enum ar_status look(const struct search *s, double x, double *sparsity, struct ar_err *err)
{
	struct bench_match at = { .threshold = s->best->threshold, .value = x };
	enum ar_status st = with_threshold(s, at.threshold, x, at.method, err);

	if (!st)
		st = s->sparsity(s->ctx, at.method, &at.sparsity, err);
	if (st)
		return st;
	*sparsity = at.sparsity;
	if (!(fabs(s->best->sparsity - s->want) <= fabs(at.sparsity - s->want)))
		*s->best = at;
	return AR_OK;
}

static enum ar_status halve(const struct search *s, double lo, double hi, struct ar_err *err)
{
	double at_lo, at_hi, at;
	enum ar_status st = look(s, lo, &at_lo, err);

	if (!st)
		st = look(s, hi, &at_hi, err);
	if (st || (at_lo <= s->want) == (at_hi <= s->want))
		return st;
	for (int i = 0; i < STEPS && !st && fabs(s->best->sparsity - s->want) > near_enough; i++) {
		double x = (lo + hi) / 2;

		st = look(s, x, &at, err);
		if (!st && (at <= s->want) == (at_lo <= s->want))
			lo = x;
		else
			hi = x;
	}
	return st;
}

enum ar_status bench_match(const char *method, double want, bench_sparsity_fn *sparsity, void *ctx,
			   struct bench_match *out, struct ar_err *err)
{
	struct bench_match best = { .how = BENCH_MATCH_STATED, .value = NAN };
	const struct search s = { method, want, sparsity, ctx, &best };
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
	if (st)
		return st;
	if (fabs(best.sparsity - want) > bench_match_near) {
		if (threshold) {
			best.threshold = threshold->name;
			st = halve(&s, threshold->min, threshold->max, err);
		}
		best.how = fabs(best.sparsity - want) <= bench_match_near ? BENCH_MATCH_TUNED :
									    BENCH_MATCH_NONE;
		if (isnan(best.value))
			best.threshold = NULL;
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
	shape = method_shape(m);
	if (shape == SHAPE_MASK || (shape == SHAPE_TABLE && !goal.selected))
		snprintf(text, BENCH_MATCH_TEXT,
			 "select=density,density=%.8g,block=%d,per=%s/union=%s/exec=%s",
			 1 - goal.sparsity / 100, method_page_tok(m),
			 shape == SHAPE_TABLE ? "group" : "head", unions[m->u].name,
			 m->executor->name);
	else
		st = ar_fail(err, AR_USAGE, "%s: what it keeps cannot be drawn", method);
	method_free(m);
	return st;
}
