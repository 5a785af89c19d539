/* SPDX-License-Identifier: Apache-2.0 */
/* pagebound on the device: three kernels, which keep the blocks that the reference keeps. */
#include "pagebound.h"

namespace {

/* A query block of the batch. */
struct place {
	int req, own;	/* request, and its block in the request */
	int lo, hi;	/* rows of the batch */
	int filled;	/* tokens of block own, up to the chunk's end */
};

__device__ struct place place_of(const struct attn_batch &b, int qblk)
{
	const int tok = b.shape.page_tok;
	int r = 0;

	while (qblk >= b.rows.qblk0[r + 1])
		r++;
	const int ctx = b.rows.pos0[r], end = ctx + b.rows.row0[r + 1] - b.rows.row0[r];
	const int own = ctx / tok + qblk - b.rows.qblk0[r], first = own * tok;

	return { r, own, b.rows.row0[r] + max(first - ctx, 0),
		 b.rows.row0[r] + min(first + tok, end) - ctx, min(end - first, tok) };
}

__device__ float f32(bf16_t x)
{
	return __uint_as_float((uint32_t)x << 16);
}

/* Grid (query block, KV head), a thread per channel: the block that the query block lies in. */
__global__ void pagebound_update(struct attn_batch b, const bf16_t *__restrict__ k,
				 bf16_t *__restrict__ state)
{
	const struct place at = place_of(b, blockIdx.x);
	const int dim = b.shape.head_dim;
	const size_t page = b.keys.page[b.keys.page0[at.req] + at.own];
	const bf16_t *from = k + (page * b.shape.kv_heads + blockIdx.y) * b.shape.page_tok * dim +
			     threadIdx.x;
	bf16_t *to = state + pagebound_at(&b.shape, page, blockIdx.y) + threadIdx.x;
	bf16_t min = from[0], max = from[0];

	for (int t = 1; t < at.filled; t++) {
		const bf16_t x = from[t * dim];

		min = f32(x) < f32(min) ? x : min;
		max = f32(x) > f32(max) ? x : max;
	}
	to[0] = min;
	to[dim] = max;
}

constexpr int THREADS = 128, ROWS = 16;

/* Grid (query block, query head, blocks / THREADS), a thread per block before the query block's
 * own.  A pass has ROWS rows in shared memory, so that bounds are loaded once for all of them. */
__global__ void __launch_bounds__(THREADS)
pagebound_score(struct attn_batch b, const bf16_t *__restrict__ q,
		const bf16_t *__restrict__ state, float *__restrict__ score)
{
	__shared__ float row[ROWS][256];
	const struct place at = place_of(b, blockIdx.x);
	const int dim = b.shape.head_dim, heads = b.shape.q_heads, head = blockIdx.y;
	const int j = blockIdx.z * THREADS + threadIdx.x;
	const bf16_t *min = state;
	float best = -INFINITY;

	if ((int)(blockIdx.z * THREADS) >= at.own)
		return;
	if (j < at.own)
		min += pagebound_at(&b.shape, b.keys.page[b.keys.page0[at.req] + j],
				    head / (heads / b.shape.kv_heads));
	for (int lo = at.lo; lo < at.hi; lo += ROWS) {
		float sum[ROWS] = { 0 };

		/* After the last row it comes again, which changes no maximum. */
		for (int i = threadIdx.x; i < ROWS * dim; i += THREADS)
			row[i / dim][i % dim] = f32(
				q[((size_t)::min(lo + i / dim, at.hi - 1) * heads + head) * dim +
				  i % dim]);
		__syncthreads();
		for (int d = 0; d < dim && j < at.own; d++) {
			const float a = f32(min[d]), c = f32(min[dim + d]);

#pragma unroll
			for (int i = 0; i < ROWS; i++)
				sum[i] = __fadd_rn(sum[i], fmaxf(row[i][d] * a, row[i][d] * c));
		}
		__syncthreads();
#pragma unroll
		for (int i = 0; i < ROWS; i++)
			best = fmaxf(best, sum[i]);
	}
	if (j < at.own)
		score[((size_t)blockIdx.x * heads + head) * b.keys.max_kv_blk + j] = best;
}

/* Grid (query block, query head), a warp per word of the mask in turn. */
__global__ void __launch_bounds__(THREADS)
pagebound_pick(struct attn_batch b, struct pagebound p, const float *__restrict__ score,
	       uint32_t *__restrict__ mask)
{
	const int own = place_of(b, blockIdx.x).own, words = b.keys.mask_words;
	const size_t at = (size_t)blockIdx.x * b.shape.q_heads + blockIdx.y;

	for (int j = threadIdx.x; j < words * 32; j += THREADS) {
		const bool keep = j <= own && pagebound_keeps(&p, score + at * b.keys.max_kv_blk,
							      own, j);
		const uint32_t bits = __ballot_sync(~0u, keep);

		if (j % 32 == 0)
			mask[at * words + j / 32] = bits;
	}
}

}

size_t pagebound_work_bytes(const void *, const struct attn_shape *s, const struct attn_limits *l)
{
	return (size_t)attn_max_qblk(l, s->page_tok) * s->q_heads * l->max_kv_blk * sizeof(float);
}

enum ar_status pagebound_enqueue(const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const int qblk = b->rows.n_qblk, heads = b->shape.q_heads;
	cudaStream_t stream = (cudaStream_t)call->stream;
	cudaError_t e;

	if (!qblk)
		return AR_OK;
	pagebound_update<<<dim3(qblk, b->shape.kv_heads), b->shape.head_dim, 0, stream>>>(
		*b, call->kv.k, (bf16_t *)call->state);
	pagebound_score<<<dim3(qblk, heads, (b->keys.max_kv_blk + THREADS - 1) / THREADS), THREADS,
			  0, stream>>>(*b, call->q, (const bf16_t *)call->state,
				       (float *)call->work);
	pagebound_pick<<<dim3(qblk, heads), THREADS, 0, stream>>>(
		*b, *(const struct pagebound *)self, (const float *)call->work, out->mask);
	e = cudaGetLastError();
	return e ? ar_fail(err, AR_CUDA, "pagebound: %s", cudaGetErrorString(e)) : AR_OK;
}
