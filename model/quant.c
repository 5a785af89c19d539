/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/quant.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/json.h"
#include "base/jsonval.h"
#include "base/number.h"
#include "base/text.h"
#include "model/cache_layout.h"
#include "model/params.h"
#include "model/quant_rules.h"

enum { NAME = 128, ALIASES = 8, PARTS = 3, CONFIG_MAX = 1 << 24 };

/* ---- names of modules ---- */

/* Names of the modules of a layer, by family.  "a|b": two names of one module.  A family has all
 * types that begin with model_type. */
static const struct naming {
	const char *model_type, *attn, *mix, *mlp, *experts, *shared;
} namings[] = {
	{ "deepseek_v4", "attn", "attn", "ffn", "ffn.experts", "ffn.shared_experts" },
	{ "falcon_h1", "self_attn", "mamba", "feed_forward", "", "" },
	{ "gemma4", "self_attn", "linear_attn", "mlp", "experts|moe.experts", "" },
	{ "granitemoehybrid", "self_attn", "mamba", "shared_mlp", "block_sparse_moe",
	  "shared_mlp" },
	{ "jamba", "self_attn", "mamba", "feed_forward", "feed_forward.experts", "" },
	{ "llama4", "self_attn", "linear_attn", "feed_forward", "feed_forward.experts",
	  "feed_forward.shared_expert" },
	{ "minimax_m", "self_attn", "linear_attn", "mlp", "block_sparse_moe.experts",
	  "block_sparse_moe.shared_experts" },
	{ "mixtral", "self_attn", "linear_attn", "mlp", "block_sparse_moe.experts", "" },
	{ "nemotron_h", "mixer", "mixer", "mixer", "mixer.experts", "mixer.shared_experts" },
	{ "step3", "self_attn", "linear_attn", "mlp", "moe.experts|moe", "share_expert" },
	{ "", "self_attn", "linear_attn", "mlp", "mlp.experts",
	  "mlp.shared_expert|mlp.shared_experts" }, /* all others */
};

/* What names of layers begin with. */
static const char *const prefixes[] = {
	"model.", "model.language_model.", "language_model.model.", "backbone.", "", NULL
};

/* The modules of a kind, which have one format: in: the member of struct naming; part: names in
 * it. */
static const struct linear_row {
	const char *name; /* for messages */
	size_t in;
	const char *part[PARTS];
} linears[LINEARS] = {
#define IN(x) offsetof(struct naming, x)
	[LINEAR_Q] = { "q_proj", IN(attn), { "q_proj|qkv_proj|q_a_proj" } },
	[LINEAR_K] = { "k_proj", IN(attn), { "k_proj|qkv_proj|kv_a_proj_with_mqa" } },
	[LINEAR_V] = { "v_proj", IN(attn), { "v_proj|qkv_proj" } },
	[LINEAR_O] = { "o_proj", IN(attn), { "o_proj" } },
	[LINEAR_IN] = { "in_proj",
			IN(mix),
			{ "in_proj|in_proj_qkv|in_proj_qkvz", "in_proj|in_proj_z|in_proj_qkvz" } },
	[LINEAR_BA] = { "in_proj_ba", IN(mix), { "in_proj_b|in_proj_ba", "in_proj_a|in_proj_ba" } },
	[LINEAR_OUT] = { "out_proj", IN(mix), { "out_proj" } },
	[LINEAR_GATE] = { "gate_proj", IN(mlp), { "gate_proj|gate_up_proj" } },
	[LINEAR_UP] = { "up_proj", IN(mlp), { "up_proj|gate_up_proj" } },
	[LINEAR_DOWN] = { "down_proj", IN(mlp), { "down_proj" } },
	[LINEAR_EXPERTS] = { "experts",
			     IN(experts),
			     { "|0.gate_proj|0.w1", "|0.up_proj|0.w3", "|0.down_proj|0.w2" } },
	[LINEAR_SHARED] = { "shared expert",
			    IN(shared),
			    { "gate_proj|gate_up_proj|w1", "up_proj|gate_up_proj|w3",
			      "down_proj|w2" } },
	[LINEAR_Q_UP] = { "q_b_proj", IN(attn), { "q_b_proj" } },
	[LINEAR_KV_UP] = { "kv_b_proj", IN(attn), { "kv_b_proj" } },
	[LINEAR_INDEX] = { "indexer", IN(attn), { "indexer.wq_b", "indexer.wk" } },
	[LINEAR_AROUND] = { "latent_proj", IN(mlp), { "fc1_latent_proj", "fc2_latent_proj" } },
#undef IN
};

