/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cut tiles by the lengths of their lists, and sort the parts, the longest first.
 *
 * Tiles that the plan leaves whole are sorted only, in runs that follow each other as in the plan.
 * Those of a KV head are a run: with lists of about the same length they walk through its keys
 * together, and find them in the L2 cache.  Each of the last two rounds of thread blocks is one, as
 * the longest list that starts late decides when a launch ends.
 *
 * Whole tiles need `waves` rounds of thread blocks.  The least time for that is an even share of
 * all blocks for each thread block and round.  Tiles longer than the share are cut into parts.  A
 * part is longer than the share by `cost`, because fewer parts cost less.
 *
 * It runs in one thread block, with a thread for each tile to cut, parts included.
 */
#include "config.h"

#include <cuda_runtime.h>

#include "kernels/attend/attend_cut.h"
#include "kernels/prim/cuda.h"
#include "kernels/prim/sm90.cuh"

namespace {

constexpr int THREADS = ATTEND_CUT_TILES;
constexpr int BINS = 4 * THREADS;
constexpr int RUNS = BINS / 64;	/* most runs that have bins of their own; neighbours share them */
constexpr int LEAST = 1024;	/* fewest keys of a part */
constexpr int COST = 512;	/* keys; an estimate: half the cost of one more part */

struct params {
	const attn_tile *tile;
	const uint16_t *block;		/* NULL: runs, and columns after them */
	const int32_t *n_block, *n_col;
	int stride, page_tok;
	int least, cost;		/* of a part, in blocks */
	int n_plain, n_tile;		/* tiles before the ones to cut; tiles to cut */
	int n_slot;
	int round;			/* thread blocks of one, if tiles stay whole; else 0 */
	int group;			/* query heads of a KV head */
};

/* Count the blocks of a tile's list that its rows can see.  Most lists end with the last visible
 * block; longer ones lose up to four blocks a round.  Without a list every block counts. */
__device__ __forceinline__ int length(const struct params *p, const attn_tile &t)
{
	const int last = t.pos + t.n_row - 1;
	const uint16_t *block;
	int n, past;

	if (t.list < 0)
		return last / p->page_tok + 1;
	n = p->n_block[t.list];
	if (!p->block)
		return n + (p->n_col[t.list] + p->page_tok - 1) / p->page_tok;
	block = p->block + (size_t)t.list * p->stride;
	for (; n && block[n - 1] * p->page_tok > last; n -= past) {
		past = 1;
#pragma unroll
		for (int k = 2; k <= 4; k++)
			past += n >= k && block[n - k] * p->page_tok > last;
	}
	return n;
}

/* Add one to count[bin]; bin -1: nothing.  Returns the count before.  Equal bins of a warp share
 * one addition. */
__device__ __forceinline__ int count_one(int *count, int bin)
{
	const unsigned lane = threadIdx.x % 32, same = __match_any_sync(0xffffffff, bin);
	const unsigned first = __ffs(same) - 1;
	int before = 0;

	if (lane == first && bin >= 0)
		before = atomicAdd(&count[bin], __popc(same));
	return __shfl_sync(0xffffffff, before, first) + __popc(same & ((1u << lane) - 1));
}

/* The sum of x over the threads before this one.  By all threads. */
__device__ __forceinline__ int sum_before(int x, int *warps)
{
	const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
	int sum = x;

	for (int d = 1; d < 32; d *= 2) {
		const int y = __shfl_up_sync(0xffffffff, sum, d);

		sum += lane < d ? 0 : y;
	}
	if (lane == 31)
		warps[warp] = sum;
	__syncthreads();
	sum += __reduce_add_sync(0xffffffff, lane < warp ? warps[lane] : 0);
	__syncthreads();
	return sum - x;
}

/* Replace each count by the sum of all counts before it. */
__device__ __forceinline__ void sum_counts(int *count, int *warps)
{
	int *own = &count[threadIdx.x * (BINS / THREADS)], sum = 0;

	for (int k = 0; k < BINS / THREADS; k++)
		sum += own[k];
	sum = sum_before(sum, warps);
	for (int k = 0; k < BINS / THREADS; k++) {
		const int n = own[k];

		own[k] = sum;
		sum += n;
	}
	__syncthreads();
}

/* Whether whole tile i to cut is the first of those that are sorted among each other. */
__device__ __forceinline__ bool begins_run(const struct params *p, const attn_tile &t, int i)
{
	const int left = p->n_tile - i, group = p->group;

	if (!p->round || !i || i >= p->n_tile)
		return false;
	if (left <= 2 * p->round)
		return left % p->round == 0;
	const attn_tile &before = p->tile[p->n_plain + i - 1];

	return t.req != before.req || t.head / group != before.head / group;
}

/* The bin of a piece of n blocks in a run of tiles.  Bins of a run are in order, the longest
 * first.  most: blocks of a piece; the last bin of all stays free. */
__device__ __forceinline__ int bin_of(int run, int n_run, int n, int most)
{
	int shift = 0, width;

	while ((n_run - 1) >> shift >= RUNS)
		shift++;
	width = (BINS - 1) / (((n_run - 1) >> shift) + 1);
	run >>= shift;
	for (shift = 0; most >> shift >= width; shift++)
		;
	return (run + 1) * width - 1 - (n >> shift);
}

__global__ void __launch_bounds__(THREADS)
attend_cut(const __grid_constant__ struct params p, struct attend_piece *piece)
{
	__shared__ int count[BINS], warps[THREADS / 32], most;
	const int i = threadIdx.x;
	attn_tile t = {};
	int n = 0, n_whole, n_part = 0, waves, all, len, shortest, first, own = 0, bin = -1, place;
	int needed, begins, run, n_run;

#if __CUDA_ARCH__ >= 900
	grid_launch_next();
#endif
	if (i < p.n_tile) {
		t = p.tile[p.n_plain + i];
		n = length(&p, t);
		shortest = max((n - 1) / t.n_part + 1, p.least);
	}
	all = __reduce_add_sync(0xffffffff, t.part ? 0 : n);
	if (i % 32 == 0)
		warps[i / 32] = all;
	for (int k = i; k < BINS; k += THREADS)
		count[k] = 0;
	if (!i)
		most = 0;
	n_whole = __syncthreads_count(i < p.n_tile && !t.part);
	all = __reduce_add_sync(0xffffffff, warps[i % 32]);
	if (i < p.n_tile) {
		waves = (n_whole - 1) / p.n_slot + 1;
		len = max(all / (waves * p.n_slot) + p.cost, shortest);
		n_part = max((n - 1) / len + 1, 1);
		first = min(t.part * len, n);
		own = min(len, n - first);
	}
	needed = __syncthreads_count(t.part < n_part);
	if (!i)
		piece[p.n_tile] = { 0, 0, needed, 0 };
	n = __reduce_max_sync(0xffffffff, own);
	if (i % 32 == 0)
		atomicMax(&most, n);
	begins = begins_run(&p, t, i);
	run = sum_before(begins, warps) + begins;
	n_run = __syncthreads_count(begins) + 1;
	if (i < p.n_tile)
		bin = t.part < n_part ? bin_of(run, n_run, own, most) : BINS - 1;
	place = count_one(count, bin);
	__syncthreads();
	sum_counts(count, warps);
	if (i < p.n_tile)
		piece[count[bin] + place] = { p.n_plain + i, first, own, n_part };
}

enum ar_status launch(const struct attn_batch *b, int n, struct params p,
		      struct attend_piece *piece, void *stream, struct ar_err *err)
{
	const int tok = b->shape.page_tok, per_sm = tok == 64 && b->shape.head_dim < 256 ? 2 : 1;
	enum ar_status st = AR_OK;

	p.tile = b->tile;
	p.page_tok = tok;
	p.least = LEAST / tok;
	p.cost = COST / tok;
	p.n_plain = b->n_tile - n;
	p.n_tile = n;
	p.n_slot = b->n_sm * per_sm;
	p.round = b->n_part ? 0 : p.n_slot;
	p.group = b->shape.q_heads / b->shape.kv_heads;
	attend_cut<<<1, THREADS, 0, (cudaStream_t)stream>>>(p, piece);
	CU_LAUNCHED();
out:
	return st;
}

} /* namespace */

enum ar_status attend_cut_enqueue(const struct attn_batch *b, int n,
				  const struct block_lists *lists, struct attend_piece *piece,
				  void *stream, struct ar_err *err)
{
	struct params p = {};

	p.block = lists->block;
	p.n_block = lists->n;
	p.stride = lists->stride;
	return launch(b, n, p, piece, stream, err);
}

enum ar_status attend_cut_columns_enqueue(const struct attn_batch *b, int n,
					  const struct column_lists *lists,
					  struct attend_piece *piece, void *stream,
					  struct ar_err *err)
{
	struct params p = {};

	p.n_block = lists->n_run;
	p.n_col = lists->n_col;
	return launch(b, n, p, piece, stream, err);
}
