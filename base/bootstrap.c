/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/bootstrap.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/order.h"
#include "base/rng.h"
#include "base/stats.h"

/* ---- samples ---- */

struct indexed {
	double x;
	uint32_t i;
};

static int by_value(const void *a, const void *b)
{
	const struct indexed *x = a, *y = b;
	const int c = ORDER(x->x, y->x);

	return c ? c : ORDER(x->i, y->i);
}

enum ar_status sample_of_values(struct sample *s, const double *x, size_t n, struct ar_err *err)
{
	struct indexed *order = malloc(n * sizeof *order);

	*s = (struct sample){ .n = n, .n_sorted = n };
	s->sorted = malloc(n * sizeof *s->sorted);
	s->rank = malloc(n * sizeof *s->rank);
	if (!order || !s->sorted || !s->rank) {
		free(order);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < n; i++)
		order[i] = (struct indexed){ x[i], (uint32_t)i };
	qsort(order, n, sizeof *order, by_value);
	for (size_t i = 0; i < n; i++) {
		s->sorted[i] = order[i].x;
		s->rank[order[i].i] = (uint32_t)i;
	}
	free(order);
	return AR_OK;
}

enum ar_status sample_of_counts(struct sample *s, const double *x, const int64_t *times, size_t n,
				struct ar_err *err)
{
	*s = (struct sample){ .n_sorted = n };
	s->sorted = malloc(n * sizeof *s->sorted);
	s->upto = malloc(n * sizeof *s->upto);
	if (!s->sorted || !s->upto)
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++) {
		s->n += (size_t)times[i];
		s->sorted[i] = x[i];
		s->upto[i] = s->n;
	}
	return AR_OK;
}

void sample_release(struct sample *s)
{
	free(s->sorted);
	free(s->upto);
	free(s->rank);
	*s = (struct sample){ 0 };
}

/* Value number k of the sorted sample, from 0. */
static double sample_value(const struct sample *s, size_t k)
{
	size_t lo = 0, hi = s->n_sorted - 1;

	if (!s->upto)
		return s->sorted[k];
	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (s->upto[mid] > k)
			hi = mid;
		else
			lo = mid + 1;
	}
	return s->sorted[lo];
}

/* Percentile p lies between order statistics k and k + 1, at part of the way. */
struct value_place {
	size_t k;
	double part;
};

static struct value_place place_of(size_t n, double p)
{
	double h = (double)(n - 1) * p / 100;
	size_t k = (size_t)h;

	return (struct value_place){ k, k + 1 < n ? h - (double)k : 0 };
}

double sample_percentile(const struct sample *s, double p)
{
	struct value_place at = place_of(s->n, p);
	double x = sample_value(s, at.k);

	return at.part > 0 ? x + at.part * (sample_value(s, at.k + 1) - x) : x;
}

/* ---- independent values ---- */

/* In (0, 1). */
static double uniform(struct rng *r)
{
	return rng_unit(r) + 0x1p-54;
}

/* The polar method of Marsaglia. */
static double normal(struct rng *r)
{
	double u, v, q;

	do {
		u = 2 * uniform(r) - 1;
		v = 2 * uniform(r) - 1;
		q = u * u + v * v;
	} while (q >= 1 || q <= 0);
	return u * sqrt(-2 * log(q) / q);
}

/* Gamma distributed with shape a >= 1 and scale 1 (Marsaglia and Tsang 2000). */
static double gamma_of(struct rng *r, double a)
{
	const double d = a - 1.0 / 3, c = 1 / sqrt(9 * d);
	double x, v;

	do {
		x = normal(r);
		v = (1 + c * x) * (1 + c * x) * (1 + c * x);
	} while (v <= 0 || log(uniform(r)) >= x * x / 2 + d - d * v + d * log(v));
	return d * v;
}

static size_t index_of(double u, size_t n)
{
	size_t i = (size_t)(u * (double)n);

	return i < n ? i : n - 1;
}

/* Positions of a resample are uniform.  So order statistic k of n is beta distributed with k + 1
 * and n - k.  The next one is the least of n - k - 1 uniform ones above it. */
static double draw_independent(const struct sample *s, struct value_place at, struct rng *r)
{
	double below = gamma_of(r, (double)at.k + 1), above = gamma_of(r, (double)(s->n - at.k));
	double u = below / (below + above), x = sample_value(s, index_of(u, s->n)), next;

	if (at.part <= 0)
		return x;
	next = 1 - (1 - u) * pow(uniform(r), 1 / (double)(s->n - at.k - 1));
	return x + at.part * (sample_value(s, index_of(next, s->n)) - x);
}

