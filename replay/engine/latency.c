/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/latency.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/order.h"

const char *const latency_names[] = {
	[LATENCY_TTFT] = "TTFT", [LATENCY_TPOT] = "TPOT",   [LATENCY_ITL] = "ITL",
	[LATENCY_E2E] = "E2E",	 [LATENCY_QUEUE] = "queue",
};

static int by_value(const void *a, const void *b)
{
	const struct series_run *x = a, *y = b;

	return ORDER(x->x, y->x);
}

/* Join equal runs of s, which is in order. */
static void join(struct series *s)
{
	size_t n = 0;

	for (size_t i = 1; i < s->n_run; i++) {
		if (s->run[i].x > s->run[n].x)
			s->run[++n] = s->run[i];
		else
			s->run[n].n += s->run[i].n;
	}
	s->n_run = s->n_sorted = n + 1;
}

/* The tail is merged from the end, so that only it needs memory. */
enum ar_status series_sort(struct series *s, struct ar_err *err)
{
	size_t sorted = s->n_sorted, n = s->n_run, n_tail = n - sorted;
	struct series_run *tail;

	if (!n_tail)
		return AR_OK;
	qsort(s->run + sorted, n_tail, sizeof *tail, by_value);
	tail = malloc(n_tail * sizeof *tail);
	if (!tail)
		return ar_nomem(err);
	memcpy(tail, s->run + sorted, n_tail * sizeof *tail);
	while (n_tail) {
		bool last = sorted && s->run[sorted - 1].x > tail[n_tail - 1].x;

		s->run[--n] = last ? s->run[--sorted] : tail[--n_tail];
	}
	free(tail);
	join(s);
	return AR_OK;
}

/* Join equal runs.  If more than half of the memory is still used, double it. */
static enum ar_status make_room(struct series *s, struct ar_err *err)
{
	enum ar_status st = series_sort(s, err);

	if (st || (s->cap && s->n_run <= s->cap / 2))
		return st;
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
