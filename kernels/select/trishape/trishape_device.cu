/* SPDX-License-Identifier: Apache-2.0 */
/* Tri-shape masks on the device. */
#include "config.h"
#include "kernels/select/rows.cuh"
#include "kernels/select/trishape/trishape.h"

namespace {

struct rule {
	struct trishape p;

	__device__ void operator()(const struct attn_batch &b, const struct qblk &s, int,
				   uint32_t *row) const
	{
		trishape_row(&p, b.shape.page_tok, b.rows.pos0[s.req], b.rows.left[s.req], s.blk,
			     b.keys.mask_words, row);
	}
};

}

enum ar_status trishape_enqueue(const struct attn_call *call, const void *self,
				const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct rule rule = { *(const struct trishape *)self };

	return mask_rows_enqueue(b, rule, out->mask, call->stream, err);
}
