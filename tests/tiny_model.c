/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/tiny_model.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/bf16.h"
#include "base/rng.h"
#include "tests/file.h"
#include "tests/tap.h"

const struct tiny tiny_models[TINY_MODELS] = {
	{ .what = "llama",
	  .config = "\"model_type\":\"llama\",\"attention_bias\":true,\"rope_theta\":500,"
		    "\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
		    "\"low_freq_factor\":1,\"high_freq_factor\":4,"
		    "\"original_max_position_embeddings\":16}",
	  .heads = 6,
	  .kv_heads = 2,
	  .dim = 16,
	  .bias = true,
	  .o_bias = true },
	{ .what = "mistral",
	  .config = "\"model_type\":\"mistral\",\"sliding_window\":7",
	  .heads = 4,
	  .kv_heads = 2,
	  .dim = 8,
	  .window = 7 },
	{ .what = "qwen2",
	  .config = "\"model_type\":\"qwen2\",\"tie_word_embeddings\":true",
	  .heads = 4,
	  .kv_heads = 4,
	  .dim = 8,
	  .bias = true,
	  .tied = true },
	{ .what = "qwen3",
	  .config = "\"model_type\":\"qwen3\",\"rope_scaling\":{\"rope_type\":\"yarn\","
		    "\"factor\":4,\"original_max_position_embeddings\":16}",
	  .heads = 4,
	  .kv_heads = 1,
	  .dim = 16,
	  .qk_norm = true },
	{ .what = "gemma3",
	  .config = "\"model_type\":\"gemma3_text\",\"sliding_window\":6,"
		    "\"sliding_window_pattern\":2,\"query_pre_attn_scalar\":24,"
		    "\"hidden_activation\":\"gelu_pytorch_tanh\",\"rope_theta\":1000,"
		    "\"rope_local_base_freq\":50",
	  .heads = 4,
	  .kv_heads = 2,
	  .dim = 16,
	  .window = 6,
	  .every = 2,
	  .scale = 0.20412414523193154,
	  .qk_norm = true,
	  .gemma = true,
	  .tied = true },
};

static int vocab_of(const struct tiny *m)
{
	return m->vocab ? m->vocab : TINY_VOCAB;
}

/* ---- values ---- */

static void add(struct tiny_weights *w, int layer, const char *name, int rows, int cols,
		double mean, double deviation)
{
	struct tiny_tensor *t = &w->t[w->n];
	struct rng r = { (uint64_t)w->n + 77 };
	size_t n = (size_t)rows * (size_t)(cols ? cols : 1);

	if (w->n++ == TINY_MAX)
		bail_out("too many tensors");
	if (layer < 0)
		snprintf(t->name, sizeof t->name, "%s", name);
	else
		snprintf(t->name, sizeof t->name, "model.layers.%d.%s", layer, name);
	t->type = "BF16";
	t->rows = rows;
	t->cols = cols;
	t->file = 0;
	t->value = calloc(n, sizeof *t->value);
	for (size_t i = 0; i < n; i++) {
		float x = (float)(mean + deviation * (double)rng_normal(&r));

		/* A multiple of 2^-10 is exact in f16, too. */
		t->value[i] = bf16_round(roundf(bf16_round(x) * 1024) / 1024);
	}
}

static void add_layer(struct tiny_weights *w, const struct tiny *m, int i)
{
	const int q = m->heads * m->dim, kv = m->kv_heads * m->dim;
	const double norm = m->gemma ? 0 : 1, matrix = 0.17;

	add(w, i, "input_layernorm.weight", TINY_HIDDEN, 0, norm, 0.2);
	add(w, i, "self_attn.q_proj.weight", q, TINY_HIDDEN, 0, 2 * matrix);
	add(w, i, "self_attn.k_proj.weight", kv, TINY_HIDDEN, 0, 2 * matrix);
	add(w, i, "self_attn.v_proj.weight", kv, TINY_HIDDEN, 0, matrix);
	add(w, i, "self_attn.o_proj.weight", TINY_HIDDEN, q, 0, matrix);
	add(w, i, "post_attention_layernorm.weight", TINY_HIDDEN, 0, norm, 0.2);
	add(w, i, "mlp.gate_proj.weight", TINY_FFN, TINY_HIDDEN, 0, matrix);
	add(w, i, "mlp.up_proj.weight", TINY_FFN, TINY_HIDDEN, 0, matrix);
	add(w, i, "mlp.down_proj.weight", TINY_HIDDEN, TINY_FFN, 0, matrix);
	if (m->bias) {
		add(w, i, "self_attn.q_proj.bias", q, 0, 0, 0.5);
		add(w, i, "self_attn.k_proj.bias", kv, 0, 0, 0.5);
		add(w, i, "self_attn.v_proj.bias", kv, 0, 0, 0.5);
	}
	if (m->o_bias)
		add(w, i, "self_attn.o_proj.bias", TINY_HIDDEN, 0, 0, 0.5);
	if (m->mlp_bias) {
		add(w, i, "mlp.gate_proj.bias", TINY_FFN, 0, 0, 0.5);
		add(w, i, "mlp.up_proj.bias", TINY_FFN, 0, 0, 0.5);
		add(w, i, "mlp.down_proj.bias", TINY_HIDDEN, 0, 0, 0.5);
	}
	if (m->qk_norm) {
		add(w, i, "self_attn.q_norm.weight", m->dim, 0, norm, 0.3);
		add(w, i, "self_attn.k_norm.weight", m->dim, 0, norm, 0.3);
	}
	if (m->gemma) {
		add(w, i, "pre_feedforward_layernorm.weight", TINY_HIDDEN, 0, 0, 0.2);
		add(w, i, "post_feedforward_layernorm.weight", TINY_HIDDEN, 0, 0, 0.2);
	}
}

