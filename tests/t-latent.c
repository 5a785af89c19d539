/* SPDX-License-Identifier: Apache-2.0 */
/* Models with latent attention: published counts, caches, groups, ranks, and refused files. */
#include "config.h"

#include <cjson/cJSON.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/plan.h"
#include "model/layer_size.h"
#include "model/params.h"
#include "model/quant.h"
#include "model/rope.h"
#include "replay/sched/model_groups.h"
#include "tests/a_model.h"
#include "tests/tap.h"

/* ---- published facts ---- */

/* The tensors of attention, without its norm before and without the indexer. */
static int64_t attention_params(const struct model *m, const struct layer_spec *l)
{
	static const enum weight parts[] = { WEIGHT_Q,	       WEIGHT_K,    WEIGHT_V,
					     WEIGHT_Q_UP_NORM, WEIGHT_Q_UP, WEIGHT_KV_UP_NORM,
					     WEIGHT_KV_UP,     WEIGHT_O };
	int64_t n = 0;

	for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
		n += (int64_t)tensor_count(layer_tensor(m, l, parts[i]));
	return n;
}

static int64_t cache_bytes(const struct model *m)
{
	int64_t n = 0;

	for (int i = 0; i < m->n_layers; i++)
		n += layer_cache_bytes(&m->layer[i]);
	return n;
}

static void take_kv(struct model *m, const char *dtype)
{
	struct ar_err err = { 0 };

	if (model_set_formats(m, NULL, dtype, &err))
		bail_out("%s", err.msg);
}

/* Sizes are of the published files, counts of the published tensors, without layers that predict
 * more tokens; bytes of a token in all layers.  alpha: scale of scores. */
static const struct fact {
	const char *name;
	int64_t params, attention;
	int bytes, fp8;
	int dense; /* layers in front */
	int q_lora, topk;
	double alpha;
} facts[] = {
	{ "deepseek-v2-lite", 15706484224, 13763072, 31104, 27 * 656, 1, 0, 0, 0.1147214 },
	{ "deepseek-v3", 671026419200, 187107328, 70272, 40016, 3, 1536, 0, 0.1352338 },
	{ "deepseek-v3.2", 671877944064, 187107328, 78324, 48068, 3, 1536, 2048, 0.1352338 },
	{ "kimi-k2", 1026408232448, 101124096, 70272, 40016, 1, 1536, 0, 0.1308608 },
	{ "glm-4.7-flash", 29943393920, 21759232, 54144, 47 * 656, 1, 768, 0, 0.0625 },
	{ "glm-5", 743911218432, 165022208, 78 * 1284, 61464, 3, 2048, 2048, 0.0625 },
};

static void test_facts(void)
{
	for (size_t i = 0; i < sizeof facts / sizeof *facts; i++) {
		const struct fact *f = &facts[i];
		struct model m = a_model(f->name);
		const struct layer_spec *l = m.layer, *moe = &m.layer[m.n_layers - 1];
		int dense = 0;

		while (dense < m.n_layers && !m.layer[dense].n_experts)
			dense++;
		is_int(model_params(&m), f->params, "%s: parameters", m.name);
		is_int(attention_params(&m, l), f->attention, "%s: of a layer's attention", m.name);
		is_int(cache_bytes(&m), f->bytes, "%s: bytes of a token", m.name);
		ok(l->mla.kv_lora == 512 && l->rotary_dim == 64 && l->mla.interleave &&
			   l->kv_heads == 1 && l->mla.q_lora == f->q_lora &&
			   l->index.topk == f->topk && fabs(l->score_scale - f->alpha) < 5e-8,
		   "%s: sizes; scores times %.7f", m.name, l->score_scale);
		ok(dense == f->dense && moe->router.bias == (i > 0) &&
			   moe->router.scoring == (i ? ROUTER_SIGMOID : ROUTER_SOFTMAX) &&
			   !l->router.scaling,
		   "%s: dense layers, then a router", m.name);
		take_kv(&m, "fp8_ds_mla");
		is_int(cache_bytes(&m), f->fp8, "%s: bytes of a token with scales", m.name);
		take_kv(&m, "fp8");
		is_int(cache_bytes(&m), f->topk ? f->fp8 : m.n_layers * 576,
		       "%s: ... in fp8, as engines read it", m.name);
		take_kv(&m, "bfloat16");
		is_int(cache_bytes(&m), f->bytes, "... and in bf16 again");
		model_release(&m);
	}
}

