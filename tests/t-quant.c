/* SPDX-License-Identifier: Apache-2.0 */
/* Number formats of weights and KV caches: what quantization_config says of each module, bytes
 * against published sizes of files, and shares of ranks. */
#include "config.h"
#include "model/quant.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/cache_layout.h"
#include "model/params.h"
#include "model/quant_rules.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/tap.h"

/* Two layers, dense or of four experts with a shared one. */
#define SHAPE \
	"\"hidden_size\":512,\"intermediate_size\":1024,\"num_hidden_layers\":2," \
	"\"num_attention_heads\":4,\"num_key_value_heads\":2,\"head_dim\":128,\"vocab_size\":1024"
#define DENSE "{\"model_type\":\"qwen3\"," SHAPE
#define MOE(type) \
	"{\"model_type\":\"" type "\",\"num_experts\":4,\"num_experts_per_tok\":2," \
	"\"moe_intermediate_size\":256,\"shared_expert_intermediate_size\":256," SHAPE
#define NEMOTRON(letters) \
	"{\"model_type\":\"nemotron_h\",\"hybrid_override_pattern\":\"" letters "\"," \
	"\"mamba_num_heads\":8,\"mamba_head_dim\":64,\"n_groups\":2,\"ssm_state_size\":16," \
	"\"conv_kernel\":4,\"mlp_hidden_act\":\"relu2\",\"n_routed_experts\":4," \
	"\"num_experts_per_tok\":2,\"moe_intermediate_size\":256,\"moe_latent_size\":128," \
	"\"n_shared_experts\":1,\"moe_shared_expert_intermediate_size\":256," SHAPE
#define FALCON \
	"{\"model_type\":\"falcon_h1\",\"mamba_n_heads\":8,\"mamba_d_head\":64," \
	"\"mamba_n_groups\":2,\"mamba_d_state\":16,\"mamba_d_conv\":4," SHAPE
#define QUANT ",\"quantization_config\":"
#define BLOCK \
	"\"quant_method\":\"fp8\",\"activation_scheme\":\"dynamic\",\"fmt\":\"e4m3\"," \
	"\"weight_block_size\":[128,128]"
#define KV8 "\"kv_cache_scheme\":{\"num_bits\":8,\"type\":\"float\",\"dynamic\":false}"
#define CT(format, ignore) \
	"{\"quant_method\":\"compressed-tensors\",\"config_groups\":{\"group_0\":{\"targets\":" \
	"[\"Linear\"]," format "}},\"ignore\":[" ignore "]}"
#define W(bits, type, strategy, more) \
	"\"weights\":{\"num_bits\":" bits ",\"type\":\"" type "\",\"strategy\":\"" strategy \
	"\"" more "}"
#define ROWS(how) ",\"input_activations\":{\"num_bits\":8,\"type\":\"float\",\"dynamic\":" how "}"

static void load(struct model *m, const char *json)
{
	struct ar_err err = { 0 };

	if (model_parse(m, "test", json, &err))
		bail_out("%s: %s", json, err.msg);
}

static void load_formats(struct model *m, const char *json)
{
	struct ar_err err = { 0 };

	load(m, json);
	if (model_set_formats(m, NULL, NULL, &err))
		bail_out("%s: %s", json, err.msg);
}

/* The formats of a layer in a line: q k v o gate up down experts shared, as far as they are not
 * bf16, and of the head. */
static const char *formats_of(const struct model *m, int layer, char *buf, size_t n)
{
	static const char *const names[LINEARS] = {
		"",   "q",    "k",	 "v",	   "o",	   "in",    "ba",    "out",    "gate",
		"up", "down", "experts", "shared", "q_up", "kv_up", "index", "around",
	};
	size_t at = 0;

	*buf = '\0';
	for (int k = 1; k < LINEARS; k++) {
		const struct linear_format *f = &m->layer[layer].format[k];
		const struct linear_format *before = k > 1 ? f - 1 : NULL;

		if (f->kind == FORMAT_BF16)
			continue;
		if (before && format_equal(f, before))
			at += (size_t)snprintf(buf + at, n - at, ",%s", names[k]);
		else
			at += (size_t)snprintf(buf + at, n - at, "%s%s/%d%s:%s", at ? " " : "",
					       format_name(f->kind), (int)f->rows,
					       f->zero ? "z" : "", names[k]);
	}
	if (m->head.kind)
		snprintf(buf + at, n - at, " %s:head", format_name(m->head.kind));
	return buf;
}

/* ---- quantization_config ---- */

