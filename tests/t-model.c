/* SPDX-License-Identifier: Apache-2.0 */
/* Models: presets, config files, tensor-parallel shares. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/data.h"
#include "base/log.h"
#include "model/arch.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

static char dir[] = "/tmp/t-model-XXXXXX";
static char path[64];

/* ---- presets ---- */

static void test_presets(void)
{
	struct ar_err err = { 0 };
	struct model m;

	ok(model_load(&m, "llama-3.1-8b", &err) == AR_OK && !strcmp(m.name, "llama-3.1-8b") &&
		   m.n_layers == 32 && m.hidden == 4096 && m.layer->q_heads == 32 &&
		   m.layer->kv_heads == 8 && m.layer->head_dim == 128 && m.layer->ffn == 14336 &&
		   m.layer->n_experts == 0 && m.layer->mixer == MIX_FULL && m.vocab == 128256 &&
		   m.max_len == 131072 && m.tp == 1,
	   "Llama-3.1-8B: %s", err.msg);
	ok(m.rope.theta == 500000 && m.rope.factor == 8 && m.rope.low_freq == 1 &&
		   m.rope.high_freq == 4 && m.rope.original_len == 8192,
	   "with llama3 RoPE scaling");
	ok(m.json && strstr(m.json, "\"LlamaForCausalLM\""), "and the config as it was read");
	model_release(&m);
	model_release(&m);
	ok(model_load(&m, "qwen3-30b-a3b", &err) == AR_OK && m.n_layers == 48 && m.hidden == 2048 &&
		   m.layer->q_heads == 32 && m.layer->kv_heads == 4 && m.layer->head_dim == 128 &&
		   m.layer->ffn == 768 && m.layer->n_experts == 128 &&
		   m.layer->experts_per_tok == 8 && m.vocab == 151936 && m.max_len == 262144 &&
		   m.rope.theta == 1e7 && m.rope.factor == 0,
	   "Qwen3-30B-A3B: %s", err.msg);
	model_release(&m);
	ok(model_load(&m, "niah-llama-14m", &err) == AR_OK && m.n_layers == 8 && m.hidden == 320 &&
		   m.layer->q_heads == 8 && m.layer->kv_heads == 2 && m.layer->head_dim == 128 &&
		   m.layer->ffn == 896 && m.vocab == 2048,
	   "niah-llama-14m: %s", err.msg);
	model_release(&m);
	ok(model_load(&m, "nope", &err) == AR_DATA && !m.json &&
		   strstr(err.msg, "nope: no such file and no preset"),
	   "an unknown preset");
	ok(model_load(&m, "../presets/llama-3.1-8b", &err) == AR_DATA,
	   "a preset's name is no path");
}

/* Values of the published config.json files.  folder: NULL for a preset. */
static const struct published {
	const char *name, *folder;
	int n_layers, hidden, q_heads, kv_heads, head_dim, ffn, n_experts, experts_per_tok, vocab;
	int max_len;
	double theta;
} published[] = {
	{ "llama-3.1-8b", NULL, 32, 4096, 32, 8, 128, 14336, 0, 0, 128256, 131072, 5e5 },
	{ "llama-3.1-70b", NULL, 80, 8192, 64, 8, 128, 28672, 0, 0, 128256, 131072, 5e5 },
	{ "mistral-7b-v0.3", NULL, 32, 4096, 32, 8, 128, 14336, 0, 0, 32768, 32768, 1e6 },
	{ "mixtral-8x7b", NULL, 32, 4096, 32, 8, 128, 14336, 8, 2, 32000, 32768, 1e6 },
	{ "qwen2.5-7b", NULL, 28, 3584, 28, 4, 128, 18944, 0, 0, 152064, 131072, 1e6 },
	{ "qwen3-8b", NULL, 36, 4096, 32, 8, 128, 12288, 0, 0, 151936, 40960, 1e6 },
	{ "qwen3-32b", NULL, 64, 5120, 64, 8, 128, 25600, 0, 0, 151936, 40960, 1e6 },
	{ "smollm2-135m", NULL, 30, 576, 9, 3, 64, 1536, 0, 0, 49152, 8192, 1e5 },
	{ "mistral-7b-v0.1", NULL, 32, 4096, 32, 8, 128, 14336, 0, 0, 32000, 32768, 1e4 },
	{ "mistral-small-3.1-24b", "tests/data/models", 40, 5120, 32, 8, 128, 32768, 0, 0, 131072,
	  131072, 1e9 },
	{ "phi-3-mini-4k", "tests/data/models", 32, 3072, 32, 32, 96, 8192, 0, 0, 32064, 4096,
	  1e4 },
};

