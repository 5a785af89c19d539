/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch in the arrays that the kernels read: its rows, and a part for each kind of rows, an
 * attn_batch.  Rows are in the order of kinds, rows of a kind in batch order.  Rows that decodes
 * revive are at positions before the decode's.  Each sees only the keys up to its own position.
 *
 * Layers of other pages, another method or other rows need arrays of their own: a view.  All arrays
 * of all views are in one block of memory, so that one copy moves them to a device.
 */
#ifndef AR_ROWS_H
#define AR_ROWS_H

#include "kernels/state/state.h"
#include "kernels/layer/layer.h"
#include "kernels/methods/method.h"
#include "replay/engine/activations.h"
#include "replay/engine/groups.h"
#include "replay/sched/batch.h"

struct rows {
	int n_row, n_emit;
	struct layer_row *row;		   /* [n_row]; NULL: linear layers, which store no keys */
	int32_t *emit;			   /* [n_emit] rows that output a token */
	struct attn_batch part[ROW_KINDS]; /* ROW_REVIVED: a request for each row, on the pages of
					    * the decodes; keys.pos is set */
	const uint8_t *gone; /* [pages of the decodes][page_tok] the flags of struct row_segment,
			      * see struct drop_revived; NULL: not asked for */
	struct state_batch state; /* of layers with a state: the prefill rows */
};

/* Rows of a kind, and rows of all kinds before it. */
static inline int rows_count(const struct rows *r, enum row_kind kind)
{
	return r->part[kind].rows.n_row;
}

static inline int rows_before(const struct rows *r, enum row_kind kind)
{
	int n = 0;

	for (int k = 0; k < (int)kind; k++)
		n += r->part[k].rows.n_row;
	return n;
}

/* The layers that share a view.  In a view of linear layers, a request has one page: its state.
 * keys.page of a part lists the states of its requests. */
struct row_view {
	int segment;
	const struct cache_group *group; /* the rows are in its pages */
	const struct method *method;	 /* NULL: linear layers */
};

/* The rows of an iteration, of each view. */
struct row_set {
	struct rows *view; /* [n_view], owned */
	const int *of;	   /* [n_run_layers] view of each executed layer; borrowed */
	int n_view;
};

/* The rows that executed layer i works on. */
static inline const struct rows *row_set_of(const struct row_set *s, int i)
{
	return &s->view[s->of[i]];
}

/* The rows of each entry of a batch in a segment.  A segment is a range of layers that work on the
 * same rows.  The i-th row of an entry lies at index start + i of the KV cache.  The segment's
 * views leave entries without rows out. */
struct row_segment {
	const int32_t *start;	    /* [batch->n] tokens of the request in the cache before */
	const int32_t *n;	    /* [batch->n] rows */
	const int32_t *const *keep; /* [batch->n] numbers of the rows in the entry, ascending;
				      * NULL: the first n */
	/* [batch->n] positions of the tokens in the cache before, ascending: windows count
	 * positions of the request.  NULL, the array or an element: windows count tokens of the
	 * cache. */
	const int32_t *const *before;

	/* Tokens that decodes revive; NULL: none.  n counts them.  They lie in the cache before the
	 * decode's own row, whose keys have the positions `before` in any order. */
	const int32_t *n_back;	    /* [batch->n] */
	const int32_t *const *back; /* [batch->n][n_back] their positions */
	const uint8_t *const *gone; /* [batch->n] flags of the tokens in the cache before, 1: not
				      * in that of the next segment; NULL: not asked for */
};

/* Tokens that entry i revives in segment s, or NULL. */
static inline int32_t rows_n_back(const struct row_segment *s, size_t i)
{
	return s && s->n_back ? s->n_back[i] : 0;
}

/* (row, key) pairs of entry i of b in a segment, NULL: of all its rows, where a row sees `window`
 * keys at most; 0: all. */
int64_t rows_pairs(const struct row_segment *s, const struct batch *b, size_t i, int window);

