/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The parts of a chunk that do not depend on the state, from the products of its keys and queries:
 * decays, mix, and T, the inverse of 1 + L.  L is strictly lower triangular (see delta_device.c).
 * A thread block of 8 warps has up to two value heads of a key head:
 *
 *   gates          a warp has 32 rows of a value head; sums by shuffles
 *   L, mix         from the products; L to shared memory, mix to memory
 *   invert         blocks of 32 on the diagonal: a warp has one, a lane a column, in fp32
 *   T21            = -T22 L21 T11, two products of 32 x 32 by mma in tf32, four warps for a head
 *
 * L lies transposed: all lanes read 4 rows of it at once.  Its upper right block is L21; the lower
 * left is free and takes L21 T11.  Then T21 takes the place of L21.
 *
 * T21 is made in tf32 and not in bf16, as the terms of a product may cancel.  T times beta is
 * rounded to bf16 in the end.
 */
#ifndef AR_DELTA_CHUNK_CUH
#define AR_DELTA_CHUNK_CUH

#include "kernels/state/state_store.cuh"
#include "kernels/delta/delta_work.h"

#include "kernels/prim/products.cuh"

namespace {

constexpr int THREADS = 256;
constexpr int C = STATE_CHUNK;
constexpr int HALF = C / 2;
constexpr int PAIR = 2;			/* value heads at once */
constexpr int STRIDE = C + 4;		/* of L: a multiple of 16 bytes, few bank conflicts */
constexpr float LOG2E = 1.4426950408889634f;

/* Read threadIdx.x anew, so that the compiler keeps no value made from it in a register. */
__device__ __forceinline__ int thread(void)
{
	int r;

	asm volatile("mov.u32 %0, %%tid.x;" : "=r"(r));
	return r;
}

/* Of the value heads of a thread block. */
struct chunk_part {
	float l[PAIR][C][STRIDE];	/* L transposed, then T */
	float g[PAIR][C];		/* of gates_of(), in units of log2 */
	float sum[PAIR][C];		/* the same from the chunk's first row on */
	float beta[PAIR][C];
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

/* Decays and beta of 32 rows of a value head, by one warp.  g: sums from the first of the 32 on. */
__device__ __forceinline__ void gates_of(const delta_args &a, const state_chunk &chunk,
					 const state_seq &seq, int head, int first, float *g,
					 float *beta)
{
	const int lane = threadIdx.x % 32, at = first + lane, row = chunk.first + at;
	float x = 0, rate = 0;

	if (row < seq.n_row) {
		const bf16_t *ba = a.c.ba + (int64_t)(seq.row + row) * a.c.ba_stride + head;
		const float b = __uint_as_float((uint32_t)ba[0] << 16);
		const float v = __uint_as_float((uint32_t)ba[a.c.spec.v_heads] << 16) +
				a.c.w.dt_bias[head];

		x = -LOG2E * expf(a.c.w.a_log[head]) * (fmaxf(v, 0) + log1pf(expf(-fabsf(v))));
		rate = 1 / (1 + expf(-b));
	}
	g[at] = sum_up(x, lane);
	beta[at] = rate;
}

/* Complete the sums of n value heads, and write their decays, by 64 n threads.  at: of the first
 * head in gates. */
__device__ __forceinline__ void finish_gates(const delta_args &a, int64_t at, chunk_part &p, int n)
{
	const int head = threadIdx.x / C, i = threadIdx.x % C;
	delta_gates *to = a.w.gates + at + head;

	if (head >= n)
		return;
	const float before = p.g[head][HALF - 1], end = before + p.g[head][C - 1];
	const float g = p.g[head][i] + (i < HALF ? 0 : before);

	to->from_start[i] = ex2(g);
	to->to_end[i] = ex2(end - g);
	p.sum[head][i] = g;
}

/* Whether a warp's part of the products, rows from `row` and columns from `col` on, lies above the
 * diagonal. */
__device__ __forceinline__ bool is_above(int row, int col)
{
	return col >= row + 16;
}

/* Make the products 0 above the diagonal; k k^T on it, too. */
__device__ __forceinline__ void cut_products(float (&kk)[4][4], float (&qk)[4][4], int row, int col)
{
	const int lane = threadIdx.x % 32, from = row + lane / 4 - col - lane % 4 * 2;

	if (col + HALF <= row)
		return;
#pragma unroll
	for (int n = 0; n < 4; n++)
#pragma unroll
		for (int e = 0; e < 4; e++) {
			const int below = from + e / 2 * 8 - n * 8 - e % 2;

			qk[n][e] = below >= 0 ? qk[n][e] : 0;
			kk[n][e] = below > 0 ? kk[n][e] : 0;
		}
}

/* L and mix of a value head: the warp's part, rows from `row` and columns from `col` on. */
__device__ __forceinline__ void decay(const float (&kk)[4][4], const float (&qk)[4][4],
				      const float *g, const float *beta, float (*l)[STRIDE],
				      bf16_t *mix, int row, int col)
{
	const int lane = threadIdx.x % 32, from = row + lane / 4, to = col + lane % 4 * 2;
	const float rows[2] = { g[from], g[from + 8] }, rates[2] = { beta[from], beta[from + 8] };
	char *words = (char *)mix + from * (C * 2) + lane % 4 * 4;

#pragma unroll
	for (int n = 0; n < 4; n++) {
		const float2 cols = *reinterpret_cast<const float2 *>(&g[to + n * 8]);
		char *word = words + ((col / 8 + n) ^ (from % 8)) * 16;

#pragma unroll
		for (int h = 0; h < 2; h++) {
			const int i = from + h * 8, j = to + n * 8;
			/* Sums fall from row to row: above the diagonal a decay would exceed 1. */
			const float x = ex2(fminf(rows[h] - cols.x, 0));
			const float y = ex2(fminf(rows[h] - cols.y, 0));

			*reinterpret_cast<uint32_t *>(word + h * (8 * C * 2)) =
				pack_bf16(x * qk[n][2 * h], y * qk[n][2 * h + 1]);
			l[j][i] = x * (rates[h] * kk[n][2 * h]);
			l[j + 1][i] = y * (rates[h] * kk[n][2 * h + 1]);
		}
	}
}

/* Make a warp's part of mix 0, which lies above the diagonal. */
__device__ __forceinline__ void clear_mix(bf16_t *mix, int row, int col)
{
	const int lane = threadIdx.x % 32;

#pragma unroll
	for (int i = 0; i < 16; i += 8)
		*reinterpret_cast<uint4 *>(
			(char *)mix + swizzle<C>(row + i + lane / 4, col / 8 + lane % 4)) = uint4{};
}

/* Replace a block of 32 on the diagonal of L, transposed, by the inverse of 1 + L.  By one warp. */
__device__ __forceinline__ void invert(float (*l)[STRIDE], int first)
{
	const int column = threadIdx.x % 32;
	float x[HALF];

#pragma unroll
	for (int i = 0; i < HALF; i++)
		x[i] = i == column;
#pragma unroll
	for (int k = 0; k < HALF - 1; k++) {
		if (k % 2 == 0)
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

	const int lane = thread() % 32;
#pragma unroll
	for (int i = 0; i < HALF; i++)
		l[first + i][first + lane] = x[i];
}

/* Round x to tf32, and leave the lowest bits, which mma does not read.  x is finite; to_tf32()
 * takes infinities and NaNs, too. */
__device__ __forceinline__ uint32_t near_tf32(float x)
{
	return __float_as_uint(x) + 0x1000;
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
		const uint32_t x[4] = { near_tf32(a(row + g, k)), near_tf32(a(row + g + 8, k)),
					near_tf32(a(row + g, k + 4)),
					near_tf32(a(row + g + 8, k + 4)) };

#pragma unroll
		for (int n = 0; n < 2; n++)
			mma_m16n8k8_tf32(c[n], x, near_tf32(b(k, col + n * 8 + g)),
					 near_tf32(b(k + 4, col + n * 8 + g)));
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

constexpr int LANES = C / 4;		/* of a row of T times beta */
constexpr int STEP = THREADS / LANES;	/* rows at once */

/* A thread's part of T times beta: four columns of each row. */
struct solve_part {
	uint2 row[C / STEP];
};

__device__ __forceinline__ solve_part load_solve(const float (*l)[STRIDE], const float *beta)
{
	const int j = threadIdx.x % LANES * 4;
	const float4 b = *reinterpret_cast<const float4 *>(beta + j);
	const bool right = j >= HALF;
	solve_part s;

#pragma unroll
	for (int first = 0; first < C; first += STEP) {
		const int i = first + threadIdx.x / LANES;
		const float4 x = *reinterpret_cast<const float4 *>(
			first < HALF || right ? &l[i][j] : &l[i - HALF][j + HALF]);

		s.row[first / STEP] = make_uint2(pack_bf16(x.x * b.x, x.y * b.y),
						 pack_bf16(x.z * b.z, x.w * b.w));
		if (first < HALF && right)
			s.row[first / STEP] = make_uint2(0, 0);
	}
	return s;
}

/* Write the thread's part of T times beta to a tile; by all threads. */
__device__ __forceinline__ void store_solve(bf16_t *tile, const solve_part &s)
{
	const int j = threadIdx.x % LANES * 4;

#pragma unroll
	for (int first = 0; first < C; first += STEP)
		*reinterpret_cast<uint2 *>(
			tile + swizzle<C>(first + threadIdx.x / LANES, j / 8) / 2 + j % 8) =
			s.row[first / STEP];
}

/* The heads of a thread block. */
struct chunk_heads {
	int key, n;			/* n: value heads */
	int first;			/* value head, the first of n */
	int64_t at;			/* of the first: chunk * v_heads + head */
};

__device__ __forceinline__ chunk_heads heads_of(const delta_args &a)
{
	const int pairs = (a.group - 1) / PAIR + 1, pair = blockIdx.x % pairs * PAIR;
	chunk_heads h;

	h.key = blockIdx.x / pairs;
	h.n = min(PAIR, a.group - pair);
	h.first = h.key * a.group + pair;
	h.at = (int64_t)blockIdx.y * a.c.spec.v_heads + h.first;
	return h;
}

/* Where a warp's part of the products begins: 16 rows and 32 columns. */
__device__ __forceinline__ int product_row()
{
	return threadIdx.x / 32 % 4 * 16;
}

__device__ __forceinline__ int product_col()
{
	return threadIdx.x / 128 * 32;
}

/* T21 of the heads, from the inverses of both blocks on the diagonal, by all threads. */
__device__ __forceinline__ void finish_inverse(chunk_part &p, int n)
{
	const int warp = thread() / 32, row = warp % 4 / 2 * 16, col = warp % 2 * 16;
	float (*l)[STRIDE] = p.l[warp / 4];
	float c[2][4];

	if (warp / 4 < n) {
		multiply_32(c, [=](int i, int k) { return l[k][HALF + i]; },
			    [=](int k, int j) { return l[k][j]; }, row, col);
		store_32(&l[HALF][0], c, 1, row, col);
	}
	__syncthreads();
	if (warp / 4 < n) {
		multiply_32(c, [=](int i, int k) { return l[HALF + i][HALF + k]; },
			    [=](int k, int j) { return l[HALF + k][j]; }, row, col);
		store_32(&l[0][HALF], c, -1, row, col);
	}
}

/* From the products k k^T and q k^T of the warp on, by all threads; finish_gates() has run.  Tiles
 * of the heads go to mix and solve, one after another.  solve may have the place of p.l. */
__device__ __forceinline__ void finish_chunk(const chunk_heads &h, chunk_part &p, bf16_t *mix,
					     bf16_t *solve, float (&kk)[4][4], float (&qk)[4][4])
{
	const int warp = threadIdx.x / 32;
	solve_part t[PAIR];

	if (is_above(product_row(), product_col())) {
		for (int i = 0; i < h.n; i++)
			clear_mix(mix + i * (C * C), product_row(), product_col());
	} else {
		cut_products(kk, qk, product_row(), product_col());
#pragma unroll
		for (int i = 0; i < PAIR; i++)
			if (i < h.n)
				decay(kk, qk, p.sum[i], p.beta[i], p.l[i], mix + i * (C * C),
				      product_row(), product_col());
	}
	__syncthreads();
	if (warp < 2 * h.n)
		invert(p.l[warp / 2], warp % 2 * HALF);
	__syncthreads();
	finish_inverse(p, h.n);
	__syncthreads();
#pragma unroll
	for (int i = 0; i < PAIR; i++)
		if (i < h.n)
			t[i] = load_solve(p.l[i], p.beta[i]);
	__syncthreads();
#pragma unroll
	for (int i = 0; i < PAIR; i++)
		if (i < h.n)
			store_solve(solve + i * (C * C), t[i]);
}

} /* namespace */

#endif