static bool as_published(const struct model *m, const struct published *p)
{
	const struct layer_spec *l = m->layer;

	return m->n_layers == p->n_layers && m->hidden == p->hidden && l->q_heads == p->q_heads &&
	       l->kv_heads == p->kv_heads && l->head_dim == p->head_dim && l->ffn == p->ffn &&
	       l->n_experts == p->n_experts && l->experts_per_tok == p->experts_per_tok &&
	       m->vocab == p->vocab && m->max_len == p->max_len && m->rope.theta == p->theta &&
	       !model_odd_layer(m);
}

static void test_published(void)
{
	struct ar_err err = { 0 };
	struct model m;
	char file[512];

	for (size_t i = 0; i < sizeof published / sizeof *published; i++) {
		const struct published *p = &published[i];

		snprintf(file, sizeof file, "%s", p->name);
		if (p->folder)
			snprintf(file, sizeof file, "%s/%s/%s.json", getenv("ATTNREPLAY_DATA"),
				 p->folder, p->name);
		ok(model_load(&m, file, &err) == AR_OK && as_published(&m, p) &&
			   !strcmp(m.name, p->name),
		   "%s is as published: %s", p->name, err.msg);
		model_release(&m);
	}
}

static void test_data(void)
{
	char old[256], found[256], *env = getenv("ATTNREPLAY_DATA");

	snprintf(old, sizeof old, "%s", env ? env : "");
	snprintf(path, sizeof path, "%s/x", dir);
	setenv("ATTNREPLAY_DATA", dir, 1);
	file_write(path, "", 0);
	ok(data_find("x", found, sizeof found) && !strcmp(found, path),
	   "$ATTNREPLAY_DATA comes first");
	ok(!data_find("x", found, strlen(path)), "a name too long for its buffer is not found");
	unlink(path);
	ok(!data_find("x", found, sizeof found), "what is nowhere is not found");
	ok(data_find("t-model", found, sizeof found), "a file beside the program is found");
	setenv("ATTNREPLAY_DATA", old, 1);
}

/* ---- config files ---- */

static void put_text(const char *text)
{
	snprintf(path, sizeof path, "%s/c.json", dir);
	file_write(path, text, strlen(text));
}

static enum ar_status load_text(struct model *m, const char *text, struct ar_err *err)
{
	put_text(text);
	return model_load(m, path, err);
}

#define BASE \
	"\"num_hidden_layers\":2,\"hidden_size\":64,\"intermediate_size\":96," \
	"\"vocab_size\":100"

