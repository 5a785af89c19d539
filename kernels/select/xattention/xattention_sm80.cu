/* SPDX-License-Identifier: Apache-2.0 */
/*
 * XAttention's scores by mma.sync, on devices before Hopper; xattention.cuh defines them.
 *
 *   registers   accumulators 4 x 8 x 4 = 128, rows 16, columns 4: one block of 256 threads a SM
 *   shared      4 stages of (128 + 256) x 64 elements: 192 KiB
 *   per step    8 warps of 64 x 64; 16 KiB of ldmatrix a warp feed 128 mma
 */
#include "config.h"

#include "kernels/prim/cuda.h"
#include "kernels/select/xattention/xattention.cuh"

namespace {

constexpr int WARPS = 8;
constexpr int ROWS = 128, COLS = 256;	// of a tile, in reduced rows and columns
constexpr int DEPTH = XATTENTION_DEPTH;
constexpr int STAGES = 4;
constexpr int MAX_RUN = 8;		// column tiles of a thread block

struct score_smem {
	bf16_t q[STAGES][ROWS * DEPTH];
	bf16_t k[STAGES][COLS * DEPTH];
	struct xattention_row row[ROWS];
	int page[MAX_RUN * COLS / 4];	// of the blocks from the first tile's first one on
};
static_assert(sizeof(struct score_smem) <= 227 * 1024, "one block a SM");

/* Where a thread block works. */
struct spot {
	int req, kv_head;
	int ctx, end;		// tokens of the chunk
	int tile, n_tile;	// column tiles
	int last;		// largest reduced row
};

/* Copy one step of a tile: 64 elements of token p of every reduced row and column. */
template <int PER>
__device__ __forceinline__ void load(struct score_smem &sm, int stage,
				     const struct xattention_job &j, const struct spot &s, int nth,
				     int step)
{
	const struct attn_shape &shape = j.b.shape;
	const int dim = shape.head_dim, p = step / (dim / DEPTH), piece = threadIdx.x % 8;
	const int d = step % (dim / DEPTH) * DEPTH + piece * 8;
	const int n_row = s.end - s.ctx, row0 = j.b.rows.row0[s.req];

#pragma unroll
	for (int i = 0; i < ROWS / 32; i++) {
		const int at = threadIdx.x / 8 + i * 32;
		const struct xattention_row row = sm.row[at];
		const int t = (row.a + 1) * j.stride - 1 - p - s.ctx;
		const bool own = row.head >= 0 && t >= 0 && t < n_row;
		const size_t from = ((size_t)(row0 + t) * shape.q_heads + row.head) * dim + d;

		cp_async_16(smem_addr(sm.q[stage]) + swizzle<DEPTH>(at, piece),
			    j.q + (own ? from : 0), own ? 16 : 0);
	}
#pragma unroll
	for (int i = 0; i < COLS / 32; i++) {
		const int at = threadIdx.x / 8 + i * 32, c = nth * COLS + at;
		const int tok = c % PER * j.stride + p;
		const bool own = (s.tile * COLS + c) * j.stride + p < s.end;
		const size_t page = sm.page[c / PER];
		const size_t from = ((page * shape.kv_heads + s.kv_head) * shape.page_tok + tok) *
				    dim + d;

		cp_async_16(smem_addr(sm.k[stage]) + swizzle<DEPTH>(at, piece),
			    j.k + (own ? from : 0), own ? 16 : 0);
	}
}

/* acc[m][n]: rows 16 m and columns 8 n of the warp's 64 x 64. */
__device__ __forceinline__ void multiply(float (&acc)[4][8][4], const struct score_smem &sm,
					 int stage)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const uint32_t q = smem_addr(sm.q[stage]), k = smem_addr(sm.k[stage]);
	const int row = warp / 4 * 64 + lane % 16, col = warp % 4 * 64 + lane / 16 * 8 + lane % 8;

#pragma unroll
	for (int kk = 0; kk < DEPTH / 16; kk++) {
		uint32_t a[4][4];

#pragma unroll
		for (int m = 0; m < 4; m++)
			ldmatrix_x4(a[m], q + swizzle<DEPTH>(row + 16 * m, kk * 2 + lane / 16));
#pragma unroll
		for (int n = 0; n < 4; n++) {
			uint32_t b[4];

			ldmatrix_x4(b, k + swizzle<DEPTH>(col + 16 * n, kk * 2 + lane / 8 % 2));
#pragma unroll
			for (int m = 0; m < 4; m++) {
				mma_m16n8k16(acc[m][2 * n], a[m], b[0], b[1]);
				mma_m16n8k16(acc[m][2 * n + 1], a[m], b[2], b[3]);
			}
		}
	}
}

/* Store the sums of a tile.  A block that no row sees gets none, because nobody reads it. */
template <int PER>
__device__ __forceinline__ void store(float (&acc)[4][8][4], const struct score_smem &sm,
				      const struct xattention_job &j, const struct spot &s,
				      int tile)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int col = tile * COLS + warp % 4 * 64;

#pragma unroll
	for (int m = 0; m < 4; m++)
