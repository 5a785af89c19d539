/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the vertical-slash kernel of the device. */
#include "config.h"

#include "kernels/exec/columns/columns.h"

static enum ar_status check(const struct attn_shape *s, struct ar_err *err)
{
	if (s->page_tok != 64 && s->page_tok != 128)
		return ar_fail(err, AR_USAGE, "runs and columns on the GPU take blocks of 64 and "
			       "128 tokens, not %d", s->page_tok);
	if (s->head_dim != 64 && s->head_dim != 128 && s->head_dim != 256)
		return ar_fail(err, AR_USAGE, "runs and columns on the GPU take head sizes 64, 128 "
			       "and 256, not %d", s->head_dim);
	return AR_OK;
}

enum ar_status columns_enqueue(const struct attn_call *call, const struct executor_lists *lists,
			       struct ar_err *err)
{
	enum ar_status st = check(&call->b->shape, err);
	const struct gpu *gpu;

	if (st || !call->b->n_tile)
		return st;
	st = gpu_current(&gpu, err);
	if (st)
		return st;
	return (gpu_is_hopper(gpu) ? columns_sm90_enqueue : columns_sm80_enqueue)(call, lists,
										err);
}
