/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch in the arrays that the kernels read: its rows, and an attn_batch for prefill and one
 * for decode entries.  Rows of prefill entries come first, then one row per decode entry, both in
 * batch order.  All arrays are in one block of memory, so that one copy moves them to a device.
 */
#ifndef AR_ROWS_H
#define AR_ROWS_H

#include "kernels/layer/layer.h"
#include "kernels/methods/method.h"
#include "replay/engine/activations.h"
#include "replay/engine/groups.h"
#include "replay/sched/batch.h"

struct rows {
	int n_row, n_prefill; /* all rows, rows of prefill entries */
	int n_emit;
	struct layer_row *row; /* [n_row] */
	int32_t *emit;	       /* [n_emit] rows that output a token */
	struct attn_batch prefill, decode;
};

/* The rows of an iteration, per segment.  A segment is a range of layers that work on the same
 * rows.  There is one segment, as all rows go through all layers. */
struct row_set {
	struct rows rows;
};

/* The rows that executed layer i works on. */
static inline const struct rows *row_set_of(const struct row_set *s, int i)
{
	(void)i;
	return &s->rows;
}

/* Input of rows_build(), the same for all batches. */
struct rows_env {
	const struct cache_group *group; /* the rows are in its pages */
	const struct activations *act;
	const void *act_self;
	struct attn_limits prefill, decode;
	int tail;	 /* attn_batch.tail of prefill batches */
	int32_t scratch; /* page of no request, for padded rows */
	void *mem;	 /* block of memory for the arrays */
	size_t bytes;	 /* rows_bytes() */
};

/* The limits of a policy's batches, for prefill and decode entries.  n_sm (tiles are whole) and
 * max_page (the size of the cache is not known yet) are 0. */
void rows_limits(const struct backend_env *env, int page_tok, struct attn_limits *prefill,
		 struct attn_limits *decode);

/* Bytes of mem that are enough for any batch within the limits, in a cache of n_page pages. */
size_t rows_bytes(const struct rows_env *e, int64_t n_page);

/* Build the rows of b in e->mem.  groups_grow() has given the requests their pages.  tiles: the
 * method that plans tiles for the prefill entries; NULL: no tiles.  pad: number of rows to pad to;
 * padded rows come last, are at position 0 of the scratch page, and take no part in attention.
 * *used: bytes of mem that were filled.  AR_USAGE: the batch exceeds the limits. */
enum ar_status rows_build(struct rows *out, const struct rows_env *e, const struct batch *b,
			  const struct method *tiles, int pad, size_t *used, struct ar_err *err);

/* Build a batch of decodes only, padded to n rows.  Padded rows are at position 0
 * of the scratch page, and all rows emit.  Addresses in mem, numbers of rows and the largest
 * number of blocks depend on n only.  So one CUDA graph runs all batches of n rows. */
enum ar_status rows_build_decodes(struct rows *out, const struct rows_env *e, const struct batch *b,
				  int n, size_t *used, struct ar_err *err);

/* r with pointers into copy, a copy of mem, for example on the device. */
struct rows rows_at(const struct rows *r, const void *mem, void *copy);

#endif
