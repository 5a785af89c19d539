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

/* ---- reading ---- */

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

/* ---- one rank of several ---- */

/* How ranks share the tensors of a layer, as tensor-parallel engines do: in slices, but ranks that
 * are more than the KV heads have the one that their query heads read. */
enum share { WHOLE, FFN_ROWS, FFN_COLS, Q_ROWS, Q_COLS, KV_ROWS, FIRST_RANK };
static const enum share share_of[WEIGHTS] = {
	[WEIGHT_Q] = Q_ROWS,	     [WEIGHT_K] = KV_ROWS,
	[WEIGHT_V] = KV_ROWS,	     [WEIGHT_Q_BIAS] = Q_ROWS,
	[WEIGHT_K_BIAS] = KV_ROWS,   [WEIGHT_V_BIAS] = KV_ROWS,
	[WEIGHT_O] = Q_COLS,	     [WEIGHT_O_BIAS] = FIRST_RANK,
	[WEIGHT_GATE] = FFN_ROWS,    [WEIGHT_UP] = FFN_ROWS,
	[WEIGHT_DOWN] = FFN_COLS,    [WEIGHT_GATE_BIAS] = FFN_ROWS,
	[WEIGHT_UP_BIAS] = FFN_ROWS, [WEIGHT_DOWN_BIAS] = FIRST_RANK,
};

/* NULL: the layer has no such tensor. */
static const struct tiny_tensor *tensor(const struct tiny *m, int layer, enum weight i)
{
	const char *name = (m->gemma ? weights_gemma3 : weights_llama)[i];
	char full[80];

	snprintf(full, sizeof full, "model.layers.%d.%s", layer, name ? name : "-");
	for (int k = 0; k < tw.n; k++)
		if (!strcmp(tw.t[k].name, full))
			return &tw.t[k];
	return NULL;
}

/* Rows and columns of a tensor. */
struct cut {
	int row, rows, col, cols;
};

static struct cut cut_of(const struct tiny_tensor *t, enum share share, const struct tiny *m,
			 int tp, int rank)
{
	int rows = t->rows, cols = t->cols ? t->cols : 1, ffn = TINY_FFN / tp;
	int q = m->heads / tp, kv = m->kv_heads < tp ? 1 : m->kv_heads / tp;
	int head = rank * q, kv_head = head * m->kv_heads / m->heads, dim = m->dim;

	switch (share) {
	case FFN_ROWS: return (struct cut){ rank * ffn, ffn, 0, cols };
	case FFN_COLS: return (struct cut){ 0, rows, rank * ffn, ffn };
	case Q_ROWS: return (struct cut){ head * dim, q * dim, 0, cols };
	case Q_COLS: return (struct cut){ 0, rows, head * dim, q * dim };
	case KV_ROWS: return (struct cut){ kv_head * dim, kv * dim, 0, cols };
	default: return (struct cut){ 0, rows, 0, cols };
	}
}

static bool is_cut(const bf16_t *got, const struct tiny_tensor *t, struct cut c)
{
	bool same = got;

	for (int r = 0; r < c.rows && same; r++)
		same = equal(got + r * c.cols,
			     t->value + (c.row + r) * (t->cols ? t->cols : 1) + c.col, c.cols);
	return same;
}

/* Set *n: the values of the rank's shares of a layer.  The number of tensors that are right. */
static int count_shares(const struct weights *w, int l, const struct tiny *m, int rank, int *n)
{
	static const float zero[TINY_HIDDEN];
	int good = 0;

	*n = 0;
	for (int i = 0; i < WEIGHTS; i++) {
		const bf16_t *got = w->layer[l][i];
		const struct tiny_tensor *t = tensor(m, l, (enum weight)i);
		struct cut c;

		if (!t)
			continue;
		c = cut_of(t, share_of[i], m, w->model.tp, rank);
		*n += c.rows * c.cols;
		if (share_of[i] == FIRST_RANK && rank ? equal(got, zero, c.rows) :
							is_cut(got, t, c))
			good++;
		else
			diag("layer %d: %s", l, t->name);
	}
	return good;
}

