/* SPDX-License-Identifier: Apache-2.0 */
/*
 * q and k, and the parts of a chunk that do not depend on the state, for delta_scan_sm90.cu.
 *
 * grid (two value heads of a key head, chunk), 8 warps.  First convolution, SiLU and norms of the
 * chunk's k and q, a warp 8 rows of each, to shared memory; TMA stores them from there.  Then as in
 * delta_chunk_sm80.cu, see delta_chunk.cuh: of k k^T and q k^T a warp has 16 x 32 of each.  mix and
 * L take the places of q and k in shared memory, and solve that of L.  TMA stores mix and solve.
 *
 * Tiles of q and k lie in slabs of 64 columns of all rows, as wgmma reads them.
 *
 * At 32 Ki rows, 16 key and 32 value heads of 128 this reads 0.27 GB and writes 0.54 GB: 0.2 ms at
 * 4 TB/s.  Measured on an H200, in us:
 *
 *   stores of mix and solve by threads, 2 thread blocks on a multiprocessor   426
 *   stores by TMA, 3 thread blocks; norms of 8 rows in one exchange           346
 *   decays by four warps, not two                                             327
 *   solve written without bank conflicts                                      322
 *   decays above the diagonal left out, the triangle cut once for both heads,
 *     tf32 rounded in one instruction                                         310, from 316 then
 *   L in the place of k: 4 thread blocks of 64 registers a thread               301, from 309 then
 *
 * 61 of 100 issue slots were used with 3: 22 K instructions a thread block, of which 10 K are for
 * convolution and norms.  The inverse and the products after it leave half of the warps waiting.
 *
 * Failed experiment: fp32 inverts blocks of 16 on the diagonal, and products in tf32 the rest of
 * each block of 32.  There are no decays where all of a warp's part lies above the diagonal.  That
 * is 24 us less of the whole prefill, but the mean error of `repeat` grows by up to 8 %.
 * B operands by ldmatrix in pairs, which spares 125 moves a warp: as long as before.
 */
#include "config.h"
#include "kernels/delta/delta_chunk.cuh"
#include "kernels/delta/delta_rows.cuh"

#include "kernels/prim/cuda.h"
#include "kernels/prim/sm90.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int D = 128;
constexpr int SLAB = 64;		/* columns */
constexpr int ROWS = 8;			/* of a warp */
constexpr int N = D / 32;		/* channels of a lane */
constexpr int PER_SM = 4;		/* thread blocks */

/* After the products mix and part.l take the memory of q and k, and solve that of part.l. */
struct alignas(128) keys_smem {
	union {
		struct {
			bf16_t q[D / SLAB][C][SLAB], k[D / SLAB][C][SLAB];
		} rows;
		struct {
			bf16_t mix[PAIR][C * C];
			chunk_part part;
		} tiles;
	};
	chunk_heads heads;		/* for the end: until then registers are scarce */
};

static_assert(offsetof(keys_smem, tiles.part.g) >= sizeof(keys_smem::rows),
	      "gates are made beside q and k");

/* Write the warp's rows of q or k, divided by their norms. */
__device__ __forceinline__ void store_rows(bf16_t (&tile)[D / SLAB][C][SLAB],
					   const float (&y)[ROWS][N], float factor)
{
	const int warp = threadIdx.x / 32, channel = threadIdx.x % 32 * N;
	float scale[ROWS];

	norms(scale, y, factor);
#pragma unroll
	for (int i = 0; i < ROWS; i++)
		*reinterpret_cast<uint2 *>(
			&tile[channel / SLAB][0][0] +
			swizzle<SLAB>(warp * ROWS + i, channel % SLAB / 8) / 2 + channel % 8) =
			make_uint2(pack_bf16(y[i][0] * scale[i], y[i][1] * scale[i]),
				   pack_bf16(y[i][2] * scale[i], y[i][3] * scale[i]));
}

