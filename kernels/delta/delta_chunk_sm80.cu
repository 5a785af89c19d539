/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compute the parts of a chunk that do not depend on the state, for the scan: decays, q k^T, and T,
 * the inverse of 1 + L.  L is strictly lower triangular (see delta_device.c).
 *
 * grid (two value heads of a key head, chunk), 8 warps:
 *
 *   k k^T, q k^T   a warp has 16 x 32 of each, for both heads
 *   gates          a warp has a value head, a lane two rows; sums by shuffles
 *   L, mix         from the products; L to shared memory, mix to memory
 *   invert         blocks of 32 on the diagonal: a warp has one, a lane a column, in fp32
 *   T21            = -T22 L21 T11, two products of 32 x 32 by mma in tf32, four warps for a head
 *
 * L lies transposed: all lanes read 4 rows of it at once.  Its upper right block is L21; the lower
 * left is free and takes L21 T11.  Then T21 takes the place of L21.
 *
 * T21 is made in tf32 and not in bf16, as the terms of a product may cancel.  T times beta is
 * rounded to bf16 in the end.
 *
 * Budget: four of the eight warps issue 500 FMA and 140 loads each while the others wait.  Two
 * thread blocks share a multiprocessor, so that one works while the other waits or copies.  At
 * 32 K tokens and 16 key heads of two value heads a multiprocessor has 62 thread blocks.  At 3000
 * cycles for two of them that is 95 K cycles or 0.05 ms; the 0.54 GB take 0.13 ms.
 */
#include "config.h"
#include "kernels/delta/delta_store.cuh"
#include "kernels/delta/delta_work.h"

#include "kernels/prim/cuda.h"
#include "kernels/prim/products.cuh"

namespace {

constexpr int THREADS = 256;
constexpr int C = DELTA_CHUNK;
constexpr int HALF = C / 2;
constexpr int PAIR = 2;			/* value heads at once */
constexpr int STRIDE = C + 4;		/* of L: a multiple of 16 bytes, few bank conflicts */
constexpr float LOG2E = 1.4426950408889634f;

template <int D> struct chunk_smem {
	bf16_t q[C * D], k[C * D];
	float l[PAIR][C][STRIDE];	/* L transposed, then T */
	float g[PAIR][C], beta[PAIR][C];	/* g in units of log2 */
};

/* Sum of x over the lanes up to this one. */
__device__ __forceinline__ float sum_up(float x, int lane)
{
#pragma unroll
	for (int d = 1; d < 32; d *= 2) {
		const float y = __shfl_up_sync(0xffffffff, x, d);

		x += lane >= d ? y : 0;
	}
	return x;
}

/* Decays and beta of a value head, by one warp. */
__device__ __forceinline__ void gates_of(const delta_args &a, int head, float *g, float *beta)
{
	const int lane = threadIdx.x % 32;
	const delta_chunk chunk = a.b.chunk[blockIdx.y];
	const delta_seq seq = a.b.seq[chunk.seq];
	const float rate = -LOG2E * expf(a.c.w.a_log[head]), bias = a.c.w.dt_bias[head];
	delta_gates *to = a.w.gates + (int64_t)blockIdx.y * a.c.spec.v_heads + head;
	float x[2];

#pragma unroll
	for (int i = 0; i < 2; i++) {
		const int at = i * 32 + lane, row = chunk.first + at;

		x[i] = 0;
		beta[at] = 0;
		if (row < seq.n_row) {
			const bf16_t *ba = a.c.ba + (int64_t)(seq.row + row) * a.c.ba_stride + head;
			const float b = __uint_as_float((uint32_t)ba[0] << 16);
			const float v = __uint_as_float((uint32_t)ba[a.c.spec.v_heads] << 16) +
					bias;

			x[i] = rate * (fmaxf(v, 0) + log1pf(expf(-fabsf(v))));
			beta[at] = 1 / (1 + expf(-b));
		}
		x[i] = sum_up(x[i], lane);
	}
	x[1] += __shfl_sync(0xffffffff, x[0], 31);

	const float end = __shfl_sync(0xffffffff, x[1], 31);

#pragma unroll
	for (int i = 0; i < 2; i++) {
		g[i * 32 + lane] = x[i];
		to->from_start[i * 32 + lane] = ex2(x[i]);
		to->to_end[i * 32 + lane] = ex2(end - x[i]);
	}
}

/* L and mix of a value head: the warp's part, rows from `row` and columns from `col` on. */
__device__ __forceinline__ void decay(const float (&kk)[4][4], const float (&qk)[4][4],
				      const float *g, const float *beta, float (*l)[STRIDE],
				      bf16_t *mix, int row, int col)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int n = 0; n < 4; n++)
