/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/stats.h"

#include <stdlib.h>

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

void stats_sort(double *x, size_t n)
{
	qsort(x, n, sizeof *x, by_value);
}

double stats_percentile(const double *x, size_t n, double p)
{
	double h = (double)(n - 1) * p / 100;
	size_t k = (size_t)h;

	return k + 1 < n ? x[k] + (h - (double)k) * (x[k + 1] - x[k]) : x[n - 1];
}
