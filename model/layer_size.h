/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of the matrix products of a layer. */
#ifndef AR_LAYER_SIZE_H
#define AR_LAYER_SIZE_H

#include <stdbool.h>
#include <stddef.h>

#include "model/cache_layout.h"
#include "model/model.h"

/* Experts that run, and rows of each.  A dense MLP is one expert. */
struct expert_load {
	int experts, rows;
};

static inline struct expert_load layer_experts(const struct layer_spec *l, int n_row)
{
	int64_t n = (int64_t)n_row * l->experts_per_tok;
	struct expert_load d = { 1, n_row };

	if (l->n_experts) {
		d.experts = n < l->n_experts ? (int)n : l->n_experts;
		d.rows = (int)((n + d.experts - 1) / d.experts);
	}
	return d;
}

/* Channels of a head's values, and so of its output. */
static inline int layer_v_dim(const struct layer_spec *l)
{
	return l->v_dim ? l->v_dim : l->head_dim;
}

/* Channels of a key in the cache: of a head, or of the latent with its rotated channels. */
static inline int layer_key_dim(const struct layer_spec *l)
{
	return l->mixer == MIX_LATENT ? l->mla.kv_lora + l->rotary_dim : l->head_dim;
}

/* Matrices of an MLP: gate, up and down, or up and down. */
static inline int layer_mlp_matrices(const struct layer_spec *l)
{
	return l->act == ACT_RELU2 ? 2 : 3;
}

/* Width of the rows that experts work on. */
static inline int layer_expert_hidden(const struct layer_spec *l, int hidden)
{
	return l->expert_hidden ? l->expert_hidden : hidden;
}

/* Channels of all heads of a state-space mixer, and of its convolution: x, B and C. */
static inline int ssm_inner(const struct ssm_spec *s)
{
	return s->heads * s->head_dim;
}

static inline int ssm_channels(const struct ssm_spec *s)
{
	return ssm_inner(s) + 2 * s->groups * s->state;
}

/* Elements of the state of a request in a layer: of its heads; of the last rows before the
 * convolution. */
static inline size_t ssm_state_len(const struct ssm_spec *s)
{
	return (size_t)ssm_inner(s) * (size_t)s->state;
}

static inline size_t ssm_tail_len(const struct ssm_spec *s)
{
	return s->conv ? (size_t)(s->conv - 1) * (size_t)ssm_channels(s) : 0;
}

/* Columns of Q without gates, of K, and of V; 0 in a layer without attention.  In latent attention
 * K is the latent with its rotated channels, and V a part of it. */
static inline size_t layer_q_width(const struct layer_spec *l)
{
	return (size_t)l->q_heads * (size_t)l->head_dim;
}

static inline size_t layer_k_width(const struct layer_spec *l)
{
	return (size_t)l->kv_heads * (size_t)layer_key_dim(l);
}

static inline size_t layer_v_width(const struct layer_spec *l)
{
	return l->mixer == MIX_LATENT ? 0 : (size_t)l->kv_heads * (size_t)layer_v_dim(l);
}

/* Columns of the output of the mixer, which the output projection reads. */
static inline size_t layer_o_width(const struct layer_spec *l)
{
	if (l->mixer == MIX_SSM)
		return (size_t)ssm_inner(&l->ssm);
	return l->mixer == MIX_LINEAR ? (size_t)l->delta.v_heads * (size_t)l->delta.v_dim :
					(size_t)l->q_heads * (size_t)layer_v_dim(l);
}

/* Columns of Q's product with the layer's rows: of Q, or of low-rank Q. */
static inline size_t layer_q_first(const struct layer_spec *l)
{
	return l->mla.q_lora ? (size_t)l->mla.q_lora : layer_q_width(l);
}

/* Columns of the QKV product.  With an output gate each head of Q is followed by its gate.  A gated
 * DeltaNet has q, k, v and z, the gate of its output; a state-space mixer its gate, x, B, C and a
 * time step for each head. */
static inline size_t layer_qkv_width(const struct layer_spec *l)
{
	const struct delta_spec *d = &l->delta;
	size_t gate = l->out_gate ? layer_o_width(l) : 0, v = l->k_is_v ? 0 : layer_v_width(l);
	const struct ssm_spec *s = &l->ssm;

	if (l->mixer == MIX_SSM)
		return (size_t)(ssm_inner(s) + ssm_channels(s) + s->heads);
	return l->mixer == MIX_LINEAR ?
		       2 * (size_t)(d->k_heads * d->k_dim + d->v_heads * d->v_dim) :
		       layer_q_first(l) + gate + layer_k_width(l) + v;
}

