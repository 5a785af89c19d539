/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/params.h"

#include "base/bf16.h"
#include "model/layer_size.h"

/* Of a gated DeltaNet, whose tensors have rows only with one. */
static struct tensor_shape delta_tensor(const struct model *m, const struct layer_spec *l,
					enum weight i)
{
	const struct delta_spec *d = &l->delta;
	int64_t channels = 2 * (int64_t)d->k_heads * d->k_dim + (int64_t)d->v_heads * d->v_dim;

	if (l->mixer != MIX_LINEAR)
		return (struct tensor_shape){ 0, 0 };
	switch (i) {
	case WEIGHT_DELTA_QKVZ:
		return (struct tensor_shape){ (int64_t)layer_qkv_width(l), m->hidden };
	case WEIGHT_DELTA_BA: return (struct tensor_shape){ (int64_t)layer_ba_width(l), m->hidden };
	case WEIGHT_DELTA_CONV: return (struct tensor_shape){ channels, d->conv };
	case WEIGHT_DELTA_NORM: return (struct tensor_shape){ d->v_dim, 0 };
	default: return (struct tensor_shape){ d->v_heads, 0 };
	}
}

/* Of latent attention and its indexer, whose tensors have rows only with them. */
static struct tensor_shape latent_tensor(const struct model *m, const struct layer_spec *l,
					 enum weight i)
{
	const struct mla_spec *a = &l->mla;
	int64_t heads = l->index.own ? l->index.heads : 0, dim = heads ? l->index.dim : 0;
	int64_t q = a->q_lora ? (int64_t)layer_q_width(l) : 0;
	int64_t kv = a->kv_lora ? (int64_t)layer_expanded_width(l) : 0;

	switch (i) {
	case WEIGHT_Q_UP: return (struct tensor_shape){ q, a->q_lora };
	case WEIGHT_Q_UP_NORM: return (struct tensor_shape){ a->q_lora, 0 };
	case WEIGHT_KV_UP: return (struct tensor_shape){ kv, a->kv_lora };
	case WEIGHT_KV_UP_NORM: return (struct tensor_shape){ a->kv_lora, 0 };
	case WEIGHT_INDEX_Q: return (struct tensor_shape){ heads * dim, a->q_lora };
	case WEIGHT_INDEX_K: return (struct tensor_shape){ dim, m->hidden };
	case WEIGHT_INDEX_SHARE: return (struct tensor_shape){ heads, m->hidden };
	default: return (struct tensor_shape){ dim, 0 };
	}
}

/* Weights of the norm of Q or K, which has heads. */
static int64_t norm_dim(const struct layer_spec *l, int heads)
{
	return (int64_t)(l->qk_norm_all ? heads : 1) * l->head_dim;
}

/* Of a state-space mixer, whose tensors have rows only with one. */
static struct tensor_shape ssm_tensor(const struct model *m, const struct layer_spec *l,
				      enum weight i)
{
	const struct ssm_spec *s = &l->ssm;

	if (l->mixer != MIX_SSM)
		return (struct tensor_shape){ 0, 0 };
	switch (i) {
	case WEIGHT_SSM_IN: return (struct tensor_shape){ (int64_t)layer_qkv_width(l), m->hidden };
	case WEIGHT_SSM_CONV: return (struct tensor_shape){ ssm_channels(s), s->conv };
	case WEIGHT_SSM_CONV_BIAS:
		return (struct tensor_shape){ s->conv_bias * (int64_t)ssm_channels(s), 0 };
	case WEIGHT_SSM_NORM: return (struct tensor_shape){ s->norm * (int64_t)ssm_inner(s), 0 };
	default: return (struct tensor_shape){ s->heads, 0 };
	}
}

struct tensor_shape layer_tensor(const struct model *m, const struct layer_spec *l, enum weight i)
{
	int64_t q = (int64_t)layer_q_first(l) + l->out_gate * (int64_t)layer_o_width(l);
	int64_t k = (int64_t)layer_k_width(l), v = l->k_is_v ? 0 : (int64_t)layer_v_width(l);
	int64_t rows = layer_expert_hidden(l, m->hidden), mixes = l->mixer != MIX_NONE;
	int64_t gates = layer_mlp_matrices(l) - 2;

