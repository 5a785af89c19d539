/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second stage of RocketKV on the device; the rule is in rocket.c.  Two kernels:
 *
 *   scores  grid (stretch of pages, KV head, request), a thread per page, four query heads at a
 *           time.  Each thread block finds the heaviest channels itself: it ranks them by counting.
 *           Channels that are not among them have queries of 0.
 *   pick    a thread block per list: the softmax of each head, their mean, and by pick.cuh the
 *           largest.  Means are not negative, so their bits sort as they do.
 */
#include "config.h"
#include "kernels/select/rocket/rocket.h"

#include <cfloat>
#include <cmath>

#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.cuh"

namespace {

constexpr int THREADS = 128, STRETCHES = 32, MOST_DIM = 256, MOST_HEADS = 16, HEADS = 4;

/* Scratch of a request: scores of pages, [q_heads][n]; their means, [kv_heads][n]. */
size_t page_bytes(const struct attn_shape *s)
{
	return (size_t)(s->q_heads + s->kv_heads) * sizeof(float);
}

struct channels {
	float q[MOST_HEADS][MOST_DIM];
	float weight[MOST_DIM];
	bool large[MOST_DIM];
};

/* Load the queries of a group, 0 in the channels that are not used. */
__device__ void find_channels(struct channels &c, const bf16_t *__restrict__ q, int heads, int dim,
			      int64_t topr)
{
	for (int i = threadIdx.x; i < dim; i += THREADS) {
		float sum = 0, weight = 0;

		for (int h = 0; h < heads; h++) {
			const float x = bf16_to_f32(q[h * dim + i]);

			weight += fabsf(x);
			sum += x;
			c.q[h][i] = x;
		}
		c.weight[i] = weight;
		c.large[i] = sum > 0;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < dim; i += THREADS) {
		int rank = 0;

		for (int k = 0; k < dim; k++)
			rank += c.weight[k] > c.weight[i] || (c.weight[k] == c.weight[i] && k < i);
		for (int h = 0; h < heads && rank >= topr; h++)
			c.q[h][i] = 0;
	}
	__syncthreads();
}

__global__ void __launch_bounds__(THREADS)
rocket_scores(struct attn_batch b, struct bounds x, int64_t topr, float alpha,
	      const bf16_t *__restrict__ q, const void *__restrict__ state, size_t bytes,
	      void *work)
{
	__shared__ struct channels c;
	const struct attn_shape &s = b.shape;
	const int r = blockIdx.z, kv = blockIdx.y, heads = s.q_heads / s.kv_heads, dim = s.head_dim;
	const int n = pieces_of(b.keys.len[r], x.tok);
	float *score = (float *)pieces_scratch(b, r, s.page_tok / x.tok, bytes, work);

	if ((int)blockIdx.x * THREADS >= n)
		return;
	find_channels(c, q + ((size_t)r * s.q_heads + kv * heads) * dim, heads, dim, topr);
	for (int j = blockIdx.x * THREADS + threadIdx.x; j < n; j += STRETCHES * THREADS) {
		const size_t at = bounds_at(&x, &b, r, kv, j);

		for (int h = 0; h < heads; h += HEADS) {
			float dot[HEADS] = { 0 };

#pragma unroll 8
			for (int d = 0; d < dim; d++) {
				const float k = bounds_get(&x, state,
							   at + d + (c.large[d] ? dim : 0));

#pragma unroll
				for (int i = 0; i < HEADS; i++)
					dot[i] += c.q[min(h + i, heads - 1)][d] * k;
			}
#pragma unroll
			for (int i = 0; i < HEADS; i++)
				if (h + i < heads)
					score[(size_t)(kv * heads + h + i) * n + j] =
						isnan(dot[i]) ? -INFINITY : alpha * dot[i];
		}
	}
}

/* The join of all threads' values. */
template <typename Join>
__device__ __forceinline__ float all_threads(float x, float *part, const Join &join)
{
#pragma unroll
	for (int i = 16; i; i /= 2)
		x = join(x, __shfl_xor_sync(~0u, x, i));
	__syncthreads();		/* the last use of part is over */
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = x;
	__syncthreads();
	x = part[0];
	for (int w = 1; w < PICK_WARPS; w++)
		x = join(x, part[w]);
	return x;
}

__global__ void __launch_bounds__(PICK_THREADS)
rocket_pick(struct attn_batch b, int64_t most, size_t bytes, void *work, struct piece_lists l)
{
	__shared__ struct pick_smem sm;
	__shared__ float part[PICK_WARPS];
	const struct attn_shape &s = b.shape;
	const int r = blockIdx.x / s.kv_heads, kv = blockIdx.x % s.kv_heads;
	const int n = pieces_of(b.keys.len[r], l.tok);
	const int kept = pieces_kept(&l, b.keys.len[r], most);
	float *score = (float *)pieces_scratch(b, r, s.page_tok / l.tok, bytes, work);
	float *mean = score + (size_t)(s.q_heads + kv) * n;

	for (int h = 0; h < l.heads; h++) {
		const float *own = score + (size_t)(kv * l.heads + h) * n;
		float max = -FLT_MAX, sum = 0;

		for (int j = threadIdx.x; j < n; j += PICK_THREADS)
			max = fmaxf(max, own[j]);
		max = all_threads(max, part, [](float x, float y) { return fmaxf(x, y); });
		for (int j = threadIdx.x; j < n; j += PICK_THREADS)
			sum += expf(own[j] - max);
		sum = all_threads(sum, part, [](float x, float y) { return x + y; });
		for (int j = threadIdx.x; j < n; j += PICK_THREADS)
			mean[j] = (h ? mean[j] : 0) + expf(own[j] - max) / fmaxf(sum, FLT_MIN);
	}
	__syncthreads();
	const auto key = [=](int j) { return __float_as_uint(mean[j]); };
	const struct pick p = pick_find<PICK_COUNT>(sm, n, (uint32_t)kept, key);

	__syncthreads();
	pieces_list(sm, p, l, blockIdx.x, n, key);
}

}

enum ar_status rocket_append(const struct attn_call *call, const void *self, struct ar_err *err)
{
	const struct bounds x = rocket_bounds((const struct rocket *)self);

	return bounds_append_enqueue(&x, call, err);
}

size_t rocket_work_bytes(const void *self, const struct attn_shape *s, const struct attn_limits *l)
{
	const int tok = (int)((const struct rocket *)self)->page;

	return pieces_scratch_bytes(l, s->page_tok / tok, page_bytes(s));
}

enum ar_status rocket_enqueue(const struct attn_call *call, const void *self,
			      const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	const struct rocket *p = (const struct rocket *)self;
	const dim3 grid(STRETCHES, s->kv_heads, b->rows.n_req);
	const cudaStream_t stream = (cudaStream_t)call->stream;
	enum ar_status st = AR_OK;

	if (!b->rows.n_req)
		return AR_OK;
	rocket_scores<<<grid, THREADS, 0, stream>>>(*b, rocket_bounds(p), p->topr,
						    rocket_alpha(p, s->head_dim), call->q,
						    call->state, page_bytes(s), call->work);
	CU_LAUNCHED();
	rocket_pick<<<b->rows.n_req * s->kv_heads, PICK_THREADS, 0, stream>>>
		(*b, rocket_kept(p), page_bytes(s), call->work, out->pieces);
	CU_LAUNCHED();
out:
	return st;
}