static void test_defaults(void)
{
	struct ar_err err = { 0 };
	struct model m;
	char sub[64];

	ok(load_text(&m, "{" BASE ",\"num_attention_heads\":4}", &err) == AR_OK &&
		   m.layer->kv_heads == 4 && m.layer->head_dim == 16 && m.rope.theta == 10000 &&
		   m.rope.factor == 0 && m.layer->n_experts == 0 && !strcmp(m.name, "c"),
	   "KV heads, head size and RoPE have defaults: %s", err.msg);
	model_release(&m);
	ok(load_text(&m,
		     "{" BASE ",\"num_attention_heads\":4,\"num_key_value_heads\":null,"
		     "\"head_dim\":null,\"rope_scaling\":null,\"sliding_window\":null}",
		     &err) == AR_OK &&
		   m.layer->kv_heads == 4,
	   "null is absent: %s", err.msg);
	model_release(&m);
	ok(load_text(&m,
		     "{" BASE ",\"num_attention_heads\":4,"
		     "\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":1e6}}",
		     &err) == AR_OK &&
		   m.rope.theta == 1e6,
	   "RoPE under rope_parameters: %s", err.msg);
	model_release(&m);
	ok(load_text(&m,
		     "{\"hidden_size\":7,\"model_type\":\"llama\",\"text_config\":{" BASE
		     ",\"num_attention_heads\":4}}",
		     &err) == AR_OK &&
		   m.hidden == 64 && m.layer->head_dim == 16 && strstr(m.json, "\"llama\""),
	   "the keys of text_config are those of the model: %s", err.msg);
	model_release(&m);
	ok(load_text(&m, "{" BASE ",\"num_attention_heads\":4,\"text_config\":null}", &err) ==
			   AR_OK &&
		   m.hidden == 64,
	   "but not if it is null: %s", err.msg);
	model_release(&m);
	ok(load_text(&m,
		     "{" BASE ",\"num_attention_heads\":4,\"num_local_experts\":8,"
		     "\"num_experts_per_tok\":2}",
		     &err) == AR_OK &&
		   m.layer->n_experts == 8 && m.layer->ffn == 96,
	   "experts of the full FFN width: %s", err.msg);
	model_release(&m);
	ok(load_text(&m,
		     "{" BASE ",\"num_attention_heads\":4,\"sliding_window\":32,"
		     "\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
		     &err) == AR_OK &&
		   model_odd_layer(&m) == 1 && m.layer[1].window == 32,
	   "layers with a window differ from those without");
	model_release(&m);
	snprintf(sub, sizeof sub, "%s/My-Model", dir);
	mkdir(sub, 0700);
	snprintf(sub, sizeof sub, "%s/My-Model/config.json", dir);
	rename(path, sub);
	ok(model_load(&m, sub, &err) == AR_OK && !strcmp(m.name, "My-Model"),
	   "config.json of a folder");
	model_release(&m);
	snprintf(sub, sizeof sub, "%s/My-Model//", dir);
	ok(model_load(&m, sub, &err) == AR_OK && !strcmp(m.name, "My-Model"), "the folder itself");
	model_release(&m);
	snprintf(sub, sizeof sub, "%s/My-Model/config.json", dir);
	unlink(sub);
	snprintf(sub, sizeof sub, "%s/My-Model", dir);
	ok(model_load(&m, sub, &err) == AR_DATA &&
		   strstr(err.msg, "My-Model/config.json: No such file"),
	   "a folder without one");
	rmdir(sub);
}

static void test_archs(void)
{
	static const struct {
		const char *text, *want;
	} cases[] = {
		{ "{\"model_type\":\"llama\"}", "llama" },
		{ "{\"model_type\":\"qwen3_moe\"}", "qwen3" },
		{ "{\"model_type\":\"qwen3\",\"architectures\":[\"LlamaForCausalLM\"]}", "qwen3" },
		{ "{\"model_type\":\"?\",\"architectures\":[3,\"?\",\"Qwen3ForCausalLM\"]}",
		  "qwen3" },
		{ "{\"model_type\":\"my_qwen\",\"architectures\":[\"Qwen3ForCausalLM\"]}",
		  "qwen3" },
		{ "{\"model_type\":\"?\",\"as_model\":\"qwen2_moe\"}", "qwen2" },
		{ "{\"as_model\":\"gemma3\",\"model_type\":\"llama\"}", "gemma3" },
		{ "{\"model_type\":\"mistral3\",\"text_config\":{\"model_type\":\"mistral\"}}",
		  "mistral" },
		{ "{\"model_type\":\"gemma3\",\"text_config\":{\"model_type\":\"?\"}}", "gemma3" },
		{ "{\"architectures\":[\"GptOssForCausalLM\"],\"text_config\":null}", "gpt_oss" },
		{ "{\"model_type\":7}", "llama" },
		{ "{}", "llama" },
	};
	const struct arch *a = NULL;
	struct ar_err err = { 0 };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		cJSON *config = cJSON_Parse(cases[i].text);

		ok(!arch_find(&a, config, "c.json", &err), "an architecture is found: %s", err.msg);
		is_str(a ? a->name : "none", cases[i].want, "%s", cases[i].text);
		cJSON_Delete(config);
	}
	for (int i = 0; archs[i]; i++)
		ok(archs[i]->hf_names[0] && !archs[i]->base.q_heads, "%s has names, but no heads",
		   archs[i]->name);
}

