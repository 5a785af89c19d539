/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/bootstrap.h"

#include "base/stats.h"

void bootstrap_interval(double *draw, size_t n, double share, double *lo, double *hi)
{
	stats_sort(draw, n);
	*lo = stats_percentile(draw, n, 50 * (1 - share));
	*hi = stats_percentile(draw, n, 50 * (1 + share));
}
