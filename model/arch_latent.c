/* SPDX-License-Identifier: Apache-2.0 */
/* Multi-head latent attention, with an indexer in some: DeepSeek-V2 to V3.2, Kimi-K2, GLM-4.7-Flash
 * and GLM-5.  They differ in defaults alone.  Sources of the defaults: Hugging Face Transformers
 * 5.24, DeepseekV2Config, DeepseekV3Config, Glm4MoeLiteConfig and GlmMoeDsaConfig. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonval.h"
#include "model/cache_layout.h"
#include "model/rope.h"

enum { INDEX_DIM = 128 /* of the index cache */ };

/* Keys that other keys decide: they count as read. */
static void skip_keys(const cJSON *config)
{
	static const char *const keys[] = { "head_dim",
					    "index_share_for_mtp_iteration",
					    "index_skip_topk_offset",
					    "index_topk_freq",
					    "index_topk_pattern",
					    "num_experts",
					    "num_key_value_heads",
					    "qk_head_dim" };

	for (size_t i = 0; i < sizeof keys / sizeof *keys; i++)
		config_get(config, keys[i]);
}

static enum ar_status read_sizes(struct layer_spec *l, const cJSON *config, const char *path,
				 struct ar_err *err)
{
	int nope;
	int64_t rope, q_lora = 0;
	enum ar_status st = config_int(config, "num_attention_heads", 1 << 12, 0, &l->q_heads, path,
				       err);

	if (!st)
		st = config_int(config, "kv_lora_rank", 1 << 16, 0, &l->mla.kv_lora, path, err);
	if (!st)
		st = config_int(config, "qk_nope_head_dim", 1 << 12, 0, &nope, path, err);
	if (!st)
		st = config_int(config, "v_head_dim", 1 << 12, 0, &l->v_dim, path, err);
	if (st)
		return st;
	if (!json_int(config_get(config, "qk_rope_head_dim"), 0, 1 << 12, &rope) || rope % 2)
		return ar_fail(err, AR_DATA, "%s: want an even number from 0 to %d as '%s'", path,
			       1 << 12, "qk_rope_head_dim");
	if (config_has(config, "q_lora_rank") &&
	    !json_int(config_get(config, "q_lora_rank"), 0, 1 << 16, &q_lora))
		return ar_fail(err, AR_DATA, "%s: want an integer from 0 to %d, or null, as '%s'",
			       path, 1 << 16, "q_lora_rank");
	l->kv_heads = 1; /* one key for all heads */
	l->head_dim = nope + (int)rope;
	l->rotary_dim = (int)rope;
	l->mla.q_lora = (int)q_lora;
	return AR_OK;
}

/* ---- the indexer ---- */

/* Whether layer i has an indexer of its own: by a list of names, by a pattern of letters, else each
 * freq-th layer from an offset on. */
static enum ar_status owns_index(int i, bool *out, const struct model *m, const cJSON *config,
				 const char *path, struct ar_err *err)
{
	const cJSON *types = config_get(config, "indexer_types");
	const cJSON *pattern = config_get(config, "index_topk_pattern");
	int freq, offset, n;
	enum ar_status st;

	if (cJSON_IsArray(types)) {
		const cJSON *v = cJSON_GetArrayItem(types, i);

		n = cJSON_GetArraySize(types);
		*out = cJSON_IsString(v) && !strcmp(v->valuestring, "full");
		if (n == m->n_layers &&
		    (*out || (cJSON_IsString(v) && !strcmp(v->valuestring, "shared"))))
			return AR_OK;
		return ar_fail(err, AR_DATA,
			       "%s: want full or shared for each of %d layers as '%s'", path,
			       m->n_layers, "indexer_types");
	}
	if (cJSON_IsString(pattern)) {
		const char *s = pattern->valuestring;

		if ((int)strlen(s) != m->n_layers || strspn(s, "FS") != strlen(s))
			return ar_fail(err, AR_DATA,
				       "%s: want F or S for each of %d layers as '%s'", path,
				       m->n_layers, "index_topk_pattern");
		*out = s[i] == 'F';
		return AR_OK;
	}
	st = config_int(config, "index_topk_freq", 1 << 12, 1, &freq, path, err);
	if (!st)
		st = config_int(config, "index_skip_topk_offset", 1 << 12, 2, &offset, path, err);
	if (!st)
		*out = i < offset || (i - offset + 1) % freq == 0;
	return st;
}

static enum ar_status read_indexer(struct index_spec *x, const struct mla_spec *mla,
				   const cJSON *config, const char *path, struct ar_err *err)
{
	enum ar_status st = config_int(config, "index_n_heads", 1 << 12, 0, &x->heads, path, err);

	if (!st)
		st = config_int(config, "index_head_dim", 1 << 12, 0, &x->dim, path, err);
	if (!st)
		st = config_int(config, "index_topk", 1 << 24, 0, &x->topk, path, err);
	if (st)
		return st;
	if (x->dim != INDEX_DIM)
		return ar_fail(err, AR_DATA, "%s: index_head_dim %d: the index cache holds %d",
			       path, x->dim, INDEX_DIM);
	if (!mla->q_lora)
		return ar_fail(err, AR_DATA,
			       "%s: index_n_heads %d without 'q_lora_rank': the indexer reads the "
			       "low-rank Q",
			       path, x->heads);
	if (config_has(config, "index_kpool"))
		return ar_fail(err, AR_DATA,
			       "%s: an indexer with pooled keys (index_kpool) is not known", path);
	x->interleave = config_true(config, "indexer_rope_interleave");
	return AR_OK;
}

