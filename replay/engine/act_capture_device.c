/* SPDX-License-Identifier: Apache-2.0 */
/* Captures as activations on the device. */
#include "config.h"
#include "replay/engine/act_capture.h"

#include "kernels/prim/cuda.h"

struct target {
	bf16_t *data;
	int device;
};

static enum ar_status put_device(void *ctx, size_t off, size_t pitch, const bf16_t *from,
				 size_t width, size_t rows, struct ar_err *err)
{
	const struct target *t = ctx;
	bf16_t *to = t->data + off;
	enum ar_status st = AR_OK;

	CU(cudaSetDevice(t->device)); /* each thread has its own */
	CU(cudaMemcpy2D(to, pitch * sizeof *to, from, width * sizeof *to, width * sizeof *to, rows,
			cudaMemcpyHostToDevice));
out:
	return st;
}

enum ar_status capture_load(void *self, const struct activations_device *d, struct ar_err *err)
{
	struct act_capture *s = self;
	struct target target;
	enum ar_status st;

	s->device = *d;
	st = d->take(d->take_ctx, &s->data, s->elems * sizeof *s->data,
		     "the captures (use fewer --layers or --sample-layers)", err);
	if (st)
		goto out;
	target.data = s->data;
	CU(cudaGetDevice(&target.device));
	st = act_capture_read(s, put_device, &target, err);
	if (!st)
		st = act_ropes_load(&s->ropes, d, err);
out:
	return st;
}

enum ar_status capture_qkv(const void *self, int i, const struct layer_row *row, int n_row,
			   const struct layer_qkv *product, const struct qkv *out,
			   struct ar_err *err)
{
	const struct act_capture *s = self;
	const struct activations_device *d = &s->device;
	const struct layer_seq seq = { s->data, s->n_tok };
	const struct layer_angles angles = act_ropes_angles(&s->ropes, i);
	int layer = s->layer_of[i];
	enum ar_status st;

	(void)product;
	d->phase(d->phase_ctx, s->ropes.run_layer[i], PHASE_ROPE);
	st = layer_rope(&s->shape, &seq, layer, row, n_row, &angles, out->q, out->k, d->stream,
			err);
	if (st || !out->kv)
		return st;
	d->phase(d->phase_ctx, s->ropes.run_layer[i], PHASE_CACHE);
	return layer_cache(&s->shape, &seq, layer, row, n_row, out->k, out->kv, d->stream, err);
}
