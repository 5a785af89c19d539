/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen2 and Qwen2.5, dense and with experts: a bias of Q, K and V. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

#include "model/weights.h"

static const char *const hf_names[] = { "qwen2", "Qwen2ForCausalLM", "qwen2_moe",
					"Qwen2MoeForCausalLM", NULL };

extern const struct arch arch_qwen2;
const struct arch arch_qwen2 = {
	.name = "qwen2",
	.hf_names = hf_names,
	.base = { .qkv_bias = 1 },
	.weights = weights_llama,
};
