/* SPDX-License-Identifier: Apache-2.0 */
/* Falcon-H1: each layer has a state-space mixer and attention side by side, then an MLP.  Here
 * these are two layers, the second beside the first: each has a KV cache of its own in an engine.
 * Source: Hugging Face Transformers 4.57, FalconH1Config. */
#include "config.h"
#include "model/arch.h"

#include <cjson/cJSON.h>
#include <stdlib.h>

#include "base/jsonval.h"

static const char *const hf_names[] = { "falcon_h1", "FalconH1ForCausalLM", NULL };

static const struct ssm_keys keys = {
	"mamba_n_heads", "mamba_d_head",     "mamba_n_groups",	"mamba_d_state",
	"mamba_d_conv",	 "mamba_chunk_size", "mamba_conv_bias", "mamba_proj_bias",
};

static enum ar_status falcon_h1_read(struct model *m, const cJSON *config, const char *path,
				     struct ar_err *err)
{
	int n = 2 * m->n_layers;
	struct layer_spec *both = malloc((size_t)n * sizeof *both);
	struct ssm_spec s;
	enum ar_status st = both ? config_ssm(&s, &keys, config, path, err) : ar_nomem(err);

	if (!st)
		st = config_real(config, "embedding_multiplier", 1, &m->embed_scale, path, err);
	if (st) {
		free(both);
		return st;
	}
	s.norm = config_true(config, "mamba_rms_norm");
	for (int i = 0; i < m->n_layers; i++) {
		both[2 * i] = both[2 * i + 1] = m->layer[i];
		both[2 * i].ffn = 0;
		layer_take_ssm(&both[2 * i], &s);
		both[2 * i + 1].beside = 1;
	}
	free(m->layer);
	m->layer = both;
	m->n_layers = n;
	return AR_OK;
}

extern const struct arch arch_falcon_h1;
const struct arch arch_falcon_h1 = {
	.name = "falcon_h1",
	.hf_names = hf_names,
	.read = falcon_h1_read,
};