static const struct {
	const char *what, *json, *first, *second, *kv;
	const char *as; /* the model_type that names the modules; NULL: that of json */
} said[] = {
	{ "nothing", DENSE "}", "", "", "", NULL },
	{ "nothing of weights", DENSE QUANT "null}", "", "", "", NULL },
	{ "fp8 in blocks", DENSE QUANT "{" BLOCK "}}",
	  "fp8-block/3:q,k,v,o fp8-block/3:gate,up,down",
	  "fp8-block/3:q,k,v,o fp8-block/3:gate,up,down", "", NULL },
	{ "fp8, whole names left out",
	  MOE("qwen3_moe") QUANT "{" BLOCK ",\"modules_to_not_convert\":[\"lm_head\","
				 "\"model.layers.0.mlp.gate\",\"gate_proj\",\"self_attn\","
				 "\"model.layers.1.self_attn.o_proj\"]}}",
	  "fp8-block/3:q,k,v,o fp8-block/3:experts,shared",
	  "fp8-block/3:q,k,v fp8-block/3:experts,shared", "", NULL },
	{ "fp8, one expert's weight left out: all experts",
	  MOE("qwen3_moe") QUANT "{" BLOCK ",\"ignored_layers\":["
				 "\"model.layers.0.mlp.experts.3.up_proj\"]}}",
	  "fp8-block/3:q,k,v,o fp8-block/3:shared",
	  "fp8-block/3:q,k,v,o fp8-block/3:experts,shared", "", NULL },
	{ "fp8, fused names left out",
	  DENSE QUANT "{" BLOCK
		      ",\"modules_to_not_convert\":[\"model.layers.0.self_attn.qkv_proj\","
		      "\"model.layers.1.mlp.gate_up_proj\"]}}",
	  "fp8-block/3:o fp8-block/3:gate,up,down", "fp8-block/3:q,k,v,o fp8-block/3:down", "",
	  NULL },
	{ "fp8 per tensor, static",
	  DENSE QUANT "{\"quant_method\":\"fp8\",\"activation_scheme\":\"static\"}}",
	  "fp8-tensor/1:q,k,v,o fp8-tensor/1:gate,up,down",
	  "fp8-tensor/1:q,k,v,o fp8-tensor/1:gate,up,down", "", NULL },
	{ "fp8 per tensor, dynamic", DENSE QUANT "{\"quant_method\":\"fp8\"}}",
	  "fp8-tensor/2:q,k,v,o fp8-tensor/2:gate,up,down",
	  "fp8-tensor/2:q,k,v,o fp8-tensor/2:gate,up,down", "", NULL },
	{ "fp8 with experts of another algorithm",
	  MOE("qwen3_moe") QUANT
	  "{" BLOCK ",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{"
	  "\"layers.1.ffn.experts\":{\"quant_algo\":\"NVFP4\",\"group_size\":16}}}}",
	  "fp8-block/3:q,k,v,o fp8-block/3:experts,shared",
	  "fp8-block/3:q,k,v,o nvfp4/0:experts fp8-block/3:shared", "", "deepseek_v4" },
	{ "modelopt without a method, with a KV cache as a word",
	  DENSE QUANT
	  "{\"quant_algo\":\"FP8\",\"kv_cache_scheme\":\"FP8\",\"ignore\":[\"lm_head\"]}}",
	  "fp8-tensor/1:q,k,v,o fp8-tensor/1:gate,up,down",
	  "fp8-tensor/1:q,k,v,o fp8-tensor/1:gate,up,down", "kv-e4m3", NULL },
	{ "modelopt quantizes the head, too, unless it is left out",
	  DENSE QUANT "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\"," KV8 "}}",
	  "nvfp4/0:q,k,v,o nvfp4/0:gate,up,down nvfp4:head",
	  "nvfp4/0:q,k,v,o nvfp4/0:gate,up,down nvfp4:head", "kv-e4m3", NULL },
	{ "modelopt, wildcards and parts of names",
	  MOE("qwen3_moe") QUANT
	  "{\"quant_method\":\"modelopt\",\"quant_algo\":\"NVFP4\",\"ignore\":["
	  "\"lm_head\",\"model.language_model.layers.0.self_attn*\","
	  "\"*.mlp.shared_expert.*\",\"language_model.layers.1.mlp\"]}}",
	  "nvfp4/0:experts", "nvfp4/0:q,k,v,o", "", NULL },
	{ "layer 1 is not layer 10",
	  DENSE QUANT "{\"quant_algo\":\"NVFP4\",\"ignore\":[\"lm_head\",\"model.layers.10*\","
		      "\"model.layers.1.*\"]}}",
	  "nvfp4/0:q,k,v,o nvfp4/0:gate,up,down", "", "", NULL },
	{ "experts of Gemma 4 are not in its mlp",
	  MOE("qwen3_moe") QUANT "{\"quant_algo\":\"NVFP4\",\"ignore\":[\"lm_head\","
				 "\"model.language_model.layers.0.mlp*\","
				 "\"model.language_model.layers.0.self_attn*\"]}}",
	  "nvfp4/0:experts,shared", "nvfp4/0:q,k,v,o nvfp4/0:experts,shared", "", "gemma4" },
	{ "an algorithm for each module",
	  MOE("qwen3_moe") QUANT
	  "{\"quant_method\":\"modelopt\",\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{"
	  "\"lm_head\":{\"quant_algo\":\"W4A16_NVFP4\"},"
	  "\"model.language_model.layers.0.self_attn.q_proj\":{\"quant_algo\":\"FP8\"},"
	  "\"model.language_model.layers.0.self_attn.k_proj\":{\"quant_algo\":\"fp8\"},"
	  "\"model.language_model.layers.0.self_attn.v_proj\":{\"quant_algo\":\"FP8\"},"
	  "\"model.language_model.layers.0.mlp.experts.3.up_proj\":{\"quant_algo\":\"NVFP4\"},"
	  "\"model.language_model.layers.1.mlp.experts\":{\"quant_algo\":\"MXFP8\"},"
	  "\"model.language_model.layers.1.mlp.shared_expert.up_proj\":"
	  "{\"quant_algo\":\"FP8_PB_WO\"}}}}",
	  "fp8-tensor/1:q,k,v nvfp4/0:experts nvfp4:head",
	  "mxfp8/0:experts fp8-block/3:shared nvfp4:head", "", NULL },
	{ "modules of Nemotron",
	  DENSE QUANT "{\"quant_algo\":\"FP8_PER_CHANNEL_PER_TOKEN\",\"exclude_modules\":["
		      "\"backbone.layers.0.mixer.*_proj\"]}}",
	  " fp8-channel:head", "fp8-channel/2:q,k,v,o fp8-channel/2:gate,up,down fp8-channel:head",
	  "", "nemotron_h" },
	{ "its mixers and the products around its experts",
	  NEMOTRON("ME") QUANT "{\"quant_algo\":\"NVFP4\",\"exclude_modules\":[\"lm_head\"]}}",
	  "nvfp4/0:in nvfp4/0:out", "nvfp4/0:experts,shared nvfp4/0:around", "", NULL },
	{ "... but for those that it names",
	  NEMOTRON("ME") QUANT "{\"quant_algo\":\"NVFP4\",\"exclude_modules\":[\"lm_head\","
			       "\"backbone.layers.0.mixer.in_proj\","
			       "\"backbone.layers.1.mixer.fc1_latent_proj\","
			       "\"backbone.layers.1.mixer.fc2_latent_proj\"]}}",
	  "nvfp4/0:out", "nvfp4/0:experts,shared", "", NULL },
	{ "... each in its format",
	  NEMOTRON("ME") QUANT
	  "{\"quant_algo\":\"MIXED_PRECISION\",\"quantized_layers\":{"
	  "\"backbone.layers.0.mixer.in_proj\":{\"quant_algo\":\"FP8\"},"
	  "\"backbone.layers.1.mixer.experts.0.up_proj\":{\"quant_algo\":\"NVFP4\"},"
	  "\"backbone.layers.1.mixer.experts.0.down_proj\":{\"quant_algo\":\"NVFP4\"}}}}",
	  "fp8-tensor/1:in", "nvfp4/0:experts", "", NULL },
	{ "mixers side by side are of one layer of the file",
	  FALCON QUANT "{\"quant_algo\":\"FP8\",\"exclude_modules\":[\"lm_head\","
		       "\"model.layers.0.self_attn*\",\"model.layers.1.*\"]}}",
	  "fp8-tensor/1:in fp8-tensor/1:out", "fp8-tensor/1:gate,up,down", "", NULL },
	{ "compressed-tensors, int4",
	  DENSE QUANT CT(W("4", "int", "group", ",\"group_size\":128"), "\"lm_head\"") "}",
	  "int4-group/0:q,k,v,o int4-group/0:gate,up,down",
	  "int4-group/0:q,k,v,o int4-group/0:gate,up,down", "", NULL },
	{ "compressed-tensors, int4 with zero points",
	  DENSE QUANT CT(W("4", "int", "channel", ",\"symmetric\":false"), "") "}",
	  "int4-group/0z:q,k,v,o int4-group/0z:gate,up,down",
	  "int4-group/0z:q,k,v,o int4-group/0z:gate,up,down", "", NULL },
	{ "compressed-tensors, patterns",
	  MOE("qwen3_moe") QUANT CT(W("4", "int", "group", ",\"group_size\":32"),
				    "\"lm_head\",\"re:.*self_attn.*\",\"re:.*shared_experts.*\","
				    "\"re:.*mlp\\\\.(?:gate|up|gate_up|down)_proj.*\"") "}",
	  "int4-group/0:experts", "int4-group/0:experts", "", NULL },
	{ "a pattern is for the start of a name, and may have digits",
	  DENSE QUANT CT(W("8", "float", "tensor", "") ROWS("false"),
			 "\"re:self_attn\",\"re:model\\\\.layers\\\\.\\\\d\\\\.mlp\"") "}",
	  "fp8-tensor/1:q,k,v,o", "fp8-tensor/1:q,k,v,o", "", NULL },
	{ "compressed-tensors, fp8 channels, rows by token",
	  DENSE QUANT CT(W("8", "float", "channel", "") ROWS("true"), "\"re:.*mlp.*\"") "}",
	  "fp8-channel/2:q,k,v,o", "fp8-channel/2:q,k,v,o", "", NULL },
	{ "compressed-tensors, fp8 weights alone",
	  DENSE QUANT CT(W("8", "float", "channel", ""), "\"re:.*mlp.*\"") "}",
	  "fp8-channel/0:q,k,v,o", "fp8-channel/0:q,k,v,o", "", NULL },
	{ "compressed-tensors, fp8 blocks",
	  DENSE QUANT CT(W("8", "float", "block", ",\"block_structure\":[128,128]") ROWS("true"),
			 "\"re:.*mlp.*\"") "}",
	  "fp8-block/3:q,k,v,o", "fp8-block/3:q,k,v,o", "", NULL },
	{ "compressed-tensors, mxfp4",
	  DENSE QUANT CT(W("4", "float", "group", ",\"group_size\":32"), "\"re:.*mlp.*\"") "}",
	  "mxfp4/0:q,k,v,o", "mxfp4/0:q,k,v,o", "", NULL },
	{ "compressed-tensors, nvfp4",
	  DENSE QUANT CT(W("4", "float", "tensor_group", ",\"group_size\":16"),
			 "\"re:.*mlp.*\"") "}",
	  "nvfp4/0:q,k,v,o", "nvfp4/0:q,k,v,o", "", NULL },
	{ "compressed-tensors, mxfp8",
	  DENSE QUANT CT(W("8", "float", "group", ",\"group_size\":32"), "\"re:.*mlp.*\"") "}",
	  "mxfp8/0:q,k,v,o", "mxfp8/0:q,k,v,o", "", NULL },
	{ "compressed-tensors, groups of modules and a KV cache",
	  DENSE QUANT
	  "{\"quant_method\":\"compressed-tensors\"," KV8 ",\"config_groups\":{"
	  "\"a\":{\"targets\":[\"re:.*self_attn.*\"]," W("8", "float", "tensor", "") ROWS(
		  "false") "},"
			   "\"b\":{\"targets\":[\"model.layers.1.mlp.down_proj\",\"lm_head\"]," W(
				   "4", "int", "group", ",\"group_size\":64") "}}}}",
	  "fp8-tensor/1:q,k,v,o int4-group:head",
	  "fp8-tensor/1:q,k,v,o int4-group/0:down int4-group:head", "kv-e4m3", NULL },
	{ "awq",
	  DENSE QUANT "{\"quant_method\":\"awq\",\"bits\":4,\"group_size\":128,\"zero_point\":true,"
		      "\"modules_to_not_convert\":[\"self_attn\"]}}",
	  "int4-group/0z:gate,up,down", "int4-group/0z:gate,up,down", "", NULL },
	{ "awq in its older words, with the head",
	  DENSE QUANT "{\"quant_method\":\"awq\",\"w_bit\":4,\"q_group_size\":64,\"lm_head\":true,"
		      "\"modules_to_not_convert\":[\"mlp\"]}}",
	  "int4-group/0:q,k,v,o int4-group:head", "int4-group/0:q,k,v,o int4-group:head", "",
	  NULL },
	{ "gptq, whole rows",
	  DENSE QUANT "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-1,\"sym\":true,"
		      "\"dynamic\":{\"-:.*layers\\\\.0\\\\..*\":{}}}}",
	  "", "int4-group/0:q,k,v,o int4-group/0:gate,up,down", "", NULL },
	{ "mxfp4 of gpt-oss",
	  MOE("qwen3_moe") QUANT "{\"quant_method\":\"mxfp4\",\"modules_to_not_convert\":["
				 "\"model.layers.*.self_attn\",\"lm_head\"]}}",
	  "mxfp4/0:experts", "mxfp4/0:experts", "", NULL },
	{ "what the language model of a larger model says",
	  "{\"model_type\":\"x\",\"text_config\":{\"model_type\":\"llama\","
	  "\"quantization_config\":{" BLOCK "}," SHAPE "}}",
	  "fp8-block/3:q,k,v,o fp8-block/3:gate,up,down",
	  "fp8-block/3:q,k,v,o fp8-block/3:gate,up,down", "", NULL },
};

