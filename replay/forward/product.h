/* SPDX-License-Identifier: Apache-2.0 */
/* Products of activations and weights, in fp32, on all processors. */
#ifndef AR_PRODUCT_H
#define AR_PRODUCT_H

#include "base/bf16.h"
#include "base/status.h"

/* y[r][o] = sum over k of x[r][k] * w[o][k], plus bias[o].  Each element is summed in order of k,
 * so it does not depend on the rows beside it.  One of y and real is set. */
struct product {
	const bf16_t *x; /* [rows][in] */
	int rows, in, out;
	const bf16_t *w;    /* [out][in] */
	const bf16_t *bias; /* [out]; NULL: none */
	bf16_t *y;	    /* [rows][out], rounded once */
	float *real;	    /* [rows][out] */
};

/* AR_NOMEM, or AR_INTERRUPTED. */
enum ar_status product_run(const struct product *p, struct ar_err *err);

#endif
