/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the projection row by row: neighbouring channels of a row, its old rows from the slot. */
#ifndef AR_DELTA_ROWS_CUH
#define AR_DELTA_ROWS_CUH

#include "kernels/delta/delta_store.cuh"
#include "kernels/delta/delta_work.h"

#include "kernels/prim/device.cuh"

/* N neighbouring bf16, as they travel. */
template <int N> struct __align__(N * 2) pack {
	uint32_t w[N / 2];
};

template <int N> static __device__ __forceinline__ float element(const pack<N> &v, int i)
{
	return __uint_as_float(i & 1 ? v.w[i / 2] & 0xffff0000u : v.w[i / 2] << 16);
}

template <int N> static __device__ __forceinline__ pack<N> load(const bf16_t *p)
{
	return *reinterpret_cast<const pack<N> *>(p);
}

template <int N> static __device__ __forceinline__ void store(bf16_t *p, const float *x)
{
	uint32_t w[N / 2];

#pragma unroll
	for (int i = 0; i < N / 2; i++)
		w[i] = pack_bf16(x[2 * i], x[2 * i + 1]);
	store_words(p, w);
}

/* Channels of the projection t rows after the sequence's first; before it, of the slot. */
template <int N>
static __device__ __forceinline__ pack<N> input(const delta_args &a, const delta_seq &seq, int t,
					 int channel)
{
	const int64_t old = ((int64_t)seq.slot * (DELTA_CONV - 1) + DELTA_CONV - 1 + t) *
			    a.channels;
	const int64_t own = (int64_t)(seq.row + t) * a.c.qkvz_stride;
	const bf16_t *from = t < 0 ? a.c.state.tail + old : a.c.qkvz + own;

	/* One predicated load, not two in branches: a warp's loads are issued together. */
	return t < seq.n_row && (t >= 0 || !seq.fresh) ? load<N>(from + channel) : pack<N>{};
}

static __device__ __forceinline__ float silu(float x)
{
	float r;

	/* Without denormals: __expf() and __fdividef() need three times the instructions. */
	asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1 + ex2(x * -1.4426950408889634f)));
	return x * r;
}

/* N channels of the projection: ROWS rows, and the rows before that the convolution needs. */
template <int N, int ROWS> struct taps {
	pack<N> x[DELTA_CONV - 1 + ROWS];
};

/* Rows from `first` on; all loads are issued at once. */
template <int N, int ROWS>
static __device__ __forceinline__ void load_taps(taps<N, ROWS> &t, const delta_args &a,
						 const delta_seq &seq, int first, int channel)
{
	const int before = first - (DELTA_CONV - 1), stride = a.c.qkvz_stride;
	const bf16_t *from = a.c.qkvz + (int64_t)(seq.row + before) * stride + channel;

	/* Most rows lie within the sequence.  Then their addresses are cheap. */
	if (before >= 0 && first + ROWS <= seq.n_row)
#pragma unroll
		for (int r = 0; r < DELTA_CONV - 1 + ROWS; r++)
			t.x[r] = load<N>(from + (int64_t)r * stride);
	else
#pragma unroll
		for (int r = 0; r < DELTA_CONV - 1 + ROWS; r++)
			t.x[r] = input<N>(a, seq, before + r, channel);
}

/* y: the rows through the convolution and SiLU; rows from n on are 0. */
template <int N, int ROWS>
static __device__ __forceinline__ void convolve(float (&y)[ROWS][N], const taps<N, ROWS> &t,
						const pack<N * DELTA_CONV> &w, int n)
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int e = 0; e < N; e++) {
			float sum = 0;

#pragma unroll
			for (int j = 0; j < DELTA_CONV; j++)
				sum += element(w, e * DELTA_CONV + j) * element(t.x[r + j], e);
			y[r][e] = silu(sum);
		}
	/* Apart from the sums: as a condition of silu() it is a branch for each, one after
	 * another. */
	if (n < ROWS)
#pragma unroll
		for (int r = 0; r < ROWS; r++)
#pragma unroll
			for (int e = 0; e < N; e++)
				y[r][e] = r < n ? y[r][e] : 0;
}

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
