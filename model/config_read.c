/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonval.h"
#include "model/rope.h"

/* What stands in place of a number, such as ", not NaN"; "" if it is absent or no text. */
static const char *in_place(const cJSON *config, const char *key, char *buf, size_t n)
{
	const cJSON *v = config_get(config, key);

	*buf = '\0';
	if (cJSON_IsString(v))
		snprintf(buf, n, ", not '%s'", v->valuestring);
	return buf;
}

static enum ar_status read_int(const cJSON *config, const char *key, int min, int max, int *out,
			       const char *path, struct ar_err *err)
{
	char other[32];
	int64_t v;

	if (!json_int(config_get(config, key), min, max, &v))
		return ar_fail(err, AR_DATA, "%s: want an integer from %d to %d as '%s'%s", path,
			       min, max, key, in_place(config, key, other, sizeof other));
	*out = (int)v;
	return AR_OK;
}

enum ar_status config_count(const cJSON *config, const char *key, int max, int *out,
			    const char *path, struct ar_err *err)
{
	*out = 0;
	return config_has(config, key) ? read_int(config, key, 0, max, out, path, err) : AR_OK;
}

enum ar_status config_int(const cJSON *config, const char *key, int max, int def, int *out,
			  const char *path, struct ar_err *err)
{
	*out = def;
	return config_has(config, key) || !def ? read_int(config, key, 1, max, out, path, err) :
						 AR_OK;
}

enum ar_status config_real(const cJSON *config, const char *key, double def, double *out,
			   const char *path, struct ar_err *err)
{
	char other[32];

	*out = def;
	if ((config_has(config, key) || def == 0) &&
	    !json_real(config_get(config, key), 1e-3, 1e12, out))
		return ar_fail(err, AR_DATA, "%s: want a positive number as '%s'%s", path, key,
			       in_place(config, key, other, sizeof other));
	return AR_OK;
}

bool config_true(const cJSON *config, const char *key)
{
	return cJSON_IsTrue(config_get(config, key));
}

/* ---- the members that all layers share ---- */

static enum ar_status read_heads(struct layer_spec *l, int hidden, const cJSON *config,
				 const char *path, struct ar_err *err)
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
	if (!config_has(config, "head_dim") && hidden % l->q_heads)
		return ar_fail(err, AR_DATA,
			       "%s: no 'head_dim', and num_attention_heads %d does "
			       "not divide hidden_size %d",
			       path, l->q_heads, hidden);
	st = config_int(config, "head_dim", 1 << 12, hidden / l->q_heads, &l->head_dim, path, err);
	if (!st && l->head_dim % 2)
		st = ar_fail(err, AR_DATA, "%s: head_dim %d is odd", path, l->head_dim);
	if (config_true(config, "attention_bias"))
		l->qkv_bias = l->o_bias = 1;
	if (l->qk_norm && config_has(config, "use_qk_norm"))
		l->qk_norm = config_true(config, "use_qk_norm");
	return st;
}

/* An activation that the architecture fixes is not in config. */
static enum ar_status read_act(struct layer_spec *l, const cJSON *config, const char *path,
			       struct ar_err *err)
{
	const char *key = config_has(config, "hidden_activation") ? "hidden_activation" :
								    "hidden_act";
	const cJSON *v = config_get(config, key);

	if (l->act == ACT_SWIGLU_CLAMP || l->act == ACT_RELU2 || !config_has(config, key))
		return AR_OK;
	if (!strcmp(v->valuestring, "silu"))
		l->act = ACT_SILU;
	else if (!strcmp(v->valuestring, "gelu_pytorch_tanh"))
		l->act = ACT_GELU_TANH;
	else
		return ar_fail(err, AR_DATA,
			       "%s: activation '%.40s' is not known; known are silu and "
			       "gelu_pytorch_tanh",
			       path, v->valuestring);
	return AR_OK;
}

static enum ar_status read_experts(struct layer_spec *l, const char *key, const cJSON *config,
				   const char *path, struct ar_err *err)
{
	const char *per_tok = config_has(config, "top_k_experts") ? "top_k_experts" :
								    "num_experts_per_tok";
	enum ar_status st = config_int(config, key, 1 << 16, 0, &l->n_experts, path, err);

	if (!st)
		st = config_int(config, per_tok, l->n_experts, 0, &l->experts_per_tok, path, err);
	if (!st)
		st = config_int(config, "moe_intermediate_size", 1 << 24, l->ffn, &l->ffn, path,
				err);
	if (!st)
		st = config_count(config, "shared_expert_intermediate_size", 1 << 24,
				  &l->shared_ffn, path, err);
	l->shared_gate = l->shared_ffn > 0;
	return st;
}

/* Whether config has key, and not 0. */
static bool has_some(const cJSON *config, const char *key)
{
	const cJSON *v = config_get(config, key);

	return config_has(config, key) && (!cJSON_IsNumber(v) || v->valuedouble != 0);
}

