/* SPDX-License-Identifier: Apache-2.0 */
/* Means of queries inside kernels. */
#ifndef AR_MEANS_CUH
#define AR_MEANS_CUH

#include "kernels/select/means/means.h"

/* Rows that a thread loads at once.  Past the last row it loads that row again and adds 0. */
constexpr int MEAN_BATCH = 32;

/* Compute means_of_rows of n heads, one after the other.  The threads of a block share the pairs of
 * channels. */
static __device__ __forceinline__ void mean_rows(const struct attn_batch &b, int lo, int hi,
						 int head, int n, const bf16_t *__restrict__ q,
						 float *out)
{
	const int pairs = b.shape.head_dim / 2, row = b.shape.q_heads * pairs;
	const int rows = hi - lo;
	const uint32_t *first = (const uint32_t *)q + (size_t)lo * row + head * pairs;

	for (int d = threadIdx.x; d < n * pairs; d += blockDim.x) {
		float even = 0, odd = 0;

		for (int i = 0; i < rows; i += MEAN_BATCH) {
			uint32_t x[MEAN_BATCH];

#pragma unroll
			for (int k = 0; k < MEAN_BATCH; k++)
				x[k] = first[min(i + k, rows - 1) * row + d];
#pragma unroll
			for (int k = 0; k < MEAN_BATCH; k++) {
				even += i + k < rows ? __uint_as_float(x[k] << 16) : 0;
				odd += i + k < rows ? __uint_as_float(x[k] & 0xffff0000) : 0;
			}
		}
		out[2 * d] = even / (float)rows;
		out[2 * d + 1] = odd / (float)rows;
	}
}

/* Channels of 32 means that a warp loads at once.  The padding keeps rows and columns of fours in
 * different banks. */
constexpr int MEAN_CHANNELS = 16;
struct mean_room {
	float x[32][MEAN_CHANNELS + 4];
};

/* Compute sum[i] = means_dot of x + i * n and this lane's y.  A warp reads whole lines together; a
 * lane alone would request a line for each value. */
template <int N>
static __device__ __forceinline__ void dots_by_lines(float (&sum)[N], const float *x,
						     const float *y, int n,
						     struct mean_room &room)
{
	constexpr int FOURS = MEAN_CHANNELS / 4, ROWS = 32 / FOURS;	/* of a load: its rows */
	const int lane = threadIdx.x % 32, row = lane / FOURS, col = lane % FOURS * 4;
	const float *from[FOURS];
	float4 next[FOURS];

#pragma unroll
	for (int k = 0; k < FOURS; k++) {
		from[k] = (const float *)__shfl_sync(~0u, (unsigned long long)y,
						     k * ROWS + row) + col;
		next[k] = *(const float4 *)from[k];
	}
#pragma unroll
	for (int i = 0; i < N; i++)
		sum[i] = 0;
	for (int d = 0; d < n; d += MEAN_CHANNELS) {
		__syncwarp();		/* all lanes have used the values loaded before */
#pragma unroll
		for (int k = 0; k < FOURS; k++)
			*(float4 *)&room.x[k * ROWS + row][col] = next[k];
		__syncwarp();
#pragma unroll
		for (int k = 0; k < FOURS; k++)
			next[k] = *(const float4 *)(from[k] + min(d + MEAN_CHANNELS,
								  n - MEAN_CHANNELS));
#pragma unroll
		for (int c = 0; c < MEAN_CHANNELS; c += 4) {
			const float4 b = *(const float4 *)&room.x[lane][c];

#pragma unroll
			for (int i = 0; i < N; i++) {
				const float4 a = *(const float4 *)(x + i * n + d + c);

				sum[i] = __fadd_rn(sum[i], __fmul_rn(a.x, b.x));
				sum[i] = __fadd_rn(sum[i], __fmul_rn(a.y, b.y));
				sum[i] = __fadd_rn(sum[i], __fmul_rn(a.z, b.z));
				sum[i] = __fadd_rn(sum[i], __fmul_rn(a.w, b.w));
			}
		}
	}
}

#endif
