/* SPDX-License-Identifier: Apache-2.0 */
/*
 * BFLA's selection on the device; the rule is in bfla.c.  A coarse query block i of request r has
 * slot qblk0[r] + i: slots suffice because no coarse block is shorter than a page.  Kernels:
 *
 *   flat    the scores of pool=flat: a product of two matrices, then a maximum over the groups of
 *           each pair of blocks.  A matrix row is a group of g tokens with all channels, g D long.
 *           A thread block takes 128 groups of keys and 64 of queries, of all heads of the KV head.
 *           So each key is read once for up to 64 groups of queries.  If there are few thread
 *           blocks, each waits for memory most of the time.  Then each takes 64 groups of keys, in
 *           six stages.  If there are still few, each takes one of n_part parts of the steps, and
 *           pick adds up the products.
 *   pool_q, pool_score   the same for the other pools: one vector a block.
 *   pick    grid (slot, query head): the rules that look at scores, a bit per block of keys.
 *   mask    grid (query block, KV head): blocks kept by any head or for their place, as bits of
 *           pages; a lane a page.
 *
 * Flat, for 8 requests of 128K tokens and chunks of 1024, 16 query heads over 4 KV heads, D 128:
 * the keys are 1.07 GB (0.27 ms at 4 TB/s), the products 69 GFLOP (0.2 ms at 350 TFLOP/s).  The
 * queries are 0.5 GB from the L2 cache.  On an H200 all of it takes 0.34 ms, dense attention 11.5.
 *
 *   registers   accumulators 2 x 4 x 4 = 32, fragments 16, sources 6 x 4
 *   shared      4 stages x (64 + 128) x 64 x 2 B = 96 KiB, or 6 x (64 + 64): two blocks a SM
 *   per 16 k    a warp's 4 ldmatrix.x4 feed 8 mma: 16 KiB of multiply-adds per 2 KiB read
 */
#include "config.h"
#include "kernels/select/bfla/bfla.h"

#include <cmath>
#include <cuda_bf16.h>

#include "base/workspace.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/device.cuh"
#include "kernels/select/qblk.cuh"
#include "kernels/select/top.cuh"

namespace {

constexpr int PAGE = 128;
constexpr int THREADS = TOP_THREADS, WARPS = TOP_WARPS;
constexpr int M = 64;			// groups of queries
constexpr int K = 64;			// elements of a step
constexpr int FEW = 512;		// thread blocks that do not fill a GPU twice
constexpr int PARTS = 256;		// most thread blocks if each has a part of the steps
constexpr int PART_STEPS = 4;		// fewest steps of a part
constexpr int SHORT = 128;		// most blocks that are compared each with each

/* The arguments of the kernels, besides the batch. */
struct job {
	struct attn_batch b;
	struct bfla p;
	const bf16_t *q, *k;
	float scale;			// of the scores, for exp2
	int n_blk;			// coarse blocks of keys at most
	int words;			// of a row of bits
	float *score;			// [slot][head][n_blk]
	bf16_t *pooled;			// [slot][head][head_dim]
	uint32_t *bits;			// [slot][head][words]

