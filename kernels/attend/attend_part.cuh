/* SPDX-License-Identifier: Apache-2.0 */
/* The parts of a tile in memory, and their merge.  C::WGS warp groups hold O, of C::D channels a
 * head.  A thread has two rows; elements 4 k + 2 r and 4 k + 2 r + 1 belong to row r.  The same
 * thread has the same elements in every part. */
#ifndef AR_ATTEND_PART_CUH
#define AR_ATTEND_PART_CUH

#include <cfloat>

#include <cuda_runtime.h>
#include <math.h>

#include "kernels/prim/device.cuh"

/* A part: normalised O and log2 of the row sums, for each thread. */
template <class C> struct part {
	float4 o[C::D / 8][C::WGS * 128];
	float2 lse[C::WGS * 128];
};

template <class C>
static __device__ __forceinline__ void leave(struct part<C> *to, const float *o, const float *lse,
					     int i)
{
#pragma unroll
	for (int k = 0; k < C::D / 8; k++)
		to->o[k][i] = make_float4(o[4 * k], o[4 * k + 1], o[4 * k + 2], o[4 * k + 3]);
	to->lse[i] = make_float2(lse[0], lse[1]);
}

/* Compute the weights of two parts of a row.  *lse, of the own part, becomes that of both. */
static __device__ __forceinline__ void weigh(float *lse, float other, float *own_weight,
					     float *weight)
{
	const float max = fmaxf(*lse, other), base = max == -INFINITY ? 0 : max;
	const float a = ex2(*lse - base), b = ex2(other - base), sum = a + b;
	const float inv = sum == 0 ? 0 : __fdividef(1, sum);	/* sum is in [1, 2], or NaN */

	*own_weight = a * inv;
	*weight = b * inv;
	*lse = sum == 0 ? -INFINITY : base + log2f(sum);
}

/* Add another part to the own one, weighted by their sums.  Every product is rounded, so the order
 * of the two changes no bit. */
template <class C>
static __device__ __forceinline__ void add_part(float *o, float *lse, const struct part<C> *from,
						int i)
{
	constexpr int AT_ONCE = C::D == 256 ? 8 : C::D / 8;	/* as registers allow */
	const float2 other = __ldcg(&from->lse[i]);
	float own_weight[2], weight[2];

#pragma unroll
	for (int first = 0; first < C::D / 8; first += AT_ONCE) {
		float4 v[AT_ONCE];

#pragma unroll
		for (int k = 0; k < AT_ONCE; k++)
			v[k] = __ldcg(&from->o[first + k][i]);
		if (first == 0) {
			weigh(&lse[0], other.x, &own_weight[0], &weight[0]);
			weigh(&lse[1], other.y, &own_weight[1], &weight[1]);
		}
		__syncwarp();	/* keeps ptxas from loading everything first */
#pragma unroll
		for (int k = 0; k < AT_ONCE; k++) {
			const float x[4] = { v[k].x, v[k].y, v[k].z, v[k].w };
			float *to = o + 4 * (first + k);

#pragma unroll
			for (int e = 0; e < 4; e++)
				to[e] = __fadd_rn(__fmul_rn(own_weight[e / 2], to[e]),
						  __fmul_rn(weight[e / 2], x[e]));
		}
	}
}

/* Add two more parts, which are added to each other first.  Bits as of add_part(). */
template <class C>
static __device__ __forceinline__ void add_pair(float *o, float *lse, const struct part<C> *a,
						const struct part<C> *b, int i)
{
	constexpr int AT_ONCE = 8;	/* as registers allow */
	const float2 first_lse = __ldcg(&a->lse[i]), other = __ldcg(&b->lse[i]);
	float own_weight[2], weight[2], a_weight[2], b_weight[2];

#pragma unroll
	for (int first = 0; first < C::D / 8; first += AT_ONCE) {
		float4 v[AT_ONCE], w[AT_ONCE];

#pragma unroll
		for (int k = 0; k < AT_ONCE; k++) {
			v[k] = __ldcg(&a->o[first + k][i]);
			w[k] = __ldcg(&b->o[first + k][i]);
		}
		if (first == 0) {
			float pair[2] = { first_lse.x, first_lse.y };

			weigh(&pair[0], other.x, &a_weight[0], &b_weight[0]);
			weigh(&pair[1], other.y, &a_weight[1], &b_weight[1]);
			weigh(&lse[0], pair[0], &own_weight[0], &weight[0]);
			weigh(&lse[1], pair[1], &own_weight[1], &weight[1]);
		}
		__syncwarp();	/* keeps ptxas from loading everything first */
#pragma unroll
		for (int k = 0; k < AT_ONCE; k++) {
			const float x[4] = { v[k].x, v[k].y, v[k].z, v[k].w };
			const float y[4] = { w[k].x, w[k].y, w[k].z, w[k].w };
			float *to = o + 4 * (first + k);

#pragma unroll
			for (int e = 0; e < 4; e++) {
				const float pair = __fadd_rn(__fmul_rn(a_weight[e / 2], x[e]),
							     __fmul_rn(b_weight[e / 2], y[e]));

				to[e] = __fadd_rn(__fmul_rn(own_weight[e / 2], to[e]),
						  __fmul_rn(weight[e / 2], pair));
			}
		}
	}
}