/* A type that is not known is refused, with the nearest one that is. */
static void test_unknown(void)
{
	static const struct {
		const char *keys, *wrong;
	} cases[] = {
		{ "\"model_type\":\"qwen4\"",
		  "model_type 'qwen4' is not known; the nearest name that is known is 'qwen3'; add "
		  "--as-model NAME to read the keys as those of another type" },
		{ "\"model_type\":\"mistrall\",\"architectures\":[\"?\"]", "is 'mistral'" },
		{ "\"architectures\":[\"GptOssForCausal\"]",
		  "model_type 'GptOssForCausal' is not known; the nearest name that is known is "
		  "'GptOssForCausalLM'" },
		{ "\"model_type\":\"\"", "model_type '' is not known" },
		{ "\"model_type\":\"qx_zvwkj\"", "model_type 'qx_zvwkj' is not known; add" },
		{ "\"model_type\":\"deepseek_v4\"",
		  "models of type 'deepseek_v4' have attention over compressed keys "
		  "(compress_ratios), which is not known; take another model" },
		{ "\"model_type\":\"my_v4\",\"architectures\":[\"DeepseekV4ForCausalLM\"]",
		  "models of type 'DeepseekV4ForCausalLM' have attention over" },
		{ "\"model_type\":\"minimax_m3\"", "chooses blocks of keys" },
		{ "\"model_type\":\"kimi_linear\"", "linear attention with a decay" },
		{ "\"model_type\":\"nemotron-nas\"", "(block_configs)" },
		{ "\"as_model\":\"qwen9\"", "model_type 'qwen9' is not known" },
		{ "\"as_model\":7", "want a string as 'as_model'" },
	};
	struct ar_err err = { 0 };
	char text[512];
	struct model m;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		snprintf(text, sizeof text, "{" BASE ",\"num_attention_heads\":4,%s}",
			 cases[i].keys);
		ok(load_text(&m, text, &err) == AR_DATA && !m.layer &&
			   strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg);
	}
}

/* --as-model becomes a key of the text, so that who reads the text again reads it alike. */
static void test_as_model(void)
{
	static const char as_qwen3[] = "{\"as_model\":\"qwen3_moe\",";
	struct ar_err err = { 0 };
	struct model m, again;

	put_text(" {" BASE ",\"num_attention_heads\":4,\"model_type\":\"qwen9\"}");
	ok(model_load(&m, path, &err) == AR_DATA, "a model of an unknown type: %s", err.msg);
	ok(!model_load_as(&m, path, "qwen3_moe", &err) && m.layer->qk_norm &&
		   !strncmp(m.json, as_qwen3, sizeof as_qwen3 - 1),
	   "is read as one of another type: %s", err.msg);
	ok(!model_parse(&again, "c.json", m.json, &err) && model_alike(&m, &again),
	   "... again from its text");
	model_release(&m);
	model_release(&again);
	ok(model_load_as(&m, path, "qwen9", &err) == AR_USAGE &&
		   !strcmp(err.msg, "as-model 'qwen9': not a type of models that is known, such as "
				    "llama"),
	   "but not as one of an unknown type: %s", err.msg);
	put_text("{ }");
	ok(model_load_as(&m, path, "llama", &err) == AR_DATA &&
		   strstr(err.msg, "as 'num_hidden_layers'"),
	   "an empty object stays one: %s", err.msg);
	put_text("[]");
	ok(model_load_as(&m, path, "llama", &err) == AR_DATA &&
		   strstr(err.msg, "not a JSON object"),
	   "what is no object stays so: %s", err.msg);
	put_text("{" BASE ",\"num_attention_heads\":4,\"as_model\":\"qwen3\"}");
	ok(!model_load(&m, path, &err) && m.layer->qk_norm, "a config may have the key: %s",
	   err.msg);
	model_release(&m);
	ok(model_load_as(&m, path, "llama", &err) == AR_DATA && strstr(err.msg, "appears twice"),
	   "then the option contradicts it: %s", err.msg);
}

/* Numbers that are no JSON, as Python writes them. */
static void test_literals(void)
{
	struct ar_err err = { 0 };
	struct model m, again;

	ok(!load_text(&m,
		      "{" BASE ",\"num_attention_heads\":4,\"limit\":[0.0,Infinity,-Infinity],"
		      "\"unused\":NaN,\"text\":\"NaN \\\" Infinity\"}",
		      &err) &&
		   strstr(m.json, "[0.0,\"Infinity\",\"-Infinity\"],\"unused\":\"NaN\","
				  "\"text\":\"NaN \\\" Infinity\"}"),
	   "NaN and Infinity do no harm in keys that are not read: %s", err.msg);
	is_str(m.unread, "limit, unused, text", "... which are named as any other");
	ok(!model_parse(&again, "c.json", m.json, &err) && model_alike(&m, &again) &&
		   !strcmp(m.json, again.json),
	   "the text that is stored has none");
	model_release(&m);
	model_release(&again);
	ok(load_text(&m, "{" BASE ",\"num_attention_heads\":NaN}", &err) == AR_DATA &&
		   strstr(err.msg, "as 'num_attention_heads', not 'NaN'"),
	   "refused in a key that is read: %s", err.msg);
	ok(load_text(&m, "{" BASE ",\"num_attention_heads\":4,\"x\":NaN2}", &err) == AR_DATA &&
		   strstr(err.msg, ":1: malformed JSON"),
	   "other words are none: %s", err.msg);
}