/* Products that engines run as one, so that their formats must be the same. */
static const enum linear fused[][3] = { { LINEAR_Q, LINEAR_K, LINEAR_V },
					{ LINEAR_GATE, LINEAR_UP } };

/* The config of a model, and how its modules are named. */
struct reader {
	struct model *m;
	struct quant_rules rules;
	const struct naming *naming;
	const char *prefix;
};

static size_t word(const char *list)
{
	return strcspn(list, "|");
}

/* Call it with each pair of a name of both lists. */
static size_t put_names(const struct reader *r, int layer, const char *in, const char *part,
			char name[][NAME])
{
	size_t n = 0;

	for (const char *a = in;; a += word(a) + 1) {
		for (const char *b = part;; b += word(b) + 1) {
			if (n < 2 * ALIASES)
				snprintf(name[n++], NAME, "%slayers.%d.%.*s%s%.*s", r->prefix,
					 layer, (int)word(a), a, word(b) ? "." : "", (int)word(b),
					 b);
			if (!b[word(b)])
				break;
		}
		if (!a[word(a)])
			break;
	}
	return n;
}

static const struct naming *find_naming(const cJSON *config)
{
	const cJSON *text = cJSON_GetObjectItemCaseSensitive(config, "text_config");
	const char *type = cJSON_GetStringValue(
		cJSON_GetObjectItemCaseSensitive(text ? text : config, "model_type"));
	const struct naming *x = namings;

	while (*x->model_type &&
	       (!type || strncmp(type, x->model_type, strlen(x->model_type)) != 0))
		x++;
	return x;
}

/* The prefix of the first text that has one. */
static const char *prefix_of(const char *text)
{
	const char *at = strstr(text, "layers.");
	const size_t n = at ? (size_t)(at - text) : SIZE_MAX;

	for (int i = 0; at && prefixes[i]; i++)
		if (n == strlen(prefixes[i]) && !strncmp(text, prefixes[i], n))
			return prefixes[i];
	return NULL;
}

static const char *find_prefix(const struct quant_rules *q)
{
	const char *p = NULL;

	for (size_t i = 0; i < q->n_named && !p; i++)
		p = prefix_of(q->named[i].name);
	for (size_t g = 0; g < q->n_group; g++)
		for (size_t i = 0; i < q->group[g].targets.n && !p; i++)
			if (!q->group[g].targets.text[i].is_regex)
				p = prefix_of(q->group[g].targets.text[i].text);
	for (size_t i = 0; i < q->exclude.n && !p; i++)
		if (!q->exclude.text[i].is_regex)
			p = prefix_of(q->exclude.text[i].text);
	return p ? p : prefixes[0];
}

/* ---- formats of layers ---- */

/* Whether a layer has a weight of the kind. */
static bool has_linear(const struct model *m, const struct layer_spec *l, enum linear kind)
{
	for (int i = 0; i < WEIGHTS; i++)
		if (weight_linear(l, (enum weight)i) == kind &&
		    layer_tensor(m, l, (enum weight)i).rows)
			return true;
	return false;
}

static enum ar_status differ(const struct model *m, int layer, const char *a,
			     const struct linear_format *x, const char *b,
			     const struct linear_format *y, struct ar_err *err)
{
	return ar_fail(err, AR_DATA,
		       "%s: quantization_config: layer %d: %s is %s and %s is %s; engines run them "
		       "as one product, so want one format; --quantization none replays the shape "
		       "in bf16",
		       m->name, layer, a, format_name(x->kind), b, format_name(y->kind));
}

