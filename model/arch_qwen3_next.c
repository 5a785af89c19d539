/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Next, Qwen3.5 and 3.6: three gated DeltaNets, then full attention with a gate; experts and
 * a shared one, or a dense MLP.  Sources: Hugging Face Transformers 4.57, Qwen3NextConfig; vLLM
 * 0.33.0, models/qwen3_5.py and models/config.py. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <string.h>

static const char *const hf_names[] = { "qwen3_next",
					"Qwen3NextForCausalLM",
					"qwen3_5",
					"qwen3_5_text",
					"Qwen3_5ForCausalLM",
					"Qwen3_5ForConditionalGeneration",
					"qwen3_5_moe",
					"qwen3_5_moe_text",
					"Qwen3_5MoeForCausalLM",
					"Qwen3_5MoeForConditionalGeneration",
					NULL };

static const struct config_default defaults[] = {
	{ "full_attention_interval", 4 },
	{ "head_dim", 256 },
	{ "partial_rotary_factor", 0.25 },
	{ NULL, 0 },
};

static enum ar_status read_delta(struct delta_spec *d, const cJSON *config, const char *path,
				 struct ar_err *err)
{
	const struct {
		const char *key;
		int *to;
	} ints[] = {
		{ "linear_num_key_heads", &d->k_heads }, { "linear_num_value_heads", &d->v_heads },
		{ "linear_key_head_dim", &d->k_dim },	 { "linear_value_head_dim", &d->v_dim },
		{ "linear_conv_kernel_dim", &d->conv },
	};
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof ints / sizeof *ints && !st; i++)
		st = config_int(config, ints[i].key, 1 << 12, 0, ints[i].to, path, err);
	if (!st && d->v_heads % d->k_heads)
		st = ar_fail(err, AR_DATA,
			     "%s: linear_num_key_heads %d does not divide "
			     "linear_num_value_heads %d",
			     path, d->k_heads, d->v_heads);
	return st;
}

/* The type of the states in the cache, where the config has one; else that of activations. */
static enum ar_status read_state(int *f32, const cJSON *config, const char *path,
				 struct ar_err *err)
{
	const cJSON *v = config_get(config, "mamba_ssm_dtype");
	const char *type = cJSON_IsString(v) ? v->valuestring : "";

	*f32 = !strcmp(type, "float32");
	if (!v || *f32 || !strcmp(type, "bfloat16"))
		return AR_OK;
	return ar_fail(err, AR_DATA, "%s: want float32 or bfloat16 as 'mamba_ssm_dtype'", path);
}

/* Leave a linear layer nothing of attention. */
static void make_linear(struct layer_spec *l, const struct delta_spec *d, int f32)
{
	l->delta = *d;
	l->state_f32 = f32;
	l->q_heads = l->kv_heads = l->head_dim = l->rotary_dim = 0;
	l->qkv_bias = l->o_bias = l->qk_norm = l->out_gate = 0;
}

static enum ar_status qwen3_next_read(struct model *m, const cJSON *config, const char *path,
				      struct ar_err *err)
{
	const bool gate = !config_has(config, "attn_output_gate") ||
			  config_true(config, "attn_output_gate");
	struct delta_spec d;
	int f32 = 0;
	enum ar_status st = read_delta(&d, config, path, err);

	if (!st)
		st = read_state(&f32, config, path, err);
	for (int i = 0; i < m->n_layers && !st; i++)
		if (m->layer[i].mixer == MIX_LINEAR)
			make_linear(&m->layer[i], &d, f32);
		else
			m->layer[i].out_gate = gate;
	m->norm_plus_one = 1;
	return st;
}

extern const struct arch arch_qwen3_next;
const struct arch arch_qwen3_next = {
	.name = "qwen3_next",
	.hf_names = hf_names,
	.base = { .qk_norm = 1, .out_gate = 1 },
	.linear = true,
	.defaults = defaults,
	.read = qwen3_next_read,
};