static enum ar_status read_mlp(struct layer_spec *l, const cJSON *config, const char *path,
			       struct ar_err *err)
{
	const char *experts = config_has(config, "num_local_experts") ? "num_local_experts" :
									"num_experts";
	/* models whose layers all have experts have no other width */
	const char *width = config_has(config, "intermediate_size") ||
					    !config_has(config, experts) ?
				    "intermediate_size" :
				    "moe_intermediate_size";
	enum ar_status st = config_int(config, width, 1 << 24, 0, &l->ffn, path, err);

	if (!st)
		st = read_act(l, config, path, err);
	if (config_true(config, "mlp_bias"))
		l->mlp_bias = 1;
	if (config_has(config, "n_routed_experts")) /* for config_moe() */
		return st;
	return st || !has_some(config, experts) ? st : read_experts(l, experts, config, path, err);
}

void layer_make_dense(struct layer_spec *l, int ffn)
{
	l->n_experts = l->experts_per_tok = l->shared_ffn = l->shared_gate = 0;
	l->router = (struct router){ 0 };
	l->ffn = ffn;
}

static bool is_listed(const cJSON *list, int i)
{
	const cJSON *v;

	cJSON_ArrayForEach(v, list)
		if (v->valuedouble == i)
			return true;
	return false;
}

/* Of layers with experts, those have a dense MLP that mlp_only_layers lists, and those whose
 * number, counted from 1, is no multiple of decoder_sparse_step. */
static enum ar_status read_dense(struct model *m, const cJSON *config, const char *path,
				 struct ar_err *err)
{
	const cJSON *only = config_get(config, "mlp_only_layers");
	int step, ffn = 0;
	enum ar_status st;

	if (!m->layer->n_experts)
		return AR_OK;
	st = config_int(config, "decoder_sparse_step", INT_MAX, 1, &step, path, err);
	for (int i = 0; i < m->n_layers && !st; i++) {
		if ((i + 1) % step == 0 && !is_listed(only, i))
			continue;
		st = config_int(config, "intermediate_size", 1 << 24, 0, &ffn, path, err);
		layer_make_dense(&m->layer[i], ffn);
	}
	return st;
}

/* ---- the model outside its layers ---- */

/* A capture after RoPE replays without angles.  So an embedding whose angles are not known is only
 * noted, for callers that need the angles.  Models with two embeddings name the kinds of layers. */
static enum ar_status read_rope(struct model *m, const cJSON *config, const char *path,
				struct ar_err *err)
{
	const char *key = config_has(config, "rope_parameters") ? "rope_parameters" :
								  "rope_scaling";
	const cJSON *all = config_get(config, key), *full = config_get(all, "full_attention");
	const cJSON *window = config_get(all, "sliding_attention"), *scaling = full ? full : all;
	const char *type = rope_type_unknown(scaling);
	double theta = 10000; /* the default of the model class */
	struct rope whole = { 0 };
	enum ar_status st = rope_parse_share(&whole, config, path, err);

	if (st)
		return st;
	if (config_has(config, "rope_theta") &&
	    !json_real(config_get(config, "rope_theta"), 1, 1e12, &theta))
		return ar_fail(err, AR_DATA, "%s: want a number from 1 to 1e12 as 'rope_theta'",
			       path);
	if (type) {
		snprintf(m->rope_unknown, sizeof m->rope_unknown, "rope type '%s'", type);
		st = rope_parse_share(&m->rope, scaling, path, err);
	} else {
		st = rope_parse(&m->rope, theta, scaling, path, err);
	}
	if (!st && window)
		st = rope_parse(&m->rope_window, theta, window, path, err);
	if (m->rope.share == 0)
		m->rope.share = whole.share;
	if (m->rope_window.share == 0)
		m->rope_window.share = whole.share;
	return st;
}

static enum ar_status read_outside(struct model *m, const cJSON *config, const char *path,
				   struct ar_err *err)
{
	int max_len = 0;
	enum ar_status st = config_int(config, "vocab_size", 1 << 28, 0, &m->vocab, path, err);

	if (!st && config_has(config, "max_position_embeddings"))
		st = config_int(config, "max_position_embeddings", INT_MAX, 0, &max_len, path, err);
	if (!st)
		st = read_rope(m, config, path, err);
	if (st)
		return st;
	m->max_len = max_len;
	m->norm_eps = 1e-6; /* the default of the model class */
	if (config_has(config, "rms_norm_eps") &&
	    !json_real(config_get(config, "rms_norm_eps"), 0, 1, &m->norm_eps))
		return ar_fail(err, AR_DATA, "%s: want a number from 0 to 1 as 'rms_norm_eps'",
			       path);
	m->tied = config_true(config, "tie_word_embeddings");
	return AR_OK;
}

/* ---- the kinds of layers ---- */

