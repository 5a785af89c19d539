/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "base/block_length.h"

#include <math.h>

/* A correlation is told from 0 beyond this many times sqrt(log10(n) / n). */
#define NOTICED 2.

static double mean_of(const double *x, size_t n)
{
	double sum = 0;

	for (size_t i = 0; i < n; i++)
		sum += x[i];
	return sum / (double)n;
}

static double autocovariance(const double *x, size_t n, double mean, size_t lag)
{
	double sum = 0;

	for (size_t i = lag; i < n; i++)
		sum += (x[i] - mean) * (x[i - lag] - mean);
	return sum / (double)n;
}

/* The flat-top window: 1 up to a half, then down to 0 at 1. */
static double window(double t)
{
	return t <= 0.5 ? 1 : t < 1 ? 2 * (1 - t) : 0;
}

/* The last lag before a whole row of correlations that cannot be told from 0; most: if there is no
 * such row, the largest correlation's. */
static size_t last_lag(const double *x, size_t n, double mean, double variance, size_t most)
{
	const double digits = log10((double)n), bound = NOTICED * sqrt(digits / (double)n);
	const size_t row = (size_t)fmax(5, ceil(sqrt(digits)));
	size_t quiet = 0, last = 0;

	for (size_t lag = 1; lag <= most + row && lag < n; lag++) {
		if (fabs(autocovariance(x, n, mean, lag)) <= bound * variance) {
			if (++quiet == row)
				return lag - row;
		} else {
			quiet = 0;
			last = lag;
		}
	}
	return last;
}

size_t block_length(const double *x, size_t n)
{
	const double mean = n ? mean_of(x, n) : NAN;
	const double variance = n ? autocovariance(x, n, mean, 0) : NAN;
	const double longest = fmin(ceil(3 * sqrt((double)n)), ceil((double)n / 3));
	double sum, slope = 0, length;
	size_t last;

	if (n < 2 || !(variance > 0) || !isfinite(variance))
		return 1;
	last = 2 * last_lag(x, n, mean, variance, (size_t)ceil(sqrt((double)n)));
	sum = variance;
	for (size_t lag = 1; lag <= last && lag < n; lag++) {
		double c = 2 * window((double)lag / (double)last) * autocovariance(x, n, mean, lag);

		sum += c;
		slope += (double)lag * c;
	}
	if (!(sum > 0))
		return 1;
	/* 2 slope^2 / (4/3 sum^2), to the third, times n to the third */
	length = cbrt(1.5 * (slope / sum) * (slope / sum) * (double)n);
	return (size_t)fmax(1, fmin(ceil(length), longest));
}
