/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "kernels/select/selectors.h"
#include "kernels/support.h"

enum ar_status selector_dispatch(const char *kernel, const struct attn_call *call, const void *self,
				 const struct selection *out, struct ar_err *err)
{
	support_fn *fn;
	enum ar_status st;

	if (!call->b->rows.n_qblk)
		return AR_OK;
	st = support_dispatch(&fn, kernel, &call->b->shape, call->layout, err);
	return st ? st : ((selector_fn *)fn)(call, self, out, err);
}