/* Lists of tensors make a file long. */
static void test_long(void)
{
	const size_t n = 4 << 20;
	char *text = malloc(n + 512);
	struct ar_err err = { 0 };
	struct model m;
	size_t at = (size_t)sprintf(text, "{" BASE ",\"num_attention_heads\":4,\"list\":[0");

	while (at < n)
		at += (size_t)sprintf(text + at, ",\"model.layers.7.mlp.down_proj\"");
	strcpy(text + at, "]}");
	ok(!load_text(&m, text, &err) && !strcmp(m.unread, "list"), "4 MiB are read: %s", err.msg);
	model_release(&m);
	free(text);
}

#define H "{" BASE ",\"num_attention_heads\":4"

/* Runs that need no angles take every rotary embedding that models have. */
static void test_unknown_rope(void)
{
	static const struct {
		const char *text, *unknown;
	} cases[] = {
		{ H ",\"rope_scaling\":{\"type\":\"su\",\"short_factor\":[1]}}", "rope type 'su'" },
		{ H ",\"rope_scaling\":{\"type\":\"longrope\"},\"partial_rotary_factor\":0.75}",
		  "rope type 'longrope'" },
		{ H ",\"rope_scaling\":{\"type\":\"dynamic\"}}", "rope type 'dynamic'" },
		{ H ",\"rope_scaling\":{\"type\":\"mrope\"}}", "rope type 'mrope'" },
		{ H ",\"rope_scaling\":{\"type\":\"longrope\",\"partial_rotary_factor\":0.5}}",
		  "rope type 'longrope'" },
		{ H ",\"partial_rotary_factor\":0.5}", "" },
		{ H ",\"rope_parameters\":{\"rope_type\":\"default\","
		    "\"partial_rotary_factor\":0.5}}",
		  "" },
		{ H "}", "" },
	};
	struct ar_err err = { 0 };
	struct model m;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		is_int(load_text(&m, cases[i].text, &err), AR_OK, "taken: %s", cases[i].text);
		is_str(m.rope_unknown, cases[i].unknown, "... the angles of which are not known");
		ok(!*cases[i].unknown == (m.rope.theta > 0) && m.rope.factor == 0,
		   "... so there is no base");
		is_int(m.layer->rotary_dim,
		       strstr(cases[i].text, "0.75") ? 12 :
		       strstr(cases[i].text, "0.5")  ? 8 :
						       16,
		       "... but the channels that rotate are known");
		model_release(&m);
	}
}

