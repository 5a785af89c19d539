/* SPDX-License-Identifier: Apache-2.0 */
/* The distance of one attention output row of one head, as host and device compute it: both round
 * the same operations in the same order. */
#ifndef AR_ACCURACY_ROW_H
#define AR_ACCURACY_ROW_H

#include <math.h>
#include <stdbool.h>

#include "base/both.h"
#include "kernels/methods/accuracy.h"

/* Values of a row.  A head has their sums over its rows, and the largest ACC_MAX. */
enum { ACC_DIFF, ACC_DENSE, ACC_COSINE, ACC_MASS, ACC_MAX, ACC_VALUES };

/* Over the elements of a row: the sums of (out - dense)^2, dense^2, out^2 and out * dense, and the
 * largest |out - dense|. */
struct accuracy_sums {
	double diff, dense, out, dot, max;
};

/* The product is rounded before it is added. */
static inline AR_BOTH double accuracy_add_product(double sum, double x, double y)
{
#ifdef __CUDA_ARCH__
	return __dadd_rn(sum, __dmul_rn(x, y));
#else
	return sum + x * y;
#endif
}

/* Add one element of the output and of the dense output. */
static inline AR_BOTH void accuracy_add(struct accuracy_sums *s, double out, double dense)
{
	double d = fabs(out - dense);

	s->diff = accuracy_add_product(s->diff, d, d);
	s->dense = accuracy_add_product(s->dense, dense, dense);
	s->out = accuracy_add_product(s->out, out, out);
	s->dot = accuracy_add_product(s->dot, out, dense);
	s->max = fmax(s->max, d);
}

static inline AR_BOTH double accuracy_cosine(const struct accuracy_sums *s)
{
	if (s->out == 0 && s->dense == 0)
		return 1;
	if (s->out == 0 || s->dense == 0)
		return 0;
	return fmin(1., s->dot / sqrt(s->out * s->dense));
}

/* Selected share of the dense attention mass.  Rounding can bring it a little above 1. */
static inline AR_BOTH double accuracy_mass(float lse, float lse_dense)
{
	return isinf(lse) && lse < 0 ? 0 : fmin(1., exp((double)lse - (double)lse_dense));
}

/* Value v of a row, an ACC_*. */
static inline AR_BOTH double accuracy_value(const struct accuracy_sums *s, float lse,
					    float lse_dense, int v)
{
	switch (v) {
	case ACC_DIFF: return s->diff;
	case ACC_DENSE: return s->dense;
	case ACC_COSINE: return accuracy_cosine(s);
	case ACC_MASS: return accuracy_mass(lse, lse_dense);
	default: return s->max;
	}
}

/* Value v of a head with one more row, whose value is x. */
static inline AR_BOTH double accuracy_join(double head, double x, int v)
{
	return v == ACC_MAX ? fmax(head, x) : head + x;
}

/* lse is -INFINITY for a row without a selected key, which is valid.  A dense row has keys. */
static inline AR_BOTH bool accuracy_is_finite(const struct accuracy_sums *s, float lse,
					      float lse_dense)
{
	return isfinite(s->out) && isfinite(s->dense) && isfinite(lse_dense) && lse < INFINITY;
}

#ifdef __cplusplus
extern "C" {
#endif

/* The error of a row that is not finite, and the distance of a head of n_row rows. */
enum ar_status accuracy_refuse(int head, int row, struct ar_err *err);
struct accuracy accuracy_of(const double *value, int n_row); /* value[ACC_VALUES] */

#ifdef __cplusplus
}
#endif
#endif
