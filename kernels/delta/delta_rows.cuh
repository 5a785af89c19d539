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
	return __fdividef(x, 1 + __expf(-x));
}

#endif
