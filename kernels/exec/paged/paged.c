/* SPDX-License-Identifier: Apache-2.0 */
/* Dense attention over one block table per (request, group of heads): the heads of a group
 * are packed into one tile, so a block is read once for the group. */
#include "config.h"

#include "kernels/attend/attend.h"

static enum ar_status paged_ref(const struct attn_call *call, const struct executor_lists *lists,
				struct ar_err *err)
{
	return attend_ref(call, attend_plan_rows, lists->heads, &lists->blocks, err);
}

#if HAVE_CUDA
static enum ar_status paged_enqueue(const struct attn_call *call,
				    const struct executor_lists *lists, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	int heads = lists->heads ? lists->heads : b->shape.q_heads / b->shape.kv_heads;

	return attend_enqueue(call, attend_plan_rows, heads, &lists->blocks, err);
}
#endif

extern const struct executor executor_paged;
const struct executor executor_paged = {
	.name = "paged",
	.title = "dense attention over a block table per group of heads",
	.origin = "CompactAttention, zero-copy execution (appendix B.2)",
	.kernel = "attend",
	.phase = PHASE_ATTEND,
	.skips = "attend-skip",
	.takes = SHAPE_ALL | SHAPE_TABLE,
	.tail = true,
	.plan = attend_plan_rows,
	.ref = paged_ref,
#if HAVE_CUDA
	.work_bytes = attend_work_bytes,
	.enqueue = paged_enqueue,
#endif
};
