/* SPDX-License-Identifier: Apache-2.0 */
/* Executors run attention over a selection.  One file NAME.c (reference, tile plan,
 * descriptor) and its CUDA in kernels/exec/NAME/, one row in executors.c. */
#ifndef AR_EXECUTOR_H
#define AR_EXECUTOR_H

#include <stdalign.h>
#include <stdbool.h>

#include "base/gpu.h"
#include "base/status.h"
#include "kernels/attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is selected, in the shape that the executor takes; all zero: every block.  A table that a
 * selector makes has every block of the chunk, and those that copy blocks need it. */
struct executor_lists {
	int heads;		/* of a table, from union_heads; 0: there are no tables */
	struct block_lists blocks;
	struct token_lists tokens;
	struct column_lists columns;
};

/* The work of one thread block: rows [row, row + n_row) of the batch, the first of them at position
 * pos of request req, whose pages begin at page0; heads [head, head + n_head), all of one KV head,
 * under a list, -1: every block.  A thread block needs nothing of the request beside it.
 *
 * Of the n blocks in the list that its last row can see, it takes len from part * len on; where
 * len is 0, those from n * part / n_part up to n * (part + 1) / n_part, or others: a kernel may cut
 * again where lists are given.  The parts of a tile are in order, with others between them.
 *
 * Of as many places as there are tiles, those from place on belong to the parts of this one.
 * joined is 0 for kernels to count in; when they end it is 0 again.  So launches over the same
 * tiles must not overlap. */
struct attn_tile {		/* three loads of 16 bytes */
	alignas(16) int32_t req;
	int32_t row, n_row, pos;
	int32_t head, n_head;
	int32_t list, page0;
	int16_t part, n_part;
	int32_t len;
	int32_t place;
	int32_t joined;
};

/* A plan with parts has at most this many tiles per multiprocessor. */
enum { EXECUTOR_WAVES = 4 };

typedef enum ar_status executor_fn(const struct attn_call *call, const struct executor_lists *lists,
				   struct ar_err *err);

struct executor {
	const char *name;	/* "paged" */
	const char *title;
	const char *origin;
	const char *kernel;	/* its family in kernels/support.c */
	unsigned takes;		/* SHAPE_ALL ..., those that it runs */
	bool tail;		/* runs the tail of a batch beside its tables */

	/* Cut the batch (its arrays on the host) into tiles, the longest first.  heads: as in
	 * executor_lists.  Where b->n_sm multiprocessors would be left idle, tiles are cut into
	 * parts, each of them a tile.  tile NULL: only count.  Returns the number of tiles. */
	int (*plan)(const struct attn_batch *b, int heads, struct attn_tile *tile);

	/* softmax(q k^T / sqrt(head_dim)) v over the listed keys and allowed
	 * positions.  A row that sees no key gets 0 and lse -inf.  lse may be NULL.  ref makes
	 * a plan of its own, without parts; enqueue runs b->tile in work_bytes() of work.  move,
	 * where it is not NULL, goes first and copies to work the keys and values that enqueue
	 * reads. */
	executor_fn *ref;
	size_t (*work_bytes)(const struct attn_shape *s, const struct attn_limits *l, int heads);
	executor_fn *move;
	executor_fn *enqueue;
};

extern const struct executor *const executors[];	/* ends with NULL */
const struct executor *executor_find(const char *name);

/* The n_part of a batch with these tiles. */
int executor_count_parts(const struct attn_tile *tile, int n);

/* The n_sm of batches for a GPU; 0 where its kernels take whole tiles only. */
static inline int executor_n_sm(const struct gpu *g)
{
	return gpu_is_hopper(g) ? g->n_sm : 0;
}

/* Decode attention: every request has one row (n_row == n_req, row0[r] == r), position
 * ctx[r].  lists: one per (request, group of at most heads heads of a KV head), heads 0: of whole
 * KV heads; they hold no block past the row's own.  lists NULL: every block.  A row under an empty
 * list gets 0.  b->tile is not used.  What is launched on a device depends on n_req, heads and
 * addresses only, not on what the arrays hold.  Launches on one device must not overlap. */
enum ar_status decode_ref(const struct attn_call *call, int heads, const struct block_lists *lists,
			  struct ar_err *err);
size_t decode_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status decode_enqueue(const struct attn_call *call, int heads,
			      const struct block_lists *lists, struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