	int n_part;			// of the steps, a power of 2
	int part_rows, part_cols;
	float *part;			// [part][KV head][row of all tiles][group of keys]
};

__device__ __forceinline__ struct bfla_rows rows_of(const struct job &j, int r)
{
	return bfla_rows(&j.p, j.b.rows.pos0[r], j.b.rows.row0[r + 1] - j.b.rows.row0[r]);
}

__device__ __forceinline__ bool is_dense(const struct job &j, int r)
{
	return bfla_dense(&j.p, j.b.rows.row0[r + 1] - j.b.rows.row0[r], j.b.rows.n_row);
}

/* Offset of a key. */
__device__ __forceinline__ size_t key_at(const struct attn_batch &b, int r, int kv_head, int pos)
{
	const size_t page = b.keys.page[b.keys.page0[r] + pos / PAGE];

	return ((page * b.shape.kv_heads + kv_head) * PAGE + pos % PAGE) * b.shape.head_dim;
}

/* ---- flat ---- */

// N, of the templates below: groups of keys, 64 or 128.

template <int N> constexpr int STAGES = N == 64 ? 6 : 4;

template <int N>
struct flat_smem {
	union {
		bf16_t tile[STAGES<N>][(M + N) * K];
		float score[M][N + 1];
	};
};
static_assert(2 * sizeof(struct flat_smem<64>) <= 225 * 1024, "two blocks a SM");
static_assert(2 * sizeof(struct flat_smem<128>) <= 225 * 1024, "two blocks a SM");

/* The rows of the product of a request: head by head, group by group. */
struct flat_rows {
	struct bfla_rows q;
	int req;
	int first;		// row of the tile's row 0
	int per_head, n;
};

/* The rows of request r, from its first tile on. */
__device__ struct flat_rows flat_rows(const struct job &j, int r)
{
	const int per_blk = (int)(j.p.block / j.p.group);
	const int group = j.b.shape.q_heads / j.b.shape.kv_heads;
	struct flat_rows f = { rows_of(j, r), r };

	f.per_head = f.q.n * per_blk;
	f.n = is_dense(j, r) ? 0 : f.per_head * group;
	return f;
}

/* Find a tile of the batch by its number.  False: there are fewer. */
__device__ bool flat_tile(const struct job &j, int tile, struct flat_rows &f)
{
	for (int r = 0; r < j.b.rows.n_req; r++) {
		f = flat_rows(j, r);
		f.first = tile * M;
		if (f.first < f.n)
			return true;
		tile -= (f.n + M - 1) / M;
	}
	return false;
}

/* The copies of one thread in every step: 16 bytes of a token of each of these groups. */
template <int N>
struct sources {
	int64_t q[M / 32];			// offsets of the groups' first tokens
	int64_t k[N / 32];			// and where these would be, from a page's tokens
	int q_lo[M / 32], q_hi[M / 32], k_hi[N / 32];	// tokens that are there
};

template <int N>
__device__ void find_sources(const struct job &j, const struct flat_rows &f, int kv_head,
			     struct sources<N> &s)
{
	const int g = (int)j.p.group, group = j.b.shape.q_heads / j.b.shape.kv_heads;

#pragma unroll
	for (int i = 0; i < M / 32; i++) {
		const int row = f.first + threadIdx.x / 8 + 32 * i;
		const int pos = f.q.origin + row % f.per_head * g;
		const int64_t at = (int64_t)(j.b.rows.row0[f.req] + pos - f.q.ctx) *
				   j.b.shape.q_heads;

		s.q_lo[i] = max(f.q.ctx - pos, 0);
		s.q_hi[i] = row < f.n ? min(f.q.end - pos, g) : 0;
		s.q[i] = (at + kv_head * group + row / f.per_head) * j.b.shape.head_dim;
	}
#pragma unroll
	for (int i = 0; i < N / 32; i++)
		s.k_hi[i] = min(f.q.end - (int)(blockIdx.y * N + threadIdx.x / 8 + 32 * i) * g, g);
}

/* Point to the keys from token t of the groups on, up to the end of their pages. */
template <int N>
__device__ __forceinline__ void find_page(const struct job &j, const struct flat_rows &f,
					  int kv_head, int t, struct sources<N> &s)
{
#pragma unroll
	for (int i = 0; i < N / 32; i++) {
		const int row = blockIdx.y * N + threadIdx.x / 8 + 32 * i;

		if (t < s.k_hi[i])
			s.k[i] = (int64_t)key_at(j.b, f.req, kv_head, row * (int)j.p.group + t) -
				 t * j.b.shape.head_dim;
	}
}

/* Copy K channels of a token of every group to shared memory; missing tokens become zeros.  A token
 * takes 1 << shift steps. */
template <int N>
__device__ __forceinline__ void load(const struct job &j, const struct sources<N> &s, int step,
				     int shift, const bf16_t *tile)
{
	const int row = threadIdx.x / 8, piece = threadIdx.x % 8, dim = j.b.shape.head_dim;
	const int t = step >> shift, c = (step & ((1 << shift) - 1)) * K + piece * 8;

#pragma unroll
	for (int i = 0; i < M / 32; i++) {
		const bool there = t >= s.q_lo[i] && t < s.q_hi[i];
		const int64_t at = s.q[i] + (int64_t)t * j.b.shape.q_heads * dim + c;

		cp_async_16(smem_addr(tile) + swizzle<K>(row + 32 * i, piece),
			    j.q + (there ? at : 0), there ? 16 : 0);
	}
#pragma unroll
	for (int i = 0; i < N / 32; i++) {
		const bool there = t < s.k_hi[i];

		cp_async_16(smem_addr(tile + M * K) + swizzle<K>(row + 32 * i, piece),
			    j.k + (there ? s.k[i] + t * dim + c : 0), there ? 16 : 0);
	}
}

/* Multiply a warp's 32 x N / 4 of the tile.  acc[i][n]: rows 16 i and columns 8 n. */
template <int N>
__device__ __forceinline__ void multiply(float (&acc)[2][N / 32][4], const bf16_t *tile)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int row = warp / 4 * 32 + lane % 16;
	const int col = warp % 4 * (N / 4) + lane / 16 * 8 + lane % 8;

#pragma unroll
	for (int k = 0; k < K / 16; k++) {
		uint32_t a[2][4], b[N / 64][4];

#pragma unroll
		for (int i = 0; i < 2; i++)
			ldmatrix_x4(a[i], smem_addr(tile) +
					  swizzle<K>(row + 16 * i, 2 * k + lane / 16));
#pragma unroll
		for (int i = 0; i < N / 64; i++)
			ldmatrix_x4(b[i], smem_addr(tile + M * K) +
					  swizzle<K>(col + 16 * i, 2 * k + lane / 8 % 2));
#pragma unroll
		for (int i = 0; i < 2; i++)
#pragma unroll
			for (int n = 0; n < N / 32; n++)
				mma_m16n8k16(acc[i][n], a[i], b[n / 2][n % 2 * 2],
					     b[n / 2][n % 2 * 2 + 1]);
	}
}

