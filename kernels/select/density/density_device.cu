/* SPDX-License-Identifier: Apache-2.0 */
/* Random masks on the device. */
#include "config.h"
#include "kernels/select/density/density.h"
#include "kernels/select/rows.cuh"

namespace {

struct rule {
	struct density p;
	int layer;

	__device__ void operator()(const struct attn_batch &b, const struct qblk &s, int head,
				   uint32_t *row) const
	{
		density_row(&p, &b.shape, layer, head, b.rows.pos0[s.req] / b.shape.page_tok, s.blk,
			    b.keys.mask_words, row);
	}
};

}

enum ar_status density_enqueue(const struct attn_call *call, const void *self,
			       const struct selection *out, struct ar_err *err)
{
	const struct attn_batch *b = call->b;
	const struct rule rule = { *(const struct density *)self, call->layer };

	return mask_rows_enqueue(b, rule, out->mask, call->stream, err);
}
