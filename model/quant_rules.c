/* SPDX-License-Identifier: Apache-2.0 */
/* Readers of quantization_config, one for each quant_method. */
#include "config.h"
#include "model/quant_rules.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/jsonval.h"
#include "model/cache_layout.h"

static const char none_helps[] = "--quantization none replays the shape in bf16";

static const cJSON *get(const cJSON *o, const char *key)
{
	return cJSON_GetObjectItemCaseSensitive(o, key);
}

/* The value of the first of two keys that o has; b may be NULL. */
static const cJSON *get_of(const cJSON *o, const char *a, const char *b)
{
	return !b || json_has(o, a) ? get(o, a) : get(o, b);
}

static const char *text_of(const cJSON *o, const char *key, const char *def)
{
	const char *s = cJSON_GetStringValue(get(o, key));

	return s ? s : def;
}

/* A value of key that no reader knows.  It is named as it stands in the file. */
static enum ar_status unknown(const struct quant_rules *r, const cJSON *o, const char *key,
			      const char *want, struct ar_err *err)
{
	char *v = cJSON_PrintUnformatted(get(o, key));
	enum ar_status st = ar_fail(err, AR_DATA,
				    "%s: quantization_config: %s is %.80s; want %s; %s", r->model,
				    key, v ? v : "missing", want, none_helps);

	free(v);
	return st;
}

/* Read a whole number from 1 on as the first of two keys.  -1 is read as 0: all. */
static enum ar_status read_group(const struct quant_rules *r, const cJSON *o, const char *a,
				 const char *b, int def, int *out, struct ar_err *err)
{
	const cJSON *v = get_of(o, a, b);
	int64_t n = def;

	if (v && !cJSON_IsNull(v) && (!json_int(v, -1, 1 << 20, &n) || !n))
		return unknown(r, o, v->string, "a number of inputs, or -1", err);
	*out = n < 0 ? 0 : (int)n;
	return AR_OK;
}

static enum ar_status read_block(const struct quant_rules *r, const cJSON *o, const char *key,
				 struct linear_format *f, struct ar_err *err)
{
	const cJSON *list = get(o, key);

	for (int i = 0; i < 2; i++) {
		int64_t n;

		if (cJSON_GetArraySize(list) != 2 ||
		    !json_int(cJSON_GetArrayItem(list, i), 1, 1 << 20, &n))
			return unknown(r, o, key, "two sizes, such as [128,128]", err);
		f->block[i] = (int)n;
	}
	f->kind = FORMAT_FP8_BLOCK;
	f->rows = ROWS_GROUP;
	return AR_OK;
}

/* ---- the KV cache ---- */

/* Names of ModelOpt, or the scheme of compressed-tensors: 8 bits, float. */
static void read_kv(struct quant_rules *r, const cJSON *o)
{
	const cJSON *v = get_of(o, "kv_cache_scheme", "kv_cache_quant_algo");
	int64_t bits;
	char *text;

	if (!v || cJSON_IsNull(v))
		return;
	if (cJSON_IsString(v) ? !strcasecmp(v->valuestring, "fp8") :
				json_int(get(v, "num_bits"), 8, 8, &bits) &&
					!strcmp(text_of(v, "type", ""), "float")) {
		r->kv = cache_layout_find("kv-e4m3");
		return;
	}
	text = cJSON_PrintUnformatted(v);
	snprintf(r->kv_unknown, sizeof r->kv_unknown, "%s", text ? text : v->string);
	free(text);
}

/* ---- fp8, as vLLM and DeepSeek write it ---- */

/* Read quantized_layers: the algorithm of each module. */
static enum ar_status read_named(struct quant_rules *r, const cJSON *o, struct ar_err *err);

static enum ar_status read_fp8(struct quant_rules *r, const cJSON *o, struct ar_err *err)
{
	const char *scheme = text_of(o, "activation_scheme", "dynamic");
	enum ar_status st;

	if (strcmp(scheme, "static") != 0 && strcmp(scheme, "dynamic") != 0)
		return unknown(r, o, "activation_scheme", "\"static\" or \"dynamic\"", err);
	if (json_has(o, "store_dtype"))
		return unknown(r, o, "store_dtype", "none", err);
	r->base.kind = FORMAT_FP8_TENSOR;
	r->base.rows = strcmp(scheme, "static") ? ROWS_TOKEN : ROWS_TENSOR;
	st = json_has(o, "weight_block_size") ?
		     read_block(r, o, "weight_block_size", &r->base, err) :
		     AR_OK;
	if (!st)
		st = quant_list_init(&r->exclude, QUANT_WHOLE,
				     get_of(o, "ignored_layers", "modules_to_not_convert"), NULL,
				     r->model, err);
	return st || !json_has(o, "quantized_layers") ? st : read_named(r, o, err);
}

