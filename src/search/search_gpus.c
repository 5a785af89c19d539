/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay search gpus: the fewest GPUs that keep the limits, as replicas of some tensor parallel
 * size. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "base/number.h"
#include "replay/cost/backend_roofline.h"
#include "src/search/search.h"

enum { MOST_GPUS = 64 };

static const char *const of_rates[] = { "precision", "intervals", "intervals-time" };

/* ---- options ---- */

static enum ar_status read_sizes(struct search *s, const char *list, struct ar_err *err)
{
	const char *p = list;

	do {
		const size_t len = strcspn(p, ",");
		uint64_t tp;

		if (s->n_tp == SEARCH_TPS || !num_u64(p, len, &tp) || !tp || tp > 1024 ||
		    (s->n_tp && (int64_t)tp <= s->tps[s->n_tp - 1]))
			return ar_fail(err, AR_USAGE,
				       "tps '%s': want up to %d ascending numbers from 1 to 1024",
				       list, SEARCH_TPS);
		s->tps[s->n_tp++] = (int64_t)tp;
		p += len;
	} while (*p++ == ',');
	return AR_OK;
}

/* A roofline has any size; costs have the one that they were measured with. */
static enum ar_status set_sizes(struct search *s, const struct run_options *o, struct ar_err *err)
{
	const bool any = !strcmp(o->backend, backend_roofline.name);
	enum ar_status st;

	if (!any && s->a.tps)
		return ar_fail(err, AR_USAGE,
			       "tps has no effect without --backend roofline; leave it out");
	if (!any)
		return AR_OK;
	if (opt_given(o->group, "tp"))
		return ar_fail(err, AR_USAGE,
			       "the search sets tp; leave it out, or name one with --tps");
	st = read_sizes(s, s->a.tps ? s->a.tps : "1,2,4,8", err);
	if (!st)
		s->tp = s->tps[s->n_tp - 1]; /* a model that fits at all is loaded with it */
	return st;
}

static enum ar_status gpus_check(struct search *s, struct run_options *o, struct ar_err *err)
{
	struct search_args *a = &s->a;

	for (size_t i = 0; i < sizeof of_rates / sizeof *of_rates; i++)
		if (opt_given(&s->own, of_rates[i]))
			return ar_fail(err, AR_USAGE,
				       "%s has no effect on numbers of GPUs; leave it out",
				       of_rates[i]);
	for (size_t i = 0; i < s->slo.n; i++)
		if (s->slo.limit[i].percentile <= 0)
			return ar_fail(err, AR_USAGE,
				       "slo limits %s of each request; name a percentile, such as "
				       "%s:p99:TIME",
				       s->slo.limit[i].metric, s->slo.limit[i].metric);
	if (a->lowest > 0)
		return ar_fail(err, AR_USAGE,
			       "lowest has no effect on numbers of GPUs; leave it out");
	if (a->highest == 0)
		a->highest = MOST_GPUS;
	if (a->highest != floor(a->highest) || a->highest > ROUTER_MOST)
		return ar_fail(err, AR_USAGE,
			       "highest %.10g: want a whole number of GPUs, at most %d", a->highest,
			       ROUTER_MOST);
	return set_sizes(s, o, err);
}

/* ---- search ---- */

/* GPUs of a replica of subject u. */
static int64_t replica_gpus(const struct search *s, const struct subject *u)
{
	const struct run_inputs *in = &u->base->in;

	if (s->tp)
		return s->tp;
	return in->costs && in->costs->run.tp ? in->costs->run.tp : 1;
}

/* Requests that an engine with enough memory serves. */
static int64_t count_servable(const struct run_inputs *in)
{
	struct sched_limits l = in->limits;
	int64_t n = 0;
	char why[160];

	l.num_blocks = 0;
	for (size_t i = 0; i < in->trace->n; i++)
		n += !in->trace->req[i].warmup &&
		     !sched_rejects(&l, &in->trace->req[i], why, sizeof why);
	return n;
}

static enum ar_status try_replicas(struct search *s, struct subject *u, int64_t n, bool *kept,
				   struct ar_err *err)
{
	char text[32];

	snprintf(text, sizeof text, "%" PRId64, n);
	return search_point(s, u, (double)(n * replica_gpus(s, u)), text, kept, err);
}

/* Find the fewest replicas of one size, at most `most`, that keep the limits, from a guess.
 * *fewest 0: none do.  More replicas keep what fewer keep. */
