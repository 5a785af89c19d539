/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/forward/rotate.h"

#include <stdlib.h>

#include "base/parallel.h"
#include "model/rope.h"

enum { ROW_STEP = 32 }; /* rows of a job */

static enum ar_status rotate_rows(void *ctx, int job, struct ar_err *err)
{
	const struct rotate *x = ctx;
	const struct attn_shape *s = &x->shape;
	int first = job * ROW_STEP, left = x->product.n_row - first;
	int n = left < ROW_STEP ? left : ROW_STEP;
	const struct layer_seq seq = { x->product.x + first * layer_qkv_row(&x->product), 0 };
	size_t q_row = (size_t)(s->q_heads * s->head_dim);
	size_t k_row = (size_t)(s->kv_heads * s->head_dim);
	bf16_t *k = x->k + (size_t)first * k_row;

	(void)err;
	layer_rope_ref(s, &seq, 0, x->row + first, n, &x->angles, x->q + (size_t)first * q_row, k);
	if (x->kv)
		layer_cache_ref(s, &seq, 0, x->row + first, n, k, x->kv);
	return AR_OK;
}

enum ar_status rotate_ref(const struct rotate *r, struct ar_err *err)
{
	struct rotate x = *r;

	return parallel_each((x.product.n_row + ROW_STEP - 1) / ROW_STEP, rotate_rows, &x, err);
}

float *rotate_trig(const struct rope *r, int dim, int n, float factor)
{
	size_t half = (size_t)dim / 2;
	float *inv = malloc(half * sizeof *inv),
	      *trig = malloc((size_t)n * half * 2 * sizeof *trig);

	if (inv && trig) {
		rope_inv_freq(r, dim, inv);
		layer_trig_ref(inv, (int)half, n, factor, trig);
	}
	free(inv);
	if (inv)
		return trig;
	free(trig);
	return NULL;
}
