/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay search rate: the highest request rate that keeps the limits. */
#include "config.h"

#include <math.h>
#include <stdio.h>

#include "src/search/search.h"

/* Requests finish this much slower than they arrive where the end of the trace hides a queue. */
#define BEHIND 0.9

static enum ar_status rate_check(struct search *s, struct run_options *o, struct ar_err *err)
{
	const struct slo *slo = &s->slo;

	for (size_t i = 0; i < slo->n; i++)
		if (slo->limit[i].percentile <= 0)
			return ar_fail(err, AR_USAGE,
				       "slo limits %s of each request; name a percentile, such as "
				       "%s:p99:TIME",
				       slo->limit[i].metric, slo->limit[i].metric);
	if (opt_given(o->group, "time-scale"))
		return ar_fail(err, AR_USAGE,
			       "time-scale has no effect, as the search sets the rate; leave it "
			       "out");
	if (o->arrival.loop == LOOP_USERS)
		return ar_fail(
			err, AR_USAGE,
			"--loop users does not use the times of the trace, so it has no rate "
			"to search for; replay --loop open or sessions");
	return AR_OK;
}

/* ---- search ---- */

struct tries {
	struct search *s;
	struct subject *u;
};

static enum ar_status keeps(void *self, double rate, bool *kept, struct ar_err *err)
{
	const struct tries *t = self;
	char text[RATE_CHARS];

	return search_point(t->s, t->u, rate, rate_text(rate, text), kept, err);
}

/* The rate of the trace itself, in four digits. */
static enum ar_status own_rate(const struct search *s, double *rate, struct ar_err *err)
{
	const struct trace *t = s->base[0]->in.trace;
	double span_s = (double)(s->req[t->n - 1].arrival_ns - s->req[0].arrival_ns) / 1e9;

	if (span_s <= 0)
		return ar_fail(err, AR_USAGE,
			       "%s: requests that arrive together have no rate; spread them with "
			       "--spread",
			       t->name);
	*rate = rates_round((double)t->n / span_s);
	return AR_OK;
}

static enum ar_status rate_again(struct search *s, struct subject *u, struct rates_found *f,
				 struct ar_err *err)
{
	struct tries tries = { s, u };
	const struct rates r = { .precision = s->a.precision, .keeps = keeps, .self = &tries };
	enum ar_status st = rates_from(&r, f, err);

	if (!st && !(f->kept > 0 && f->failed > 0))
		st = ar_fail(err, AR_DATA, "%s rate keeps the limits",
			     f->kept > 0 ? "every" : "no");
	return st;
}

static enum ar_status rate_find(struct search *s, struct subject *u, struct ar_err *err)
{
	const struct search_args *a = &s->a;
	struct tries tries = { s, u };
	struct rates r = { .lowest = a->lowest,
			   .highest = a->highest,
			   .precision = a->precision,
			   .keeps = keeps,
			   .self = &tries };
	struct rates_found f = { 0 };
	enum ar_status st = own_rate(s, &r.start, err);

	if (a->lowest > 0)
		r.start = a->lowest;
	else if (a->highest > 0 && a->highest < r.start)
		r.start = a->highest;
	if (!st)
		st = rates_find(&r, &f, err);
	for (size_t i = 0; i < u->n && !st; i++)
		if (u->point[i].x == f.kept)
			u->best = &u->point[i];
	u->failed = f.failed;
	return st ? st : search_interval(s, u, err);
}

/* ---- output ---- */

static void rate_curve(const struct search *s, const struct subject *u)
{
	char text[RATE_CHARS];

	putchar('\n');
	search_print_name(u);
	printf("\n%12s%12s", "rate /s", "done /s");
	search_print_heads(s);
	puts("  kept");
	for (size_t i = 0; i < u->n; i++) {
		const struct point *p = &u->point[i];

		printf("%12s", rate_text(p->x, text));
		search_print_done(s, p);
	}
}

/* A rate that kept the limits after a lower one did not. */
static void print_dips(const struct subject *u)
{
	const struct point *failed = NULL;
	char low[RATE_CHARS], high[RATE_CHARS];

	for (size_t i = 0; i < u->n; i++) {
		const struct point *p = &u->point[i];

		if (!p->kept && !failed)
			failed = p;
		if (p->kept && failed) {
			printf("%s /s kept the limits, but the lower rate %s /s did not: there is "
			       "no sharp limit\n",
			       rate_text(p->x, high), rate_text(failed->x, low));
			return;
		}
	}
}

static void rate_verdict(const struct search *s, const struct subject *u)
{
	const struct point *p = u->best;
	char best[RATE_CHARS], next[RATE_CHARS];

	search_print_name(u);
	if (!p)
		printf(": no rate keeps the limits; the lowest one tried is %s /s\n",
		       rate_text(u->point[0].x, next));
	else if (u->failed > 0)
		printf(": %s requests a second keep the limits, %s do not\n", rate_text(p->x, best),
		       rate_text(u->failed, next));
	else
		printf(": %s requests a second, the highest rate tried, keep the limits; %s\n",
		       rate_text(p->x, best),
		       s->a.highest > 0 ? "raise --highest" : "set a higher one with --highest");
	search_print_interval(s, u, "/s");
	print_dips(u);
	if (p && p->f.done_per_s < BEHIND * p->x)
		printf("at this rate requests finish at %.4g a second: the trace ends before its "
		       "queue is long, so replay more, as with --repeat\n",
		       p->f.done_per_s);
}

static void print_speedup(const struct search *s, const struct subject *u)
{
	const double x = search_ratio(s, u);
	double lo = NAN, hi = NAN;

	if (!search_ratio_interval(s, u, &lo, &hi))
		lo = hi = NAN;
	if (isnan(x))
		printf("%10s", "-");
	else
		printf("%9.3fx", x);
	if (s->a.intervals)
		search_print_range(lo, hi);
}

static void rate_summary(const struct search *s)
{
	const char *between = s->a.intervals ? "  between         " : "";

	printf("\n%12s%s%10s%s  method\n", "rate /s", between, "speed-up", between);
	for (size_t i = 0; i < s->n_subject; i++) {
		const struct subject *u = &s->subject[i];
		char text[RATE_CHARS], more[RATE_CHARS + 3];

		snprintf(more, sizeof more, "%s%s", u->failed > 0 || !u->best ? "" : ">=",
			 u->best ? rate_text(u->best->x, text) : "none");
		printf("%12s", more);
		if (s->a.intervals)
			search_print_range(u->lo, u->hi);
		print_speedup(s, u);
		fputs("  ", stdout);
		search_print_name(u);
		putchar('\n');
	}
}

const struct search_kind search_rate = { .name = "rate",
					 .option = "rate",
					 .scales = true,
					 .check = rate_check,
					 .find = rate_find,
					 .again = rate_again,
					 .curve = rate_curve,
					 .verdict = rate_verdict,
					 .summary = rate_summary };
