/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XAttention's scores on Hopper; xattention.cuh defines them.  Two kernels:
 *
 *   pack    reduced queries as rows of a matrix, so that TMA can copy boxes; tokens that are not
 *           the chunk's become zeros.  A request's last block of keys is packed as well, with zeros
 *           past the end.  68 MB read and written for 8 chunks of 1024 and 16 heads of 128, some 20
 *           us.
 *   score   a thread block takes 128 rows through a run of tiles of 256 columns, 64 elements of
 *           depth a step: 16 KiB of rows and 32 KiB of keys.  A box of keys is one block's reduced
 *           columns.  Copies run four steps ahead; warp 8 issues them, a box a lane.  Two warp
 *           groups have 64 rows each, wgmma m64n256k16.  Copies of the next tile go on while the
 *           sums of this one are taken.  If multiprocessors would be without work, tiles have 64
 *           columns, and copies run eight steps ahead.
 *
 * Budget of a step: 128 * 256 * 64 multiply-adds, 1024 cycles of the tensor cores; 48 KiB from the
 * L2 cache, 48 bytes a cycle, which is about its rate.  At S = 8 and D = 128 a tile has 16 steps,
 * 16384 cycles.  After it come 32768 exponentials, about 2000 cycles of issue with 9 instructions
 * for each.  For 8 chunks of 1024 on 128K tokens, 550 GFLOP take 0.7 ms at 800 TFLOP/s.
 *
 *   registers   accumulators 128 of a consumer's 232
 *   shared      four stages of (128 + 256) x 64 elements, or eight of (128 + 64): 192 KiB
 */
#include "config.h"

#include "kernels/prim/cuda.h"
#include "kernels/prim/ring.cuh"
#include "kernels/prim/tensor_map.h"
#include "kernels/select/xattention/xattention.cuh"

/* In code for other architectures the kernel is a trap, and its parts are unused. */
#if defined(__CUDA_ARCH__) && !defined(__CUDA_ARCH_FEAT_SM90_ALL)
#pragma nv_diag_suppress 177
#endif