/* ---- shares ---- */

/* Leave a part of a tile whose parts share its rows.  O is not divided.  Of the lanes of a quad,
 * even ones leave the base and sum of the first row as lse, odd ones of the second. */
template <class C>
static __device__ __forceinline__ void leave_raw(struct part<C> *to, const float *o,
						 const float *base, const float *sum, int i)
{
	const int r = i % 2;

	leave<C>(to, o, (const float[2]){ r ? base[1] : base[0], r ? sum[1] : sum[0] }, i);
}

/* The sum of up to T raw parts of the rows of 8 / T warps, by all eight warps.  A thread has some
 * channels of two rows, eight apart, as in a part. */
template <class C, int T> struct share {
	static constexpr int UNITS = C::D / 8 / T;	/* of eight channels, of each thread */
	int warp, k;					/* whose rows, the first unit */
	float4 o[UNITS];
	float lse[2];

	/* chunk: of 8 / T warps.  Parts are added in their order.  Past the last one it is read
	 * again, and counts for nothing. */
	__device__ __forceinline__ share(const struct part<C> *place, int n, int chunk)
	{
		const int at = (threadIdx.x - 128) / 32 * UNITS;
		float4 v[T][UNITS], row[T];	/* row: base and sum of both rows */
		float base[2] = { -FLT_MAX, -FLT_MAX }, sum[2] = { 0, 0 };
		int i;

		warp = chunk * (8 / T) + at / (C::D / 8);
		k = at % (C::D / 8);
		i = warp * 32 + threadIdx.x % 32;
#pragma unroll
		for (int j = 0; j < T; j++) {
			const struct part<C> *from = place + min(j, n - 1);

			row[j] = __ldcg((const float4 *)&from->lse[i & ~3]);
#pragma unroll
			for (int u = 0; u < UNITS; u++)
				v[j][u] = __ldcg(&from->o[k + u][i]);
		}
#pragma unroll
		for (int j = 0; j < T; j++) {
			base[0] = fmaxf(base[0], row[j].x);
			base[1] = fmaxf(base[1], row[j].z);
		}
#pragma unroll
		for (int u = 0; u < UNITS; u++)
			o[u] = make_float4(0, 0, 0, 0);
#pragma unroll
		for (int j = 0; j < T; j++) {
			const float a = j < n ? ex2(row[j].x - base[0]) : 0;
			const float b = j < n ? ex2(row[j].z - base[1]) : 0;

			sum[0] = fmaf(a, row[j].y, sum[0]);
			sum[1] = fmaf(b, row[j].w, sum[1]);
#pragma unroll
			for (int u = 0; u < UNITS; u++) {
				o[u].x = fmaf(a, v[j][u].x, o[u].x);
				o[u].y = fmaf(a, v[j][u].y, o[u].y);
				o[u].z = fmaf(b, v[j][u].z, o[u].z);
				o[u].w = fmaf(b, v[j][u].w, o[u].w);
			}
		}
		divide(base, sum);
	}

	__device__ __forceinline__ void divide(const float *base, const float *sum)
	{
		float inv[2];

#pragma unroll
		for (int r = 0; r < 2; r++) {
			inv[r] = sum[r] == 0 ? 0 : __frcp_rn(sum[r]);	/* NaN stays */
			lse[r] = sum[r] == 0 ? -INFINITY : base[r] + log2f(sum[r]);
		}
#pragma unroll
		for (int u = 0; u < UNITS; u++) {
			o[u].x *= inv[0];
			o[u].y *= inv[0];
			o[u].z *= inv[1];
			o[u].w *= inv[1];
		}
	}
};

/* ---- merges ---- */

/* The parts that merge at once, as registers allow. */
template <class C> constexpr int JOIN = C::D == 256 || C::SKIPS ? 2 : 4;

/* The parts [first, first + n * step) of a tile, n <= JOIN groups of `step` parts, that merge at
 * once; struct part `first + k * step` holds group k. */
struct group {
	int first, n, step;
	int32_t *left;			/* how many groups lie in memory */
};

/* Add the groups of g other than number k to group k: neighbours first, then pairs. */
template <class C>
static __device__ __forceinline__ void add_others(float *o, float *lse,
						  const struct part<C> *place,
						  const struct group &g, int k, int i)
{
	const struct part<C> *from = place + g.first;
	const int pair = (k & 2) ^ 2;
	const bool both = JOIN<C> > 2 && pair + 1 < g.n;
	int at = k ^ 1;

	/* add_part() stands here once, as code is loaded, too */
#pragma unroll 1
	for (int r = both; r < JOIN<C> / 2; r++, at = pair)
		if (at < g.n)
			add_part<C>(o, lse, from + at * g.step, i);
	if constexpr (JOIN<C> > 2)
		if (__builtin_expect(both, false))
			add_pair<C>(o, lse, from + pair * g.step, from + (pair + 1) * g.step, i);
}

#endif
