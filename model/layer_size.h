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

/* Columns of Q without gates, of K, and of V; 0 in a gated DeltaNet.  In latent attention K is the
 * latent with its rotated channels, and V a part of it. */
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

/* Columns of the output of attention, which the output projection reads. */
static inline size_t layer_o_width(const struct layer_spec *l)
{
	return l->mixer == MIX_LINEAR ? (size_t)l->delta.v_heads * (size_t)l->delta.v_dim :
					(size_t)l->q_heads * (size_t)layer_v_dim(l);
}

/* Columns of Q's product with the layer's rows: of Q, or of low-rank Q. */
static inline size_t layer_q_first(const struct layer_spec *l)
{
	return l->mla.q_lora ? (size_t)l->mla.q_lora : layer_q_width(l);
}

/* Columns of the QKV product.  With an output gate each head of Q is followed by its gate.  A gated
 * DeltaNet has q, k, v and z, the gate of its output. */
static inline size_t layer_qkv_width(const struct layer_spec *l)
{
	const struct delta_spec *d = &l->delta;
	size_t gate = l->out_gate ? layer_o_width(l) : 0, v = l->k_is_v ? 0 : layer_v_width(l);

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

/* FLOPs of the matrix products of a row: the projections before and after the mixer, with those of
 * an indexer and of the row's latent; and the MLP. */
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
	double experts = l->n_experts ? l->experts_per_tok : 1;

	return 2.0 * hidden *
	       (l->n_experts + 3 * experts * l->ffn + 3.0 * l->shared_ffn + l->shared_gate);
}

/* FLOPs of attention for each (row, key) pair of all query heads: of scores, and of the sum. */
static inline double layer_pair_flops(const struct layer_spec *l)
{
	return l->mixer == MIX_LINEAR ? 0 : 2.0 * (double)(layer_q_width(l) + layer_o_width(l));
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

#endif
