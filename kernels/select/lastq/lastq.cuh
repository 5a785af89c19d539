/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the kernels of the last queries on Hopper share. */
#ifndef AR_LASTQ_CUH
#define AR_LASTQ_CUH

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/select/lastq/lastq.h"

/*
 * (max, sum) of each row's exponentials over each segment of keys.  The maximum is in units of
 * log2.  Rows stand at the end of their pad places.
 *
 * The pages of a batch, KV head after KV head in each request, are split into equal ranges, so that
 * multiprocessors have the same work.  A range may hold pages of several requests and KV heads.
 * Pages of one range, one request and one KV head are a segment.
 */
struct lastq_parts {
	float2 *part;		/* [lastq_part()][query head of the KV head][pad] */
	int range;		/* pages */
	int pad;		/* 64 or 128 */
	float *piece;		/* NULL: not asked for */
	bool past;		/* rows see the keys before all of them */
};

/*
 * Pieces are the sums of a row's exponentials over blocks of 128 keys, relative to the segment's
 * maximum.  They exist where pad and page_tok are 128 and heads have up to 128 channels.
 *
 * A row has two pieces a block, so that pieces also add up to diagonals.  Diagonals are counted
 * from the longest distance on.  Row i of the 128 places and key x of block j meet at diagonal 128
 * j + 127 + x - i.  It lies in block j of the diagonals where x <= i, and in block j + 1 where x >
 * i.
 */
enum { LASTQ_PIECES = 2 * LASTQ_MAX };	/* of a block and head: [x > i][place] */

/* The end of the keys that rows of request r see. */
static __device__ __forceinline__ int lastq_end(const struct lastq_parts &p,
						const struct attn_batch &b, int r)
{
	return b.rows.pos0[r] + (p.past ? 0 : b.rows.row0[r + 1] - b.rows.row0[r]);
}

enum {
	LASTQ_LEAST = 128,	/* keys of a segment are multiples of it, but for the last ones */
	LASTQ_SHARES = 128	/* of the work, where the number of multiprocessors is not known */
};

static __device__ __forceinline__ int lastq_pages(const struct attn_batch &b, int r)
{
	return b.keys.page0[r + 1] - b.keys.page0[r];
}

/* Count the pages that stand before KV head kv_head of request r. */
static __device__ __forceinline__ int lastq_pages_before(const struct attn_batch &b, int r,
							 int kv_head)
{
	return b.keys.page0[r] * b.shape.kv_heads + kv_head * lastq_pages(b, r);
}

/* The part of the segment with this page, the first of them 0.  before: lastq_pages_before(). */
static __device__ __forceinline__ int lastq_part(const struct lastq_parts &p,
						 const struct attn_batch &b, int r, int kv_head,
						 int before, int page)
{
	/* segments of a range have different requests or KV heads */
	return (before + page) / p.range + r * b.shape.kv_heads + kv_head;
}

/* The pieces of the block of a key. */
static __device__ __forceinline__ float *lastq_piece(const struct lastq_parts &p,
						     const struct attn_batch &b, int r,
						     int key, int head)
{
	return p.piece + ((size_t)(b.keys.page0[r] + key / LASTQ_MAX) * b.shape.q_heads + head) *
			 LASTQ_PIECES;
}

/* Add up four values over the four lanes of a quad.  A lane returns the sum of x[lane % 4 / 2][lane
 * % 2]. */
static __device__ __forceinline__ float lastq_deal(const float (&x)[2][2])
{
	const int up = threadIdx.x & 2, odd = threadIdx.x & 1;
	float even = up ? x[1][0] : x[0][0], other = up ? x[1][1] : x[0][1];

	even += __shfl_xor_sync(~0u, up ? x[0][0] : x[1][0], 2);
	other += __shfl_xor_sync(~0u, up ? x[0][1] : x[1][1], 2);
	return (odd ? other : even) + __shfl_xor_sync(~0u, odd ? even : other, 1);
}

/* Fill parts->part, and the pieces if asked for, for the last parts->pad rows of each request.
 * Sets parts->range.  qmap: q in boxes of 64 rows of a head. */
size_t lastq_rows_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_rows_enqueue(const struct attn_batch *b, const CUtensorMap &qmap,
				  const bf16_t *k, struct lastq_parts *parts, cudaStream_t stream,
				  struct ar_err *err);

#endif
