/* SPDX-License-Identifier: Apache-2.0 */
/* Block lists that no kernel takes are refused; the others go to the kernel of the device. */
#include "config.h"

#include "kernels/attend/attend.h"

#include "kernels/support.h"

enum ar_status attend_enqueue(const struct attn_call *call, attend_plan_fn *plan, int heads,
			      const struct block_lists *lists, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const char *kernel = attend_skips(call) ? "attend-skip" : "attend";
	support_fn *fn;
	enum ar_status st;

	heads = attend_pack(b, heads);
	if (heads > ATTEND_ROWS)
		return ar_fail(err, AR_USAGE,
			       "%d query heads per KV head; attention on the GPU "
			       "takes %d",
			       heads, ATTEND_ROWS);
	if (b->rows.first && (lists->block || b->kept))
		return ar_fail(err, AR_USAGE,
			       "attention under a window on the GPU reads every block; "
			       "use the executor paged without tables");
	if (!b->n_tile)
		return AR_OK;
	st = support_dispatch(&fn, kernel, &b->shape, call->layout, err);
	return st ? st : ((attend_enqueue_fn *)fn)(call, plan, heads, lists, err);
}