template <int N>
__device__ __forceinline__ void store(const float (&acc)[2][N / 32][4], float (&score)[M][N + 1])
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int row = warp / 4 * 32 + lane / 4, col = warp % 4 * (N / 4) + lane % 4 * 2;

#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int n = 0; n < N / 32; n++)
#pragma unroll
			for (int e = 0; e < 4; e++)
				score[row + 16 * i + e / 2 * 8][col + 8 * n + e % 2] = acc[i][n][e];
}

/* Store the largest product of the groups of each pair of blocks. */
template <int N>
__device__ void reduce(const struct job &j, const struct flat_rows &f, int kv_head,
		       const float (&score)[M][N + 1])
{
	const int g = (int)j.p.group, per_blk = (int)j.p.block / g, cols = N / per_blk;
	const int group = j.b.shape.q_heads / j.b.shape.kv_heads;
	const bool all = j.p.pad == BFLA_KEEP && !j.p.mask_future;

	for (int cell = threadIdx.x; cell < M / per_blk * cols; cell += THREADS) {
		const int u0 = cell / cols * per_blk, v0 = cell % cols * per_blk;
		const int row = f.first + u0, blk = blockIdx.y * cols + cell % cols;
		const int q0 = f.q.origin + row % f.per_head * g, k0 = blk * per_blk * g;
		float max = -INFINITY;

		if (row >= f.n || blk >= j.n_blk)
			continue;
		for (int u = 0; u < per_blk; u++)
			for (int v = 0; v < per_blk; v++)
				if (all || bfla_offers(&j.p, &f.q, q0 + u * g, k0 + v * g))
					max = fmaxf(max, score[u0 + u][v0 + v]);
		const int slot = j.b.rows.qblk0[f.req] + row % f.per_head / per_blk;
		const int head = kv_head * group + row / f.per_head;

		j.score[((size_t)slot * j.b.shape.q_heads + head) * j.n_blk + blk] = max;
	}
}

