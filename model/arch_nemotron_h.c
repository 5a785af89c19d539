/* SPDX-License-Identifier: Apache-2.0 */
/* Nemotron-H and Nemotron 3: each layer is a state-space mixer, attention without RoPE, an MLP
 * without a gate, or experts.  Source: vLLM 0.33, model_executor/models/nemotron_h.py. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <string.h>

#include "base/jsonval.h"

static const char *const hf_names[] = { "nemotron_h", "NemotronHForCausalLM", NULL };

static const struct config_default defaults[] = {
	{ "layer_norm_epsilon", 1e-5 },
	{ NULL, 0 },
};

static const struct ssm_keys keys = {
	"mamba_num_heads", "mamba_head_dim", "n_groups",      "ssm_state_size",
	"conv_kernel",	   "chunk_size",     "use_conv_bias", "mamba_proj_bias",
};

/* A kind of layer: its letter in hybrid_override_pattern, and its name in layers_block_type. */
static const struct kind {
	char letter;
	const char *name;
} kinds[] = { { 'M', "mamba" }, { '*', "attention" }, { '-', "mlp" }, { 'E', "moe" } };
enum { KINDS = sizeof kinds / sizeof *kinds };

/* Make the kinds of layers. */
struct makers {
	struct layer_spec of[KINDS];
};

static enum ar_status read_experts(struct layer_spec *l, const cJSON *config, const char *path,
				   struct ar_err *err)
{
	int n_shared = 0;
	enum ar_status st = config_experts(l, config, path, err);

	l->router = (struct router){ .scoring = ROUTER_SIGMOID, .bias = 1 };
	if (!st && config_has(config, "moe_latent_size"))
		st = config_int(config, "moe_latent_size", 1 << 24, 0, &l->expert_hidden, path,
				err);
	if (st || !config_has(config, "n_shared_experts"))
		return st;
	st = config_int(config, "n_shared_experts", 1 << 10, 0, &n_shared, path, err);
	if (!st)
		st = config_int(config, "moe_shared_expert_intermediate_size", 1 << 24, 0,
				&l->shared_ffn, path, err);
	l->shared_ffn *= n_shared;
	return st;
}

static bool is_moe(const cJSON *config)
{
	return config_has(config, "n_routed_experts");
}

/* base: a layer with attention and an MLP. */
static enum ar_status make_kinds(struct makers *to, const struct layer_spec *base,
				 const cJSON *config, const char *path, struct ar_err *err)
{
	const cJSON *dtype = config_get(config, "mamba_ssm_cache_dtype");
	const cJSON *act = config_get(config, "mlp_hidden_act");
	struct layer_spec attention = *base, mlp = *base, *ssm = &to->of[0];
	struct ssm_spec s;
	enum ar_status st = config_ssm(&s, &keys, config, path, err);

	if (!st && act && strcmp(act->valuestring, "relu2") != 0)
		st = ar_fail(err, AR_DATA,
			     "%s: mlp_hidden_act '%.40s' is not known; known is relu2", path,
			     act->valuestring);
	if (st)
		return st;
	if (config_has(config, "attention_head_dim"))
		st = config_int(config, "attention_head_dim", 1 << 12, 0, &attention.head_dim, path,
				err);
	if (st)
		return st;
	s.elem = cJSON_IsString(dtype) && strcmp(dtype->valuestring, "float32") ? 2 : 4;
	attention.rotary_dim = attention.ffn = 0;
	layer_take_ssm(&mlp, &(struct ssm_spec){ 0 });
	mlp.mixer = MIX_NONE;
	*ssm = attention;
	layer_take_ssm(ssm, &s);
	to->of[1] = attention;
	to->of[2] = to->of[3] = mlp;
	return is_moe(config) ? read_experts(&to->of[3], config, path, err) : AR_OK;
}

/* The kind of layer i; KINDS: it is not known. */
static int kind_of(const char *pattern, const cJSON *names, int i)
{
	const cJSON *name = cJSON_GetArrayItem(names, i);
	int k = 0;

	while (k < KINDS && (pattern ? pattern[i] != kinds[k].letter :
				       strcmp(name->valuestring, kinds[k].name) != 0))
		k++;
	return k;
}

static enum ar_status nemotron_h_read(struct model *m, const cJSON *config, const char *path,
				      struct ar_err *err)
{
	const cJSON *letters = config_get(config, "hybrid_override_pattern");
	const cJSON *names = config_get(config, "layers_block_type");
	const char *pattern = cJSON_IsString(letters) ? letters->valuestring : NULL;
	int n = pattern ? (int)strlen(pattern) : cJSON_GetArraySize(names), mixers = 0;
	struct makers make;
	enum ar_status st = make_kinds(&make, m->layer, config, path, err);

	if (!st && n != m->n_layers)
		st = ar_fail(err, AR_DATA,
			     "%s: hybrid_override_pattern or layers_block_type has %d layers, but "
			     "num_hidden_layers is %d",
			     path, n, m->n_layers);
	for (int i = 0; i < m->n_layers && !st; i++) {
		int k = kind_of(pattern, names, i);

		if (k == KINDS || (kinds[k].letter == 'E' && !is_moe(config)))
			st = ar_fail(err, AR_DATA,
				     "%s: the kind of layer %d is not known; known are M (mamba), "
				     "* (attention), - (mlp) and E (moe, with n_routed_experts)",
				     path, i);
		else
			m->layer[i] = make.of[k];
		mixers += !st && m->layer[i].mixer != MIX_NONE;
	}
	if (!st && !mixers)
		st = ar_fail(err, AR_DATA, "%s: no layer has attention or a state", path);
	if (!st && !json_real(config_get(config, "layer_norm_epsilon"), 0, 1, &m->norm_eps))
		st = ar_fail(err, AR_DATA, "%s: want a number from 0 to 1 as 'layer_norm_epsilon'",
			     path);
	return st;
}

extern const struct arch arch_nemotron_h;
const struct arch arch_nemotron_h = {
	.name = "nemotron_h",
	.hf_names = hf_names,
	.base = { .act = ACT_RELU2 },
	.defaults = defaults,
	.read = nemotron_h_read,
};