/* ---- modelopt ---- */

static const struct algo {
	const char *name;
	struct linear_format format;
} algos[] = {
	{ "FP8", { FORMAT_FP8_TENSOR, ROWS_TENSOR, 0, { 0, 0 }, false } },
	{ "FP8_PER_CHANNEL_PER_TOKEN", { FORMAT_FP8_CHANNEL, ROWS_TOKEN, 0, { 0, 0 }, false } },
	{ "FP8_PB_WO", { FORMAT_FP8_BLOCK, ROWS_GROUP, 0, { 128, 128 }, false } },
	{ "MXFP8", { FORMAT_MXFP8, ROWS_BF16, 32, { 0, 0 }, false } },
	{ "NVFP4", { FORMAT_NVFP4, ROWS_BF16, 16, { 0, 0 }, false } },
	{ "W4A16_NVFP4", { FORMAT_NVFP4, ROWS_BF16, 16, { 0, 0 }, false } },
};

static enum ar_status read_algo(const struct quant_rules *r, const cJSON *o,
				struct linear_format *f, struct ar_err *err)
{
	const char *name = text_of(o, "quant_algo", "");

	for (size_t i = 0; i < sizeof algos / sizeof *algos; i++)
		if (!strcasecmp(algos[i].name, name)) {
			*f = algos[i].format;
			return f->group ? read_group(r, o, "group_size", NULL, f->group, &f->group,
						     err) :
					  AR_OK;
		}
	return unknown(r, o, "quant_algo",
		       "FP8, FP8_PER_CHANNEL_PER_TOKEN, FP8_PB_WO, MXFP8, NVFP4, W4A16_NVFP4 or "
		       "MIXED_PRECISION",
		       err);
}

static int order_named(const void *a, const void *b)
{
	return strcmp(((const struct quant_named *)a)->name, ((const struct quant_named *)b)->name);
}

static enum ar_status read_named(struct quant_rules *r, const cJSON *o, struct ar_err *err)
{
	const cJSON *all = get(o, "quantized_layers"), *v;
	const int n = cJSON_GetArraySize(all);
	enum ar_status st = AR_OK;

	if (!cJSON_IsObject(all) || !n)
		return unknown(r, o, "quantized_layers", "an object of modules", err);
	r->named = calloc((size_t)n, sizeof *r->named);
	if (!r->named)
		return ar_nomem(err);
	cJSON_ArrayForEach(v, all) {
		struct quant_named *to = &r->named[r->n_named++];

		to->name = v->string;
		st = read_algo(r, v, &to->format, err);
		if (st)
			return st;
	}
	qsort(r->named, r->n_named, sizeof *r->named, order_named);
	return AR_OK;
}

static enum ar_status read_modelopt(struct quant_rules *r, const cJSON *o, struct ar_err *err)
{
	const bool mixed = !strcasecmp(text_of(o, "quant_algo", ""), "MIXED_PRECISION");
	enum ar_status st = mixed ? read_named(r, o, err) : read_algo(r, o, &r->base, err);

	r->head = true;
	return st ? st :
		    quant_list_init(&r->exclude, QUANT_WILDCARD,
				    get_of(o, "ignore", "exclude_modules"), NULL, r->model, err);
}

/* ---- compressed-tensors ---- */

static enum ar_status read_int(const struct quant_rules *r, const cJSON *w, struct linear_format *f,
			       struct ar_err *err)
{
	const char *strategy = text_of(w, "strategy", "");
	int64_t bits;

	if (!json_int(get(w, "num_bits"), 4, 4, &bits))
		return unknown(r, w, "num_bits", "4 for integers", err);
	if (strcmp(strategy, "group") != 0 && strcmp(strategy, "channel") != 0)
		return unknown(r, w, "strategy", "\"group\" or \"channel\" for integers", err);
	f->kind = FORMAT_INT4_GROUP;
	f->zero = cJSON_IsFalse(get(w, "symmetric"));
	return read_group(r, w, "group_size", NULL, -1, &f->group, err);
}

static enum ar_status read_float4(const struct quant_rules *r, const cJSON *w,
				  struct linear_format *f, struct ar_err *err)
{
	const char *strategy = text_of(w, "strategy", "");
	const bool nv = !strcmp(strategy, "tensor_group");

	if (!nv && strcmp(strategy, "group") != 0)
		return unknown(r, w, "strategy", "\"group\" or \"tensor_group\" for 4-bit floats",
			       err);
	f->kind = nv ? FORMAT_NVFP4 : FORMAT_MXFP4;
	return read_group(r, w, "group_size", NULL, nv ? 16 : 32, &f->group, err);
}