static enum ar_status find_fewest(struct search *s, struct subject *u, int64_t guess, int64_t most,
				  int64_t *fewest, struct ar_err *err)
{
	int64_t lo = 0, hi = 0, n = guess < most ? guess : most; /* lo fails, hi keeps */
	enum ar_status st = AR_OK;

	while (!st && n > lo && n <= most && (!hi || n < hi)) {
		bool kept = false;

		st = try_replicas(s, u, n, &kept, err);
		*(kept ? &hi : &lo) = n;
		n = hi && lo ? lo + (hi - lo) / 2 : hi ? hi / 2 : 2 * n < most ? 2 * n : most;
	}
	*fewest = hi;
	return st;
}

/* A size that the model does not run with, such as one with too little memory, is left out; it was
 * loaded with the largest. */
static enum ar_status skip_size(const struct search *s, enum ar_status st, struct ar_err *err)
{
	if (st != AR_USAGE || s->tp == s->tps[s->n_tp - 1])
		return st;
	log_warn("tp %" PRId64 " is left out: %s", s->tp, err->msg);
	return AR_OK;
}

/* Only what takes fewer GPUs than the best so far is tried. */
static enum ar_status try_size(struct search *s, struct subject *u, int64_t *gpus,
			       struct ar_err *err)
{
	const int64_t each = replica_gpus(s, u);
	const int64_t most = (*gpus ? *gpus - 1 : (int64_t)s->a.highest) / each;
	const int64_t hint = s->gpus_hint / each;
	int64_t n = 0;
	enum ar_status st = AR_OK;

	if (most > 0)
		st = find_fewest(s, u, *gpus ? most : hint > 1 ? hint : 1, most, &n, err);
	st = skip_size(s, st, err);
	if (!st && n)
		*gpus = n * each;
	return st;
}

/* The sizes, first the one that was best for the method before, which is a bound for all others. */
static int64_t size_at(const struct search *s, size_t i)
{
	if (!i)
		return s->tps[s->tp_first];
	return s->tps[i <= s->tp_first ? i - 1 : i];
}

static void take_best(struct search *s, struct subject *u, int64_t gpus)
{
	for (size_t i = 0; i < u->n; i++)
		if (u->point[i].kept && u->point[i].x == (double)gpus)
			u->best = &u->point[i];
	s->gpus_hint = gpus;
	for (size_t i = 0; u->best && i < s->n_tp; i++)
		if (s->tps[i] == u->best->tp)
			s->tp_first = i;
}

static enum ar_status gpus_find(struct search *s, struct subject *u, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int64_t gpus = 0;

	s->least_ok = count_servable(&u->base->in);
	if (!s->n_tp)
		st = try_size(s, u, &gpus, err);
	for (size_t i = 0; i < s->n_tp && !st; i++) {
		s->tp = size_at(s, i);
		st = try_size(s, u, &gpus, err);
	}
	if (!st)
		take_best(s, u, gpus);
	return st;
}

/* ---- output ---- */

static int64_t replicas_of(const struct point *p)
{
	return (int64_t)p->x / p->tp;
}

static void gpus_curve(const struct search *s, const struct subject *u)
{
	putchar('\n');
	search_print_name(u);
	printf("\n%12s%6s%10s%12s", "GPUs", "TP", "replicas", "done /s");
	search_print_heads(s);
	puts("  kept");
	for (size_t i = 0; i < u->n; i++) {
		const struct point *p = &u->point[i];

		printf("%12.0f%6" PRId64 "%10" PRId64, p->x, p->tp, replicas_of(p));
		search_print_done(s, p);
	}
}

static void gpus_verdict(const struct search *s, const struct subject *u)
{
	const struct point *p = u->best;

	search_print_name(u);
	if (p)
		printf(": %.0f GPUs keep the limits, as %" PRId64 " replicas of TP %" PRId64
		       "; fewer do not\n",
		       p->x, replicas_of(p), p->tp);
	else
		printf(": up to %.0f GPUs none keep the limits; raise --highest, or the limits\n",
		       s->a.highest);
}

static void gpus_summary(const struct search *s)
{
	const struct subject *first = s->subject;

	printf("\n%12s%6s%10s%10s  method\n", "GPUs", "TP", "replicas", "share");
	for (size_t i = 0; i < s->n_subject; i++) {
		const struct subject *u = &s->subject[i];
		const struct point *p = u->best;

		if (p)
			printf("%12.0f%6" PRId64 "%10" PRId64, p->x, p->tp, replicas_of(p));
		else
			printf("%12s%6s%10s", "none", "-", "-");
		if (p && first->best)
			printf("%9.0f%%", 100 * p->x / first->best->x);
		else
			printf("%10s", "-");
		fputs("  ", stdout);
		search_print_name(u);
		putchar('\n');
	}
}

const struct search_kind search_gpus = { .name = "gpus",
					 .option = "replicas",
					 .base = "1",
					 .gpus = true,
					 .check = gpus_check,
					 .find = gpus_find,
					 .curve = gpus_curve,
					 .verdict = gpus_verdict,
					 .summary = gpus_summary };
