/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a model: their shapes, and how many parameters they have. */
#ifndef AR_PARAMS_H
#define AR_PARAMS_H

#include <stddef.h>
#include <stdint.h>

#include "model/model.h"

/* The tensors of a layer.  A matrix is [out][in], a product's columns by its rows; all others have
 * one dimension.  Tensors of a layer follow each other in this order without a gap.  So Q, K and V
 * are one matrix of layer_qkv_width() rows, gate and up one of 2 ffn rows; so are their biases; the
 * norms of Q and K are [2][head_dim].  With an output gate Q has as many rows again. */
enum weight {
	WEIGHT_ATTN_NORM, /* [hidden], before attention */
	WEIGHT_Q,	  /* [q_heads * head_dim, or q_lora][hidden] */
	WEIGHT_K,	  /* [layer_k_width][hidden] */
	WEIGHT_V,
	WEIGHT_Q_BIAS, /* qkv_bias */
	WEIGHT_K_BIAS,
	WEIGHT_V_BIAS,
	WEIGHT_Q_NORM, /* [head_dim]; qk_norm */
	WEIGHT_K_NORM,
	WEIGHT_O,	  /* [hidden][layer_o_width] */
	WEIGHT_O_BIAS,	  /* o_bias */
	WEIGHT_ATTN_POST, /* [hidden], after attention; post_norms */
	WEIGHT_MLP_NORM,  /* [hidden], before the MLP */
	WEIGHT_GATE, /* [ffn][hidden], of each expert, as all to DOWN_BIAS; not with ACT_RELU2 */
	WEIGHT_UP,
	WEIGHT_GATE_BIAS, /* mlp_bias */
	WEIGHT_UP_BIAS,
	WEIGHT_DOWN,	  /* [hidden][ffn] */
	WEIGHT_DOWN_BIAS, /* mlp_bias */
	WEIGHT_MLP_POST,  /* [hidden], after the MLP; post_norms */
	WEIGHT_SINKS,	  /* [q_heads]; sinks */
	WEIGHT_ROUTER,	  /* [n_experts][hidden] */
	WEIGHT_ROUTER_BIAS,
	WEIGHT_SHARED_GATE, /* [shared_ffn][hidden] */
	WEIGHT_SHARED_UP,
	WEIGHT_SHARED_DOWN,  /* [hidden][shared_ffn] */
	WEIGHT_SHARED_SHARE, /* [1][hidden], of the shared expert's gate; shared_gate */
	WEIGHT_DELTA_QKVZ,   /* [layer_qkv_width][hidden], all of MIX_LINEAR */
	WEIGHT_DELTA_BA,     /* [layer_ba_width][hidden] */
	WEIGHT_DELTA_CONV,   /* [channels of q, k and v][conv] */
	WEIGHT_DELTA_A_LOG,  /* [v_heads] */
	WEIGHT_DELTA_DT_BIAS,
	WEIGHT_DELTA_NORM, /* [v_dim] */
	WEIGHT_Q_UP,	   /* [q_heads * head_dim][q_lora]; q_lora */
	WEIGHT_Q_UP_NORM,  /* [q_lora], before it */
	WEIGHT_KV_UP,	   /* [layer_expanded_width][kv_lora]; MIX_LATENT */
	WEIGHT_KV_UP_NORM, /* [kv_lora], before it */
	WEIGHT_INDEX_Q,	   /* [index.heads * index.dim][q_lora], all of layers with index.own */
	WEIGHT_INDEX_K,	   /* [index.dim][hidden] */
	WEIGHT_INDEX_NORM, /* [index.dim], of K, and its bias */
	WEIGHT_INDEX_NORM_BIAS,
	WEIGHT_INDEX_SHARE,   /* [index.heads][hidden], the weights of heads */
	WEIGHT_SSM_IN,	      /* [layer_qkv_width][hidden], all of MIX_SSM */
	WEIGHT_SSM_CONV,      /* [channels of x, B and C][conv] */
	WEIGHT_SSM_CONV_BIAS, /* conv_bias */
	WEIGHT_SSM_A_LOG,     /* [heads] */
	WEIGHT_SSM_D,
	WEIGHT_SSM_DT_BIAS,
	WEIGHT_SSM_NORM,    /* [heads * head_dim]; norm */
	WEIGHT_EXPERT_DOWN, /* [expert_hidden][hidden], of rows before and after the experts */
	WEIGHT_EXPERT_UP,   /* [hidden][expert_hidden] */
	WEIGHT_EXPERT_NORM, /* [hidden], as the next three; expert_norms */
	WEIGHT_EXPERT_POST,
	WEIGHT_SHARED_POST,
	WEIGHT_ROUTER_SCALE,
	WEIGHT_EXPERT_SCALE, /* [n_experts]; expert_norms */
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

/* Count the tensors i of a layer, which have equal shapes: one for each expert, or one. */
int64_t layer_tensors(const struct layer_spec *l, enum weight i);

/* Which format of a layer a tensor is stored in; LINEAR_NONE: always bf16. */
enum linear weight_linear(const struct layer_spec *l, enum weight i);

/* Parameters of a layer, and of the model with its embedding, its last norm, and its head if that
 * is not tied.  Of a model that is split it is the rank's share, whose embedding is one as well. */
int64_t layer_params(const struct model *m, const struct layer_spec *l);
int64_t model_params(const struct model *m);
/* Bytes of these parameters in memory, in their formats and with scales. */
int64_t model_weight_bytes(const struct model *m);
/* Bytes of the states of a sequence, of layers with a state. */
int64_t model_state_bytes(const struct model *m);

#endif
