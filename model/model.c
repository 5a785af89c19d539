/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/binfile.h"
#include "base/data.h"
#include "base/json.h"
#include "base/jsonval.h"
#include "base/log.h"
#include "base/order.h"
#include "model/quant.h"

enum { CONFIG_MAX = 16 << 20 }; /* bytes; real ones have a few thousand, few a million */

static const cJSON *get(const cJSON *config, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(config, key);
}

/* Read the config.  Add the number formats from the file beside it, if there is one. */
static enum ar_status read_text(const char *path, char **out, struct ar_err *err)
{
	struct infile f;
	char *text = NULL;
	enum ar_status st = infile_open(&f, path, err);

	*out = NULL;
	if (st)
		return st;
	if (f.size > CONFIG_MAX)
		st = ar_fail(err, AR_DATA, "%s: too large for a config.json", path);
	else if (!(text = calloc(1, (size_t)f.size + 1)))
		st = ar_nomem(err);
	else
		st = infile_read(&f, 0, text, (size_t)f.size, err);
	infile_release(&f);
	if (!st)
		st = quant_beside(&text, path, err);
	if (st)
		free(text);
	else
		*out = text;
	return st;
}

/* Name the model after its file without suffix; a config.json after its folder. */
static void name_model(struct model *m, const char *path)
{
	const char *end = path + strlen(path), *base;
	static const char config[] = "/config.json";
	const size_t n = sizeof config - 1;

	if ((size_t)(end - path) > n && !strcmp(end - n, config))
		end -= n;
	else if (end - path > 5 && !strcmp(end - 5, ".json"))
		end -= 5;
	for (base = end; base > path && base[-1] != '/'; base--)
		;
	snprintf(m->name, sizeof m->name, "%.*s", (int)(end - base), base);
}

/* Refuse a key that o has twice: readers would disagree on its value. */
static enum ar_status check_unique(const cJSON *o, const char *path, struct ar_err *err)
{
	const size_t n = (size_t)cJSON_GetArraySize(o);
	const char **name = malloc((n + 1) * sizeof *name);
	enum ar_status st = AR_OK;
	const cJSON *v;
	size_t i = 0;

	if (!name)
		return ar_nomem(err);
	cJSON_ArrayForEach(v, o)
		name[i++] = v->string;
	qsort(name, n, sizeof *name, order_text);
	for (i = 1; i < n && !st; i++)
		if (!strcmp(name[i - 1], name[i]))
			st = ar_fail(err, AR_DATA, "%s: key '%.64s' appears twice", path, name[i]);
	free(name);
	return st;
}

/* The types of keys that no reader below checks by itself.  element: of arrays. */
static const struct {
	const char *key;
	int type, element;
	const char *want;
} key_types[] = {
	{ "architectures", cJSON_Array, cJSON_String, "an array of strings" },
	{ "as_model", cJSON_String, 0, "a string" },
	{ "attention_bias", cJSON_True | cJSON_False, 0, "true or false" },
	{ "attn_logit_softcapping", cJSON_Number, 0, "a number" },
	{ "decoder_sparse_step", cJSON_Number, 0, "a number" },
	{ "hidden_act", cJSON_String, 0, "a string" },
	{ "hidden_activation", cJSON_String, 0, "a string" },
	{ "kv_lora_rank", cJSON_Number, 0, "a number" },
	{ "hybrid_override_pattern", cJSON_String, 0, "a string" },
	{ "layer_types", cJSON_Array, cJSON_String, "an array of strings" },
	{ "layers_block_type", cJSON_Array, cJSON_String, "an array of strings" },
	{ "mamba_ssm_cache_dtype", cJSON_String, 0, "a string" },
	{ "mlp_bias", cJSON_True | cJSON_False, 0, "true or false" },
	{ "mamba_ssm_dtype", cJSON_String, 0, "a string" },
	{ "mlp_hidden_act", cJSON_String, 0, "a string" },
	{ "mlp_only_layers", cJSON_Array, cJSON_Number, "an array of numbers" },
	{ "model_type", cJSON_String, 0, "a string" },
	{ "position_embedding_type", cJSON_String, 0, "a string" },
	{ "rope_parameters", cJSON_Object, 0, "an object" },
	{ "rope_scaling", cJSON_Object, 0, "an object" },
	{ "sliding_window", cJSON_Number, 0, "a number" },
	{ "text_config", cJSON_Object, 0, "an object" },
	{ "time_step_limit", cJSON_Array, -1, "an array of two numbers" },
	{ "tie_word_embeddings", cJSON_True | cJSON_False, 0, "true or false" },
	{ "use_sliding_window", cJSON_True | cJSON_False, 0, "true or false" },
};

