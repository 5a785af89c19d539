/* What the last queries' kernels on Hopper know of each other. */
#ifndef AR_LASTQ_CUH
#define AR_LASTQ_CUH

#include <cuda.h>
#include <cuda_runtime.h>

#include "kernels/select/lastq/lastq.h"

/* (max, sum) of every row's exponentials over each segment of keys, the maximum in units of log2.
 * Rows stand at the end of pad places. */
struct lastq_parts {
	float2 *part;		/* [lastq_first_part() + segment][query head][pad] */
	int segment;		/* keys at most; a request's segments are as long as each other */
	int pad;		/* 64 or 128 */
	float *piece;		/* NULL: not asked for */
};

/*
 * Pieces are a segment's sums by block of 128 keys, of exponentials over the segment's maximum:
 * where pad and page_tok are 128 and heads have up to 128 channels.  A block has two for each row,
 * so that it adds up to diagonals as well: row i of the 128 places and key x of block j meet at
 * diagonal 128 j + 127 + x - i, counted from the longest distance on, in block j of those where
 * x <= i and in j + 1 where x > i.
 */
enum { LASTQ_PIECES = 2 * LASTQ_MAX };	/* of a block and head: [x > i][place] */

/* Of a request of end keys. */
static __device__ __forceinline__ int lastq_segments(const struct lastq_parts &p, int end)
{
	return (end + p.segment - 1) / p.segment;
}

enum { LASTQ_SEGMENT_LEAST = 128 };

/* The keys of one, a multiple of the least. */
static __device__ __forceinline__ int lastq_segment_keys(const struct lastq_parts &p, int end)
{
	const int n = max(lastq_segments(p, end), 1), least = LASTQ_SEGMENT_LEAST;

	return ((end + n - 1) / n + least - 1) / least * least;
}

/* Of the block of a key. */
static __device__ __forceinline__ float *lastq_piece(const struct lastq_parts &p,
						     const struct attn_batch &b, int r,
						     int key, int head)
{
	return p.piece + ((size_t)(b.keys.page0[r] + key / LASTQ_MAX) * b.shape.q_heads + head) *
			 LASTQ_PIECES;
}

/* x[lane % 4 / 2][lane % 2], added up over the four lanes of a quad. */
static __device__ __forceinline__ float lastq_deal(const float (&x)[2][2])
{
	const int up = threadIdx.x & 2, odd = threadIdx.x & 1;
	float even = up ? x[1][0] : x[0][0], other = up ? x[1][1] : x[0][1];

	even += __shfl_xor_sync(~0u, up ? x[0][0] : x[1][0], 2);
	other += __shfl_xor_sync(~0u, up ? x[0][1] : x[1][1], 2);
	return (odd ? other : even) + __shfl_xor_sync(~0u, odd ? even : other, 1);
}

/* Where a request's parts begin: as far on as its pages do, rounded up for each before it. */
static __device__ __forceinline__ int lastq_first_part(const struct lastq_parts &p,
						       const struct attn_batch &b, int r)
{
	return b.keys.page0[r] * b.shape.page_tok / p.segment + r;
}

/* Fill parts->part, and pieces, for the last n rows of each request, and tell the length of
 * segments.  qmap: q through boxes of 64 rows of a head. */
size_t lastq_rows_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status lastq_rows_enqueue(const struct attn_batch *b, int n, const CUtensorMap &qmap,
				  const bf16_t *k, struct lastq_parts *parts, cudaStream_t stream,
				  struct ar_err *err);

#endif
