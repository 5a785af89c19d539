/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Elements of the products within a chunk, for a head, by four warps.  Warp w has rows 16 w .. + 15
 * of each accumulator, [64][...]; mma.sync and wgmma lay them out alike.
 *
 * With s the sum of the log decays from the chunk's first row on, h the state where it begins:
 *
 *   y_i = exp(s_i) C_i h + sum over j <= i of (C_i B_j exp(s_i - s_j) dt_j) x_j + d x_i
 *   h = exp(s_end) h + sum of exp(s_end - s_j) dt_j x_j B_j^T
 *
 * No difference is positive.  They are taken before exp: exp(s_i) and exp(s_j) may both be 0.
 */
#ifndef AR_SSM_CHUNK_CUH
#define AR_SSM_CHUNK_CUH

#include "kernels/ssm/ssm_work.h"

#include "kernels/prim/device.cuh"

namespace {

constexpr int C = STATE_CHUNK;
constexpr float LOG2E = 1.4426950408889634f;
static_assert(C == SSM_SLAB, "a slab is a square");

/* x, of which nothing is known.  What follows from it is not kept in registers for later: they are
 * scarce. */
__device__ __forceinline__ int afresh(int x)
{
	asm volatile("" : "+r"(x));
	return x;
}

__device__ __forceinline__ uint64_t afresh(uint64_t x)
{
	asm volatile("" : "+l"(x));
	return x;
}

/* This thread in its four warps; its warp and lane. */
__device__ __forceinline__ int own_thread(void)
{
	int tid;

	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(tid));
	return tid % 128;
}

__device__ __forceinline__ int own_warp(void)
{
	return own_thread() / 32;
}

__device__ __forceinline__ int own_lane(void)
{
	return own_thread() % 32;
}

/* Of a head's rows in a chunk, in shared memory. */
struct ssm_gates {
	float sum[C];		/* s, in units of log2 */
	float from[C];		/* s - log2(dt) */
	uint16_t to_end[C];	/* bf16: exp(s_end - s) dt */
};

/* Of a head. */
struct ssm_head {
	float rate, dt_bias, d;	/* rate: of the log decay, in units of log2 */
};

__device__ __forceinline__ ssm_head head_of(const ssm_args &a, int head)
{
	return { -LOG2E * expf(a.c.w.a_log[head]), a.c.w.dt_bias[head], a.c.w.d[head] };
}

/* log(1 + exp(x)).  The series where 1 + exp would round. */
__device__ __forceinline__ float softplus(float x)
{
	const float t = ex2(-LOG2E * fabsf(x));
	const float small = t * (1 - t * (0.5f - t * (1 / 3.0f)));

	return fmaxf(x, 0) + (t < 0x1p-5f ? small : __log2f(1 + t) * (1 / LOG2E));
}

/* Fill g, by one warp, whose lane has the projections of rows 2 lane and + 1.  Rows from n on
 * change nothing: their time steps are 0. */
__device__ __forceinline__ void make_gates(ssm_gates &g, const ssm_args &a, const ssm_head &head,
					   const float (&dt)[2], int n)
{
	const int lane = own_lane();
	const float rate = head.rate;
	const float most = a.c.spec.dt_max > 0 ? a.c.spec.dt_max : INFINITY;
	float step[2], s;

#pragma unroll
	for (int i = 0; i < 2; i++)
		step[i] = 2 * lane + i < n ? fminf(fmaxf(softplus(dt[i] + head.dt_bias),
							 a.c.spec.dt_min), most) : 0;
	s = rate * (step[0] + step[1]);
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const float y = __shfl_up_sync(0xffffffff, s, d);

		s += lane >= d ? y : 0;
	}
	const float first = s - rate * step[1], end = __shfl_sync(0xffffffff, s, 31);

	*reinterpret_cast<float2 *>(&g.sum[2 * lane]) = make_float2(first, s);
	*reinterpret_cast<float2 *>(&g.from[2 * lane]) =
		make_float2(first - __log2f(step[0]), s - __log2f(step[1]));
	*reinterpret_cast<uint32_t *>(&g.to_end[2 * lane]) =
		pack_bf16(ex2(end - first) * step[0], ex2(end - s) * step[1]);
}