static enum ar_status check_keys(const cJSON *config, const char *path, struct ar_err *err)
{
	enum ar_status st = check_unique(config, path, err);

	for (size_t i = 0; i < sizeof key_types / sizeof *key_types && !st; i++) {
		const cJSON *v = get(config, key_types[i].key), *e;
		bool good = !v || v->type & (key_types[i].type | cJSON_NULL);

		if (v && cJSON_IsArray(v))
			cJSON_ArrayForEach(e, v)
				good = good && e->type & key_types[i].element;
		if (!good)
			st = ar_fail(err, AR_DATA, "%s: want %s as '%s'", path, key_types[i].want,
				     key_types[i].key);
		else if (v && cJSON_IsObject(v))
			st = check_unique(v, path, err);
	}
	return st;
}

/* Give config the keys that it leaves out. */
static bool fill_defaults(cJSON *config, const struct config_default *d)
{
	bool done = true;

	for (; done && d && d->key; d++)
		if (!config_has(config, d->key)) {
			cJSON_DeleteItemFromObjectCaseSensitive(config, d->key);
			done = json_add(config, d->key, cJSON_CreateNumber(d->value));
			config_get(config, d->key);
		}
	return done;
}

/* Read config.  A multimodal model keeps the keys of its language model in text_config. */
static enum ar_status read_config(struct model *m, cJSON *config, const char *path,
				  struct ar_err *err)
{
	enum ar_status st = check_keys(config, path, err);
	const struct arch *a;
	cJSON *text = config;

	if (!st && config_has(config, "text_config")) {
		text = cJSON_GetObjectItemCaseSensitive(config, "text_config");
		st = check_keys(text, path, err);
	}
	if (st)
		return st;
	st = arch_find(&a, config, path, err);
	if (st)
		return st;
	m->unnamed = !arch_is_named(config);
	if (!fill_defaults(text, a->defaults))
		return ar_nomem(err);
	st = config_decoder(m, a, text, path, err);
	if (!st && a->read)
		st = a->read(m, text, path, err);
	if (!st && text != config && config_has(config, "tie_word_embeddings") &&
	    !config_has(text, "tie_word_embeddings"))
		m->tied = config_true(config, "tie_word_embeddings");
	if (!st)
		st = config_check_read(text, path, err);
	if (!st && text != config)
		config_unread(config, m->unread, sizeof m->unread);
	if (!st)
		config_unread(text, m->unread, sizeof m->unread);
	return st;
}

/* Read json.  path: for messages. */
static enum ar_status read_json(struct model *m, const char *path, const char *json,
				struct ar_err *err)
{
	struct model x = { .tp = 1, .json = json_quote_literals(json) };
	cJSON *config = NULL;
	enum ar_status st = x.json ? json_parse_file(&config, x.json, path, err) : ar_nomem(err);

	if (!st && !cJSON_IsObject(config))
		st = ar_fail(err, AR_DATA, "%s: not a JSON object", path);
	else if (!st)
		st = read_config(&x, config, path, err);
	if (!st)
		name_model(&x, path);
	cJSON_Delete(config);
	if (st)
		model_release(&x);
	else
		*m = x;
	return st;
}