/* Give m the config that the same layers have in another family. */
static void rename_modules(struct model *m, const char *as)
{
	char *at = strstr(m->json, "qwen3"), *json;
	const int n = (int)strcspn(at, "\"");

	if (asprintf(&json, "%.*s%s%s", (int)(at - m->json), m->json, as, at + n) < 0)
		bail_out("no memory");
	free(m->json);
	m->json = json;
}

static void test_said(void)
{
	char a[256], b[256], kv[32];

	for (size_t i = 0; i < sizeof said / sizeof *said; i++) {
		struct ar_err err = { 0 };
		struct model m;

		load(&m, said[i].json);
		if (said[i].as)
			rename_modules(&m, said[i].as);
		ok(!model_set_formats(&m, NULL, NULL, &err), "%s: %s", said[i].what, err.msg);
		is_str(formats_of(&m, 0, a, sizeof a), said[i].first, "... layer 0");
		is_str(formats_of(&m, 1, b, sizeof b), said[i].second, "... layer 1");
		is_str(model_kv_text(&m, kv, sizeof kv), said[i].kv, "... KV cache");
		ok(!model_set_formats(&m, "none", NULL, &err) &&
			   !*model_weights_text(&m, a, sizeof a) &&
			   !*model_kv_text(&m, kv, sizeof kv),
		   "... none: all is bf16");
		model_release(&m);
	}
}

