/* Block-sparse attention: every (query block, query head) has a list of its own, so heads
 * cannot share a tile and each reads its blocks itself. */
#include "config.h"

#include "kernels/attend.h"

static enum ar_status blocksparse_ref(const struct attn_batch *b, int heads,
				      const struct block_lists *lists, const bf16_t *q,
				      const struct kv_cache *kv, bf16_t *out, float *lse,
				      struct ar_err *err)
{
	return attend_ref(b, attend_plan_blocks, heads, lists, q, kv, out, lse, err);
}

#if HAVE_CUDA
static enum ar_status blocksparse_enqueue(const struct attn_batch *b, int heads,
					 const struct block_lists *lists, const bf16_t *q,
					 const struct kv_cache *kv, bf16_t *out, float *lse,
					 void *work, void *stream, struct ar_err *err)
{
	(void)heads;	/* its lists are per head */
	return attend_enqueue(b, attend_plan_blocks, 1, lists, q, kv, out, lse, work, stream,
			      err);
}
#endif

extern const struct executor executor_blocksparse;
const struct executor executor_blocksparse = {
	.name = "blocksparse",
	.title = "a block list per query block and query head",
	.origin = "FlashPrefill, block-sparse attention",
	.takes = TAKES_ALL | TAKES_MASK,
	.plan = attend_plan_blocks,
	.ref = blocksparse_ref,
#if HAVE_CUDA
	.work_bytes = attend_work_bytes,
	.enqueue = blocksparse_enqueue,
#endif
};
