/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <string.h>

#define ARCHS(X) \
	X(llama) \
	X(gemma3) \
	X(gpt_oss) \
	X(mistral) \
	X(qwen2) \
	X(qwen3) \
	X(qwen3_next)

#define X(name) extern const struct arch arch_##name;
ARCHS(X)
#undef X

#define X(name) &arch_##name,
const struct arch *const archs[] = { ARCHS(X) NULL };
#undef X

/* NULL: no row has this name. */
static const struct arch *find_name(const cJSON *name)
{
	if (!cJSON_IsString(name))
		return NULL;
	for (int i = 0; archs[i]; i++)
		for (const char *const *hf = archs[i]->hf_names; *hf; hf++)
			if (!strcmp(*hf, name->valuestring))
				return archs[i];
	return NULL;
}

/* NULL: config names no row. */
static const struct arch *find_arch(const cJSON *config)
{
	const struct arch *a = find_name(cJSON_GetObjectItemCaseSensitive(config, "model_type"));
	const cJSON *names = cJSON_GetObjectItemCaseSensitive(config, "architectures"), *name;

	cJSON_ArrayForEach(name, names)
		a = a ? a : find_name(name);
	return a;
}

const struct arch *arch_find(const cJSON *config)
{
	const struct arch *a = find_arch(cJSON_GetObjectItemCaseSensitive(config, "text_config"));

	a = a ? a : find_arch(config);
	return a ? a : archs[0];
}
