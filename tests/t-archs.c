/* SPDX-License-Identifier: Apache-2.0 */
/* Architectures: the layers that each reads, and the published facts of presets whose layers
 * differ. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/arch.h"
#include "model/rope.h"
#include "tests/alloc_fault.h"
#include "tests/a_model.h"
#include "tests/tap.h"

/* ---- weights ---- */

/* Weights of the products of a token in a layer's mixer, and in its MLP with k experts. */
static double mixer_weights(const struct model *m, const struct layer_spec *l)
{
	const struct delta_spec *d = &l->delta;
	double h = m->hidden, q = (double)l->q_heads * l->head_dim;
	double kv = (double)l->kv_heads * l->head_dim, k = (double)d->k_heads * d->k_dim;
	double v = (double)d->v_heads * d->v_dim;

	if (l->mixer == MIX_LINEAR)
		return h * (2 * k + 2 * v + 2 * d->v_heads) + v * h;
	return h * (q * (1 + l->out_gate) + 2 * kv) + q * h;
}

static double mlp_weights(const struct model *m, const struct layer_spec *l, int k)
{
	double h = m->hidden;

	if (!l->n_experts)
		return 3 * h * l->ffn;
	return h * l->n_experts + 3 * h * ((double)k * l->ffn + l->shared_ffn) + h * l->shared_gate;
}

/* In 1e6 the products of a token in layers `full` and `other`: mixer, then MLP with the experts
 * that it takes. */
