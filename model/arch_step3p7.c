/* SPDX-License-Identifier: Apache-2.0 */
/* Step-3.7: windows and full layers; dense layers, then experts with a shared one.  Source: vLLM
 * 0.33.0, models/step3p5.py, which also has the norms that the published config does not state. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <stddef.h>
#include <string.h>

static const char *const hf_names[] = { "step3p7", "Step3p7FlashForCausalLM", NULL };

enum { LAYERS_MAX = 4094 };

static enum ar_status step3p7_read(struct model *m, const cJSON *config, const char *path,
				   struct ar_err *err)
{
	const cJSON *scoring = config_get(config, "scoring_func");
	struct router r = { .bias = config_true(config, "use_moe_router_bias") };
	int dense, shared, n, ffn = 0;
	enum ar_status st = config_count(config, "first_k_dense_replace", LAYERS_MAX, &dense, path,
					 err);

	if (cJSON_IsString(scoring) && !strcmp(scoring->valuestring, "sigmoid"))
		r.scoring = ROUTER_SIGMOID;
	if (!st)
		st = config_count(config, "n_shared_experts", 64, &n, path, err);
	if (!st)
		st = config_count(config, "share_expert_dim", 1 << 24, &shared, path, err);
	if (!st)
		st = config_real(config, "moe_router_scaling_factor", 1, &r.scaling, path, err);
	if (!st)
		st = config_int(config, "intermediate_size", 1 << 24, 0, &ffn, path, err);
	for (int i = 0; i < m->n_layers && !st; i++) {
		struct layer_spec *l = &m->layer[i];

		if (i < dense) {
			layer_make_dense(l, ffn);
		} else if (l->n_experts) {
			l->shared_ffn = n * shared;
			l->router = r;
		}
	}
	m->norm_plus_one = 1;
	return st;
}

extern const struct arch arch_step3p7;
const struct arch arch_step3p7 = {
	.name = "step3p7",
	.hf_names = hf_names,
	.base = { .qk_norm = 1 },
	.read = step3p7_read,
};