static const struct {
	const char *json, *want;
} refused[] = {
	{ DENSE QUANT "{\"quant_method\":\"quip\"}}",
	  "test: quantization_config: quant_method is \"quip\"; want fp8, compressed-tensors, "
	  "modelopt, "
	  "awq, gptq, mxfp4; --quantization none replays the shape in bf16" },
	{ DENSE QUANT "{}}", "quant_method is missing" },
	{ DENSE QUANT "[]}", "want an object as 'quantization_config'" },
	{ DENSE QUANT "{\"quant_method\":\"fp8\",\"activation_scheme\":\"odd\"}}",
	  "activation_scheme is \"odd\"" },
	{ DENSE QUANT "{\"quant_method\":\"fp8\",\"weight_block_size\":[128]}}",
	  "weight_block_size is [128]; want two sizes" },
	{ DENSE QUANT "{\"quant_method\":\"fp8\",\"store_dtype\":\"mxfp4\"}}",
	  "store_dtype is \"mxfp4\"" },
	{ DENSE QUANT "{\"quant_method\":\"fp8\",\"ignored_layers\":[1]}}",
	  "an entry that is no string" },
	{ DENSE QUANT "{" BLOCK
		      ",\"modules_to_not_convert\":[\"model.layers.1.self_attn.k_proj\"]}}",
	  "test: quantization_config: layer 1: q_proj is fp8-block and k_proj is bf16; engines run "
	  "them as "
	  "one product" },
	{ DENSE QUANT "{" BLOCK ",\"modules_to_not_convert\":[\"model.layers.0.mlp.up_proj\"]}}",
	  "layer 0: gate_proj is fp8-block and up_proj is bf16" },
	{ MOE("qwen3_moe") QUANT "{" BLOCK ",\"modules_to_not_convert\":["
				 "\"model.layers.0.mlp.shared_expert.down_proj\"]}}",
	  "layer 0: up_proj|gate_up_proj|w3 is fp8-block and down_proj|w2 is bf16" },
	{ DENSE QUANT "{\"quant_algo\":\"W4A8_AWQ\"}}", "quant_algo is \"W4A8_AWQ\"; want FP8, " },
	{ DENSE QUANT "{\"quant_algo\":\"NVFP4\",\"group_size\":0}}",
	  "group_size is 0; want a number of inputs" },
	{ DENSE QUANT "{\"quant_algo\":\"MIXED_PRECISION\"}}", "quantized_layers is missing" },
	{ DENSE QUANT "{\"quant_algo\":\"MIXED_PRECISION\","
		      "\"quantized_layers\":{\"a\":{\"quant_algo\":\"X\"}}}}",
	  "quant_algo is \"X\"" },
	{ DENSE QUANT "{\"quant_method\":\"compressed-tensors\"}}", "config_groups is missing" },
	{ DENSE QUANT CT(W("8", "int", "channel", ""), "") "}",
	  "num_bits is 8; want 4 for integers" },
	{ DENSE QUANT CT(W("4", "int", "tensor", ""), "") "}", "strategy is \"tensor\"" },
	{ DENSE QUANT CT(W("8", "odd", "tensor", ""), "") "}", "type is \"odd\"" },
	{ DENSE QUANT CT(W("6", "float", "tensor", ""), "") "}",
	  "num_bits is 6; want 4 or 8 for floats" },
	{ DENSE QUANT CT(W("4", "float", "channel", ""), "") "}", "strategy is \"channel\"" },
	{ DENSE QUANT CT(W("8", "float", "attn_head", ""), "") "}", "strategy is \"attn_head\"" },
	{ DENSE QUANT CT(W("8", "float", "tensor", ""), "\"re:(?!a)\"") "}",
	  "the pattern '(?!a)' is not understood" },
	{ DENSE QUANT "{\"quant_method\":\"awq\",\"bits\":3}}", "bits is 3; want 4" },
	{ DENSE QUANT "{\"quant_method\":\"gptq\"}}", "bits is missing; want 4" },
	{ DENSE QUANT "{\"quant_method\":\"gptq\",\"bits\":4,\"dynamic\":{\"+:.*\":{\"bits\":8}}}}",
	  "dynamic '+:.*' gives modules another format" },
	{ DENSE QUANT "{\"quant_algo\":\"FP8\",\"kv_cache_quant_algo\":\"NVFP4\"}}",
	  "the KV cache is \"NVFP4\"; known is FP8; name another with --kv-cache-dtype" },
};