static enum ar_status parse_kind(enum mixer *out, const struct arch *a, const char *name,
				 const char *path, struct ar_err *err)
{
	static const char *const usual[MIXERS] = { [MIX_FULL] = "full_attention",
						   [MIX_WINDOW] = "sliding_attention",
						   [MIX_LINEAR] = "linear_attention" };
	const char *const *names = a->kinds ? a->kinds : usual;
	char known[80] = "";
	size_t n = 0;

	for (int i = 0; i < MIXERS; i++) {
		if (!names[i] || (i == MIX_LINEAR && !a->linear))
			continue;
		if (!strcmp(names[i], name)) {
			*out = (enum mixer)i;
			return AR_OK;
		}
		n += (size_t)snprintf(known + n, sizeof known - n, "%s%s", n ? ", " : "", names[i]);
	}
	return ar_fail(err, AR_DATA, "%s: layer type '%.40s' is not known; known are %s", path,
		       name, known);
}

/* Read a list with the type of each layer. */
static enum ar_status read_list(struct model *m, const struct arch *a, const cJSON *types,
				const char *path, struct ar_err *err)
{
	const cJSON *type;
	enum ar_status st = AR_OK;
	int n = cJSON_GetArraySize(types), i = 0;

	if (n != m->n_layers)
		return ar_fail(err, AR_DATA,
			       "%s: 'layer_types' has %d entries, but num_hidden_layers is %d",
			       path, n, m->n_layers);
	cJSON_ArrayForEach(type, types)
		if (!st)
			st = parse_kind(&m->layer[i++].mixer, a, type->valuestring, path, err);
	return st;
}

/* Each layer of number every, 2 every ... is full, counted from 1; the others are of a kind. */
static enum ar_status read_every(struct model *m, const char *key, enum mixer others,
				 const cJSON *config, const char *path, struct ar_err *err)
{
	int every;
	enum ar_status st = config_int(config, key, 4094, 0, &every, path, err);

	for (int i = 0; i < m->n_layers && !st; i++)
		m->layer[i].mixer = (i + 1) % every ? others : MIX_FULL;
	return st;
}

/* A window without a list: in all layers, or with use_sliding_window from layer max_window_layers
 * on. */
static enum ar_status read_windows(struct model *m, const cJSON *config, const char *path,
				   struct ar_err *err)
{
	bool asked = config_true(config, "use_sliding_window");
	int64_t first = 0;

	if (!config_has(config, "sliding_window") ||
	    (config_has(config, "use_sliding_window") && !asked))
		return AR_OK;
	if (asked && !json_int(config_get(config, "max_window_layers"), 0, INT_MAX, &first))
		return ar_fail(err, AR_DATA,
			       "%s: use_sliding_window without 'layer_types': want the number of "
			       "layers without a window as 'max_window_layers'",
			       path);
	for (int64_t i = first; i < m->n_layers; i++)
		m->layer[i].mixer = MIX_WINDOW;
	return AR_OK;
}

static enum ar_status read_kinds(struct model *m, const struct arch *a, const cJSON *config,
				 const char *path, struct ar_err *err)
{
	enum ar_status st;

	if (config_has(config, "layer_types"))
		st = read_list(m, a, config_get(config, "layer_types"), path, err);
	else if (config_has(config, "sliding_window_pattern"))
		st = read_every(m, "sliding_window_pattern", MIX_WINDOW, config, path, err);
	else if (a->linear && config_has(config, "full_attention_interval"))
		st = read_every(m, "full_attention_interval", MIX_LINEAR, config, path, err);
	else
		st = read_windows(m, config, path, err);
	for (int i = 0; i < m->n_layers && !st; i++)
		if (m->layer[i].mixer == MIX_WINDOW)
			st = config_int(config, "sliding_window", INT_MAX, 0, &m->layer[i].window,
					path, err);
	return st;
}

enum ar_status config_decoder(struct model *m, const struct arch *a, const cJSON *config,
			      const char *path, struct ar_err *err)
{
	struct layer_spec l = a->base;
	int n_layers, listed = cJSON_GetArraySize(config_get(config, "layers_block_type"));
	bool latent = a->base.mixer == MIX_LATENT;
	enum ar_status st = config_int(config, "num_hidden_layers", 4094, listed, &n_layers, path,
				       err);

	if (!st)
		st = config_int(config, "hidden_size", 1 << 24, 0, &m->hidden, path, err);
	if (!st)
		st = latent ? config_latent(&l, config, path, err) :
			      read_heads(&l, m->hidden, config, path, err);
	if (!st)
		st = read_mlp(&l, config, path, err);
	if (!st)
		st = read_outside(m, config, path, err);
	if (!st && !latent)
		st = rope_check_dim(&m->rope, l.head_dim, path, err);
	if (st)
		return st;
	if (!latent)
		l.rotary_dim = rope_dim(&m->rope, l.head_dim);
	st = model_set_layers(m, n_layers, &l, err);
	if (!st)
		st = read_dense(m, config, path, err);
	return st || latent ? st : read_kinds(m, a, config, path, err);
}
