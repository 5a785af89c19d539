/* SPDX-License-Identifier: Apache-2.0 */
/* What the executors share: the tile plan, one reference and one CUDA kernel for
 * attention over block lists.  Executors differ in how they cut a batch into
 * tiles; since lists hold absolute block numbers, everything after that is the same.
 *
 * A tile's rows are packed row by row: packed row p is chunk row tile.row + p / n_head, head
 * tile.head + p % n_head.  At most ATTEND_ROWS rows are packed, so that the blocks of a
 * KV head are read once for all of its query heads. */
#ifndef AR_ATTEND_H
#define AR_ATTEND_H

#include "kernels/exec/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	ATTEND_ROWS = 128,
	ATTEND_STEP = 128,		/* keys that the kernel takes at once */
	ATTEND_PART_KEYS = 1024,	/* even parts have as many */
	ATTEND_LIST_KEYS = 1536,	/* a list has room for a part for as many before its end */
};

typedef int attend_plan_fn(const struct attn_batch *b, int heads, struct attn_tile *tile);

/* Tiles of ATTEND_ROWS / heads rows, counted from the chunk's start; list: one per (request,
 * group of at most heads heads of a KV head).  heads 0: whole KV heads, every block is read. */
int attend_plan_rows(const struct attn_batch *b, int heads, struct attn_tile *tile);

/* One query block and one head a tile; list: one per (query block, head), of blocks, or of runs and
 * columns.  How long lists are only the device knows: parts are room for it to cut, where context
 * is long enough. */
int attend_plan_blocks(const struct attn_batch *b, int heads, struct attn_tile *tile);

/* Place of a tile that sees n blocks, n > 0, in the order of a plan, which is from high to
 * low.  Lengths less than an eighth apart may share a place, up to a power of two, where contexts
 * end: within one place the tiles that read the same keys stand together and find them in the L2
 * cache. */
int attend_rank(int n);

/* executor->ref over block lists. */
enum ar_status attend_ref(const struct attn_call *call, attend_plan_fn *plan, int heads,
			  const struct block_lists *lists, struct ar_err *err);

/* CUDA.  plan: what made the tiles; heads: the most that are packed in one.  Takes
 * the kernel for the current device. */
typedef enum ar_status attend_enqueue_fn(const struct attn_call *call, attend_plan_fn *plan,
					 int heads, const struct block_lists *lists,
					 struct ar_err *err);
attend_enqueue_fn attend_enqueue;
attend_enqueue_fn attend_sm80_enqueue;	/* mma.sync; any device from 8.0 on; whole tiles */
attend_enqueue_fn attend_sm90_enqueue;	/* wgmma and the copy engine; 9.0; parts as well */
size_t attend_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads);

#ifdef __cplusplus
}
#endif
#endif
