/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/search/search.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

#include "base/text.h"

/* A percentile that fewer requests lie beyond depends on which requests these are. */
enum { TAIL = 10 };

static const char *metric_name(const struct slo_limit *l)
{
	return latency_names[run_limited_latency(l)];
}

void search_print_name(const struct subject *u)
{
	text_put(run_label(u->base, u->i), stdout);
	if (u->base->in.costs) {
		fputs(" of ", stdout);
		text_put(u->base->in.costs->name, stdout);
	}
}

void search_print_heads(const struct search *s)
{
	for (size_t i = 0; i < s->slo.n; i++) {
		const struct slo_limit *l = &s->slo.limit[i];
		char head[48];

		if (l->percentile <= 0)
			continue;
		snprintf(head, sizeof head, "%s p%g ms", metric_name(l), l->percentile);
		printf("%16s", head);
	}
}

void search_print_limits(const struct search *s, const struct point *p)
{
	for (size_t i = 0; i < s->slo.n; i++)
		if (s->slo.limit[i].percentile > 0)
			search_print_ms(p->f.limited[i]);
}

void search_print_ms(double ns)
{
	if (isnan(ns))
		printf("%16s", "-");
	else
		printf("%16.3f", ns / 1e6);
}

const char *search_kept(const struct point *p)
{
	return p->fails ? "fails" : p->kept ? "yes" : "no";
}

void search_print_done(const struct search *s, const struct point *p)
{
	if (p->fails)
		printf("%12s", "-");
	else
		printf("%12.4g", p->f.done_per_s);
	search_print_limits(s, p);
	printf("  %s\n", search_kept(p));
}

/* The first point with figures; NULL: none. */
static const struct point *first_point(const struct subject *u)
{
	for (size_t i = 0; i < u->n; i++)
		if (!u->point[i].fails)
			return &u->point[i];
	return NULL;
}

void search_print_range(double lo, double hi)
{
	char text[64] = "";

	if (!isnan(lo))
		snprintf(text, sizeof text, "[%.4g, %.4g]", lo, hi);
	printf("  %-16s", text);
}

void search_print_interval(const struct search *s, const struct subject *u, const char *unit)
{
	struct resample_plan p;

	if (*u->no_interval)
		printf("no interval: %s\n", u->no_interval);
	if (isnan(u->lo))
		return;
	p = resample_plan(s->resampler);
	printf("interval of 95 %%: %.4g to %.4g %s, by %d resamples of %zu %ss in blocks of %zu\n",
	       u->lo, u->hi, unit, SEARCH_REPLICATES, p.n_unit, resample_unit_names[p.unit],
	       p.block);
}

void search_print_notes(const struct search *s)
{
	const struct point *p = first_point(s->subject);

	for (size_t i = 0; p && i < s->slo.n; i++) {
		const struct slo_limit *l = &s->slo.limit[i];
		const struct run_figures *f = &p->f;
		double beyond = (double)f->n_limited[i] * (100 - l->percentile) / 100;

		if (l->percentile > 0 && beyond < TAIL)
			printf("\n%s p%g is of %" PRIu64 " requests, %.4g of them beyond it; with "
			       "fewer than %d it moves with single requests, so replay more, as "
			       "with --repeat\n",
			       metric_name(l), l->percentile, f->n_limited[i], beyond, TAIL);
	}
}