static enum ar_status read_linear(const struct reader *r, int layer, enum linear kind,
				  struct linear_format *out, struct ar_err *err)
{
	const struct linear_row *row = &linears[kind];
	const char *in = *(const char *const *)(const void *)((const char *)r->naming + row->in);
	const char *first = NULL, *name[2 * ALIASES];
	char text[2 * ALIASES][NAME];
	bool seen = false;

	for (int p = 0; p < PARTS && row->part[p]; p++) {
		const size_t n = put_names(r, layer, in, row->part[p], text);
		struct linear_format f;
		bool named;

		for (size_t i = 0; i < n; i++)
			name[i] = text[i];
		f = quant_format(&r->rules, name, n,
				 kind == LINEAR_EXPERTS ? QUANT_EXPERTS : QUANT_LINEAR, &named);
		/* A part without a name may be one that the layer lacks. */
		if (r->rules.n_named && !named && f.kind == FORMAT_BF16)
			continue;
		if (seen && !format_equal(&f, out))
			return differ(r->m, layer, first, out, row->part[p], &f, err);
		*out = f;
		first = row->part[p];
		seen = true;
	}
	return AR_OK;
}

static enum ar_status check_fused(const struct model *m, int layer, struct ar_err *err)
{
	const struct layer_spec *l = &m->layer[layer];

	for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
		const enum linear *f = fused[i];
		enum linear first = LINEAR_NONE;

		for (int k = 0; k < 3 && f[k]; k++) {
			if (!has_linear(m, l, f[k]))
				continue;
			if (first && !format_equal(&l->format[first], &l->format[f[k]]))
				return differ(m, layer, linears[first].name, &l->format[first],
					      linears[f[k]].name, &l->format[f[k]], err);
			first = f[k];
		}
	}
	return AR_OK;
}

static enum ar_status read_layers(struct reader *r, struct ar_err *err)
{
	static const char *const head[] = { "lm_head", "language_model.lm_head", "head" };
	enum ar_status st = AR_OK;
	int no = -1; /* of the layer in the file, where mixers side by side are one */
	bool named;

	for (int i = 0; i < r->m->n_layers && !st; i++) {
		struct layer_spec *l = &r->m->layer[i];

		no += !l->beside;
		for (int k = 1; k < LINEARS && !st; k++)
			if (has_linear(r->m, l, (enum linear)k))
				st = read_linear(r, no, (enum linear)k, &l->format[k], err);
		if (!st)
			st = check_fused(r->m, i, err);
	}
	if (!r->m->tied)
		r->m->head = quant_format(&r->rules, head, 3, QUANT_HEAD, &named);
	return st;
}

/* ---- the config ---- */

/* quantization_config of config, or of its language model; NULL: there is none. */
static const cJSON *find_quant(const cJSON *config)
{
	static const char key[] = "quantization_config";
	const cJSON *text = cJSON_GetObjectItemCaseSensitive(config, "text_config");

	if (json_has(config, key))
		return cJSON_GetObjectItemCaseSensitive(config, key);
	return json_has(text, key) ? cJSON_GetObjectItemCaseSensitive(text, key) : NULL;
}

/* A text that ends with config.json as its last part. */
static const char *config_end(const char *path)
{
	static const char end[] = "config.json";
	const size_t n = strlen(path);

	return n >= sizeof end - 1 && !strcmp(path + n - (sizeof end - 1), end) ?
		       path + n - (sizeof end - 1) :
		       NULL;
}

static enum ar_status merge(char **json, cJSON *config, const char *beside, struct ar_err *err)
{
	char *text, *all;
	cJSON *quant;
	enum ar_status st = text_read(&text, beside, CONFIG_MAX, err);