static void test_refused(void)
{
	for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
		struct ar_err err = { 0 };
		struct model m;
		char buf[96];

		load(&m, refused[i].json);
		ok(model_set_formats(&m, NULL, NULL, &err) == AR_DATA &&
			   strstr(err.msg, refused[i].want),
		   "refused: %s", err.msg);
		ok(!model_set_formats(&m, "none", NULL, &err) &&
			   !*model_weights_text(&m, buf, sizeof buf),
		   "... none takes the shape");
		model_release(&m);
	}
}

/* ---- options ---- */

static void test_options(void)
{
	static const struct {
		const char *name, *formats;
	} presets[] = {
		{ "fp8_per_tensor", "fp8-tensor/2:q,k,v,o fp8-tensor/2:experts,shared" },
		{ "fp8_per_channel", "fp8-channel/2:q,k,v,o fp8-channel/2:experts,shared" },
		{ "fp8_per_block", "fp8-block/3:q,k,v,o fp8-block/3:experts,shared" },
		{ "w4a16", "int4-group/0:q,k,v,o int4-group/0:experts,shared" },
		{ "mxfp4", "mxfp4/0:q,k,v,o mxfp4/0:experts,shared" },
	};
	static const struct {
		const char *dtype, *layout;
	} kv[] = { { "auto", "" },
		   { "bfloat16", "" },
		   { "fp8", "kv-e4m3" },
		   { "fp8_e4m3", "kv-e4m3" },
		   { "fp8_e5m2", "kv-e5m2" },
		   { "fp8_per_token_head", "kv-e4m3-th" } };
	struct ar_err err = { 0 };
	struct model m;
	char buf[256];

	load(&m, MOE("qwen3_moe") "}");
	ok(!model_check_formats(&m, &err), "kernels take bf16");
	for (size_t i = 0; i < sizeof presets / sizeof *presets; i++) {
		ok(!model_set_formats(&m, presets[i].name, NULL, &err), "%s", presets[i].name);
		is_str(formats_of(&m, 1, buf, sizeof buf), presets[i].formats,
		       "... all but the head");
	}
	ok(model_check_formats(&m, &err) == AR_USAGE &&
		   strstr(err.msg, "no kernels for weights in mxfp4; --quantization none"),
	   "kernels do not: %s", err.msg);
	ok(model_set_formats(&m, "fp6", NULL, &err) == AR_USAGE &&
		   !strcmp(err.msg, "quantization 'fp6' is not known; known are auto, none, "
				    "fp8_per_tensor, fp8_per_channel, fp8_per_block, w4a16, mxfp4"),
	   "%s", err.msg);
	for (size_t i = 0; i < sizeof kv / sizeof *kv; i++) {
		ok(!model_set_formats(&m, "none", kv[i].dtype, &err), "KV cache %s", kv[i].dtype);
		is_str(model_kv_text(&m, buf, sizeof buf), kv[i].layout, "... is of this layout");
	}
	ok(model_check_formats(&m, &err) == AR_USAGE &&
		   strstr(err.msg, "no kernels for KV cache kv-e4m3-th; --kv-cache-dtype bfloat16"),
	   "kernels take none of them: %s", err.msg);
	ok(model_set_formats(&m, NULL, "int8_per_token_head", &err) == AR_USAGE &&
		   !strcmp(err.msg,
			   "kv-cache-dtype 'int8_per_token_head' is not known; known are auto, "
			   "bfloat16, fp8, fp8_e4m3, fp8_e5m2, fp8_per_token_head, "
			   "fp8_ds_mla"),
	   "%s", err.msg);
	model_release(&m);

	load(&m, DENSE QUANT "{\"quant_algo\":\"FP8\",\"kv_cache_quant_algo\":\"FP8\"}}");
	ok(model_set_formats(&m, "w4a16", NULL, &err) == AR_USAGE &&
		   strstr(err.msg, "the config of test has weights in a format of its own"),
	   "a second format: %s", err.msg);
	ok(!model_set_formats(&m, NULL, "bfloat16", &err) && !*model_kv_text(&m, buf, sizeof buf),
	   "an option comes before the config's KV cache");
	ok(!model_set_formats(&m, "none", "fp8", &err) &&
		   !strcmp(model_kv_text(&m, buf, sizeof buf), "kv-e4m3"),
	   "... also without the config's weights");
	model_release(&m);
}

