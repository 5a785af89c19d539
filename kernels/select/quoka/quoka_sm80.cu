/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUOKA's scores by mma.sync, on devices before Hopper; quoka.c defines them.
 *
 *   registers   keys 2 x D/16 x 4 = 64 (D 128) or 128 (D 256), accumulators 2 x 2 x 4 = 16:
 *               two blocks of 256 threads a SM, one for D 256
 *   shared      2 x 64 x D x 2 B = 32 KiB (D 128), the same with 32 queries a stage (D 256)
 *   per step    1 ldmatrix.x4 feeds 4 mma: 16 KiB of multiply-adds per 0.5 KiB read
 */
#include "config.h"

#include "kernels/prim/cuda.h"
#include "kernels/prim/products.cuh"
#include "kernels/select/quoka/quoka.cuh"

namespace {

template <int D> constexpr int QUERIES = D == 256 ? 32 : 64;	// of a stage

/* Copy queries [first, first + QUERIES) to a stage.  Past the last query, that query is repeated,
 * which changes no maximum. */
template <int D>
__device__ __forceinline__ void load_queries(bf16_t (&stage)[QUERIES<D> * D],
					     const bf16_t *__restrict__ qbar, int first, int nq)
{
	for (int i = threadIdx.x; i < QUERIES<D> * D / 8; i += QUOKA_THREADS) {
		const int row = i / (D / 8), c = i % (D / 8);

		cp_async_16(smem_addr(stage) + swizzle<D>(row, c),
			    qbar + (size_t)min(first + row, nq - 1) * D + c * 8, 16);
	}
	cp_async_commit();
}

/* Raise the maxima top[m][h], of rows 16m + 8h + g, by the queries of a stage.  at: address of its
 * square 0. */
template <int D>
__device__ __forceinline__ void raise(float (&top)[2][2], const uint32_t (&a)[2][D / 16][4],
				      uint32_t at)
{
#pragma unroll 1
	for (int q = 0; q < QUERIES<D>; q += 16) {
		float acc[2][2][4] = {};

#pragma unroll
		for (int d = 0; d < D / 16; d++) {
			uint32_t b[4];

			ldmatrix_x4(b, square<D>(at, q, d));
#pragma unroll
			for (int m = 0; m < 2; m++) {
				mma_m16n8k16(acc[m][0], a[m][d], b[0], b[2]);
				mma_m16n8k16(acc[m][1], a[m][d], b[1], b[3]);
			}
		}
#pragma unroll
		for (int m = 0; m < 2; m++)
#pragma unroll
			for (int h = 0; h < 2; h++)
#pragma unroll
				for (int n = 0; n < 2; n++)
					top[m][h] = fmaxf(top[m][h], fmaxf(acc[m][n][2 * h],
									   acc[m][n][2 * h + 1]));
	}
}

template <int D>
__global__ void __launch_bounds__(QUOKA_THREADS, D == 256 ? 1 : 2)
quoka_score(const __grid_constant__ struct quoka_job j)
{
	__shared__ __align__(128) bf16_t stage[2][QUERIES<D> * D];
	const int r = blockIdx.z, kv_head = blockIdx.y, ctx = j.b.rows.pos0[r];
	const int lane = threadIdx.x % 32;
	const int key = blockIdx.x * QUOKA_KEYS<2> + threadIdx.x / 32 * 32;
	const int nq = quoka_queries(&j.p, j.b.rows.row0[r + 1] - j.b.rows.row0[r]);
	const bf16_t *qbar = j.w.qbar + ((size_t)kv_head * j.b.rows.n_row + j.b.rows.row0[r]) * D;
	float top[2][2] = { { -INFINITY, -INFINITY }, { -INFINITY, -INFINITY } };
	uint32_t a[2][D / 16][4];

	if ((int)blockIdx.x * QUOKA_KEYS<2> >= ctx)
		return;
	load_queries<D>(stage[0], qbar, 0, nq);
	quoka_unit_keys<D>(a, j, r, kv_head, key);
	for (int first = 0, i = 0; first < nq; first += QUERIES<D>, i ^= 1) {
		cp_async_wait<0>();
		__syncthreads();	// the stage is full, and no warp reads the other one
		if (first + QUERIES<D> < nq)
			load_queries<D>(stage[i ^ 1], qbar, first + QUERIES<D>, nq);
		raise<D>(top, a, smem_addr(stage[i]) + swizzle<D>(lane % 16, lane / 16));
	}
	quoka_store(top, j, r, kv_head, key);
}

template <int D>
enum ar_status launch(const struct quoka_job *j, cudaStream_t stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	quoka_score<D><<<quoka_score_grid<2>(*j), QUOKA_THREADS, 0, stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

}

enum ar_status quoka_score_sm80(const struct quoka_job *j, cudaStream_t stream,
				struct ar_err *err)
{
	switch (j->b.shape.head_dim) {
	case 64:
		return launch<64>(j, stream, err);
	case 128:
		return launch<128>(j, stream, err);
	default:
		return launch<256>(j, stream, err);
	}
}