__global__ void __launch_bounds__(THREADS, PER_SM) delta_keys_sm90(const delta_args a)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ __align__(128) char smem[];
	keys_smem &sm = *reinterpret_cast<keys_smem *>(smem);
	chunk_part &part = sm.tiles.part;
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const chunk_heads h = heads_of(a);
	const state_chunk chunk = a.b.chunk[blockIdx.y];
	const state_seq seq = a.b.seq[chunk.seq];
	const int first = chunk.first + warp * ROWS, channel = h.key * D + lane * N;
	const bf16_t *conv = a.c.w.conv + channel * STATE_CONV;
	taps<N, ROWS> t;
	float y[ROWS][N];

	grid_launch_next();	/* the scan, where no thread block is left to start */
	if (blockIdx.x == 0 && blockIdx.y == 0 && threadIdx.x < 2 * DELTA_CLUSTERS)
		a.w.stored[threadIdx.x] = 0;
	if (threadIdx.x == 0)
		sm.heads = h;
	if (warp < 2 * h.n)
		gates_of(a, chunk, seq, h.first + warp / 2, warp % 2 * HALF, part.g[warp / 2],
			 part.beta[warp / 2]);
	load_taps(t, delta_conv_of(&a.c), seq, first, a.c.spec.k_heads * D + channel);
	convolve(y, t, load<N * STATE_CONV>(conv + a.c.spec.k_heads * D * STATE_CONV),
		 pack<N>{}, seq.n_row - first);
	store_rows(sm.rows.k, y, 1);
	load_taps(t, delta_conv_of(&a.c), seq, first, channel);
	convolve(y, t, load<N * STATE_CONV>(conv), pack<N>{}, seq.n_row - first);
	store_rows(sm.rows.q, y, rsqrtf((float)D));
	fence_proxy_async();
	__syncthreads();
	finish_gates(a, h.at, part, h.n);
	if (threadIdx.x == 0 && h.first == h.key * a.group) {
		const int64_t tile = ((int64_t)blockIdx.y * a.c.spec.k_heads + h.key) * (C * D);

		bulk_store(a.w.q + tile, sm.rows.q, sizeof sm.rows.q);
		bulk_store(a.w.k + tile, sm.rows.k, sizeof sm.rows.k);
	}

	const uint32_t k = smem_addr(sm.rows.k) + swizzle<SLAB>(thread() & 15, thread() % 32 / 16);
	float kk[4][4] = {}, qk[4][4] = {};

	/* The rest is above the diagonal. */
	if (product_col() < product_row() + 16)
#pragma unroll
		for (int d = 0; d < D / 16; d++) {
			uint32_t x[4], y[4], b[4];

			ldmatrix_x4(x, slab_square<C>(k, product_row(), d));
			/* q lies before k: a register has both addresses. */
			ldmatrix_x4(y, slab_square<C>(k, product_row(), d) -
					       (uint32_t)sizeof sm.rows.q);
#pragma unroll
			for (int n = 0; n < 2; n++) {
				ldmatrix_x4(b, slab_square<C>(k, product_col() + n * 16, d));
				mma_m16n8k16(kk[2 * n], x, b[0], b[2]);
				mma_m16n8k16(kk[2 * n + 1], x, b[1], b[3]);
				mma_m16n8k16(qk[2 * n], y, b[0], b[2]);
				mma_m16n8k16(qk[2 * n + 1], y, b[1], b[3]);
			}
		}
	if (threadIdx.x == 0)
		bulk_store_wait();
	__syncthreads();

	bf16_t *solve = (bf16_t *)part.l;

	finish_chunk(sm.heads, part, sm.tiles.mix[0], solve, kk, qk);
	fence_proxy_async();
	__syncthreads();
	if (threadIdx.x == 0) {
		const int64_t at = sm.heads.at * (C * C);
		const uint32_t bytes = sm.heads.n * C * C * (uint32_t)sizeof(bf16_t);

		bulk_store(a.w.mix + at, sm.tiles.mix, bytes);
		bulk_store(a.w.solve + at, solve, bytes);
		bulk_store_wait();
	}
#else
	__trap();
#endif
}

} /* namespace */

enum ar_status delta_keys_sm90_enqueue(const struct delta_args *a, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	const int pairs = (a->group - 1) / PAIR + 1;
	const dim3 grid(a->c.spec.k_heads * pairs, a->b.n_chunk);

	CU(cudaFuncSetAttribute(delta_keys_sm90, cudaFuncAttributeMaxDynamicSharedMemorySize,
				(int)sizeof(keys_smem)));
	delta_keys_sm90<<<grid, THREADS, sizeof(keys_smem), (cudaStream_t)a->c.stream>>>(*a);
	CU_LAUNCHED();
out:
	return st;
}