/* ---- a file beside config.json ---- */

static char dir[] = "/tmp/t-quant-XXXXXX";

static void put(const char *name, const char *text)
{
	char path[96];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	file_write(path, text, strlen(text));
}

static void test_beside(void)
{
	static const char hf[] =
		"{\"producer\":{\"name\":\"modelopt\"},\"quantization\":{\"quant_algo\":"
		"\"FP8\",\"kv_cache_quant_algo\":\"FP8\",\"exclude_modules\":[\"lm_head\"]}}";
	struct ar_err err = { 0 };
	struct model m, again;
	char buf[96], path[96];
	int bad = 0;

	if (!mkdtemp(dir))
		bail_out("mkdtemp");
	put("config.json", DENSE ",\"time_step_limit\":[0, Infinity]}");
	put("a_config.json", DENSE QUANT "{" BLOCK "}}");
	put("hf_quant_config.json", hf);
	put("a_hf_quant_config.json", hf);
	ok(!model_load(&m, dir, &err) && !model_set_formats(&m, NULL, NULL, &err), "%s", err.msg);
	is_str(model_weights_text(&m, buf, sizeof buf), "fp8-tensor",
	       "hf_quant_config.json is read");
	is_str(model_kv_text(&m, buf, sizeof buf), "kv-e4m3", "... with its KV cache");
	ok(!model_parse(&again, "again", m.json, &err) &&
		   !model_set_formats(&again, NULL, NULL, &err) && model_alike(&again, &m),
	   "... and the stored config says it, too");
	ok(!model_set_formats(&again, "none", NULL, &err) && !model_alike(&again, &m),
	   "models in other formats are not alike");
	model_release(&again);
	model_release(&m);
	for (long k = 0, done = 0; !done; k += fault_stride(7)) {
		enum ar_status st;

		fault_arm(k);
		st = model_load(&m, dir, &err);
		done = !fault_disarm();
		bad += done ? st != AR_OK : st != AR_NOMEM;
		model_release(&m);
	}
	is_int(bad, 0, "no memory fails, and never leaves the file out");
	snprintf(path, sizeof path, "%s/a_config.json", dir);
	ok(!model_load(&m, path, &err) && !model_set_formats(&m, NULL, NULL, &err), "%s", err.msg);
	is_str(model_weights_text(&m, buf, sizeof buf), "fp8-block", "config.json comes before it");
	model_release(&m);
	put("hf_quant_config.json", "{\n\"a\":}");
	ok(model_load(&m, dir, &err) == AR_DATA &&
		   strstr(err.msg, "hf_quant_config.json:2: malformed"),
	   "a file that is no JSON: %s", err.msg);
	snprintf(path, sizeof path, "%s/hf_quant_config.json", dir);
	unlink(path);
	if (mkdir(path, 0700))
		bail_out("mkdir");
	ok(model_load(&m, dir, &err) != AR_OK && strstr(err.msg, path), "a folder: %s", err.msg);
	rmdir(path);
	ok(!model_load(&m, dir, &err) && !model_set_formats(&m, NULL, NULL, &err) &&
		   !*model_weights_text(&m, buf, sizeof buf),
	   "without a file weights are bf16");
	model_release(&m);
	for (int i = 0; i < 3; i++) {
		static const char *const names[] = { "config.json", "a_config.json",
						     "a_hf_quant_config.json" };

		snprintf(path, sizeof path, "%s/%s", dir, names[i]);
		unlink(path);
	}
	rmdir(dir);
}

