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
#include "replay/cost/backend_cost.h"
#include "replay/cost/backend_roofline.h"
#include "src/search/search.h"

enum { MOST_GPUS = 64 };

static const char *const set_by_apart[] = { "prefill-replicas", "decode-replicas" };

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

/* A roofline has any size; costs have the one that they were measured with, and --engine-args can
 * have that of an engine. */
static enum ar_status set_sizes(struct search *s, const struct run_options *o, struct ar_err *err)
{
	const bool any = !strcmp(o->backend, backend_roofline.name);
	const char *sizes = "1,2,4,8";
	char own[32];
	enum ar_status st;

	if (opt_given(o->group, "tp")) {
		snprintf(own, sizeof own, "%" PRId64, o->tp);
		sizes = own;
	}

	if (!any && s->a.tps)
		return ar_fail(err, AR_USAGE,
			       "tps has no effect without --backend roofline; leave it out");
	if (!any)
		return AR_OK;
	if (opt_asked(o->group, "tp"))
		return ar_fail(err, AR_USAGE,
			       "the search sets tp; leave it out, or name one with --tps");
	st = read_sizes(s, s->a.tps ? s->a.tps : sizes, err);
	if (!st)
		s->tp = s->tps[s->n_tp - 1]; /* a model that fits at all is loaded with it */
	return st;
}

static enum ar_status gpus_check(struct search *s, struct run_options *o, struct ar_err *err)
{
	struct search_args *a = &s->a;

	for (size_t i = 0; i < sizeof set_by_apart / sizeof *set_by_apart; i++)
		if (opt_given(o->group, set_by_apart[i]))
			return ar_fail(err, AR_USAGE,
				       "the search sets %s; give --apart in place of it",
				       set_by_apart[i]);
	if (a->apart && !strcmp(o->backend, backend_cost.name) && !run_options_costs(o))
		return ar_fail(err, AR_USAGE,
			       "apart has no effect without a model, whose KV travels; give "
			       "--costs, or --backend roofline");
	if (opt_given(&s->own, "precision"))
		return ar_fail(err, AR_USAGE,
			       "precision has no effect on numbers of GPUs; leave it out");
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
	if (o->engine_dp)
		s->gpus_hint = o->tp * o->replicas;
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
static int64_t count_servable(const struct search *s, const struct run_inputs *in)
{
	const struct trace *t = s->base[0]->in.trace;
	struct sched_limits l = in->limits;
	int64_t n = 0;
	char why[160];

	l.num_blocks = 0;
	for (size_t i = 0; i < t->n; i++)
		n += !t->req[i].warmup && !sched_rejects(&l, &t->req[i], why, sizeof why);
	return n;
}

/* A point with such engines of the size of the search; NULL: there is none so far. */
static const struct point *find_point(const struct search *s, const struct subject *u,
				      const struct engines *e)
{
	const int64_t each = replica_gpus(s, u);

	for (size_t i = 0; i < u->n; i++)
		if (u->point[i].prefill == e->prefill && u->point[i].tp == each &&
		    (int64_t)u->point[i].x == (e->prefill + e->decode) * each)
			return &u->point[i];
	return NULL;
}

static enum ar_status try_engines(struct search *s, struct subject *u, struct engines e, bool *kept,
				  struct ar_err *err)
{
	const struct point *known = find_point(s, u, &e);
	char prefill[32], decode[32];
	const struct run_setting together[] = { { "replicas", decode }, { 0 } };
	const struct run_setting apart[] = { { "prefill-replicas", prefill },
					     { "decode-replicas", decode },
					     { 0 } };

