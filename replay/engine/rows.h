/* SPDX-License-Identifier: Apache-2.0 */
/*
 * A batch as the kernels see it: its rows, those of prefill entries first, then one per
 * decode entry, both in batch order, and an attn_batch for either kind.  Everything lies in
 * one block of memory, so that one copy brings it to a device.
 */
#ifndef AR_ROWS_H
#define AR_ROWS_H

#include "kernels/layer/layer.h"
#include "kernels/methods/method.h"
#include "replay/engine/activations.h"
#include "replay/engine/groups.h"
#include "replay/sched/batch.h"

struct rows {
	int n_row, n_prefill;		/* rows; of them of prefill entries */
	int n_emit;
	struct layer_row *row;		/* [n_row] */
	int32_t *emit;			/* [n_emit] rows that a token comes out of */
	struct attn_batch prefill, decode;
};

/* The rows of an iteration by segments of layers: layers of a segment work on the same rows.  All
 * rows go through all layers, which is one segment. */
struct row_set {
	struct rows rows;
};

/* The rows that executed layer i works on. */
static inline const struct rows *row_set_of(const struct row_set *s, int i)
{
	(void)i;
	return &s->rows;
}

/* What a batch is turned into rows with. */
struct rows_env {
	const struct cache_group *group;	/* whose pages the rows are in */
	const struct activations *act;
	const void *act_self;
	struct attn_limits prefill, decode;
	int tail;			/* of prefill batches */
	int32_t scratch;		/* page that no request holds, of rows_build_decodes() */
	void *mem;
	size_t bytes;			/* rows_bytes() */
};

/* The limits of the policy's batches, for prefill and decode entries; tiles are whole, and
 * max_page is 0 until the cache's size is known. */
void rows_limits(const struct backend_env *env, int page_tok, struct attn_limits *prefill,
		 struct attn_limits *decode);

/* Enough for every batch within the limits over n_page pages. */
size_t rows_bytes(const struct rows_env *e, int64_t n_page);

/* The requests have their pages.  tiles: the method whose tiles the prefill batch gets, NULL:
 * none.  *used says how much of mem was filled.  AR_USAGE when the batch exceeds the limits. */
enum ar_status rows_build(struct rows *out, const struct rows_env *e, const struct batch *b,
			  const struct method *tiles, size_t *used, struct ar_err *err);

/* Rows that n <= max decodes are padded to: 1, 2, 4, then multiples of 8 to 256, then of 16, and
 * max, which the last step may not reach. */
int rows_padded(int n, int max);

/* A batch of decodes only as one of n of them, n = rows_padded().  The rows after those of b
 * stand at position 0 of the scratch page, and every row emits.  Everything but contents is a
 * function of n: places in mem, sizes, the largest number of blocks. */
enum ar_status rows_build_decodes(struct rows *out, const struct rows_env *e,
				  const struct batch *b, int n, size_t *used, struct ar_err *err);

/* The same rows where a copy of mem lies. */
struct rows rows_at(const struct rows *r, const void *mem, void *copy);

#endif