#pragma unroll
		for (int half = 0; half < 2; half++) {
			const struct xattention_row row =
				sm.row[warp / 4 * 64 + m * 16 + half * 8 + lane / 4];
			float x[8][2];

#pragma unroll
			for (int n = 0; n < 8; n++)
#pragma unroll
				for (int e = 0; e < 2; e++) {
					const int c = col + n * 8 + lane % 4 * 2 + e;

					x[n][e] = c <= row.a ? acc[m][n][half * 2 + e] : -INFINITY;
					acc[m][n][half * 2 + e] = 0;
				}
			xattention_store<PER>(x, j, s.req, row, col);
		}
}

/* Load the rows and pages of the thread block to shared memory.  False: it has no work. */
template <int PER>
__device__ bool begin(struct score_smem &sm, const struct xattention_job &j, struct spot &s)
{
	const struct attn_shape &shape = j.b.shape;
	const int group = shape.q_heads / shape.kv_heads, blocks = COLS / PER;
	int tile, first, end;

	s.kv_head = blockIdx.z;
	s.req = tiles_find(j.b.rows.n_req, blockIdx.x, tile, [&](int r) {
		xattention_reduced(j, r, first, end);
		return ((end - first) * group + ROWS - 1) / ROWS;
	});
	if (s.req < 0)
		return false;
	s.ctx = j.b.rows.pos0[s.req];
	s.end = s.ctx + j.b.rows.row0[s.req + 1] - j.b.rows.row0[s.req];
	xattention_reduced(j, s.req, first, end);
	s.last = min(first + (tile * ROWS + ROWS - 1) / group, end - 1);
	s.tile = blockIdx.y * j.run;
	s.n_tile = min(j.run, s.last / COLS + 1 - s.tile);
	if (s.n_tile <= 0)
		return false;
	for (int i = threadIdx.x; i < ROWS; i += WARPS * 32) {
		const int a = first + (tile * ROWS + i) / group;

		sm.row[i].a = a;
		sm.row[i].head = a < end ? s.kv_head * group + (tile * ROWS + i) % group : -1;
	}
	for (int i = threadIdx.x; i < s.n_tile * blocks; i += WARPS * 32) {
		const int blk = s.tile * blocks + i;

		sm.page[i] = blk * shape.page_tok < s.end ?
			     j.b.keys.page[j.b.keys.page0[s.req] + blk] : 0;
	}
	__syncthreads();
	return true;
}

template <int PER>
__global__ void __launch_bounds__(WARPS * 32)
xattention_score(const __grid_constant__ struct xattention_job j)
{
	extern __shared__ __align__(1024) char dynamic[];
	struct score_smem &sm = *(struct score_smem *)dynamic;
	const int steps = j.stride * j.b.shape.head_dim / DEPTH;
	float acc[4][8][4] = {};
	struct spot s;
	int nth = 0, step = 0;		// of the next load
	int done = 0;			// steps of the current tile

	if (!begin<PER>(sm, j, s))
		return;
	const int total = s.n_tile * steps;

	for (int i = 0; i < total + STAGES - 1; i++) {
		if (i >= STAGES - 1) {
			cp_async_wait<STAGES - 2>();
			__syncthreads();
		}
		if (nth < s.n_tile) {
			load<PER>(sm, i % STAGES, j, s, nth, step);
			if (++step == steps) {
				step = 0;
				nth++;
			}
		}
		cp_async_commit();
		if (i < STAGES - 1)
			continue;
		multiply(acc, sm, (i - STAGES + 1) % STAGES);
		if (++done % steps == 0)
			store<PER>(acc, sm, j, s, s.tile + done / steps - 1);
	}
}

template <int PER>
enum ar_status launch(struct xattention_job *j, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_shape *s = &j->b.shape;
	const int bytes = (int)sizeof(struct score_smem), group = s->q_heads / s->kv_heads;
	const int rows = (int)xattention_rows(j->b.rows.n_row, j->b.rows.n_req, j->stride) * group;
	const int tiles = (j->b.keys.max_kv_blk * PER + COLS - 1) / COLS;
	dim3 grid(rows / ROWS + j->b.rows.n_req, 0, s->kv_heads);
	enum ar_status st = AR_OK;

	/* Long runs fill the pipeline less often, but a GPU wants a few hundred blocks. */
	j->run = max(1, min(MAX_RUN, (int)(grid.x * grid.z * (size_t)tiles / 1024)));
	grid.y = (tiles + j->run - 1) / j->run;
	CU(cudaFuncSetAttribute(xattention_score<PER>,
				cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	xattention_score<PER><<<grid, WARPS * 32, bytes, stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

}

enum ar_status xattention_score_sm80(struct xattention_job *j, cudaStream_t stream,
				     struct ar_err *err)
{
	switch (j->b.shape.page_tok / j->stride) {
	case 4:
		return launch<4>(j, stream, err);
	case 8:
		return launch<8>(j, stream, err);
	case 16:
		return launch<16>(j, stream, err);
	default:
		return launch<32>(j, stream, err);
	}
}