void tiny_make(struct tiny_weights *w, const struct tiny *m)
{
	w->n = 0;
	add(w, -1, "model.embed_tokens.weight", vocab_of(m), TINY_HIDDEN, 0, 0.5);
	for (int i = 0; i < TINY_LAYERS; i++)
		add_layer(w, m, i);
	add(w, -1, "model.norm.weight", TINY_HIDDEN, 0, m->gemma ? 0 : 1, 0.2);
	if (!m->tied)
		add(w, -1, "lm_head.weight", vocab_of(m), TINY_HIDDEN, 0, 0.3);
}

void tiny_free(struct tiny_weights *w)
{
	for (int i = 0; i < w->n; i++)
		free(w->t[i].value);
	w->n = 0;
}

struct tiny_tensor *tiny_find(struct tiny_weights *w, const char *name)
{
	for (int i = 0; i < w->n; i++)
		if (!strcmp(w->t[i].name, name))
			return &w->t[i];
	bail_out("no tensor %s", name);
}

const float *tiny_value(struct tiny_weights *w, int layer, const char *name)
{
	char full[80];

	snprintf(full, sizeof full, "model.layers.%d.%s", layer, name);
	return tiny_find(w, layer < 0 ? name : full)->value;
}

/* ---- files ---- */

static uint16_t f16_from(float x)
{
	uint32_t u;
	int exponent;

	memcpy(&u, &x, sizeof u);
	exponent = (int)(u >> 23 & 255) - 112;
	if (fabsf(x) < 6.103515625e-5f) /* below the normal numbers */
		return (uint16_t)(u >> 16 & 0x8000);
	return (uint16_t)((u >> 16 & 0x8000) | (uint32_t)exponent << 10 | (u >> 13 & 1023));
}

static size_t put_value(unsigned char *to, const char *type, float x)
{
	bf16_t b = bf16_from_f32(x);
	uint16_t h = f16_from(x);

	if (!strcmp(type, "F32"))
		memcpy(to, &x, sizeof x);
	else
		memcpy(to, strcmp(type, "F16") ? &b : &h, sizeof b);
	return strcmp(type, "F32") ? sizeof b : sizeof x;
}

static void write_file(const char *path, const struct tiny_weights *w, int file)
{
	const size_t room = 1 << 20;
	char *head = malloc(room / 16);
	unsigned char *data = malloc(room), *all;
	size_t n = 0, len = 1;

	strcpy(head, "{");
	for (int i = 0; i < w->n; i++) {
		const struct tiny_tensor *t = &w->t[i];
		size_t from = n, count = (size_t)t->rows * (size_t)(t->cols ? t->cols : 1);
		char dims[32];

		if (t->file != file)
			continue;
		for (size_t k = 0; k < count; k++)
			n += put_value(data + n, t->type, t->value[k]);
		snprintf(dims, sizeof dims, t->cols ? "%d,%d" : "%d", t->rows, t->cols);
		len += (size_t)snprintf(
			head + len, room / 16 - len,
			"%s\"%s\":{\"dtype\":\"%s\",\"shape\":[%s],\"data_offsets\":[%zu,%zu]}",
			len > 1 ? "," : "", t->name, t->type, dims, from, n);
	}
	strcpy(head + len++, "}");
	all = calloc(1, 8 + len + n);
	for (int i = 0; i < 8; i++)
		all[i] = (unsigned char)(len >> 8 * i);
	memcpy(all + 8, head, len);
	memcpy(all + 8 + len, data, n);
	file_write(path, all, 8 + len + n);
	free(all);
	free(data);
	free(head);
}

void tiny_config(const char *dir, const struct tiny *m)
{
	char path[256], text[1024];
	int n = snprintf(text, sizeof text,
			 "{\"hidden_size\":%d,\"intermediate_size\":%d,\"vocab_size\":%d,"
			 "\"num_hidden_layers\":%d,\"num_attention_heads\":%d,"
			 "\"num_key_value_heads\":%d,\"head_dim\":%d,\"rms_norm_eps\":1e-5,"
			 "\"max_position_embeddings\":64,%s%s}",
			 TINY_HIDDEN, TINY_FFN, vocab_of(m), TINY_LAYERS, m->heads, m->kv_heads,
			 m->dim, m->mlp_bias ? "\"mlp_bias\":true," : "", m->config);

	snprintf(path, sizeof path, "%s/config.json", dir);
	file_write(path, text, (size_t)n);
}

void tiny_write(const char *dir, const struct tiny_weights *w, int files)
{
	char path[256], *index = malloc(1 << 14);
	size_t n = (size_t)sprintf(index, "{\"weight_map\":{");

	snprintf(path, sizeof path, "%s/model.safetensors", dir);
	if (files == 1)
		write_file(path, w, 0);
	for (int i = 0; i < files && files > 1; i++) {
		snprintf(path, sizeof path, "%s/shard-%d.safetensors", dir, i);
		write_file(path, w, i);
	}
	for (int i = 0; i < w->n; i++)
		n += (size_t)sprintf(index + n, "%s\"%s\":\"shard-%d.safetensors\"", i ? "," : "",
				     w->t[i].name, w->t[i].file);
	n += (size_t)sprintf(index + n, "}}");
	snprintf(path, sizeof path, "%s/model.safetensors.index.json", dir);
	if (files > 1)
		file_write(path, index, n);
	free(index);
}

void tiny_folder(const char *dir, const struct tiny *m)
{
	struct tiny_weights w;

	tiny_make(&w, m);
	tiny_config(dir, m);
	tiny_write(dir, &w, 1);
	tiny_free(&w);
}

void tiny_remove(const char *dir)
{
	static const char *const names[] = { "config.json", "model.safetensors" };
	char path[256];

	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		remove(path);
	}
}
