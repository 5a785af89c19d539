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
#include "model/rope.h"

enum { CONFIG_MAX = 1 << 20 }; /* bytes, as a report reads them; real ones have a few thousand */

static const cJSON *get(const cJSON *config, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(config, key);
}

static enum ar_status bad_key(const char *path, const char *key, struct ar_err *err)
{
	return ar_fail(err, AR_DATA, "%s: want a positive integer as '%s'", path, key);
}

enum ar_status config_int(const cJSON *config, const char *key, int max, int def, int *out,
			  const char *path, struct ar_err *err)
{
	int64_t v = def;

	if ((json_has(config, key) || !def) && !json_int(get(config, key), 1, max, &v))
		return bad_key(path, key, err);
	*out = (int)v;
	return AR_OK;
}

/* Only full attention can be replayed: every head of every layer. */
static enum ar_status check_attention(const cJSON *config, const char *path, struct ar_err *err)
{
	const cJSON *types = get(config, "layer_types"), *type;
	bool sliding = cJSON_IsTrue(get(config, "use_sliding_window")) ||
		       (!json_has(config, "use_sliding_window") && !types &&
			json_has(config, "sliding_window"));

	if (json_has(config, "kv_lora_rank"))
		return ar_fail(err, AR_DATA,
			       "%s: latent attention (kv_lora_rank) has no K and V "
			       "per head; use a model with grouped heads",
			       path);
	cJSON_ArrayForEach(type, types) {
		const char *name = cJSON_IsString(type) ? type->valuestring : "?";

		if (!strcmp(name, "sliding_attention"))
			sliding = true;
		else if (strcmp(name, "full_attention") != 0)
			return ar_fail(err, AR_DATA,
				       "%s: layer type '%.40s' is not known; known are "
				       "full_attention and sliding_attention",
				       path, name);
	}
	if (sliding)
		log_warn("%s: layers with a sliding window are replayed with full attention", path);
	return AR_OK;
}

enum ar_status config_mlp(struct layer_spec *l, const cJSON *config, const char *path,
			  struct ar_err *err)
{
	const char *experts = json_has(config, "num_local_experts") ? "num_local_experts" :
								      "num_experts";
	int64_t step = 1;
	enum ar_status st = config_int(config, "intermediate_size", 1 << 24, 0, &l->ffn, path, err);

	if (st || !json_has(config, experts))
		return st;
	if ((json_has(config, "decoder_sparse_step") &&
	     (!json_int(get(config, "decoder_sparse_step"), 1, INT_MAX, &step) || step != 1)) ||
	    cJSON_GetArraySize(get(config, "mlp_only_layers")) > 0)
		return ar_fail(err, AR_DATA, "%s: a mix of dense and expert layers is not known",
			       path);
	st = config_int(config, experts, 1 << 16, 0, &l->n_experts, path, err);
	if (!st)
		st = config_int(config, "num_experts_per_tok", l->n_experts, 0, &l->experts_per_tok,
				path, err);
	if (!st)
		st = config_int(config, "moe_intermediate_size", 1 << 24, l->ffn, &l->ffn, path,
				err);
	return st;
}

enum ar_status config_heads(struct layer_spec *l, int hidden, const cJSON *config, const char *path,
			    struct ar_err *err)
{
	enum ar_status st = config_int(config, "num_attention_heads", 1 << 12, 0, &l->q_heads, path,
				       err);

	if (!st)
		st = config_int(config, "num_key_value_heads", 1 << 12, l->q_heads, &l->kv_heads,
				path, err);
	if (st)
		return st;
	if (l->q_heads % l->kv_heads)
		return ar_fail(err, AR_DATA,
			       "%s: num_key_value_heads %d does not divide "
			       "num_attention_heads %d",
			       path, l->kv_heads, l->q_heads);
	if (!json_has(config, "head_dim") && hidden % l->q_heads)
		return ar_fail(err, AR_DATA,
			       "%s: no 'head_dim', and num_attention_heads %d does "
			       "not divide hidden_size %d",
			       path, l->q_heads, hidden);
	st = config_int(config, "head_dim", 1 << 12, hidden / l->q_heads, &l->head_dim, path, err);
	if (!st && l->head_dim % 2)
		st = ar_fail(err, AR_DATA, "%s: head_dim %d is odd", path, l->head_dim);
	return st;
}

