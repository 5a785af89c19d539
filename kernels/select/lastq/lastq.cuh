/* SPDX-License-Identifier: Apache-2.0 */
/* Parts that the kernels of the last queries on Hopper share. */
#ifndef AR_LASTQ_CUH
#define AR_LASTQ_CUH

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/select/lastq/lastq.h"

/* (max, sum) of each row's exponentials over each segment of keys.  The maximum is in units of
 * log2.  Rows stand at the end of their pad places. */
struct lastq_parts {
	float2 *part;		/* [lastq_first_part() + segment][query head][pad] */
	int segment;		/* keys, at most; the segments of a request are equally long */
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

/* Segments of a request of `end` keys. */
static __device__ __forceinline__ int lastq_segments(const struct lastq_parts &p, int end)
{
	return (end + p.segment - 1) / p.segment;
}

enum { LASTQ_SEGMENT_LEAST = 128 };

/* Keys of a segment, a multiple of LASTQ_SEGMENT_LEAST. */
static __device__ __forceinline__ int lastq_segment_keys(const struct lastq_parts &p, int end)
{
	const int n = max(lastq_segments(p, end), 1), least = LASTQ_SEGMENT_LEAST;

	return ((end + n - 1) / n + least - 1) / least * least;
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

/* The first part of a request.  The pages before it set the place, rounded up once per request. */
static __device__ __forceinline__ int lastq_first_part(const struct lastq_parts &p,
						       const struct attn_batch &b, int r)
{
	return b.keys.page0[r] * b.shape.page_tok / p.segment + r;
}

/* Fill parts->part, and the pieces if asked for, for the last n rows of each request.  Sets
 * parts->segment.  qmap: q in boxes of 64 rows of a head. */
size_t lastq_rows_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_rows_enqueue(const struct attn_batch *b, int n, const CUtensorMap &qmap,
				  const bf16_t *k, struct lastq_parts *parts, cudaStream_t stream,
				  struct ar_err *err);

#endif