/* Write the key as_model into a config, so that whoever reads the text again reads it alike.  The
 * name is one of archs[], which needs no escape. */
static enum ar_status add_type(char **json, const char *as, struct ar_err *err)
{
	const char *rest = *json + strspn(*json, " \t\r\n");
	const bool object = *rest == '{',
		   empty = object && rest[1 + strspn(rest + 1, " \t\r\n")] == '}';
	size_t n = strlen(rest) + strlen(as) + sizeof "{\"as_model\":\"\",";
	char *text = malloc(n);

	if (!text)
		return ar_nomem(err);
	if (object)
		snprintf(text, n, "{\"as_model\":\"%s\"%s%s", as, empty ? "" : ",", rest + 1);
	else
		strcpy(text, rest);
	free(*json);
	*json = text;
	return AR_OK;
}

static enum ar_status load_file(struct model *m, const char *path, const char *as,
				struct ar_err *err)
{
	char *json;
	enum ar_status st = read_text(path, &json, err);

	if (!st && as)
		st = add_type(&json, as, err);
	if (!st)
		st = read_json(m, path, json, err);
	free(json);
	return st;
}

enum ar_status model_parse(struct model *m, const char *name, const char *json, struct ar_err *err)
{
	*m = (struct model){ 0 };
	return read_json(m, name, json, err);
}

/* Find the config of name_or_path: an existing file, config.json in an existing folder, else a
 * preset of that name. */
static bool find_config(const char *name_or_path, char *path, size_t n)
{
	size_t len = strlen(name_or_path);
	char preset[64 + sizeof "model/presets/.json"];
	struct stat s;
	int got;

	if (!stat(name_or_path, &s)) {
		while (len > 1 && name_or_path[len - 1] == '/')
			len--;
		got = snprintf(path, n, "%.*s%s", (int)len, name_or_path,
			       S_ISDIR(s.st_mode) ? "/config.json" : "");
		return got > 0 && (size_t)got < n;
	}
	got = snprintf(preset, sizeof preset, "model/presets/%s.json", name_or_path);
	return got > 0 && (size_t)got < sizeof preset && !strchr(name_or_path, '/') &&
	       data_find(preset, path, n);
}

enum ar_status model_load(struct model *m, const char *name_or_path, struct ar_err *err)
{
	return model_load_as(m, name_or_path, NULL, err);
}

static enum ar_status refuse_name(const char *name, struct ar_err *err)
{
	return ar_fail(err, AR_DATA,
		       "%s: no such file and no preset of this name; give a config.json, a folder "
		       "with one, or a preset such as llama-3.1-8b",
		       name);
}

enum ar_status model_read_text(char **text, const char *name_or_path, struct ar_err *err)
{
	char path[PATH_MAX];

	*text = NULL;
	return find_config(name_or_path, path, sizeof path) ? read_text(path, text, err) :
							      refuse_name(name_or_path, err);
}

enum ar_status model_load_as(struct model *m, const char *name_or_path, const char *as,
			     struct ar_err *err)
{
	char path[PATH_MAX];

	*m = (struct model){ 0 };
	if (!find_config(name_or_path, path, sizeof path))
		return refuse_name(name_or_path, err);
	if (as && !arch_named(as))
		return ar_fail(err, AR_USAGE,
			       "as-model '%s': not a type of models that is known, such as llama",
			       as);
	return load_file(m, path, as, err);
}

void model_warn(const struct model *m)
{
	if (m->unnamed)
		log_warn("model %s: config.json has no model_type and is read as that of a Llama; "
			 "--as-model llama confirms it",
			 m->name);
	if (*m->unread)
		log_warn("model %s: keys of config.json that were not read: %s; if they change "
			 "layers, another model runs",
			 m->name, m->unread);
}

void model_release(struct model *m)
{
	free(m->layer);
	free(m->json);
	*m = (struct model){ 0 };
}