	if (st)
		return st;
	st = json_parse_file(&quant, text, beside, err);
	free(text);
	if (st)
		return st;
	cJSON_DeleteItemFromObjectCaseSensitive(config, "quantization_config");
	if (!json_add(config, "quantization_config", quant))
		return ar_nomem(err);
	all = cJSON_PrintUnformatted(config);
	if (!all)
		return ar_nomem(err);
	free(*json);
	*json = all;
	return AR_OK;
}

/* A config that cannot be parsed is left to who reads it. */
static enum ar_status read_beside(char **json, const char *beside, struct ar_err *err)
{
	char *text = json_quote_literals(*json);
	cJSON *config = text ? json_parse_all(text, NULL) : NULL;
	enum ar_status st = AR_OK;

	if (!text || (!config && json_nomem()))
		st = ar_nomem(err);
	else if (cJSON_IsObject(config) && !find_quant(config))
		st = merge(json, config, beside, err);
	cJSON_Delete(config);
	free(text);
	return st;
}

enum ar_status quant_beside(char **json, const char *path, struct ar_err *err)
{
	const char *end = config_end(path);
	enum ar_status st = AR_OK;
	char *beside;

	if (!end)
		return AR_OK;
	if (asprintf(&beside, "%.*shf_quant_config.json", (int)(end - path), path) < 0)
		return ar_nomem(err);
	if (!access(beside, F_OK))
		st = read_beside(json, beside, err);
	free(beside);
	return st;
}

enum ar_status quant_method(char *buf, size_t n, const char *json, struct ar_err *err)
{
	char *text = json_quote_literals(json);
	cJSON *config = text ? json_parse_all(text, NULL) : NULL;
	const cJSON *quant = find_quant(config);
	const char *name =
		cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(quant, "quant_method"));
	enum ar_status st = !text || (!config && json_nomem()) ? ar_nomem(err) : AR_OK;

	/* hf_quant_config.json has no name for the method. */
	snprintf(buf, n, "%s", name ? name : quant ? "modelopt" : "");
	cJSON_Delete(config);
	free(text);
	return st;
}

/* Call f with quantization_config of m; NULL: there is none. */
static enum ar_status with_quant(struct model *m,
				 enum ar_status (*f)(struct model *m, const cJSON *config,
						     const cJSON *quant, void *ctx,
						     struct ar_err *err),
				 void *ctx, struct ar_err *err)
{
	cJSON *config = m->json ? json_parse_all(m->json, NULL) : NULL;
	const cJSON *quant = find_quant(config);
	enum ar_status st = AR_OK;

	if (m->json && !config)
		return json_nomem() ? ar_nomem(err) :
				      ar_fail(err, AR_DATA, "%s: not a JSON object", m->name);
	if (quant && !cJSON_IsObject(quant))
		st = ar_fail(err, AR_DATA, "%s: want an object as 'quantization_config'", m->name);
	if (!st)
		st = f(m, config, quant, ctx, err);
	cJSON_Delete(config);
	return st;
}

/* ---- weights ---- */

/* Formats by vLLM's names, for a config that says nothing.  w4a16 is group 128 without zeros. */
static const struct preset {
	const char *name;
	struct linear_format format;
} presets[] = {
	{ "fp8_per_tensor", { FORMAT_FP8_TENSOR, ROWS_TOKEN, 0, { 0, 0 }, false } },
	{ "fp8_per_channel", { FORMAT_FP8_CHANNEL, ROWS_TOKEN, 0, { 0, 0 }, false } },
	{ "fp8_per_block", { FORMAT_FP8_BLOCK, ROWS_GROUP, 0, { 128, 128 }, false } },
	{ "w4a16", { FORMAT_INT4_GROUP, ROWS_BF16, 128, { 0, 0 }, false } },
	{ "mxfp4", { FORMAT_MXFP4, ROWS_BF16, 32, { 0, 0 }, false } },
};

static enum ar_status find_preset(const char *name, const struct linear_format **out,
				  struct ar_err *err)
{
	char all[128] = "";
	size_t n = 0;

