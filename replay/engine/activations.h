/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations: where the Q, K and V of a layer come from.  One file act_NAME.c each, with
 * act_NAME_device.c for its CUDA, one row in activations.c.
 *
 * A backend opens them once, loads them to the host or to its device, and then, for each
 * iteration, has begin() say for every row where its activations are and asks qkv() for them
 * layer by layer.
 */
#ifndef AR_ACTIVATIONS_H
#define AR_ACTIVATIONS_H

#include "kernels/layer/layer.h"
#include "kernels/phase.h"
#include "replay/engine/backend.h"

/* Where Q, K and V of a layer go. */
struct qkv {
	bf16_t *q, *k;			/* [n_row][q_heads] and [n_row][kv_heads] of head_dim */
	const struct kv_cache *kv;	/* K and V go to the slots of the rows; NULL: they are
					 * there */
};

/* What a backend lends to activations on its device. */
struct activations_device {
	/* Device memory until the backend closes; a failure names what. */
	enum ar_status (*take)(void *ctx, void *to, size_t bytes, const char *what,
			       struct ar_err *err);
	void *take_ctx;
	void *stream;
	phase_fn *phase;		/* called before each group of launches */
	void *phase_ctx;
};

struct activations {
	const char *name;

	/* shape: of every layer.  env outlives *self.  Loads no activations. */
	enum ar_status (*open)(void **self, const struct backend_env *env,
			       const struct attn_shape *shape, struct ar_err *err);
	/* How Q and K are turned; theta 0: not known. */
	const struct rope *(*rope)(const void *self);
	/* Tokens of a request before its activations repeat or end. */
	int64_t (*n_tok)(const void *self, uint32_t req);

	/* Where positions start ... start + n of req have their activations; slots are left alone.
	 * AR_DATA: there are none. */
	enum ar_status (*begin)(const void *self, uint32_t req, int64_t start, uint32_t n,
				struct layer_row *row, struct ar_err *err);

	/* On the host: once, then executed layer i of rows that begin() filled in. */
	enum ar_status (*load_ref)(void *self, struct ar_err *err);
	enum ar_status (*qkv_ref)(const void *self, int i, const struct layer_row *row, int n_row,
				  const struct qkv *out, struct ar_err *err);

	/* CUDA; NULL in a build without.  qkv() only enqueues. */
	enum ar_status (*load)(void *self, const struct activations_device *d, struct ar_err *err);
	enum ar_status (*qkv)(const void *self, int i, const struct layer_row *row, int n_row,
			      const struct qkv *out, struct ar_err *err);
	void (*close)(void *self);	/* NULL is fine */
};

extern const struct activations *const activations[];	/* ends with NULL */

#endif
