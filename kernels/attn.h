/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The batch that selectors, unions and executors work on: query rows over a paged KV cache, as one
 * layer sees them.
 *
 * Request r has the rows [row0[r], row0[r + 1]).  Row i stands at position pos[i] of its request
 * and may attend every position up to its own.  The request has len[r] keys, at positions
 * [0, len[r]).  They are addressed by absolute blocks of page_tok tokens: block j holds positions
 * [j * page_tok, (j + 1) * page_tok) and lies in page page[page0[r] + j].  Query blocks lie on the
 * same grid.  A request has the query blocks from its first row to its last; the first and the last
 * may be partial.
 *
 * Required today: the rows of a request are consecutive, pos[row0[r] + i] == pos0[r] + i.  The last
 * row is the last key, len[r] == pos0[r] + rows.  Selectors and all kernels depend on both.
 * attn_is_chunked() checks both, and is asserted where batches are made for a device.  Only the
 * references of executors take rows at any ascending positions.
 *
 * Keys that lie in order of arrival have positions of their own, keys.pos.  Then a request has one
 * row, which sees the keys at positions up to rows.own, wherever they lie.  pos[i] is the last
 * index that it looks at.  Requests may share their pages, so page0 need not ascend.  Only
 * decode_ref() and decode_enqueue() take such batches.
 *
 *   q, out   [row][q_heads][head_dim]                          bf16
 *   lse      [row][q_heads]                                    float, natural log
 *   k, v     [page][kv_heads][page_tok][head_dim]              bf16, after RoPE
 *   mask     [(qblk0[r] + i) * q_heads + h][mask_words]        bit j: block j is kept
 *
 * Tokens of a page past the request's last one must be finite numbers; no row attends to them.
 *
 * The KV head of query head h is h / (q_heads / kv_heads).  The same structs serve the
 * C reference (arrays on the host) and CUDA (arrays on the device).
 */
#ifndef AR_ATTN_H
#define AR_ATTN_H

#include <math.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/bf16.h"
#include "base/both.h"
#include "model/cache_layout.h"

