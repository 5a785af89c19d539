/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the attention kernel of the device. */
#include "config.h"

#include "kernels/attend/attend.h"

static enum ar_status check(const struct attn_shape *s, int heads, struct ar_err *err)
{
	if (s->page_tok != 64 && s->page_tok != 128)
		return ar_fail(err, AR_USAGE, "attention on the GPU takes blocks of 64 and 128 "
			       "tokens, not %d", s->page_tok);
	if (heads > ATTEND_ROWS)
		return ar_fail(err, AR_USAGE, "%d query heads per KV head; attention on the GPU "
			       "takes %d", heads, ATTEND_ROWS);
	if (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256)
		return ar_fail(err, AR_USAGE, "attention on the GPU takes head sizes 64, 128 and "
			       "256, not %d", s->head_dim);
	return AR_OK;
}

enum ar_status attend_enqueue(const struct attn_call *call, attend_plan_fn *plan, int heads,
			      const struct block_lists *lists, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	enum ar_status st = check(&b->shape, heads, err);
	attend_enqueue_fn *fn;
	const struct gpu *gpu;

	if (st || !b->n_tile)
		return st;
	st = gpu_current(&gpu, err);
	if (st)
		return st;
	if (b->shape.head_dim == 256 && !gpu_is_hopper(gpu))
		return ar_fail(err, AR_USAGE, "attention with head size 256 takes a GPU of compute "
			       "capability 9, this one has %d", gpu->cc / 10);
	fn = gpu_is_hopper(gpu) ? attend_sm90_enqueue : attend_sm80_enqueue;
	return fn(call, plan, heads, lists, err);
}
