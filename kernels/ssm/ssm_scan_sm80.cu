/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The states along each sequence, and the rows before their gate, on all devices.
 *
 * grid (64 channels of a head, sequence), four warps.  A warp has 16 rows of each product; the
 * state of 16 channels, [16][state] in fp32, stays in its accumulators.  C B^T in a warp's
 * accumulators is, decayed, the A operand of the product with x.  So only the state in bf16 goes
 * through shared memory.  See ssm_chunk.cuh for the formulas.
 *
 * A state of 256 leaves room for one stage: then no chunk is loaded ahead.  Half of it is in bf16
 * at once.
 */
#include "config.h"
#include "kernels/ssm/ssm_chunk.cuh"

#include "kernels/prim/cuda.h"
#include "kernels/prim/products.cuh"

namespace {

constexpr int THREADS = 128;
constexpr int SLAB = C * SSM_SLAB;
constexpr int PART = 128;		/* channels of the state that are in bf16 at once */

template <int N> struct stage {
	bf16_t x[SLAB], b[N / SSM_SLAB][SLAB], c[N / SSM_SLAB][SLAB];
};

template <int N> struct scan_smem {
	static constexpr int STAGES = N == 128 ? 2 : 1;
	stage<N> in[STAGES];
	bf16_t h[PART / SSM_SLAB][SLAB];
	ssm_gates gates;
};
static_assert(sizeof(scan_smem<128>) <= 99 * 1024 && sizeof(scan_smem<256>) <= 99 * 1024,
	      "shared memory of a thread block on 8.6");

struct work {
	state_seq seq;
	int head, slice, n;	/* n: chunks */
};

template <int N>
__device__ __forceinline__ void copy_slabs(bf16_t *to, const ssm_args &a, int chunk, int slab)
{
	const bf16_t *from = a.w.slab +
			     ((int64_t)chunk * (a.channels / SSM_SLAB) + slab) * SLAB;

#pragma unroll
	for (int i = 0; i < N * SLAB / 8; i += THREADS)
		cp_async_16(smem_addr(to) + (i + threadIdx.x) * 16, from + (i + threadIdx.x) * 8,
			    16);
}

/* Start the copies of chunk i, if there is one. */
template <int N>
__device__ __forceinline__ void copy_chunk(stage<N> &to, const ssm_args &a, const work &w, int i)
{
	constexpr int SLABS = N / SSM_SLAB;
	const int own = w.head / a.group * SLABS, x = a.inner / SSM_SLAB;

	if (i < w.n) {
		copy_slabs<1>(to.x, a, w.seq.chunk0 + i,
			      w.head * (a.c.spec.head_dim / SSM_SLAB) + w.slice);
		copy_slabs<SLABS>(to.b[0], a, w.seq.chunk0 + i, x + own);
		copy_slabs<SLABS>(to.c[0], a, w.seq.chunk0 + i,
				  x + a.c.spec.groups * SLABS + own);
	}
	cp_async_commit();
}

/* By the first warp. */
__device__ __forceinline__ void read_gates(ssm_gates &g, const ssm_args &a, const work &w, int i)
{
	const int first = i * C, row = first + threadIdx.x * 2;
	float dt[2];

#pragma unroll
	for (int j = 0; j < 2; j++)
		dt[j] = row + j < w.seq.n_row ?
			__uint_as_float((uint32_t)a.c.in[(int64_t)(w.seq.row + row + j) *
							 a.c.in_stride + a.inner + a.channels +
							 w.head] << 16) : 0;
	make_gates(g, a, head_of(a, w.head), dt, w.seq.n_row - first);
}

/* Write channels of the state, h[n] for 8 of them, as the B operand of the next product. */
__device__ __forceinline__ void store_state(bf16_t (&to)[PART / SSM_SLAB][SLAB],
					    const float (*h)[4], int warp, int lane)
{
#pragma unroll
	for (int n = 0; n < PART / 8; n++)
#pragma unroll
		for (int r = 0; r < 2; r++)
			*reinterpret_cast<uint32_t *>(
				to[n / 8] +
				swizzle<SSM_SLAB>(warp * 16 + r * 8 + lane / 4, n % 8) / 2 +
				lane % 4 * 2) = pack_bf16(h[n][2 * r], h[n][2 * r + 1]);
}

/* c += a B^T for 64 rows of B in slabs, columns from 16 d on. */
__device__ __forceinline__ void multiply_rows(float (&c)[C / 8][4], const uint32_t (&a)[4],
					      uint32_t b, int d)
{
#pragma unroll
	for (int n = 0; n < C / 16; n++) {
		uint32_t x[4];

		ldmatrix_x4(x, slab_square<C>(b, n * 16, d));
		mma_m16n8k16(c[2 * n], a, x[0], x[2]);
		mma_m16n8k16(c[2 * n + 1], a, x[1], x[3]);
	}
}

/* c += a B for rows [16 k, + 16) of B in slabs. */
template <int N>
__device__ __forceinline__ void multiply_cols(float (&c)[N / 8][4], const uint32_t (&a)[4],
					      uint32_t b, int k)
{
#pragma unroll
	for (int d = 0; d < N / 16; d++) {
		uint32_t x[4];

		ldmatrix_x4_trans(x, slab_square<C>(b, k * 16, d));
		mma_m16n8k16(c[2 * d], a, x[0], x[1]);
		mma_m16n8k16(c[2 * d + 1], a, x[2], x[3]);
	}
}

/* Write the rows of chunk i, before their gate. */
__device__ __forceinline__ void store_rows(const float (&y)[C / 8][4], const ssm_args &a,
					   const work &w, int i, int warp, int lane)
{
#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int row = i * C + warp * 16 + r * 8 + lane / 4;
		bf16_t *to = a.c.out + (int64_t)(w.seq.row + row) * a.inner +
			     w.head * a.c.spec.head_dim + w.slice * SSM_SLAB + lane % 4 * 2;

		if (row >= w.seq.n_row)
			continue;
#pragma unroll
		for (int n = 0; n < C / 8; n++)
			*reinterpret_cast<uint32_t *>(to + n * 8) =
				pack_bf16(y[n][2 * r], y[n][2 * r + 1]);
	}
}

