/* SPDX-License-Identifier: Apache-2.0 */
/* Granite 4: state-space mixers and attention, each before experts and a shared expert, or before
 * an MLP.  Source: Hugging Face Transformers 4.57, GraniteMoeHybridConfig. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/jsonval.h"

static const char *const hf_names[] = { "granitemoehybrid", "GraniteMoeHybridForCausalLM", NULL };
static const char *const kinds[MIXERS] = { [MIX_FULL] = "attention", [MIX_SSM] = "mamba" };

static const struct ssm_keys keys = {
	"mamba_n_heads", "mamba_d_head",     "mamba_n_groups",	"mamba_d_state",
	"mamba_d_conv",	 "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias",
};

static enum ar_status granite_hybrid_read(struct model *m, const cJSON *config, const char *path,
					  struct ar_err *err)
{
	const cJSON *rope = config_get(config, "position_embedding_type");
	bool turns = cJSON_IsString(rope) && !strcmp(rope->valuestring, "rope");
	struct ssm_spec s;
	double scale = 1;
	int shared = 0;
	enum ar_status st = config_ssm(&s, &keys, config, path, err);

	if (!st)
		st = config_real(config, "attention_multiplier", 1, &scale, path, err);
	if (!st)
		st = config_real(config, "embedding_multiplier", 1, &m->embed_scale, path, err);
	if (!st)
		st = config_int(config, "shared_intermediate_size", 1 << 24, 0, &shared, path, err);
	for (int i = 0; i < m->n_layers && !st; i++) {
		struct layer_spec *l = &m->layer[i];

		l->score_scale = scale;
		l->rotary_dim = turns ? l->rotary_dim : 0;
		if (l->n_experts)
			l->shared_ffn = shared;
		else
			l->ffn = shared;
		if (l->mixer == MIX_SSM)
			layer_take_ssm(l, &s);
	}
	return st;
}

extern const struct arch arch_granite_hybrid;
const struct arch arch_granite_hybrid = {
	.name = "granite_hybrid",
	.hf_names = hf_names,
	.kinds = kinds,
	.read = granite_hybrid_read,
};
