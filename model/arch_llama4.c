/* SPDX-License-Identifier: Apache-2.0 */
/* Llama 4: three layers that attend within chunks, then a full one that does not rotate; experts
 * with a shared one in each layer, or in every second.  Norms of Q and K have no weights.  Sources:
 * Hugging Face Transformers 4.57, Llama4TextConfig; vLLM 0.33.0, models/llama4.py. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <stddef.h>

#include "base/jsonval.h"

static const char *const hf_names[] = { "llama4", "llama4_text", "Llama4ForCausalLM",
					"Llama4ForConditionalGeneration", NULL };

static const struct config_default defaults[] = {
	{ "attention_chunk_size", 8192 },
	{ "interleave_moe_layer_step", 1 },
	{ "no_rope_layer_interval", 4 },
	{ NULL, 0 },
};

/* Layers of 0 in no_rope_layers, or each of number interval, 2 interval ..., do not rotate. */
static enum ar_status read_attention(struct model *m, const cJSON *config, const char *path,
				     struct ar_err *err)
{
	const cJSON *list = config_get(config, "no_rope_layers");
	int chunk, every, n = cJSON_GetArraySize(list);
	int64_t turns;
	enum ar_status st = config_int(config, "attention_chunk_size", 1 << 30, 0, &chunk, path,
				       err);

	if (!st)
		st = config_int(config, "no_rope_layer_interval", 4094, 0, &every, path, err);
	if (!st && n && n != m->n_layers)
		st = ar_fail(err, AR_DATA,
			     "%s: 'no_rope_layers' has %d entries, but num_hidden_layers is %d",
			     path, n, m->n_layers);
	for (int i = 0; i < m->n_layers && !st; i++) {
		turns = (i + 1) % every != 0;
		if (n && !json_int(cJSON_GetArrayItem(list, i), 0, 1, &turns))
			st = ar_fail(err, AR_DATA, "%s: want 0 or 1 in 'no_rope_layers'", path);
		m->layer[i].mixer = turns ? MIX_CHUNK : MIX_FULL;
		m->layer[i].window = turns ? chunk : 0;
		if (!turns)
			m->layer[i].rotary_dim = 0;
	}
	return st;
}

static enum ar_status llama4_read(struct model *m, const cJSON *config, const char *path,
				  struct ar_err *err)
{
	int step, dense = m->layer->ffn;
	enum ar_status st = read_attention(m, config, path, err);

	config_get(config, "use_qk_norm"); /* it changes no shape: the norms have no weights */

	if (!st)
		st = config_int(config, "interleave_moe_layer_step", 4094, 0, &step, path, err);
	if (!st && config_has(config, "intermediate_size_mlp"))
		st = config_int(config, "intermediate_size_mlp", 1 << 24, 0, &dense, path, err);
	for (int i = 0; i < m->n_layers && !st; i++) {
		struct layer_spec *l = &m->layer[i];

		if (!l->n_experts || (i + 1) % step) {
			layer_make_dense(l, dense);
		} else {
			l->shared_ffn = l->ffn;
			l->router.scoring = ROUTER_SIGMOID;
		}
	}
	return st;
}

extern const struct arch arch_llama4;
const struct arch arch_llama4 = {
	.name = "llama4",
	.hf_names = hf_names,
	.defaults = defaults,
	.read = llama4_read,
};
