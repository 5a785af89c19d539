/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a model: their shapes. */
#ifndef AR_PARAMS_H
#define AR_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

/* The tensors of a layer.  A matrix is [out][in], a product's columns by its rows; all others have
 * one dimension.  Tensors of a layer follow each other in this order without a gap.  So Q, K and V
 * are one matrix of layer_qkv_width() rows, gate and up one of 2 ffn rows; so are their biases; the
 * norms of Q and K are [2][head_dim]. */
enum weight {
	WEIGHT_ATTN_NORM, /* [hidden], before attention */
	WEIGHT_Q,	  /* [q_heads * head_dim][hidden] */
	WEIGHT_K,	  /* [kv_heads * head_dim][hidden] */
	WEIGHT_V,
	WEIGHT_Q_BIAS, /* qkv_bias */
	WEIGHT_K_BIAS,
	WEIGHT_V_BIAS,
	WEIGHT_Q_NORM, /* [head_dim]; qk_norm */
	WEIGHT_K_NORM,
	WEIGHT_O,	  /* [hidden][q_heads * head_dim] */
	WEIGHT_O_BIAS,	  /* o_bias */
	WEIGHT_ATTN_POST, /* [hidden], after attention; post_norms */
	WEIGHT_MLP_NORM,  /* [hidden], before the MLP */
	WEIGHT_GATE,	  /* [ffn][hidden] */
	WEIGHT_UP,
	WEIGHT_GATE_BIAS, /* mlp_bias */
	WEIGHT_UP_BIAS,
	WEIGHT_DOWN,	  /* [hidden][ffn] */
	WEIGHT_DOWN_BIAS, /* mlp_bias */
	WEIGHT_MLP_POST,  /* [hidden], after the MLP; post_norms */
	WEIGHTS
};

/* rows 0: the layer has no such tensor; cols 0: it has one dimension. */
struct tensor_shape {
	int64_t rows, cols;
};

/* The shape of a tensor of a layer of m.  Of a model that is split it is the rank's share. */
struct tensor_shape layer_tensor(const struct model *m, const struct layer_spec *l, enum weight i);

static inline size_t tensor_count(struct tensor_shape s)
{
	return (size_t)s.rows * (size_t)(s.cols ? s.cols : 1);
}

#endif
