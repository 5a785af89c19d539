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

enum ar_status density_enqueue(const struct attn_batch *b, const void *self, int layer,
			       const bf16_t *, const struct kv_cache *, void *,
			       const struct selection *out, void *, void *stream,
			       struct ar_err *err)
{
	const struct rule rule = { *(const struct density *)self, layer };

	return mask_rows_enqueue(b, rule, out->mask, stream, err);
}
