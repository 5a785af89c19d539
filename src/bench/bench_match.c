/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What a method is to leave out lies between what it does at the two ends of its selector's knob;
 * the interval is halved until that is near enough.  Which end leaves out more is seen, not known.
 * Where the knob has no value that comes near enough, the nearest one seen is told.
 */
#include "config.h"
#include "src/bench/bench_match.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
	return ar_fail(err, AR_USAGE, "method '%.40s...' is too long to tune; shorten its "
		       "paths", method);
}

/* The method with its knob at x: later values hold. */
static enum ar_status turned(const struct search *s, const char *knob, double x,
			     char text[BENCH_MATCH_TEXT], struct ar_err *err)
{
	int n = snprintf(text, BENCH_MATCH_TEXT, "%s%c%s=%.8g", s->method,
			 strpbrk(s->method, ":/") ? ',' : ':', knob, x);

	return n < BENCH_MATCH_TEXT ? AR_OK : too_long(s->method, err);
}

/* Measure the method at x, and keep it if it is the nearest so far. */
static enum ar_status look(const struct search *s, double x, double *sparsity, struct ar_err *err)
{
	struct bench_match at = { .knob = s->best->knob, .value = x };
	enum ar_status st = turned(s, at.knob, x, at.method, err);

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

static const struct opt *knob_of(const struct method *m)
{
	const struct opt *o = m->selector->params;

	while (m->selector->knob && strcmp(o->name, m->selector->knob) != 0)
		o++;
	return m->selector->knob ? o : NULL;
}

enum ar_status bench_match(const char *method, double want, bench_sparsity_fn *sparsity, void *ctx,
			   struct bench_match *out, struct ar_err *err)
{
	struct bench_match best = { .how = BENCH_MATCH_STATED, .value = NAN };
	const struct search s = { method, want, sparsity, ctx, &best };
	const struct opt *knob = NULL;
	struct method *m;
	enum ar_status st = method_parse(&m, method, err);

	if (st)
		return st;
	knob = knob_of(m);
	method_free(m);
	if ((size_t)snprintf(best.method, sizeof best.method, "%s", method) >= sizeof best.method)
		return too_long(method, err);
	st = sparsity(ctx, method, &best.sparsity, err);
	if (st)
		return st;
	if (fabs(best.sparsity - want) > bench_match_near) {
		if (knob) {
			best.knob = knob->name;
			st = halve(&s, knob->min, knob->max, err);
		}
		best.how = fabs(best.sparsity - want) <= bench_match_near ? BENCH_MATCH_TUNED :
			   BENCH_MATCH_NONE;
		if (isnan(best.value))
			best.knob = NULL;
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