	if (known) {
		*kept = known->kept;
		return AR_OK;
	}
	snprintf(prefill, sizeof prefill, "%" PRId64, e.prefill);
	snprintf(decode, sizeof decode, "%" PRId64, e.decode);
	return search_point_of(s, u, (double)((e.prefill + e.decode) * replica_gpus(s, u)),
			       e.prefill ? apart : together, kept, err);
}

/* The next number to try, where lo fails and hi keeps; 0: unknown.  From the first number that was
 * tried on, steps double until there are both. */
static int64_t next_number(int64_t lo, int64_t hi, int64_t most, int64_t *step)
{
	const int64_t n = lo && hi ? lo + (hi - lo) / 2 : hi ? hi - *step : lo + *step;

	*step *= 2;
	return n > most ? most : n < 1 ? 1 : n;
}

/* The number nearest to n, first below and then above it, that was not refused and is between lo
 * and hi; 0: there is none. */
static int64_t next_accepted(const bool *refused, int64_t n, int64_t lo, int64_t hi)
{
	for (int64_t i = n < hi ? n : hi - 1; i > lo; i--)
		if (!refused[i])
			return i;
	for (int64_t i = n + 1; i < hi; i++)
		if (!refused[i])
			return i;
	return 0;
}

/* Find the fewest replicas for decodes, or for both if `prefill` is 0, of one size and at most
 * `most`, that keep the limits, from a guess.  *fewest 0: none do.  More replicas keep what fewer
 * keep.  Numbers that are refused, such as ranks that do not divide experts, bound nothing. */
static enum ar_status find_fewest(struct search *s, struct subject *u, int64_t prefill,
				  int64_t guess, int64_t most, int64_t *fewest, struct ar_err *err)
{
	const bool spread = opt_given(u->base->session.o.group, "ep");
	bool refused[ROUTER_MOST + 1] = { false };
	int64_t lo = 0, hi = 0, n = guess, step = 1;
	enum ar_status st = AR_OK, refusal = AR_OK;

	while (!st && (n = next_accepted(refused, n, lo, hi ? hi : most + 1))) {
		bool kept = false;

		st = try_engines(s, u, (struct engines){ prefill, n }, &kept, err);
		if (st == AR_USAGE && (lo || hi || spread)) {
			log_warn("%s; it is left out", err->msg);
			refused[n] = true;
			refusal = st;
			st = AR_OK;
			continue;
		}
		*(kept ? &hi : &lo) = n;
		n = next_number(lo, hi, most, &step);
	}
	*fewest = hi;
	return st || lo || hi ? st : refusal;
}

/* A size that the model does not run with, such as one with too little memory, is left out.  It was
 * loaded with the largest, which is needed only if no other has a point. */
static enum ar_status skip_size(const struct search *s, const struct subject *u, enum ar_status st,
				struct ar_err *err)
{
	if (st != AR_USAGE || !s->n_tp || (s->tp == s->tps[s->n_tp - 1] && !u->n))
		return st;
	log_warn("tp %" PRId64 " is left out: %s", s->tp, err->msg);
	return AR_OK;
}

/* Replicas with fewer GPUs than the best so far, which alone are tried. */
static int64_t most_replicas(const struct search *s, const struct subject *u, int64_t gpus)
{
	return (gpus ? gpus - 1 : (int64_t)s->a.highest) / replica_gpus(s, u);
}

static enum ar_status try_together(struct search *s, struct subject *u, int64_t *gpus,
				   struct ar_err *err)
{
	const int64_t most = most_replicas(s, u, *gpus), each = replica_gpus(s, u);
	const int64_t hint = s->gpus_hint / each;
	int64_t n = 0;
	enum ar_status st = AR_OK;

	if (most > 0)
		st = find_fewest(s, u, 0, *gpus ? most : hint > 1 ? hint : 1, most, &n, err);
	if (!st && n)
		*gpus = n * each;
	return skip_size(s, u, st, err);
}

/* What another method took is a good bound where it keeps the limits. */
static enum ar_status try_hint(struct search *s, struct subject *u, int64_t *gpus,
			       struct ar_err *err)
{
	const struct engines e = s->engines_hint;
	bool kept = false;
	enum ar_status st = AR_OK;

	if (e.prefill && e.prefill + e.decode <= most_replicas(s, u, *gpus))
		st = try_engines(s, u, e, &kept, err);
	if (!st && kept)
		*gpus = (e.prefill + e.decode) * replica_gpus(s, u);
	return st;
}

/* For each number of replicas for prefill, the fewest for decodes that take fewer GPUs. */
static enum ar_status try_apart(struct search *s, struct subject *u, int64_t *gpus,
				struct ar_err *err)
{
	int64_t most = most_replicas(s, u, *gpus);
	enum ar_status st = AR_OK;

	for (int64_t p = 1; p < most && !st; p++) {
		int64_t n;

		st = find_fewest(s, u, p, most - p, most - p, &n, err);
		if (!st && n) {
			*gpus = (p + n) * replica_gpus(s, u);
			most = p + n - 1;
		}
	}
	return skip_size(s, u, st, err);
}

typedef enum ar_status size_fn(struct search *s, struct subject *u, int64_t *gpus,
			       struct ar_err *err);

/* Try all sizes, first the one that was best for the method before. */
static enum ar_status try_sizes(struct search *s, struct subject *u, size_fn *fn, int64_t *gpus,
				struct ar_err *err)
{
	enum ar_status st = s->n_tp ? AR_OK : fn(s, u, gpus, err);

