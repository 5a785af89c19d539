/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Decode: one row of each sequence, bound by the state's memory.
 *
 * grid (head, row).  A warp has rows of the state, one for each channel of the head; a lane has
 * neighbouring elements of each row.  Eight rows are under way at once.  Gate, norm and tails
 * follow in ssm_rows.cu, since a norm may take all heads.
 *
 * A row of 64 heads of 64 x 128 reads and writes 2 MiB of state each: at 4 TB/s 1 us.
 */
#include "config.h"
#include "kernels/ssm/ssm_work.h"
#include "kernels/state/state_step.cuh"

#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"

namespace {

constexpr int THREADS = 256, WARPS = THREADS / 32;
constexpr int ROWS = 8;			/* of a warp, at once */
constexpr int MOST_DIM = 128;		/* of a head */

template <int N>
__global__ void __launch_bounds__(THREADS, 2) ssm_decode_row(const ssm_args a, const int32_t *slots)
{
	constexpr int OWN = N / 128;	/* float4 of a lane */
	__shared__ __align__(16) float x[MOST_DIM], b[N], c[N];
	const int head = blockIdx.x, row = blockIdx.y, slot = slots[row], dim = a.c.spec.head_dim;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, group = head / a.group;
	const state_conv conv = ssm_conv_of(&a.c);
	float *state = a.c.state.h + ((int64_t)slot * a.c.spec.heads + head) * dim * N + lane * 4;
	const float raw = bf16(a.c.in[(int64_t)row * a.c.in_stride + a.inner + a.channels + head]) +
			  a.c.w.dt_bias[head];
	float dt = fmaxf(fmaxf(raw, 0) + log1pf(expf(-fabsf(raw))), a.c.spec.dt_min);

	if (a.c.spec.dt_max > 0)
		dt = fminf(dt, a.c.spec.dt_max);
	const float decay = expf(-expf(a.c.w.a_log[head]) * dt);

	for (int i = threadIdx.x; i < dim; i += THREADS)
		x[i] = convolve<false>(conv, row, slot, head * dim + i);
	for (int i = threadIdx.x; i < N; i += THREADS) {
		b[i] = dt * convolve<false>(conv, row, slot, a.inner + group * N + i);
		c[i] = convolve<false>(conv, row, slot,
				       a.inner + (a.c.spec.groups + group) * N + i);
	}
	__syncthreads();
	for (int first = warp * ROWS; first < dim; first += WARPS * ROWS) {
		float4 h[ROWS][OWN];

#pragma unroll
		for (int r = 0; r < ROWS; r++)
#pragma unroll
			for (int i = 0; i < OWN; i++)
				h[r][i] = *reinterpret_cast<const float4 *>(
					&state[(first + r) * N + i * 128]);
#pragma unroll
		for (int r = 0; r < ROWS; r++) {
			const float own = x[first + r];
			float y = 0;

#pragma unroll
			for (int i = 0; i < OWN; i++) {
				const float4 in = *reinterpret_cast<const float4 *>(
					&b[i * 128 + lane * 4]);
				const float4 out = *reinterpret_cast<const float4 *>(
					&c[i * 128 + lane * 4]);
				float4 &s = h[r][i];

				s.x = decay * s.x + own * in.x;
				s.y = decay * s.y + own * in.y;
				s.z = decay * s.z + own * in.z;
				s.w = decay * s.w + own * in.w;
				y += s.x * out.x + s.y * out.y + s.z * out.z + s.w * out.w;
				*reinterpret_cast<float4 *>(&state[(first + r) * N + i * 128]) = s;
			}
			y = warp_sum(y) + a.c.w.d[head] * own;
			if (lane == 0)
				a.c.out[(int64_t)row * a.inner + head * dim + first + r] =
					(bf16_t)pack_bf16(y, 0);
		}
	}
}

} /* namespace */

enum ar_status ssm_decode(const struct ssm_call *c, int n_row, const int32_t *slot,
			  struct ar_err *err)
{
	const struct ssm_args a = { *c, {}, {}, ssm_inner(&c->spec), ssm_channels(&c->spec),
				    c->spec.heads / c->spec.groups, 0 };
	const dim3 grid(c->spec.heads, n_row);
	enum ar_status st = AR_OK;

	if (!n_row)
		return AR_OK;
	(c->spec.state == 128 ? ssm_decode_row<128> : ssm_decode_row<256>)
		<<<grid, THREADS, 0, (cudaStream_t)c->stream>>>(a, slot);
	CU_LAUNCHED();
	st = ssm_norm_step(&a, n_row, slot, err);
out:
	return st;
}
