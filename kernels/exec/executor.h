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
#include "kernels/phase.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The selection, in the shape that the executor takes; all zero: every block.  A table lists every
 * block of the chunk; executors that copy blocks need that. */
struct executor_lists {
	int heads; /* query heads that share a table, union_heads(); 0: no tables */
	struct block_lists blocks;
	struct token_lists tokens;
	struct column_lists columns;
	struct piece_lists pieces;
};

/* The work of one thread block: rows [row, row + n_row) of the batch and heads
 * [head, head + n_head), all of one KV head.  The first row is at position pos of request req; the
 * request's pages begin at page0.  list: the list of all these rows and heads; -1: every block.
 * Over block lists, a thread block reads nothing else about the request.
 *
 * A part takes some of the n blocks that its last row can see: of the list; without a list, of all
 * blocks from the first row's first key on.  len > 0: len blocks from part * len on.  len 0: blocks
 * [n * part / n_part, n * (part + 1) / n_part), unless the kernel cuts again by the lists.  The
 * parts of a tile are in order in a plan, with others between them.
 *
 * Scratch slots [place, place + n_part) belong to this tile.  joined: a counter for kernels, 0
 * before and after each launch.  So launches over the same tiles must not overlap. */
struct attn_tile { /* three loads of 16 bytes */
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
	const char *name; /* "paged" */
	const char *title;
	const char *origin;
	const char *kernel; /* its family in kernels/support.c */
	unsigned takes;	    /* SHAPE_* that it runs, or'ed */
	bool tail;	    /* runs the dense tail of a batch beside its tables */
	bool copies;	    /* it has a move() where there are kernels */
	bool one_row;	    /* runs requests of one row only, as decodes are */
	enum phase phase;   /* of its attention */
	const char *skips;  /* it skips tiles; the family of kernels that do */

	/* Cut the batch (its arrays on the host) into tiles, the longest first.  NULL: it takes no
	 * tiles.  heads: as in executor_lists.  If whole tiles would leave some of b->n_sm
	 * multiprocessors idle, it cuts them into parts, each its own tile.  tile NULL: only count.
	 * Returns the number of tiles. */
	int (*plan)(const struct attn_batch *b, int heads, struct attn_tile *tile);

	/* softmax(q k^T / sqrt(head_dim)) v over the listed keys and allowed
	 * positions.  A row that sees no key gets 0 and lse -inf; one with a score that is NaN
	 * gets NaN, also as lse.  lse may be NULL.  With sinks,
	 * each adds exp(sink) to the sum of its head's rows and to their lse.  enqueue takes
	 * rows.first where every block is read, otherwise AR_USAGE.  ref makes its own plan,
	 * without parts.  enqueue runs b->tile and uses work_bytes() bytes of call->work.  move,
	 * if not NULL, is called before enqueue: it copies the keys and values that enqueue reads
	 * to work. */
	executor_fn *ref;
	size_t (*work_bytes)(const struct attn_shape *s, const struct attn_limits *l, int heads);
	executor_fn *move;
	executor_fn *enqueue;
};

extern const struct executor *const executors[]; /* ends with NULL */
const struct executor *executor_find(const char *name);

/* Whether e runs chunks over a selection of this shape. */
static inline bool executor_takes(const struct executor *e, unsigned shape)
{
	return e->takes & shape && !e->one_row;
}

/* attn_batch.n_part of a batch with these tiles. */
int executor_count_parts(const struct attn_tile *tile, int n);

/* attn_batch.n_sm for a GPU; 0 if its kernels of this shape take whole tiles only. */
int executor_n_sm(const struct executor *x, const struct attn_shape *s, const struct gpu *g);

/* Decode attention: every request has one row (n_row == n_req, row0[r] == r), position
 * ctx[r].  lists: one per (request, group of at most heads heads of a KV head); heads 0: groups are
 * whole KV heads.  Lists hold no block past the row's own.  lists NULL: every block.  A row under
 * an empty list gets 0.  First keys and sinks come without lists only, otherwise enqueue fails with
 * AR_USAGE; the work is then proportional to the keys from the first on.  Keys with positions of
 * their own come without lists and first keys.  b->tile is not used.  The
 * launch depends on n_req, heads and addresses alone, not on the contents of arrays.  Launches on
 * one device must not overlap. */
enum ar_status decode_ref(const struct attn_call *call, int heads, const struct block_lists *lists,
			  struct ar_err *err);
size_t decode_work_bytes(const struct attn_shape *s, const struct attn_limits *l);
enum ar_status decode_enqueue(const struct attn_call *call, int heads,
			      const struct block_lists *lists, struct ar_err *err);

/* The same over piece lists.  They ascend, and hold no piece past the row's own.  Without a mask,
 * lists of all pieces give what all blocks give.  They give the same bits in C, and on GPUs at head
 * size 256.  Under a mask lists->heads is at most 16.
 * Windows, sinks and keys with positions of their own: enqueue fails with AR_USAGE. */
enum ar_status decode_pieces_ref(const struct attn_call *call, const struct piece_lists *lists,
				 struct ar_err *err);
enum ar_status decode_pieces_enqueue(const struct attn_call *call, const struct piece_lists *lists,
				     struct ar_err *err);

#ifdef __cplusplus
}
#endif
#endif
