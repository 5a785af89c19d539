/* SPDX-License-Identifier: Apache-2.0 */
/* Counts that the phases of the roofline model share. */
#ifndef AR_ROOFLINE_COUNT_H
#define AR_ROOFLINE_COUNT_H

#include "replay/cost/roofline.h"

/* Bytes of a bf16, a cosine, and of an entry of a list. */
enum { BF16 = 2, TRIG = 4, LIST = 4 };

/* n_batch products of [m][k] and [n][k], plus a bias of [n] if there is one. */
static inline void add_product(struct roofline_work *w, double n_batch, double m, double n,
			       double k, int bias)
{
	w->flops += 2 * n_batch * m * n * k;
	w->bytes += BF16 * n_batch * (m * k + n * k + m * n + bias * n);
	w->kernels++;
}

/* A kernel that moves n elements. */
static inline void add_moves(struct roofline_work *w, double n)
{
	w->bytes += BF16 * n;
	w->kernels++;
}

#endif
