/* SPDX-License-Identifier: Apache-2.0 */
/* Masks whose rows depend only on positions: one thread per (query block, query head). */
#ifndef AR_ROWS_CUH
#define AR_ROWS_CUH

#include "kernels/prim/cuda.h"
#include "kernels/select/qblk.cuh"
#include "kernels/select/selector.h"

static constexpr int ROWS_THREADS = 64;

/* rule(b, query block, head, row) writes all words of a row. */
template <typename Rule>
static __global__ void __launch_bounds__(ROWS_THREADS)
mask_rows(struct attn_batch b, Rule rule, uint32_t *__restrict__ mask)
{
	const int i = blockIdx.x * ROWS_THREADS + threadIdx.x;

	if (i < b.rows.n_qblk * b.shape.q_heads)
		rule(b, qblk_at(b, i / b.shape.q_heads), i % b.shape.q_heads,
		     mask + (size_t)i * b.keys.mask_words);
}

template <typename Rule>
static enum ar_status mask_rows_enqueue(const struct attn_batch *b, const Rule &rule,
					uint32_t *mask, void *stream, struct ar_err *err)
{
	const int n = b->rows.n_qblk * b->shape.q_heads;
	enum ar_status st = AR_OK;

	if (!n)
		return AR_OK;
	mask_rows<<<(n + ROWS_THREADS - 1) / ROWS_THREADS, ROWS_THREADS, 0,
		    (cudaStream_t)stream>>>(*b, rule, mask);
	CU_LAUNCHED();
out:
	return st;
}

#endif