	for (size_t i = 0; i < s->n_tp && !st; i++) {
		s->tp = s->tps[!i ? s->tp_first : i <= s->tp_first ? i - 1 : i];
		st = fn(s, u, gpus, err);
	}
	return st;
}

static void take_best(struct search *s, struct subject *u, int64_t gpus)
{
	for (size_t i = 0; i < u->n; i++)
		if (u->point[i].kept && u->point[i].x == (double)gpus)
			u->best = &u->point[i];
	if (!u->best)
		return;
	s->gpus_hint = gpus;
	s->engines_hint = (struct engines){ u->best->prefill,
					    gpus / u->best->tp - u->best->prefill };
	for (size_t i = 0; i < s->n_tp; i++)
		if (s->tps[i] == u->best->tp)
			s->tp_first = i;
}

static enum ar_status find_gpus(struct search *s, struct subject *u, struct ar_err *err)
{
	enum ar_status st;
	int64_t gpus = 0;

	s->least_ok = count_servable(s, &u->base->in);
	if (s->n_tp)
		s->tp = s->tps[s->tp_first];
	st = try_hint(s, u, &gpus, err);
	if (!st)
		st = try_sizes(s, u, try_together, &gpus, err);
	if (!st && s->a.apart)
		st = try_sizes(s, u, try_apart, &gpus, err);
	if (!st)
		take_best(s, u, gpus);
	return st;
}

static enum ar_status gpus_find(struct search *s, struct subject *u, struct ar_err *err)
{
	enum ar_status st = find_gpus(s, u, err);

	return st ? st : search_interval(s, u, err);
}

static enum ar_status gpus_again(struct search *s, struct subject *u, struct rates_found *f,
				 struct ar_err *err)
{
	enum ar_status st;

	s->a.highest = ROUTER_MOST;
	st = find_gpus(s, u, err);
	if (!st && !u->best)
		st = ar_fail(err, AR_DATA, "no number of GPUs keeps the limits");
	if (!st)
		f->kept = f->failed = u->best->x;
	return st;
}

/* ---- output ---- */

/* Replicas as "3", or "1+2" if prefill and decodes are apart. */
static const char *replicas_text(const struct point *p, char text[64])
{
	const int64_t n = (int64_t)p->x / p->tp;

	if (p->prefill)
		snprintf(text, 64, "%" PRId64 "+%" PRId64, p->prefill, n - p->prefill);
	else
		snprintf(text, 64, "%" PRId64, n);
	return text;
}

static void print_engines(const struct point *p)
{
	char text[64];

	printf("%12.0f%6" PRId64 "%10s", p->x, p->tp, replicas_text(p, text));
}

static void gpus_curve(const struct search *s, const struct subject *u)
{
	putchar('\n');
	search_print_name(u);
	printf("\n%12s%6s%10s%12s", "GPUs", "TP", "replicas", "done /s");
	search_print_heads(s);
	puts("  kept");
	for (size_t i = 0; i < u->n; i++) {
		print_engines(&u->point[i]);
		search_print_done(s, &u->point[i]);
	}
}

static const char *plural(double n)
{
	return n == 1 ? "" : "s";
}

static void gpus_verdict(const struct search *s, const struct subject *u)
{
	const struct point *p = u->best;
	int64_t n;

	search_print_name(u);
	if (!p) {
		printf(": up to %.0f GPU%s none keep the limits; raise --highest, or the limits\n",
		       s->a.highest, plural(s->a.highest));
		return;
	}
	n = (int64_t)p->x / p->tp;
	printf(p->x == 1 ? ": 1 GPU keeps the limits" : ": %.0f GPUs keep the limits", p->x);
	if (p->prefill)
		printf(", as %" PRId64 " replica%s for prefill and %" PRId64
		       " for decodes, each of TP %" PRId64,
		       p->prefill, plural((double)p->prefill), n - p->prefill, p->tp);
	else
		printf(", as %" PRId64 " replica%s of TP %" PRId64, n, plural((double)n), p->tp);
	puts("; fewer do not");
	search_print_interval(s, u, "GPUs");
}

static void print_share(const struct search *s, const struct subject *u)
{
	const double x = search_ratio(s, u);
	double lo = NAN, hi = NAN;

	if (isnan(x))
		printf("%10s", "-");
	else
		printf("%9.0f%%", 100 * x);
	if (!s->a.intervals)
		return;
	if (!search_ratio_interval(s, u, &lo, &hi))
		lo = hi = NAN;
	search_print_range(100 * lo, 100 * hi);
}

static void gpus_summary(const struct search *s)
{
	const char *between = s->a.intervals ? "  between         " : "";

	printf("\n%12s%6s%10s%s%10s%s  method\n", "GPUs", "TP", "replicas", between, "share",
	       between);
	for (size_t i = 0; i < s->n_subject; i++) {
		const struct subject *u = &s->subject[i];

		if (u->best)
			print_engines(u->best);
		else
			printf("%12s%6s%10s", "none", "-", "-");
		if (s->a.intervals)
			search_print_range(u->lo, u->hi);
		print_share(s, u);
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
					 .again = gpus_again,
					 .curve = gpus_curve,
					 .verdict = gpus_verdict,
					 .summary = gpus_summary };
