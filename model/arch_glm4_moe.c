/* SPDX-License-Identifier: Apache-2.0 */
/* GLM-4.5 to 4.7: dense layers, then experts with a shared one; half of a head rotates.  Sources:
 * Hugging Face Transformers 4.57, Glm4MoeConfig; vLLM 0.33.0, models/glm4_moe.py. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

static const char *const hf_names[] = { "glm4_moe", "Glm4MoeForCausalLM", NULL };

static const struct config_default defaults[] = {
	{ "partial_rotary_factor", 0.5 },
	{ NULL, 0 },
};

static enum ar_status glm4_moe_read(struct model *m, const struct cJSON *config, const char *path,
				    struct ar_err *err)
{
	const int norm = config_true(config, "use_qk_norm");

	for (int i = 0; i < m->n_layers; i++) {
		m->layer[i].qk_norm = norm;
		m->layer[i].o_bias = 0; /* attention_bias is not of the output */
	}
	return config_moe(m, config, path, err);
}

extern const struct arch arch_glm4_moe;
const struct arch arch_glm4_moe = {
	.name = "glm4_moe",
	.hf_names = hf_names,
	.base = { .router = { .scoring = ROUTER_SIGMOID, .bias = 1 } },
	.defaults = defaults,
	.read = glm4_moe_read,
};
