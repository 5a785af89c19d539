/* SPDX-License-Identifier: Apache-2.0 */
/* Mistral and Mixtral: Llama's layers, some with a window, which any config may state. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

#include "model/weights.h"

static const char *const hf_names[] = { "mistral", "MistralForCausalLM", "mixtral",
					"MixtralForCausalLM", NULL };

extern const struct arch arch_mistral;
const struct arch arch_mistral = {
	.name = "mistral",
	.hf_names = hf_names,
	.weights = weights_llama,
};
