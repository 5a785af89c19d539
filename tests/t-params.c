/* SPDX-License-Identifier: Apache-2.0 */
/* Counts of parameters: of each preset against the published one, of ranks, of small layers. */
#include "config.h"
#include "model/params.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/data.h"
#include "tests/a_model.h"
#include "tests/tap.h"

/* Totals of the published tensors, without a vision tower (Gemma 3: 12,187,325,040 with it) and
 * layers that predict more tokens (Qwen3-Next). */
static const struct {
	const char *name;
	int64_t whole;
} presets[] = {
	{ "gemma-3-12b", 11766034176 },	      { "gpt-oss-20b", 20914757184 },
	{ "llama-3.1-70b", 70553706496 },     { "llama-3.1-8b", 8030261248 },
	{ "mistral-7b-v0.1", 7241732096 },    { "mistral-7b-v0.3", 7248023552 },
	{ "mixtral-8x7b", 46702792704 },      { "nemotron-3-nano-30b-a3b", 31577940288 },
	{ "niah-llama-14m", 14095680 },	      { "qwen2.5-7b", 7615616512 },
	{ "qwen3-30b-a3b", 30532122624 },     { "qwen3-32b", 32762123264 },
	{ "qwen3-8b", 8190735360 },	      { "qwen3-next-80b-a3b", 79674391296 },
	{ "smollm2-135m", 134515008 },	      { "deepseek-v2-lite", 15706484224 },
	{ "deepseek-v3", 671026419200 },      { "deepseek-v3.2", 671877944064 },
	{ "glm-4.7-flash", 29943393920 },     { "gemma-4-31b", 30697345280 },
	{ "llama-4-maverick", 400711848960 }, { "llama-4-scout", 107769861120 },
	{ "mimo-v2-flash", 308778780864 },    { "minimax-m2.5", 228689764864 },
	{ "qwen3.5-27b", 26895998464 },	      { "qwen3.5-35b-a3b", 34660610688 },
	{ "kimi-k2", 1026408232448 },	      { "glm-5", 743911218432 },
};
enum { PRESETS = sizeof presets / sizeof *presets };

static void test_presets(void)
{
	char path[4096];
	struct dirent *e;
	int listed = 0;
	DIR *d;

	d = data_find("model/presets", path, sizeof path) ? opendir(path) : NULL;
	if (!d)
		bail_out("no folder of presets");
	while ((e = readdir(d)))
		if (strstr(e->d_name, ".json")) {
			int k = 0;

			while (k < PRESETS && strncmp(e->d_name, presets[k].name,
						      strlen(e->d_name) - strlen(".json")) != 0)
				k++;
			listed += k < PRESETS;
			if (k == PRESETS)
				diag("%s: add its published count", e->d_name);
		}
	closedir(d);
	is_int(listed, PRESETS, "each preset has a published count");
	for (int i = 0; i < PRESETS; i++) {
		struct model m = a_model(presets[i].name);

		is_int(model_params(&m), presets[i].whole, "%s: parameters", m.name);
		model_release(&m);
	}
}

/* Ranks share all but norms, routers, and KV heads that are fewer than they. */
static void test_ranks(void)
{
	static const struct {
		const char *name;
		int tp;
		int64_t rank;
	} cases[] = {
		{ "llama-3.1-70b", 8, (70553706496 - 161 * 8192) / 8 + 161 * 8192 },
		/* 4 KV heads: K and V of one on each of 8 ranks, half a head more than a share */
		{ "qwen3-30b-a3b", 8,
		  (30532122624 - 97 * 2048 - 48 * (2 * 128 + 128 * 2048)) / 8 + 97 * 2048 +
			  48 * (2 * 128 + 128 * 2048) + 48 * (2 * 64 * 2048) },
		/* the bias of o, and of each expert's down */
		{ "gpt-oss-20b", 2,
		  (20914757184 - 49 * 2880 - 24 * (2880 + 32 * 2880 + 32 * 2881)) / 2 + 49 * 2880 +
			  24 * (2880 + 32 * 2880 + 32 * 2881) },
		/* norms, 12 of two heads and 36 of v_dim; routers, and a gate of a column */
		{ "qwen3-next-80b-a3b", 2,
		  (79674391296 - 97 * 2048 - 12 * 512 - 36 * 128 - 48 * 513 * 2048) / 2 +
			  97 * 2048 + 12 * 512 + 36 * 128 + 48 * 513 * 2048 },
	};

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct model m = a_model(cases[i].name);
		struct ar_err err = { 0 };

		if (model_split(&m, cases[i].tp, &err))
			bail_out("%s", err.msg);
		is_int(model_params(&m), cases[i].rank, "%s: of a rank of %d", m.name, cases[i].tp);
		model_release(&m);
	}
}