/* Store the products over a part of the steps, for bfla_pick. */
template <int N>
__device__ __forceinline__ void leave(const struct job &j, const float (&acc)[2][N / 32][4])
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	const int row = blockIdx.x * M + warp / 4 * 32 + lane / 4;
	const int col = blockIdx.y * N + warp % 4 * (N / 4) + lane % 4 * 2;
	float *to = j.part + ((size_t)blockIdx.z * j.part_rows + row) * j.part_cols + col;

#pragma unroll
	for (int i = 0; i < 2; i++)
#pragma unroll
		for (int n = 0; n < N / 32; n++)
#pragma unroll
			for (int h = 0; h < 2; h++)
				*(float2 *)(to + (size_t)(16 * i + 8 * h) * j.part_cols + 8 * n) =
					make_float2(acc[i][n][2 * h], acc[i][n][2 * h + 1]);
}

/* Grid (tile, N groups of keys, part and KV head). */
template <int N>
__global__ void __launch_bounds__(THREADS, 2) bfla_flat(struct job j)
{
	extern __shared__ __align__(128) char dynamic[];
	struct flat_smem<N> &sm = *(struct flat_smem<N> *)dynamic;
	const int shift = __ffs(j.b.shape.head_dim / K) - 1;
	const int steps = ((int)j.p.group << shift) / j.n_part;
	const int kv_head = blockIdx.z % j.b.shape.kv_heads;
	const int from = blockIdx.z / j.b.shape.kv_heads * steps;	// the part's first step
	float acc[2][N / 32][4] = {};
	struct flat_rows f;
	struct sources<N> src;

	if (!flat_tile(j, blockIdx.x, f) ||
	    (int64_t)blockIdx.y * N * j.p.group >= f.q.end)
		return;
	find_sources<N>(j, f, kv_head, src);
	find_page<N>(j, f, kv_head, from >> shift, src);
	for (int step = 0; step < STAGES<N> - 1; step++) {
		if (step < steps)
			load<N>(j, src, from + step, shift, sm.tile[step]);
		cp_async_commit();
	}
	for (int step = 0; step < steps; step++) {
		const int next = step + STAGES<N> - 1;

		cp_async_wait<STAGES<N> - 2>();
		__syncthreads();
		if (next < steps) {
			if ((from + next) % (PAGE << shift) == 0)
				find_page<N>(j, f, kv_head, (from + next) >> shift, src);
			load<N>(j, src, from + next, shift, sm.tile[next % STAGES<N>]);
		}
		cp_async_commit();
		multiply<N>(acc, sm.tile[step % STAGES<N>]);
	}
	if (N == 64 && j.n_part > 1)
		return leave<N>(j, acc);
	cp_async_wait<0>();
	__syncthreads();
	store<N>(acc, sm.score);
	__syncthreads();
	reduce<N>(j, f, kv_head, sm.score);
}

/* ---- other pools ---- */

/* Pool one channel of the tokens [lo, hi) of a block.  at(t): the channel of token t. */
template <typename At>
__device__ float pool(const struct bfla &p, int lo, int hi, const At &at)
{
	const int b = (int)p.block;
	float x = 0;

	if (p.pool == BFLA_CENTER)
		return b / 2 >= lo && b / 2 < hi ? at(b / 2) : 0;
#pragma unroll 8
	for (int t = lo; t < hi; t++) {
		const float y = at(t);

		if (p.pool == BFLA_MEAN)
			x += y;
		else
			x = fabsf(y) > fabsf(x) ? y : x;
	}
	return p.pool == BFLA_MEAN ? __bfloat162float(__float2bfloat16_rn(x / (float)b)) : x;
}

__device__ __forceinline__ float widen(bf16_t x)
{
	return __uint_as_float((uint32_t)x << 16);
}