	*out = NULL;
	for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
		if (!strcmp(presets[i].name, name)) {
			*out = &presets[i].format;
			return AR_OK;
		}
		n += (size_t)snprintf(all + n, sizeof all - n, ", %s", presets[i].name);
	}
	return ar_fail(err, AR_USAGE, "quantization '%s' is not known; known are auto, none%s",
		       name, all);
}

static void clear(struct model *m)
{
	m->head = (struct linear_format){ 0 };
	for (int i = 0; i < m->n_layers; i++)
		memset(m->layer[i].format, 0, sizeof m->layer[i].format);
}

static enum ar_status by_config(struct model *m, const cJSON *config, const cJSON *quant, void *ctx,
				struct ar_err *err)
{
	struct reader r = { .m = m, .naming = find_naming(config) };
	enum ar_status st;

	(void)ctx;
	if (!quant)
		return AR_OK;
	st = quant_rules_read(&r.rules, m->name, quant, err);
	r.prefix = find_prefix(&r.rules);
	if (!st)
		st = read_layers(&r, err);
	quant_rules_release(&r.rules);
	return st;
}

/* The same format for all, but for the head and the small products of linear layers. */
static enum ar_status by_preset(struct model *m, const cJSON *config, const cJSON *quant, void *ctx,
				struct ar_err *err)
{
	const struct preset *x = ctx;

	(void)config;
	if (quant)
		return ar_fail(err, AR_USAGE,
			       "quantization '%s': the config of %s has weights in a format of its "
			       "own; leave --quantization out, or take none",
			       x->name, m->name);
	for (int i = 0; i < m->n_layers; i++)
		for (int k = 1; k < LINEARS; k++)
			if (k != LINEAR_BA && has_linear(m, &m->layer[i], (enum linear)k))
				m->layer[i].format[k] = x->format;
	return AR_OK;
}

static enum ar_status set_weights(struct model *m, const char *how, struct ar_err *err)
{
	const struct linear_format *f;
	enum ar_status st;

	clear(m);
	if (!how || !strcmp(how, "auto"))
		return with_quant(m, by_config, NULL, err);
	if (!strcmp(how, "none"))
		return AR_OK;
	st = find_preset(how, &f, err);
	return st ? st : with_quant(m, by_preset, &(struct preset){ how, *f }, err);
}

const char *model_weights_text(const struct model *m, char *buf, size_t n)
{
	bool used[FORMATS] = { false };
	size_t at = 0;

	*buf = '\0';
	used[m->head.kind] = true;
	for (int i = 0; i < m->n_layers; i++)
		for (int k = 1; k < LINEARS; k++)
			used[m->layer[i].format[k].kind] = true;
	for (int k = FORMAT_BF16 + 1; k < FORMATS; k++)
		if (used[k] && at < n)
			at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? "+" : "",
					       format_name((enum format_kind)k));
	return buf;
}

/* ---- the KV cache ---- */

/* vLLM's words. */
static const struct kv_dtype {
	const char *name, *layout;
} kv_dtypes[] = {
	{ "bfloat16", "kv-bf16" },
	{ "fp8", "kv-e4m3" },
	{ "fp8_e4m3", "kv-e4m3" },
	{ "fp8_e5m2", "kv-e5m2" },
	{ "fp8_per_token_head", "kv-e4m3-th" },
	{ "fp8_ds_mla", "latent-fp8" },
};

static enum ar_status kv_by_config(struct model *m, const cJSON *config, const cJSON *quant,
				   void *ctx, struct ar_err *err)
{
	struct quant_rules r;
	enum ar_status st;

	(void)config;
	if (!quant)
		return AR_OK;
	st = quant_rules_read(&r, m->name, quant, err);
	if (!st && *r.kv_unknown)
		st = ar_fail(err, AR_DATA,
			     "%s: quantization_config: the KV cache is %s; known is FP8; name "
			     "another with --kv-cache-dtype",
			     m->name, r.kv_unknown);
	*(const struct cache_layout **)ctx = r.kv;
	quant_rules_release(&r);
	return st;
}

