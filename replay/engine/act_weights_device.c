/* SPDX-License-Identifier: Apache-2.0 */
/* Activations of real weights on the device: the kernels of captures read the product instead. */
#include "config.h"
#include "replay/engine/act_weights.h"

#include <assert.h>

enum ar_status weights_load(void *self, const struct activations_device *d, struct ar_err *err)
{
	struct act_weights *s = self;

	s->device = *d;
	return act_ropes_load(&s->ropes, d, err);
}

enum ar_status weights_qkv(const void *self, int i, const struct layer_row *row, int n_row,
			   const struct layer_qkv *product, const struct qkv *out,
			   struct ar_err *err)
{
	const struct act_weights *s = self;
	const struct activations_device *d = &s->device;
	const struct layer_seq seq = { product->x, 0 };
	const struct layer_angles angles = act_ropes_angles(&s->ropes, i);
	enum ar_status st;

	assert(!product->gated && product->n_row == n_row);
	d->phase(d->phase_ctx, s->ropes.run_layer[i], PHASE_ROPE);
	st = layer_rope(&s->shape, &seq, 0, row, n_row, &angles, out->q, out->k, d->stream, err);
	if (st || !out->kv)
		return st;
	d->phase(d->phase_ctx, s->ropes.run_layer[i], PHASE_CACHE);
	return layer_cache(&s->shape, &seq, 0, row, n_row, out->k, out->kv, d->stream, err);
}
