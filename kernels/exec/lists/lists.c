/* SPDX-License-Identifier: Apache-2.0 */
/* Decode attention over piece lists: the kernels of executor decode. */
#include "config.h"

#include "kernels/exec/executor.h"

static enum ar_status lists_ref(const struct attn_call *call, const struct executor_lists *lists,
				struct ar_err *err)
{
	return decode_pieces_ref(call, &lists->pieces, err);
}

#if HAVE_CUDA
static size_t lists_work_bytes(const struct attn_shape *s, const struct attn_limits *l, int heads)
{
	(void)heads;
	return decode_work_bytes(s, l);
}

static enum ar_status lists_enqueue(const struct attn_call *call,
				    const struct executor_lists *lists, struct ar_err *err)
{
	return decode_pieces_enqueue(call, &lists->pieces, err);
}
#endif

extern const struct executor executor_lists;
const struct executor executor_lists = {
	.name = "lists",
	.title = "attention of one row a request to the pieces in its lists",
	.origin = "Flash-Decoding (2023), over lists of pieces of pages",
	.kernel = "decode",
	.one_row = true,
	.phase = PHASE_DECODE,
	.takes = SHAPE_PIECES,
	.ref = lists_ref,
#if HAVE_CUDA
	.work_bytes = lists_work_bytes,
	.enqueue = lists_enqueue,
#endif
};