/* Read the share of each head that is rotated. */
static enum ar_status read_share(const cJSON *o, double *share, const char *path,
				 struct ar_err *err)
{
	static const char key[] = "partial_rotary_factor";

	return !json_has(o, key) || json_real(get(o, key), 1e-3, 1, share) ?
		       AR_OK :
		       ar_fail(err, AR_DATA, "%s: want a number from 0.001 to 1 as '%s'", path,
			       key);
}

/* A capture after RoPE replays without angles.  So an embedding whose angles are not known is only
 * noted, for those who need them. */
static enum ar_status read_rope(struct model *m, const cJSON *config, const char *path,
				struct ar_err *err)
{
	const char *key = json_has(config, "rope_parameters") ? "rope_parameters" : "rope_scaling";
	const cJSON *scaling = get(config, key);
	const char *type = rope_type_unknown(scaling);
	double theta = 10000; /* the default of the model class */
	double share = 1;
	enum ar_status st = read_share(config, &share, path, err);

	if (!st)
		st = read_share(scaling, &share, path, err);
	if (st)
		return st;
	if (json_has(config, "rope_theta") &&
	    !json_real(get(config, "rope_theta"), 1, 1e12, &theta))
		return ar_fail(err, AR_DATA, "%s: want a number from 1 to 1e12 as 'rope_theta'",
			       path);
	if (type)
		snprintf(m->rope_unknown, sizeof m->rope_unknown, "rope type '%s'", type);
	else if (share < 1)
		snprintf(m->rope_unknown, sizeof m->rope_unknown, "partial rotary embeddings");
	return *m->rope_unknown ? AR_OK : rope_parse(&m->rope, theta, scaling, path, err);
}

enum ar_status config_outside(struct model *m, const cJSON *config, const char *path,
			      struct ar_err *err)
{
	int max_len;
	enum ar_status st = config_int(config, "vocab_size", 1 << 28, 0, &m->vocab, path, err);

	if (!st)
		st = config_int(config, "max_position_embeddings", INT_MAX, INT_MAX, &max_len, path,
				err);
	if (!st)
		st = read_rope(m, config, path, err);
	if (!st)
		m->max_len = max_len;
	return st;
}

enum ar_status config_decoder(struct model *m, const cJSON *config, const char *path,
			      struct ar_err *err)
{
	struct layer_spec l = { .mixer = MIX_FULL };
	int n_layers;
	enum ar_status st = check_attention(config, path, err);

	if (!st)
		st = config_int(config, "num_hidden_layers", 4094, 0, &n_layers, path, err);
	if (!st)
		st = config_int(config, "hidden_size", 1 << 24, 0, &m->hidden, path, err);
	if (!st)
		st = config_heads(&l, m->hidden, config, path, err);
	if (!st)
		st = config_mlp(&l, config, path, err);
	if (!st)
		st = config_outside(m, config, path, err);
	return st ? st : model_set_layers(m, n_layers, &l, err);
}

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

