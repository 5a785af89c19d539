/* SPDX-License-Identifier: Apache-2.0 */
/* Percentiles, defined once for all reports: numpy's "linear" method; and ranks. */
#ifndef AR_STATS_H
#define AR_STATS_H

#include <stddef.h>

/* Sort x ascending, in place. */
void stats_sort(double *x, size_t n);

/* Percentile p in [0, 100] of the sorted x[0..n), n > 0: h = (n-1) p / 100,
 * x[floor h] + (h - floor h) (x[floor h + 1] - x[floor h]). */
double stats_percentile(const double *x, size_t n, double p);

struct stats_ranked {
	double x;
	size_t at;
};

/* Set rank[i] to that of x[i], from 0; equal values share the mean of theirs.  scratch: room for
 * n.  rank may be x. */
void stats_ranks(const double *x, size_t n, struct stats_ranked *scratch, double *rank);

#endif
