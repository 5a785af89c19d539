/* SPDX-License-Identifier: Apache-2.0 */
/* A row of the product serves the kernels of RoPE and of the cache as a capture of one token. */
#include "config.h"
#include "replay/forward/rotate.h"

#include "base/parallel.h"

enum { ROW_STEP = 32 }; /* rows of a job */

static enum ar_status rotate_rows(void *ctx, int job, struct ar_err *err)
{
	const struct rotate *x = ctx;
	const struct attn_shape *s = &x->shape;
	int end = (job + 1) * ROW_STEP < x->product.n_row ? (job + 1) * ROW_STEP : x->product.n_row;

	(void)err;
	for (int r = job * ROW_STEP; r < end; r++) {
		const struct layer_seq seq = { x->product.x + r * layer_qkv_row(&x->product), 1 };
		const struct layer_row row = { .rotation = x->row[r].rotation,
					       .slot = x->row[r].slot };
		bf16_t *q = x->q + (size_t)r * (size_t)(s->q_heads * s->head_dim);
		bf16_t *k = x->k + (size_t)r * (size_t)(s->kv_heads * s->head_dim);

		layer_rope_ref(s, &seq, 0, &row, 1, &x->angles, q, k);
		if (x->kv)
			layer_cache_ref(s, &seq, 0, &row, 1, k, x->kv);
	}
	return AR_OK;
}

enum ar_status rotate_ref(const struct rotate *r, struct ar_err *err)
{
	struct rotate x = *r;

	return parallel_each((x.product.n_row + ROW_STEP - 1) / ROW_STEP, rotate_rows, &x, err);
}
