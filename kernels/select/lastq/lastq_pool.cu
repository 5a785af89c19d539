/* SPDX-License-Identifier: Apache-2.0 */
/* The last queries' sums, added up by block. */
#include "config.h"
#include "kernels/select/lastq/lastq.h"

#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"

namespace {

constexpr int WARPS = 8;

/* grid (blocks, query head, request): a warp has a block, lanes add up every 32nd position. */
__global__ void lastq_pool(const struct attn_batch b, const struct lastq sums,
			   const struct lastq blocks)
{
	const int r = blockIdx.z, tok = b.shape.page_tok, lane = threadIdx.x % 32;
	const int rows = b.rows.row0[r + 1] - b.rows.row0[r], end = b.rows.pos0[r] + rows;
	const int j = (blockIdx.x * blockDim.x + threadIdx.x) / 32, stop = min(j * tok + tok, end);
	const size_t at = (size_t)r * b.shape.q_heads + blockIdx.y;
	const float *column = sums.column + at * sums.stride;
	const float *slash = sums.slash + at * sums.stride + end - 1;
	float x = 0, y = 0;

	if (!rows || j * tok >= end)
		return;
	for (int i = j * tok + lane; i < stop; i += 32) {
		x += column[i];
		y += slash[-i];
	}
	x = warp_sum(x);
	y = warp_sum(y);
	if (!lane) {
		blocks.column[at * blocks.stride + j] = x;
		blocks.slash[at * blocks.stride + j] = y;
	}
}

}

enum ar_status lastq_pool_enqueue(const struct attn_batch *b, const struct lastq *sums,
				  const struct lastq *blocks, void *stream, struct ar_err *err)
{
	const dim3 grid((b->keys.max_kv_blk + WARPS - 1) / WARPS, b->shape.q_heads, b->rows.n_req);
	enum ar_status st = AR_OK;

	lastq_pool<<<grid, WARPS * 32, 0, (cudaStream_t)stream>>>(*b, *sums, *blocks);
	CU_LAUNCHED();
out:
	return st;
}
