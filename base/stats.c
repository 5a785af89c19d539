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
