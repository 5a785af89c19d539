/* SPDX-License-Identifier: Apache-2.0 */
/* Weights of Hugging Face folders: types and shards that are read, and folders that are refused. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/weights.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"
#include "tests/tiny_model.h"

static char dir[] = "/tmp/t-weights-XXXXXX";
static struct tiny_weights tw;

static void drop(const char *name)
{
	char path[96];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	remove(path);
}

static void clean(void)
{
	drop("config.json");
	drop("model.safetensors");
	drop("model.safetensors.index.json");
	drop("shard-0.safetensors");
	drop("shard-1.safetensors");
	drop("shard-2.safetensors");
}

static void write_text(const char *name, const char *text)
{
	char path[96];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	file_write(path, text, strlen(text));
}

/* A folder of the model, not yet changed. */
static void begin(const struct tiny *m)
{
	clean();
	tiny_make(&tw, m);
	tiny_config(dir, m);
}

/* ---- what is read ---- */

static bool equal(const bf16_t *got, const float *want, int n)
{
	for (int i = 0; i < n; i++)
		if (!got || bf16_to_f32(got[i]) != want[i])
			return false;
	return true;
}

static void check_values(const struct weights *w, const char *what)
{
	const int q = 96, kv = 32; /* of the first model */
	const bf16_t *const *l = w->layer[2];

	ok(equal(w->embed, tiny_value(&tw, -1, "model.embed_tokens.weight"), 70 * 32) &&
		   equal(w->norm, tiny_value(&tw, -1, "model.norm.weight"), 32) &&
		   equal(w->head, tiny_value(&tw, -1, "lm_head.weight"), 70 * 32),
	   "%s: embeddings, norm and head", what);
	ok(equal(l[WEIGHT_Q], tiny_value(&tw, 2, "self_attn.q_proj.weight"), q * 32) &&
		   equal(l[WEIGHT_Q] + q * 32, tiny_value(&tw, 2, "self_attn.k_proj.weight"),
			 kv * 32) &&
		   equal(l[WEIGHT_Q] + (q + kv) * 32, tiny_value(&tw, 2, "self_attn.v_proj.weight"),
			 kv * 32) &&
		   equal(l[WEIGHT_Q_BIAS] + q, tiny_value(&tw, 2, "self_attn.k_proj.bias"), kv),
	   "... Q, K and V are one matrix, with one bias");
	ok(equal(l[WEIGHT_GATE] + 48 * 32, tiny_value(&tw, 2, "mlp.up_proj.weight"), 48 * 32) &&
		   equal(l[WEIGHT_DOWN], tiny_value(&tw, 2, "mlp.down_proj.weight"), 48 * 32) &&
		   equal(l[WEIGHT_MLP_NORM], tiny_value(&tw, 2, "post_attention_layernorm.weight"),
			 32) &&
		   !l[WEIGHT_ATTN_POST] && !l[WEIGHT_Q_NORM],
	   "... gate and up are one matrix; there is nothing else");
}

static void test_types(void)
{
	static const char *const types[] = { "BF16", "F16", "F32" };
	struct ar_err err = { 0 };
	struct weights w;

	for (int i = 0; i < 3; i++) {
		begin(&tiny_models[0]);
		for (int k = 0; k < tw.n; k++)
			tw.t[k].type = types[i];
		tiny_write(dir, &tw, 1);
		if (ok(!weights_open(&w, dir, &err), "%s is read: %s", types[i], err.msg))
			check_values(&w, types[i]);
		weights_release(&w);
		tiny_free(&tw);
	}
	begin(&tiny_models[0]);
	for (int k = 0; k < tw.n; k++)
		tw.t[k].file = k % 3;
	tiny_write(dir, &tw, 3);
	if (ok(!weights_open(&w, dir, &err), "three shards: %s", err.msg))
		check_values(&w, "shards");
	weights_release(&w);
	tiny_free(&tw);
}

