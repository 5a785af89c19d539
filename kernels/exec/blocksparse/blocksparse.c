/* SPDX-License-Identifier: Apache-2.0 */
/* Block-sparse attention: every (query block, query head) has a list of its own.  So heads cannot
 * share a tile, and each reads its blocks itself.  Under tables, each head still reads the blocks
 * of its group's table by itself: this shows what tables save without packed heads. */
#include "config.h"

#include "kernels/attend/attend.h"
#include "kernels/union/union.h"

static int blocksparse_plan(const struct attn_batch *b, int heads, struct attn_tile *tile)
{
	int n = attend_plan_blocks(b, 0, tile), group = b->shape.q_heads / b->shape.kv_heads;
	int groups = union_groups(heads, &b->shape), per_kv = groups / b->shape.kv_heads;

	for (int i = 0; i < n && tile && heads; i++)
		tile[i].list = tile[i].list < 0 ?
				       -1 :
				       tile[i].req * groups + tile[i].head / group * per_kv +
					       tile[i].head % group / heads;
	return n;
}

static enum ar_status blocksparse_ref(const struct attn_call *call,
				      const struct executor_lists *lists, struct ar_err *err)
{
	return attend_ref(call, blocksparse_plan, lists->heads, &lists->blocks, err);
}

#if HAVE_CUDA
static enum ar_status blocksparse_enqueue(const struct attn_call *call,
					  const struct executor_lists *lists, struct ar_err *err)
{
	return attend_enqueue(call, attend_plan_blocks, 1, &lists->blocks, err);
}
#endif

extern const struct executor executor_blocksparse;
const struct executor executor_blocksparse = {
	.name = "blocksparse",
	.title = "a block list per query block and query head",
	.origin = "FlashPrefill, block-sparse attention",
	.kernel = "attend",
	.phase = PHASE_ATTEND,
	.takes = SHAPE_ALL | SHAPE_MASK | SHAPE_TABLE,
	.tail = true,
	.plan = blocksparse_plan,
	.ref = blocksparse_ref,
#if HAVE_CUDA
	.work_bytes = attend_work_bytes,
	.enqueue = blocksparse_enqueue,
#endif
};
