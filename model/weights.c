/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "model/weights.h"

#include <cjson/cJSON.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/available.h"
#include "base/json.h"
#include "base/parallel.h"
#include "base/safetensors.h"
#include "model/arch.h"
#include "model/layer_gap.h"
#include "model/quant.h"
#include "model/shards.h"

const char *const weights_llama[WEIGHTS] = {
	[WEIGHT_ATTN_NORM] = "input_layernorm.weight",
	[WEIGHT_Q] = "self_attn.q_proj.weight",
	[WEIGHT_K] = "self_attn.k_proj.weight",
	[WEIGHT_V] = "self_attn.v_proj.weight",
	[WEIGHT_Q_BIAS] = "self_attn.q_proj.bias",
	[WEIGHT_K_BIAS] = "self_attn.k_proj.bias",
	[WEIGHT_V_BIAS] = "self_attn.v_proj.bias",
	[WEIGHT_Q_NORM] = "self_attn.q_norm.weight",
	[WEIGHT_K_NORM] = "self_attn.k_norm.weight",
	[WEIGHT_O] = "self_attn.o_proj.weight",
	[WEIGHT_O_BIAS] = "self_attn.o_proj.bias",
	[WEIGHT_MLP_NORM] = "post_attention_layernorm.weight",
	[WEIGHT_GATE] = "mlp.gate_proj.weight",
	[WEIGHT_UP] = "mlp.up_proj.weight",
	[WEIGHT_GATE_BIAS] = "mlp.gate_proj.bias",
	[WEIGHT_UP_BIAS] = "mlp.up_proj.bias",
	[WEIGHT_DOWN] = "mlp.down_proj.weight",
	[WEIGHT_DOWN_BIAS] = "mlp.down_proj.bias",
};

const char *const weights_gemma3[WEIGHTS] = {
	[WEIGHT_ATTN_NORM] = "input_layernorm.weight",
	[WEIGHT_Q] = "self_attn.q_proj.weight",
	[WEIGHT_K] = "self_attn.k_proj.weight",
	[WEIGHT_V] = "self_attn.v_proj.weight",
	[WEIGHT_Q_NORM] = "self_attn.q_norm.weight",
	[WEIGHT_K_NORM] = "self_attn.k_norm.weight",
	[WEIGHT_O] = "self_attn.o_proj.weight",
	[WEIGHT_ATTN_POST] = "post_attention_layernorm.weight",
	[WEIGHT_MLP_NORM] = "pre_feedforward_layernorm.weight",
	[WEIGHT_GATE] = "mlp.gate_proj.weight",
	[WEIGHT_UP] = "mlp.up_proj.weight",
	[WEIGHT_DOWN] = "mlp.down_proj.weight",
	[WEIGHT_MLP_POST] = "post_feedforward_layernorm.weight",
};

/* Where models keep the decoder: alone, or as the language part of a multimodal model. */
static const char *const prefixes[] = { "model.", "language_model.model.", "model.language_model.",
					NULL };

struct reading {
	struct weights *w;	  /* with the model of a rank */
	struct layer_spec *whole; /* [n_layers] of the whole model, owned */
	int rank;
	struct shards shards;
	const char *dir, *prefix;
	const char *const *names;
	size_t at;	  /* values that were placed */
	size_t *layer_at; /* [n_layers] where the values of each layer begin, owned */
	bool load;	  /* false: only check and count */
};

/* The first row or column of the rank's share, of n in all.  Ranks have the same ones where nothing
 * is divided, and where there are fewer KV heads than ranks. */
static int64_t first_of(const struct reading *r, int64_t n, int64_t share)
{
	return share ? r->rank * (n / share) / r->w->model.tp * share : 0;
}

/* Check the tensor, or read the rank's share of it to the next place in data, *to. */
static enum ar_status take_tensor(struct reading *r, const char *name, struct tensor_shape whole,
				  struct tensor_shape share, const bf16_t **to, struct ar_err *err)
{
	const struct shard_part part = { first_of(r, whole.rows, share.rows), share.rows,
					 first_of(r, whole.cols, share.cols), share.cols };
	struct shard_tensor *t = whole.rows ? shards_find(&r->shards, name) : NULL;
	bf16_t *place = r->load ? r->w->data + r->at : NULL;
	enum ar_status st;

