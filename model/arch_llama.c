/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3, and the models that no other row names. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

#include "model/weights.h"

static const char *const hf_names[] = { "llama", "LlamaForCausalLM", NULL };

extern const struct arch arch_llama;
const struct arch arch_llama = {
	.name = "llama",
	.hf_names = hf_names,
	.weights = weights_llama,
};
