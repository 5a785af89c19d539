/* SPDX-License-Identifier: Apache-2.0 */
/* Routed and shared experts beside dense layers, by the keys of DeepSeek's config.json files.
 * Source: Hugging Face Transformers 4.57, DeepseekV3Config, and DeepSeek-V2's own configuration. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonval.h"

enum { SHARED_MAX = 64, LAYERS_MAX = 4094 };

/* ---- the router ---- */

static const struct {
	const char *name;
	int bias, grouped;
} methods[] = { { "greedy", 0, 0 }, { "group_limited_greedy", 0, 1 }, { "noaux_tc", 1, 1 } };
enum { N_METHODS = sizeof methods / sizeof *methods };

/* grouped: whether groups count. */
static enum ar_status read_method(struct router *r, bool *grouped, const cJSON *config,
				  const char *path, struct ar_err *err)
{
	const cJSON *v = config_get(config, "topk_method");

	*grouped = r->bias;
	if (!config_has(config, "topk_method"))
		return AR_OK;
	for (size_t i = 0; i < N_METHODS && cJSON_IsString(v); i++)
		if (!strcmp(methods[i].name, v->valuestring)) {
			r->bias = methods[i].bias;
			*grouped = methods[i].grouped;
			return AR_OK;
		}
	return ar_fail(err, AR_DATA,
		       "%s: 'topk_method' '%.40s' is not known; known are greedy, "
		       "group_limited_greedy and noaux_tc",
		       path, cJSON_IsString(v) ? v->valuestring : "");
}

static enum ar_status read_scoring(struct router *r, const cJSON *config, const char *path,
				   struct ar_err *err)
{
	static const char *const names[] = {
		[ROUTER_SOFTMAX] = "softmax", [ROUTER_SIGMOID] = "sigmoid"
	};
	const cJSON *v = config_get(config, "scoring_func");

	if (!config_has(config, "scoring_func"))
		return AR_OK;
	for (int i = 0; i <= ROUTER_SIGMOID && cJSON_IsString(v); i++)
		if (!strcmp(names[i], v->valuestring)) {
			r->scoring = (enum router_scoring)i;
			return AR_OK;
		}
	return ar_fail(err, AR_DATA,
		       "%s: 'scoring_func' '%.40s' is not known; known are softmax and sigmoid",
		       path, cJSON_IsString(v) ? v->valuestring : "");
}

static enum ar_status read_groups(struct layer_spec *l, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	struct router *r = &l->router;
	enum ar_status st = config_int(config, "n_group", l->n_experts, 1, &r->groups, path, err);

	if (!st)
		st = config_int(config, "topk_group", r->groups, r->groups, &r->groups_kept, path,
				err);
	if (st)
		return st;
	if (l->n_experts % r->groups)
		return ar_fail(err, AR_DATA, "%s: n_group %d does not divide n_routed_experts %d",
			       path, r->groups, l->n_experts);
	if (l->n_experts / r->groups * r->groups_kept < l->experts_per_tok)
		return ar_fail(err, AR_DATA,
			       "%s: topk_group %d leaves fewer experts than num_experts_per_tok %d",
			       path, r->groups_kept, l->experts_per_tok);
	return AR_OK;
}

static enum ar_status read_router(struct layer_spec *l, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	bool grouped;
	enum ar_status st = read_method(&l->router, &grouped, config, path, err);

	if (!st)
		st = read_scoring(&l->router, config, path, err);
	if (!st)
		st = read_groups(l, config, path, err);
	if (!grouped || l->router.groups == 1)
		l->router.groups = l->router.groups_kept = 0;
	if (!st)
		st = config_real(config, "routed_scaling_factor", 1, &l->router.scaling, path, err);
	return st;
}

/* ---- the layers ---- */

enum ar_status config_experts(struct layer_spec *l, const cJSON *config, const char *path,
			      struct ar_err *err)
{
	enum ar_status st = config_int(config, "n_routed_experts", 1 << 16, 0, &l->n_experts, path,
				       err);

	if (!st)
		st = config_int(config, "num_experts_per_tok", l->n_experts, 0, &l->experts_per_tok,
				path, err);
	if (!st)
		st = config_int(config, "moe_intermediate_size", 1 << 24, 0, &l->ffn, path, err);
	return st;
}

/* Read what all layers with experts share. */
static enum ar_status read_experts(struct layer_spec *l, const cJSON *config, const char *path,
				   struct ar_err *err)
{
	int shared;
	enum ar_status st = config_experts(l, config, path, err);

	if (!st)
		st = config_count(config, "n_shared_experts", SHARED_MAX, &shared, path, err);
	if (st)
		return st;
	l->shared_ffn = shared * l->ffn;
	return read_router(l, config, path, err);
}

/* Whether layer i has experts, by a list with an entry for each layer. */
static enum ar_status listed(const cJSON *list, const char *key, int n, int i, bool *out,
			     const char *path, struct ar_err *err)
{
	const cJSON *v = cJSON_GetArrayItem(list, i);

	if (cJSON_GetArraySize(list) != n)
		return ar_fail(err, AR_DATA, "%s: '%s' has %d entries, but num_hidden_layers is %d",
			       path, key, cJSON_GetArraySize(list), n);
	*out = cJSON_IsString(v) ? !strcmp(v->valuestring, "sparse") :
				   cJSON_IsNumber(v) && v->valuedouble == 1;
	if (*out || (cJSON_IsString(v) ? !strcmp(v->valuestring, "dense") :
					 cJSON_IsNumber(v) && v->valuedouble == 0))
		return AR_OK;
	return ar_fail(err, AR_DATA, "%s: '%s': want dense or sparse, or 0 or 1, for each layer",
		       path, key);
}

static enum ar_status has_experts(int i, bool *out, const struct model *m, const cJSON *config,
				  const char *path, struct ar_err *err)
{
	const cJSON *types = config_get(config, "mlp_layer_types");
	const cJSON *freq = config_get(config, "moe_layer_freq");
	int first, every;
	enum ar_status st = config_count(config, "first_k_dense_replace", LAYERS_MAX, &first, path,
					 err);

	if (cJSON_IsArray(types))
		return listed(types, "mlp_layer_types", m->n_layers, i, out, path, err);
	if (cJSON_IsArray(freq))
		return listed(freq, "moe_layer_freq", m->n_layers, i, out, path, err);
	if (!st)
		st = config_int(config, "moe_layer_freq", LAYERS_MAX, 1, &every, path, err);
	if (!st)
		*out = i >= first && i % every == 0;
	return st;
}

enum ar_status config_moe(struct model *m, const cJSON *config, const char *path,
			  struct ar_err *err)
{
	struct layer_spec moe = m->layer[0];
	enum ar_status st;

	if (!config_has(config, "n_routed_experts")) {
		for (int i = 0; i < m->n_layers; i++)
			m->layer[i].router = (struct router){ 0 };
		return AR_OK;
	}
	st = read_experts(&moe, config, path, err);
	for (int i = 0; i < m->n_layers && !st; i++) {
		struct layer_spec *l = &m->layer[i];
		bool experts = false;

		st = has_experts(i, &experts, m, config, path, err);
		l->router = experts ? moe.router : (struct router){ 0 };
		if (!experts)
			continue;
		l->n_experts = moe.n_experts;
		l->experts_per_tok = moe.experts_per_tok;
		l->ffn = moe.ffn;
		l->shared_ffn = moe.shared_ffn;
	}
	return st;
}