	if (!whole.rows)
		return AR_OK;
	if (!t)
		return ar_fail(err, AR_DATA,
			       "%s: no tensor '%s'; the folder is incomplete or of another "
			       "architecture than its config.json says",
			       r->dir, name);
	r->at += tensor_count(share);
	if (!r->load)
		return shards_check(t, whole.rows, whole.cols, err);
	st = shards_read(t, &part, place, err);
	*to = place;
	return st;
}

/* The sum over ranks has each bias once. */
static void clear_bias(struct reading *r, enum weight i, struct tensor_shape share)
{
	if (r->load && r->rank && (i == WEIGHT_O_BIAS || i == WEIGHT_DOWN_BIAS))
		memset(r->w->data + r->at - tensor_count(share), 0,
		       tensor_count(share) * sizeof *r->w->data);
}

static enum ar_status take_layer(struct reading *r, int i, struct ar_err *err)
{
	const struct model *m = &r->w->model;
	enum ar_status st = AR_OK;
	char name[128];

	for (int k = 0; k < WEIGHTS && !st; k++) {
		struct tensor_shape whole = layer_tensor(m, &r->whole[i], (enum weight)k);
		struct tensor_shape share = layer_tensor(m, &m->layer[i], (enum weight)k);

		if (whole.rows && !r->names[k])
			return ar_fail(err, AR_DATA,
				       "%s/config.json: a bias that the architecture's weights "
				       "do not have",
				       r->dir);
		snprintf(name, sizeof name, "%slayers.%d.%s", r->prefix, i,
			 r->names[k] ? r->names[k] : "");
		st = take_tensor(r, name, whole, share, &r->w->layer[i][k], err);
		clear_bias(r, (enum weight)k, share);
	}
	return st;
}

/* The head stands beside the decoder: "model.norm.weight", but "lm_head.weight". */
static enum ar_status take_outside(struct reading *r, struct ar_err *err)
{
	struct weights *w = r->w;
	const struct model *m = &w->model;
	const struct tensor_shape share = { m->vocab, m->hidden }, vector = { m->hidden, 0 };
	const struct tensor_shape whole = { (int64_t)m->vocab * m->tp, m->hidden };
	enum ar_status st;
	char name[128];

	r->at = 0;
	snprintf(name, sizeof name, "%sembed_tokens.weight", r->prefix);
	st = take_tensor(r, name, whole, whole, &w->embed, err);
	snprintf(name, sizeof name, "%snorm.weight", r->prefix);
	st = st ? st : take_tensor(r, name, vector, vector, &w->norm, err);
	w->head = r->load ? w->embed + first_of(r, whole.rows, share.rows) * m->hidden : NULL;
	snprintf(name, sizeof name, "%slm_head.weight",
		 strncmp(r->prefix, "language_model.", 15) ? "" : "language_model.");
	return st || m->tied ? st : take_tensor(r, name, whole, share, &w->head, err);
}

/* Check all tensors, and find where each layer begins. */
static enum ar_status check_all(struct reading *r, struct ar_err *err)
{
	enum ar_status st = take_outside(r, err);

	for (int i = 0; i < r->w->model.n_layers && !st; i++) {
		r->layer_at[i] = r->at;
		st = take_layer(r, i, err);
	}
	return st;
}

/* Read a part of the weights: part 0 is all outside of layers, the largest; part i, layer i - 1. */
static enum ar_status load_part(void *ctx, int part, struct ar_err *err)
{
	struct reading own = *(const struct reading *)ctx;

	if (!part)
		return take_outside(&own, err);
	own.at = own.layer_at[part - 1];
	return take_layer(&own, part - 1, err);
}

/* A tensor of a layer that nothing asks for would be left out of the computation. */
static enum ar_status check_rest(const struct reading *r, struct ar_err *err)
{
	size_t n = strlen(r->prefix);
	const struct shard_tensor *t;

	for (size_t i = 0; (t = shards_at(&r->shards, i)); i++)
		if (!t->asked && !strncmp(t->t->name, r->prefix, n) &&
		    !strncmp(t->t->name + n, "layers.", 7) && !strstr(t->t->name, ".rotary_emb."))
			return ar_fail(err, AR_DATA,
				       "%s: tensor '%.96s' has no place in the model that "
				       "config.json describes",
				       t->path, t->t->name);
	return AR_OK;
}