	switch (i) {
	case WEIGHT_Q: return (struct tensor_shape){ q, m->hidden };
	case WEIGHT_K: return (struct tensor_shape){ k, m->hidden };
	case WEIGHT_V: return (struct tensor_shape){ v, m->hidden };
	case WEIGHT_Q_BIAS: return (struct tensor_shape){ l->qkv_bias * q, 0 };
	case WEIGHT_K_BIAS: return (struct tensor_shape){ l->qkv_bias * k, 0 };
	case WEIGHT_V_BIAS: return (struct tensor_shape){ l->qkv_bias * v, 0 };
	case WEIGHT_Q_NORM: return (struct tensor_shape){ l->qk_norm * norm_dim(l, l->q_heads), 0 };
	case WEIGHT_K_NORM:
		return (struct tensor_shape){ l->qk_norm * norm_dim(l, l->kv_heads), 0 };
	case WEIGHT_O: return (struct tensor_shape){ mixes * m->hidden, (int64_t)layer_o_width(l) };
	case WEIGHT_O_BIAS: return (struct tensor_shape){ l->o_bias * m->hidden, 0 };
	case WEIGHT_ATTN_POST:
	case WEIGHT_MLP_POST: return (struct tensor_shape){ l->post_norms * m->hidden, 0 };
	case WEIGHT_GATE: return (struct tensor_shape){ gates * l->ffn, rows };
	case WEIGHT_UP: return (struct tensor_shape){ l->ffn, rows };
	case WEIGHT_GATE_BIAS: return (struct tensor_shape){ l->mlp_bias * gates * l->ffn, 0 };
	case WEIGHT_UP_BIAS: return (struct tensor_shape){ l->mlp_bias * l->ffn, 0 };
	case WEIGHT_DOWN: return (struct tensor_shape){ l->ffn ? rows : 0, l->ffn };
	case WEIGHT_DOWN_BIAS: return (struct tensor_shape){ l->mlp_bias * rows, 0 };
	case WEIGHT_SINKS: return (struct tensor_shape){ l->sinks * l->q_heads, 0 };
	case WEIGHT_ROUTER: return (struct tensor_shape){ l->n_experts, m->hidden };
	case WEIGHT_ROUTER_BIAS:
		return (struct tensor_shape){ (l->mlp_bias || l->router.bias) * l->n_experts, 0 };
	case WEIGHT_SHARED_GATE: return (struct tensor_shape){ gates * l->shared_ffn, m->hidden };
	case WEIGHT_SHARED_UP: return (struct tensor_shape){ l->shared_ffn, m->hidden };
	case WEIGHT_SHARED_DOWN:
		return (struct tensor_shape){ l->shared_ffn ? m->hidden : 0, l->shared_ffn };
	case WEIGHT_SHARED_SHARE: return (struct tensor_shape){ l->shared_gate, m->hidden };
	case WEIGHT_ATTN_NORM: return (struct tensor_shape){ l->beside ? 0 : mixes * m->hidden, 0 };
	case WEIGHT_MLP_NORM: return (struct tensor_shape){ l->ffn ? m->hidden : 0, 0 };
	case WEIGHT_EXPERT_DOWN: return (struct tensor_shape){ l->expert_hidden, m->hidden };
	case WEIGHT_EXPERT_UP:
		return (struct tensor_shape){ l->expert_hidden ? m->hidden : 0, l->expert_hidden };
	case WEIGHT_EXPERT_NORM:
	case WEIGHT_EXPERT_POST:
	case WEIGHT_SHARED_POST:
	case WEIGHT_ROUTER_SCALE: return (struct tensor_shape){ l->expert_norms * m->hidden, 0 };
	case WEIGHT_EXPERT_SCALE: return (struct tensor_shape){ l->expert_norms * l->n_experts, 0 };
	case WEIGHT_DELTA_QKVZ:
	case WEIGHT_DELTA_BA:
	case WEIGHT_DELTA_CONV:
	case WEIGHT_DELTA_A_LOG:
	case WEIGHT_DELTA_DT_BIAS:
	case WEIGHT_DELTA_NORM: return delta_tensor(m, l, i);
	case WEIGHT_SSM_IN:
	case WEIGHT_SSM_CONV:
	case WEIGHT_SSM_CONV_BIAS:
	case WEIGHT_SSM_A_LOG:
	case WEIGHT_SSM_D:
	case WEIGHT_SSM_DT_BIAS:
	case WEIGHT_SSM_NORM: return ssm_tensor(m, l, i);
	default: return latent_tensor(m, l, i);
	}
}