#ifdef __cplusplus
extern "C" {
#endif

struct attn_shape {
	int q_heads, kv_heads, head_dim;
	int page_tok; /* CUDA: 64 or 128 */
};

/* The most one batch can hold; device memory is sized by it once. */
struct attn_limits {
	int max_req, max_row, max_kv_blk;
	int n_sm;	  /* as in struct attn_batch */
	int64_t max_page; /* blocks of all requests */
};

struct attn_tile; /* executor's unit of work, kernels/exec/executor.h */

/* The rows of a chunk for each request; its owner keeps the arrays. */
struct attn_rows {
	int n_req;
	int n_row;	      /* row0[n_req] */
	int n_qblk;	      /* qblk0[n_req] */
	const int32_t *row0;  /* [n_req + 1] first row of each request */
	const int32_t *pos;   /* [n_row] ascending in each request */
	const int32_t *pos0;  /* [n_req] position of the first row: the tokens before it */
	const int32_t *qblk0; /* [n_req + 1] first query block of each request */
	const int32_t *left;  /* [n_req] tokens of the prompt after the chunk; 0: last chunk */
	const int32_t *first; /* [n_row] first key that a row sees, at most its own, ascending in
			       * each request; NULL: key 0 */
	const int32_t *own;   /* [n_row] with keys.pos: the row's position among them */
};

/* The keys of each request; its owner keeps the arrays. */
struct attn_keys {
	int n_page;	      /* page0[n_req] */
	int max_kv_blk;	      /* largest number of blocks of a request, chunk included */
	int mask_words;	      /* ceil(max_kv_blk / 32) */
	const int32_t *len;   /* [n_req] keys, the chunk's included */
	const int32_t *page0; /* [n_req + 1] where each request begins in page */
	const int32_t *page;  /* [n_page] */
	const int32_t *pos;   /* position of each key; that of key i of request r is at
			       * page0[r] * page_tok + i.  NULL: it is i */
};

/* The number of rows of request r, and of its rows below position end.  On the host.  For
 * consecutive rows the first guess is right. */
static inline int attn_n_row(const struct attn_rows *rows, int r)
{
	return rows->row0[r + 1] - rows->row0[r];
}

static inline int attn_rows_below(const struct attn_rows *rows, int r, int end)
{
	const int32_t *pos = rows->pos + rows->row0[r];
	int n = end - rows->pos0[r];

	n = n < attn_n_row(rows, r) ? n : attn_n_row(rows, r);
	while (n > 0 && pos[n - 1] >= end)
		n--;
	return n > 0 ? n : 0;
}

/* Skip-softmax: a tile counts for nothing where all of its logits are below the largest that its
 * rows have seen by more than the logarithm of a threshold.  All 0: no tile is skipped.
 *
 * Chunks, rows > 0: a tile is `rows` rows of one head, from a tile of the plan's first row on, and
 * `keys` keys.  A row has seen the tiles that were not skipped.  The first is never skipped.
 *
 * Decodes, rows 0: a tile is the rows of all heads that share keys, and `keys` keys.  Tile i
 * belongs to part i % parts, whose first tile is never skipped.  A row has seen all tiles of the
 * part before.  If the threshold is above 1, nothing is skipped. */
struct attn_skip {
	float scale;	 /* the threshold is scale / keys of the request, */
	float threshold; /* or this one, unless it is 0 */
	bool clamp;	 /* chunks: a threshold above 1 is 1 */
	int rows, keys;
	int parts;	/* at most as many as there are tiles; 0: as the kernel cuts the keys; of
			 * references one */
	int64_t *count; /* [kv_heads][2] tiles walked and tiles skipped are added; NULL: not asked
			 * for.  Tiles past all of their rows are not walked. */
};

AR_BOTH static inline bool attn_skip_on(const struct attn_skip *s)
{
	return s->scale > 0 || s->threshold > 0;
}

/* The logarithm of the threshold of a request with len keys; -inf: nothing is skipped. */
AR_BOTH static inline float attn_skip_below(const struct attn_skip *s, int len)
{
	float threshold = s->threshold > 0 ? s->threshold : s->scale / (float)len;

	if (threshold > 1 && !s->rows)
		return -INFINITY;
	return logf(threshold > 1 && s->clamp ? 1 : threshold);
}

struct attn_batch {
	struct attn_shape shape;
	struct attn_rows rows;
	struct attn_keys keys;
	const int32_t *kept; /* pool executors: past tokens per list, to be added to tile.pos;
				 * NULL otherwise */
	const struct attn_tile *tile; /* from executor->plan */
	int n_tile;
	int n_part; /* tiles that are parts, from executor_count_parts() */
	int n_sm;   /* multiprocessors that the plan fills by cutting tiles into parts;
				 * 0: tiles stay whole */
	int tail;   /* dense tail, with tables only: the last `tail` query blocks of a
				 * prompt see every block, and tables leave them out */

	/* Of executors that skip; no effect on rows with first keys, sinks or keys.pos. */
	struct attn_skip skip;
};

/* Whether every request's rows are consecutive and end with its keys.  b's arrays are on the host.
 * Positions ascend, so the first and the last row suffice. */
static inline bool attn_is_chunked(const struct attn_batch *b)
{
	const struct attn_rows *rows = &b->rows;

	for (int r = 0; r < rows->n_req; r++) {
		const int32_t *pos = rows->pos + rows->row0[r];
		int n = attn_n_row(rows, r), last = rows->pos0[r] + n - 1;

		if (b->keys.len[r] != last + 1 ||
		    (n && (pos[0] != rows->pos0[r] || pos[n - 1] != last)))
			return false;
	}
	return true;
}

/* Query blocks of request r before the dense tail. */
AR_BOTH static inline int attn_body(const struct attn_batch *b, int r)
{
	int n = b->rows.qblk0[r + 1] - b->rows.qblk0[r];

	return !b->tail || b->rows.left[r] ? n : n > b->tail ? n - b->tail : 0;
}

/* The planes of layout kv-bf16, as device code sees them. */
struct kv_bf16 {
	bf16_t *k, *v;
};

/* The planes of one layer: by number, and for kv-bf16 by name. */
struct kv_cache {
	union {
		struct {
			bf16_t *k, *v;
		};
		struct kv_bf16 bf16;
		void *plane[CACHE_PLANES];
	};
};

/* One call of a selector, an executor or a whole method, in one layer.  The caller owns all of it;
 * ref() takes arrays on the host, enqueue() on the device.  Members that a function does not use
 * may be 0. */
struct attn_call {
	const struct attn_batch *b;
	int layer; /* of the model */
	const bf16_t *q;
	struct kv_cache kv;
	const struct cache_layout *layout; /* of kv; NULL: kv-bf16 */
	void *state;			   /* of the selector, see selector.h */
	void *prune_state;		   /* of the pruner of its lists */
	const struct piece_lists *from;	   /* for a pruner: the lists */
	void *lists; /* that pass between layers, of method_lists_bytes(); NULL: none do */
	/* Rows are shown to a state: one row of each request, and all before it were shown.  It is
	 * never wrong to say false. */
	bool next;
	const float *sink; /* [q_heads] logits in the sum of softmax, without a value; NULL: none */
	bf16_t *out;
	float *lse;	     /* NULL: not asked for */
	void *work, *stream; /* CUDA: work_bytes() of memory, and where to enqueue */
	bool beside; /* dense decodes may start before the launch ahead of them ends.  It attends
		      * for chunks of the same batch, and uses other work. */
};

/* Block lists.  Row l holds n[l] ascending block numbers at block[l * stride].  block
 * NULL: every block, in order (dense).  Without a union there is a row per (query block, query
 * head), as in a mask; with one, a row per (request, head group). */
struct block_lists {
	uint16_t *block;
	int32_t *n;
	int stride;
};

/* Token lists, one per (request, KV head): row (r, h) holds n[r * kv_heads + h] ascending
 * positions before the chunk, from tok[attn_token_row()] on.  The chunk's own tokens are always
 * visible and not listed. */
struct token_lists {
	int32_t *tok, *n;
};

/* Where row (r, h) begins in tok.  Every row has room for all tokens of its request's blocks; rows
 * are in order of requests, then KV heads.  n_page: blocks of the request. */
AR_BOTH static inline size_t attn_token_row(const struct attn_shape *s, int32_t page0,
					    int32_t n_page, int h)
{
	return ((size_t)page0 * (size_t)s->kv_heads + (size_t)h * (size_t)n_page) *
	       (size_t)s->page_tok;
}

/* Piece lists of decodes.  A piece is tok tokens from position piece * tok on, where tok divides
 * page_tok.  The newest piece may be partial.  `heads` query heads of a KV head share a list.  List
 * l, of the l % groups-th group of request l / groups, has n[l] ascending pieces from
 * piece[l * stride] on.  Bit h of mask[l * stride + i]: head h of the group sees the i-th of them.
 * mask NULL: all do. */
struct piece_lists {
	int tok, heads, stride;
	int all_below; /* rows with fewer keys list every piece */
	int32_t *piece, *n;
	uint16_t *mask;
};

/* Which keys of runs a row sees: keys below position init, and keys less than local before the row.
 * A row among the last `last` tokens of the prompt sees all.  local 0: every row does. */
struct attn_band {
	int init, local, last;
};

/* total: tokens of the prompt. */
AR_BOTH static inline bool attn_band_hides(const struct attn_band *b, int total, int pos, int key)
{
	return b->local && pos < total - b->last && key >= b->init && pos - key >= b->local;
}

/* Vertical-slash lists, one per (query block, query head), as in a mask.  A run is page_tok keys
 * from any position on; a column is a single key.  Runs ascend, do not overlap and may reach past
 * the query block.  Columns ascend, lie before its first position and in no run.  List l has the
 * first positions of n_run[l] runs from run[l * max_run] on, seen under band[l].  It has n_col[l]
 * columns from col[l * max_col] on. */
struct column_lists {
	int32_t *run, *n_run, *col, *n_col;
	int max_run, max_col;
	struct attn_band *band;
};

/* The shapes of a selection; kernels/methods/shapes.c has a row for each. */
enum {
	SHAPE_ALL = 1,	    /* no selection: every block */
	SHAPE_MASK = 2,	    /* a list per (query block, query head) */
	SHAPE_TABLE = 4,    /* a list per (request, head group), the union of a mask */
	SHAPE_TOKENS = 8,   /* a token list per (request, KV head) */
	SHAPE_COLUMNS = 16, /* a vertical-slash list per (query block, query head) */
	SHAPE_PIECES = 32,  /* a piece list per (request, heads of a KV head), of decodes */
};

/* The output of a selector.  Only the arrays of its shape are set: mask, tokens, columns or
 * pieces. */
struct selection {
	uint32_t *mask;
	struct token_lists tokens;
	struct column_lists columns;
	struct piece_lists pieces;
	float *score; /* of blocks, [(query block, query head)][max_kv_blk], or of tokens, in
			 * rows like tokens.tok; NULL: not asked for.  Places of blocks or tokens
			 * without a score are not written. */
};

/* The scores of a query block's blocks under a head, or NULL. */
static inline float *selection_score(const struct selection *s, const struct attn_batch *b,
				     int qblk, int head)
{
	size_t row = (size_t)qblk * (size_t)b->shape.q_heads + (size_t)head;

	return s->score ? s->score + row * (size_t)b->keys.max_kv_blk : NULL;
}

/* Largest number of query blocks a batch within the limits can have: a chunk of n rows
 * touches at most ceil(n / page_tok) + 1 blocks. */
static inline int attn_max_qblk(const struct attn_limits *l, int page_tok)
{
	return (l->max_row + page_tok - 1) / page_tok + 2 * l->max_req;
}

#ifdef __cplusplus
}
#endif
#endif
