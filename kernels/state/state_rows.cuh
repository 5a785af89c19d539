/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the rows of a convolution: neighbouring channels of a row, its old rows from the slot. */
#ifndef AR_STATE_ROWS_CUH
#define AR_STATE_ROWS_CUH

#include "kernels/state/state.h"
#include "kernels/state/state_store.cuh"

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
static __device__ __forceinline__ pack<N> input(const state_conv &c, const state_seq &seq, int t,
					 int channel)
{
	const int64_t old = ((int64_t)seq.slot * (STATE_CONV - 1) + STATE_CONV - 1 + t) *
			    c.channels;
	const int64_t own = (int64_t)(seq.row + t) * c.stride;
	const bf16_t *from = t < 0 ? c.tail + old : c.rows + own;

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
	pack<N> x[STATE_CONV - 1 + ROWS];
};

/* Rows from `first` on; all loads are issued at once. */
template <int N, int ROWS>
static __device__ __forceinline__ void load_taps(taps<N, ROWS> &t, const state_conv &c,
						 const state_seq &seq, int first, int channel)
{
	const int before = first - (STATE_CONV - 1), stride = c.stride;
	const bf16_t *from = c.rows + (int64_t)(seq.row + before) * stride + channel;

	/* Most rows lie within the sequence.  Then their addresses are cheap. */
	if (before >= 0 && first + ROWS <= seq.n_row)
#pragma unroll
		for (int r = 0; r < STATE_CONV - 1 + ROWS; r++)
			t.x[r] = load<N>(from + (int64_t)r * stride);
	else
#pragma unroll
		for (int r = 0; r < STATE_CONV - 1 + ROWS; r++)
			t.x[r] = input<N>(c, seq, before + r, channel);
}

/* Element e of row r through the convolution, added to `sum`. */
template <int N, int ROWS>
static __device__ __forceinline__ float add_taps(float sum, const taps<N, ROWS> &t,
						 const pack<N * STATE_CONV> &w, int r, int e)
{
#pragma unroll
	for (int j = 0; j < STATE_CONV; j++)
		sum += element(w, e * STATE_CONV + j) * element(t.x[r + j], e);
	return sum;
}

/* y: the rows through the convolution and SiLU; rows from n on are 0. */
template <int N, int ROWS>
static __device__ __forceinline__ void convolve(float (&y)[ROWS][N], const taps<N, ROWS> &t,
						const pack<N * STATE_CONV> &w,
						const pack<N> &bias, int n)
{
#pragma unroll
	for (int r = 0; r < ROWS; r++)
#pragma unroll
		for (int e = 0; e < N; e++)
			y[r][e] = silu(add_taps(element(bias, e), t, w, r, e));
	/* Apart from the sums: as a condition of silu() it is a branch for each, one after
	 * another. */
	if (n < ROWS)
#pragma unroll
		for (int r = 0; r < ROWS; r++)
#pragma unroll
			for (int e = 0; e < N; e++)
				y[r][e] = r < n ? y[r][e] : 0;
}

#endif