__global__ void __launch_bounds__(THREADS) bfla_pool_q(struct job j)
{
	const int r = qblk_at(j.b, blockIdx.x).req, i = blockIdx.x - j.b.rows.qblk0[r];
	const int dim = j.b.shape.head_dim, d = threadIdx.x;
	const struct bfla_rows rows = rows_of(j, r);
	const int from = rows.origin + i * (int)j.p.block;
	const int64_t row = j.b.rows.row0[r] + from - rows.ctx;

	if (i >= rows.n)
		return;
	const float x = pool(j.p, max(rows.ctx - from, 0), min(rows.end - from, (int)j.p.block),
			     [&](int t) {
		return widen(j.q[((row + t) * j.b.shape.q_heads + blockIdx.y) * dim + d]);
	});

	j.pooled[((size_t)blockIdx.x * j.b.shape.q_heads + blockIdx.y) * dim + d] =
		__bfloat16_as_ushort(__float2bfloat16_rn(x));
}

/* Grid (block of keys, KV head, request). */
__global__ void __launch_bounds__(THREADS) bfla_pool_score(struct job j)
{
	__shared__ float key[256];
	const int blk = blockIdx.x, kv_head = blockIdx.y, r = blockIdx.z;
	const int dim = j.b.shape.head_dim, group = j.b.shape.q_heads / j.b.shape.kv_heads;
	const int lane = threadIdx.x % 32, from = blk * (int)j.p.block;
	const struct bfla_rows rows = rows_of(j, r);

	if (from >= rows.end || is_dense(j, r))
		return;
	key[threadIdx.x] = pool(j.p, 0, min(rows.end - from, (int)j.p.block), [&](int t) {
		return widen(j.k[key_at(j.b, r, kv_head, from + t) + threadIdx.x]);
	});
	__syncthreads();
	for (int n = threadIdx.x / 32; n < group * rows.n; n += (int)blockDim.x / 32) {
		const size_t slot = j.b.rows.qblk0[r] + n / group;
		const size_t row = slot * j.b.shape.q_heads + kv_head * group + n % group;
		float sum = 0;

		for (int d = lane; d < dim; d += 32)
			sum += widen(j.pooled[row * dim + d]) * key[d];
		sum = warp_sum(sum);
		if (lane == 0)
			j.score[row * j.n_blk + blk] = sum;
	}
}

/* ---- pick ---- */

/* Compute the scores of the first n blocks from the parts of the products.  A thread sums the parts
 * of one pair of groups. */
__device__ void join(const struct job &j, int r, int i, int head, int n, float *score)
{
	__shared__ uint32_t best[THREADS];
	const int group = j.b.shape.q_heads / j.b.shape.kv_heads;
	const int per_blk = (int)(j.p.block / j.p.group), width = THREADS / per_blk;
	const int u = threadIdx.x / width, v = threadIdx.x % width;
	const size_t step = (size_t)j.b.shape.kv_heads * j.part_rows * j.part_cols;
	const struct bfla_rows rows = rows_of(j, r);
	const int g = (int)j.p.group, q0 = rows.origin + (i * per_blk + u) * g;
	int row = head % group * flat_rows(j, r).per_head + i * per_blk + u;

	for (int before = 0; before < r; before++)
		row += (flat_rows(j, before).n + M - 1) / M * M;
	const float *part = j.part +
			    ((size_t)(head / group) * j.part_rows + row) * j.part_cols + v;

	for (int first = 0; first < n; first += width / per_blk) {
		const int blk = first + threadIdx.x;
		float sum = 0;

		best[threadIdx.x] = top_key(-INFINITY);
		__syncthreads();
		if (first + v / per_blk < n &&
		    bfla_offers(&j.p, &rows, q0, (first * per_blk + v) * g)) {
#pragma unroll 16
			for (int k = 0; k < j.n_part; k++)
				sum += part[k * step + first * per_blk];
			atomicMax(&best[v / per_blk], top_key(sum));
		}
		__syncthreads();
		if (threadIdx.x < width / per_blk && blk < n)
			score[blk] = top_value(best[threadIdx.x]);
	}
	__syncthreads();
}

