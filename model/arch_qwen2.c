/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 and Qwen2.5, dense and with experts, and MiMo 7B: a bias of Q, K and V. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

#include "model/weights.h"

static const char *const hf_names[] = { "qwen2",     "Qwen2ForCausalLM",
					"qwen2_moe", "Qwen2MoeForCausalLM",
					"mimo",	     "MiMoForCausalLM",
					NULL };

/* attention_bias, which MiMo has, is not of the output. */
static enum ar_status qwen2_read(struct model *m, const struct cJSON *config, const char *path,
				 struct ar_err *err)
{
	(void)config, (void)path, (void)err;
	for (int i = 0; i < m->n_layers; i++)
		m->layer[i].o_bias = 0;
	return AR_OK;
}

extern const struct arch arch_qwen2;
const struct arch arch_qwen2 = {
	.name = "qwen2",
	.hf_names = hf_names,
	.base = { .qkv_bias = 1 },
	.read = qwen2_read,
	.weights = weights_llama,
};