static enum ar_status find_layout(const char *dtype, const struct cache_layout **out,
				  struct ar_err *err)
{
	char all[128] = "";
	size_t n = 0;

	for (size_t i = 0; i < sizeof kv_dtypes / sizeof *kv_dtypes; i++) {
		if (!strcmp(kv_dtypes[i].name, dtype)) {
			*out = cache_layout_find(kv_dtypes[i].layout);
			return AR_OK;
		}
		n += (size_t)snprintf(all + n, sizeof all - n, ", %s", kv_dtypes[i].name);
	}
	return ar_fail(err, AR_USAGE, "kv-cache-dtype '%s' is not known; known are auto%s", dtype,
		       all);
}

/* The layout of a layer's cache in the format of l; NULL: engines have none.  Rows of latent-fp8
 * are of one size. */
static const struct cache_layout *layer_layout(const struct layer_spec *x,
					       const struct cache_layout *l)
{
	const struct cache_layout *own = l;

	if (x->mixer == MIX_LATENT)
		own = cache_layout_latent(l, x->index.heads, x->index.own);
	if (own && own->bit & (CACHE_LATENT_FP8 | CACHE_LATENT_INDEX_FP8) &&
	    (x->mla.kv_lora != 512 || x->rotary_dim != 64))
		return NULL;
	return own;
}

/* Set the layout of layers that have keys. */
static enum ar_status set_cache(struct model *m, const struct cache_layout *l, struct ar_err *err)
{
	for (int i = 0; i < m->n_layers; i++) {
		struct layer_spec *x = &m->layer[i];
		const struct cache_layout *own = layer_layout(x, cache_layout(l));

		if (!x->kv_heads)
			continue;
		if (!own && x->mixer == MIX_LATENT)
			return ar_fail(err, AR_USAGE,
				       "model %s: no KV cache %s of latents of %d + %d is known; "
				       "take --kv-cache-dtype bfloat16",
				       m->name, l->name, x->mla.kv_lora, x->rotary_dim);
		if (!own)
			return ar_fail(err, AR_USAGE,
				       "model %s: KV cache %s is of latents, and its layers have "
				       "keys and values; take --kv-cache-dtype fp8",
				       m->name, l->name);
		x->cache = own == cache_layouts ? NULL : own;
	}
	return AR_OK;
}

static enum ar_status set_kv(struct model *m, const char *dtype, struct ar_err *err)
{
	const struct cache_layout *l = NULL;
	enum ar_status st = !dtype || !strcmp(dtype, "auto") ?
				    with_quant(m, kv_by_config, &l, err) :
				    find_layout(dtype, &l, err);

	return st ? st : set_cache(m, l, err);
}

enum ar_status model_set_formats(struct model *m, const char *weights, const char *kv,
				 struct ar_err *err)
{
	const bool none = weights && !strcmp(weights, "none");
	enum ar_status st = set_weights(m, weights, err);

	return st ? st : set_kv(m, none && (!kv || !strcmp(kv, "auto")) ? "bfloat16" : kv, err);
}

/* Words of a list: layers of m from *from to *to; or those with a window. */
static enum ar_status read_skip(const struct model *m, const char *word, size_t n, uint64_t *from,
				uint64_t *to, bool *window, struct ar_err *err)
{
	static const char name[] = "sliding_window";

	*from = 0;
	*to = (uint64_t)m->n_layers - 1;
	*window = n == strlen(name) && !memcmp(word, name, n);
	if (*window || (num_range(word, n, from, to) && *to < (uint64_t)m->n_layers))
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "kv-cache-dtype-skip-layers '%.*s': want layers from 0 to %d, such as 0 or "
		       "4-6, or sliding_window",
		       (int)n, word, m->n_layers - 1);
}

enum ar_status model_skip_kv(struct model *m, const char *list, struct ar_err *err)
{
	const char *word = list;
	int n_set = 0;