/* rows: whether input_activations are quantized as well. */
static enum ar_status read_float8(const struct quant_rules *r, const cJSON *w, bool rows,
				  bool dynamic, struct linear_format *f, struct ar_err *err)
{
	const char *strategy = text_of(w, "strategy", "tensor");
	enum ar_status st = AR_OK;

	if (!strcmp(strategy, "tensor") || !strcmp(strategy, "channel")) {
		f->kind = *strategy == 't' ? FORMAT_FP8_TENSOR : FORMAT_FP8_CHANNEL;
		f->rows = dynamic ? ROWS_TOKEN : ROWS_TENSOR;
	} else if (!strcmp(strategy, "block")) {
		st = read_block(r, w, "block_structure", f, err);
	} else if (!strcmp(strategy, "group")) {
		f->kind = FORMAT_MXFP8;
		st = read_group(r, w, "group_size", NULL, 32, &f->group, err);
	} else {
		return unknown(r, w, "strategy",
			       "\"tensor\", \"channel\", \"block\" or \"group\" for 8-bit floats",
			       err);
	}
	if (!rows)
		f->rows = ROWS_BF16;
	return st;
}

static enum ar_status read_scheme(const struct quant_rules *r, const cJSON *group,
				  struct linear_format *f, struct ar_err *err)
{
	const cJSON *w = get(group, "weights"), *rows = get(group, "input_activations");
	const char *type = text_of(w, "type", "int");
	int64_t bits;

	if (!strcmp(type, "int"))
		return read_int(r, w, f, err);
	if (strcmp(type, "float") != 0)
		return unknown(r, w, "type", "\"int\" or \"float\"", err);
	if (!json_int(get(w, "num_bits"), 4, 8, &bits) || (bits != 4 && bits != 8))
		return unknown(r, w, "num_bits", "4 or 8 for floats", err);
	if (bits == 4)
		return read_float4(r, w, f, err);
	return read_float8(r, w, cJSON_IsObject(rows), cJSON_IsTrue(get(rows, "dynamic")), f, err);
}

static enum ar_status read_groups(struct quant_rules *r, const cJSON *o, struct ar_err *err)
{
	const cJSON *all = get(o, "config_groups"), *v, *t;
	enum ar_status st = AR_OK;

	if (!cJSON_IsObject(all) || cJSON_GetArraySize(all) < 1 ||
	    cJSON_GetArraySize(all) > QUANT_GROUPS_MAX)
		return unknown(r, o, "config_groups", "an object with 1 to 16 groups", err);
	cJSON_ArrayForEach(v, all) {
		struct quant_group *g = &r->group[r->n_group++];

		st = quant_list_init(&g->targets, QUANT_REGEX, get(v, "targets"), NULL, r->model,
				     err);
		if (!st)
			st = read_scheme(r, v, &g->format, err);
		if (st)
			return st;
		cJSON_ArrayForEach(t, get(v, "targets"))
			g->linear = g->linear || !strcmp(t->valuestring, "Linear");
	}
	r->head = true;
	return quant_list_init(&r->exclude, QUANT_REGEX, get(o, "ignore"), NULL, r->model, err);
}

/* ---- 4-bit integers: awq and gptq ---- */

static enum ar_status read_bits(struct quant_rules *r, const cJSON *o, const char *bits,
				const char *also_bits, const char *also_group, struct ar_err *err)
{
	const cJSON *v = get_of(o, bits, also_bits);
	int64_t n;

	if (!json_int(v, 4, 4, &n))
		return unknown(r, o, v ? v->string : bits, "4", err);
	r->base.kind = FORMAT_INT4_GROUP;
	r->head = cJSON_IsTrue(get(o, "lm_head"));
	return read_group(r, o, "group_size", also_group, 128, &r->base.group, err);
}

static enum ar_status read_awq(struct quant_rules *r, const cJSON *o, struct ar_err *err)
{
	enum ar_status st = read_bits(r, o, "bits", "w_bit", "q_group_size", err);

	r->base.zero = cJSON_IsTrue(get(o, "zero_point"));
	return st ? st :
		    quant_list_init(&r->exclude, QUANT_SUBSTRING, get(o, "modules_to_not_convert"),
				    NULL, r->model, err);
}

/* dynamic: "-:PATTERN" leaves modules as they are; other formats for some are not known. */
static enum ar_status read_gptq(struct quant_rules *r, const cJSON *o, struct ar_err *err)
{
	const cJSON *dynamic = get(o, "dynamic"), *v;
	enum ar_status st = read_bits(r, o, "bits", NULL, NULL, err);

