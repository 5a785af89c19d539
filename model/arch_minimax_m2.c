/* SPDX-License-Identifier: Apache-2.0 */
/* MiniMax-M2: experts in all layers, and norms of all heads of Q, and of K, together.  Source: vLLM
 * 0.33.0, models/minimax_m2.py. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <string.h>

static const char *const hf_names[] = { "minimax_m2", "MiniMaxM2ForCausalLM", NULL };

static bool says(const cJSON *config, const char *key, const char *text)
{
	const cJSON *v = config_get(config, key);

	return cJSON_IsString(v) && !strcmp(v->valuestring, text);
}

/* attn_type_list has 1 for a layer with attention. */
static enum ar_status check_types(const cJSON *config, const char *path, struct ar_err *err)
{
	const cJSON *v, *types = config_get(config, "attn_type_list");

	cJSON_ArrayForEach(v, types)
		if (!cJSON_IsNumber(v) || v->valuedouble != 1)
			return ar_fail(err, AR_DATA,
				       "%s: 'attn_type_list': linear attention of MiniMax is not "
				       "known; take a model whose list has 1 for each layer",
				       path);
	return AR_OK;
}

static enum ar_status minimax_m2_read(struct model *m, const cJSON *config, const char *path,
				      struct ar_err *err)
{
	struct layer_spec x = *m->layer;
	enum ar_status st = check_types(config, path, err);

	x.qk_norm = config_true(config, "use_qk_norm");
	x.qk_norm_all = x.qk_norm && !says(config, "qk_norm_type", "per_head");
	x.router.scoring = says(config, "scoring_func", "sigmoid") ? ROUTER_SIGMOID :
								     ROUTER_SOFTMAX;
	x.router.bias = config_true(config, "use_routing_bias");
	if (!st)
		st = config_int(config, "rotary_dim", x.head_dim, x.rotary_dim, &x.rotary_dim, path,
				err);
	if (!st && x.rotary_dim % 2)
		st = ar_fail(err, AR_DATA, "%s: rotary_dim %d is odd", path, x.rotary_dim);
	if (!st)
		st = config_count(config, "shared_intermediate_size", 1 << 24, &x.shared_ffn, path,
				  err);
	for (int i = 0; i < m->n_layers && !st; i++)
		m->layer[i] = x;
	if (!st && x.rotary_dim < x.head_dim)
		m->rope.share = (double)x.rotary_dim / x.head_dim;
	return st;
}

extern const struct arch arch_minimax_m2;
const struct arch arch_minimax_m2 = {
	.name = "minimax_m2",
	.hf_names = hf_names,
	.read = minimax_m2_read,
};
