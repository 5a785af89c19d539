/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Activations of a model with real weights: Q, K and V are the product of the layer's QKV
 * projection, after its norms of heads.  RoPE rotates Q and K by the row's position.
 *
 * tok of a row is the id of its token, by which the decoder finds the embedding.  One rank of
 * several has Q, K and V of its heads: the model's in the first layer, of partial sums in later
 * ones.
 */
#ifndef AR_ACT_WEIGHTS_H
#define AR_ACT_WEIGHTS_H

#include "replay/engine/act_rope.h"
#include "replay/engine/activations.h"

/* The state of activations_weights. */
struct act_weights {
	struct attn_shape shape;   /* of every layer with attention */
	const struct trace *trace; /* borrowed, as is tokens */
	const struct tokens *tokens;
	struct act_ropes ropes;
	bool owned;			  /* the cosines are on the host, freed at close */
	struct activations_device device; /* lends their memory if not owned */
};

/* open() needs weights and tokens of struct backend_env.  It fails with AR_DATA if the angles of
 * the model's RoPE are not known. */
extern const struct activations activations_weights;

/* load() and qkv() of activations_weights. */
enum ar_status weights_load(void *self, const struct activations_device *d, struct ar_err *err);
enum ar_status weights_qkv(const void *self, int i, const struct layer_row *row, int n_row,
			   const struct layer_qkv *product, const struct qkv *out,
			   struct ar_err *err);

#endif
