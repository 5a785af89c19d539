/* Means of key blocks on the device: a thread per channel, tokens in order. */
#include "config.h"
#include "kernels/selectors/means.cuh"

#include "kernels/cuda.h"
#include "kernels/qblk.cuh"

static __global__ void __launch_bounds__(256)
means_keys(struct attn_batch b, const bf16_t *__restrict__ k, float *__restrict__ mean)
{
	const struct qblk s = qblk_at(b, blockIdx.x);
	const int dim = b.shape.head_dim;
	const size_t at = (size_t)b.page[b.page0[s.req] + s.blk] * b.shape.kv_heads + blockIdx.y;
	const bf16_t *src = k + at * b.shape.page_tok * dim + threadIdx.x;
	float sum = 0;

#pragma unroll 16
	for (int t = 0; t < s.hi; t++)
		sum += bf16_value(src[t * dim]);
	mean[at * dim + threadIdx.x] = sum / (float)s.hi;
}

enum ar_status means_update_enqueue(const struct attn_batch *b, const bf16_t *k, float *mean,
				    void *stream, struct ar_err *err)
{
	const dim3 grid(b->n_qblk, b->shape.kv_heads);
	enum ar_status st = AR_OK;

	means_keys<<<grid, b->shape.head_dim, 0, (cudaStream_t)stream>>>(*b, k, mean);
	CU_LAUNCHED();
out:
	return st;
}
