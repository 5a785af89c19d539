/* SPDX-License-Identifier: Apache-2.0 */
/* Bounds of pieces on the device: a thread per two channels of a piece, tokens in order. */
#include "config.h"
#include "kernels/select/bounds/bounds.h"

#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.h"
#include "kernels/select/qblk.cuh"

namespace {

constexpr int THREADS = 128, BATCH = 8;

__device__ __forceinline__ bool above(bf16_t x, bf16_t y)
{
	return bf16_to_f32(x) > bf16_to_f32(y);
}

/* Grid (query block, KV head): the pieces of the query block's page that have rows of the chunk. */
__global__ void __launch_bounds__(THREADS)
bounds_keys(struct attn_batch b, struct bounds x, const bf16_t *__restrict__ k,
	    void *__restrict__ state)
{
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int dim = b.shape.head_dim, pairs = dim / 2, per_page = b.shape.page_tok / x.tok;
	const int first = s.lo / x.tok, n = (s.hi - 1) / x.tok + 1 - first;
	const bf16_t *page = k + pieces_key(&b, s.req, blockIdx.y, s.blk * b.shape.page_tok);

	for (int i = threadIdx.x; i < n * pairs; i += THREADS) {
		const int piece = first + i / pairs, d = i % pairs * 2;
		const int keys = min(x.tok, s.hi - piece * x.tok);
		const uint32_t *from = (const uint32_t *)(page + (size_t)piece * x.tok * dim + d);
		const size_t at = bounds_at(&x, &b, s.req, blockIdx.y,
					    s.blk * per_page + piece) + d;
		bf16_t least[2], most[2];

		for (int t = 0; t < keys; t += BATCH) {
			uint32_t pair[BATCH];

#pragma unroll
			for (int j = 0; j < BATCH; j++)
				pair[j] = from[(size_t)min(t + j, keys - 1) * pairs];
#pragma unroll
			for (int j = 0; j < 2 * BATCH; j++) {
				const bf16_t v = (bf16_t)(pair[j / 2] >> j % 2 * 16);
				const bool begin = !t && j < 2;

				least[j % 2] = begin || above(least[j % 2], v) ? v : least[j % 2];
				most[j % 2] = begin || above(v, most[j % 2]) ? v : most[j % 2];
			}
		}
		for (int j = 0; j < 2; j++)
			bounds_set(&x, state, at + j, dim, least[j], most[j]);
	}
}

}

enum ar_status bounds_append_enqueue(const struct bounds *x, const struct attn_batch *b,
				     const bf16_t *k, void *state, void *stream,
				     struct ar_err *err)
{
	const dim3 grid(b->rows.n_qblk, b->shape.kv_heads);
	enum ar_status st = AR_OK;

	if (!b->rows.n_qblk)
		return AR_OK;
	bounds_keys<<<grid, THREADS, 0, (cudaStream_t)stream>>>(*b, *x, k, state);
	CU_LAUNCHED();
out:
	return st;
}
