/* SPDX-License-Identifier: Apache-2.0 */
/* XAttention: shared by the reference, the CUDA file and the calibration. */
#ifndef AR_XATTENTION_H
#define AR_XATTENTION_H

#include <math.h>

#include "base/both.h"
#include "kernels/select/selector.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { XATTENTION_TAIL_DOC, XATTENTION_TAIL_CODE };

struct xattention {
	double threshold;
	char *table;	    /* file with thresholds, or NULL */
	int stride;	    /* index into 4, 8, 16 */
	int block;	    /* index into 64, 128 */
	int64_t last_dense; /* tokens */
	int tail;
};

struct xattention_self {
	int stride; /* tokens; divides a block */
	int64_t last_dense;
	int tail;
	int q_heads;
	float threshold[]; /* [n_layers][q_heads] */
};

/* Masses are integers, in units of 2^-26 of a reduced row's attention.  Sums are then exact in any
 * order.  The sum over a query block, of at most 32 reduced rows, fits into 32 bits. */
AR_BOTH static inline uint32_t xattention_units(float mass)
{
	return (uint32_t)rintf(mass * 67108864.0f);
}

/* The least sum of masses that reaches the threshold. */
AR_BOTH static inline uint32_t xattention_need(float threshold, uint32_t total)
{
	return (uint32_t)ceil((double)threshold * total);
}

/* Whether a chunk with left prompt tokens after it is in the dense tail. */
AR_BOTH static inline bool xattention_in_tail(int64_t last_dense, int tail, int left)
{
	return left < last_dense && (tail == XATTENTION_TAIL_DOC || left);
}

/* The reference's masses of request r under one head: [query block][max_kv_blk], 0 past the
 * diagonal. */
enum ar_status xattention_masses(const struct attn_batch *b, int stride, int r, int head,
				 const bf16_t *q, const bf16_t *k, uint32_t *mass,
				 struct ar_err *err);

selector_work_fn xattention_work_bytes;
selector_fn xattention_enqueue;

/* The same with the kernels of one kind, for sizes that they support.  n_qblk > 0. */
selector_fn xattention_sm80_enqueue, xattention_sm90_enqueue;

#ifdef __cplusplus
}
#endif
#endif
