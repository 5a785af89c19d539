/* SPDX-License-Identifier: Apache-2.0 */
/* The level at which tiles with lists are cut, for attend_cut and for thread blocks that do not
 * wait for it. */
#ifndef AR_ATTEND_LEVEL_CUH
#define AR_ATTEND_LEVEL_CUH

#include <cuda_runtime.h>

#include "kernels/exec/executor.h"

namespace {

constexpr int LEAST_KEYS = 1024;	/* fewest keys of a part */
constexpr int COST_KEYS = 512;		/* an estimate: half the cost of one more part */

/* n_slot: thread blocks that run at once. */
struct cut_rule {
	int n_slot, page_tok;
};

inline struct cut_rule rule_of(const struct attn_batch *b)
{
	const int per_sm = b->shape.page_tok == 64 && b->shape.head_dim < 256 ? 2 : 1;

	return { b->n_sm * per_sm, b->shape.page_tok };
}

/* Whole tiles need rounds of thread blocks.  The least time for that is an even share of all blocks
 * for each thread block and round.  A part is longer than the share, because fewer parts cost less.
 * all: blocks of n_whole tiles.  Returns the blocks of a part. */
__device__ __forceinline__ int cut_level(const struct cut_rule &r, int all, int n_whole)
{
	const int rounds = (n_whole - 1) / r.n_slot + 1;

	return max(all / (rounds * r.n_slot) + COST_KEYS / r.page_tok, LEAST_KEYS / r.page_tok);
}

/* A part of a tile: blocks [first, first + n) of its list.  The tile has n_part parts; part numbers
 * from there on are not needed. */
struct cut_part {
	int first, n, n_part;
};

/* Cut the tile of t, of n blocks, at a level into at most t.n_part parts. */
__device__ __forceinline__ struct cut_part cut_at(const attn_tile &t, int n, int level)
{
	const int len = max(level, (n - 1) / t.n_part + 1), first = min(t.part * len, n);

	return { first, min(len, n - first), max((n - 1) / len + 1, 1) };
}

/* The blocks of a tile's list, those that its rows do not see included. */
__device__ __forceinline__ int listed(const attn_tile &t, const int32_t *n_block, int page_tok)
{
	return t.list < 0 ? (t.pos + t.n_row - 1) / page_tok + 1 : n_block[t.list];
}

} /* namespace */

#endif