/* Columns of the product of a gated DeltaNet that gives each value head its b and a; else 0. */
static inline size_t layer_ba_width(const struct layer_spec *l)
{
	return l->mixer == MIX_LINEAR ? 2 * (size_t)l->delta.v_heads : 0;
}

/* Bytes of a token in the KV cache of the layer. */
static inline int64_t layer_cache_bytes(const struct layer_spec *l)
{
	return (int64_t)cache_token_bytes(l->cache, l->kv_heads, layer_key_dim(l), layer_v_dim(l));
}

/* The part of it that attention reads of a latent, and the part of an indexer. */
static inline int64_t layer_latent_bytes(const struct layer_spec *l)
{
	return (int64_t)cache_plane_bytes(l->cache, 0, l->kv_heads, layer_key_dim(l));
}

static inline int64_t layer_index_bytes(const struct layer_spec *l)
{
	return layer_cache_bytes(l) - layer_latent_bytes(l);
}

/* Columns of K and V of all heads that a latent is expanded to; its rotated channels stay. */
static inline size_t layer_expanded_width(const struct layer_spec *l)
{
	return (size_t)l->q_heads * (size_t)(l->head_dim - l->rotary_dim + layer_v_dim(l));
}

/* FLOPs of it.  A row has as many if its Q and its output are taken to latents and back. */
static inline double layer_expand_flops(const struct layer_spec *l)
{
	return 2.0 * l->mla.kv_lora * (double)layer_expanded_width(l);
}

/* Count the FLOPs of a row's matrix products: projections before and after the mixer, of the
 * indexer and of the latent, and the MLP. */
static inline double layer_project_flops(const struct layer_spec *l, int hidden)
{
	const struct index_spec *x = &l->index;
	double width = (double)(layer_qkv_width(l) + layer_ba_width(l) + layer_o_width(l));
	double q = (double)layer_q_width(l);

	if (x->own) {
		width += x->dim + x->heads;
		q += (double)x->heads * x->dim;
	}
	return 2.0 * hidden * width + 2.0 * l->mla.q_lora * q + layer_expand_flops(l);
}

static inline double layer_mlp_flops(const struct layer_spec *l, int hidden)
{
	double experts = l->n_experts ? l->experts_per_tok : 1, matrices = layer_mlp_matrices(l);

	return 2.0 * hidden *
		       (l->n_experts + matrices * l->shared_ffn + l->shared_gate +
			2.0 * l->expert_hidden) +
	       2.0 * layer_expert_hidden(l, hidden) * matrices * experts * l->ffn;
}

/* FLOPs of attention for each (row, key) pair of all query heads: of scores, and of the sum. */
static inline double layer_pair_flops(const struct layer_spec *l)
{
	return !mixer_attends(l->mixer) ? 0 : 2.0 * (double)(layer_q_width(l) + layer_o_width(l));
}

/* The same of a latent that is not expanded: all heads read the latent as key and as value. */
static inline double layer_absorbed_flops(const struct layer_spec *l)
{
	return 2.0 * l->q_heads * (layer_key_dim(l) + (double)l->mla.kv_lora);
}

/* FLOPs of a row in a gated DeltaNet, 0 without one: three products with the state.  chunked: the
 * row of a prompt also has two products with the 64 rows of its chunk, in keys and in values. */
static inline double layer_delta_flops(const struct delta_spec *d, bool chunked)
{
	double chunk = chunked ? 4.0 * 64 * (d->k_dim + d->v_dim) : 0;

	return d->v_heads * (6.0 * d->k_dim * d->v_dim + chunk);
}

/* FLOPs of a row in a state-space mixer, 0 without one: two products with the state.  chunked: the
 * row of a prompt also has a product of C with B of all rows of its chunk, and one with their x. */
static inline double layer_ssm_flops(const struct ssm_spec *s, bool chunked)
{
	double chunk = chunked ? 2.0 * s->chunk * ((double)s->groups * s->state + ssm_inner(s)) : 0;

	return 4.0 * ssm_inner(s) * s->state + chunk;
}

/* Bytes of the state of a request in a layer without keys, as the kernels here have it. */
static inline size_t layer_state_bytes(const struct layer_spec *l)
{
	const struct delta_spec *d = &l->delta;
	size_t k = (size_t)d->k_heads * (size_t)d->k_dim, v = (size_t)d->v_heads * (size_t)d->v_dim;
	size_t tail = d->conv ? (size_t)(d->conv - 1) * (2 * k + v) : 0;

	return (v * (size_t)d->k_dim + ssm_state_len(&l->ssm)) * 4 +
	       (tail + ssm_tail_len(&l->ssm)) * 2;
}

#endif