__device__ float row_max(const float *score, int n, float (&part)[WARPS])
{
	float max = -INFINITY;

	for (int i = threadIdx.x; i < n; i += THREADS)
		max = fmaxf(max, score[i]);
	max = warp_max(max);
	if (threadIdx.x % 32 == 0)
		part[threadIdx.x / 32] = max;
	__syncthreads();
	for (int w = 0; w < WARPS; w++)
		max = fmaxf(max, part[w]);
	return max;
}

/* How much to keep of a row whose shares add up to `all`. */
struct goals {
	uint64_t mass, least;	// of the largest together; of one
	int top;
};

__device__ __forceinline__ struct goals find_goals(const struct job &j,
						   const struct bfla_rows &rows, int n,
						   uint64_t sum)
{
	const int blocks = (rows.end + (int)j.p.block - 1) / (int)j.p.block;
	const double all = (double)sum;
	struct goals g = { 0, (uint64_t)(j.p.threshold * all), 0 };

	if (j.p.mass > 0)
		g.mass = max((uint64_t)ceil(j.p.mass * all), (uint64_t)1);
	if (j.p.ratio > 0 || j.p.least > 0)
		g.top = min(bfla_top(&j.p, blocks), n);
	return g;
}

/* Whether block threadIdx.x of n <= SHORT is kept, given the weight of the blocks with higher
 * scores. */
template <typename Share>
__device__ bool keep_short(const struct job &j, const struct bfla_rows &rows, const float *score,
			   int n, const Share &share)
{
	__shared__ uint32_t key[SHORT];
	__shared__ uint64_t weight[SHORT];
	const int own = threadIdx.x;
	uint64_t all = 0, mass = 0;
	int before = 0;

	if (own < n) {
		key[own] = top_key(score[own]);
		weight[own] = share(score[own]);
	}
	__syncthreads();
	if (own >= n)
		return false;
#pragma unroll 4
	for (int k = 0; k < n; k++) {
		const bool larger = key[k] > key[own] || (key[k] == key[own] && k < own);

		all += weight[k];
		mass += larger ? weight[k] : 0;
		before += larger;
	}
	const struct goals g = find_goals(j, rows, n, all);

	return mass < g.mass || before < g.top || weight[own] > g.least;
}

/* Write the bits of a row, by one warp. */
template <typename Share>
__device__ void pick_long(const struct job &j, const struct bfla_rows &rows, const float *score,
			  int n, const Share &share, uint32_t *bits)
{
	__shared__ struct top_smem sums;
	const struct goals g = find_goals(j, rows, n, top_sum(score, n, share, sums));
	struct top mass = top_none(), top = top_none();
	int64_t mass_ties = 0, top_ties = 0;

	if (g.mass)
		mass = top_find(score, n, g.mass, share, sums);
	if (g.top)
		top = top_find(score, n, g.top, [](float) -> uint32_t { return 1; }, sums);
	for (int w = 0; threadIdx.x < 32 && w < j.words; w++) {
		const bool there = w * 32 + (int)threadIdx.x < n;
		const float x = there ? score[w * 32 + threadIdx.x] : 0;
		bool keep = top_has(mass, there, x, mass_ties);

		keep |= top_has(top, there, x, top_ties);
		keep |= there && share(x) > g.least;
		const uint32_t word = __ballot_sync(~0u, keep);

		if (threadIdx.x == 0)
			bits[w] = word;
	}
}

__global__ void __launch_bounds__(THREADS) bfla_pick(struct job j)
{
	__shared__ float maxima[WARPS];
	const int r = qblk_at(j.b, blockIdx.x).req, i = blockIdx.x - j.b.rows.qblk0[r];
	const size_t at = (size_t)blockIdx.x * j.b.shape.q_heads + blockIdx.y;
	const struct bfla_rows rows = rows_of(j, r);
	float *score = j.score + at * j.n_blk;
	uint32_t *bits = j.bits + at * j.words;

	if (i >= rows.n || is_dense(j, r))
		return;
	const int n = bfla_last(&j.p, &rows, i) + 1;

	if (j.n_part > 1)
		join(j, r, i, blockIdx.y, n, score);
	const float most = row_max(score, n, maxima);
	const float scale = j.scale;
	const auto share = [=](float x) { return top_fixed(ex2((x - most) * scale)); };

	if (n > SHORT)
		return pick_long(j, rows, score, n, share, bits);
	const uint32_t word = __ballot_sync(~0u, keep_short(j, rows, score, n, share));

	for (int w = threadIdx.x / 32; threadIdx.x % 32 == 0 && w < j.words; w += WARPS)
		bits[w] = w < WARPS ? word : 0;
}

