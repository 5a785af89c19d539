/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/stats.h"

#include <stdlib.h>

#include "base/order.h"

void stats_sort(double *x, size_t n)
{
	qsort(x, n, sizeof *x, order_f64);
}

double stats_percentile(const double *x, size_t n, double p)
{
	double h = (double)(n - 1) * p / 100;
	size_t k = (size_t)h;

	return k + 1 < n ? x[k] + (h - (double)k) * (x[k + 1] - x[k]) : x[n - 1];
}

static int by_value(const void *a, const void *b)
{
	const struct stats_ranked *p = a, *q = b;

	return ORDER(p->x, q->x);
}

void stats_ranks(const double *x, size_t n, struct stats_ranked *scratch, double *rank)
{
	for (size_t i = 0; i < n; i++)
		scratch[i] = (struct stats_ranked){ x[i], i };
	qsort(scratch, n, sizeof *scratch, by_value);
	for (size_t i = 0, end; i < n; i = end) {
		for (end = i + 1; end < n && scratch[end].x == scratch[i].x;)
			end++;
		for (size_t k = i; k < end; k++)
			rank[scratch[k].at] = (double)(i + end - 1) / 2;
	}
}