static int by_name(const void *a, const void *b)
{
	return strcmp(*(const char *const *)a, *(const char *const *)b);
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
	qsort(name, n, sizeof *name, by_name);
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
	{ "decoder_sparse_step", cJSON_Number, 0, "a number" },
	{ "kv_lora_rank", cJSON_Number, 0, "a number" },
	{ "layer_types", cJSON_Array, cJSON_String, "an array of strings" },
	{ "mlp_only_layers", cJSON_Array, cJSON_Number, "an array of numbers" },
	{ "model_type", cJSON_String, 0, "a string" },
	{ "rope_parameters", cJSON_Object, 0, "an object" },
	{ "rope_scaling", cJSON_Object, 0, "an object" },
	{ "sliding_window", cJSON_Number, 0, "a number" },
	{ "text_config", cJSON_Object, 0, "an object" },
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

/* Read config.  A multimodal model keeps the keys of its language model in text_config. */
static enum ar_status read_config(struct model *m, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	enum ar_status st = check_keys(config, path, err);

	if (!st && json_has(config, "text_config")) {
		config = get(config, "text_config");
		st = check_keys(config, path, err);
	}
	return st ? st : arch_find(config)->read(m, config, path, err);
}

/* Read json, which m owns from now on.  path: for messages. */
static enum ar_status read_json(struct model *m, const char *path, char *json, struct ar_err *err)
{
	struct model x = { .tp = 1, .json = json };
	cJSON *config;
	enum ar_status st = json_parse_file(&config, x.json, path, err);

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

static enum ar_status load_file(struct model *m, const char *path, struct ar_err *err)
{
	char *json;
	enum ar_status st = read_text(path, &json, err);

	return st ? st : read_json(m, path, json, err);
}

enum ar_status model_parse(struct model *m, const char *name, const char *json, struct ar_err *err)
{
	char *copy = strdup(json);

	*m = (struct model){ 0 };
	return copy ? read_json(m, name, copy, err) : ar_nomem(err);
}

/* Find the config of name_or_path: the path itself if it exists, config.json in it if it is a
 * folder, else a preset of that name. */
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
	char path[PATH_MAX];

	*m = (struct model){ 0 };
	if (!find_config(name_or_path, path, sizeof path))
		return ar_fail(err, AR_DATA,
			       "%s: no such file and no preset of this name; give a "
			       "config.json, a folder with one, or a preset such as llama-3.1-8b",
			       name_or_path);
	return load_file(m, path, err);
}

void model_release(struct model *m)
{
	free(m->layer);
	free(m->json);
	*m = (struct model){ 0 };
}

enum ar_status model_set_layers(struct model *m, int n, const struct layer_spec *spec,
				struct ar_err *err)
{
	m->layer = malloc((size_t)n * sizeof *m->layer);
	if (!m->layer)
		return ar_nomem(err);
	m->n_layers = n;
	for (int i = 0; i < n; i++)
		m->layer[i] = *spec;
	return AR_OK;
}

int model_odd_layer(const struct model *m)
{
	for (int i = 1; i < m->n_layers; i++)
		if (memcmp(&m->layer[i], &m->layer[0], sizeof *m->layer) != 0)
			return i;
	return 0;
}

const struct layer_spec *model_attention(const struct model *m)
{
	for (int i = 0; i < m->n_layers; i++)
		if (m->layer[i].mixer != MIX_LINEAR)
			return &m->layer[i];
	return m->layer;
}

static enum ar_status check_split(const struct model *m, const struct layer_spec *l, int tp,
				  struct ar_err *err)
{
	const struct {
		const char *what;
		int n;
	} part[] = {
		{ "query heads", l->q_heads },
		{ l->n_experts ? "expert FFN width" : "FFN width", l->ffn },
		{ "vocabulary", m->vocab },
	};

	for (size_t i = 0; i < sizeof part / sizeof *part; i++)
		if (part[i].n % tp)
			return ar_fail(err, AR_USAGE,
				       "cannot split model '%s' into %d parts: %s %d "
				       "is no multiple of it; change --tp",
				       m->name, tp, part[i].what, part[i].n);
	if (l->kv_heads % tp && tp % l->kv_heads)
		return ar_fail(err, AR_USAGE,
			       "cannot split model '%s' into %d parts: %d KV heads "
			       "neither divide nor are divided by it; change --tp",
			       m->name, tp, l->kv_heads);
	return AR_OK;
}

static void split_layer(struct layer_spec *l, int tp)
{
	l->q_heads /= tp;
	l->kv_heads = l->kv_heads > tp ? l->kv_heads / tp : 1;
	l->ffn /= tp;
}

enum ar_status model_split(struct model *m, int tp, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (tp < 1 || m->tp != 1)
		return ar_fail(err, AR_USAGE, "cannot split model '%s' into %d parts", m->name, tp);
	for (int i = 0; i < m->n_layers && !st; i++)
		st = check_split(m, &m->layer[i], tp, err);
	if (st)
		return st;
	for (int i = 0; i < m->n_layers; i++)
		split_layer(&m->layer[i], tp);
	m->vocab /= tp;
	m->tp = tp;
	return AR_OK;
}
