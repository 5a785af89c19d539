/* SPDX-License-Identifier: Apache-2.0 */
/* Choose the vertical-slash kernel of the device. */
#include "config.h"

#include "kernels/exec/columns/columns.h"

enum ar_status columns_enqueue(const struct attn_call *call, const struct executor_lists *lists,
			       struct ar_err *err)
{
	const struct gpu *gpu;
	enum ar_status st;

	if (call->b->rows.first)
		return ar_fail(err, AR_USAGE,
			       "vertical-slash attention takes no window; use the executor paged");
	if (!call->b->n_tile)
		return AR_OK;
	st = gpu_current(&gpu, err);
	if (st)
		return st;
	return (gpu_runs_sm90(gpu) ? columns_sm90_enqueue : columns_sm80_enqueue)(call, lists, err);
}