static void test_routers(void)
{
	struct model m = a_model("deepseek-v3.2");
	const struct router *r = &m.layer[3].router;

	ok(r->groups == 8 && r->groups_kept == 4 && r->scaling == 2.5 &&
		   m.layer[3].shared_ffn == 2048 && !m.layer[3].shared_gate,
	   "DeepSeek-V3.2: groups of experts, and a shared one");
	ok(m.layer->index.heads == 64 && m.layer->index.dim == 128 && m.layer->index.own &&
		   !m.layer->index.interleave,
	   "its indexer");
	model_release(&m);
	m = a_model("deepseek-v2-lite");
	ok(!m.layer[1].router.groups && m.layer[1].router.scaling == 1 &&
		   m.layer[1].shared_ffn == 2816 && m.layer[1].experts_per_tok == 6,
	   "DeepSeek-V2-Lite: one group, two shared experts");
	model_release(&m);
	m = a_model("glm-5");
	ok(m.layer->index.heads == 32 && m.layer->index.interleave && m.norm_eps == 1e-5 &&
		   m.rope.theta == 1e6,
	   "GLM-5: its indexer turns pairs");
	model_release(&m);
}

/* Kimi-K2's ramp of yarn is a step from pair 19 to pair 20. */
static void test_step(void)
{
	struct model m = a_model("kimi-k2");
	float inv[32];

	rope_inv_freq(&m.rope, 64, inv);
	ok(fabs(inv[19] * pow(5e4, 38.0 / 64) - 1) < 1e-6 &&
		   fabs(inv[20] * pow(5e4, 40.0 / 64) * 32 - 1) < 1e-6,
	   "equal betas of yarn: pair 19 is kept, pair 20 turns 32 times slower");
	model_release(&m);
}

/* The FP8 files of DeepSeek-V3 and V3.2 have all products of a layer but routers and the indexer's
 * weights in blocks of 128 x 128 with a scale; embedding, head and norms stay in bf16. */
static void test_weights(void)
{
	struct model m = a_model("deepseek-v3.2");
	const int64_t bf16 = 2 * (int64_t)129280 * 7168 + 58 * 256 * (int64_t)(7168 + 1) + 7168 +
			     61 * (int64_t)(2 * 7168 + 1536 + 512 + 256 + 64 * 7168);
	char text[96];

	take_kv(&m, "auto");
	is_str(model_weights_text(&m, text, sizeof text), "fp8-block", "weights are in fp8");
	is_str(model_kv_text(&m, text, sizeof text), "", "... the cache is not");
	/* kv_a has 576 rows, the half of a block in the last; index k has 128 */
	is_int(model_weight_bytes(&m),
	       facts[2].params + bf16 + 4 * ((facts[2].params - bf16) / 16384) + 4 * 61 * 56 / 2,
	       "... and have a scale for each block");
	model_release(&m);
}

static void test_kv(void)
{
	struct model m = a_model("deepseek-v3.2");
	struct ar_err err = { 0 };
	char text[96];

	take_kv(&m, "fp8");
	is_str(model_kv_text(&m, text, sizeof text), "latent-index-fp8", "latents in fp8");
	is_int(model_set_formats(&m, NULL, "fp8_e5m2", &err), AR_USAGE, "not in e5m2");
	is_str(err.msg,
	       "model deepseek-v3.2: no KV cache kv-e5m2 of latents of 512 + 64 is known; take "
	       "--kv-cache-dtype bfloat16",
	       "... which is named");
	m.layer[0].mla.kv_lora = 128;
	is_int(model_set_formats(&m, NULL, "fp8", &err), AR_USAGE, "nor latents of other sizes");
	model_release(&m);
}

/* ---- changed files ---- */

/* The preset with members, such as "\"a\":1,\"b\":null"; null takes a key away. */
static char *changed(const char *preset, const char *members)
{
	struct model m = a_model(preset);
	cJSON *o = cJSON_Parse(m.json), *more, *v;
	char text[512], *out;

	snprintf(text, sizeof text, "{%s}", members);
	more = cJSON_Parse(text);
	if (!o || !more)
		bail_out("%s: not the members of an object", members);
	cJSON_ArrayForEach(v, more) {
		cJSON_DeleteItemFromObjectCaseSensitive(o, v->string);
		cJSON_AddItemToObject(o, v->string, cJSON_Duplicate(v, true));
	}
	out = cJSON_PrintUnformatted(o);
	cJSON_Delete(o);
	cJSON_Delete(more);
	model_release(&m);
	return out;
}