static void test_bad_configs(void)
{
	static const struct {
		const char *text, *wrong;
	} cases[] = {
		{ "", ":1: malformed JSON" },
		{ "{\n\"a\": 1,\n}", ":3: malformed JSON" },
		{ "{} x", "malformed JSON" },
		{ "[]", "not a JSON object" },
		{ "{}", "as 'num_hidden_layers'" },
		{ "{" BASE "}", "as 'num_attention_heads'" },
		{ "{" BASE ",\"num_attention_heads\":0}", "as 'num_attention_heads'" },
		{ "{" BASE ",\"num_attention_heads\":2.5}", "as 'num_attention_heads'" },
		{ "{" BASE ",\"num_attention_heads\":\"4\"}", "as 'num_attention_heads'" },
		{ "{" BASE ",\"num_attention_heads\":1e99}", "as 'num_attention_heads'" },
		{ "{" BASE ",\"num_attention_heads\":6}", "no 'head_dim'" },
		{ H ",\"num_key_value_heads\":3}", "num_key_value_heads 3 does not divide" },
		{ H ",\"num_key_value_heads\":-1}", "as 'num_key_value_heads'" },
		{ H ",\"head_dim\":15}", "head_dim 15 is odd" },
		{ H ",\"rope_theta\":0}", "as 'rope_theta'" },
		{ H ",\"rope_scaling\":3}", "want an object as 'rope_scaling'" },
		{ H ",\"rope_scaling\":{\"factor\":2}}", "no 'rope_type'" },
		{ H ",\"rope_scaling\":{\"type\":\"xpos\",\"factor\":2}}",
		  "unknown rope type 'xpos'" },
		{ H ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8}}",
		  "as 'low_freq_factor'" },
		{ H ",\"rope_scaling\":{\"rope_type\":\"llama3\",\"factor\":8,"
		    "\"low_freq_factor\":4,\"high_freq_factor\":3,"
		    "\"original_max_position_embeddings\":8192}}",
		  "high_freq_factor must not be below low_freq_factor" },
		{ H ",\"rope_parameters\":{\"rope_type\":\"default\",\"rope_theta\":\"x\"}}",
		  "as 'rope_theta'" },
		{ H ",\"partial_rotary_factor\":0}", "as 'partial_rotary_factor'" },
		{ H ",\"partial_rotary_factor\":1.5}", "as 'partial_rotary_factor'" },
		{ H ",\"rope_parameters\":{\"type\":\"default\",\"partial_rotary_factor\":2}}",
		  "as 'partial_rotary_factor'" },
		{ H ",\"rope_theta\":0,\"partial_rotary_factor\":0.5}", "as 'rope_theta'" },
		{ H ",\"kv_lora_rank\":512}", "latent attention" },
		{ H ",\"num_experts\":8}", "as 'num_experts_per_tok'" },
		{ H ",\"num_experts\":8,\"num_experts_per_tok\":9}", "as 'num_experts_per_tok'" },
		{ H ",\"num_experts\":8,\"num_experts_per_tok\":2,\"decoder_sparse_step\":0}",
		  "as 'decoder_sparse_step'" },
		{ H ",\"vocab_size\":100}", "key 'vocab_size' appears twice" },
		{ H ",\"rope_scaling\":{\"type\":\"default\",\"a\":1,\"a\":1}}",
		  "key 'a' appears twice" },
		{ H ",\"model_type\":7}", "want a string as 'model_type'" },
		{ H ",\"architectures\":\"LlamaForCausalLM\"}",
		  "want an array of strings as 'architectures'" },
		{ H ",\"use_sliding_window\":1}", "want true or false as 'use_sliding_window'" },
		{ H ",\"sliding_window\":\"32\"}", "want a number as 'sliding_window'" },
		{ H ",\"layer_types\":\"full_attention\"}",
		  "want an array of strings as 'layer_types'" },
		{ H ",\"layer_types\":[1]}", "want an array of strings as 'layer_types'" },
		{ H ",\"mlp_only_layers\":\"0\"}",
		  "want an array of numbers as 'mlp_only_layers'" },
		{ H ",\"decoder_sparse_step\":\"1\"}", "want a number as 'decoder_sparse_step'" },
		{ H ",\"partial_rotary_factor\":\"1\"}", "as 'partial_rotary_factor'" },
		{ H ",\"kv_lora_rank\":[]}", "want a number as 'kv_lora_rank'" },
		{ H ",\"rope_parameters\":[]}", "want an object as 'rope_parameters'" },
		{ H ",\"max_position_embeddings\":0}", "as 'max_position_embeddings'" },
		{ H ",\"text_config\":[]}", "want an object as 'text_config'" },
		{ H ",\"text_config\":{" BASE "}}", "as 'num_attention_heads'" },
		{ "{\"text_config\":" H ",\"vocab_size\":9}}", "key 'vocab_size' appears twice" },
		{ "{\"text_config\":" H ",\"model_type\":7}}", "want a string as 'model_type'" },
		{ "{\"text_config\":" H ",\"kv_lora_rank\":512}}", "latent attention" },
	};
	struct ar_err err = { 0 };
	struct model m;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok(load_text(&m, cases[i].text, &err) == AR_DATA && !m.json && !m.layer &&
			   !m.n_layers && !strncmp(err.msg, path, strlen(path)) &&
			   strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg + strlen(path));
	if (truncate(path, (16 << 20) + 1))
		bail_out("cannot lengthen %s", path);
	ok(model_load(&m, path, &err) == AR_DATA && strstr(err.msg, "too large"), "a huge file");
}