/* ---- bytes ---- */

static void test_format_bytes(void)
{
	static const struct {
		struct linear_format f;
		int64_t bytes;
	} of[] = { /* of 300 outputs and 640 inputs */
		   { { .kind = FORMAT_BF16 }, 384000 },
		   { { .kind = FORMAT_FP8_TENSOR }, 192004 },
		   { { .kind = FORMAT_FP8_CHANNEL }, 192000 + 1200 },
		   { { .kind = FORMAT_FP8_BLOCK, .block = { 128, 128 } }, 192000 + 3 * 5 * 4 },
		   { { .kind = FORMAT_MXFP8, .group = 32 }, 192000 + 6000 },
		   { { .kind = FORMAT_INT4_GROUP, .group = 128 }, 96000 + 300 * 5 * 2 },
		   { { .kind = FORMAT_INT4_GROUP, .group = 128, .zero = true },
		     96000 + 300 * 5 * 5 / 2 },
		   { { .kind = FORMAT_INT4_GROUP }, 96000 + 600 },
		   { { .kind = FORMAT_MXFP4, .group = 32 }, 96000 + 6000 },
		   { { .kind = FORMAT_NVFP4, .group = 16 }, 96000 + 12000 + 4 }
	};

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		is_int(format_bytes(&of[i].f, 300, 640), of[i].bytes, "bytes of %s",
		       format_name(of[i].f.kind));
		is_int(format_bytes(&of[i].f, 0, 0), 0, "... and of no weight");
		is_int(format_find(format_name(of[i].f.kind)), of[i].f.kind, "... found by name");
	}
	is_int(format_find("fp6"), -1, "no format has this name");
}

