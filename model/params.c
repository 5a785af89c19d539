/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/params.h"

#include "model/layer_size.h"

struct tensor_shape layer_tensor(const struct model *m, const struct layer_spec *l, enum weight i)
{
	int64_t q = (int64_t)layer_q_width(l), k = (int64_t)layer_k_width(l);
	int64_t v = (int64_t)layer_v_width(l);

	switch (i) {
	case WEIGHT_Q: return (struct tensor_shape){ q, m->hidden };
	case WEIGHT_K: return (struct tensor_shape){ k, m->hidden };
	case WEIGHT_V: return (struct tensor_shape){ v, m->hidden };
	case WEIGHT_Q_BIAS: return (struct tensor_shape){ l->qkv_bias * q, 0 };
	case WEIGHT_K_BIAS: return (struct tensor_shape){ l->qkv_bias * k, 0 };
	case WEIGHT_V_BIAS: return (struct tensor_shape){ l->qkv_bias * v, 0 };
	case WEIGHT_Q_NORM:
	case WEIGHT_K_NORM: return (struct tensor_shape){ l->qk_norm * l->head_dim, 0 };
	case WEIGHT_O: return (struct tensor_shape){ m->hidden, (int64_t)layer_o_width(l) };
	case WEIGHT_O_BIAS: return (struct tensor_shape){ l->o_bias * m->hidden, 0 };
	case WEIGHT_ATTN_POST:
	case WEIGHT_MLP_POST: return (struct tensor_shape){ l->post_norms * m->hidden, 0 };
	case WEIGHT_GATE:
	case WEIGHT_UP: return (struct tensor_shape){ l->ffn, m->hidden };
	case WEIGHT_GATE_BIAS:
	case WEIGHT_UP_BIAS: return (struct tensor_shape){ l->mlp_bias * l->ffn, 0 };
	case WEIGHT_DOWN: return (struct tensor_shape){ m->hidden, l->ffn };
	case WEIGHT_DOWN_BIAS: return (struct tensor_shape){ l->mlp_bias * m->hidden, 0 };
	default: return (struct tensor_shape){ m->hidden, 0 };
	}
}
