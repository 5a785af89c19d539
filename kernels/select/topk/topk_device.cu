/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The tokens with the largest logits on the device; the rule is in topk.c.  Two kernels:
 *
 *   scores  grid (stretch of keys, KV head, request), a thread per key.  Products of bf16 are exact
 *           in fp32 and summed in order, so the sums are the reference's.
 *   pick    a thread block per list.  By pick.cuh it finds the tokens of one head after the other,
 *           collects the heads of each token, then writes the tokens that any head keeps.
 *
 * A bound to compare with need not be fast.  On an H200, with 8 requests of 128K, 32 query and 8
 * KV heads of 128, and 256 tokens kept, scores take 3750 us and pick 558; dense decodes take 959.
 * Keys are read once for each of four heads, a row of 256 bytes by each lane.  A layer of `tidal`
 * or of `reuse` that chooses nothing takes 18: 1.3 to copy the lists, 16.4 to attend, at .48 of the
 * rate of a copy, as the 33.5 MB are over before the first waits are.
 */
#include "config.h"
#include "kernels/select/topk/topk.h"

#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int THREADS = 128, STRETCHES = 64, MOST_DIM = 256;

/* Scratch of a request of n keys: key: of pick.cuh, [q_heads][n]; head: bits of heads,
 * [kv_heads][n]. */
struct room {
	uint32_t *key;
	uint16_t *head;
};

__host__ __device__ size_t token_bytes(const struct attn_shape &s)
{
	return s.q_heads * sizeof(uint32_t) + s.kv_heads * sizeof(uint16_t);
}

__device__ __forceinline__ struct room room_of(const struct attn_batch &b, int r, void *work)
{
	uint32_t *key = (uint32_t *)pieces_scratch(b, r, b.shape.page_tok,
						   token_bytes(b.shape), work);

	return { key, (uint16_t *)(key + (size_t)b.keys.len[r] * b.shape.q_heads) };
}

__device__ __forceinline__ float widen(uint32_t pair, int odd)
{
	return __uint_as_float(odd ? pair & 0xffff0000 : pair << 16);
}

/* q . k, in order of channels. */
__device__ __forceinline__ float dot(const float *q, const uint4 *k, int n)
{
	float sum = 0;

	for (int d = 0; d < n; d += 8) {
		const uint4 x = k[d / 8];
		const uint32_t pair[4] = { x.x, x.y, x.z, x.w };

#pragma unroll
		for (int i = 0; i < 8; i++)
			sum += q[d + i] * widen(pair[i / 2], i % 2);
	}
	return isnan(sum) ? -INFINITY : sum;
}

__global__ void __launch_bounds__(THREADS)
topk_scores(struct attn_batch b, const bf16_t *__restrict__ q, const bf16_t *__restrict__ k,
	    void *work)
{
	__shared__ float row[MOST_DIM];
	const struct attn_shape &s = b.shape;
	const int r = blockIdx.z, kv = blockIdx.y, group = s.q_heads / s.kv_heads;
	const int n = b.keys.len[r];
	uint32_t *key = room_of(b, r, work).key;

	for (int h = kv * group; h < (kv + 1) * group; h++) {
		__syncthreads();
		for (int d = threadIdx.x; d < s.head_dim; d += THREADS)
			row[d] = widen(q[((size_t)r * s.q_heads + h) * s.head_dim + d], 0);
		__syncthreads();
		for (int t = blockIdx.x * THREADS + threadIdx.x; t < n; t += STRETCHES * THREADS)
			key[(size_t)h * n + t] = top_key(
				dot(row, (const uint4 *)(k + pieces_key(&b, r, kv, t)),
				    s.head_dim));
	}
}

__global__ void __launch_bounds__(PICK_THREADS)
topk_pick(struct attn_batch b, int64_t budget, void *work, struct piece_lists l)
{
	__shared__ struct pick_smem sm;
	const struct attn_shape &s = b.shape;
	const int r = blockIdx.x / s.kv_heads, kv = blockIdx.x % s.kv_heads, n = b.keys.len[r];
	const struct room room = room_of(b, r, work);
	uint16_t *head = room.head + (size_t)kv * n;

	for (int t = threadIdx.x; t < n; t += PICK_THREADS)
		head[t] = 0;
	for (int i = 0; i < l.heads; i++) {
		const uint32_t *own = room.key + (size_t)(kv * l.heads + i) * n;
		const auto key = [=](int t) { return own[t]; };
		const struct pick p =
			pick_find<PICK_COUNT>(sm, n, (uint32_t)pieces_kept(&l, n, budget), key);

		__syncthreads();
		pick_walk(sm, p, n, key, [=](int t, bool taken, uint32_t) {
			if (taken)
				head[t] |= (uint16_t)(1 << i);
		});
	}
	__syncthreads();
	pieces_list(sm, { 0, 0, 0 }, l, blockIdx.x, n, [=](int t) { return (uint32_t)head[t]; });
}

}

size_t topk_work_bytes(const void *, const struct attn_shape *s, const struct attn_limits *l)
{
	return pieces_scratch_bytes(l, s->page_tok, token_bytes(*s));
}

enum ar_status topk_enqueue(const struct attn_call *call, const void *self,
			    const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	const dim3 grid(STRETCHES, s->kv_heads, b->rows.n_req);
	const cudaStream_t stream = (cudaStream_t)call->stream;
	enum ar_status st = AR_OK;

	if (!b->rows.n_req)
		return AR_OK;
	topk_scores<<<grid, THREADS, 0, stream>>>(*b, call->q, call->kv.k, call->work);
	CU_LAUNCHED();
	topk_pick<<<b->rows.n_req * s->kv_heads, PICK_THREADS, 0, stream>>>
		(*b, ((const struct topk *)self)->budget, call->work, out->pieces);
	CU_LAUNCHED();
out:
	return st;
}