/* Small and special values of F16, and F32 that bf16 cannot hold. */
static void test_rounding(void)
{
	static const float half[] = { 0.5f, -2, 0.0009765625f, 0, -0.0009765625f };
	struct ar_err err = { 0 };
	struct weights w;
	struct tiny_tensor *norm;

	begin(&tiny_models[0]);
	norm = tiny_find(&tw, "model.norm.weight");
	norm->type = "F32";
	norm->value[0] = 1 + 1.f / 1024;
	norm->value[1] = -3e38f;
	tiny_find(&tw, "lm_head.weight")->type = "F16";
	memcpy(tiny_find(&tw, "lm_head.weight")->value, half, sizeof half);
	tiny_write(dir, &tw, 1);
	if (ok(!weights_open(&w, dir, &err), "a mix of types: %s", err.msg))
		ok(bf16_to_f32(w.norm[0]) == 1 && bf16_to_f32(w.norm[1]) < -2.9e38f &&
			   equal(w.head, half, 5),
		   "... what bf16 cannot hold is rounded");
	weights_release(&w);
	tiny_free(&tw);
}

static void test_tied(void)
{
	struct ar_err err = { 0 };
	struct weights w;

	begin(&tiny_models[4]);
	tiny_write(dir, &tw, 1);
	ok(!weights_open(&w, dir, &err) && w.head == w.embed && w.layer[1][WEIGHT_ATTN_POST] &&
		   w.layer[1][WEIGHT_MLP_POST] && w.model.norm_plus_one,
	   "a tied head is the embeddings: %s", err.msg);
	weights_release(&w);
	for (int k = 0; k < tw.n; k++) {
		char name[sizeof tw.t[k].name];

		snprintf(name, sizeof name, "language_model.%.60s", tw.t[k].name);
		strcpy(tw.t[k].name, name);
	}
	tiny_write(dir, &tw, 1);
	ok(!weights_open(&w, dir, &err) && w.head == w.embed,
	   "the language part of a multimodal model is found: %s", err.msg);
	weights_release(&w);
	tiny_free(&tw);
}

/* ---- what is refused ---- */

static void refused(const char *message)
{
	struct ar_err err = { 0 };
	struct weights w;
	enum ar_status st = weights_open(&w, dir, &err);

	ok(st == AR_DATA && strstr(err.msg, message) && strstr(err.msg, dir) && !w.data,
	   "refused: %s", err.msg);
	if (!strstr(err.msg, message))
		diag("want: %s", message);
	weights_release(&w);
	tiny_free(&tw);
}

static void test_tensors(void)
{
	struct tiny_tensor *t;

	begin(&tiny_models[0]);
	strcpy(tiny_find(&tw, "model.layers.1.mlp.up_proj.weight")->name, "other");
	tiny_write(dir, &tw, 1);
	refused("no tensor 'model.layers.1.mlp.up_proj.weight'; the folder is incomplete");
	begin(&tiny_models[0]);
	tw.n--;
	free(tw.t[tw.n].value);
	tiny_write(dir, &tw, 1);
	refused("no tensor 'lm_head.weight'");
	begin(&tiny_models[0]);
	strcpy(tw.t[0].name, "other");
	tiny_write(dir, &tw, 1);
	refused("no tensor 'model.embed_tokens.weight'");
	begin(&tiny_models[0]);
	t = tiny_find(&tw, "model.layers.2.mlp.down_proj.weight");
	t->rows = 48;
	t->cols = 32;
	tiny_write(dir, &tw, 1);
	refused("model.safetensors: tensor 'model.layers.2.mlp.down_proj.weight' is [48, 32]; "
		"config.json asks for [32, 48]");
	begin(&tiny_models[0]);
	tiny_find(&tw, "model.norm.weight")->rows = 31;
	tiny_write(dir, &tw, 1);
	refused("tensor 'model.norm.weight' is [31]; config.json asks for [32]");
	begin(&tiny_models[0]);
	tiny_find(&tw, "model.layers.0.input_layernorm.weight")->type = "I16";
	tiny_write(dir, &tw, 1);
	refused("tensor 'model.layers.0.input_layernorm.weight' is I16; want BF16, F16 or F32");
	for (int i = 0; i < 3; i++) {
		begin(&tiny_models[0]);
		t = tiny_find(&tw, "model.layers.0.self_attn.k_proj.weight");
		t->type = i ? "F32" : "BF16";
		t->value[7] = i < 2 ? NAN : INFINITY;
		tiny_write(dir, &tw, 1);
		refused("model.safetensors: tensor 'model.layers.0.self_attn.k_proj.weight': value "
			"7 is not finite");
	}
	begin(&tiny_models[3]);
	write_text("config.json", "{\"model_type\":\"llama\",\"hidden_size\":32,"
				  "\"intermediate_size\":48,\"vocab_size\":70,"
				  "\"num_hidden_layers\":3,\"num_attention_heads\":4,"
				  "\"num_key_value_heads\":1,\"head_dim\":16}");
	tiny_write(dir, &tw, 1);
	refused("tensor 'model.layers.0.self_attn.k_norm.weight' has no place in the model");
}