/* Published sizes, in GB of 10^9 bytes. */
static void test_model_bytes(void)
{
	static const struct {
		const char *model, *how;
		double gb;
	} of[] = {
		{ "llama-3.1-8b", "none", 16.06 },
		{ "llama-3.1-8b", "fp8_per_tensor", 9.08 },
		{ "llama-3.1-8b", "fp8_per_block", 9.08 },
		{ "llama-3.1-8b", "w4a16", 5.70 },
		{ "qwen3-32b", "fp8_per_block", 34.33 },
		{ "qwen3-32b", "w4a16", 19.20 },
	};
	struct ar_err err = { 0 };
	struct layer_spec *l;
	struct model m;

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		if (model_load(&m, of[i].model, &err) ||
		    model_set_formats(&m, of[i].how, NULL, &err))
			bail_out("%s", err.msg);
		is_int((int64_t)((double)model_weight_bytes(&m) / 1e7 + 0.5),
		       (int64_t)(of[i].gb * 100 + 0.5), "%s, %s: %.2f GB", of[i].model, of[i].how,
		       of[i].gb);
		model_release(&m);
	}
	load_formats(&m, DENSE QUANT "{\"quant_algo\":\"FP8\"}}");
	/* two layers of seven matrices, and the head of 1024 x 512 */
	is_int(model_weight_bytes(&m),
	       2 * model_params(&m) -
		       (2 * (2 * 512 * 512 + 2 * 256 * 512 + 3 * 1024 * 512) + 1024 * 512) + 15 * 4,
	       "a head in fp8 has its bytes, too");
	model_release(&m);
	if (model_load(&m, "gpt-oss-20b", &err) || model_set_formats(&m, NULL, NULL, &err))
		bail_out("%s", err.msg);
	l = m.layer;
	is_int(model_weight_bytes(&m) - 2 * (model_params(&m) - 24 * 32 * 3 * (int64_t)2880 * 2880),
	       (int64_t)24 * 32 * 3 * 2880 * 2880 * 17 / 32,
	       "gpt-oss-20b: experts take 17/32 byte a weight");
	ok(l->format[LINEAR_Q].kind == FORMAT_BF16, "... and attention is bf16");
	model_release(&m);
}

/* ---- ranks ---- */

static void test_split(void)
{
	struct ar_err err = { 0 };
	struct model m;
	int64_t whole;

	if (model_load(&m, "gpt-oss-20b", &err) || model_set_formats(&m, NULL, NULL, &err))
		bail_out("%s", err.msg);
	ok(model_split(&m, 8, &err) == AR_USAGE &&
		   !strcmp(err.msg,
			   "cannot split model 'gpt-oss-20b' into 8 parts; take --tp 1, 2: "
			   "experts of a rank has 360 inputs, no multiple of the 32 that share a "
			   "scale of mxfp4") &&
		   m.tp == 1,
	   "a group is cut: %s", err.msg);
	whole = model_weight_bytes(&m);
	ok(!model_split(&m, 2, &err) && model_weight_bytes(&m) < whole * 55 / 100,
	   "two ranks have half");
	model_release(&m);
	load_formats(&m, DENSE QUANT "{" BLOCK "}}");
	ok(!model_split(&m, 2, &err), "blocks: two ranks, of K and V too: %s", err.msg);
	model_release(&m);
	load_formats(&m, DENSE QUANT "{\"quant_method\":\"fp8\",\"weight_block_size\":[512,128]}}");
	ok(model_split(&m, 2, &err) == AR_USAGE &&
		   strstr(err.msg,
			  "take --tp 1: q_proj of a rank has 256 outputs, no multiple of the 512"),
	   "a block is cut along outputs: %s", err.msg);
	model_release(&m);
	load_formats(&m, DENSE QUANT "{\"quant_method\":\"gptq\",\"bits\":4,\"group_size\":-1}}");
	ok(!model_split(&m, 4, &err), "whole rows may be cut");
	model_release(&m);
}

/* ---- memory ---- */

static void test_faults(void)
{
	static const size_t some[] = { 3, 8, 14, 27, 30 };

	for (size_t i = 0; i < sizeof some / sizeof *some; i++) {
		struct ar_err err = { 0 };
		enum ar_status st;
		struct model m;
		long k = 0;

		load(&m, said[some[i]].json);
		for (;; k += fault_stride(7)) {
			fault_arm(k);
			st = model_set_formats(&m, NULL, NULL, &err);
			if (!fault_disarm())
				break;
			if (st != AR_NOMEM && st != AR_OK && st != AR_DATA)
				break;
		}
		ok(!st && k > 1, "%s: no memory is survived: %s", said[some[i]].what, err.msg);
		model_release(&m);
	}
}

static void test_method(void)
{
	static const char awq[] = "{\"text_config\":{\"quantization_config\":"
				  "{\"quant_method\":\"awq\"}},\"limit\":Infinity}";
	char buf[16];
	enum ar_status st;
	struct ar_err err = { 0 };
	long k = 0;

	for (;; k++) {
		fault_arm(k);
		st = quant_method(buf, sizeof buf, awq, &err);
		if (!fault_disarm() || st != AR_NOMEM)
			break;
	}
	ok(!st && k > 1, "the method of a config is found, or memory lacks: %s", err.msg);
	is_str(buf, "awq", "... by its name");
	st = quant_method(buf, sizeof buf, "{\"quantization_config\":{\"quantization\":{}}}", &err);
	ok(!st && !strcmp(buf, "modelopt"), "... or without one");
	ok(!quant_method(buf, sizeof buf, "{}", &err) && !*buf, "a config may have none");
	ok(!quant_method(buf, sizeof buf, "{", &err) && !*buf, "... or be no config");
}

int main(void)
{
	plan(0);
	test_method();
	test_said();
	test_refused();
	test_options();
	test_beside();
	test_format_bytes();
	test_model_bytes();
	test_split();
	test_faults();
	return done_testing();
}
