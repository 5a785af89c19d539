/* SPDX-License-Identifier: Apache-2.0 */
/* The two products of attention by mma.sync m16n8k16, operands in swizzled shared memory. */
#ifndef AR_PRODUCTS_CUH
#define AR_PRODUCTS_CUH

#include "kernels/prim/softmax.cuh"

/* Address of a 16 x 16 square of an operand, for this lane.  Lane l reads row l % 16 and piece l /
 * 16 of every square.  at: its address in square 0.  The swizzle puts the next squares along the
 * channels at ^ 32, 64, 96, then 128 bytes on. */
template <int D>
static __device__ __forceinline__ uint32_t square(uint32_t at, int row, int d)
{
	return (at ^ (d % 4 * 32)) + d / 4 * 128 + row * D * 2;
}

/* The same in slabs of 64 channels and `rows` rows. */
template <int rows>
static __device__ __forceinline__ uint32_t slab_square(uint32_t at, int row, int d)
{
	return square<64>(at, row, d % 4) + d / 4 * (rows * 64 * 2);
}

/* S = Q K^T for 16 M rows and 8 N keys. */
template <int D, int M, int N>
static __device__ __forceinline__ void multiply_qk(float (&s)[M][N][4], uint32_t q, uint32_t k)
{
#pragma unroll
	for (int m = 0; m < M; m++)
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[m][n][e] = 0;
	// Unrolled by four only: more fragments, loaded early, would not fit the registers.
#pragma unroll 4
	for (int d = 0; d < D / 16; d++) {
		uint32_t a[M][4], b[4];

#pragma unroll
		for (int m = 0; m < M; m++)
			ldmatrix_x4(a[m], square<D>(q, m * 16, d));
#pragma unroll
		for (int n = 0; n < N / 2; n++) {
			ldmatrix_x4(b, square<D>(k, n * 16, d));
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_m16n8k16(s[m][2 * n], a[m], b[0], b[2]);
				mma_m16n8k16(s[m][2 * n + 1], a[m], b[1], b[3]);
			}
		}
	}
}

/* O += P V, P in the registers of S. */
template <int D, int M, int N>
static __device__ __forceinline__ void multiply_pv(float (&o)[M][D / 8][4],
						   const float (&p)[M][N][4], uint32_t v)
{
#pragma unroll
	for (int n = 0; n < N / 2; n++) {
		uint32_t a[M][4], b[4];

#pragma unroll
		for (int m = 0; m < M; m++)
			softmax_operand(a[m], p[m][2 * n], p[m][2 * n + 1]);
#pragma unroll
		for (int d = 0; d < D / 16; d++) {
			ldmatrix_x4_trans(b, square<D>(v, n * 16, d));
#pragma unroll
			for (int m = 0; m < M; m++) {
				mma_m16n8k16(o[m][2 * d], a[m], b[0], b[1]);
				mma_m16n8k16(o[m][2 * d + 1], a[m], b[2], b[3]);
			}
		}
	}
}

#endif
