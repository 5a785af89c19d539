/* SPDX-License-Identifier: Apache-2.0 */
/* Which keys of a config.json were read, and which of the others matter. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <fnmatch.h>
#include <stdio.h>
#include <string.h>

/* A bit of cJSON.type above those that cJSON uses, which its functions do not look at. */
enum { READ = 1 << 20 };

const cJSON *config_get(const cJSON *config, const char *key)
{
	cJSON *v = cJSON_GetObjectItemCaseSensitive(config, key);

	if (v)
		v->type |= READ;
	return v;
}

bool config_has(const cJSON *config, const char *key)
{
	const cJSON *v = config_get(config, key);

	return v && !cJSON_IsNull(v);
}

/* Keys without an effect on a replay.  They are about tokens, training, generation, other towers or
 * layers that predict more tokens, or repeat other keys.  An asterisk at the begin or end of a name
 * stands for any text. */
static const char *const harmless[] = {
	/* files and programs */
	"_*",
	"architectures",
	"as_model",
	"auto_map",
	"dtype",
	"model_type",
	"pretraining_tp",
	"torch_dtype",
	"torchscript",
	"transformers_version",
	"use_bfloat16",
	"use_cache",
	"use_mamba_kernels",
	/* tokens */
	"*_placeholder",
	"*_token_id",
	"*_token_index",
	"begin_suppress_tokens",
	"ignore_index",
	"suppress_tokens",
	"tokenizer_class",
	/* training */
	"*dropout",
	"*initializer*",
	"aux_loss_alpha",
	"id2label",
	"label2id",
	"output_router_logits",
	"problem_type",
	"rescale_prenorm_residual",
	"router_aux_loss_coef",
	"router_jitter_noise",
	"seq_aux",
	"time_step_*",
	/* generation */
	"chunk_size_feed_forward",
	"length_penalty",
	"max_length",
	"min_length",
	"num_beam_groups",
	"num_beams",
	"num_logits_to_keep",
	"num_return_sequences",
	"repetition_penalty",
	"return_dict",
	"temperature",
	"top_k",
	"top_p",
	"typical_p",
	/* other towers */
	"audio_*",
	"image_*",
	"img_*",
	"multimodal_*",
	"process_image_mode",
	"projector_*",
	"use_unified_vision_chunk",
	"video_*",
	"vision_*",
	/* layers that predict further tokens, which engines run on request */
	"mtp_*",
	"num_mtp_modules",
	"num_nextn_predict_layers",
	"use_mtp",
	/* numbers that change no work: of angles, of routes, of the last norm's product */
	"*_rope_interleave",
	"final_logit_softcapping",
	"moe_router_dtype",
	"attention_value_scale",
	"attn_scale",
	"attn_temperature_tuning",
	"floor_scale",
	"output_gate_type",
	"use_bidirectional_attention",
	"norm_topk_prob",
	"rope_interleave",
	"*_multiplier",
	"*_multipliers",
	"logits_scaling",
	"moe_shared_expert_overlap",
	"n_group",
	"norm_eps",
	"routed_scaling_factor",
	"topk_group",
	/* of state-space layers: their heads say the same */
	"expand",
	"mamba_d_ssm",
	"mamba_expand",
	"mamba_hidden_act",
	/* engines divide the model by options of their own */
	"ep_size",
	/* of windows that use_sliding_window turns off, or of other keys that are off */
	"max_window_layers",
	"vocab_size_per_layer_input",
	/* the same as other keys: gpt-oss, MiMo-V2 */
	"attention_chunk_size",
	"experts_per_token",
	"initial_context_length",
	"sliding_window_size",
	/* quant.c reads it, where bytes count */
	"quantization_config",
};

static bool is_harmless(const char *key)
{
	for (size_t i = 0; i < sizeof harmless / sizeof *harmless; i++)
		if (!fnmatch(harmless[i], key, 0))
			return true;
	return false;
}

/* Whether v, of whatever key, turns something on. */
static bool is_on(const cJSON *v)
{
	if (cJSON_IsNumber(v))
		return v->valuedouble != 0;
	if (cJSON_IsString(v))
		return *v->valuestring;
	return cJSON_IsTrue(v) || v->child;
}

/* Keys that change a layer in a way that its reader does not know. */
static const struct {
	const char *key, *what;
} strange[] = {
	{ "attn_logit_softcapping", "scores are capped" },
	{ "block_configs", "layers have sizes of their own" },
	{ "compress_ratios", "attention sees compressed keys" },
	{ "hidden_size_per_layer_input", "layers have inputs of their own" },
	{ "hybrid_override_pattern", "some layers have a state in place of keys" },
	{ "index_topk", "an indexer chooses the keys" },
	{ "kv_lora_rank", "latent attention has no K and V per head" },
	{ "linear_attn_config", "some layers have linear attention" },
	{ "num_kv_shared_layers", "some layers use the KV cache of others" },
	{ "q_lora_rank", "latent attention has no product of Q per head" },
	{ "sparse_attention_config", "attention chooses blocks of keys" },
	{ "ssm_state_size", "some layers have a state in place of keys" },
};

enum ar_status config_check_read(const cJSON *config, const char *path, struct ar_err *err)
{
	for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
		const cJSON *v = cJSON_GetObjectItemCaseSensitive(config, strange[i].key);

		if (v && !(v->type & READ) && is_on(v))
			return ar_fail(err, AR_DATA,
				       "%s: key '%s' says that %s, which is not known of models of "
				       "its type; take another model",
				       path, strange[i].key, strange[i].what);
	}
	return AR_OK;
}

/* Names that have no place are counted. */
void config_unread(const cJSON *config, char *buf, size_t n)
{
	size_t at = strlen(buf);
	const cJSON *v;
	int left = 0;

	cJSON_ArrayForEach(v, config) {
		size_t len = strlen(v->string);

		if (v->type & READ || !is_on(v) || is_harmless(v->string))
			continue;
		if (left || at + len + sizeof ", and 123456 more" > n) {
			left++;
			continue;
		}
		at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? ", " : "", v->string);
	}
	if (left)
		snprintf(buf + at, n - at, "%s%d more", at ? " and " : "", left);
}