static struct model parse(const char *preset, const char *members)
{
	char *text = changed(preset, members);
	struct ar_err err = { 0 };
	struct model m;

	if (model_parse(&m, "c.json", text, &err))
		bail_out("%s", err.msg);
	free(text);
	return m;
}

/* GLM-5.2: one layer in four has an indexer, after the first three. */
static void test_shared(void)
{
	const struct kv_rules rules = { .spread = 1 };
	struct model m = parse("glm-5", "\"index_topk_freq\":4,\"index_skip_topk_offset\":3");
	struct model_groups g;
	struct ar_err err = { 0 };
	int own = 0, wrong = 0;

	for (int i = 0; i < m.n_layers; i++) {
		own += m.layer[i].index.own;
		wrong += m.layer[i].index.own != (i < 3 || i % 4 == 2);
	}
	is_int(own, 21, "GLM-5.2: layers with an indexer of 78");
	is_int(wrong, 0, "... layers 0, 1, 2, 6, 10 and so on");
	is_int(model_params(&m), 743911218432 - 57 * (int64_t)(2048 * 4096 + 6144 * 160 + 256),
	       "... the others have no weights of one");
	take_kv(&m, "fp8");
	is_int(cache_bytes(&m), 53940, "... bytes of a token in fp8");
	ok(!model_groups_init(&g, &m, 64, &rules, false, &err) && g.n == 1 &&
		   model_groups_plain(&g),
	   "... form one group: %s", err.msg);
	is_int(g.block_bytes, 64 * 53940, "... with the bytes of both kinds in a block");
	is_int(g.block_tok, 64, "... of as many tokens");
	model_groups_release(&g);
	model_release(&m);
	m = parse("glm-5", "\"num_hidden_layers\":4,\"index_topk_pattern\":\"FSSF\"");
	ok(m.layer[0].index.own && !m.layer[1].index.own && !m.layer[2].index.own &&
		   m.layer[3].index.own && m.layer[1].index.topk == 2048,
	   "a pattern of letters");
	model_release(&m);
	m = parse("glm-5", "\"num_hidden_layers\":3,\"indexer_types\":[\"full\",\"shared\","
			   "\"full\"],\"mlp_layer_types\":[\"dense\",\"sparse\",\"dense\"]");
	ok(m.layer[0].index.own && !m.layer[1].index.own && m.layer[2].index.own &&
		   !m.layer[0].n_experts && m.layer[1].n_experts == 256 && !m.layer[2].n_experts,
	   "lists of names");
	model_release(&m);
}

static void test_group(void)
{
	const struct kv_rules rules = { .spread = 1 };
	struct model m = a_model("deepseek-v3.2");
	struct model_groups g;
	struct ar_err err = { 0 };

	take_kv(&m, "fp8");
	ok(!model_groups_init(&g, &m, 64, &rules, false, &err) && g.n == 1 &&
		   model_groups_plain(&g),
	   "DeepSeek-V3.2: latents and index keys are one group of full attention");
	is_int(g.block_bytes, 3076352, "... and a block of 64 tokens has these bytes");
	model_groups_release(&g);
	model_release(&m);
}

/* Heads and experts are divided; latents, their first products and the indexer are not. */
static void test_ranks(void)
{
	struct model m = a_model("deepseek-v3.2"), whole = a_model("deepseek-v3.2");
	struct ar_err err = { 0 };
	const struct layer_spec *l = m.layer, *w = whole.layer;

	ok(!model_split(&m, 8, &err), "eight ranks: %s", err.msg);
	ok(l->q_heads == 16 && l->kv_heads == 1 && layer_qkv_width(l) == 2112 &&
		   layer_q_width(l) == 3072 && layer_expanded_width(l) == 4096 &&
		   layer_o_width(l) == 2048,
	   "widths of a rank");
	is_int(cache_bytes(&m), cache_bytes(&whole), "a rank has whole latents and index keys");
	for (int i = WEIGHT_INDEX_Q; i <= WEIGHT_INDEX_SHARE; i++)
		is_int((int64_t)tensor_count(layer_tensor(&m, l, (enum weight)i)),
		       (int64_t)tensor_count(layer_tensor(&whole, w, (enum weight)i)),
		       "... tensor %d of the indexer", i);
	is_int((int64_t)tensor_count(layer_tensor(&m, l, WEIGHT_KV_UP)) * 8,
	       (int64_t)tensor_count(layer_tensor(&whole, w, WEIGHT_KV_UP)),
	       "... a share of what expands a latent");
	model_release(&m);
	model_release(&whole);
}