static void check_rank(const struct tiny *m, int tp, int rank)
{
	struct ar_err err = { 0 };
	struct weights w;
	int vocab = m->vocab / tp, n = (m->vocab + (m->tied ? 0 : vocab) + 1) * TINY_HIDDEN;
	struct cut rows = { rank * vocab, vocab, 0, TINY_HIDDEN };
	const char *head = m->tied ? "model.embed_tokens.weight" : "lm_head.weight";
	int good = 0, some;

	if (!ok(!weights_open_rank(&w, dir, tp, rank, &err), "%s: rank %d of %d is read: %s",
		m->what, rank, tp, err.msg))
		return;
	for (int l = 0; l < TINY_LAYERS; l++) {
		good += count_shares(&w, l, m, rank, &some);
		n += some;
	}
	is_int(good, tw.n - (m->tied ? 2 : 3), "... its slices of all tensors of layers");
	ok(equal(w.embed, tiny_value(&tw, -1, "model.embed_tokens.weight"),
		 m->vocab * TINY_HIDDEN) &&
		   is_cut(w.head, tiny_find(&tw, head), rows) &&
		   equal(w.norm, tiny_value(&tw, -1, "model.norm.weight"), TINY_HIDDEN),
	   "... all embeddings, its rows of the head, and the norm");
	ok(w.model.tp == tp && w.model.vocab == vocab && (int)w.n == n, "... and nothing else");
	weights_release(&w);
}

/* KV heads are fewer than ranks with Mistral, two on four ranks, and Qwen3, one. */
static void test_ranks(void)
{
	static const int tps[TINY_MODELS] = { 2, 4, 4, 4, 2 };

	for (int i = 0; i < TINY_MODELS; i++)
		for (int tp = 1; tp <= tps[i]; tp *= 2) {
			struct tiny m = tiny_models[i];

			m.vocab = 72;
			m.mlp_bias = i == 0;
			begin(&m);
			tiny_write(dir, &tw, 1);
			for (int rank = 0; rank < tp; rank++)
				check_rank(&m, tp, rank);
			tiny_free(&tw);
		}
}

/* Model 0 has 6 query heads over 2 KV heads. */
static void test_ranks_refused(void)
{
	static const struct {
		int tp, vocab;
		const char *message;
	} cases[] = {
		{ 0, 72, "into 0 parts" },
		{ 4, 72, "into 4 parts: query heads 6 is no multiple of it; change --tp" },
		{ 3, 72, "into 3 parts: 2 KV heads neither divide nor are divided by it" },
		{ 2, 71, "into 2 parts: vocabulary 71 is no multiple of it" },
	};
	struct tiny m = tiny_models[0];

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct ar_err err = { 0 };
		struct weights w;

		m.vocab = cases[i].vocab;
		begin(&m);
		tiny_write(dir, &tw, 1);
		ok(weights_open_rank(&w, dir, cases[i].tp, 0, &err) == AR_USAGE && !w.data &&
			   strstr(err.msg, cases[i].message),
		   "refused: %s", err.msg);
		weights_release(&w);
		tiny_free(&tw);
	}
}

/* A rank reads its own columns only: two ranks share 96 columns. */
static void test_ranks_apart(void)
{
	struct ar_err err = { 0 };
	struct weights w;

	begin(&tiny_models[0]);
	tiny_find(&tw, "model.layers.1.self_attn.o_proj.weight")->value[5 * 96 + 48] = NAN;
	tiny_write(dir, &tw, 1);
	ok(!weights_open_rank(&w, dir, 2, 0, &err), "another rank's value may be bad: %s", err.msg);
	weights_release(&w);
	ok(weights_open_rank(&w, dir, 2, 1, &err) == AR_DATA &&
		   strstr(err.msg, "layers.1.self_attn.o_proj.weight': value 528 is not finite"),
	   "... but not its own: %s", err.msg);
	weights_release(&w);
	tiny_free(&tw);
}

/* ---- refusals ---- */

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
	test_ranks();
	test_ranks_refused();
	test_ranks_apart();
	test_tensors();
	test_shards();
	test_archs();
	test_faults();
	clean();
	rmdir(dir);
	return done_testing();
}