#pragma unroll
		for (int h = 0; h < 2; h++) {
			const int i = row + h * 8 + lane / 4, j = col + n * 8 + lane % 4 * 2;
			float m[2];

#pragma unroll
			for (int e = 0; e < 2; e++) {
				const float f = i >= j + e ? ex2(g[i] - g[j + e]) : 0;

				m[e] = f * qk[n][2 * h + e];
				l[j + e][i] = i > j + e ? beta[i] * f * kk[n][2 * h + e] : 0;
			}
			*reinterpret_cast<uint32_t *>(
				mix + swizzle<C>(i, j / 8) / 2 + j % 8) = pack_bf16(m[0], m[1]);
		}
}

/* Replace a block of 32 on the diagonal of L, transposed, by the inverse of 1 + L.  By one warp. */
__device__ __forceinline__ void invert(float (*l)[STRIDE], int first)
{
	const int lane = threadIdx.x % 32;
	float x[HALF];

#pragma unroll
	for (int i = 0; i < HALF; i++)
		x[i] = i == lane;
#pragma unroll
	for (int k = 0; k < HALF - 1; k++) {
		if (k % 4 == 0)
			__syncwarp();	/* keeps ptxas from loading everything first */
#pragma unroll
		for (int i = (k + 1) / 4 * 4; i < HALF; i += 4) {
			const float4 y =
				*reinterpret_cast<const float4 *>(&l[first + k][first + i]);

			/* Zeros where i <= k. */
			if (i > k)
				x[i] -= y.x * x[k];
			if (i + 1 > k)
				x[i + 1] -= y.y * x[k];
			if (i + 2 > k)
				x[i + 2] -= y.z * x[k];
			x[i + 3] -= y.w * x[k];
		}
	}
	__syncwarp();
#pragma unroll
	for (int i = 0; i < HALF; i++)
		l[first + i][first + lane] = x[i];
}

/* c = A B for the warp's 16 x 16 of 32 x 32, from (row, col) on; a(i, k) and b(k, j) read. */
template <class A, class B>
__device__ __forceinline__ void multiply_32(float (&c)[2][4], A a, B b, int row, int col)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			c[n][e] = 0;
#pragma unroll
	for (int first = 0; first < HALF; first += 8) {
		const int k = first + t;
		const uint32_t x[4] = { to_tf32(a(row + g, k)), to_tf32(a(row + g + 8, k)),
					to_tf32(a(row + g, k + 4)),
					to_tf32(a(row + g + 8, k + 4)) };

#pragma unroll
		for (int n = 0; n < 2; n++)
			mma_m16n8k8_tf32(c[n], x, to_tf32(b(k, col + n * 8 + g)),
					 to_tf32(b(k + 4, col + n * 8 + g)));
	}
}

/* Write the warp's part of a block; l: its first element. */
__device__ __forceinline__ void store_32(float *l, const float (&c)[2][4], float sign, int row,
					 int col)
{
	const int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;

#pragma unroll
	for (int n = 0; n < 2; n++)
#pragma unroll
		for (int e = 0; e < 4; e++)
			l[(row + g + e / 2 * 8) * STRIDE + col + n * 8 + t * 2 + e % 2] =
				sign * c[n][e];
}

/* Write T times beta as a tile, by all threads. */
__device__ __forceinline__ void store_solve(bf16_t *tile, const float (*l)[STRIDE],
					    const float *beta)
{
	for (int p = threadIdx.x; p < C * C / 8; p += THREADS) {
		const int i = p / 8, j = p % 8 * 8;
		const float *from = i < HALF || j >= HALF ? &l[i][j] : &l[i - HALF][j + HALF];
		float x[8];
		uint32_t w[4];

#pragma unroll
		for (int e = 0; e < 8; e++)
			x[e] = i < HALF && j >= HALF ? 0 : from[e] * beta[j + e];
#pragma unroll
		for (int e = 0; e < 4; e++)
			w[e] = pack_bf16(x[2 * e], x[2 * e + 1]);
		store_words(tile + swizzle<C>(i, j / 8) / 2, w);
	}
}

