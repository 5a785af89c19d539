/* SPDX-License-Identifier: Apache-2.0 */
/* Norms of the rows of q and k. */
#ifndef AR_DELTA_ROWS_CUH
#define AR_DELTA_ROWS_CUH

#include "kernels/delta/delta_work.h"
#include "kernels/state/state_rows.cuh"

/* scale: factor over the norms of 8 rows, of which each lane of the warp has N channels.  In each
 * step two lanes swap half of their rows' sums; after the last step each lane has one row's sum. */
template <int N>
static __device__ __forceinline__ void norms(float (&scale)[8], const float (&y)[8][N],
					     float factor)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int r = 0; r < 8; r++) {
		scale[r] = 0;
#pragma unroll
		for (int e = 0; e < N; e++)
			scale[r] += y[r][e] * y[r][e];
	}
#pragma unroll
	for (int n = 4, bit = 16; n; n /= 2, bit /= 2)
#pragma unroll
		for (int r = 0; r < n; r++) {
			const bool high = lane & bit;
			const float keep = high ? scale[r + n] : scale[r];
			const float send = high ? scale[r] : scale[r + n];

			scale[r] = keep + __shfl_xor_sync(0xffffffff, send, bit);
		}
	scale[0] += __shfl_xor_sync(0xffffffff, scale[0], 2);
	scale[0] += __shfl_xor_sync(0xffffffff, scale[0], 1);

	const float own = factor * rsqrtf(scale[0] + (float)DELTA_L2_EPS);
#pragma unroll
	for (int r = 0; r < 8; r++)
		scale[r] = __shfl_sync(0xffffffff, own, r * 4);
}

#endif
