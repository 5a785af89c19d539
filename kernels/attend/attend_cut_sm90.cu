/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Cut tiles by the lengths of their lists, and sort the parts, the longest first.  Or sort tiles
 * that the plan leaves whole.
 *
 * attend_cut: whole tiles need `waves` rounds of thread blocks.  The least time for that is an even
 * share of all blocks for each thread block and round.  Tiles longer than the share are cut into
 * parts.  A part is longer than the share by `cost`, because fewer parts cost less.
 *
 * attend_sort: sorts whole tiles within runs.  Runs keep the order of the plan.  The tiles of a KV
 * head are a run.  Tiles with lists of like length then read the same keys at the same time, and
 * find them in the L2 cache.  Each of the last two rounds of thread blocks is a run, too, because
 * a long list that starts late makes the launch longer.  The two rounds are one run if the longest
 * list is much longer than the mean.
 *
 * Each runs in one thread block, with a thread for each tile, parts included.
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
	int n_slot;			/* thread blocks of a round */
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
	return sum - x + __reduce_add_sync(0xffffffff, lane < warp ? warps[lane] : 0);
}

__global__ void __launch_bounds__(THREADS)
attend_cut(const __grid_constant__ struct params p, struct attend_piece *piece)
{
	__shared__ int count[THREADS], warps[THREADS / 32];
	const int i = threadIdx.x;
	attn_tile t = {};
	int n = 0, n_whole, n_part = 0, waves, all, len, shortest, first, own, bin = -1, place;
	int needed;

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
	count[i] = 0;
	n_whole = __syncthreads_count(i < p.n_tile && !t.part);
	all = __reduce_add_sync(0xffffffff, warps[i % 32]);
	if (i < p.n_tile) {
		waves = (n_whole - 1) / p.n_slot + 1;
		len = max(all / (waves * p.n_slot) + p.cost, shortest);
		n_part = max((n - 1) / len + 1, 1);
		first = min(t.part * len, n);
		own = min(len, n - first);
		bin = t.part < n_part ? THREADS - 1 - max(min(own, THREADS - 1), 1) : THREADS - 1;
	}
	needed = __syncthreads_count(t.part < n_part);
	if (!i)
		piece[p.n_tile] = { 0, 0, needed, 0 };
	place = count_one(count, bin);
	__syncthreads();
	count[i] = sum_before(count[i], warps);
	__syncthreads();
	if (i < p.n_tile)
		piece[count[bin] + place] = { p.n_plain + i, first, own, n_part };
}

/* ---- whole tiles ---- */

/* What decides how tiles are sorted. */
struct lengths {
	int most;			/* blocks of the longest list */
	int late_most, late_sum;	/* of the last two rounds: the same, and all blocks */
};

/* n: blocks of this thread's list; late: the same, if it is of the last two rounds, else 0. */
__device__ __forceinline__ void add_lengths(struct lengths *l, int n, int late)
{
	const int most = __reduce_max_sync(0xffffffff, n);
	const int late_most = __reduce_max_sync(0xffffffff, late);
	const int late_sum = __reduce_add_sync(0xffffffff, late);

	if (threadIdx.x % 32)
		return;
	atomicMax(&l->most, most);
	atomicMax(&l->late_most, late_most);
	atomicAdd(&l->late_sum, late_sum);
}

/* Whether the last two rounds are sorted each for itself: the longest list is at most half as long
 * again as the mean. */
__device__ __forceinline__ bool rounds_apart(const struct params *p, const struct lengths &l)
{
	const int mean = l.late_sum / min(p->n_tile, 2 * p->n_slot);

	return 2 * (l.late_most + p->cost) <= 3 * (mean + p->cost);
}

/* Whether tile i is the first of a run. */
__device__ __forceinline__ bool begins_run(const struct params *p, const attn_tile &t, int i,
					   bool apart)
{
	const int left = p->n_tile - i;

	if (!i || left <= 0)
		return false;
	if (left <= 2 * p->n_slot)
		return left == 2 * p->n_slot || (apart && left == p->n_slot);
	const attn_tile &before = p->tile[p->n_plain + i - 1];

	return t.req != before.req || t.head / p->group != before.head / p->group;
}

/* The bin of a list of n blocks in a run.  Bins of a run are in order, the longest first.  most: of
 * all lists. */
__device__ __forceinline__ int bin_of(int run, int n_run, int n, int most)
{
	int shift = 0, width;

	while ((n_run - 1) >> shift >= RUNS)
		shift++;
	width = BINS / (((n_run - 1) >> shift) + 1);
	run >>= shift;
	for (shift = 0; most >> shift >= width; shift++)
		;
	return (run + 1) * width - 1 - (n >> shift);
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

__global__ void __launch_bounds__(THREADS)
attend_sort(const __grid_constant__ struct params p, struct attend_piece *piece)
{
	__shared__ int count[BINS], warps[THREADS / 32];
	__shared__ struct lengths l;
	const int i = threadIdx.x, left = p.n_tile - i;
	attn_tile t = {};
	int n = 0, begins, run, n_run, bin = -1, place;

#if __CUDA_ARCH__ >= 900
	grid_launch_next();
#endif
	for (int k = i; k < BINS; k += THREADS)
		count[k] = 0;
	if (!i) {
		l = {};
		piece[p.n_tile] = { 0, 0, p.n_tile, 0 };
	}
	if (left > 0) {
		t = p.tile[p.n_plain + i];
		n = length(&p, t);
	}
	__syncthreads();
	add_lengths(&l, n, left <= 2 * p.n_slot ? n : 0);
	__syncthreads();
	begins = begins_run(&p, t, i, rounds_apart(&p, l));
	n_run = __syncthreads_count(begins) + 1;
	run = begins + sum_before(begins, warps);
	if (left > 0)
		bin = bin_of(run, n_run, n, l.most);
	place = count_one(count, bin);
	__syncthreads();
	sum_counts(count, warps);
	if (left > 0)
		piece[count[bin] + place] = { p.n_plain + i, 0, n, 1 };
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
	p.group = b->shape.q_heads / b->shape.kv_heads;
	if (b->n_part)
		attend_cut<<<1, THREADS, 0, (cudaStream_t)stream>>>(p, piece);
	else
		attend_sort<<<1, THREADS, 0, (cudaStream_t)stream>>>(p, piece);
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
