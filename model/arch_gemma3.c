/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 3, the language model: five layers with a window, then a full one, and a RoPE for each
 * kind.  Source of the defaults: Hugging Face Transformers 4.57, Gemma3TextConfig. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>

#include "model/weights.h"

static const char *const hf_names[] = { "gemma3_text", "Gemma3ForCausalLM", "gemma3",
					"Gemma3ForConditionalGeneration", NULL };

static const struct config_default defaults[] = {
	{ "head_dim", 256 },
	{ "max_position_embeddings", 131072 },
	{ "num_attention_heads", 8 },
	{ "num_key_value_heads", 4 },
	{ "query_pre_attn_scalar", 256 },
	{ "rope_local_base_freq", 1e4 },
	{ "rope_theta", 1e6 },
	{ "sliding_window_pattern", 6 },
	{ "vocab_size", 262208 },
	{ NULL, 0 },
};

static enum ar_status gemma3_read(struct model *m, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	double scalar, theta;
	enum ar_status st = config_real(config, "query_pre_attn_scalar", 0, &scalar, path, err);

	if (!st)
		st = config_real(config, "rope_local_base_freq", 0, &theta, path, err);
	if (st)
		return st;
	if (!(m->rope_window.theta > 0))
		m->rope_window.theta = theta;
	for (int i = 0; i < m->n_layers; i++)
		m->layer[i].score_scale = 1 / sqrt(scalar);
	m->embed_scale = sqrt(m->hidden);
	m->norm_plus_one = 1;
	m->tied = m->tied || !config_has(config, "tie_word_embeddings");
	return AR_OK;
}

extern const struct arch arch_gemma3;
const struct arch arch_gemma3 = {
	.name = "gemma3",
	.hf_names = hf_names,
	.base = { .qk_norm = 1, .post_norms = 1, .act = ACT_GELU_TANH },
	.defaults = defaults,
	.read = gemma3_read,
	.weights = weights_gemma3,
};
