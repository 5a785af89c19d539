/* SPDX-License-Identifier: Apache-2.0 */
/* MiMo-V2: layers with a window have other heads than full ones, and sinks; values are shorter than
 * keys.  Source: vLLM 0.33.0, models/mimo_v2.py. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <stddef.h>

#include "base/jsonval.h"
#include "model/rope.h"

static const char *const hf_names[] = { "mimo_v2_flash", "MiMoV2FlashForCausalLM", NULL };

enum { HEADS_MAX = 1 << 12 };

/* Read the sizes of layers with a window.  A size without a key is that of full layers. */
static enum ar_status read_window(struct layer_spec *w, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	const struct {
		const char *key;
		int *to;
	} ints[] = {
		{ "swa_num_attention_heads", &w->q_heads },
		{ "swa_num_key_value_heads", &w->kv_heads },
		{ "swa_head_dim", &w->head_dim },
		{ "swa_v_head_dim", &w->v_dim },
	};
	enum ar_status st = config_int(config, "sliding_window", 1 << 30, 0, &w->window, path, err);

	w->mixer = MIX_WINDOW;
	w->sinks = config_true(config, "add_swa_attention_sink_bias");
	for (size_t i = 0; i < sizeof ints / sizeof *ints && !st; i++)
		st = config_int(config, ints[i].key, HEADS_MAX, *ints[i].to, ints[i].to, path, err);
	if (!st && w->q_heads % w->kv_heads)
		st = ar_fail(err, AR_DATA,
			     "%s: swa_num_key_value_heads %d does not divide "
			     "swa_num_attention_heads %d",
			     path, w->kv_heads, w->q_heads);
	return st;
}

/* hybrid_layer_pattern has 1 for a layer with a window. */
static enum ar_status place(struct model *m, const struct layer_spec *full,
			    const struct layer_spec *window, const cJSON *config, const char *path,
			    struct ar_err *err)
{
	const cJSON *v, *pattern = config_get(config, "hybrid_layer_pattern");
	int64_t near;
	int i = 0;

	if (cJSON_GetArraySize(pattern) != m->n_layers)
		return ar_fail(err, AR_DATA,
			       "%s: 'hybrid_layer_pattern' has %d entries, but num_hidden_layers "
			       "is %d",
			       path, cJSON_GetArraySize(pattern), m->n_layers);
	cJSON_ArrayForEach(v, pattern) {
		if (!json_int(v, 0, 1, &near))
			return ar_fail(err, AR_DATA, "%s: want 0 or 1 in 'hybrid_layer_pattern'",
				       path);
		m->layer[i++] = near ? *window : *full;
	}
	return AR_OK;
}

static enum ar_status mimo_v2_read(struct model *m, const cJSON *config, const char *path,
				   struct ar_err *err)
{
	struct layer_spec full = *m->layer, window;
	enum ar_status st = config_int(config, "v_head_dim", HEADS_MAX, full.head_dim, &full.v_dim,
				       path, err);

	full.mixer = MIX_FULL;
	full.window = 0;
	window = full;
	full.sinks = config_true(config, "add_full_attention_sink_bias");
	if (!st)
		st = read_window(&window, config, path, err);
	m->rope_window = m->rope;
	if (!st)
		st = config_real(config, "swa_rope_theta", m->rope.theta, &m->rope_window.theta,
				 path, err);
	if (!st)
		st = rope_check_dim(&m->rope, window.head_dim, path, err);
	if (!st && config_has(config, "layernorm_epsilon") &&
	    !json_real(config_get(config, "layernorm_epsilon"), 0, 1, &m->norm_eps))
		st = ar_fail(err, AR_DATA, "%s: want a number from 0 to 1 as 'layernorm_epsilon'",
			     path);
	if (st)
		return st;
	window.rotary_dim = rope_dim(&m->rope, window.head_dim);
	st = place(m, &full, &window, config, path, err);
	return st ? st : config_moe(m, config, path, err);
}

extern const struct arch arch_mimo_v2;
const struct arch arch_mimo_v2 = {
	.name = "mimo_v2",
	.hf_names = hf_names,
	.base = { .router = { .scoring = ROUTER_SIGMOID, .bias = 1 } },
	.read = mimo_v2_read,
};
