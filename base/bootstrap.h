/* SPDX-License-Identifier: Apache-2.0 */
/* Intervals from figures of resamples (Efron 1979): how far a figure would move if the same process
 * were observed again. */
#ifndef AR_BOOTSTRAP_H
#define AR_BOOTSTRAP_H

#include <stddef.h>

/* The central share of the draws, 0.95 for an interval of 95 %.  Sorts them. */
void bootstrap_interval(double *draw, size_t n, double share, double *lo, double *hi);

#endif
