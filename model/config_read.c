/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/jsonval.h"
#include "base/log.h"
#include "model/rope.h"

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
