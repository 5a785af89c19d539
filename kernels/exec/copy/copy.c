/* SPDX-License-Identifier: Apache-2.0 */
/* Attention over a copy: the blocks of every table are copied together, and attention is dense
 * over the copy.  It moves the same bytes twice, and so shows what reading pages in place saves. */
#include "config.h"

#include "kernels/exec/pool/pool.h"
#include "kernels/union/union.h"

static enum ar_status copy_ref(const struct attn_call *call, const struct executor_lists *lists,
			       struct ar_err *err)
{
	return attend_ref(call, attend_plan_rows, lists->heads, &lists->blocks, err);
}

#if HAVE_CUDA
static size_t copy_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads)
{
	return pool_work_bytes(s, l, union_groups(heads, s));
}

static enum ar_status copy_enqueue(const struct attn_call *call, const struct executor_lists *lists,
				   struct ar_err *err)
{
	return pool_attend(call, lists->heads, union_groups(lists->heads, &call->b->shape), err);
}
#endif

extern const struct executor executor_copy;
const struct executor executor_copy = {
	.name = "copy",
	.title = "copy the blocks of a table together, then dense attention",
	.origin = "CompactAttention, copy execution (CA-FP copy)",
	.kernel = "attend",
	.phase = PHASE_ATTEND,
	.takes = SHAPE_TABLE,
	.copies = true,
	.plan = pool_plan,
	.ref = copy_ref,
#if HAVE_CUDA
	.work_bytes = copy_work_bytes,
	.move = pool_move_blocks,
	.enqueue = copy_enqueue,
#endif
};
