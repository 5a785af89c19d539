/* SPDX-License-Identifier: Apache-2.0 */
/* ERNIE-4.5: dense, or a range of layers with experts and shared ones.  Sources: Hugging Face
 * Transformers 4.57, Ernie4_5_MoeConfig; vLLM 0.33.0, models/ernie45_moe.py. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

#include "base/jsonval.h"

static const char *const hf_names[] = {
	"ernie4_5",	"Ernie4_5ForCausalLM",	   "Ernie4_5_ForCausalLM",
	"ernie4_5_moe", "Ernie4_5_MoeForCausalLM", NULL
};

enum { SHARED_MAX = 64, LAYERS_MAX = 4094 };

struct moe {
	int experts, per_tok, ffn, shared;
	int first, last, every; /* layers with experts */
};

static enum ar_status read_moe(struct moe *x, const struct model *m, const struct cJSON *config,
			       const char *path, struct ar_err *err)
{
	int64_t end;
	enum ar_status st = config_int(config, "moe_num_experts", 1 << 16, 0, &x->experts, path,
				       err);

	if (!st)
		st = config_int(config, "moe_k", x->experts, 0, &x->per_tok, path, err);
	if (!st)
		st = config_int(config, "moe_intermediate_size", 1 << 24, 0, &x->ffn, path, err);
	if (!st)
		st = config_count(config, "moe_num_shared_experts", SHARED_MAX, &x->shared, path,
				  err);
	if (!st)
		st = config_count(config, "moe_layer_start_index", LAYERS_MAX, &x->first, path,
				  err);
	x->last = m->n_layers;
	if (!st && !json_int(config_get(config, "moe_layer_end_index"), -1, -1, &end)) /* -1: all */
		st = config_int(config, "moe_layer_end_index", LAYERS_MAX, m->n_layers, &x->last,
				path, err);
	return st ? st :
		    config_int(config, "moe_layer_interval", LAYERS_MAX, 1, &x->every, path, err);
}

static enum ar_status ernie4_5_read(struct model *m, const struct cJSON *config, const char *path,
				    struct ar_err *err)
{
	const int bias = config_true(config, "use_bias");
	struct moe x = { 0 };
	enum ar_status st = AR_OK;

	for (int i = 0; i < m->n_layers; i++)
		m->layer[i].qkv_bias = m->layer[i].o_bias = m->layer[i].mlp_bias = bias;
	if (config_has(config, "moe_num_experts"))
		st = read_moe(&x, m, config, path, err);
	for (int i = x.first; i < m->n_layers && i <= x.last && x.experts && !st; i++) {
		struct layer_spec *l = &m->layer[i];

		if ((i + 1) % x.every)
			continue;
		l->n_experts = x.experts;
		l->experts_per_tok = x.per_tok;
		l->ffn = x.ffn;
		l->shared_ffn = x.shared * x.ffn;
		l->router.bias = 1;
	}
	return st;
}

extern const struct arch arch_ernie4_5;
const struct arch arch_ernie4_5 = {
	.name = "ernie4_5",
	.hf_names = hf_names,
	.read = ernie4_5_read,
};