struct row_arrays;

/* Input of rows_build(), the same for all batches. */
struct rows_env {
	struct row_view *view; /* [n_view], owned, as is of */
	int n_view;
	int *of; /* [n_run_layers] view of each executed layer */
	const struct activations *act;
	const void *act_self;
	struct attn_limits limit[ROW_KINDS]; /* of a batch; all 0: it has no rows of the kind.
						* max_page of prefill: pages that methods
						* have room for; 0: for all */
	int revives;			     /* most tokens that a decode revives; 0: none */
	bool tiles;   /* plan the tiles of prefill entries; page n_page of each group is of no
		     * request, for padded rows */
	void *mem;    /* block of memory for the arrays; of the caller */
	size_t bytes; /* rows_bytes() */
	struct row_arrays *arrays; /* [n_view][ROW_KINDS], owned; rows_build_decodes() uses it */
};

/* Make room for n_layers executed layers without a view.  Release *e even after a failure. */
enum ar_status rows_env_init(struct rows_env *e, int n_layers, struct ar_err *err);
void rows_env_release(struct rows_env *e);
/* Executed layer i has this view.  Layers of equal ones share it. */
void rows_env_add(struct rows_env *e, int i, const struct row_view *view);

enum ar_status row_set_init(struct row_set *s, const struct rows_env *e, struct ar_err *err);
void row_set_release(struct row_set *s);

/* Set the limits of a policy's batches; a decode revives at most e->revives tokens.  Without drafts
 * no verify entries fit.  n_sm (tiles are whole) and max_page (the size of the cache is not known
 * yet) are 0. */
void rows_limits(struct rows_env *e, const struct backend_env *env, int page_tok);

/* Most rows of a batch in one segment. */
static inline int rows_max(const struct rows_env *e)
{
	int n = 0;

	for (int k = 0; k < ROW_KINDS; k++)
		n += e->limit[k].max_row;
	return n;
}

/* Most rows that output a token: of a prefill entry its last, of a verify entry all. */
static inline int rows_max_emit(const struct rows_env *e)
{
	return e->limit[ROW_PREFILL].max_req + e->limit[ROW_DECODE].max_row +
	       e->limit[ROW_VERIFY].max_row;
}

/* Bytes of mem that are enough for any batch within the limits.  The groups have their pages. */
size_t rows_bytes(const struct rows_env *e);

/* Build the rows of b in e->mem.  blocks_place() has given the requests their pages.  segment:
 * [segments]; NULL: all rows go through all layers.  tiles: the method that plans the tiles of all
 * views; NULL: each view's own.  pad: number of rows to pad to; padded rows come last, are at
 * position 0 of the scratch page, and take no part in attention.  *used: bytes of mem that were
 * filled.  AR_USAGE: the batch exceeds the limits, or its verify entries meet a linear layer or a
 * dropper, which cannot take refused drafts back. */
enum ar_status rows_build(struct row_set *out, const struct rows_env *e, const struct batch *b,
			  const struct row_segment *segment, const struct method *tiles, int pad,
			  size_t *used, struct ar_err *err);

/* Build a batch of decodes only, padded to n rows.  Padded rows are at position 0
 * of the scratch page, and the n rows emit.  If tokens are revived, views after segment 0 have
 * n * revives rows more, padded, too.  Addresses in mem, numbers of rows and the largest number of
 * blocks depend on n only.  So one CUDA graph runs all batches of n rows.  For that, views share
 * keys.page, and the first request of a view may begin anywhere in it; if tokens are revived, each
 * view has room for all pages, which keys.n_page is then. */
enum ar_status rows_build_decodes(struct row_set *out, const struct rows_env *e,
				  const struct batch *b, const struct row_segment *segment, int n,
				  size_t *used, struct ar_err *err);

/* s with pointers into copy, a copy of mem, for example on the device. */
void row_set_at(struct row_set *out, const struct row_set *s, const void *mem, void *copy);

#endif
