/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Parts that QUOKA's score kernels share.  A warp holds 16 M keys in registers, M 1 or 2, as the
 * rows of mma's a operand.  It scales them to unit length there, and qbar streams past.  Hence a
 * token's maximum stays in the registers of four lanes until the end.
 *
 * A key's elements go to the mma's k index in the order in which 16-byte loads bring them; qbar is
 * stored in that order.
 */
#ifndef AR_QUOKA_CUH
#define AR_QUOKA_CUH

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "kernels/prim/device.cuh"
#include "kernels/select/quoka/quoka.h"

constexpr int QUOKA_THREADS = 256;
template <int M> constexpr int QUOKA_KEYS = M * QUOKA_THREADS / 2;	// of score's thread block

struct quoka_room {
	uint16_t *score;	// rows as of token lists
	int32_t *high, *low;	// [slice][KV head][BINS]
	float *sum;		// [query block][query head][head_dim]
	float *scale;		// [row][query head], to unit length
	uint16_t *cosine;	// [query head][cosine_stride]: the larger, the smaller the cosine
	int32_t *slot;		// [query head][row]: rows of the chunk
	bf16_t *qbar;		// [KV head][row][head_dim]
};

struct quoka_job {
	struct attn_batch b;
	struct quoka p;
	const bf16_t *q, *k;
	struct token_lists out;
	struct quoka_room w;
};

/* Grid of score: (keys of a thread block, KV head, request). */
template <int M>
static inline dim3 quoka_score_grid(const struct quoka_job &j)
{
	const int tokens = j.b.keys.max_kv_blk * j.b.shape.page_tok;

	return dim3((tokens + QUOKA_KEYS<M> - 1) / QUOKA_KEYS<M>, j.b.shape.kv_heads,
		    j.b.rows.n_req);
}

/* Score from qbar, by mma.sync for any device from 8.0 on, and by wgmma. */
typedef enum ar_status quoka_score_fn(const struct quoka_job *j, cudaStream_t stream,
				      struct ar_err *err);
quoka_score_fn quoka_score_sm80, quoka_score_sm90;

static __device__ __forceinline__ float quoka_low_half(uint32_t x)
{
	return __uint_as_float(x << 16);
}

static __device__ __forceinline__ float quoka_high_half(uint32_t x)
{
	return __uint_as_float(x & 0xffff0000);
}

static __device__ __forceinline__ float quoka_rounded(float x)
{
	return __bfloat162float(__float2bfloat16_rn(x));
}

static __device__ __forceinline__ uint16_t quoka_order_of(float x)
{
	return quoka_order(__bfloat16_as_ushort(__float2bfloat16_rn(x)));
}

/* The factor that makes a vector with this sum of squares a unit vector. */
static __device__ __forceinline__ float quoka_unit_scale(float squares)
{
	return 1 / fmaxf(sqrtf(squares), 1e-6f);
}

/* Load 16 M keys of the request from key on, scaled to unit length, as mma's A operand.  Keys from
 * ctx on become zeros.  Lane 4g + t takes elements 8t .. 8t + 7 of each 32 of rows g and g + 8. */
template <int D, int M>
static __device__ __forceinline__ void quoka_unit_keys(uint32_t (&a)[M][D / 16][4],
						       const struct quoka_job &j, int r,
						       int kv_head, int key)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4, ctx = j.b.rows.pos0[r];
	const int tok = j.b.shape.page_tok;

#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		const int m = i / 2, half = i % 2, at = key + i * 8 + g;
		const bf16_t *src = NULL;

		if (at < ctx) {
			const size_t page = j.b.keys.page[j.b.keys.page0[r] + at / tok];

			src = j.k + ((page * j.b.shape.kv_heads + kv_head) * tok + at % tok) * D +
			      t * 8;
		}
#pragma unroll
		for (int c = 0; c < D / 32; c++) {
			const uint4 v = src ? *(const uint4 *)(src + c * 32) :
					      make_uint4(0, 0, 0, 0);

			a[m][2 * c][half] = v.x;
			a[m][2 * c][half + 2] = v.y;
			a[m][2 * c + 1][half] = v.z;
			a[m][2 * c + 1][half + 2] = v.w;
		}
	}
#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		const int m = i / 2, half = i % 2;
		float squares = 0;

#pragma unroll
		for (int c = 0; c < D / 16 * 2; c++) {
			const uint32_t x = a[m][c / 2][half + c % 2 * 2];

			squares += quoka_low_half(x) * quoka_low_half(x) +
				   quoka_high_half(x) * quoka_high_half(x);
		}
		const float by = quoka_unit_scale(quad_sum(squares));

#pragma unroll
		for (int c = 0; c < D / 16 * 2; c++) {
			uint32_t &x = a[m][c / 2][half + c % 2 * 2];

			x = pack_bf16(quoka_low_half(x) * by, quoka_high_half(x) * by);
		}
	}
}

/* Store the scores of a warp's keys.  top[m][h] belongs to rows 16m + 8h + g. */
template <int M>
static __device__ __forceinline__ void quoka_store(const float (&top)[M][2],
						   const struct quoka_job &j, int r, int kv_head,
						   int key)
{
	const int lane = threadIdx.x % 32, at = key + lane % 4 * 8 + lane / 4;
	const int page0 = j.b.keys.page0[r], n_page = j.b.keys.page0[r + 1] - page0;
	float best = 0;

#pragma unroll
	for (int i = 0; i < 2 * M; i++) {
		const float x = quad_max(top[i / 2][i % 2]);

		best = lane % 4 == i ? x : best;
	}
	if (lane % 4 < 2 * M && at < j.b.rows.pos0[r])
		j.w.score[attn_token_row(&j.b.shape, page0, n_page, kv_head) + at] =
			quoka_order_of(best);
}

#endif