/* ---- blocks ---- */

/* Values whose rank is in [lo, hi) are counted one by one; of the others it matters only how many
 * are below. */
struct window {
	size_t lo, hi, n, block;
	struct before {
		uint32_t below, first; /* how many are below, and in the window */
	} * before;		       /* of the values before position i; n + 1 */
	uint32_t *slot;	 /* of the values in the window, in order of time: rank - lo */
	uint32_t *count; /* of each rank in the window, in this resample */
};

/* The place of the percentile varies by sqrt(n block p (1 - p)), or less where a block has unlike
 * values.  The window reaches six times as far. */
static void set_bounds(struct window *w, const struct sample *s, double p, struct value_place at)
{
	double share = p / 100, n = (double)s->n;
	double reach = 6 * sqrt(n * (double)w->block * share * (1 - share)) + (double)w->block + 2;

	w->n = s->n;
	w->lo = (double)at.k > reach ? at.k - (size_t)reach : 0;
	w->hi = (double)at.k + reach + 2 < n ? at.k + (size_t)reach + 2 : s->n;
}

static void window_release(struct window *w)
{
	free(w->before);
	free(w->slot);
	free(w->count);
}

static enum ar_status window_make(struct window *w, const struct sample *s, double p,
				  struct value_place at, struct ar_err *err)
{
	uint32_t n_slot = 0;

	set_bounds(w, s, p, at);
	w->before = calloc(w->n + 1, sizeof *w->before);
	w->slot = malloc((w->hi - w->lo) * sizeof *w->slot);
	w->count = malloc((w->hi - w->lo) * sizeof *w->count);
	if (!w->before || !w->slot || !w->count)
		return ar_nomem(err);
	for (size_t i = 0; i < w->n; i++) {
		w->before[i + 1].below = w->before[i].below + (s->rank[i] < w->lo);
		if (s->rank[i] >= w->lo && s->rank[i] < w->hi)
			w->slot[n_slot++] = (uint32_t)(s->rank[i] - w->lo);
		w->before[i + 1].first = n_slot;
	}
	return AR_OK;
}

/* Take the values at positions [from, to).  Returns how many are below the window. */
static size_t take_values(struct window *w, size_t from, size_t to)
{
	const struct before a = w->before[from], b = w->before[to];

	for (uint32_t i = a.first; i < b.first; i++)
		w->count[w->slot[i]]++;
	return b.below - a.below;
}

/* Take n values in blocks that begin anywhere and wrap around. */
static size_t take_blocks(struct window *w, struct rng *r)
{
	size_t below = 0;

	memset(w->count, 0, (w->hi - w->lo) * sizeof *w->count);
	for (size_t left = w->n; left;) {
		size_t n = left < w->block ? left : w->block, from = rng_below(r, w->n);
		size_t to = from + n < w->n ? from + n : w->n;

		below += take_values(w, from, to) + take_values(w, 0, from + n - to);
		left -= n;
	}
	return below;
}

static double draw_blocks(const struct sample *s, struct window *w, struct value_place at,
			  struct rng *r)
{
	size_t seen = take_blocks(w, r), i = w->lo;
	double x;

	while (i + 1 < w->hi && seen + w->count[i - w->lo] <= at.k)
		seen += w->count[i++ - w->lo];
	x = s->sorted[i];
	if (at.part <= 0)
		return x;
	while (i + 1 < w->hi && seen + w->count[i - w->lo] <= at.k + 1)
		seen += w->count[i++ - w->lo];
	return x + at.part * (s->sorted[i] - x);
}

/* ---- resamples ---- */

enum ar_status bootstrap_draw(const struct bootstrap *b, const struct sample *s, double p,
			      double *draw, struct ar_err *err)
{
	const struct value_place at = place_of(s->n, p);
	struct window w = { .block = b->block };
	struct rng r = { rng_mix(b->seed) };
	enum ar_status st = b->block ? window_make(&w, s, p, at, err) : AR_OK;

	for (size_t i = 0; i < b->resamples && !st; i++)
		draw[i] = b->block ? draw_blocks(s, &w, at, &r) : draw_independent(s, at, &r);
	window_release(&w);
	return st;
}

void bootstrap_interval(double *draw, size_t n, double share, double *lo, double *hi)
{
	stats_sort(draw, n);
	*lo = stats_percentile(draw, n, 50 * (1 - share));
	*hi = stats_percentile(draw, n, 50 * (1 + share));
}

size_t bootstrap_block(size_t n)
{
	return (size_t)ceil(cbrt((double)n));
}
