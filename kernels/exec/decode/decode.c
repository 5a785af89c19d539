/* SPDX-License-Identifier: Apache-2.0 */
/* Decode attention: its reference, a chunk of one row, and the executor. */
#include "config.h"

#include "kernels/attend/attend.h"

enum ar_status decode_ref(const struct attn_call *call, int heads, const struct block_lists *lists,
			  struct ar_err *err)
{
	static const struct block_lists all;

	return attend_ref(call, attend_plan_rows, heads, lists ? lists : &all, err);
}

static enum ar_status one_row_ref(const struct attn_call *call, const struct executor_lists *lists,
				  struct ar_err *err)
{
	return decode_ref(call, lists->heads, &lists->blocks, err);
}

#if HAVE_CUDA
static size_t one_row_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads)
{
	(void)heads;
	return decode_work_bytes(s, l);
}

static enum ar_status one_row_enqueue(const struct attn_call *call,
				      const struct executor_lists *lists, struct ar_err *err)
{
	return decode_enqueue(call, lists->heads, lists->blocks.block ? &lists->blocks : NULL, err);
}
#endif

extern const struct executor executor_decode;
const struct executor executor_decode = {
	.name = "decode",
	.title = "dense attention of one row a request, its keys split among thread blocks",
	.origin = "Flash-Decoding (2023)",
	.kernel = "decode",
	.one_row = true,
	.phase = PHASE_DECODE,
	.skips = "decode-skip",
	.takes = SHAPE_ALL | SHAPE_TABLE,
	.ref = one_row_ref,
#if HAVE_CUDA
	.work_bytes = one_row_work_bytes,
	.enqueue = one_row_enqueue,
#endif
};