	cJSON_ArrayForEach(v, dynamic)
		if (!st && strncmp(v->string, "-:", 2) != 0)
			st = ar_fail(
				err, AR_DATA,
				"%s: quantization_config: dynamic '%.80s' gives modules another "
				"format; known is '-:', which leaves them as they are; %s",
				r->model, v->string, none_helps);
	return st ? st : quant_list_init(&r->exclude, QUANT_REGEX, dynamic, "-:", r->model, err);
}

/* ---- mxfp4: experts of gpt-oss ---- */

static enum ar_status read_mxfp4(struct quant_rules *r, const cJSON *o, struct ar_err *err)
{
	(void)o;
	(void)err;
	r->base = (struct linear_format){ .kind = FORMAT_MXFP4, .group = 32 };
	r->experts_only = true;
	return AR_OK;
}

/* ---- all ---- */

static const struct quant_method {
	const char *name;
	enum ar_status (*read)(struct quant_rules *r, const cJSON *o, struct ar_err *err);
} methods[] = {
	{ "fp8", read_fp8 },	       { "compressed-tensors", read_groups },
	{ "modelopt", read_modelopt }, { "awq", read_awq },
	{ "gptq", read_gptq },	       { "mxfp4", read_mxfp4 },
};

static enum ar_status unknown_method(const struct quant_rules *r, const cJSON *o,
				     struct ar_err *err)
{
	char all[128] = "";
	size_t n = 0;

	for (size_t i = 0; i < sizeof methods / sizeof *methods; i++)
		n += (size_t)snprintf(all + n, sizeof all - n, "%s%s", i ? ", " : "",
				      methods[i].name);
	return unknown(r, o, "quant_method", all, err);
}

enum ar_status quant_rules_read(struct quant_rules *r, const char *model, const cJSON *o,
				struct ar_err *err)
{
	const cJSON *inner = get(o, "quantization"); /* of hf_quant_config.json */
	const char *method = text_of(o, "quant_method", NULL);

	*r = (struct quant_rules){ .model = model };
	if (cJSON_IsObject(inner))
		o = inner;
	if (!method && json_has(o, "quant_algo"))
		method = "modelopt";
	read_kv(r, o);
	for (size_t i = 0; method && i < sizeof methods / sizeof *methods; i++)
		if (!strcmp(methods[i].name, method))
			return methods[i].read(r, o, err);
	return unknown_method(r, o, err);
}

void quant_rules_release(struct quant_rules *r)
{
	quant_list_release(&r->exclude);
	for (size_t i = 0; i < r->n_group; i++)
		quant_list_release(&r->group[i].targets);
	free(r->named);
	*r = (struct quant_rules){ 0 };
}

/* The first place in the sorted list whose name is not before it. */
static size_t named_from(const struct quant_rules *r, const char *name)
{
	size_t low = 0, high = r->n_named;

	while (low < high) {
		size_t mid = low + (high - low) / 2;

		if (strcmp(r->named[mid].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

static const struct quant_named *find_named(const struct quant_rules *r, const char *name,
					    bool experts)
{
	const size_t i = named_from(r, name), len = strlen(name);
	char first[128];
	size_t k;

	if (i < r->n_named && !strcmp(r->named[i].name, name))
		return &r->named[i];
	if (!experts)
		return NULL;
	snprintf(first, sizeof first, "%s.", name);
	k = named_from(r, first);
	return k < r->n_named && !strncmp(r->named[k].name, first, len + 1) ? &r->named[k] : NULL;
}

/* The group whose targets have a name, else the first of all linear modules; NULL: none. */
static const struct quant_group *group_of(const struct quant_rules *r, const char *const *name,
					  size_t n, bool linear)
{
	for (size_t g = 0; g < r->n_group; g++)
		for (size_t i = 0; i < n; i++)
			if (quant_list_has(&r->group[g].targets, name[i]))
				return &r->group[g];
	for (size_t g = 0; linear && g < r->n_group; g++)
		if (r->group[g].linear)
			return &r->group[g];
	return NULL;
}

struct linear_format quant_format(const struct quant_rules *r, const char *const *name, size_t n,
				  enum quant_module what, bool *named)
{
	const struct linear_format bf16 = { 0 };
	const struct quant_named *found = NULL;
	const struct quant_group *g;

	*named = false;
	for (size_t i = 0; i < n; i++)
		if (quant_list_has(&r->exclude, name[i]))
			return bf16;
	for (size_t i = 0; i < n && !found; i++)
		found = find_named(r, name[i], what == QUANT_EXPERTS);
	if (found) {
		*named = true;
		return found->format;
	}
	g = group_of(r, name, n, what != QUANT_HEAD);
	if (g)
		return g->format;
	return (what == QUANT_HEAD && !r->head) || (what != QUANT_EXPERTS && r->experts_only) ?
		       bf16 :
		       r->base;
}