template <int D> __global__ void __launch_bounds__(THREADS, 2) delta_chunks(const delta_args a)
{
	extern __shared__ __align__(128) char smem[];
	chunk_smem<D> &sm = *reinterpret_cast<chunk_smem<D> *>(smem);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int row = warp % 4 * 16, col = warp / 4 * 32;	/* of the products */
	const int half_row = warp % 4 / 2 * 16, half_col = warp % 2 * 16;
	const int pairs = (a.group - 1) / PAIR + 1, key = blockIdx.x / pairs;
	const int first = blockIdx.x % pairs * PAIR, n = min(PAIR, a.group - first);
	const int head = key * a.group + first;
	const int64_t tile = (int64_t)blockIdx.y * a.c.spec.k_heads + key;
	const int64_t at = (int64_t)blockIdx.y * a.c.spec.v_heads + head;
	const uint32_t place = swizzle<D>(lane & 15, lane >> 4);
	float (*l)[STRIDE] = sm.l[warp / 4];			/* of the warp in T21 */
	float kk[1][4][4], qk[1][4][4], c[2][4];

	for (int i = threadIdx.x; i < C * D / 8; i += THREADS) {
		cp_async_16(smem_addr(sm.q) + i * 16, a.w.q + tile * (C * D) + i * 8, 16);
		cp_async_16(smem_addr(sm.k) + i * 16, a.w.k + tile * (C * D) + i * 8, 16);
	}
	cp_async_commit();
	if (warp < n)
		gates_of(a, head + warp, sm.g[warp], sm.beta[warp]);
	cp_async_wait<0>();
	__syncthreads();
	multiply_qk<D>(kk, smem_addr(sm.k + row * D) + place, smem_addr(sm.k + col * D) + place);
	multiply_qk<D>(qk, smem_addr(sm.q + row * D) + place, smem_addr(sm.k + col * D) + place);
	for (int p = 0; p < n; p++)
		decay(kk[0], qk[0], sm.g[p], sm.beta[p], sm.l[p], a.w.mix + (at + p) * (C * C),
		      row, col);
	__syncthreads();
	if (warp < 2 * n)
		invert(sm.l[warp / 2], warp % 2 * HALF);
	__syncthreads();
	if (warp / 4 < n) {
		multiply_32(c, [=](int i, int k) { return l[k][HALF + i]; },
			    [=](int k, int j) { return l[k][j]; }, half_row, half_col);
		store_32(&l[HALF][0], c, 1, half_row, half_col);
	}
	__syncthreads();
	if (warp / 4 < n) {
		multiply_32(c, [=](int i, int k) { return l[HALF + i][HALF + k]; },
			    [=](int k, int j) { return l[HALF + k][j]; }, half_row, half_col);
		store_32(&l[0][HALF], c, -1, half_row, half_col);
	}
	__syncthreads();
	for (int p = 0; p < n; p++)
		store_solve(a.w.solve + (at + p) * (C * C), sm.l[p], sm.beta[p]);
}

template <int D>
enum ar_status launch(const delta_args &a, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const int bytes = (int)sizeof(chunk_smem<D>);
	const int pairs = (a.group - 1) / PAIR + 1;
	const dim3 grid(a.c.spec.k_heads * pairs, a.b.n_chunk);

	CU(cudaFuncSetAttribute(delta_chunks<D>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				bytes));
	delta_chunks<D><<<grid, THREADS, bytes, (cudaStream_t)a.c.stream>>>(a);
	CU_LAUNCHED();
out:
	return st;
}

} /* namespace */

enum ar_status delta_chunk_enqueue(const struct delta_args *a, struct ar_err *err)
{
	return a->c.spec.k_dim == 64 ? launch<64>(*a, err) : launch<128>(*a, err);
}
