/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states along each sequence, and the rows before their norm.
 *
 * grid (slice of 32 value channels, value head, sequence), four warps.  The transposed state of 16
 * channels, [16][k_dim] in fp32, stays in the accumulators of a warp for the whole sequence.  An
 * accumulator is the next product's A operand.  So a chunk is one chain in registers, without a
 * barrier.  The notation is that of delta_device.c; T is solve, with beta in it:
 *
 *   warps 0, 1   x = S^T k^T       y = v^T - exp(g) x       u = y T^T
 *                S^T = exp(g_end) S^T + (exp(g_end - g) u) k
 *   warps 2, 3   o = exp(g) q S + mix u, of the chunk before; all copies
 *
 * Warp w passes S (at the chunk's begin) and u to warp w + 2 as they lie in its lanes.  Rows of the
 * A operand here are columns of the B operand there.  One barrier a chunk separates all of it.
 *
 * Copies are STAGES - 1 chunks ahead.  Step i of the loop works on chunk i in warps 0 and 1, and on
 * chunk i - 1 in warps 2 and 3.  For warps 0 and 1 it loads chunk i + STAGES - 1 into the stage
 * that step i - 1 has left.  So for warps 2 and 3 it loads one chunk earlier.
 *
 * Budget of a chunk at head size 128, in cycles.  Each warp has a quarter of the multiprocessor.
 *
 *   warps 0, 1   148 mma at 8: 1184; elements: 300; three turns of the chain: 200; in all 1700
 *   warps 2, 3   84 mma at 8: 672; 53 copies a thread: 300
 *   L2 cache     53 KiB at 64 bytes a cycle: 830
 *
 * So the 512 chunks of 32 K tokens take 0.5 ms for any number of heads up to 33 with 128 channels:
 * that many slices run at once on 132 multiprocessors.
 *
 * Slices of 64 would halve the reads from L2, but leave half of the multiprocessors idle at 32
 * heads.  Rows of S in two warps would shorten the chain by half, and need two exchanges a chunk.
 */
#include "config.h"
#include "kernels/delta/delta_work.h"

#include "base/gpu.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/products.cuh"

namespace {

constexpr int THREADS = 128;
constexpr int C = STATE_CHUNK;
constexpr int WARP_COLS = 16;		/* value channels of a warp */
constexpr int COLS = 2 * WARP_COLS;
constexpr int V_WORDS = C * WARP_COLS / 2;

/* Inputs of a chunk: for its state, for its output. */
template <int D> struct state_stage {
	bf16_t k[C * D], solve[C * C];
	uint32_t v[2][V_WORDS];
	delta_gates gates;
};

template <int D> struct out_stage {
	bf16_t q[C * D], mix[C * C];
	float from_start[C];
};

/* S and u of a chunk, from a warp to another. */
template <int D> struct passed {
	uint4 s[D / 16][32], u[C / 16][32];
};

template <int D, int STAGES> struct scan_smem {
	state_stage<D> state[STAGES];
	out_stage<D> out[STAGES];
	passed<D> pass[2][2];		/* [chunk % 2][warp] */
};
static_assert(sizeof(state_stage<128>) % 128 == 0 && sizeof(out_stage<128>) % 128 == 0 &&
	      sizeof(state_stage<64>) % 128 == 0 && sizeof(out_stage<64>) % 128 == 0,
	      "tiles are aligned as the swizzle needs");
static_assert(sizeof(scan_smem<128, 3>) <= 227 * 1024, "three stages fit on 9.0 and 10.0");
static_assert(sizeof(scan_smem<128, 2>) <= 163 * 1024, "two stages fit on 8.0");
static_assert(sizeof(scan_smem<64, 2>) <= 99 * 1024, "two stages of small heads fit everywhere");

/* The work of a thread block: the chunks of a sequence, for a slice of one value head. */
struct work {
	state_seq seq;
	int head, key, slice;
	int n;				/* chunks */
};

/* Fill `to`, whose size is a multiple of 16 bytes, by the threads of warps 2 and 3. */
template <class T> __device__ __forceinline__ void copy(T &to, const void *from)
{
	constexpr int SIZE = sizeof(T), STEP = 64 * 16;
	const int first = (threadIdx.x - 64) * 16;

#pragma unroll
	for (int i = 0; i < SIZE; i += STEP)
		if (i + STEP <= SIZE || first < SIZE - i)
			cp_async_16(smem_addr(&to) + first + i, (const char *)from + first + i, 16);
}

/* Start the copies for step i of the loop. */
template <int D, int STAGES>
__device__ __forceinline__ void copy_step(scan_smem<D, STAGES> &sm, const delta_args &a,
					  const work &w, int i)
{
	const int64_t keys = a.c.spec.k_heads, values = a.c.spec.v_heads;

	if (i < w.n) {
		state_stage<D> &to = sm.state[i % STAGES];
		const int64_t chunk = w.seq.chunk0 + i, at = chunk * values + w.head;

		copy(to.k, a.w.k + (chunk * keys + w.key) * (C * D));
		copy(to.solve, a.w.solve + at * (C * C));
		copy(to.v, a.w.v + at * (C * D / 2) + w.slice * (2 * V_WORDS));
		copy(to.gates, a.w.gates + at);
	}
	if (i > 0 && i <= w.n) {
		out_stage<D> &to = sm.out[(i - 1) % STAGES];
		const int64_t chunk = w.seq.chunk0 + i - 1, at = chunk * values + w.head;

		copy(to.q, a.w.q + (chunk * keys + w.key) * (C * D));
		copy(to.mix, a.w.mix + at * (C * C));
		copy(to.from_start, a.w.gates[at].from_start);
	}
	cp_async_commit();
}

/* c[n] += a B^T for 16 N rows of B, from `first` squares on; b: address of its columns' square. */
template <int D, int N>
__device__ __forceinline__ void multiply_rows(float (&c)[N][4], const uint32_t (&a)[4], uint32_t b,
					      int first, int column)
{
#pragma unroll
	for (int n = first; n < N / 2; n++) {
		uint32_t x[4];

		ldmatrix_x4(x, square<D>(b, n * 16, column));
		mma_m16n8k16(c[2 * n], a, x[0], x[2]);
		mma_m16n8k16(c[2 * n + 1], a, x[1], x[3]);
	}
}

/* Move a chunk's state on.  s[n]: channels of the key 8 n .. + 7 of the state; see mma_m16n8k16. */
template <int D>
__device__ __forceinline__ void step_state(float (&s)[D / 8][4], const state_stage<D> &in,
					   passed<D> &pass, int warp, int lane)
{
	const uint32_t k = smem_addr(in.k) + swizzle<D>(lane & 15, lane >> 4);
	const uint32_t solve = smem_addr(in.solve) + swizzle<C>(lane & 15, lane >> 4);
	float x[C / 8][4], u[1][C / 8][4];
	uint32_t a[4];

#pragma unroll
	for (int n = 0; n < C / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			x[n][e] = u[0][n][e] = 0;
#pragma unroll
	for (int i = 0; i < D / 16; i++) {
		softmax_operand(a, s[2 * i], s[2 * i + 1]);
		pass.s[i][lane] = make_uint4(a[0], a[1], a[2], a[3]);
		multiply_rows<D>(x, a, k, 0, i);
	}
#pragma unroll
	for (int n = 0; n < C / 8; n++) {
		const float2 f = *reinterpret_cast<const float2 *>(
			&in.gates.from_start[n * 8 + lane % 4 * 2]);

#pragma unroll
		for (int h = 0; h < 2; h++) {
			const uint32_t v = in.v[warp][(n * 2 + h) * 32 + lane];

			x[n][2 * h] = __uint_as_float(v << 16) - f.x * x[n][2 * h];
			x[n][2 * h + 1] =
				__uint_as_float(v & 0xffff0000u) - f.y * x[n][2 * h + 1];
		}
	}
	/* T is a lower triangle. */
#pragma unroll
	for (int i = 0; i < C / 16; i++) {
		softmax_operand(a, x[2 * i], x[2 * i + 1]);
		multiply_rows<C>(u[0], a, solve, i, i);
	}
#pragma unroll
	for (int i = 0; i < C / 16; i++) {
		softmax_operand(a, u[0][2 * i], u[0][2 * i + 1]);
		pass.u[i][lane] = make_uint4(a[0], a[1], a[2], a[3]);
	}
#pragma unroll
	for (int n = 0; n < C / 8; n++) {
		const float2 f = *reinterpret_cast<const float2 *>(
			&in.gates.to_end[n * 8 + lane % 4 * 2]);

#pragma unroll
		for (int e = 0; e < 4; e++)
			u[0][n][e] *= e % 2 ? f.y : f.x;
	}
#pragma unroll
	for (int n = 0; n < D / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			s[n][e] *= in.gates.from_start[C - 1];
	multiply_pv<D>(*reinterpret_cast<float (*)[1][D / 8][4]>(&s), u, k);
}

/* The output of chunk i, before its norm. */
template <int D>
__device__ __forceinline__ void step_out(const delta_args &a, const work &w, int i,
					 const out_stage<D> &in, const passed<D> &pass, int warp,
					 int lane)
{
	const uint32_t q = smem_addr(in.q) + swizzle<D>(lane & 15, lane >> 4);
	const uint32_t mix = smem_addr(in.mix) + swizzle<C>(lane & 15, lane >> 4);
	float o[C / 16][2][4];
	uint32_t x[4];

#pragma unroll
	for (int m = 0; m < C / 16; m++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			o[m][0][e] = o[m][1][e] = 0;
#pragma unroll
	for (int d = 0; d < D / 16; d++) {
		const uint4 s = pass.s[d][lane];

#pragma unroll
		for (int m = 0; m < C / 16; m++) {
			ldmatrix_x4(x, square<D>(q, m * 16, d));
			mma_m16n8k16(o[m][0], x, s.x, s.z);
			mma_m16n8k16(o[m][1], x, s.y, s.w);
		}
	}
#pragma unroll
	for (int m = 0; m < C / 16; m++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const float f = in.from_start[m * 16 + e / 2 * 8 + lane / 4];

			o[m][0][e] *= f;
			o[m][1][e] *= f;
		}
	/* Rows see themselves and the rows before. */
#pragma unroll
	for (int j = 0; j < C / 16; j++) {
		const uint4 u = pass.u[j][lane];

#pragma unroll
		for (int m = j; m < C / 16; m++) {
			ldmatrix_x4(x, square<C>(mix, m * 16, j));
			mma_m16n8k16(o[m][0], x, u.x, u.z);
			mma_m16n8k16(o[m][1], x, u.y, u.w);
		}
	}
#pragma unroll
	for (int m = 0; m < C / 16; m++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			const int row = i * C + m * 16 + h * 8 + lane / 4;
			bf16_t *to = a.c.out +
				     ((int64_t)(w.seq.row + row) * a.c.spec.v_heads + w.head) * D +
				     w.slice * COLS + warp * WARP_COLS + lane % 4 * 2;

			if (row >= w.seq.n_row)
				continue;
#pragma unroll
			for (int n = 0; n < 2; n++)
				*reinterpret_cast<uint32_t *>(to + n * 8) =
					pack_bf16(o[m][n][2 * h], o[m][n][2 * h + 1]);
		}
}

/* Where element (n, e) of this lane's part of the state lies. */
template <int D>
__device__ __forceinline__ float *state_at(const delta_args &a, const work &w, int n, int e,
					   int warp, int lane)
{
	const int i = n * 8 + lane % 4 * 2 + e % 2;
	const int j = w.slice * COLS + warp * WARP_COLS + e / 2 * 8 + lane / 4;

	return a.c.state.s + (((int64_t)w.seq.slot * a.c.spec.v_heads + w.head) * D + i) * D + j;
}

template <int D, int STAGES>
__global__ void __launch_bounds__(THREADS, 1) delta_scan(const delta_args a)
{
	extern __shared__ __align__(128) char smem[];
	scan_smem<D, STAGES> &sm = *reinterpret_cast<scan_smem<D, STAGES> *>(smem);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 2;
	const bool copies = threadIdx.x >= 64;
	work w;
	float s[D / 8][4];

	w.seq = a.b.seq[blockIdx.z];
	w.head = blockIdx.y;
	w.key = w.head / a.group;
	w.slice = blockIdx.x;
	w.n = (w.seq.n_row + C - 1) / C;
	if (copies)
#pragma unroll
		for (int i = 0; i < STAGES - 1; i++)
			copy_step(sm, a, w, i);
	else
#pragma unroll
		for (int n = 0; n < D / 8; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				s[n][e] = w.seq.fresh ? 0 :
					  *state_at<D>(a, w, n, e, warp, lane);
	for (int i = 0; i <= w.n; i++) {
		if (copies)
			cp_async_wait<STAGES - 2>();
		__syncthreads();
		if (!copies) {
			if (i < w.n)
				step_state<D>(s, sm.state[i % STAGES], sm.pass[i % 2][warp], warp,
					      lane);
			continue;
		}
		copy_step(sm, a, w, i + STAGES - 1);
		if (i > 0)
			step_out<D>(a, w, i - 1, sm.out[(i - 1) % STAGES],
				    sm.pass[(i - 1) % 2][warp], warp, lane);
	}
	if (copies)
		return;
#pragma unroll
	for (int n = 0; n < D / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			*state_at<D>(a, w, n, e, warp, lane) = s[n][e];
}

template <int D, int STAGES>
enum ar_status launch(const delta_args &a, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const int bytes = (int)sizeof(scan_smem<D, STAGES>);
	const dim3 grid(D / COLS, a.c.spec.v_heads, a.b.n_seq);

	CU(cudaFuncSetAttribute(delta_scan<D, STAGES>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	delta_scan<D, STAGES><<<grid, THREADS, bytes, (cudaStream_t)a.c.stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

} /* namespace */

enum ar_status delta_scan_enqueue(const struct delta_args *a, struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st = gpu_current(&gpu, err);

	if (st)
		return st;
	if (a->c.spec.k_dim == 64)
		return launch<64, 2>(*a, err);
	return gpu->smem_bytes < sizeof(scan_smem<128, 3>) ? launch<128, 2>(*a, err) :
							     launch<128, 3>(*a, err);
}