namespace {

constexpr int GROUPS = 2;		// of warps
constexpr int ROWS = GROUPS * 64;
constexpr int WIDE = 256, NARROW = 64;	// tiles, in columns
constexpr int DEPTH = XATTENTION_DEPTH;	// 128 bytes
constexpr int THREADS = (GROUPS + 1) * 128;
constexpr int MAX_RUN = 8;		// column tiles of a thread block
constexpr int PACK_THREADS = 256;

/* ---- pack ---- */

/* The number of the first row of a KV head, in a request with n reduced rows. */
__device__ __forceinline__ int64_t first_row(const struct xattention_job &j, int r, int kv_head,
					     int n)
{
	const struct attn_shape &s = j.b.shape;

	return (int64_t)(j.b.rows.row0[r] / j.stride + 2 * r) * s.q_heads +
	       (int64_t)kv_head * (s.q_heads / s.kv_heads) * n;
}

/* Pack reduced row a of all heads. */
__device__ void pack_row(const struct xattention_job &j, int r, int a, int first, int n)
{
	const struct attn_shape &s = j.b.shape;
	const int pieces = s.head_dim / 8, group = s.q_heads / s.kv_heads;
	const int ctx = j.b.rows.pos0[r], row0 = j.b.rows.row0[r];
	const int n_tok = j.b.rows.row0[r + 1] - row0;
	const size_t len = (size_t)j.stride * s.head_dim;

	for (int i = threadIdx.x; i < j.stride * s.q_heads * pieces; i += PACK_THREADS) {
		const int c = i % pieces, head = i / pieces % s.q_heads, p = i / pieces / s.q_heads;
		const int t = (a + 1) * j.stride - 1 - p - ctx;
		const size_t from = ((size_t)(row0 + t) * s.q_heads + head) * pieces + c;
		const int64_t to = first_row(j, r, head / group, n) +
				   (int64_t)(a - first) * group + head % group;

		((uint4 *)(j.row + to * len))[p * pieces + c] =
			t >= 0 && t < n_tok ? ((const uint4 *)j.q)[from] : make_uint4(0, 0, 0, 0);
	}
}

/* Pack the last block of keys of a request, of one KV head. */
__device__ void pack_last(const struct xattention_job &j, int r, int kv_head)
{
	const struct attn_shape &s = j.b.shape;
	const int pieces = s.head_dim / 8;
	const int end = j.b.rows.pos0[r] + j.b.rows.row0[r + 1] - j.b.rows.row0[r];
	const int blk = (end - 1) / s.page_tok, n = s.page_tok * pieces;
	const size_t page = j.b.keys.page[j.b.keys.page0[r] + blk];
	const uint4 *src = (const uint4 *)j.k + (page * s.kv_heads + kv_head) * n;
	uint4 *dst = (uint4 *)j.last + ((size_t)r * s.kv_heads + kv_head) * n;

	for (int i = threadIdx.x; i < n; i += PACK_THREADS)
		dst[i] = blk * s.page_tok + i / pieces < end ? src[i] : make_uint4(0, 0, 0, 0);
}

/* A thread block for each reduced row, and then one for each (request, KV head). */
__global__ void __launch_bounds__(PACK_THREADS)
xattention_pack(const __grid_constant__ struct xattention_job j, int n_row)
{
	const int last = blockIdx.x - n_row, kv_heads = j.b.shape.kv_heads;
	int at, first, end;

	if (last >= 0) {
		if (j.b.rows.row0[last / kv_heads + 1] > j.b.rows.row0[last / kv_heads])
			pack_last(j, last / kv_heads, last % kv_heads);
		return;
	}
	const int r = tiles_find(j.b.rows.n_req, blockIdx.x, at, [&](int i) {
		xattention_reduced(j, i, first, end);
		return end - first;
	});

	if (r < 0)
		return;
	xattention_reduced(j, r, first, end);
	pack_row(j, r, first + at, first, end - first);
}

/* ---- score ---- */

// COLS, of the templates below: columns of a tile.
template <int COLS> constexpr int STAGES = COLS == 256 ? 4 : 8;

template <int COLS> struct alignas(1024) score_smem {
	bf16_t q[STAGES<COLS>][ROWS][DEPTH];
	bf16_t k[STAGES<COLS>][COLS][DEPTH];
	struct ring<STAGES<COLS>> ring;
};
template <int COLS> constexpr int SMEM_BYTES = sizeof(struct score_smem<COLS>) + 1024;
static_assert(SMEM_BYTES<WIDE> <= 227 * 1024 && SMEM_BYTES<NARROW> <= 227 * 1024,
	      "one block a SM");

struct maps {
	CUtensorMap row, key, last;
};

/* Where a thread block works. */
struct spot {
	int req, kv_head;
	int64_t row;		// number of the first row
	int a, end;		// its reduced row, and the end of the request's
	int at;			// rows of the request's KV head before it
	int tile, n_tile;	// column tiles
};

// PER, of the templates below: reduced columns of a block.

/* Fill the stages, by one warp; each lane copies its own boxes. */
template <int PER, int COLS>
__device__ __forceinline__ void produce(struct score_smem<COLS> &sm, const struct xattention_job &j,
					const struct maps &maps, const struct spot &w, int steps)
{
	constexpr int BOXES = COLS / PER, OWN = (BOXES + 31) / 32;	// of a lane
	const struct attn_shape &s = j.b.shape;
	const int lane = threadIdx.x % 32, page0 = j.b.keys.page0[w.req];
	const int last = (j.b.rows.pos0[w.req] + j.b.rows.row0[w.req + 1] -
			  j.b.rows.row0[w.req] - 1) / s.page_tok;
	int at = 0;

	for (int tile = w.tile; tile < w.tile + w.n_tile; tile++) {
		int y[OWN];
		bool is_last[OWN];

#pragma unroll
		for (int i = 0; i < OWN; i++) {
			/* past the last block, that block is copied again and masked */
			const int blk = min(tile * BOXES + i * 32 + lane, last);

			is_last[i] = blk == last;
			y[i] = ((is_last[i] ? w.req : j.b.keys.page[page0 + blk]) * s.kv_heads +
				w.kv_head) * PER;
		}
		for (int step = 0; step < steps; step++, at++) {
			const int stage = sm.ring.stage(at);
			uint64_t *full = sm.ring.producer_acquire(at);

			if (lane == 0) {
				mbarrier_expect_tx(full, sizeof sm.q[0] + sizeof sm.k[0]);
				tma_load_2d(sm.q[stage], &maps.row, full, step * DEPTH,
					    (int)w.row);
			}
			__syncwarp();
#pragma unroll
			for (int i = 0; i < OWN; i++)
				if (i * 32 + lane < BOXES)
					tma_load_2d(sm.k[stage][(i * 32 + lane) * PER],
						    is_last[i] ? &maps.last : &maps.key, full,
						    step * DEPTH, y[i]);
		}
	}
}

/* Accumulator element 4 i + 2 r + c belongs to row r, column 8 i + 2 (lane % 4) + c of the tile. */
template <int PER, int COLS>
__device__ __forceinline__ void store(const float *acc, const struct xattention_job &j,
				      const struct spot &w, const struct xattention_row (&row)[2],
				      int tile)
{
#pragma unroll
	for (int r = 0; r < 2; r++)
#pragma unroll
		for (int part = 0; part < COLS / 64; part++) {
			const int col = tile * COLS + part * 64;
			float x[8][2];

#pragma unroll
			for (int n = 0; n < 8; n++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					const int c = col + n * 8 + threadIdx.x % 4 * 2 + e;
					const float z = acc[(part * 8 + n) * 4 + r * 2 + e];

					x[n][e] = c <= row[r].a ? z : -INFINITY;
				}
			xattention_store<PER>(x, j, w.req, row[r], col);
		}
}

template <int PER, int COLS>
__device__ __forceinline__ void consume(struct score_smem<COLS> &sm, const struct xattention_job &j,
					const struct spot &w, int steps)
{
	const int wg = warp_group(), group = j.b.shape.q_heads / j.b.shape.kv_heads;
	struct xattention_row row[2];
	float acc[COLS / 2];
	int at = 0;

#pragma unroll
	for (int r = 0; r < 2; r++) {
		const int i = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4 + 8 * r;

		row[r].a = w.a + (w.at % group + i) / group;
		row[r].head = row[r].a < w.end ? w.kv_head * group + (w.at + i) % group : -1;
	}
	for (int tile = w.tile; tile < w.tile + w.n_tile; tile++) {
		for (int step = 0; step < steps; step++, at++) {
			const int stage = sm.ring.stage(at);
			const uint64_t queries = wgmma_desc(sm.q[stage][wg * 64], 16, 1024);
			const uint64_t keys = wgmma_desc(sm.k[stage], 16, 1024);

			sm.ring.consumer_wait(at);
			wgmma_fence();
#pragma unroll
			for (int k = 0; k < DEPTH / 16; k++)
				wgmma_ss<COLS>(acc, wgmma_at(queries, k * 32),
					       wgmma_at(keys, k * 32), step || k);
			wgmma_commit();
			/* the product of the step before is complete */
			wgmma_wait<1>();
			if (step)
				sm.ring.consumer_release(at - 1);
		}
		wgmma_wait<0>();
		hold<COLS / 2>(acc);
		sm.ring.consumer_release(at - 1);
		store<PER, COLS>(acc, j, w, row, tile);
	}
}

/* Find the work of the thread block.  False: it has none. */
template <int COLS>
__device__ bool find_spot(const struct xattention_job &j, struct spot &w)
{
	const int group = j.b.shape.q_heads / j.b.shape.kv_heads;
	int at, first, end;

	w.req = tiles_find(j.b.rows.n_req, blockIdx.x, at, [&](int r) {
		xattention_reduced(j, r, first, end);
		return ((end - first) * group + ROWS - 1) / ROWS;
	});
	if (w.req < 0)
		return false;
	xattention_reduced(j, w.req, first, end);
	w.kv_head = blockIdx.z;
	w.at = at * ROWS;
	w.row = first_row(j, w.req, w.kv_head, end - first) + w.at;
	w.a = first + w.at / group;
	w.end = end;
	w.tile = blockIdx.y * j.run;
	w.n_tile = min(j.run, min(first + (w.at + ROWS - 1) / group, end - 1) / COLS + 1 - w.tile);
	return w.n_tile > 0;
}

/* Grid (ROWS rows, j.run column tiles, KV head). */
template <int PER, int COLS>
__global__ void __launch_bounds__(THREADS, 1)
score_wgmma(const __grid_constant__ struct maps maps,
	    const __grid_constant__ struct xattention_job j)
{
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
	extern __shared__ char raw[];
	struct score_smem<COLS> &sm =
		*(struct score_smem<COLS> *)(((uintptr_t)raw + 1023) & ~(uintptr_t)1023);
	const int steps = j.stride * j.b.shape.head_dim / DEPTH;
	struct spot w;

	if (!find_spot<COLS>(j, w))
		return;
	if (threadIdx.x == 0) {
		sm.ring.init(1, GROUPS);
		fence_barrier_init();
	}
	__syncthreads();
	if (threadIdx.x < GROUPS * 128) {
		setmaxnreg_inc<232>();
		consume<PER, COLS>(sm, j, w, steps);
	} else {
		setmaxnreg_dec<40>();
		if (threadIdx.x < GROUPS * 128 + 32)
			produce<PER, COLS>(sm, j, maps, w, steps);
	}
#else
	__trap();
#endif
}

/* ---- launch ---- */

/* Tiles of a row. */
int n_tile(const struct xattention_job *j, int cols)
{
	return (j->b.keys.max_kv_blk * (j->b.shape.page_tok / j->stride) + cols - 1) / cols;
}

template <int PER, int COLS>
enum ar_status launch(struct xattention_job *job, dim3 grid, cudaStream_t stream,
		      struct ar_err *err)
{
	const struct xattention_job &j = *job;
	const struct attn_shape *s = &j.b.shape;
	const uint64_t len = (uint64_t)j.stride * s->head_dim;
	const uint64_t rows =
		xattention_rows(j.b.rows.n_row, j.b.rows.n_req, j.stride) * s->q_heads;
	/* the size of the cache is unknown here; page numbers bound the accesses */
	const uint64_t row[2] = { len, rows }, key[2] = { len, INT32_MAX };
	const uint64_t last[2] = { len, (uint64_t)j.b.rows.n_req * s->kv_heads * PER };
	const uint32_t row_box[2] = { DEPTH, ROWS }, key_box[2] = { DEPTH, PER };
	struct maps maps;
	enum ar_status st = tensor_map(&maps.row, j.row, 2, row, row_box, err);

