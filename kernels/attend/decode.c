/* SPDX-License-Identifier: Apache-2.0 */
/* Reference of decode attention: a chunk of one row. */
#include "config.h"

#include "kernels/attend/attend.h"

enum ar_status decode_ref(const struct attn_call *call, int heads, const struct block_lists *lists,
			  struct ar_err *err)
{
	static const struct block_lists all;

	return attend_ref(call, attend_plan_rows, heads, lists ? lists : &all, err);
}
