/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The second stage of RocketKV on the device; the rule is in rocket.c.  Two kernels:
 *
 *   scores  bound by reading the bounds of pages.  All heads of a list take the same of a page's
 *           two values, so a warp selects by bits, then multiplies 16 pages by queries of 8 heads.
 *           Each thread block finds the heaviest channels itself: it ranks them by counting.
 *           Channels that are not among them have queries of 0.
 *   pick    a thread block per list: the softmax of each head, by equal shares of the warps; their
 *           mean; and by pick.cuh the largest.  Means are not negative, so their bits sort as they
 *           do.
 *
 * On an H200, with 64 requests of 2304 keys, 32 query and 8 KV heads of 128, pages of 4 and bounds
 * of 8 bits, us:
 *	a thread per page, byte by byte; heads one after the other	204.6 + 26.0
 *	now								 23.8 + 21.2
 *	now, two or three thread blocks of scores a list		 26.0, 27.5
 * To read these bounds, 75 MB, at the rate of a copy would take 18.  Dense decodes take 146.
 */
#include "config.h"
#include "kernels/select/rocket/rocket.h"

#include <cfloat>
#include <cmath>
#include <cuda_fp16.h>

#include "base/gpu.h"
#include "kernels/prim/cuda.h"
#include "kernels/select/pieces.cuh"

