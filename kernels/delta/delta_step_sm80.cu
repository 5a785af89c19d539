/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode: one row of each sequence, all of the mixer in one kernel, bound by the state's memory.
 *
 * grid (key head, row).  Two groups of threads take the key head's value heads in turn.  A thread
 * has a column of the state in registers: k_dim loads at once, k_dim stores, and no sum crosses
 * threads before the norm.  They are under way while the convolution is computed.
 *
 * Each channel has one owner, a thread of one thread block, which also moves its tail on.
 *
 * At head size 128 a thread block has 128 KiB in flight.  The H200 needs about 36 KiB per
 * multiprocessor.  A row of 32 value heads reads and writes 2 MiB of state each: at 4 TB/s 1 us.
 *
 * Failed experiment: v, decay, beta and the gate of z computed before the first barrier, beside the
 * loads of the state.  1 row takes 11 to 12 us, not 13; 16 rows 28 to 32, not 24; 256 rows 517, not
 * 385.
 */
#include "config.h"
#include "kernels/delta/delta_work.h"
#include "kernels/state/state_step.cuh"

#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"

namespace {

constexpr int GROUPS = 2;

/* 1 / norm of a head in shared memory; every warp computes it. */
template <int D> __device__ __forceinline__ float unit(const float *x)
{
	float sum = 0;

#pragma unroll
	for (int i = 0; i < D; i += 32)
		sum += x[i + threadIdx.x % 32] * x[i + threadIdx.x % 32];
	return rsqrtf(warp_sum(sum) + (float)DELTA_L2_EPS);
}

template <int D>
__global__ void __launch_bounds__(GROUPS * D) delta_decode_row(const delta_args a,
							       const int32_t *slots)
{
	__shared__ __align__(16) float q[D], k[D];
	__shared__ float squares[GROUPS][D / 32];
	const int column = threadIdx.x % D, group = threadIdx.x / D, row = blockIdx.y;
	const int slot = slots[row], heads = a.c.spec.v_heads, keys = a.c.spec.k_heads * D;
	const bf16_t *ba = a.c.ba + (int64_t)row * a.c.ba_stride;
	const state_conv conv = delta_conv_of(&a.c);

	for (int i = 0; i < a.group; i += GROUPS) {
		const bool own = i + group < a.group;
		const int head = blockIdx.x * a.group + (own ? i + group : 0);
		float *state = a.c.state.s + ((int64_t)slot * heads + head) * (D * D) + column;
		float s[D], known = 0, o = 0, decay = 0, u = 0;

		if (own) {
#pragma unroll
			for (int j = 0; j < D; j++)
				s[j] = state[j * D];
		}
		if (i == 0)
			(group ? k : q)[column] =
				convolve<true>(conv, row, slot,
					       group * keys + blockIdx.x * D + column);
		__syncthreads();

		const float k_unit = unit<D>(k), q_unit = unit<D>(q) * rsqrtf((float)D);

		if (own) {
			const float v = convolve<true>(conv, row, slot,
						       2 * keys + head * D + column);
			const float x = bf16(ba[heads + head]) + a.c.w.dt_bias[head];

			decay = expf(-expf(a.c.w.a_log[head]) *
				     (fmaxf(x, 0) + log1pf(expf(-fabsf(x)))));
#pragma unroll
			for (int j = 0; j < D; j++) {
				if (j % 16 == 0)
					__syncwarp(); /* keeps ptxas from loading all of k first */
				known += s[j] * k[j];
			}
			u = __fdividef((v - decay * known * k_unit) * k_unit,
				       1 + expf(-bf16(ba[head])));
#pragma unroll
			for (int j = 0; j < D; j++) {
				if (j % 16 == 0)
					__syncwarp();
				s[j] = decay * s[j] + k[j] * u;
				o += s[j] * q[j];
				state[j * D] = s[j];
			}
			o *= q_unit;
		}

		const float part = warp_sum(o * o);
		float sum = 0;

		if (threadIdx.x % 32 == 0)
			squares[group][column / 32] = part;
		__syncthreads();
		if (own) {
			const int64_t z = (int64_t)row * a.c.qkvz_stride + a.channels + head * D +
					  column;

#pragma unroll
			for (int j = 0; j < D / 32; j++)
				sum += squares[group][j];
			o *= rsqrtf(sum / D + a.c.w.eps) * bf16(a.c.w.norm[column]) *
			     silu(bf16(a.c.qkvz[z]));
			a.c.out[((int64_t)row * heads + head) * D + column] =
				(bf16_t)pack_bf16(o, 0);
		}
	}
}

} /* namespace */

enum ar_status delta_decode_sm80(const struct delta_call *c, int n_row, const int32_t *slot,
				 struct ar_err *err)
{
	const struct delta_args a = { *c, {}, {}, delta_channels(&c->spec),
				      c->spec.v_heads / c->spec.k_heads };
	const dim3 grid(c->spec.k_heads, n_row);
	enum ar_status st = AR_OK;

	(c->spec.k_dim == 64 ? delta_decode_row<64> : delta_decode_row<128>)
		<<<grid, GROUPS * c->spec.k_dim, 0, (cudaStream_t)c->stream>>>(a, slot);
	CU_LAUNCHED();
out:
	return st;
}