/* ---- the model ---- */

enum ar_status config_latent(struct layer_spec *l, const cJSON *config, const char *path,
			     struct ar_err *err)
{
	enum ar_status st = read_sizes(l, config, path, err);

	skip_keys(config);
	if (st)
		return st;
	if (config_true(config, "attention_bias"))
		return ar_fail(err, AR_DATA,
			       "%s: latent attention with biases (attention_bias) is not known",
			       path);
	l->mla.interleave = !config_has(config, "rope_interleave") ||
			    config_true(config, "rope_interleave");
	if (config_has(config, "index_n_heads") || config_has(config, "index_topk"))
		st = read_indexer(&l->index, &l->mla, config, path, err);
	return st;
}

/* Scores are scaled by 1 / sqrt(head_dim); yarn makes the softmax sharper by the square. */
static double score_scale(const struct model *m, const struct layer_spec *l)
{
	const struct rope *r = &m->rope;
	double sharper = r->type == ROPE_YARN && r->mscale_all_dim > 0 ?
				 rope_sharpness(r->factor, r->mscale_all_dim) :
				 1;

	return sharper * sharper / sqrt(l->head_dim);
}

/* The names say no more than that each layer has latent attention. */
static enum ar_status check_types(const cJSON *types, int n_layers, const char *path,
				  struct ar_err *err)
{
	const cJSON *v;

	if (cJSON_IsArray(types) && cJSON_GetArraySize(types) != n_layers)
		return ar_fail(err, AR_DATA,
			       "%s: 'layer_types' has %d entries, but num_hidden_layers is %d",
			       path, cJSON_GetArraySize(types), n_layers);
	cJSON_ArrayForEach(v, types)
		if (strcmp(v->valuestring, "full_attention") != 0 &&
		    strcmp(v->valuestring, "deepseek_sparse_attention") != 0)
			return ar_fail(err, AR_DATA,
				       "%s: layer type '%.40s' is not known; known are "
				       "full_attention and deepseek_sparse_attention",
				       path, v->valuestring);
	return AR_OK;
}

static enum ar_status latent_read(struct model *m, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	enum ar_status st = check_types(config_get(config, "layer_types"), m->n_layers, path, err);

	if (!st)
		st = config_moe(m, config, path, err);
	for (int i = 0; i < m->n_layers && !st; i++) {
		struct layer_spec *l = &m->layer[i];
		bool own = false;

		l->score_scale = score_scale(m, l);
		if (l->index.heads)
			st = owns_index(i, &own, m, config, path, err);
		if (!st && l->index.heads && !i && !own)
			st = ar_fail(err, AR_DATA,
				     "%s: the first layer has no indexer, and no layer before it",
				     path);
		l->index.own = own;
		l->cache = cache_layout_latent(NULL, l->index.heads, own);
	}
	return st;
}

/* ---- the rows ---- */

static const char *const v2_names[] = { "deepseek_v2", "DeepseekV2ForCausalLM", NULL };
static const char *const v3_names[] = { "deepseek_v3", "DeepseekV3ForCausalLM", "kimi_k2", NULL };
static const char *const v32_names[] = { "deepseek_v32", "DeepseekV32ForCausalLM", NULL };
static const char *const lite_names[] = { "glm4_moe_lite", "Glm4MoeLiteForCausalLM", NULL };
static const char *const glm_names[] = { "glm_moe_dsa", "GlmMoeDsaForCausalLM", NULL };

static const struct config_default v3_defaults[] = {
	{ "first_k_dense_replace", 3 },
	{ NULL, 0 },
};
static const struct config_default v32_defaults[] = {
	{ "first_k_dense_replace", 3 },
	{ "index_head_dim", 128 },
	{ "index_n_heads", 64 },
	{ "index_topk", 2048 },
	{ NULL, 0 },
};
static const struct config_default lite_defaults[] = {
	{ "first_k_dense_replace", 1 },
	{ NULL, 0 },
};
static const struct config_default glm_defaults[] = {
	{ "first_k_dense_replace", 3 },
	{ "index_head_dim", 128 },
	{ "index_n_heads", 32 },
	{ "index_topk", 2048 },
	{ NULL, 0 },
};

#define SIGMOID \
	{ \
		.mixer = MIX_LATENT, .router = {.scoring = ROUTER_SIGMOID, .bias = 1 } \
	}

extern const struct arch arch_deepseek_v2, arch_deepseek_v3, arch_deepseek_v32, arch_glm4_moe_lite,
	arch_glm_moe_dsa;

const struct arch arch_deepseek_v2 = {
	.name = "deepseek_v2",
	.hf_names = v2_names,
	.base = { .mixer = MIX_LATENT },
	.read = latent_read,
};
const struct arch arch_deepseek_v3 = {
	.name = "deepseek_v3",
	.hf_names = v3_names,
	.base = SIGMOID,
	.defaults = v3_defaults,
	.read = latent_read,
};
const struct arch arch_deepseek_v32 = {
	.name = "deepseek_v32",
	.hf_names = v32_names,
	.base = SIGMOID,
	.defaults = v32_defaults,
	.read = latent_read,
};
const struct arch arch_glm4_moe_lite = {
	.name = "glm4_moe_lite",
	.hf_names = lite_names,
	.base = SIGMOID,
	.defaults = lite_defaults,
	.read = latent_read,
};
const struct arch arch_glm_moe_dsa = {
	.name = "glm_moe_dsa",
	.hf_names = glm_names,
	.base = SIGMOID,
	.defaults = glm_defaults,
	.read = latent_read,
};
