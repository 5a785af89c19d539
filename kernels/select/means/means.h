/* SPDX-License-Identifier: Apache-2.0 */
/* Means of a block's keys and of a block's queries, for selectors that compare the two.
 *
 * The means of keys are a selector's state, [page][kv_heads][head_dim] floats or bf16.  They are
 * computed again for every block that a chunk touches, summed in fp32 and rounded at most once.
 * All sums go in order of tokens and channels, so that the device has the reference's bits. */
#ifndef AR_MEANS_H
#define AR_MEANS_H

#include "base/both.h"
#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

size_t means_state_bytes(const struct attn_shape *s); /* for means in floats */

void means_update(const struct attn_batch *b, const bf16_t *k, float *mean);
enum ar_status means_update_enqueue(const struct attn_batch *b, const bf16_t *k, float *mean,
				    void *stream, struct ar_err *err);
void means_update_bf16(const struct attn_batch *b, const bf16_t *k, bf16_t *mean);
enum ar_status means_update_bf16_enqueue(const struct attn_batch *b, const bf16_t *k, bf16_t *mean,
					 void *stream, struct ar_err *err);

/* Mean of rows [lo, hi) of the batch, one head; out: [head_dim]. */
void means_of_rows(const struct attn_batch *b, int lo, int hi, int head, const bf16_t *q,
		   float *out);

/* The mean of block j of request r. */
AR_BOTH static inline const float *means_at(const struct attn_batch *b, int r, int j, int kv_head,
					    const float *mean)
{
	size_t page = (size_t)b->keys.page[b->keys.page0[r] + j];

	return mean +
	       (page * (size_t)b->shape.kv_heads + (size_t)kv_head) * (size_t)b->shape.head_dim;
}

AR_BOTH static inline float means_dot(const float *x, const float *y, int n)
{
	float sum = 0;

	for (int i = 0; i < n; i++)
#ifdef __CUDA_ARCH__
		sum = __fadd_rn(sum, __fmul_rn(x[i], y[i]));
#else
		sum += x[i] * y[i];
#endif
	return sum;
}

#ifdef __cplusplus
}
#endif
#endif