/* The rows of a chunk, and the state after it. */
template <int N>
__device__ __forceinline__ void step(float (&y)[C / 8][4], float (&h)[N / 8][4],
				     const stage<N> &in, bf16_t (&state)[PART / SSM_SLAB][SLAB],
				     const ssm_gates &gates, float d, int warp, int lane)
{
	const uint32_t place = swizzle<SSM_SLAB>(lane & 15, lane >> 4);
	const uint32_t rows = smem_addr(in.c) + warp * (16 * SSM_SLAB * 2) + place;
	float cb[C / 8][4] = {};
	uint32_t m[C / 16][4], w[4];

#pragma unroll
	for (int n = 0; n < C / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			y[n][e] = 0;
#pragma unroll
	for (int part = 0; part < N / PART; part++) {
		if (part)
			__syncthreads();
		store_state(state, &h[part * (PART / 8)], warp, lane);
		__syncthreads();
#pragma unroll 4
		for (int k = 0; k < PART / 16; k++) {
			uint32_t c[4];

			ldmatrix_x4(c, slab_square<C>(rows, 0, part * (PART / 16) + k));
			multiply_rows(cb, c, smem_addr(in.b) + place, part * (PART / 16) + k);
			multiply_rows(y, c, smem_addr(state) + place, k);
		}
	}
#pragma unroll
	for (int half = 0; half < 2; half++)
		mask(&m[half * (C / 32)], cb[half * (C / 16)], gates, d, half);
	const float2 from = from_start(gates);
	const float end = ex2(gates.sum[C - 1]);

#pragma unroll
	for (int n = 0; n < C / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			y[n][e] *= e < 2 ? from.x : from.y;
#pragma unroll
	for (int n = 0; n < N / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			h[n][e] *= end;
#pragma unroll
	for (int k = 0; k < C / 16; k++) {
		multiply_cols<SSM_SLAB>(y, m[k], smem_addr(in.x) + place, k);
		weigh_x(w, x_place(in.x), gates, k);
		multiply_cols<N>(h, w, smem_addr(in.b) + place, k);
	}
}

template <int N> __global__ void __launch_bounds__(THREADS, 1) ssm_scan(const ssm_args a)
{
	constexpr int STAGES = scan_smem<N>::STAGES;
	extern __shared__ __align__(1024) char smem[];
	scan_smem<N> &sm = *reinterpret_cast<scan_smem<N> *>(smem);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int slices = a.c.spec.head_dim / SSM_SLAB;
	float h[N / 8][4], y[C / 8][4];
	work w;

	w.seq = a.b.seq[blockIdx.y];
	w.head = blockIdx.x / slices;
	w.slice = blockIdx.x % slices;
	w.n = (w.seq.n_row + C - 1) / C;
	float *slot = a.c.state.h + ((int64_t)w.seq.slot * a.c.spec.heads + w.head) *
				    a.c.spec.head_dim * N;
#pragma unroll
	for (int n = 0; n < N / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			h[n][e] = w.seq.fresh ? 0 : *state_at(slot, N, w.slice, n, e);
	for (int i = 0; i < STAGES - 1; i++)
		copy_chunk(sm.in[i], a, w, i);
	for (int i = 0; i < w.n; i++) {
		copy_chunk(sm.in[(i + STAGES - 1) % STAGES], a, w, i + STAGES - 1);
		if (warp == 0)
			read_gates(sm.gates, a, w, i);
		cp_async_wait<STAGES - 1>();
		step<N>(y, h, sm.in[i % STAGES], sm.h, sm.gates, a.c.w.d[w.head], warp, lane);
		__syncthreads();
		store_rows(y, a, w, i, warp, lane);
	}
#pragma unroll
	for (int n = 0; n < N / 8; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			*state_at(slot, N, w.slice, n, e) = h[n][e];
}

template <int N> enum ar_status launch(const ssm_args &a, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const int bytes = (int)sizeof(scan_smem<N>);
	const dim3 grid(a.inner / SSM_SLAB, a.b.n_seq);

	CU(cudaFuncSetAttribute(ssm_scan<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	ssm_scan<N><<<grid, THREADS, bytes, (cudaStream_t)a.c.stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

} /* namespace */

enum ar_status ssm_scan_enqueue(const struct ssm_args *a, struct ar_err *err)
{
	return a->c.spec.state == 128 ? launch<128>(*a, err) : launch<256>(*a, err);
}