	if (!st)
		st = tensor_map(&maps.key, j.k, 2, key, key_box, err);
	if (!st)
		st = tensor_map(&maps.last, j.last, 2, last, key_box, err);
	if (st)
		return st;
	/* Long runs fill the pipeline less often, but a GPU wants a few hundred blocks. */
	job->run = (int)((size_t)grid.x * grid.z * n_tile(job, COLS) / 512);
	job->run = max(1, min(job->run, MAX_RUN));
	grid.y = (n_tile(job, COLS) + job->run - 1) / job->run;
	CU(cudaFuncSetAttribute(score_wgmma<PER, COLS>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM_BYTES<COLS>));
	score_wgmma<PER, COLS><<<grid, THREADS, SMEM_BYTES<COLS>, stream>>>(maps, j);
	CU_LAUNCHED();
out:
	return st;
}

template <int PER>
enum ar_status launch_cols(struct xattention_job *j, dim3 grid, int n_sm, cudaStream_t stream,
			   struct ar_err *err)
{
	if ((int64_t)grid.x * grid.z * n_tile(j, WIDE) < n_sm)
		return launch<PER, NARROW>(j, grid, stream, err);
	return launch<PER, WIDE>(j, grid, stream, err);
}

}

enum ar_status xattention_score_sm90(struct xattention_job *j, int n_sm, cudaStream_t stream,
				     struct ar_err *err)
{
	const struct attn_shape *s = &j->b.shape;
	const int n_row = (int)xattention_rows(j->b.rows.n_row, j->b.rows.n_req, j->stride);
	const dim3 grid(n_row * (s->q_heads / s->kv_heads) / ROWS + j->b.rows.n_req, 0,
			s->kv_heads);
	enum ar_status st = AR_OK;

	xattention_pack<<<n_row + j->b.rows.n_req * s->kv_heads, PACK_THREADS, 0,
		stream>>>(*j, n_row);
	CU_LAUNCHED();
	switch (s->page_tok / j->stride) {
	case 4:
		return launch_cols<4>(j, grid, n_sm, stream, err);
	case 8:
		return launch_cols<8>(j, grid, n_sm, stream, err);
	case 16:
		return launch_cols<16>(j, grid, n_sm, stream, err);
	default:
		return launch_cols<32>(j, grid, n_sm, stream, err);
	}
out:
	return st;
}
