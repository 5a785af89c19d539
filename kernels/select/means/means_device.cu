/* SPDX-License-Identifier: Apache-2.0 */
/* Means of key blocks on the device: a thread per two channels, tokens in order. */
#include "config.h"
#include "kernels/select/means/means.cuh"

#include <cuda_bf16.h>

#include "kernels/prim/cuda.h"
#include "kernels/select/qblk.cuh"

namespace {

__device__ __forceinline__ void put(float *mean, size_t pair, float2 x)
{
	((float2 *)mean)[pair] = x;
}

__device__ __forceinline__ void put(bf16_t *mean, size_t pair, float2 x)
{
	((__nv_bfloat162 *)mean)[pair] = __float22bfloat162_rn(x);
}

/* Grid (query block, KV head): the page that the query block covers, which are just the pages the
 * chunk touches. */
template <typename Mean>
__global__ void __launch_bounds__(128, 4)
means_keys(struct attn_batch b, const bf16_t *__restrict__ k, Mean *__restrict__ mean)
{
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int pairs = b.shape.head_dim / 2;
	const size_t at = (size_t)b.keys.page[b.keys.page0[s.req] + s.blk] * b.shape.kv_heads +
			  blockIdx.y;
	const __nv_bfloat162 *src = (const __nv_bfloat162 *)k + at * b.shape.page_tok * pairs +
				    threadIdx.x;
	float2 sum = make_float2(0, 0);

	for (int t = 0; t < s.hi; t += MEAN_BATCH) {
		__nv_bfloat162 x[MEAN_BATCH];

#pragma unroll
		for (int k = 0; k < MEAN_BATCH; k++)
			x[k] = src[min(t + k, s.hi - 1) * pairs];
#pragma unroll
		for (int k = 0; k < MEAN_BATCH; k++) {
			const float2 y = __bfloat1622float2(x[k]);

			sum.x += t + k < s.hi ? y.x : 0;
			sum.y += t + k < s.hi ? y.y : 0;
		}
	}
	put(mean, at * pairs + threadIdx.x, make_float2(sum.x / (float)s.hi, sum.y / (float)s.hi));
}

template <typename Mean>
enum ar_status enqueue(const struct attn_batch *b, const bf16_t *k, Mean *mean, void *stream,
		       struct ar_err *err)
{
	const dim3 grid(b->rows.n_qblk, b->shape.kv_heads);
	enum ar_status st = AR_OK;

	means_keys<<<grid, b->shape.head_dim / 2, 0, (cudaStream_t)stream>>>(*b, k, mean);
	CU_LAUNCHED();
out:
	return st;
}

}

enum ar_status means_update_enqueue(const struct attn_batch *b, const bf16_t *k, float *mean,
				    void *stream, struct ar_err *err)
{
	return enqueue(b, k, mean, stream, err);
}

enum ar_status means_update_bf16_enqueue(const struct attn_batch *b, const bf16_t *k, bf16_t *mean,
					 void *stream, struct ar_err *err)
{
	return enqueue(b, k, mean, stream, err);
}
