/* SPDX-License-Identifier: Apache-2.0 */
/* gpt-oss: a layer with a window, then a full one; sinks; a bias in every product.  Source of the
 * default: Hugging Face Transformers 4.57, GptOssConfig. */
#include "config.h"
#include "model/arch.h"

#include <stddef.h>

static const char *const hf_names[] = { "gpt_oss", "GptOssForCausalLM", NULL };

static const struct config_default defaults[] = {
	{ "sliding_window_pattern", 2 },
	{ NULL, 0 },
};

/* The only bound of the activation that kernels know. */
static enum ar_status gpt_oss_read(struct model *m, const struct cJSON *config, const char *path,
				   struct ar_err *err)
{
	double limit;
	enum ar_status st = config_real(config, "swiglu_limit", 7, &limit, path, err);

	(void)m;
	if (!st && limit != 7)
		st = ar_fail(err, AR_DATA, "%s: swiglu_limit %g is not known; known is 7", path,
			     limit);
	return st;
}

extern const struct arch arch_gpt_oss;
const struct arch arch_gpt_oss = {
	.name = "gpt_oss",
	.hf_names = hf_names,
	.base = { .qkv_bias = 1, .o_bias = 1, .mlp_bias = 1, .sinks = 1, .act = ACT_SWIGLU_CLAMP },
	.defaults = defaults,
	.read = gpt_oss_read,
};
