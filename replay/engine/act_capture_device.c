/* SPDX-License-Identifier: Apache-2.0 */
/* Captures as activations on the device. */
#include "config.h"
#include "replay/engine/act_capture.h"

#include <stdlib.h>

#include "kernels/prim/cuda.h"

static enum ar_status take(const struct act_capture *s, void *to, size_t bytes, const char *what,
			   struct ar_err *err)
{
	return s->device.take(s->device.take_ctx, to, bytes, what, err);
}

struct target {
	bf16_t *data;
	int device;
};

static enum ar_status put(void *ctx, size_t off, size_t pitch, const bf16_t *from, size_t width,
			  size_t rows, struct ar_err *err)
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

static enum ar_status load_trig(struct act_capture *s, struct act_rope *r, struct ar_err *err)
{
	int half = r->dim / 2;
	float *inv = calloc((size_t)half, sizeof *inv), *dev = NULL;
	enum ar_status st = inv ? AR_OK : ar_nomem(err);

	if (!st)
		st = take(s, &r->trig, (size_t)(s->n_rotation * half * 2) * sizeof *r->trig,
			  "the rotations of RoPE", err);
	if (!st)
		st = take(s, &dev, (size_t)half * sizeof *dev, "the frequencies of RoPE", err);
	if (st)
		goto out;
	rope_inv_freq(&r->r, r->dim, inv);
	CU(cudaMemcpy(dev, inv, (size_t)half * sizeof *dev, cudaMemcpyHostToDevice));
	st = layer_trig(dev, half, (int)s->n_rotation, r->factor, r->trig, s->device.stream, err);
out:
	free(inv);
	return st;
}

enum ar_status capture_load(void *self, const struct activations_device *d, struct ar_err *err)
{
	struct act_capture *s = self;
	struct target target;
	enum ar_status st;

	s->device = *d;
	st = take(s, &s->data, s->elems * sizeof *s->data,
		  "the captures (use fewer --layers or --sample-layers)", err);
	if (st)
		goto out;
	target.data = s->data;
	CU(cudaGetDevice(&target.device));
	st = act_capture_read(s, put, &target, err);
	for (int i = 0; i < s->n_rope && !st; i++)
		st = load_trig(s, &s->rope[i], err);
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
	const struct layer_angles angles = act_capture_angles(s, i);
	int layer = s->layer_of[i];
	enum ar_status st;

	(void)product;
	d->phase(d->phase_ctx, s->run_layer[i], PHASE_ROPE);
	st = layer_rope(&s->shape, &seq, layer, row, n_row, &angles, out->q, out->k, d->stream,
			err);
	if (st || !out->kv)
		return st;
	d->phase(d->phase_ctx, s->run_layer[i], PHASE_CACHE);
	return layer_cache(&s->shape, &seq, layer, row, n_row, out->k, out->kv, d->stream, err);
}