static void test_variants(void)
{
	struct model m = parse("deepseek-v3", "\"q_lora_rank\":0,\"qk_rope_head_dim\":0");

	ok(!m.layer->mla.q_lora && m.layer->head_dim == 128 && !m.layer->rotary_dim &&
		   layer_cache_bytes(m.layer) == 1024 && layer_q_first(m.layer) == 16384,
	   "neither low-rank Q nor RoPE");
	model_release(&m);
	m = parse("deepseek-v3", "\"n_shared_experts\":0,\"moe_layer_freq\":2,"
				 "\"topk_method\":\"greedy\",\"head_dim\":7,"
				 "\"num_key_value_heads\":3,"
				 "\"rope_interleave\":false");
	ok(!m.layer[4].shared_ffn && m.layer[4].n_experts && !m.layer[5].n_experts &&
		   !m.layer[4].router.bias && !m.layer[4].router.groups &&
		   m.layer[4].head_dim == 192 && !m.layer[4].mla.interleave,
	   "no shared expert, every second layer, another router; head_dim has no meaning");
	model_release(&m);
	m = parse("deepseek-v2-lite", "\"topk_method\":\"group_limited_greedy\",\"n_group\":8,"
				      "\"topk_group\":3");
	ok(m.layer[1].router.groups == 8 && m.layer[1].router.groups_kept == 3 &&
		   !m.layer[1].router.bias,
	   "groups without a bias");
	model_release(&m);
	m = parse("glm-5", "\"num_experts\":256");
	ok(!m.layer[0].n_experts && m.layer[0].ffn == 12288 && !*m.unread,
	   "a second name of the experts; all keys were read: %s", m.unread);
	model_release(&m);
	m = parse("deepseek-v2-lite", "\"n_routed_experts\":null");
	ok(!m.layer[5].n_experts && m.layer[5].ffn == 10944, "no experts");
	model_release(&m);
}

