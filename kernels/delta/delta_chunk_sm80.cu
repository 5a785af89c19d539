/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Compute the parts of a chunk that do not depend on the state, for the scan, from q and k; see
 * delta_chunk.cuh.
 *
 * grid (two value heads of a key head, chunk), 8 warps.  Of k k^T and q k^T a warp has 16 x 32 of
 * each, for both heads.
 *
 * Budget: four of the eight warps issue 500 FMA and 140 loads each while the others wait.  Two
 * thread blocks share a multiprocessor, so that one works while the other waits or copies.  At
 * 32 K tokens and 16 key heads of two value heads a multiprocessor has 62 thread blocks.  At 3000
 * cycles for two thread blocks that is 95 K cycles or 0.05 ms; the 0.54 GB take 0.13 ms.
 */
#include "config.h"
#include "kernels/delta/delta_chunk.cuh"

#include "kernels/prim/cuda.h"

namespace {

template <int D> struct chunk_smem {
	bf16_t q[C * D], k[C * D];
	chunk_part part;
};

template <int D> __global__ void __launch_bounds__(THREADS, 2) delta_chunks(const delta_args a)
{
	extern __shared__ __align__(128) char smem[];
	chunk_smem<D> &sm = *reinterpret_cast<chunk_smem<D> *>(smem);
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int row = product_row(), col = product_col();
	const chunk_heads h = heads_of(a);
	const state_chunk chunk = a.b.chunk[blockIdx.y];
	const int64_t tile = (int64_t)blockIdx.y * a.c.spec.k_heads + h.key;
	const uint32_t place = swizzle<D>(lane & 15, lane >> 4);
	float kk[1][4][4], qk[1][4][4];

	for (int i = threadIdx.x; i < C * D / 8; i += THREADS) {
		cp_async_16(smem_addr(sm.q) + i * 16, a.w.q + tile * (C * D) + i * 8, 16);
		cp_async_16(smem_addr(sm.k) + i * 16, a.w.k + tile * (C * D) + i * 8, 16);
	}
	cp_async_commit();
	if (warp < 2 * h.n)
		gates_of(a, chunk, a.b.seq[chunk.seq], h.first + warp / 2, warp % 2 * HALF,
			 sm.part.g[warp / 2], sm.part.beta[warp / 2]);
	cp_async_wait<0>();
	__syncthreads();
	finish_gates(a, h.at, sm.part, h.n);
	multiply_qk<D>(kk, smem_addr(sm.k + row * D) + place, smem_addr(sm.k + col * D) + place);
	multiply_qk<D>(qk, smem_addr(sm.q + row * D) + place, smem_addr(sm.k + col * D) + place);
	__syncthreads();
	finish_chunk(h, sm.part, a.w.mix + h.at * (C * C), a.w.solve + h.at * (C * C), kk[0],
		     qk[0]);
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
