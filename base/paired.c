/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/paired.h"

#include <math.h>
#include <stdlib.h>

#include "base/stats.h"

double paired_mcnemar(int64_t b, int64_t c)
{
	const double n = (double)(b + c);
	const int64_t least = b < c ? b : c;
	double tail = 0;

	for (int64_t i = 0; i <= least; i++) {
		const double k = (double)i;

		tail += exp(lgamma(n + 1) - lgamma(k + 1) - lgamma(n - k + 1) - n * M_LN2);
	}
	return fmin(1, 2 * tail);
}

static double pearson(const double *x, const double *y, size_t n)
{
	const double mean = (double)(n - 1) / 2; /* of ranks */
	double xx = 0, yy = 0, xy = 0;

	for (size_t i = 0; i < n; i++) {
		xx += (x[i] - mean) * (x[i] - mean);
		yy += (y[i] - mean) * (y[i] - mean);
		xy += (x[i] - mean) * (y[i] - mean);
	}
	return xx > 0 && yy > 0 ? xy / sqrt(xx * yy) : NAN;
}

enum ar_status paired_spearman(const double *x, const double *y, size_t n, double *rho,
			       struct ar_err *err)
{
	struct stats_ranked *scratch = malloc((n + 1) * sizeof *scratch);
	double *rank = malloc((2 * n + 1) * sizeof *rank);
	enum ar_status st = scratch && rank ? AR_OK : ar_nomem(err);

	*rho = NAN;
	if (!st && n > 1) {
		stats_ranks(x, n, scratch, rank);
		stats_ranks(y, n, scratch, rank + n);
		*rho = pearson(rank, rank + n, n);
	}
	free(scratch);
	free(rank);
	return st;
}