	for (size_t n = strcspn(word, ",");; n = strcspn(word, ",")) {
		uint64_t from, to;
		bool window;
		enum ar_status st = read_skip(m, word, n, &from, &to, &window, err);

		if (st)
			return st;
		for (uint64_t i = from; i <= to; i++) {
			struct layer_spec *x = &m->layer[i];

			if (cache_is_bf16(x->cache) || (window && x->mixer != MIX_WINDOW))
				continue;
			x->cache = x->mixer == MIX_LATENT ?
					   cache_layout_latent(NULL, x->index.heads, x->index.own) :
					   NULL;
			n_set++;
		}
		if (!word[n])
			break;
		word += n + 1;
	}
	return n_set ? AR_OK :
		       ar_fail(err, AR_USAGE,
			       "kv-cache-dtype-skip-layers '%s' has no effect: the KV cache of "
			       "these layers is in bf16; leave it out",
			       list);
}

const char *model_kv_text(const struct model *m, char *buf, size_t n)
{
	size_t at = 0;
	bool other = false;

	*buf = '\0';
	for (const struct cache_layout *l = cache_layouts; l->name; l++) {
		bool used = false;

		for (int i = 0; i < m->n_layers; i++)
			used = used || (mixer_attends(m->layer[i].mixer) &&
					cache_layout(m->layer[i].cache) == l);
		other = other || (used && !cache_is_bf16(l));
		if (used && at < n)
			at += (size_t)snprintf(buf + at, n - at, "%s%s", at ? "+" : "", l->name);
	}
	if (!other)
		*buf = '\0';
	return buf;
}

/* ---- refusals ---- */

enum ar_status model_check_formats(const struct model *m, struct ar_err *err)
{
	char weights[96], kv[64];

	model_weights_text(m, weights, sizeof weights);
	model_kv_text(m, kv, sizeof kv);
	if (*weights)
		return ar_fail(err, AR_USAGE,
			       "model %s: there are no kernels for weights in %s; --quantization "
			       "none replays the shape in bf16, and --backend roofline models them",
			       m->name, weights);
	if (*kv)
		return ar_fail(err, AR_USAGE,
			       "model %s: there are no kernels for KV cache %s; --kv-cache-dtype "
			       "bfloat16 replays it in bf16, and --backend roofline models it",
			       m->name, kv);
	return AR_OK;
}

/* The inputs or outputs that a rank must have a multiple of; 1: any. */
static int64_t unit(const struct linear_format *f, bool inputs)
{
	if (f->kind == FORMAT_FP8_BLOCK)
		return f->block[inputs];
	return inputs && f->group ? f->group : 1;
}

enum ar_status quant_check_split(const struct model *m, const struct layer_spec *l,
				 const struct layer_spec *part, struct ar_err *err)
{
	for (int i = 0; i < WEIGHTS; i++) {
		const enum linear kind = weight_linear(l, (enum weight)i);
		const struct linear_format *f = &l->format[kind];
		const struct tensor_shape a = layer_tensor(m, l, (enum weight)i);
		const struct tensor_shape b = layer_tensor(m, part, (enum weight)i);
		const bool inputs = a.cols != b.cols;
		const int64_t n = inputs ? b.cols : b.rows, u = unit(f, inputs);

		/* engines quantize a rank's keys of MiMo-V2 anew: vLLM 0.33.0, models/mimo_v2.py */
		if (l->v_dim && kind == LINEAR_K)
			continue;
		if (f->kind == FORMAT_BF16 || (a.rows == b.rows && a.cols == b.cols) || n % u == 0)
			continue;
		return ar_fail(err, AR_USAGE,
			       "%s of a rank has %lld %s, no multiple of the %lld that share a "
			       "scale of %s",
			       linears[kind].name, (long long)n, inputs ? "inputs" : "outputs",
			       (long long)u, format_name(f->kind));
	}
	return AR_OK;
}