static void test_refused(void)
{
	static const struct {
		const char *preset, *members, *wrong;
	} cases[] = {
		{ "deepseek-v3.2", "\"q_lora_rank\":null",
		  "index_n_heads 64 without 'q_lora_rank': the indexer reads the low-rank Q" },
		{ "deepseek-v3", "\"qk_rope_head_dim\":63",
		  "want an even number from 0 to 4096 as 'qk_rope_head_dim'" },
		{ "deepseek-v3.2", "\"index_topk\":0", "as 'index_topk'" },
		{ "deepseek-v3.2", "\"index_topk\":-1", "as 'index_topk'" },
		{ "deepseek-v3.2", "\"index_head_dim\":64",
		  "index_head_dim 64: the index cache holds 128" },
		{ "deepseek-v3.2", "\"index_kpool\":4", "(index_kpool) is not known" },
		{ "deepseek-v3", "\"topk_method\":\"best\"",
		  "'topk_method' 'best' is not known; known are greedy, group_limited_greedy and "
		  "noaux_tc" },
		{ "deepseek-v3", "\"scoring_func\":\"relu\"",
		  "'scoring_func' 'relu' is not known; known are softmax and sigmoid" },
		{ "deepseek-v3", "\"kv_lora_rank\":null", "as 'kv_lora_rank'" },
		{ "deepseek-v3", "\"v_head_dim\":null", "as 'v_head_dim'" },
		{ "deepseek-v3", "\"qk_nope_head_dim\":null", "as 'qk_nope_head_dim'" },
		{ "deepseek-v3", "\"qk_rope_head_dim\":null", "as 'qk_rope_head_dim'" },
		{ "deepseek-v3", "\"q_lora_rank\":-1", "as 'q_lora_rank'" },
		{ "deepseek-v3", "\"num_attention_heads\":null", "as 'num_attention_heads'" },
		{ "deepseek-v3", "\"attention_bias\":true", "(attention_bias) is not known" },
		{ "deepseek-v3", "\"n_group\":7",
		  "n_group 7 does not divide n_routed_experts 256" },
		{ "deepseek-v3", "\"topk_group\":9", "from 1 to 8 as 'topk_group'" },
		{ "deepseek-v3", "\"n_group\":256,\"topk_group\":4",
		  "topk_group 4 leaves fewer experts than num_experts_per_tok 8" },
		{ "deepseek-v3", "\"n_shared_experts\":-1", "as 'n_shared_experts'" },
		{ "deepseek-v3", "\"moe_intermediate_size\":null", "as 'moe_intermediate_size'" },
		{ "deepseek-v3", "\"first_k_dense_replace\":-1", "as 'first_k_dense_replace'" },
		{ "deepseek-v3", "\"moe_layer_freq\":0", "as 'moe_layer_freq'" },
		{ "deepseek-v3", "\"moe_layer_freq\":[1]",
		  "'moe_layer_freq' has 1 entries, but num_hidden_layers is 61" },
		{ "deepseek-v3", "\"num_hidden_layers\":1,\"mlp_layer_types\":[\"both\"]",
		  "'mlp_layer_types': want dense or sparse" },
		{ "deepseek-v3", "\"num_hidden_layers\":1,\"moe_layer_freq\":[2]",
		  "'moe_layer_freq': want dense or sparse, or 0 or 1" },
		{ "glm-5", "\"index_topk_pattern\":\"FS\"",
		  "want F or S for each of 78 layers as 'index_topk_pattern'" },
		{ "glm-5", "\"num_hidden_layers\":1,\"index_topk_pattern\":\"S\"",
		  "the first layer has no indexer" },
		{ "glm-5", "\"indexer_types\":[\"full\"]",
		  "want full or shared for each of 78 layers as 'indexer_types'" },
		{ "glm-5", "\"num_hidden_layers\":1,\"indexer_types\":[\"some\"]",
		  "want full or shared" },
		{ "glm-5", "\"index_topk_freq\":0", "as 'index_topk_freq'" },
		{ "glm-5", "\"layer_types\":[\"full_attention\"]",
		  "'layer_types' has 1 entries, but num_hidden_layers is 78" },
		{ "glm-5", "\"num_hidden_layers\":1,\"layer_types\":[\"linear_attention\"]",
		  "layer type 'linear_attention' is not known" },
		{ "llama-3.1-8b", "\"kv_lora_rank\":512",
		  "key 'kv_lora_rank' says that latent attention" },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char *text = changed(cases[i].preset, cases[i].members);
		struct ar_err err = { 0 };
		struct model m;

		ok(model_parse(&m, "c.json", text, &err) == AR_DATA && !m.layer &&
			   !strncmp(err.msg, "c.json: ", 8) && strstr(err.msg, cases[i].wrong),
		   "%s with %s: %s", cases[i].preset, cases[i].members, err.msg);
		free(text);
		if (!err.status)
			model_release(&m);
	}
}

/* Methods that are dense run; others are named. */
static void test_methods(void)
{
	struct model m = a_model("deepseek-v3");
	struct ar_err err = { 0 };
	struct layer_plan l;
	struct plan *p;

	if (plan_parse(&p, "dense", &err))
		bail_out("%s", err.msg);
	ok(!plan_init(&l, p, &m, &err) && !plan_method(&l, 0), "dense: %s", err.msg);
	plan_release(&l);
	plan_free(p);
	if (plan_parse(&p, "flashprefill", &err))
		bail_out("%s", err.msg);
	is_int(plan_init(&l, p, &m, &err), AR_USAGE, "no sparse method runs");
	is_str(err.msg,
	       "method 'flashprefill': layer 0 of model deepseek-v3 has latent attention, for "
	       "which there are no sparse methods; take dense",
	       "... and the message names it");
	plan_release(&l);
	plan_free(p);
	model_release(&m);
}

int main(void)
{
	plan(0);
	test_facts();
	test_routers();
	test_step();
	test_weights();
	test_kv();
	test_shared();
	test_group();
	test_ranks();
	test_variants();
	test_refused();
	test_methods();
	return done_testing();
}
