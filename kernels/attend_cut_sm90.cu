/*
 * Cut tiles by the lengths of their lists, and sort the parts.
 *
 * As long as tiles fit the multiprocessors in `waves` rounds, an even share of all blocks is the
 * least time; tiles that are longer lose their ends, which go where tiles are shorter.  Longest
 * first, they pack well.  A part is a little longer than the share, since fewer of them cost less.
 *
 * One thread block, a thread for each tile, parts counted.
 */
#include "config.h"

#include <cuda_runtime.h>

#include "kernels/attend_cut.h"
#include "kernels/cuda.h"
#include "kernels/sm90.cuh"

namespace {

constexpr int THREADS = ATTEND_CUT_TILES;
constexpr int COST = 512;	/* keys, an estimate: half of what a part costs beside its own */

struct params {
	const attn_tile *tile;
	const uint16_t *block;
	const int32_t *n_block;
	int stride, page_tok;
	int n_tile, n_slot;
};

/* Blocks of a tile's list up to the last that it sees. */
__device__ __forceinline__ int length(const struct params *p, const attn_tile &t)
{
	const uint16_t *block = p->block + (size_t)t.list * p->stride;
	const int last = (t.pos + t.n_row - 1) / p->page_tok;
	int n = p->n_block[t.list];

	while (n && block[n - 1] > last)
		n--;
	return n;
}

/* count[i] becomes the sum of those before it; one per thread. */
__device__ __forceinline__ void sum_before(int *count, int *warps)
{
	const int i = threadIdx.x, lane = i % 32, own = count[i];
	int sum = own;

	for (int d = 1; d < 32; d *= 2) {
		const int x = __shfl_up_sync(0xffffffff, sum, d);

		sum += lane < d ? 0 : x;
	}
	if (lane == 31)
		warps[i / 32] = sum;
	__syncthreads();
	for (int w = 0; w < i / 32; w++)
		sum += warps[w];
	count[i] = sum - own;
	__syncthreads();
}

__global__ void __launch_bounds__(THREADS)
attend_cut(const __grid_constant__ struct params p, struct attend_piece *piece)
{
	__shared__ int count[THREADS], warps[THREADS / 32], all;
	const int i = threadIdx.x, least = ATTEND_PART_KEYS / p.page_tok;
	attn_tile t = {};
	int n = 0, n_whole, n_part, waves, len, first, own, bin, place;

#if __CUDA_ARCH__ >= 900
	grid_launch_next();
#endif
	count[i] = 0;
	if (i == 0)
		all = 0;
	__syncthreads();
	if (i < p.n_tile) {
		t = p.tile[i];
		n = length(&p, t);
		if (!t.part)
			atomicAdd(&all, n);
	}
	n_whole = __syncthreads_count(i < p.n_tile && !t.part);
	if (i < p.n_tile) {
		waves = (n_whole - 1) / p.n_slot + 1;
		len = max(all / (waves * p.n_slot) + COST / p.page_tok, least);
		len = max(len, (n - 1) / t.n_part + 1);
		n_part = max((n - 1) / len + 1, 1);
		first = min(t.part * len, n);
		own = min(len, n - first);
		bin = THREADS - 1 - min(own, THREADS - 1);
		place = atomicAdd(&count[bin], 1);
	}
	__syncthreads();
	sum_before(count, warps);
	if (i < p.n_tile)
		piece[count[bin] + place] = { i, first, own, n_part };
}

} /* namespace */

enum ar_status attend_cut_enqueue(const struct attn_batch *b, const struct block_lists *lists,
				  int n_slot, struct attend_piece *piece, void *stream,
				  struct ar_err *err)
{
	const struct params p = { b->tile, lists->block, lists->n, lists->stride,
				  b->shape.page_tok, b->n_tile, n_slot };
	enum ar_status st = AR_OK;

	attend_cut<<<1, THREADS, 0, (cudaStream_t)stream>>>(p, piece);
	CU_LAUNCHED();
out:
	return st;
}
