/* SPDX-License-Identifier: Apache-2.0 */
/* Families of models with ordinary attention: layers and bytes of KV as their published files say,
 * and files that are refused. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/log.h"
#include "model/layer_size.h"
#include "model/params.h"
#include "model/quant.h"
#include "tests/a_model.h"
#include "tests/tap.h"

static int64_t kv_bytes(const struct model *m)
{
	int64_t n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n += m->layer[i].mixer == MIX_LINEAR ? 0 : layer_cache_bytes(&m->layer[i]);
	return n;
}

/* Layers of a kind, and those with experts. */
static int count(const struct model *m, enum mixer mixer)
{
	int n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n += m->layer[i].mixer == mixer;
	return n;
}

static int count_experts(const struct model *m)
{
	int n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n += m->layer[i].n_experts > 0;
	return n;
}

/* In bf16, of all layers: 2 bytes of each channel of K and V. */
static void test_presets(void)
{
	static const struct {
		const char *name;
		int full, window, chunk, linear, experts;
		int64_t kv;
	} cases[] = {
		{ "gemma-4-31b", 10, 50, 0, 0, 0, 2 * 2 * (10 * 4 * 512 + 50 * 16 * 256) },
		{ "llama-4-maverick", 12, 0, 36, 0, 24, 2 * 2 * 48 * 8 * 128 },
		{ "llama-4-scout", 12, 0, 36, 0, 48, 2 * 2 * 48 * 8 * 128 },
		{ "mimo-v2-flash", 9, 39, 0, 0, 47, 2 * (192 + 128) * (9 * 4 + 39 * 8) },
		{ "minimax-m2.5", 62, 0, 0, 0, 62, 2 * 2 * 62 * 8 * 128 },
		{ "qwen3.5-27b", 16, 0, 0, 48, 0, 2 * 2 * 16 * 4 * 256 },
		{ "qwen3.5-35b-a3b", 10, 0, 0, 30, 40, 2 * 2 * 10 * 2 * 256 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model m = a_model(cases[i].name);

		ok(count(&m, MIX_FULL) == cases[i].full &&
			   count(&m, MIX_WINDOW) == cases[i].window &&
			   count(&m, MIX_CHUNK) == cases[i].chunk &&
			   count(&m, MIX_LINEAR) == cases[i].linear &&
			   count_experts(&m) == cases[i].experts,
		   "%s: layers of each kind", m.name);
		is_int(kv_bytes(&m), cases[i].kv, "%s: bytes of KV of a token", m.name);
		is_str(m.unread, "", "%s: all keys are read", m.name);
		model_release(&m);
	}
}

static void test_llama4(void)
{
	struct model m = a_model("llama-4-maverick");
	const struct layer_spec *d = &m.layer[0], *e = &m.layer[1], *f = &m.layer[3];

	ok(d->mixer == MIX_CHUNK && d->window == 8192 && !d->n_experts && d->ffn == 16384 &&
		   d->rotary_dim == 128,
	   "Llama 4 Maverick: a dense layer that attends within chunks");
	ok(e->n_experts == 128 && e->experts_per_tok == 1 && e->ffn == 8192 &&
		   e->shared_ffn == 8192 && !e->shared_gate && e->router.scoring == ROUTER_SIGMOID,
	   "... one with experts and a shared one");
	ok(f->mixer == MIX_FULL && !f->window && !f->rotary_dim && f->n_experts == 128,
	   "... a full one, which does not rotate");
	model_release(&m);
}

static void test_mimo(void)
{
	struct model m = a_model("mimo-v2-flash");
	const struct layer_spec *f = &m.layer[0], *w = &m.layer[1];
	struct ar_err err = { 0 };

	ok(f->mixer == MIX_FULL && f->kv_heads == 4 && f->head_dim == 192 && f->v_dim == 128 &&
		   f->rotary_dim == 64 && !f->sinks && !f->n_experts && f->ffn == 16384,
	   "MiMo-V2-Flash: a full layer with 4 KV heads and a dense MLP");
	ok(w->mixer == MIX_WINDOW && w->window == 128 && w->kv_heads == 8 && w->head_dim == 192 &&
		   w->v_dim == 128 && w->sinks && w->n_experts == 256 && w->ffn == 2048 &&
		   !w->shared_ffn && w->router.scoring == ROUTER_SIGMOID && w->router.bias,
	   "... a window with 8, sinks, and experts");
	ok(m.rope.theta == 5e6 && m.rope_window.theta == 1e4 && m.norm_eps == 1e-5,
	   "... and two rotary embeddings");
	ok(!model_set_formats(&m, NULL, NULL, &err) && !model_split(&m, 8, &err) &&
		   m.layer[0].kv_heads == 1 && m.layer[1].kv_heads == 1,
	   "... on eight ranks, whose keys are no whole blocks of scales: %s", err.msg);
	model_release(&m);
}

static void test_gemma4(void)
{
	struct model m = a_model("gemma-4-31b");
	const struct layer_spec *w = &m.layer[0], *f = &m.layer[5];

	ok(w->mixer == MIX_WINDOW && w->head_dim == 256 && w->kv_heads == 16 && !w->k_is_v &&
		   w->rotary_dim == 256 && w->window == 1024,
	   "Gemma 4 31B: a window");
	ok(f->mixer == MIX_FULL && f->head_dim == 512 && f->kv_heads == 4 && f->k_is_v &&
		   f->rotary_dim == 128 && f->q_heads == 32 && f->score_scale == 1,
	   "... a full layer of other heads, whose keys are values");
	ok(m.tied && fabs(m.embed_scale * m.embed_scale - 5376) < 1e-9 && !m.norm_plus_one,
	   "... tied and scaled embeddings");
	model_release(&m);
	m = a_model_of("{\"model_type\":\"gemma4_text\",\"num_hidden_layers\":2,\"hidden_size\":64,"
		       "\"intermediate_size\":96,\"vocab_size\":100,\"num_attention_heads\":4,"
		       "\"head_dim\":32,\"sliding_window\":8,\"num_experts\":8,\"top_k_experts\":2,"
		       "\"moe_intermediate_size\":16,\"enable_moe_block\":true,"
		       "\"layer_types\":[\"sliding_attention\",\"full_attention\"]}");
	ok(m.layer->n_experts == 8 && m.layer->experts_per_tok == 2 && m.layer->ffn == 16 &&
		   m.layer->shared_ffn == 96 && !m.layer->shared_gate && m.layer->expert_norms,
	   "a dense MLP beside experts");
	/* matrices of both heads, MLP, router and experts; norms of heads, of layers, and of
	 * experts; scales of the router and of experts */
	is_int(layer_params(&m, m.layer),
	       64 * 32 * (4 + 4 + 4 + 4) + 3 * 96 * 64 + 8 * 64 + 8 * 3 * 16 * 64 + 2 * 32 +
		       4 * 64 + 3 * 64 + 64 + 8,
	       "... whose norms and scales count");
	model_release(&m);
}

static void test_minimax(void)
{
	struct model m = a_model("minimax-m2.5");
	const struct layer_spec *l = m.layer;

	ok(l->n_experts == 256 && l->experts_per_tok == 8 && l->ffn == 1536 && !l->shared_ffn &&
		   l->qk_norm && l->qk_norm_all && l->rotary_dim == 64 && m.rope.share == 0.5 &&
		   l->router.scoring == ROUTER_SIGMOID && l->router.bias,
	   "MiniMax-M2.5: its layers are as published");
	model_release(&m);
}

/* GLM-4.5-Air by the defaults of Glm4MoeConfig, ERNIE-4.5-21B by those of Ernie4_5_MoeConfig. */
static void test_defaults(void)
{
	struct model m = a_model_of(
		"{\"model_type\":\"glm4_moe\",\"num_hidden_layers\":46,\"hidden_size\":4096,"
		"\"intermediate_size\":10944,\"vocab_size\":151552,\"num_attention_heads\":96,"
		"\"num_key_value_heads\":8,\"head_dim\":128,\"n_routed_experts\":128,"
		"\"num_experts_per_tok\":8,\"moe_intermediate_size\":1408,\"n_shared_experts\":1,"
		"\"n_group\":1,\"topk_group\":1,\"first_k_dense_replace\":1,"
		"\"attention_bias\":true,\"use_qk_norm\":false,\"routed_scaling_factor\":1.0}");
	const struct layer_spec *l = &m.layer[1];

	ok(!m.layer->n_experts && m.layer->ffn == 10944 && l->n_experts == 128 && l->ffn == 1408 &&
		   l->shared_ffn == 1408 && l->rotary_dim == 64 && l->qkv_bias && !l->o_bias &&
		   !l->qk_norm && l->router.scoring == ROUTER_SIGMOID && l->router.bias,
	   "GLM-4.5-Air: a dense layer, then experts with a shared one");
	is_int(model_params(&m), 106852251264, "... parameters, without the layer that predicts");
	model_release(&m);
	m = a_model_of(
		"{\"model_type\":\"ernie4_5_moe\",\"num_hidden_layers\":28,\"hidden_size\":2560,"
		"\"intermediate_size\":12288,\"vocab_size\":103424,\"num_attention_heads\":20,"
		"\"num_key_value_heads\":4,\"moe_num_experts\":64,\"moe_k\":6,"
		"\"moe_intermediate_size\":1536,\"moe_num_shared_experts\":2,"
		"\"moe_layer_start_index\":1,\"moe_layer_end_index\":-1,"
		"\"moe_layer_interval\":1,\"use_bias\":false,\"tie_word_embeddings\":true}");
	l = &m.layer[1];
	ok(!m.layer->n_experts && m.layer->ffn == 12288 && count_experts(&m) == 27 &&
		   l->experts_per_tok == 6 && l->ffn == 1536 && l->shared_ffn == 3072 &&
		   l->router.bias,
	   "ERNIE-4.5-21B: a dense layer, then experts with two shared ones");
	is_int(model_params(&m), 21825437888, "... parameters");
	is_str(m.unread, "", "... all keys are read");
	model_release(&m);
	m = a_model_of(
		"{\"model_type\":\"ernie4_5_moe\",\"num_hidden_layers\":6,\"hidden_size\":64,"
		"\"intermediate_size\":96,\"vocab_size\":100,\"num_attention_heads\":4,"
		"\"moe_num_experts\":8,\"moe_k\":2,\"moe_intermediate_size\":32,"
		"\"moe_layer_start_index\":1,\"moe_layer_end_index\":4,"
		"\"moe_layer_interval\":2,\"use_bias\":true}");
	ok(count_experts(&m) == 2 && m.layer[1].n_experts && m.layer[3].n_experts &&
		   m.layer->qkv_bias && m.layer->o_bias,
	   "a range of layers with experts, and biases");
	model_release(&m);
	m = a_model_of("{\"model_type\":\"step3p7\",\"num_hidden_layers\":3,\"hidden_size\":64,"
		       "\"intermediate_size\":96,\"vocab_size\":100,\"num_attention_heads\":4,"
		       "\"num_experts\":8,\"num_experts_per_tok\":2,\"moe_intermediate_size\":16,"
		       "\"share_expert_dim\":24,\"n_shared_experts\":1,\"first_k_dense_replace\":1,"
		       "\"scoring_func\":\"sigmoid\",\"use_moe_router_bias\":true,"
		       "\"moe_router_scaling_factor\":3.0}");
	ok(count_experts(&m) == 2 && m.layer->ffn == 96 && m.layer[1].ffn == 16 &&
		   m.layer[1].shared_ffn == 24 && m.layer[1].router.bias &&
		   m.layer[1].router.scaling == 3 && m.layer->qk_norm,
	   "Step-3.7: dense layers, then experts with a shared one");
	is_str(m.unread, "", "... all keys are read");
	model_release(&m);
}

#define BASE(type) \
	"{\"model_type\":\"" type "\",\"num_hidden_layers\":2,\"hidden_size\":64," \
	"\"intermediate_size\":96,\"vocab_size\":100,\"num_attention_heads\":4,\"head_dim\":32"
#define EXPERTS ",\"num_local_experts\":8,\"num_experts_per_tok\":2"

static void test_refused(void)
{
	static const struct {
		const char *text, *wrong;
	} cases[] = {
		{ BASE("llama4") EXPERTS ",\"no_rope_layers\":[1]}",
		  "'no_rope_layers' has 1 entries, but num_hidden_layers is 2" },
		{ BASE("llama4") EXPERTS ",\"no_rope_layers\":[1,2]}",
		  "want 0 or 1 in 'no_rope_layers'" },
		{ BASE("llama4") EXPERTS ",\"attention_chunk_size\":0}",
		  "as 'attention_chunk_size'" },
		{ BASE("llama4") EXPERTS ",\"interleave_moe_layer_step\":0}",
		  "as 'interleave_moe_layer_step'" },
		{ BASE("minimax_m2") EXPERTS ",\"attn_type_list\":[1,0]}",
		  "linear attention of MiniMax is not known" },
		{ BASE("minimax_m2") EXPERTS ",\"rotary_dim\":7}", "rotary_dim 7 is odd" },
		{ BASE("mimo_v2_flash") ",\"sliding_window\":8}",
		  "'hybrid_layer_pattern' has 0 entries, but num_hidden_layers is 2" },
		{ BASE("mimo_v2_flash") ",\"sliding_window\":8,\"hybrid_layer_pattern\":[0,2]}",
		  "want 0 or 1 in 'hybrid_layer_pattern'" },
		{ BASE("mimo_v2_flash") ",\"hybrid_layer_pattern\":[0,1]}", "as 'sliding_window'" },
		{ BASE("mimo_v2_flash") ",\"sliding_window\":8,\"swa_num_key_value_heads\":3}",
		  "swa_num_key_value_heads 3 does not divide swa_num_attention_heads 4" },
		{ BASE("mimo_v2_flash") ",\"sliding_window\":8,\"layernorm_epsilon\":2}",
		  "as 'layernorm_epsilon'" },
		{ BASE("gemma4") ",\"num_global_key_value_heads\":3}",
		  "num_global_key_value_heads 3 does not divide num_attention_heads 4" },
		{ BASE("gemma4") ",\"hidden_size_per_layer_input\":8}",
		  "layers have inputs of their own" },
		{ BASE("ernie4_5_moe") ",\"moe_num_experts\":8}", "as 'moe_k'" },
		{ BASE("step3p7") EXPERTS ",\"share_expert_dim\":-1}", "as 'share_expert_dim'" },
		{ BASE("glm4_moe") ",\"n_routed_experts\":8,\"num_experts_per_tok\":9}",
		  "as 'num_experts_per_tok'" },
	};
	struct ar_err err = { 0 };
	struct model m;

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
		ok(model_parse(&m, "c.json", cases[i].text, &err) == AR_DATA && !m.layer &&
			   strstr(err.msg, cases[i].wrong),
		   "refused: %s (%s)", cases[i].wrong, err.msg);
}

int main(void)
{
	plan(0);
	log_level = LOG_ERROR;
	test_presets();
	test_llama4();
	test_mimo();
	test_gemma4();
	test_minimax();
	test_defaults();
	test_refused();
	return done_testing();
}
