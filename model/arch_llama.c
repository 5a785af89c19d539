/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 2 and 3, models that differ from them in the names of tensors only, and configs without a
 * type.  Source of the names: vLLM 0.16.0, model_executor/models/registry.py. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

#include "model/weights.h"

static const char *const hf_names[] = { "llama",     "LlamaForCausalLM",
					"internlm3", "InternLM3ForCausalLM",
					"phi3",	     "Phi3ForCausalLM",
					NULL };

extern const struct arch arch_llama;
const struct arch arch_llama = {
	.name = "llama",
	.hf_names = hf_names,
	.weights = weights_llama,
};