static void test_shards(void)
{
	begin(&tiny_models[0]);
	refused("model.safetensors: No such file or directory");
	begin(&tiny_models[0]);
	tw.t[3].file = 1;
	tiny_write(dir, &tw, 2);
	drop("shard-1.safetensors");
	refused("shard-1.safetensors: No such file or directory");
	begin(&tiny_models[0]);
	tw.t[3].file = 1;
	strcpy(tw.t[3].name, tw.t[2].name);
	tiny_write(dir, &tw, 2);
	refused("is in ");
	begin(&tiny_models[0]);
	write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":\"../b\"}}");
	refused("index.json: tensor 'a': want the name of a file in this folder");
	begin(&tiny_models[0]);
	write_text("model.safetensors.index.json", "{\"weight_map\":{\"a\":5}}");
	refused("index.json: tensor 'a': want the name of a file in this folder");
	begin(&tiny_models[0]);
	write_text("model.safetensors.index.json", "{}");
	refused("index.json: want an object as 'weight_map'");
	begin(&tiny_models[0]);
	write_text("model.safetensors.index.json", "{\n");
	refused("index.json:2: ");
	begin(&tiny_models[0]);
	write_text("model.safetensors", "{");
	refused("model.safetensors: ");
	begin(&tiny_models[0]);
	drop("config.json");
	refused("config.json: No such file or directory");
}

static void test_archs(void)
{
	static const struct {
		const char *keys, *message;
	} cases[] = {
		{ "\"model_type\":\"gpt_oss\",\"sliding_window\":4",
		  "config.json: weights of architecture 'gpt_oss' "
		  "are not known" },
		{ "\"model_type\":\"qwen3_next\",\"linear_num_key_heads\":2,"
		  "\"linear_num_value_heads\":2,\"linear_key_head_dim\":16,"
		  "\"linear_value_head_dim\":16,\"linear_conv_kernel_dim\":4",
		  "weights of architecture 'qwen3_next' are not known" },
		{ "\"model_type\":\"qwen3_moe\",\"num_experts\":4,\"num_experts_per_tok\":2,"
		  "\"moe_intermediate_size\":16",
		  "weights of architecture 'qwen3' with experts are not known; give a dense" },
		{ "\"model_type\":\"gemma3_text\",\"sliding_window\":4,\"attention_bias\":true",
		  "config.json: a bias that the architecture's weights do not have" },
		{ "\"model_type\":\"llama\",\"rms_norm_eps\":2",
		  "config.json: want a number from 0 to 1 as 'rms_norm_eps'" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char text[1024];

		begin(&tiny_models[0]);
		snprintf(text, sizeof text,
			 "{\"hidden_size\":32,\"intermediate_size\":48,\"vocab_size\":70,"
			 "\"num_hidden_layers\":2,\"num_attention_heads\":6,"
			 "\"num_key_value_heads\":2,\"head_dim\":16,%s}",
			 cases[i].keys);
		write_text("config.json", text);
		tiny_write(dir, &tw, 1);
		refused(cases[i].message);
	}
}

static void test_faults(void)
{
	struct weights w;
	int bad = 0;
	long k = 0;

	begin(&tiny_models[0]);
	tw.t[3].file = 1;
	tiny_write(dir, &tw, 2);
	for (bool failed = true; failed; k += fault_stride(31)) {
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(k);
		st = weights_open(&w, dir, &err);
		failed = fault_disarm();
		if (st != (failed ? AR_NOMEM : AR_OK)) {
			diag("allocation %ld: %s", k, err.msg);
			bad++;
		}
		weights_release(&w);
	}
	ok(!bad && k > 50, "each of %ld allocations fails cleanly", k);
	tiny_free(&tw);
}

int main(void)
{
	if (!mkdtemp(dir))
		bail_out("no folder");
	plan(0);
	test_types();
	test_rounding();
	test_tied();
	test_tensors();
	test_shards();
	test_archs();
	test_faults();
	clean();
	rmdir(dir);
	return done_testing();
}