/* Ranks with whole experts have as many parameters as ranks with a slice of each. */
static void test_spread(void)
{
	struct model m = a_model("qwen3-30b-a3b"), cut = a_model("qwen3-30b-a3b");
	struct model dense = a_model("llama-3.1-70b");
	const int64_t experts = (int64_t)48 * 128 * 3 * 2048 * 768, all = model_params(&m);
	struct ar_err err = { 0 };

	is_int(model_spread(&m, 3, &err), AR_USAGE, "experts that do not divide are refused");
	is_str(err.msg,
	       "cannot spread model 'qwen3-30b-a3b' over 3 ranks: the 128 experts of layer 0 are "
	       "no multiple of it; change --ep",
	       "... with a message");
	is_int(model_spread(&dense, 2, &err), AR_USAGE, "... as is a model without experts");
	is_str(err.msg, "ep has no effect: llama-3.1-70b has no experts; leave it out",
	       "... with a message");
	ok(!model_spread(&m, 8, &err), "8 ranks");
	is_int(model_params(&m), all - experts * 7 / 8, "... have an eighth of the experts each");
	ok(!model_split(&m, 8, &err) && m.layer[0].ffn == 768, "... which are not split further");
	ok(!model_split(&cut, 8, &err), "... a slice of each otherwise");
	is_int(model_params(&m), model_params(&cut), "... of the same size");
	ok(!layer_alike(&m.layer[0], &cut.layer[0]), "... which are no equal layers");
	model_release(&m);
	model_release(&cut);
	model_release(&dense);
}

/* What no preset has: a shared expert beside ordinary attention, biases of a dense MLP. */
static void test_layers(void)
{
	struct model m = { .hidden = 10 };
	struct layer_spec l = { .q_heads = 4, .kv_heads = 2, .head_dim = 6, .ffn = 7 };
	const int attention = 24 * 10 + 2 * 12 * 10 + 10 * 24, norms = 2 * 10;

	is_int(layer_params(&m, &l), attention + norms + 3 * 7 * 10, "a dense layer");
	l.v_dim = 4;
	is_int(layer_params(&m, &l), attention + norms + 3 * 7 * 10 - (2 + 4) * 2 * 10,
	       "with short values");
	l.v_dim = 0;
	l.k_is_v = 1;
	is_int(layer_params(&m, &l), attention + norms + 3 * 7 * 10 - 12 * 10,
	       "with values from the product of keys");
	l.k_is_v = 0;
	l.qk_norm = l.qk_norm_all = 1;
	is_int(layer_params(&m, &l), attention + norms + 3 * 7 * 10 + 24 + 12,
	       "with norms of all heads together");
	l.qk_norm = l.qk_norm_all = 0;
	l.mlp_bias = l.o_bias = l.qkv_bias = l.sinks = l.post_norms = 1;
	is_int(layer_params(&m, &l),
	       attention + 2 * norms + 3 * 7 * 10 + (2 * 7 + 10) + 10 + (24 + 2 * 12) + 4,
	       "with biases, sinks and four norms");
	l = (struct layer_spec){ .q_heads = 4,
				 .kv_heads = 2,
				 .head_dim = 6,
				 .ffn = 7,
				 .n_experts = 3,
				 .experts_per_tok = 1,
				 .shared_ffn = 5 };
	is_int(layer_params(&m, &l), attention + norms + 3 * 3 * 7 * 10 + 3 * 10 + 3 * 5 * 10,
	       "with experts and a shared one without a gate");
	l.shared_gate = l.mlp_bias = 1;
	is_int(layer_params(&m, &l),
	       attention + norms + 3 * (3 * 7 * 10 + 2 * 7 + 10) + 3 * 11 + 3 * 5 * 10 + 10,
	       "with its gate, and a bias of each expert and of the router");
}

int main(void)
{
	plan(0);
	test_presets();
	test_ranks();
	test_spread();
	test_layers();
	return done_testing();
}
