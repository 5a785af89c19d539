/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <string.h>

#define ARCHS(X) \
	X(llama) \
	X(deepseek_v2) \
	X(deepseek_v3) \
	X(deepseek_v32) \
	X(ernie4_5) \
	X(falcon_h1) \
	X(gemma3) \
	X(gemma4) \
	X(glm4_moe) \
	X(glm4_moe_lite) \
	X(glm_moe_dsa) \
	X(gpt_oss) \
	X(granite_hybrid) \
	X(jamba) \
	X(llama4) \
	X(mimo_v2) \
	X(minimax_m2) \
	X(mistral) \
	X(nemotron_h) \
	X(qwen2) \
	X(qwen3) \
	X(qwen3_next) \
	X(step3p7)

#define X(name) extern const struct arch arch_##name;
ARCHS(X)
#undef X

#define X(name) &arch_##name,
const struct arch *const archs[] = { ARCHS(X) NULL };
#undef X

/* Types of models that are known not to be like any row.  names: values of model_type and
 * architectures; ends with NULL. */
static const struct {
	const char *names[4];
	const char *what;
} strange[] = {
	{ { "deepseek_v4", "DeepseekV4ForCausalLM", NULL },
	  "attention over compressed keys (compress_ratios)" },
	{ { "minimax_m3", "MiniMaxM3ForCausalLM", "MiniMaxM3SparseForConditionalGeneration", NULL },
	  "attention that chooses blocks of keys (sparse_attention_config)" },
	{ { "kimi_linear", "KimiLinearForCausalLM", "KimiK3ForConditionalGeneration", NULL },
	  "linear attention with a decay of each channel (linear_attn_config)" },
	{ { "nemotron-nas", "DeciLMForCausalLM", NULL },
	  "layers of their own sizes, some without attention (block_configs)" },
};

const struct arch *arch_named(const char *name)
{
	for (int i = 0; archs[i]; i++) {
		if (!strcmp(archs[i]->name, name))
			return archs[i];
		for (const char *const *hf = archs[i]->hf_names; *hf; hf++)
			if (!strcmp(*hf, name))
				return archs[i];
	}
	return NULL;
}

/* The names of config: model_type, then architectures.  NULL: no name has number i. */
static const char *name_of(const cJSON *config, int i)
{
	const cJSON *type = cJSON_GetObjectItemCaseSensitive(config, "model_type");
	const cJSON *names = cJSON_GetObjectItemCaseSensitive(config, "architectures"), *name;

	if (cJSON_IsString(type) && !i--)
		return type->valuestring;
	cJSON_ArrayForEach(name, names)
		if (cJSON_IsString(name) && !i--)
			return name->valuestring;
	return NULL;
}

bool arch_is_named(const cJSON *config)
{
	return config_has(config, "as_model") || name_of(config, 0) ||
	       name_of(cJSON_GetObjectItemCaseSensitive(config, "text_config"), 0);
}

/* Set *a to the row of the first name that is known.  *first: the first name, if it is NULL. */
static enum ar_status find_names(const struct arch **a, const char **first, const cJSON *config,
				 const char *path, struct ar_err *err)
{
	const char *name;

	for (int i = 0; !*a && (name = name_of(config, i)); i++) {
		*first = *first ? *first : name;
		*a = arch_named(name);
		for (size_t k = 0; k < sizeof strange / sizeof *strange; k++)
			for (const char *const *n = strange[k].names; *n; n++)
				if (!strcmp(*n, name))
					return ar_fail(err, AR_DATA,
						       "%s: models of type '%.64s' have %s, which "
						       "is not known; take another model",
						       path, name, strange[k].what);
	}
	return AR_OK;
}

/* Letters to change, add or take away to make b of a: Levenshtein's distance.  Of both, the first
 * LETTERS count. */
static int distance(const char *a, const char *b)
{
	enum { LETTERS = 64 };
	int row[LETTERS + 1], n = (int)strnlen(b, LETTERS), n_a = (int)strnlen(a, LETTERS);

	for (int k = 0; k <= n; k++)
		row[k] = k;
	for (int i = 0; i < n_a; i++) {
		int before = row[0]++;

		for (int k = 1; k <= n; k++) {
			int change = before + (a[i] != b[k - 1]);
			int other = (row[k] < row[k - 1] ? row[k] : row[k - 1]) + 1;

			before = row[k];
			row[k] = change < other ? change : other;
		}
	}
	return row[n];
}

static const char *nearest(const char *name)
{
	const char *best = archs[0]->hf_names[0];

	for (int i = 0; archs[i]; i++)
		for (const char *const *hf = archs[i]->hf_names; *hf; hf++)
			if (distance(name, *hf) <= distance(name, best))
				best = *hf;
	return best;
}

/* A name of which more than half of the letters differ is not near. */
static enum ar_status refuse(const char *name, const char *path, struct ar_err *err)
{
	const char *best = nearest(name);
	bool near = 2 * distance(name, best) <= (int)strlen(name);

	return ar_fail(err, AR_DATA,
		       "%s: model_type '%.64s' is not known%s%s%s; add --as-model NAME to read the "
		       "keys as those of another type",
		       path, name, near ? "; the nearest name that is known is '" : "",
		       near ? best : "", near ? "'" : "");
}

enum ar_status arch_find(const struct arch **a, const cJSON *config, const char *path,
			 struct ar_err *err)
{
	const cJSON *as = config_get(config, "as_model");
	const char *first = cJSON_IsString(as) ? as->valuestring : NULL;
	enum ar_status st = AR_OK;

	*a = first ? arch_named(first) : NULL;
	if (first)
		return *a ? AR_OK : refuse(first, path, err);
	st = find_names(a, &first, cJSON_GetObjectItemCaseSensitive(config, "text_config"), path,
			err);
	if (!st)
		st = find_names(a, &first, config, path, err);
	if (st || *a)
		return st;
	if (first)
		return refuse(first, path, err);
	*a = archs[0];
	return AR_OK;
}
