/* SPDX-License-Identifier: Apache-2.0 */
/* Vertical-slash attention: one softmax over the runs and single columns of keys of each (query
 * block, query head). */
#include "config.h"

#include "kernels/attend/attend.h"
#include "kernels/exec/columns/columns.h"
#include "kernels/exec/keys.h"

/* The keys of a list that rows of request r up to pos see; keys of runs come first. */
static void list_keys(const struct attn_batch *b, const struct column_lists *l, size_t list, int r,
		      int pos, struct keys *k)
{
	const int32_t *run = l->run + list * (size_t)l->max_run;
	const int32_t *col = l->col + list * (size_t)l->max_col;

	k->n = 0;
	for (int i = 0; i < l->n_run[list]; i++)
		for (int t = run[i]; t < run[i] + b->shape.page_tok && t <= pos; t++)
			k->pos[k->n++] = t;
	k->n_run = k->n;
	k->band = l->band[list];
	k->total = b->keys.len[r] + b->rows.left[r];
	for (int i = 0; i < l->n_col[list]; i++)
		k->pos[k->n++] = col[i];
}

/* The rows of request r in query block i of the batch, all heads. */
static void attend_block(const struct attn_call *call, const struct column_lists *l, int r, int i,
			 struct keys *k)
{
	const struct attn_batch *b = call->b;
	int tok = b->shape.page_tok, heads = b->shape.q_heads;
	int first = (b->rows.pos0[r] / tok + i - b->rows.qblk0[r]) * tok;
	int lo = attn_rows_below(&b->rows, r, first);
	int hi = attn_rows_below(&b->rows, r, first + tok);

	for (int h = 0; h < heads && lo < hi; h++) {
		list_keys(b, l, (size_t)(i * heads + h), r, b->rows.pos[b->rows.row0[r] + hi - 1],
			  k);
		keys_attend(k, call, r, lo, hi - lo, h);
	}
}

static enum ar_status columns_ref(const struct attn_call *call, const struct executor_lists *lists,
				  struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	struct keys k;
	enum ar_status st = keys_init(&k, b, err);

	for (int r = 0; r < b->rows.n_req && !st; r++)
		for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1]; i++)
			attend_block(call, &lists->columns, r, i, &k);
	keys_release(&k);
	return st;
}

extern const struct executor executor_columns;
const struct executor executor_columns = {
	.name = "columns",
	.title = "a vertical-slash list per query block and query head",
	.origin = "MInference, vertical-slash attention",
	.kernel = "columns",
	.phase = PHASE_ATTEND,
	.takes = SHAPE_COLUMNS,
	.plan = attend_plan_blocks,
	.ref = columns_ref,
#if HAVE_CUDA
	.work_bytes = attend_work_bytes,
	.enqueue = columns_enqueue,
#endif
};