int64_t layer_tensors(const struct layer_spec *l, enum weight i)
{
	const int experts = l->held_experts ? l->held_experts : l->n_experts;

	switch (i) {
	case WEIGHT_GATE:
	case WEIGHT_UP:
	case WEIGHT_GATE_BIAS:
	case WEIGHT_UP_BIAS:
	case WEIGHT_DOWN:
	case WEIGHT_DOWN_BIAS: return experts ? experts : 1;
	default: return 1;
	}
}

int64_t layer_params(const struct model *m, const struct layer_spec *l)
{
	int64_t n = 0;

	for (int i = 0; i < WEIGHTS; i++)
		n += layer_tensors(l, (enum weight)i) *
		     (int64_t)tensor_count(layer_tensor(m, l, (enum weight)i));
	return n;
}

int64_t model_params(const struct model *m)
{
	int64_t n = (m->tied ? 1 : 2) * (int64_t)m->vocab * m->hidden + m->hidden;

	for (int i = 0; i < m->n_layers; i++)
		n += layer_params(m, &m->layer[i]);
	return n;
}

enum linear weight_linear(const struct layer_spec *l, enum weight i)
{
	static const enum linear of[WEIGHTS] = {
		[WEIGHT_Q] = LINEAR_Q,
		[WEIGHT_K] = LINEAR_K,
		[WEIGHT_V] = LINEAR_V,
		[WEIGHT_O] = LINEAR_O,
		[WEIGHT_GATE] = LINEAR_GATE,
		[WEIGHT_UP] = LINEAR_UP,
		[WEIGHT_DOWN] = LINEAR_DOWN,
		[WEIGHT_SHARED_GATE] = LINEAR_SHARED,
		[WEIGHT_SHARED_UP] = LINEAR_SHARED,
		[WEIGHT_SHARED_DOWN] = LINEAR_SHARED,
		[WEIGHT_DELTA_QKVZ] = LINEAR_IN,
		[WEIGHT_DELTA_BA] = LINEAR_BA,
		[WEIGHT_Q_UP] = LINEAR_Q_UP,
		[WEIGHT_KV_UP] = LINEAR_KV_UP,
		[WEIGHT_INDEX_Q] = LINEAR_INDEX,
		[WEIGHT_INDEX_K] = LINEAR_INDEX,
		[WEIGHT_SSM_IN] = LINEAR_IN,
		[WEIGHT_EXPERT_DOWN] = LINEAR_AROUND,
		[WEIGHT_EXPERT_UP] = LINEAR_AROUND,
	};

	if (of[i] == LINEAR_O && !mixer_attends(l->mixer))
		return LINEAR_OUT;
	return l->n_experts && of[i] >= LINEAR_GATE && of[i] <= LINEAR_DOWN ? LINEAR_EXPERTS :
									      of[i];
}

/* Bytes that the tensors of a layer take less, or more, than in bf16. */
static int64_t layer_bytes_beside(const struct model *m, const struct layer_spec *l)
{
	int64_t sum = 0;

	for (int i = 0; i < WEIGHTS; i++) {
		const struct tensor_shape s = layer_tensor(m, l, (enum weight)i);
		const enum linear kind = weight_linear(l, (enum weight)i);

		if (kind)
			sum += layer_tensors(l, (enum weight)i) *
			       (format_bytes(&l->format[kind], s.rows, s.cols) -
				2 * s.rows * s.cols);
	}
	return sum;
}

int64_t model_weight_bytes(const struct model *m)
{
	const int64_t head = (int64_t)m->vocab * m->hidden;
	int64_t sum = model_params(m) * (int64_t)sizeof(bf16_t);

	if (!m->tied)
		sum += format_bytes(&m->head, m->vocab, m->hidden) - 2 * head;
	for (int i = 0; i < m->n_layers; i++)
		sum += layer_bytes_beside(m, &m->layer[i]);
	return sum;
}

int64_t model_state_bytes(const struct model *m)
{
	int64_t sum = 0;

	for (int i = 0; i < m->n_layers; i++)
		sum += (int64_t)layer_state_bytes(&m->layer[i]);
	return sum;
}
