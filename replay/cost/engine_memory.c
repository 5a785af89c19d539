/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/cost/engine_memory.h"

#include "model/layer_size.h"
#include "model/params.h"

static const double sample_bytes = 38.7;
static const int64_t graph_bytes = 8 << 20, other_bytes = (int64_t)205 << 20,
		     rank_bytes = 600000000;

static int64_t larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Elements of a token between the residual streams: those of Q, K, V and the mixer's output, or of
 * the MLP.  The experts' first and last products share their memory. */
static int64_t layer_width(const struct model *m, const struct layer_spec *l)
{
	int64_t mixer = (int64_t)(layer_qkv_width(l) + layer_ba_width(l) + layer_o_width(l));
	int64_t mlp = 3 * (int64_t)l->ffn;

	if (l->n_experts)
		mlp = l->n_experts + 3 * (int64_t)l->shared_ffn +
		      l->experts_per_tok * (larger(2 * (int64_t)l->ffn, m->hidden) + l->ffn);
	return larger(mixer, mlp);
}

static int64_t activation_bytes(const struct engine_memory_in *in)
{
	const struct model *m = in->model;
	double sampled = sample_bytes * (double)in->max_seqs * m->vocab * m->tp;
	int64_t width = 0;

	for (int i = 0; i < m->n_layers; i++)
		width = larger(width, layer_width(m, &m->layer[i]));
	return larger((int64_t)sampled, 2 * in->max_batched_tok * (2 * (int64_t)m->hidden + width));
}

struct engine_memory engine_memory(const struct engine_memory_in *in)
{
	struct engine_memory e = {
		.weights = model_weight_bytes(in->model),
		.activations = activation_bytes(in),
		.graphs = 2 * in->n_graph * graph_bytes,
		.other = other_bytes + (in->model->tp > 1 ? rank_bytes : 0),
	};
	double all = (double)in->gpu_bytes, fixed = (double)(e.weights + e.other);
	double run = (double)e.activations, cache = 0;

	switch (in->rule) {
	case POOL_PROFILED: cache = in->share * all - fixed - run - (double)e.graphs; break;
	case POOL_GRAPHLESS: cache = in->share * all - fixed - run; break;
	case POOL_STATIC: cache = in->share * all - fixed; break;
	case POOL_OF_FREE: cache = in->share * (all - fixed - run - (double)e.graphs); break;
	}
	e.cache = (int64_t)cache;
	if (e.cache >= 2 * in->block_bytes)
		e.num_blocks = e.cache / in->block_bytes;
	return e;
}