/* Set the table of names. */
static enum ar_status find_names(struct reading *r, struct ar_err *err)
{
	const struct model *m = &r->w->model;
	cJSON *config = json_parse_all(m->json, NULL);
	const struct arch *a;
	enum ar_status st;

	if (!config) /* it was parsed before */
		return ar_nomem(err);
	st = arch_find(&a, config, r->dir, err);
	cJSON_Delete(config);
	if (st)
		return st;
	r->names = a->weights;
	if (a->weights && !m->layer[0].n_experts)
		return AR_OK;
	return ar_fail(err, AR_DATA,
		       "%s/config.json: weights of architecture '%s'%s are not known; give a "
		       "dense model such as Llama, Mistral, Qwen2, Qwen3 or Gemma 3",
		       r->dir, a->name, m->layer[0].n_experts ? " with experts" : "");
}

static enum ar_status weights_begin(struct reading *r, struct ar_err *err)
{
	char name[128];
	int i = 0;
	enum ar_status st = find_names(r, err);

	if (st)
		return st;
	do {
		r->prefix = prefixes[i++];
		snprintf(name, sizeof name, "%sembed_tokens.weight", r->prefix);
	} while (prefixes[i] && !shards_find(&r->shards, name));
	if (!shards_find(&r->shards, name))
		r->prefix = prefixes[0];
	r->w->layer = calloc((size_t)r->w->model.n_layers, sizeof *r->w->layer);
	r->layer_at = calloc((size_t)r->w->model.n_layers, sizeof *r->layer_at);
	return r->w->layer && r->layer_at ? AR_OK : ar_nomem(err);
}

static enum ar_status read_all(struct reading *r, struct ar_err *err)
{
	enum ar_status st = weights_begin(r, err);
	double need, have;

	if (!st)
		st = check_all(r, err);
	if (!st)
		st = check_rest(r, err);
	if (st)
		return st;
	r->w->n = r->at;
	need = (double)r->at * sizeof *r->w->data;
	have = memory_available();
	if (need > have)
		return ar_fail(
			err, AR_NOMEM,
			"%s: the weights need %.1f GiB, but %.1f GiB of memory are available",
			r->dir, need / 0x1p30, have / 0x1p30);
	r->w->data = malloc(r->at * sizeof *r->w->data);
	if (!r->w->data)
		return ar_nomem(err);
	r->load = true;
	return parallel_each(r->w->model.n_layers + 1, load_part, r, err);
}

/* Split the model, and keep the layers as they were. */
static enum ar_status split_model(struct reading *r, int tp, struct ar_err *err)
{
	struct model *m = &r->w->model;
	size_t bytes = (size_t)m->n_layers * sizeof *r->whole;

	r->whole = malloc(bytes);
	if (!r->whole)
		return ar_nomem(err);
	memcpy(r->whole, m->layer, bytes);
	return model_split(m, tp, err);
}

enum ar_status weights_open_rank(struct weights *w, const char *dir, int tp, int rank,
				 struct ar_err *err)
{
	struct reading r = { .w = w, .dir = dir, .rank = rank };
	enum ar_status st;

	*w = (struct weights){ 0 };
	st = model_load(&w->model, dir, err);
	if (!st)
		st = model_check_gap(&w->model, err);
	if (!st)
		st = model_set_formats(&w->model, NULL, NULL, err);
	if (!st)
		st = model_check_formats(&w->model, err);
	if (!st)
		st = split_model(&r, tp, err);
	if (!st)
		st = shards_open(&r.shards, dir, err);
	if (!st)
		st = read_all(&r, err);
	shards_close(&r.shards);
	free(r.layer_at);
	free(r.whole);
	if (st)
		weights_release(w);
	return st;
}

enum ar_status weights_open(struct weights *w, const char *dir, struct ar_err *err)
{
	return weights_open_rank(w, dir, 1, 0, err);
}

void weights_release(struct weights *w)
{
	model_release(&w->model);
	free(w->layer);
	free(w->data);
	*w = (struct weights){ 0 };
}
