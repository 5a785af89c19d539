/* SPDX-License-Identifier: Apache-2.0 */
/*
 * QUOKA's scores on Hopper; quoka.c defines them.
 *
 * A thread block keeps 256 keys in registers, or 128 if there would be few thread blocks.  A thread
 * has 64 bytes of a key.  qbar comes through two stages of shared memory, 64 queries each.  For 64
 * keys of a warp group and 64 queries:
 *
 *   wgmma m64n64k16     keys from registers, 32 cycles for each 16 channels
 *   maximum             32 values a thread
 *
 * Budget for eight chunks of 1024 at 128 Ki, four KV heads, D 128, nq 256: 275 GFLOP, 0.35 ms at
 * 800 TFLOP/s; 1.1 GB of keys, 0.25 ms, and as much of qbar from the L2 cache, 0.2 ms; a maximum
 * for each of 1.1 G products, 0.07 ms.  A multiprocessor has two thread blocks, so that one loads
 * and scales its keys while the other multiplies.  Of their four warp groups, one can multiply
 * while three compute maxima.
 *
 *   registers   keys 64 (D 128) or 128 (D 256), accumulators 32
 *   shared      2 x 64 x D x 2 B = 32 KiB (D 128)
 */
#include "config.h"

#include "kernels/prim/cuda.h"
#include "kernels/prim/sm90.cuh"
#include "kernels/select/quoka/quoka.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int QUERIES = 64;		// of a stage
constexpr int COLS = 64;		// of a swizzled slab: 128 bytes
constexpr int FEW = 132;		// thread blocks that do not fill a GPU: M is 1

template <int D> struct alignas(1024) stages {
	bf16_t q[2][D / COLS][QUERIES][COLS];
};
template <int D> constexpr int SMEM_BYTES = sizeof(struct stages<D>) + 1024;

/* Copy queries [first, first + QUERIES) to a stage.  Past the last query, that query is repeated,
 * which changes no maximum. */
template <int D>
__device__ __forceinline__ void load_queries(bf16_t (&stage)[D / COLS][QUERIES][COLS],
					     const bf16_t *__restrict__ qbar, int first, int nq)
{
#pragma unroll 1
	for (int k = 0; k < QUERIES * D / 8 / QUOKA_THREADS; k++) {
		const int i = k * QUOKA_THREADS + threadIdx.x, row = i / (D / 8), c = i % (D / 8);

		cp_async_16(smem_addr(stage[c / 8]) + swizzle<COLS>(row, c % 8),
			    qbar + (size_t)min(first + row, nq - 1) * D + c * 8, 16);
	}
	cp_async_commit();
}

/* Raise the maxima top[h], of rows 8h + g, by the queries of a stage. */
template <int D>
__device__ __forceinline__ void raise(float (&top)[2], const uint32_t (&a)[D / 16][4],
				      const bf16_t (&stage)[D / COLS][QUERIES][COLS])
{
	float acc[QUERIES / 2];

	wgmma_fence();
#pragma unroll
	for (int d = 0; d < D / 16; d++)
		wgmma_m64n64k16_rs_rows(acc, a[d],
					wgmma_desc(&stage[d / 4][0][d % 4 * 16], 16, 1024), d != 0);
	wgmma_commit();
	wgmma_wait<0>();
	hold<QUERIES / 2>(acc);
#pragma unroll
	for (int i = 0; i < QUERIES / 8; i++)
#pragma unroll
		for (int h = 0; h < 2; h++)
			top[h] = fmaxf(top[h], fmaxf(acc[4 * i + 2 * h], acc[4 * i + 2 * h + 1]));
}

template <int D, int M>
__global__ void __launch_bounds__(QUOKA_THREADS, D == 256 ? 1 : 2)
score_wgmma(const __grid_constant__ struct quoka_job j)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	struct stages<D> &sm = *(struct stages<D> *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
	const int r = blockIdx.z, kv_head = blockIdx.y;
	const int key = blockIdx.x * QUOKA_KEYS<M> + threadIdx.x / 32 * (16 * M);
	const int nq = quoka_queries(&j.p, j.b.rows.row0[r + 1] - j.b.rows.row0[r]);
	const bf16_t *qbar = j.w.qbar + ((size_t)kv_head * j.b.rows.n_row + j.b.rows.row0[r]) * D;
	uint32_t a[M][D / 16][4];
	float top[M][2];

	if ((int)blockIdx.x * QUOKA_KEYS<M> >= j.b.rows.pos0[r])
		return;
#pragma unroll
	for (int m = 0; m < M; m++)
		top[m][0] = top[m][1] = -INFINITY;
	load_queries<D>(sm.q[0], qbar, 0, nq);
	quoka_unit_keys<D>(a, j, r, kv_head, key);
	for (int first = 0, i = 0; first < nq; first += QUERIES, i ^= 1) {
		cp_async_wait<0>();
		fence_proxy_async();
		__syncthreads();	// the stage is full, and no warp reads the other one
		if (first + QUERIES < nq)
			load_queries<D>(sm.q[i ^ 1], qbar, first + QUERIES, nq);
#pragma unroll
		for (int m = 0; m < M; m++)
			raise<D>(top[m], a[m], sm.q[i]);
	}
	quoka_store(top, j, r, kv_head, key);
#else
	__trap();
#endif
}

template <int D, int M>
enum ar_status launch(const struct quoka_job *j, cudaStream_t stream, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(score_wgmma<D, M>, cudaFuncAttributeMaxDynamicSharedMemorySize,
				SMEM_BYTES<D>));
	score_wgmma<D, M><<<quoka_score_grid<M>(*j), QUOKA_THREADS, SMEM_BYTES<D>, stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

template <int D>
enum ar_status launch_dim(const struct quoka_job *j, cudaStream_t stream, struct ar_err *err)
{
	const dim3 grid = quoka_score_grid<2>(*j);

	return (int64_t)grid.x * grid.y * grid.z <= FEW ? launch<D, 1>(j, stream, err) :
							  launch<D, 2>(j, stream, err);
}

}

enum ar_status quoka_score_sm90(const struct quoka_job *j, cudaStream_t stream,
				struct ar_err *err)
{
	switch (j->b.shape.head_dim) {
	case 64:
		return launch_dim<64>(j, stream, err);
	case 128:
		return launch_dim<128>(j, stream, err);
	default:
		return launch_dim<256>(j, stream, err);
	}
}
