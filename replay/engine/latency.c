/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/latency.h"

#include <stdlib.h>

#include "base/grow.h"
#include "base/order.h"

const char *const latency_names[] = {
	[LATENCY_TTFT] = "TTFT", [LATENCY_TPOT] = "TPOT",   [LATENCY_ITL] = "ITL",
	[LATENCY_E2E] = "E2E",	 [LATENCY_QUEUE] = "queue",
};

/* Join equal runs.  If more than a quarter of the memory is still used, double it. */
static enum ar_status make_room(struct series *s, struct ar_err *err)
{
	series_sort(s);
	if (s->cap && s->n_run <= s->cap / 4)
		return AR_OK;
	return GROW(s->run, s->cap, s->cap ? 2 * s->cap : 256) ? AR_OK : ar_nomem(err);
}

enum ar_status series_add(struct series *s, double x, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	s->n++;
	if (s->n_run && s->run[s->n_run - 1].x == x) {
		s->run[s->n_run - 1].n++;
		return AR_OK;
	}
	if (s->n_run == s->cap)
		st = make_room(s, err);
	if (!st)
		s->run[s->n_run++] = (struct series_run){ x, 1 };
	return st;
}

void series_release(struct series *s)
{
	free(s->run);
	*s = (struct series){ 0 };
}

static int by_value(const void *a, const void *b)
{
	const struct series_run *x = a, *y = b;

	return ORDER(x->x, y->x);
}

void series_sort(struct series *s)
{
	size_t n = 0;

	if (!s->n_run)
		return;
	qsort(s->run, s->n_run, sizeof *s->run, by_value);
	for (size_t i = 1; i < s->n_run; i++) {
		if (s->run[i].x > s->run[n].x)
			s->run[++n] = s->run[i];
		else
			s->run[n].n += s->run[i].n;
	}
	s->n_run = n + 1;
}

static double series_at(const struct series *s, uint64_t k)
{
	size_t i = 0;

	while (i + 1 < s->n_run && k >= s->run[i].n)
		k -= s->run[i++].n;
	return s->run[i].x;
}

double series_percentile(const struct series *s, double p)
{
	double h = (double)(s->n - 1) * p / 100;
	uint64_t k = (uint64_t)h;
	double lo = series_at(s, k);

	return lo + (h - (double)k) * (series_at(s, k + 1) - lo);
}

double series_mean(const struct series *s)
{
	double sum = 0;

	for (size_t i = 0; i < s->n_run; i++)
		sum += s->run[i].x * (double)s->run[i].n;
	return sum / (double)s->n;
}