static void test_faults(void)
{
	struct ar_err err = { 0 };
	struct model m;
	int bad = 0;
	long k = 0;

	for (;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = model_load(&m, "llama-3.1-8b", &err);
		if (!fault_disarm())
			break;
		bad += st != AR_NOMEM || m.json || m.layer;
	}
	model_release(&m);
	ok(!bad && k > 50, "each of %ld allocations fails cleanly", k);
}

/* ---- split ---- */

static bool all_layers(const struct model *m, int q_heads, int kv_heads, int ffn)
{
	bool same = true;

	for (int i = 0; i < m->n_layers; i++)
		same = same && m->layer[i].q_heads == q_heads && m->layer[i].kv_heads == kv_heads &&
		       m->layer[i].ffn == ffn;
	return same;
}

static void test_split(void)
{
	struct ar_err err = { 0 };
	struct model m;

	model_load(&m, "llama-3.1-8b", &err);
	ok(model_split(&m, 1, &err) == AR_OK && m.layer->q_heads == 32 && m.tp == 1,
	   "one part is the whole");
	ok(model_split(&m, 4, &err) == AR_OK && all_layers(&m, 8, 2, 3584) && m.vocab == 32064 &&
		   m.hidden == 4096 && m.layer->head_dim == 128 && m.tp == 4,
	   "one of four ranks");
	ok(model_split(&m, 2, &err) == AR_USAGE, "a part is not split again");
	model_release(&m);
	model_load(&m, "qwen3-30b-a3b", &err);
	ok(model_split(&m, 8, &err) == AR_OK && all_layers(&m, 4, 1, 96) &&
		   m.layer->n_experts == 128,
	   "fewer KV heads than ranks are replicated, experts are cut");
	model_release(&m);
	model_load(&m, "llama-3.1-8b", &err);
	ok(model_split(&m, 3, &err) == AR_USAGE && strstr(err.msg, "query heads 32"),
	   "3 does not divide the heads");
	ok(model_split(&m, 0, &err) == AR_USAGE && model_split(&m, -2, &err) == AR_USAGE,
	   "no parts");
	ok(all_layers(&m, 32, 8, 14336) && m.tp == 1, "a refusal changes nothing");
	m.vocab++;
	ok(model_split(&m, 2, &err) == AR_USAGE && strstr(err.msg, "vocabulary"),
	   "a split that does not divide the vocabulary is refused");
	m.vocab--;
	m.layer[31].ffn++;
	ok(model_split(&m, 2, &err) == AR_USAGE && strstr(err.msg, "FFN width"),
	   "nor the FFN of the last layer");
	ok(!all_layers(&m, 32, 8, 14336) && m.layer->q_heads == 32, "and nothing was split before");
	m.layer[31].ffn--;
	m.layer[7].q_heads = 24;
	m.layer[7].kv_heads = 6;
	ok(model_split(&m, 4, &err) == AR_USAGE && strstr(err.msg, "6 KV heads"),
	   "a split that does not divide the KV heads is refused");
	model_release(&m);
}

static void test_layers(void)
{
	const struct layer_spec spec = {
		.mixer = MIX_FULL, .q_heads = 4, .kv_heads = 2, .head_dim = 8, .ffn = 96
	};
	struct ar_err err = { 0 };
	struct model m = { .name = "m", .vocab = 100, .tp = 1 };

	is_int(model_set_layers(&m, 3, &spec, &err), AR_OK, "three layers of one kind");
	ok(m.n_layers == 3 && all_layers(&m, 4, 2, 96) && !model_odd_layer(&m), "are alike");
	m.layer[2].ffn = 64;
	m.layer[1].head_dim = 16;
	is_int(model_odd_layer(&m), 1, "the first that differs is found");
	ok(model_split(&m, 2, &err) == AR_OK && m.layer[0].ffn == 48 && m.layer[2].ffn == 32 &&
		   m.layer[1].head_dim == 16 && m.layer[1].kv_heads == 1,
	   "each is split by itself");
	model_release(&m);
	ok(!m.layer && !m.n_layers, "and released");
}

int main(void)
{
	plan(0);
	log_level = LOG_ERROR;
	if (!mkdtemp(dir))
		bail_out("no temporary folder");
	test_presets();
	test_published();
	test_data();
	test_defaults();
	test_archs();
	test_unknown();
	test_as_model();
	test_literals();
	test_long();
	test_unknown_rope();
	test_bad_configs();
	unlink(path);
	rmdir(dir);
	test_faults();
	test_split();
	test_layers();
	return done_testing();
}
