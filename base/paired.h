/* SPDX-License-Identifier: Apache-2.0 */
/* Statistics of pairs: the same prompts under two methods, or two figures of the same runs. */
#ifndef AR_PAIRED_H
#define AR_PAIRED_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

/* McNemar's exact test: of b + c pairs that changed, b changed one way and c the other.  Returns
 * the two-sided p under "both ways are equally likely": twice the smaller binomial tail, at most
 * 1. */
double paired_mcnemar(int64_t b, int64_t c);

/* Spearman's rank correlation of x[n] and y[n]: Pearson's of their ranks, where equal values share
 * the mean of their ranks.  NaN: n is below 2, or all values of x or of y are equal. */
enum ar_status paired_spearman(const double *x, const double *y, size_t n, double *rho,
			       struct ar_err *err);

#endif