namespace {

constexpr int WARPS = 4, THREADS = WARPS * 32, MOST_HEADS = 16;
constexpr int WAVES = 2;	/* thread blocks of scores for each multiprocessor, at least */

/* Scratch of a request: scores of pages, [q_heads][n]; their means, [kv_heads][n]. */
size_t page_bytes(const struct attn_shape *s)
{
	return (size_t)(s->q_heads + s->kv_heads) * sizeof(float);
}

/* The operands of a list's scores.  q: the queries of its heads, 0 in channels that are not used.
 * large: all bits are set where a channel takes the largest value of a page, else none. */
template <int D, typename Elem> struct channels {
	__align__(16) bf16_t q[MOST_HEADS][D + 4];	/* + 4: rows share few banks */
	__align__(16) Elem large[D];
	float weight[D];
};

template <int D, typename Elem>
__device__ void find_channels(struct channels<D, Elem> &c, const bf16_t *__restrict__ q, int heads,
			      int64_t topr)
{
	for (int i = threadIdx.x; i < D; i += THREADS) {
		float sum = 0, weight = 0;

		for (int h = 0; h < MOST_HEADS; h++) {
			const bf16_t own = h < heads ? q[h * D + i] : 0;

			weight += fabsf(bf16_to_f32(own));
			sum += bf16_to_f32(own);
			c.q[h][i] = own;
		}
		c.weight[i] = weight;
		c.large[i] = sum > 0 ? (Elem)~0 : 0;
	}
	__syncthreads();
	for (int i = threadIdx.x; i < D && topr < D; i += THREADS) {
		int rank = 0;

		for (int k = 0; k < D; k++)
			rank += c.weight[k] > c.weight[i] || (c.weight[k] == c.weight[i] && k < i);
		for (int h = 0; h < heads && rank >= topr; h++)
			c.q[h][i] = 0;
	}
	__syncthreads();
}

/* Pair i of 16 bytes of bounds as bf16. */
template <typename Elem>
__device__ __forceinline__ uint32_t pair_of(const uint32_t (&word)[4], int i)
{
	if (sizeof(Elem) == 2)
		return word[i];
	/* e5m2 is the upper half of an fp16 */
	const uint32_t half = __byte_perm(word[i / 2], 0, i % 2 ? 0x3424 : 0x1404);
	const float2 x = __half22float2(*(const __half2 *)&half);

	return pack_bf16(x.x, x.y);
}

/* A lane's share of a page: 16 bytes in turn of its values. */
template <int LOADS> struct page {
	uint32_t word[LOADS][4];
};

template <int D, typename Elem, int LOADS>
__device__ __forceinline__ void load_page(struct page<LOADS> (&x)[2],
					  const void *__restrict__ state, size_t at, int t)
{
#pragma unroll
	for (int k = 0; k < 2; k++) {
		const uint4 *from = (const uint4 *)((const Elem *)state + at + k * D) + t;

#pragma unroll
		for (int c = 0; c < LOADS; c++)
			*(uint4 *)x[k].word[c] = __ldg(from + 4 * c);
	}
}

/* Grid (list, stretch of pages).  A warp takes 16 pages at a time.  Lane 4 g + t of it has channels
 * of pages g and g + 8, in an order of its own. */
template <int D, typename Elem>
__global__ void __launch_bounds__(THREADS, D > 128 ? 2 : 4)
rocket_scores(struct attn_batch b, struct bounds x, int64_t topr, float alpha,
	      const bf16_t *__restrict__ q, const void *__restrict__ state, size_t bytes,
	      void *work)
{
	constexpr int CHANNELS = 16 / sizeof(Elem), LOADS = D / 4 / CHANNELS;
	__shared__ struct channels<D, Elem> ch;
	const struct attn_shape &s = b.shape;
	const int r = blockIdx.x / s.kv_heads, kv = blockIdx.x % s.kv_heads;
	const int heads = s.q_heads / s.kv_heads, n = pieces_of(b.keys.len[r], x.tok);
	const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4, step = gridDim.y * WARPS;
	float *score = (float *)pieces_scratch(b, r, s.page_tok / x.tok, bytes, work) +
		       (size_t)kv * heads * n;
	const auto place = [&](int tile, int i) {
		return bounds_at(&x, &b, r, kv, min(tile * 16 + i * 8 + g, n - 1));
	};
	int tile = blockIdx.y * WARPS + threadIdx.x / 32;

	if ((int)blockIdx.y * WARPS * 16 >= n)
		return;
	size_t at[2] = { place(tile, 0), place(tile, 1) };

	find_channels<D>(ch, q + ((size_t)r * s.q_heads + kv * heads) * D, heads, topr);
	for (; tile * 16 < n; tile += step) {
		struct page<LOADS> k[2][2];	/* of two pages, the least and the largest */
		float sum[2][4] = {};

#pragma unroll
		for (int i = 0; i < 2; i++) {
			load_page<D, Elem>(k[i], state, at[i], t);
			at[i] = place(tile + step, i);
		}
#pragma unroll
		for (int c = 0; c < LOADS; c++) {
			const int first = (t + 4 * c) * CHANNELS;
			const uint4 bits = *(const uint4 *)&ch.large[first];
			const uint32_t large[4] = { bits.x, bits.y, bits.z, bits.w };

#pragma unroll
			for (int i = 0; i < 2; i++)
#pragma unroll
				for (int w = 0; w < 4; w++)
					k[i][0].word[c][w] = (k[i][1].word[c][w] & large[w]) |
							     (k[i][0].word[c][w] & ~large[w]);
#pragma unroll
			for (int i = 0; i < CHANNELS / 2; i += 2) {
				const uint32_t a[4] = { pair_of<Elem>(k[0][0].word[c], i),
							pair_of<Elem>(k[1][0].word[c], i),
							pair_of<Elem>(k[0][0].word[c], i + 1),
							pair_of<Elem>(k[1][0].word[c], i + 1) };

#pragma unroll
				for (int e = 0; e < 2; e++) {
					if (e * 8 >= heads)
						break;
					const uint2 own =
						*(const uint2 *)&ch.q[e * 8 + g][first + i * 2];

					mma_m16n8k16(sum[e], a, own.x, own.y);
				}
			}
		}
#pragma unroll
		for (int i = 0; i < 8; i++) {
			const int h = i / 4 * 8 + t * 2 + i % 2, j = tile * 16 + i / 2 % 2 * 8 + g;
			const float own = sum[i / 4][i % 4];

			if (h < heads && j < n)
				score[(size_t)h * n + j] = isnan(own) ? -INFINITY : alpha * own;
		}
	}
}

/* The softmax of each head: its largest score, and the sum of exponentials. */
struct softmax {
	float part[2][PICK_WARPS], max[MOST_HEADS], sum[MOST_HEADS];
};

/* Find it for heads of n scores each, by equal shares of the warps. */
__device__ void find_softmax(struct softmax &x, const float *__restrict__ score, int heads, int n)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, share = PICK_WARPS / heads;
	const int h = warp / share, first = warp % share * 32 + lane;
	const float *own = score + (size_t)h * n;
	float max = -FLT_MAX, sum = 0;

