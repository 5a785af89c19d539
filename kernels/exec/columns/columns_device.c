/* SPDX-License-Identifier: Apache-2.0 */
/* A window is refused; other batches go to the vertical-slash kernel of the device. */
#include "config.h"

#include "kernels/exec/columns/columns.h"
#include "kernels/support.h"

enum ar_status columns_enqueue(const struct attn_call *call, const struct executor_lists *lists,
			       struct ar_err *err)
{
	support_fn *fn;
	enum ar_status st;

	if (call->b->rows.first)
		return ar_fail(err, AR_USAGE,
			       "vertical-slash attention takes no window; use the executor paged");
	if (!call->b->n_tile)
		return AR_OK;
	st = support_dispatch(&fn, "columns", &call->b->shape, call->layout, err);
	return st ? st : ((executor_fn *)fn)(call, lists, err);
}