/* Make the A operands of the product with 32 rows of x from C B^T: decayed and causal, with d for
 * the row itself.  cb: the accumulator of these columns, the first of which is 32 half. */
__device__ __forceinline__ void mask(uint32_t (*m)[4], const float *cb, const ssm_gates &g,
				     float d, int half)
{
	const int lane = own_lane(), warp = own_warp(), row = warp * 16 + lane / 4;
	const float s[2] = { g.sum[row], g.sum[row + 8] };

#pragma unroll
	for (int i = 0; i < C / 16; i++) {
		const int n = half * (C / 16) + i, col = n * 8 + lane % 4 * 2;
		uint32_t *to = &m[i / 2][i % 2 * 2];

		if (n > 2 * warp + 1) {
			to[0] = to[1] = 0;
			continue;
		}
		const float2 from = *reinterpret_cast<const float2 *>(&g.from[col]);

#pragma unroll
		for (int h = 0; h < 2; h++) {
			const int own = row + h * 8 - col;
			float x = cb[4 * i + 2 * h] * ex2(s[h] - from.x);
			float y = cb[4 * i + 2 * h + 1] * ex2(s[h] - from.y);

			if (n >= 2 * warp) {
				x = own > 0 ? x : own == 0 ? x + d : 0;
				y = own > 1 ? y : own == 1 ? y + d : 0;
			}
			to[h] = pack_bf16(x, y);
		}
	}
}

/* PTX ISA, "fma", .rn.bf16x2: x y - 0. */
__device__ __forceinline__ uint32_t multiply_bf16(uint32_t x, uint32_t y)
{
	uint32_t r;

	asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(r) : "r"(x), "r"(y), "r"(0x80008000u));
	return r;
}

/* Address of this lane's row of x in its slab for weigh_x(): 16 channels of the warp. */
__device__ __forceinline__ uint32_t x_place(const bf16_t *x)
{
	const int lane = own_lane(), warp = own_warp();

	return smem_addr(x) + swizzle<SSM_SLAB>((lane & 7) + (lane >> 4) * 8,
						2 * warp + (lane >> 3 & 1));
}

/* The A operand of the product with B that updates the state: x^T of rows 16 k .. + 15, weighed. */
__device__ __forceinline__ void weigh_x(uint32_t (&w)[4], uint32_t place, const ssm_gates &g, int k)
{
	const uint16_t *to_end = &g.to_end[k * 16 + own_lane() % 4 * 2];

	ldmatrix_x4_trans(w, place + k * (16 * SSM_SLAB * 2));
#pragma unroll
	for (int i = 0; i < 4; i++)
		w[i] = multiply_bf16(w[i], *reinterpret_cast<const uint32_t *>(&to_end[i / 2 * 8]));
}

/* Of this thread's rows, exp(s). */
__device__ __forceinline__ float2 from_start(const ssm_gates &g)
{
	const int row = own_warp() * 16 + own_lane() / 4;

	return make_float2(ex2(g.sum[row]), ex2(g.sum[row + 8]));
}

/* The state of a head in a thread's accumulators, h[n][e] for channels 8 n .. + 7 of the state:
 * where element e of n lies in a slot.  slice: of 64 channels of the head. */
__device__ __forceinline__ float *state_at(float *head, int state, int slice, int n, int e)
{
	const int lane = own_lane(), warp = own_warp();
	const int i = slice * SSM_SLAB + warp * 16 + lane / 4 + e / 2 * 8;

	return head + i * state + n * 8 + lane % 4 * 2 + e % 2;
}

} /* namespace */

#endif
