/* SPDX-License-Identifier: Apache-2.0 */
/* The online softmax on accumulators of mma m16n8k16: 16 rows, N column tiles of 8.  Lane l
 * holds two rows, l / 4 and l / 4 + 8, and of each the columns 8 n + 2 (l % 4), + 1. */
#ifndef AR_SOFTMAX_CUH
#define AR_SOFTMAX_CUH

#include "kernels/prim/device.cuh"

/* The factor of scores under a head of D channels, for exp and for exp2. */
template <int D>
constexpr float softmax_scale = D == 64 ? 0.125f : D == 128 ? 0.08838834764831845f : 0.0625f;
template <int D> constexpr float softmax_scale_log2 = softmax_scale<D> * 1.4426950408889634f;

/* Hide the columns past seen[half] of the row. */
template <int N>
static __device__ __forceinline__ void softmax_mask(float (&s)[N][4], const int (&seen)[2],
						    int lane)
{
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			if (n * 8 + 2 * (lane & 3) + (e & 1) > seen[e >> 1])
				s[n][e] = -INFINITY;
}

/* Hide the columns before first[half] of the row. */
template <int N>
static __device__ __forceinline__ void softmax_mask_before(float (&s)[N][4], const int (&first)[2],
							   int lane)
{
#pragma unroll
	for (int n = 0; n < N; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			if (n * 8 + 2 * (lane & 3) + (e & 1) < first[e >> 1])
				s[n][e] = -INFINITY;
}

/* Begin a row with a sink: a logit in the sum, without a value. */
template <int D>
static __device__ __forceinline__ void softmax_sink(float &max, float &sum, float sink, int lane)
{
	max = sink / softmax_scale<D>;
	sum = (lane & 3) == 0;
}

/* Turn scores into exp(scale (s - max)) and bring max, sum and o up to date.  sum is this
 * lane's share of the row.  A row that has seen no key has max -inf. */
template <int N, int D>
static __device__ __forceinline__ void softmax_step(float (&s)[N][4], float (&o)[D / 8][4],
						    float (&max)[2], float (&sum)[2])
{
	constexpr float scale = softmax_scale_log2<D>;

#pragma unroll
	for (int h = 0; h < 2; h++) {
		float m = max[h], base, rescale, part = 0;

#pragma unroll
		for (int n = 0; n < N; n++)
			m = fmaxf(m, fmaxf(s[n][2 * h], s[n][2 * h + 1]));
		m = quad_max(m);
		base = m == -INFINITY ? 0 : m * scale;
		rescale = ex2(max[h] * scale - base);
		max[h] = m;
#pragma unroll
		for (int n = 0; n < N; n++)
#pragma unroll
			for (int e = 2 * h; e < 2 * h + 2; e++) {
				s[n][e] = ex2(s[n][e] * scale - base);
				part += s[n][e];
			}
		sum[h] = sum[h] * rescale + part;
#pragma unroll
		for (int d = 0; d < D / 8; d++) {
			o[d][2 * h] *= rescale;
			o[d][2 * h + 1] *= rescale;
		}
	}
}

/* Two neighbouring column tiles of an accumulator as the A operand of the next product. */
static __device__ __forceinline__ void softmax_operand(uint32_t (&a)[4], const float (&lo)[4],
						       const float (&hi)[4])
{
	a[0] = pack_bf16(lo[0], lo[1]);
	a[1] = pack_bf16(lo[2], lo[3]);
	a[2] = pack_bf16(hi[0], hi[1]);
	a[3] = pack_bf16(hi[2], hi[3]);
}

#endif
