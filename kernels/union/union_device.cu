/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Unions and block lists on the device.
 *
 *   union   grid (head group, request), 8 warps: a lane takes a word of the table, a warp every
 *           eighth mask row of the group; the eight partial words meet in shared memory.
 *   lists   one warp per mask row: bit j of a word is lane j's, and the number of set bits
 *           below it is its place in the list, so the stores are contiguous.
 */
#include "config.h"
#include "kernels/union/union.h"

#include "kernels/prim/cuda.h"

static constexpr int WARPS = 8;

/* Bits [0, n) of a word that begins at bit first. */
static __device__ __forceinline__ uint32_t bits_below(int n, int first)
{
	return n <= first ? 0 : n - first >= 32 ? ~0u : (1u << (n - first)) - 1;
}

static __global__ void __launch_bounds__(WARPS * 32)
union_or(struct attn_batch b, int heads, const uint32_t *__restrict__ mask,
	 uint32_t *__restrict__ table)
{
	__shared__ uint32_t part[WARPS][32];
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, r = blockIdx.y;
	const int group = b.shape.q_heads / b.shape.kv_heads, per_kv = (group + heads - 1) / heads;
	const int h0 = blockIdx.x % per_kv * heads, n_head = min(heads, group - h0);
	const int head = blockIdx.x / per_kv * group + h0;
	const int n_row = attn_body(&b, r) * n_head;
	const int past = b.rows.pos0[r] / b.shape.page_tok;
	const int end = (b.rows.pos0[r] + b.rows.row0[r + 1] - b.rows.row0[r] +
			 b.shape.page_tok - 1) /
			b.shape.page_tok;

	for (int w0 = 0; w0 < b.keys.mask_words; w0 += 32) {
		const int w = w0 + lane;
		uint32_t x = 0;

		if (w < b.keys.mask_words) {
#pragma unroll 8
			for (int i = warp; i < n_row; i += WARPS) {
				size_t row = (size_t)(b.rows.qblk0[r] + i / n_head) *
					     b.shape.q_heads +
					     head + i % n_head;

				x |= mask[row * b.keys.mask_words + w];
			}
		}
		part[warp][lane] = x;
		__syncthreads();
		if (warp == 0 && w < b.keys.mask_words) {
			const uint32_t before = bits_below(past, w * 32);

			for (int i = 1; i < WARPS; i++)
				x |= part[i][lane];
			x = (x & before) | (bits_below(end, w * 32) & ~before);
			table[((size_t)r * gridDim.x + blockIdx.x) * b.keys.mask_words + w] = x;
		}
		__syncthreads();
	}
}

static __global__ void __launch_bounds__(WARPS * 32)
lists_fill(const uint32_t *__restrict__ mask, int n_rows, int words, struct block_lists lists)
{
	const int lane = threadIdx.x % 32, l = blockIdx.x * WARPS + threadIdx.x / 32;

	if (l >= n_rows)
		return;
	uint16_t *block = lists.block + (size_t)l * lists.stride;
	int n = 0;

	for (int w0 = 0; w0 < words; w0 += 32) {
		const uint32_t mine = w0 + lane < words ? mask[(size_t)l * words + w0 + lane] : 0;

		for (int w = 0; w < min(32, words - w0); w++) {
			const uint32_t word = __shfl_sync(~0u, mine, w);
			const int below = __popc(word & ((1u << lane) - 1));

			if (word >> lane & 1)
				block[n + below] = (uint16_t)((w0 + w) * 32 + lane);
			n += __popc(word);
		}
	}
	if (lane == 0)
		lists.n[l] = n;
}

enum ar_status union_enqueue(const struct attn_batch *b, int heads, const uint32_t *mask,
			     uint32_t *table, void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!b->rows.n_req)
		return AR_OK;
	union_or<<<dim3(union_groups(heads, &b->shape), b->rows.n_req), WARPS * 32, 0,
		   (cudaStream_t)stream>>>
		(*b, heads, mask, table);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status lists_enqueue(const uint32_t *mask, int n_rows, int words, struct block_lists *lists,
			     void *stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (!n_rows)
		return AR_OK;
	lists_fill<<<(n_rows + WARPS - 1) / WARPS, WARPS * 32, 0, (cudaStream_t)stream>>>
		(mask, n_rows, words, *lists);
	CU_LAUNCHED();
out:
	return st;
}
