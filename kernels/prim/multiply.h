/* SPDX-License-Identifier: Apache-2.0 */
/* Matrix products of the references, in fp32.  Each element is summed in order of k, whatever the
 * sizes: the lanes of a vector are different elements, so no sum needs to be reordered. */
#ifndef AR_MULTIPLY_H
#define AR_MULTIPLY_H

#include <stdbool.h>

#include "base/bf16.h"

enum { MULTIPLY_ROWS = 4, MULTIPLY_LANES = 4 };

static inline int multiply_pad(int n, int to)
{
	return (n + to - 1) / to * to;
}

/* c[i][j] = (add ? c[i][j] : 0) + sum over k < n of a[i][k] * b[k][j].  The caller pads rows of a
 * and c to a multiple of MULTIPLY_ROWS; columns of b and c to one of MULTIPLY_LANES. */
void multiply(float *c, int ldc, const float *a, int lda, const float *b, int ldb, int rows,
	      int cols, int n, bool add);

/* y[i] += a * x[i], for n elements. */
void multiply_add(float *y, float a, const float *x, int n);

/* b[k][j] = x[j][k], for n rows of x of dim elements each. */
void multiply_transpose(float *b, int ldb, const bf16_t *x, int n, int dim);

#endif
