/* SPDX-License-Identifier: Apache-2.0 */
/* Gemma 4: windows, and full layers with larger and fewer heads whose keys are values as well; a
 * dense MLP, or one beside experts.  Source: vLLM 0.33.0, models/gemma4.py. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>

#include "model/rope.h"

static const char *const hf_names[] = { "gemma4", "gemma4_text", "Gemma4ForCausalLM",
					"Gemma4ForConditionalGeneration", NULL };

enum { HEADS_MAX = 1 << 12 };

static enum ar_status gemma4_read(struct model *m, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	const int same = config_true(config, "attention_k_eq_v");
	const bool moe = config_true(config, "enable_moe_block") || m->layer->n_experts;
	struct layer_spec full = *m->layer;
	int beside = 0;
	enum ar_status st = config_int(config, "global_head_dim", HEADS_MAX, full.head_dim,
				       &full.head_dim, path, err);

	if (!st)
		st = config_int(config, "num_global_key_value_heads", full.q_heads, full.kv_heads,
				&full.kv_heads, path, err);
	if (!st && full.q_heads % full.kv_heads)
		st = ar_fail(err, AR_DATA,
			     "%s: num_global_key_value_heads %d does not divide "
			     "num_attention_heads %d",
			     path, full.kv_heads, full.q_heads);
	if (!st)
		st = rope_check_dim(&m->rope, full.head_dim, path, err);
	if (!st)
		st = rope_check_dim(&m->rope_window, full.head_dim, path, err);
	if (!st && moe)
		st = config_int(config, "intermediate_size", 1 << 24, 0, &beside, path, err);
	for (int i = 0; i < m->n_layers && !st; i++) {
		struct layer_spec *l = &m->layer[i];
		bool near = l->mixer == MIX_WINDOW;

		l->score_scale = 1;
		l->shared_ffn = beside;
		l->expert_norms = moe;
		l->rotary_dim = rope_dim(near ? &m->rope_window : &m->rope, l->head_dim);
		if (near)
			continue;
		l->head_dim = full.head_dim;
		l->kv_heads = full.kv_heads;
		l->k_is_v = same;
		l->rotary_dim = rope_dim(&m->rope, full.head_dim);
	}
	m->embed_scale = sqrt(m->hidden);
	m->tied = m->tied || !config_has(config, "tie_word_embeddings");
	return st;
}

extern const struct arch arch_gemma4;
const struct arch arch_gemma4 = {
	.name = "gemma4",
	.hf_names = hf_names,
	.base = { .qk_norm = 1, .post_norms = 1, .act = ACT_GELU_TANH },
	.read = gemma4_read,
};