/* ---- mask ---- */

/* Whether coarse query block i keeps a block of keys. */
__device__ bool keeps(const struct job &j, int r, const struct bfla_rows &rows, int i, int kv_head,
		      int blk)
{
	const int group = j.b.shape.q_heads / j.b.shape.kv_heads;
	const size_t at = (size_t)(j.b.rows.qblk0[r] + i) * j.b.shape.q_heads + kv_head * group;
	const uint32_t *bits = j.bits + at * j.words + blk / 32;
	uint32_t scored = 0;

#pragma unroll 4
	for (int h = 0; h < group; h++)
		scored |= bits[h * j.words];
	return scored >> blk % 32 & 1 || bfla_placed(&j.p, &rows, i, blk, kv_head);
}

__global__ void __launch_bounds__(128) bfla_mask(struct job j, uint32_t *__restrict__ mask)
{
	const struct qblk s = qblk_at(j.b, blockIdx.x);
	const struct bfla_rows rows = rows_of(j, s.req);
	const int group = j.b.shape.q_heads / j.b.shape.kv_heads, kv_head = blockIdx.y;
	const int from = s.blk * PAGE + s.lo - rows.origin, to = s.blk * PAGE + s.hi - rows.origin;
	const int block = (int)j.p.block, lane = threadIdx.x % 32;
	const bool dense = is_dense(j, s.req);

	mask += ((size_t)blockIdx.x * j.b.shape.q_heads + kv_head * group) * j.b.keys.mask_words;
	for (int word = threadIdx.x / 32; word < j.b.keys.mask_words; word += blockDim.x / 32) {
		const int page = word * 32 + lane;
		bool keep = page <= s.blk && dense;

		for (int i = from / block; page <= s.blk && !keep && i <= (to - 1) / block; i++)
			keep = keeps(j, s.req, rows, i, kv_head, page / (block / PAGE));
		const uint32_t bits = __ballot_sync(~0u, keep);

		for (int h = lane; h < group; h += 32)
			mask[(size_t)h * j.b.keys.mask_words + word] = bits;
	}
}

/* ---- launch ---- */

/* Point j into work; returns the bytes that takes. */
size_t lay_out(struct job *j, const struct attn_shape *s, int n_slot, int max_kv_blk, void *work)
{
	const size_t n = (size_t)n_slot * s->q_heads;
	struct workspace w = workspace_at(work);

	j->n_blk = (int)(((int64_t)max_kv_blk * s->page_tok + j->p.block - 1) / j->p.block);
	j->words = (j->n_blk + 31) / 32;
	j->score = (float *)workspace_take(&w, n * j->n_blk, sizeof *j->score);
	j->bits = (uint32_t *)workspace_take(&w, n * j->words, sizeof *j->bits);
	j->pooled = (bf16_t *)workspace_take(&w, j->p.pool == BFLA_FLAT ? 0 : n * s->head_dim,
					     sizeof *j->pooled);
	j->part = (float *)workspace_take(&w, j->p.pool != BFLA_FLAT ? 0 : PARTS * M * 64,
					  sizeof *j->part);
	return w.used;
}

/* A bound of the tiles that flat_tile finds. */
int count_tiles(const struct job *j)
{
	const struct attn_batch *b = &j->b;
	const int64_t per_blk = j->p.block / j->p.group * (b->shape.q_heads / b->shape.kv_heads);
	const int64_t n = b->rows.n_row / j->p.block +
			  b->rows.n_req * (j->p.grid == BFLA_CHUNK ? 1 : 2);

	return (int)(per_blk * (n < b->rows.n_qblk ? n : b->rows.n_qblk) / M) + b->rows.n_req;
}

