/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over block lists, for all executors: the tile plan, the reference and the CUDA
 * kernels.  Executors differ only in how they cut a batch into tiles: lists hold absolute block
 * numbers, so everything after that is the same.
 *
 * A tile's rows are packed row by row: packed row p is chunk row tile.row + p / n_head, head
 * tile.head + p % n_head.  At most ATTEND_ROWS rows are packed.  So the blocks of a KV head are
 * read once for all of its query heads. */
#ifndef AR_ATTEND_H
#define AR_ATTEND_H

#include "kernels/exec/executor.h"

#ifdef __cplusplus
extern "C" {
#endif

enum {
	ATTEND_ROWS = 128,	 /* most packed rows of a tile */
	ATTEND_STEP = 128,	 /* keys of a kernel step */
	ATTEND_PART_KEYS = 512,	 /* fewest keys of an even part that merges */
	ATTEND_SHARE_KEYS = 256, /* fewest keys of a part that shares rows */
	ATTEND_SHARES = 8,	 /* most parts that share the rows of a tile */
	ATTEND_LIST_KEYS = 1536, /* keys of context for each part reserved for a list */
};

typedef int attend_plan_fn(const struct attn_batch *b, int heads, struct attn_tile *tile);

/* Tiles of ATTEND_ROWS / heads rows, counted from the chunk's start.  list: one per (request,
 * group of at most heads heads of a KV head).  heads 0: groups are whole KV heads, and every block
 * is read.  Where chunks skip tiles, a tile has one head and no parts. */
int attend_plan_rows(const struct attn_batch *b, int heads, struct attn_tile *tile);

/* Tiles of one query block and one head.  list: one per (query block, head), of blocks or
 * vertical-slash.  Only the device knows how long lists are: the plan reserves parts for tiles with
 * enough context, and the device cuts. */
int attend_plan_blocks(const struct attn_batch *b, int heads, struct attn_tile *tile);

/* Whether the call may skip tiles: attn_batch.skip is set and has an effect. */
bool attend_skips(const struct attn_call *call);

/* The most heads packed in a tile of a plan for lists of `heads` heads. */
static inline int attend_pack(const struct attn_batch *b, int heads)
{
	return b->skip.rows ? 1 : heads;
}

/* The keys of a step of the kernels, and of a tile that chunks skip. */
static inline int attend_step(const struct attn_shape *s)
{
	return s->head_dim > 128 ? ATTEND_STEP / 2 : ATTEND_STEP;
}

/* Rank of a tile that sees n > 0 blocks; a plan goes from high to low ranks.  Lengths less than an
 * eighth apart may share a rank.  A rank ends at each power of two, because contexts do.  Within a
 * rank, tiles that read the same keys stand together and find them in the L2 cache. */
int attend_rank(int n);

/* executor->ref over block lists. */
enum ar_status attend_ref(const struct attn_call *call, attend_plan_fn *plan, int heads,
			  const struct block_lists *lists, struct ar_err *err);

/* CUDA.  Calls the kernel for the current device.  plan: the function that made b->tile; heads:
 * most heads that share a list. */
typedef enum ar_status attend_enqueue_fn(const struct attn_call *call, attend_plan_fn *plan,
					 int heads, const struct block_lists *lists,
					 struct ar_err *err);
attend_enqueue_fn attend_enqueue;
attend_enqueue_fn attend_sm80_enqueue; /* mma.sync; any device from 8.0 on; whole tiles */
attend_enqueue_fn attend_sm90_enqueue; /* wgmma and TMA; 9.0; whole tiles and parts */

/* Launch decodes, as decode_line.cuh describes them. */
struct decode_args;
typedef enum ar_status decode_launch_fn(const struct decode_args *a, void *stream,
					struct ar_err *err);
decode_launch_fn decode_sm90_launch; /* TMA; 9.0; all blocks, or lists of blocks */
size_t attend_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads);

#ifdef __cplusplus
}
#endif
#endif
