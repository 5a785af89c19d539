/* SPDX-License-Identifier: Apache-2.0 */
/* attnreplay search chunk: the token budget under which most requests are within the limits. */
#include "config.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "src/search/search.h"

static const char *const of_rates[] = { "intervals", "intervals-time" };

static enum ar_status chunk_check(struct search *s, struct run_options *o, struct ar_err *err)
{
	struct search_args *a = &s->a;
	const double most = 1 << 30;

	(void)o;
	if (opt_given(&s->own, "precision"))
		return ar_fail(
			err, AR_USAGE,
			"precision has no effect on chunk sizes, which double; leave it out");
	for (int i = 0; i < 2; i++)
		if (opt_given(&s->own, of_rates[i]))
			return ar_fail(err, AR_USAGE,
				       "%s has no effect on chunk sizes, which have no intervals; "
				       "leave it out",
				       of_rates[i]);
	if (a->lowest == 0)
		a->lowest = 256;
	if (a->highest == 0)
		a->highest = a->lowest > 16384 ? a->lowest : 16384;
	if (a->lowest > a->highest)
		a->lowest = a->highest;
	if (a->lowest != floor(a->lowest) || a->highest != floor(a->highest) || a->highest > most)
		return ar_fail(
			err, AR_USAGE,
			"lowest %.10g, highest %.10g: want chunk sizes, whole numbers from 1 "
			"to %.0f",
			a->lowest, a->highest, most);
	return AR_OK;
}

/* ---- search ---- */

static bool has_percentiles(const struct search *s)
{
	for (size_t i = 0; i < s->slo.n; i++)
		if (s->slo.limit[i].percentile > 0)
			return true;
	return false;
}

/* Percentiles come first, then single requests; of equal ones the lower tail of TTFT is better. */
static bool better_point(const struct point *a, const struct point *b)
{
	if (a->kept != b->kept)
		return a->kept;
	if (a->f.good != b->f.good)
		return a->f.good > b->f.good;
	return a->f.ttft_p99 < b->f.ttft_p99;
}

static enum ar_status chunk_find(struct search *s, struct subject *u, struct ar_err *err)
{
	const double last = s->a.highest;
	enum ar_status st = AR_OK;
	bool kept;

	for (double x = s->a.lowest;; x = 2 * x < last ? 2 * x : last) {
		char text[32];

		snprintf(text, sizeof text, "%.0f", x);
		st = search_point(s, u, x, text, &kept, err);
		if (st || x == last)
			break;
	}
	for (size_t i = 0; i < u->n && !st; i++)
		if (!u->point[i].fails && (!u->best || better_point(&u->point[i], u->best)))
			u->best = &u->point[i];
	return st;
}

/* ---- output ---- */

static double ttft_percent(const struct run_figures *f)
{
	return f->of ? 100 * (double)f->good / (double)f->of : 0;
}

/* The p99 of TTFT is a column of its own already. */
static bool limits_tail(const struct search *s)
{
	for (size_t i = 0; i < s->slo.n; i++)
		if (s->slo.limit[i].percentile == 99 &&
		    run_limited_latency(&s->slo.limit[i]) == LATENCY_TTFT)
			return true;
	return false;
}

static void print_within(const struct point *p)
{
	if (p->fails)
		printf("%12s%10s", "-", "-");
	else
		printf("%12" PRId64 "%10.1f", p->f.good, ttft_percent(&p->f));
}

static void chunk_curve(const struct search *s, const struct subject *u)
{
	bool judged = has_percentiles(s);

	putchar('\n');
	search_print_name(u);
	printf("\n%12s%12s%10s", "chunk", "within", "%");
	search_print_heads(s);
	if (!limits_tail(s))
		printf("%16s", "TTFT p99 ms");
	puts(judged ? "  kept" : "");
	for (size_t i = 0; i < u->n; i++) {
		const struct point *p = &u->point[i];

		printf("%12.0f", p->x);
		print_within(p);
		search_print_limits(s, p);
		if (!limits_tail(s))
			search_print_ms(p->f.ttft_p99);
		printf("%s%s\n", judged || p->fails ? "  " : "",
		       judged || p->fails ? search_kept(p) : "");
	}
}

static void chunk_verdict(const struct search *s, const struct subject *u)
{
	const struct point *p = u->best;

	search_print_name(u);
	if (!p) {
		puts(": the engine fails with every size");
		return;
	}
	printf(": best with chunks of %.0f tokens: %" PRId64 " of %" PRId64
	       " requests (%.1f %%) within the times of %s%s\n",
	       p->x, p->f.good, p->f.of, ttft_percent(&p->f), s->a.slo,
	       p->kept ? "" : "; no size keeps the percentiles");
}

static void chunk_summary(const struct search *s)
{
	printf("\n%12s%12s%10s%16s  method\n", "chunk", "within", "%", "TTFT p99 ms");
	for (size_t i = 0; i < s->n_subject; i++) {
		const struct subject *u = &s->subject[i];
		const struct point *p = u->best;

		if (p) {
			printf("%12.0f", p->x);
			print_within(p);
			search_print_ms(p->f.ttft_p99);
		} else {
			printf("%12s%12s%10s%16s", "none", "-", "-", "-");
		}
		fputs("  ", stdout);
		search_print_name(u);
		putchar('\n');
	}
}

const struct search_kind search_chunk = { .name = "chunk",
					  .option = "max-num-batched-tokens",
					  .check = chunk_check,
					  .find = chunk_find,
					  .curve = chunk_curve,
					  .verdict = chunk_verdict,
					  .summary = chunk_summary };