/* Choose the number of parts of the steps: more while `blocks` thread blocks do not fill the
 * GPU. */
int count_parts(const struct job *j, int64_t blocks)
{
	const int64_t steps = j->p.group * j->b.shape.head_dim / K;
	int n = 1;

	while (2 * n * blocks <= PARTS && 2 * n * PART_STEPS <= steps)
		n *= 2;
	return n;
}

template <int N>
enum ar_status launch_flat(const struct job *j, dim3 grid, cudaStream_t stream, struct ar_err *err)
{
	const int bytes = (int)sizeof(struct flat_smem<N>);
	enum ar_status st = AR_OK;

	CU(cudaFuncSetAttribute(bfla_flat<N>, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes));
	bfla_flat<N><<<grid, THREADS, bytes, stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status score_flat(struct job *j, cudaStream_t stream, struct ar_err *err)
{
	const int kv_heads = j->b.shape.kv_heads, tiles = count_tiles(j);
	const int n = (int)(j->n_blk * (j->p.block / j->p.group)), cols = (n + 63) / 64;

	if ((int64_t)tiles * ((n + 127) / 128) * kv_heads >= FEW)
		return launch_flat<128>(j, dim3(tiles, (n + 127) / 128, kv_heads), stream, err);
	j->n_part = count_parts(j, (int64_t)tiles * cols * kv_heads);
	j->part_rows = tiles * M;
	j->part_cols = cols * 64;
	return launch_flat<64>(j, dim3(tiles, cols, kv_heads * j->n_part), stream, err);
}

enum ar_status score_pooled(const struct job *j, cudaStream_t stream, struct ar_err *err)
{
	const struct attn_shape *s = &j->b.shape;
	enum ar_status st = AR_OK;

	bfla_pool_q<<<dim3(j->b.rows.n_qblk, s->q_heads), s->head_dim, 0, stream>>>(*j);
	CU_LAUNCHED();
	bfla_pool_score<<<dim3(j->n_blk, s->kv_heads, j->b.rows.n_req), s->head_dim, 0,
		stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

enum ar_status score(struct job *j, cudaStream_t stream, struct ar_err *err)
{
	enum ar_status st = j->p.pool == BFLA_FLAT ? score_flat(j, stream, err) :
						     score_pooled(j, stream, err);

	if (st)
		return st;
	bfla_pick<<<dim3(j->b.rows.n_qblk, j->b.shape.q_heads), THREADS, 0, stream>>>(*j);
	CU_LAUNCHED();
out:
	return st;
}

}

size_t bfla_work_bytes(const void *self, const struct attn_shape *s, const struct attn_limits *l)
{
	struct job j = {};

	j.p = *(const struct bfla *)self;
	return lay_out(&j, s, attn_max_qblk(l, s->page_tok), l->max_kv_blk, NULL);
}

enum ar_status bfla_enqueue(const struct attn_call *call, const void *self,
			    const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct attn_shape *s = &b->shape;
	enum ar_status st = AR_OK;
	struct job j = { *b, *(const struct bfla *)self, call->q, call->kv.k };

	if (!b->rows.n_qblk)
		return AR_OK;
	j.scale = (float)(1.4426950408889634 * bfla_scale(&j.p, s->head_dim));
	j.n_part = 1;
	lay_out(&j, s, b->rows.n_qblk, b->keys.max_kv_blk, call->work);
	if (!bfla_dense(&j.p, b->rows.n_row, b->rows.n_row))
		st = score(&j, (cudaStream_t)call->stream, err);
	if (st)
		return st;
	bfla_mask<<<dim3(b->rows.n_qblk, s->kv_heads), 128, 0,
		(cudaStream_t)call->stream>>>(j, out->mask);
	CU_LAUNCHED();
out:
	return st;
}
