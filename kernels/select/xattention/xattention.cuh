/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts that XAttention's score kernels share.
 *
 * A page of one KV head, as it lies in memory, is a matrix.  It has page_tok / S columns of S *
 * head_dim elements.  A reduced row has as many elements, its tokens in reverse.  So the sum along
 * antidiagonals is the plain product of the two.  Rows of all query heads of a KV head stand
 * together.  K is read once for each tile of rows.  The result is log2(sum of 2^z) for each row and
 * block of keys: [query block][head][reduced row][max_kv_blk].
 */
#ifndef AR_XATTENTION_CUH
#define AR_XATTENTION_CUH

#include <cmath>
#include <cuda_runtime.h>

#include "kernels/prim/device.cuh"
#include "kernels/select/tiles.cuh"
#include "kernels/select/xattention/xattention.h"

struct xattention_job {
	struct attn_batch b;
	const bf16_t *q, *k;
	bf16_t *row;		// [request][head][reduced row][S * head_dim]
	bf16_t *last;		// [request][kv_heads][page_tok][head_dim], keys of the last block
	float *lse;
	float scale;		// of a product, for exp2
	int run;		// column tiles of a thread block
	int stride, tail;
	int64_t last_dense;
};

constexpr int XATTENTION_DEPTH = 64;	// elements of a step

/* Fill lse and set j->run: by mma.sync for any device from 8.0 on, and by wgmma and TMA. */
enum ar_status xattention_score_sm80(struct xattention_job *j, cudaStream_t stream,
				     struct ar_err *err);
enum ar_status xattention_score_sm90(struct xattention_job *j, int n_sm, cudaStream_t stream,
				     struct ar_err *err);

/* A bound of the reduced rows of a head in all requests. */
static inline size_t xattention_rows(int n_row, int n_req, int stride)
{
	return (size_t)n_row / stride + 2 * (size_t)n_req;
}

struct xattention_row {
	int a;		// reduced row, counted from the prompt's start
	int head;	// -1: the tile has no such row
};

/* Reduced rows [first, end) of request r. */
static __device__ __forceinline__ void xattention_reduced(const struct xattention_job &j, int r,
							  int &first, int &end)
{
	const int ctx = j.b.rows.pos0[r], n = j.b.rows.row0[r + 1] - j.b.rows.row0[r];

	first = ctx / j.stride;
	end = n && !xattention_in_tail(j.last_dense, j.tail, j.b.rows.left[r]) ?
		(ctx + n + j.stride - 1) / j.stride : first;
}

// PER, of the templates below: reduced columns of a block.

/* log2 of the sum of 2^(scale x), over the N values of LANES lanes, a power of two.  Lane l shares
 * the sum with the lanes of the same l / LANES. */
template <int N, int LANES>
static __device__ __forceinline__ float xattention_log_sum(const float (&x)[N], float scale)
{
	float top = x[0], sum = 0;

#pragma unroll
	for (int i = 1; i < N; i++)
		top = fmaxf(top, x[i]);
#pragma unroll
	for (int d = 1; d < LANES; d *= 2)
		top = fmaxf(top, __shfl_xor_sync(~0u, top, d));
#pragma unroll
	for (int i = 0; i < N; i++)
		sum += ex2((x[i] - top) * scale);
#pragma unroll
	for (int d = 1; d < LANES; d *= 2)
		sum += __shfl_xor_sync(~0u, sum, d);
	return top * scale + __log2f(sum);
}

/* Store one row's sums over the 64 columns from col on, in blocks of PER columns.  x[n]: this
 * lane's two columns of each eight. */
template <int PER>
static __device__ __forceinline__ void xattention_store(const float (&x)[8][2],
							const struct xattention_job &j, int req,
							const struct xattention_row &row, int col)
{
	const int lane = threadIdx.x % 32, heads = j.b.shape.q_heads, first = col / PER;
	const int blk = row.a / PER, tok = j.b.shape.page_tok;
	const int qblk = j.b.rows.qblk0[req] + blk - j.b.rows.pos0[req] / tok;
	float *const out = j.lse + (((size_t)qblk * heads + row.head) * PER + row.a % PER) *
				   j.b.keys.max_kv_blk;

	if (PER == 4) {		// two blocks side by side in the four lanes
#pragma unroll
		for (int n = 0; n < 8; n++) {
			const float sum = xattention_log_sum<2, 2>(x[n], j.scale);
			const int at = first + 2 * n + lane / 2 % 2;

			if (lane % 2 == 0 && row.head >= 0 && at <= blk)
				out[at] = sum;
		}
		return;
	}
	constexpr int TILES = PER < 8 ? 1 : PER / 8;

#pragma unroll
	for (int i = 0; i < 8 / TILES; i++) {
		float y[2 * TILES];

#pragma unroll
		for (int n = 0; n < TILES; n++) {
			y[2 * n] = x[i * TILES + n][0];
			y[2 * n + 1] = x[i * TILES + n][1];
		}
		const float sum = xattention_log_sum<2 * TILES, 4>(y, j.scale);

		if (lane % 4 == i % 4 && row.head >= 0 && first + i <= blk)
			out[first + i] = sum;
	}
}

#endif
