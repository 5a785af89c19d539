/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Fit the rates of the roofline model to measured times.
 *
 * A point has the times that its FLOPs and bytes would take at the peaks.  Its time is modelled as
 * max(compute / c, memory / m) + fixed.  Points with more FLOPs per byte than some ridge are bound
 * by compute, the others by memory.  For each of many ridges, weighted least squares give c, m and
 * fixed; the ridge with the least sum of squared relative errors wins.
 */
#ifndef AR_ROOFLINE_FIT_H
#define AR_ROOFLINE_FIT_H

#include "replay/cost/roofline_gpu.h"

/* ns: compute and memory at the peaks, and measured, all above 0; compute may be 0. */
struct roofline_point {
	double compute, memory, measured;
};

/* The shares that the points determine.  The fit leaves the others unchanged. */
struct roofline_told {
	bool compute, memory;
};

/* Modelled ns of a point. */
double roofline_fit_ns(const struct roofline_rate *r, const struct roofline_point *p);

/* Sort the n > 0 points by compute / memory, and fit *r, which holds the shares to keep. */
void roofline_fit(struct roofline_point *p, size_t n, struct roofline_rate *r,
		  struct roofline_told *told);

#endif