static void test_weights(void)
{
	static const struct {
		const char *name;
		int full, other;
		double mixer, other_mixer, mlp;
		int kv_bytes; /* of a token in layer full, in bf16 */
	} cases[] = {
		{ "llama-3.1-8b", 0, 31, 41.9, 41.9, 176.2, 4096 },
		{ "gemma-3-12b", 5, 0, 47.2, 47.2, 176.9, 8192 },
		{ "qwen3-30b-a3b", 0, 47, 18.9, 18.9, 38.0, 2048 },
		{ "qwen3-next-80b-a3b", 3, 0, 27.3, 33.7, 35.7, 2048 },
		{ "gpt-oss-20b", 1, 0, 26.5, 26.5, 99.6, 2048 },
		{ "mistral-7b-v0.1", 0, 31, 41.9, 41.9, 176.2, 4096 },
		{ "qwen2.5-7b", 0, 27, 29.4, 29.4, 203.7, 2048 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model m = a_model(cases[i].name);
		const struct layer_spec *l = &m.layer[cases[i].full], *o = &m.layer[cases[i].other];

		ok(fabs(mixer_weights(&m, l) / 1e6 - cases[i].mixer) < 0.06 &&
			   fabs(mixer_weights(&m, o) / 1e6 - cases[i].other_mixer) < 0.06 &&
			   fabs(mlp_weights(&m, l, l->experts_per_tok) / 1e6 - cases[i].mlp) < 0.06,
		   "%s: %.1fe6 and %.1fe6 of a token in mixers, %.1fe6 in the MLP", m.name,
		   mixer_weights(&m, l) / 1e6, mixer_weights(&m, o) / 1e6,
		   mlp_weights(&m, l, l->experts_per_tok) / 1e6);
		is_int(2 * 2 * l->kv_heads * l->head_dim, cases[i].kv_bytes, "... bytes of KV");
		model_release(&m);
	}
}

/* ---- layers ---- */

/* F: full, w: window, l: linear. */
static void is_kinds(const struct model *m, const char *period, const char *name)
{
	static const char letter[] = { [MIX_FULL] = 'F', [MIX_WINDOW] = 'w', [MIX_LINEAR] = 'l' };
	int wrong = 0, n = (int)strlen(period);

	for (int i = 0; i < m->n_layers; i++) {
		wrong += letter[m->layer[i].mixer] != period[i % n];
		wrong += model_layer_kind(m, i) != (int)(strchr(period, period[i % n]) - period);
	}
	is_int(wrong, 0, "%s: layers are %s, and so on", name, period);
}

static void test_gemma3(void)
{
	struct model m = a_model("gemma-3-12b");
	const struct layer_spec *w = &m.layer[0], *f = &m.layer[5];

	is_kinds(&m, "wwwwwF", "gemma-3-12b");
	is_int(model_odd_layer(&m), 5, "its first full layer is layer 5");
	ok(w->window == 1024 && !f->window && w->qk_norm && w->post_norms &&
		   w->act == ACT_GELU_TANH && w->head_dim == 256 && w->rotary_dim == 256 &&
		   !w->qkv_bias && !w->out_gate && !w->sinks && w->ffn == 15360 && !w->n_experts,
	   "its layers are as published");
	ok(w->score_scale == 0.0625 && layer_q_scale(w) == 1, "scores are divided by 16, as usual");
	ok(m.norm_plus_one && m.tied && fabs(m.embed_scale * m.embed_scale - 3840) < 1e-9,
	   "norms are 1 + w, embeddings are scaled and tied");
	ok(m.rope.theta == 1e6 && m.rope.type == ROPE_LINEAR && m.rope.factor == 8 &&
		   m.rope_window.theta == 1e4 && !rope_is_scaled(&m.rope_window),
	   "and two rotary embeddings");
	model_release(&m);
}

static void test_qwen3_next(void)
{
	struct model m = a_model("qwen3-next-80b-a3b");
	const struct layer_spec *l = &m.layer[0], *f = &m.layer[3];
	const struct delta_spec *d = &l->delta;

	is_kinds(&m, "lllF", "qwen3-next-80b-a3b");
	ok(d->k_heads == 16 && d->v_heads == 32 && d->k_dim == 128 && d->v_dim == 128 &&
		   d->conv == 4 && !f->delta.conv,
	   "its DeltaNets are as published");
	ok(!l->q_heads && !l->kv_heads && !l->head_dim && !l->rotary_dim && !l->qk_norm &&
		   !l->out_gate,
	   "and have nothing of attention");
	ok(f->q_heads == 16 && f->kv_heads == 2 && f->head_dim == 256 && f->rotary_dim == 64 &&
		   f->qk_norm && f->out_gate && m.rope.share == 0.25 && m.rope.theta == 1e7,
	   "attention has a gate, and rotates a quarter of a head");
	ok(l->n_experts == 512 && l->experts_per_tok == 10 && l->ffn == 512 &&
		   l->shared_ffn == 512 && l->shared_gate && m.norm_plus_one && !m.tied,
	   "there are 512 experts and a shared one");
	model_release(&m);
}

static void test_gpt_oss(void)
{
	struct model m = a_model("gpt-oss-20b");
	const struct layer_spec *w = &m.layer[0], *f = &m.layer[1];

	is_kinds(&m, "wF", "gpt-oss-20b");
	ok(w->window == 128 && !f->window && w->sinks && f->sinks && w->qkv_bias && w->o_bias &&
		   w->mlp_bias && w->act == ACT_SWIGLU_CLAMP && !w->qk_norm && w->head_dim == 64 &&
		   w->n_experts == 32 && w->experts_per_tok == 4 && !m.tied,
	   "its layers are as published");
	ok(m.rope.type == ROPE_YARN && m.rope.theta == 150000 && m.rope.factor == 32 &&
		   m.rope.original_len == 4096 && m.rope.beta_fast == 32 && m.rope.beta_slow == 1 &&
		   !m.rope.truncate && m.rope_window.theta == 0,
	   "and its one rotary embedding");
	model_release(&m);
}

static void test_alike(void)
{
	static const struct {
		const char *name;
		enum mixer mixer;
		int window, qkv_bias, qk_norm;
	} cases[] = {
		{ "mistral-7b-v0.1", MIX_WINDOW, 4096, 0, 0 },
		{ "mistral-7b-v0.3", MIX_FULL, 0, 0, 0 },
		{ "qwen2.5-7b", MIX_FULL, 0, 1, 0 },
		{ "qwen3-8b", MIX_FULL, 0, 0, 1 },
		{ "qwen3-30b-a3b", MIX_FULL, 0, 0, 1 },
		{ "llama-3.1-8b", MIX_FULL, 0, 0, 0 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model m = a_model(cases[i].name);
		const struct layer_spec *l = m.layer;

		ok(!model_odd_layer(&m) && l->mixer == cases[i].mixer &&
			   l->window == cases[i].window && l->qkv_bias == cases[i].qkv_bias &&
			   !l->o_bias && l->qk_norm == cases[i].qk_norm &&
			   l->rotary_dim == l->head_dim && l->act == ACT_SILU && !l->out_gate &&
			   !l->sinks && !l->post_norms && !l->score_scale && layer_q_scale(l) == 1,
		   "%s: all layers are of one kind", m.name);
		model_release(&m);
	}
}

/* ---- texts ---- */

static enum ar_status parse(struct model *m, const char *text, struct ar_err *err)
{
	return model_parse(m, "c.json", text, err);
}

#define BASE(layers) \
	"\"num_hidden_layers\":" layers \
	",\"hidden_size\":64,\"intermediate_size\":96,\"vocab_size\":100," \
	"\"num_attention_heads\":4,\"head_dim\":32"
#define DELTA \
	",\"linear_num_key_heads\":2,\"linear_num_value_heads\":4," \
	"\"linear_key_head_dim\":16,\"linear_value_head_dim\":8," \
	"\"linear_conv_kernel_dim\":4"
#define TYPED(type, layers) "{\"model_type\":\"" type "\"," BASE(layers)

/* Patterns of layers, of two models at most. */
static void test_patterns(void)
{
	static const struct {
		const char *text, *period;
	} cases[] = {
		{ "{" BASE("4") "}", "F" },
		{ "{" BASE("4") ",\"sliding_window\":8}", "w" },
		{ "{" BASE("4") ",\"sliding_window\":8,\"use_sliding_window\":false}", "F" },
		{ "{" BASE("4") ",\"sliding_window\":null,\"use_sliding_window\":true}", "F" },
		{ "{" BASE("4") ",\"sliding_window\":8,\"use_sliding_window\":true,"
				"\"max_window_layers\":2}",
		  "FFww" },
		{ "{" BASE("4") ",\"sliding_window\":8,\"use_sliding_window\":true,"
				"\"max_window_layers\":0}",
		  "w" },
		{ "{" BASE("2") ",\"sliding_window\":8,\"use_sliding_window\":false,"
				"\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
		  "Fw" },
		{ "{" BASE("4") ",\"sliding_window\":8,\"sliding_window_pattern\":2}", "wF" },
		{ "{" BASE("4") ",\"full_attention_interval\":2}", "F" },
		{ TYPED("qwen3_next", "8") DELTA "}", "lllF" },
		{ TYPED("qwen3_next", "4") DELTA ",\"full_attention_interval\":2}", "lF" },
		{ TYPED("qwen3_next", "2") DELTA
		  ",\"layer_types\":[\"full_attention\",\"linear_attention\"]}",
		  "Fl" },
		{ TYPED("gpt_oss", "4") ",\"sliding_window\":8}", "wF" },
		{ TYPED("gemma3_text", "12") ",\"sliding_window\":8}", "wwwwwF" },
	};
	struct ar_err err = { 0 };
	struct model m;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		if (parse(&m, cases[i].text, &err))
			bail_out("%s", err.msg);
		is_kinds(&m, cases[i].period, cases[i].text);
		model_release(&m);
	}
}

/* Keys that the published files of Gemma 3 leave out, and keys that change a layer. */
static void test_keys(void)
{
	struct ar_err err = { 0 };
	struct model m, preset = a_model("gemma-3-12b");
	bool same = true;

	ok(parse(&m,
		 "{\"model_type\":\"gemma3\",\"text_config\":{\"hidden_size\":3840,"
		 "\"intermediate_size\":15360,\"num_attention_heads\":16,\"num_hidden_layers\":48,"
		 "\"num_key_value_heads\":8,\"rope_scaling\":{\"factor\":8.0,"
		 "\"rope_type\":\"linear\"},\"sliding_window\":1024,\"head_dim\":null}}",
		 &err) == AR_OK,
	   "the short file of Gemma 3 12B: %s", err.msg);
	for (int i = 0; i < 48; i++)
		same = same && layer_alike(&m.layer[i], &preset.layer[i]);
	ok(same && m.vocab == preset.vocab && m.max_len == preset.max_len && m.tied &&
		   rope_equal(&m.rope, &preset.rope) &&
		   rope_equal(&m.rope_window, &preset.rope_window),
	   "is the preset");
	model_release(&m);
	model_release(&preset);
	ok(parse(&m,
		 TYPED("gemma3_text", "6") ",\"sliding_window\":8,\"query_pre_attn_scalar\":8,"
					   "\"tie_word_embeddings\":false,"
					   "\"rope_parameters\":{\"full_attention\":{\"rope_type\":"
					   "\"linear\",\"factor\":4,\"rope_theta\":1e5},"
					   "\"sliding_attention\":{\"rope_type\":\"default\","
					   "\"rope_theta\":5e3}}}",
		 &err) == AR_OK &&
		   m.rope.theta == 1e5 && m.rope.factor == 4 && m.rope_window.theta == 5e3 &&
		   !m.tied && fabs(layer_q_scale(m.layer) - 2) < 1e-12,
	   "rotary embeddings by kind of layer, and another scale: %s", err.msg);
	model_release(&m);
	ok(parse(&m,
		 "{" BASE(
			 "2") ",\"attention_bias\":true,\"mlp_bias\":true,"
			      "\"hidden_act\":\"gelu_pytorch_tanh\",\"partial_rotary_factor\":0.5}",
		 &err) == AR_OK &&
		   m.layer->qkv_bias && m.layer->o_bias && m.layer->mlp_bias &&
		   m.layer->act == ACT_GELU_TANH && m.layer->rotary_dim == 16,
	   "keys of any model: %s", err.msg);
	model_release(&m);
	ok(parse(&m,
		 TYPED("qwen2_moe", "2") ",\"num_experts\":8,\"num_experts_per_tok\":2,"
					 "\"moe_intermediate_size\":32,"
					 "\"shared_expert_intermediate_size\":48}",
		 &err) == AR_OK &&
		   m.layer->qkv_bias && m.layer->ffn == 32 && m.layer->shared_ffn == 48 &&
		   m.layer->shared_gate,
	   "a shared expert: %s", err.msg);
	model_release(&m);
	ok(parse(&m,
		 TYPED("qwen3_moe", "2") ",\"num_experts\":8,\"num_experts_per_tok\":2,"
					 "\"moe_intermediate_size\":32,"
					 "\"shared_expert_intermediate_size\":0}",
		 &err) == AR_OK &&
		   m.layer->n_experts == 8 && !m.layer->shared_ffn && !m.layer->shared_gate,
	   "a width of 0 is no shared expert: %s", err.msg);
	model_release(&m);
	ok(parse(&m,
		 TYPED("qwen3_moe", "6") ",\"num_experts\":8,\"num_experts_per_tok\":2,"
					 "\"moe_intermediate_size\":32,"
					 "\"decoder_sparse_step\":2,\"mlp_only_layers\":[3]}",
		 &err) == AR_OK &&
		   m.layer[1].n_experts == 8 && m.layer[1].ffn == 32 && m.layer[5].n_experts == 8 &&
		   !m.layer[0].n_experts && !m.layer[3].n_experts && !m.layer[4].n_experts &&
		   m.layer[0].ffn == 96 && model_layer_kind(&m, 3) == 0,
	   "layers with experts and dense ones: %s", err.msg);
	model_release(&m);
	ok(parse(&m,
		 "{\"model_type\":\"qwen3_5_moe_text\",\"num_hidden_layers\":4,\"hidden_size\":64,"
		 "\"vocab_size\":100,\"num_attention_heads\":4,\"head_dim\":32,"
		 "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":48,"
		 "\"attn_output_gate\":false,\"mamba_ssm_dtype\":\"float32\"" DELTA "}",
		 &err) == AR_OK &&
		   m.layer[0].ffn == 48 && m.layer[0].state_f32 && !m.layer[3].state_f32 &&
		   !m.layer[3].out_gate,
	   "a model of experts alone, states of fp32, no gate: %s", err.msg);
	model_release(&m);
	ok(parse(&m, TYPED("mimo", "2") ",\"attention_bias\":true}", &err) == AR_OK &&
		   m.layer->qkv_bias && !m.layer->o_bias,
	   "MiMo's bias is not of the output: %s", err.msg);
	model_release(&m);
}

static void test_refused(void)
{
	static const struct {
		const char *text, *wrong;
	} cases[] = {
		{ "{" BASE("2") ",\"attn_logit_softcapping\":50.0}",
		  "key 'attn_logit_softcapping' says that scores are capped" },
		{ "{" BASE("2") ",\"hidden_act\":\"relu2\"}",
		  "activation 'relu2' is not known; known are silu and gelu_pytorch_tanh" },
		{ "{" BASE("2") ",\"hidden_act\":1}", "want a string as 'hidden_act'" },
		{ "{" BASE("2") ",\"attention_bias\":1}",
		  "want true or false as 'attention_bias'" },
		{ "{" BASE("2") ",\"layer_types\":[\"linear_attention\",\"full_attention\"]}",
		  "'linear_attention' is not known; known are full_attention, "
		  "sliding_attention" },
		{ TYPED("qwen3_next", "1") DELTA ",\"layer_types\":[\"ssm\"]}",
		  "'ssm' is not known; known are full_attention, sliding_attention, "
		  "linear_attention" },
		{ "{" BASE("2") ",\"layer_types\":[\"full_attention\"]}",
		  "'layer_types' has 1 entries, but num_hidden_layers is 2" },
		{ "{" BASE("2") ",\"layer_types\":[\"full_attention\",\"sliding_attention\"]}",
		  "as 'sliding_window'" },
		{ "{" BASE("2") ",\"sliding_window\":0}", "as 'sliding_window'" },
		{ "{" BASE("2") ",\"sliding_window\":8,\"sliding_window_pattern\":0}",
		  "as 'sliding_window_pattern'" },
		{ "{" BASE("2") ",\"sliding_window\":8,\"use_sliding_window\":true}",
		  "as 'max_window_layers'" },
		{ "{" BASE("2") ",\"partial_rotary_factor\":0.1}",
		  "partial_rotary_factor 0.1 rotates 3 channels of a head of 32" },
		{ "{" BASE("2") ",\"partial_rotary_factor\":0.01}", "rotates 0 channels" },
		{ "{" BASE("2") ",\"num_experts\":8,\"num_experts_per_tok\":2,"
				"\"shared_expert_intermediate_size\":-1}",
		  "from 0 to 16777216 as 'shared_expert_intermediate_size'" },
		{ "{" BASE("2") ",\"num_experts\":8,\"num_experts_per_tok\":Infinity}",
		  "as 'num_experts_per_tok', not 'Infinity'" },
		{ TYPED("gpt_oss", "2") ",\"sliding_window\":8,\"swiglu_limit\":NaN}",
		  "want a positive number as 'swiglu_limit', not 'NaN'" },
		{ TYPED("qwen3_next", "4") "}", "as 'linear_num_key_heads'" },
		{ TYPED("qwen3_5", "4") DELTA ",\"mamba_ssm_dtype\":\"float16\"}",
		  "want float32 or bfloat16 as 'mamba_ssm_dtype'" },
		{ TYPED("qwen3_next", "4") DELTA ",\"linear_num_value_heads\":3}",
		  "appears twice" },
		{ TYPED("qwen3_next",
			"4") ",\"linear_num_key_heads\":2,\"linear_num_value_heads\":3,"
			     "\"linear_key_head_dim\":16,\"linear_value_head_dim\":8,"
			     "\"linear_conv_kernel_dim\":4}",
		  "linear_num_key_heads 2 does not divide linear_num_value_heads 3" },
		{ TYPED("gpt_oss", "2") ",\"sliding_window\":8,\"swiglu_limit\":6}",
		  "swiglu_limit 6 is not known" },
		{ TYPED("gpt_oss", "2") ",\"sliding_window\":8,\"swiglu_limit\":\"7\"}",
		  "want a positive number as 'swiglu_limit'" },
		{ TYPED("gemma3_text", "2") ",\"sliding_window\":8,\"query_pre_attn_scalar\":-1}",
		  "as 'query_pre_attn_scalar'" },
		{ TYPED("gemma3_text", "2") ",\"sliding_window\":8,\"rope_local_base_freq\":0}",
		  "as 'rope_local_base_freq'" },
		{ TYPED("gemma3_text", "2") ",\"sliding_window\":8,\"rope_parameters\":{"
					    "\"sliding_attention\":{\"rope_type\":\"odd\"},"
					    "\"full_attention\":{\"rope_type\":\"default\"}}}",
		  "unknown rope type 'odd'" },
	};
	struct ar_err err = { 0 };
	struct model m;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok(parse(&m, cases[i].text, &err) == AR_DATA && !m.layer && !m.json &&
			   strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg);
}

static void test_faults(void)
{
	static const char *const names[] = { "gemma-3-12b", "qwen3-next-80b-a3b", "gpt-oss-20b" };
	struct ar_err err = { 0 };
	struct model m;

	for (int i = 0; i < 3; i++) {
		/* The defaults that this file needs allocate as well. */
		const char *text = i ? NULL : TYPED("gemma3_text", "2") ",\"sliding_window\":8}";
		int bad = 0;
		long k = 0;

		for (;; k++) {
			enum ar_status st;

			fault_arm(k);
			st = text ? parse(&m, text, &err) : model_load(&m, names[i], &err);
			if (!fault_disarm())
				break;
			bad += st != AR_NOMEM || m.json || m.layer;
		}
		model_release(&m);
		ok(!bad && k > 20, "%s: each of %ld allocations fails cleanly", names[i], k);
	}
}

/* ---- comparing and splitting ---- */

/* Every word counts but the padding, so no member is forgotten. */
static void test_members(void)
{
	struct layer_spec a = { .mixer = MIX_FULL, .score_scale = 0.5 }, b = a;
	const size_t pad = offsetof(struct layer_spec, shared_gate) + sizeof a.shared_gate;
	int unseen = 0;

	ok(layer_alike(&a, &b), "a layer is like its copy");
	for (size_t i = 0; i < sizeof a / sizeof(int); i++) {
		unsigned word[sizeof a / sizeof(int)];

		if (i * sizeof(int) >= pad && i * sizeof(int) < offsetof(struct layer_spec, router))
			continue;
		memcpy(word, &a, sizeof a);
		word[i] ^= 1;
		memcpy(&b, word, sizeof b);
		unseen += layer_alike(&a, &b);
	}
	is_int(unseen, 0, "and unlike one that differs in any member");
}

static void test_split(void)
{
	struct ar_err err = { 0 };
	struct model m = a_model("qwen3-next-80b-a3b");
	const struct layer_spec *l = &m.layer[0], *f = &m.layer[3];

	is_int(model_split(&m, 8, &err), AR_OK, "Qwen3-Next on eight ranks");
	ok(l->delta.k_heads == 2 && l->delta.v_heads == 4 && l->delta.k_dim == 128 &&
		   l->delta.conv == 4 && !l->q_heads && !l->kv_heads && l->ffn == 64 &&
		   l->shared_ffn == 64 && l->n_experts == 512,
	   "a linear layer has an eighth of the heads");
	ok(f->q_heads == 2 && f->kv_heads == 1 && f->rotary_dim == 64 && f->shared_ffn == 64,
	   "a full layer has one KV head");
	model_release(&m);
	m = a_model("gemma-3-12b");
	ok(model_split(&m, 8, &err) == AR_OK && m.layer[0].window == 1024 &&
		   m.layer[0].q_heads == 2 && m.layer[0].kv_heads == 1 && m.layer[5].ffn == 1920,
	   "a window stays whole");
	model_release(&m);
	m = a_model("qwen3-next-80b-a3b");
	m.layer[0].delta.k_heads = 12;
	ok(model_split(&m, 8, &err) == AR_USAGE &&
		   strstr(err.msg, "key heads of linear layers 12 is no multiple"),
	   "key heads that are not divided are refused: %s", err.msg);
	m.layer[0].delta.k_heads = 16;
	m.layer[1].delta.v_heads = 36;
	ok(model_split(&m, 8, &err) == AR_USAGE &&
		   strstr(err.msg, "value heads of linear layers 36 is no multiple"),
	   "so are value heads: %s", err.msg);
	m.layer[1].delta.v_heads = 32;
	m.layer[47].shared_ffn = 100;
	ok(model_split(&m, 8, &err) == AR_USAGE &&
		   strstr(err.msg, "shared expert FFN width 100 is no multiple") &&
		   m.layer[0].delta.k_heads == 16,
	   "and a shared expert, before anything is split: %s", err.msg);
	model_release(&m);
}

int main(void)
{
	plan(0);
	log_level = LOG_ERROR;
	test_weights();
	test_gemma3();
	test_qwen3_next();
	test_gpt_oss();
	test_alike();
	test_patterns();
	test_keys();
	test_refused();
	test_faults();
	test_members();
	test_split();
	return done_testing();
}
