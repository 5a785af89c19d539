/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations: they provide Q, K and V of each layer.  One file act_NAME.c each, with
 * act_NAME_device.c for its CUDA, one row in activations.c.
 *
 * A backend calls open() once, then load_ref() for the host or load() for its device.  In each
 * iteration, begin() stores in each row where its activations are.  Then qkv() or qkv_ref() makes
 * Q, K and V of the rows, layer by layer.
 */
#ifndef AR_ACTIVATIONS_H
#define AR_ACTIVATIONS_H

#include "kernels/layer/layer.h"
#include "kernels/phase.h"
#include "replay/engine/backend.h"

/* The output of qkv() for one layer. */
struct qkv {
	bf16_t *q, *k;		   /* [n_row][heads][head_dim], q_heads and kv_heads */
	const struct kv_cache *kv; /* K and V go to the slots of the rows; NULL: they are
					 * there already */
};

/* The device of a backend, as activations use it. */
struct activations_device {
	/* Allocate device memory, freed when the backend closes.  to: address of the pointer to
	 * set.  what: name of the memory in the error. */
	enum ar_status (*take)(void *ctx, void *to, size_t bytes, const char *what,
			       struct ar_err *err);
	void *take_ctx;
	void *stream;
	phase_fn *phase; /* called before each group of launches */
	void *phase_ctx;
};

struct activations {
	const char *name;

	/* shape: of every layer.  env outlives *self.  Does not read the activations yet. */
	enum ar_status (*open)(void **self, const struct backend_env *env,
			       const struct attn_shape *shape, struct ar_err *err);
	/* The RoPE of Q and K; theta 0: not known. */
	const struct rope *(*rope)(const void *self);
	/* Tokens of a request before its activations repeat or end. */
	int64_t (*n_tok)(const void *self, uint32_t req);

	/* Set row[0 .. n), except slot, for positions start ... start + n - 1 of req.  AR_DATA: a
	 * position has no activations. */
	enum ar_status (*begin)(const void *self, uint32_t req, int64_t start, uint32_t n,
				struct layer_row *row, struct ar_err *err);

	/* On the host: load_ref() once, then qkv_ref() for executed layer i and rows that begin()
	 * has set.  product: of the layer's QKV projection for these rows, after the norms of
	 * heads; NULL in a run that does not compute it. */
	enum ar_status (*load_ref)(void *self, struct ar_err *err);
	enum ar_status (*qkv_ref)(const void *self, int i, const struct layer_row *row, int n_row,
				  const struct layer_qkv *product, const struct qkv *out,
				  struct ar_err *err);

	/* The same on a device; NULL in a build without CUDA.  qkv() only enqueues. */
	enum ar_status (*load)(void *self, const struct activations_device *d, struct ar_err *err);
	enum ar_status (*qkv)(const void *self, int i, const struct layer_row *row, int n_row,
			      const struct layer_qkv *product, const struct qkv *out,
			      struct ar_err *err);
	void (*close)(void *self); /* NULL is fine */
};

extern const struct activations *const activations[]; /* ends with NULL */

/* The member that a run takes: weights with real ones, else capture. */
const struct activations *activations_of(const struct backend_env *env);

#endif