	for (int j = first; h < heads && j < n; j += share * 32)
		max = fmaxf(max, own[j]);
	max = warp_max(max);
	if (!lane)
		x.part[0][warp] = max;
	__syncthreads();
	for (int w = 0; w < share; w++)
		max = fmaxf(max, x.part[0][min(h * share + w, PICK_WARPS - 1)]);
	for (int j = first; h < heads && j < n; j += share * 32)
		sum += expf(own[j] - max);
	sum = warp_sum(sum);
	if (!lane)
		x.part[1][warp] = sum;
	__syncthreads();
	if (h >= heads || warp % share || lane)
		return;
	for (int w = 1; w < share; w++)
		sum += x.part[1][warp + w];
	x.max[h] = max;
	x.sum[h] = fmaxf(sum, FLT_MIN);
}

__global__ void __launch_bounds__(PICK_THREADS)
rocket_pick(struct attn_batch b, int64_t most, size_t bytes, void *work, struct piece_lists l)
{
	__shared__ struct pick_smem sm;
	__shared__ struct softmax soft;
	const struct attn_shape &s = b.shape;
	const int r = blockIdx.x / s.kv_heads, kv = blockIdx.x % s.kv_heads;
	const int n = pieces_of(b.keys.len[r], l.tok);
	const int kept = pieces_kept(&l, b.keys.len[r], most);
	float *all = (float *)pieces_scratch(b, r, s.page_tok / l.tok, bytes, work);
	const float *score = all + (size_t)kv * l.heads * n;
	float *mean = all + (size_t)(s.q_heads + kv) * n;

	find_softmax(soft, score, l.heads, n);
	__syncthreads();
	for (int j = threadIdx.x; j < n; j += PICK_THREADS) {
		float sum = 0;

		for (int h = 0; h < l.heads; h++)
			sum += expf(score[(size_t)h * n + j] - soft.max[h]) / soft.sum[h];
		mean[j] = sum;
	}
	__syncthreads();
	const auto key = [=](int j) { return __float_as_uint(mean[j]); };
	const struct pick p = pick_find<PICK_COUNT>(sm, n, (uint32_t)kept, key);

	__syncthreads();
	pieces_list(sm, p, l, blockIdx.x, n, key);
}

template <int D, typename Elem>
void launch_scores(const dim3 &grid, const struct attn_call *call, const struct rocket *p)
{
	rocket_scores<D, Elem><<<grid, THREADS, 0, (cudaStream_t)call->stream>>>
		(*call->b, rocket_bounds(p), p->topr, rocket_alpha(p, D), call->q, call->state,
		 page_bytes(&call->b->shape), call->work);
}

template <int D>
void launch_dim(const dim3 &grid, const struct attn_call *call, const struct rocket *p)
{
	if (rocket_bounds(p).type == BOUNDS_E5M2)
		launch_scores<D, uint8_t>(grid, call, p);
	else
		launch_scores<D, uint16_t>(grid, call, p);
}

enum ar_status enqueue_scores(const struct attn_call *call, const struct rocket *p,
			      struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const int lists = b->rows.n_req * b->shape.kv_heads;
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);
	dim3 grid;

	if (st)
		return st;
	grid = dim3(lists, (WAVES * gpu->n_sm + lists - 1) / lists);
	pieces_of_dim(b->shape.head_dim, [&](auto dim) { launch_dim<dim>(grid, call, p); });
	CU_LAUNCHED();
out:
	return st;
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
	const cudaStream_t stream = (cudaStream_t)call->stream;
	enum ar_status st = AR_OK;

	if (!b->rows.n_req)
		return AR_OK;
	st = enqueue_scores(call, p, err);
	if (st)
		return st;
	rocket_pick<<<b->rows.n_req * s->kv_heads, PICK_THREADS, 0, stream>>>
		(*b, rocket_kept(p), page_bytes(s), call->work, out->pieces);
	CU_LAUNCHED();
out:
	return st;
}
