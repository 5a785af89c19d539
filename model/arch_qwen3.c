/* SPDX-License-Identifier: Apache-2.0 */
/* Qwen3 and Qwen3-VL, dense and with experts: Q and K of each head are normed. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

#include "model/weights.h"

static const char *const hf_names[] = { "qwen3",
					"Qwen3ForCausalLM",
					"qwen3_moe",
					"Qwen3MoeForCausalLM",
					"qwen3_vl",
					"qwen3_vl_text",
					"Qwen3VLForConditionalGeneration",
					"qwen3_vl_moe",
					"qwen3_vl_moe_text",
					"Qwen3VLMoeForConditionalGeneration",
					NULL };

extern const struct arch arch_qwen3;
const struct arch arch_qwen3 = {
	.name = "qwen3",
	.hf_names = hf_names,
	.base = { .qk_norm = 1 },
	.weights = weights_llama,
};
