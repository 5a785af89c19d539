/* SPDX-License-Identifier: Apache-2.0 */
/* Sizes of the matrix products of a layer. */
#ifndef AR_LAYER_SIZE_H
#define AR_LAYER_SIZE_H

#include <stddef.h>

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

/* Columns of the QKV product, and rows of the output projection's weights. */
static inline size_t layer_qkv_width(const struct layer_spec *l)
{
	return (size_t)(l->q_heads + 2 * l->kv_heads) * (size_t)l->head_dim;
}

static inline size_t layer_o_width(const struct layer_spec *l)
{
	return (size_t)l->q_heads * (size_t)l->head_dim;
}

#endif
