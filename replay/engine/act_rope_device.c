/* SPDX-License-Identifier: Apache-2.0 */
/* Cosines and sines on the device. */
#include "config.h"
#include "replay/engine/act_rope.h"

#include <stdlib.h>

#include "kernels/prim/cuda.h"
#include "replay/engine/activations.h"

static enum ar_status load_trig(struct act_rope *r, int64_t n_rotation,
				const struct activations_device *d, struct ar_err *err)
{
	int half = r->dim / 2;
	float *inv = calloc((size_t)half, sizeof *inv), *dev = NULL;
	enum ar_status st = inv ? AR_OK : ar_nomem(err);

	if (!st)
		st = d->take(d->take_ctx, &r->trig,
			     (size_t)(n_rotation * half * 2) * sizeof *r->trig,
			     "the rotations of RoPE", err);
	if (!st)
		st = d->take(d->take_ctx, &dev, (size_t)half * sizeof *dev,
			     "the frequencies of RoPE", err);
	if (st)
		goto out;
	rope_inv_freq(&r->r, r->dim, inv);
	CU(cudaMemcpy(dev, inv, (size_t)half * sizeof *dev, cudaMemcpyHostToDevice));
	st = layer_trig(dev, half, (int)n_rotation, r->factor, r->trig, d->stream, err);
out:
	free(inv);
	return st;
}

enum ar_status act_ropes_load(struct act_ropes *a, const struct activations_device *d,
			      struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < a->n && !st; i++)
		st = load_trig(&a->rope[i], a->n_rotation, d, err);
	return st;
}
