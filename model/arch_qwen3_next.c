/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3-Next: three gated DeltaNets, then full attention with a gate; experts and a shared one.
 * Source of the defaults: Hugging Face Transformers 4.57, Qwen3NextConfig. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

static const char *const hf_names[] = { "qwen3_next", "Qwen3NextForCausalLM", NULL };

static const struct config_default defaults[] = {
	{ "full_attention_interval", 4 },
	{ "head_dim", 256 },
	{ "partial_rotary_factor", 0.25 },
	{ NULL, 0 },
};

static enum ar_status read_delta(struct delta_spec *d, const struct cJSON *config, const char *path,
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

/* Leave a linear layer nothing of attention. */
static void make_linear(struct layer_spec *l, const struct delta_spec *d)
{
	l->delta = *d;
	l->q_heads = l->kv_heads = l->head_dim = l->rotary_dim = 0;
	l->qkv_bias = l->o_bias = l->qk_norm = l->out_gate = 0;
}

static enum ar_status qwen3_next_read(struct model *m, const struct cJSON *config, const char *path,
				      struct ar_err *err)
{
	struct delta_spec d;
	enum ar_status st = read_delta(&d, config, path, err);

	for (int i = 0; i < m->n_layers && !st; i++)
		if (m->layer[i].mixer == MIX_LINEAR)
			make_linear(&m->layer[i], &d);
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
