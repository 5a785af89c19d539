/* SPDX-License-Identifier: Apache-2.0 */
/* Fuzz target: any bytes as each file of a Hugging Face folder: config.json, model.safetensors, and
 * the index of shards.  The other files are a tiny model's.  The weights must be read, or refused
 * with a message. */
#include "config.h"

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "model/weights.h"
#include "tests/fuzz.h"

const char fuzz_corpus[] = "weights";

#define WEIGHTS_FILE "model.safetensors"
#define INDEX_FILE "model.safetensors.index.json"

static const char config[] =
	"{\"model_type\":\"qwen3\",\"vocab_size\":3,\"hidden_size\":4,\"intermediate_size\":2,"
	"\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":1,"
	"\"head_dim\":2,\"tie_word_embeddings\":true}";
static const char index_of_one[] = "{\"weight_map\":{\"model.norm.weight\":\"" WEIGHTS_FILE "\"}}";

static char dir[200]; /* of the model */

static const char *in_dir(const char *name)
{
	static char path[300];

	snprintf(path, sizeof path, "%s/%s", dir, name);
	return path;
}

static void put(const char *name, const void *data, size_t n)
{
	FILE *f = fopen(in_dir(name), "w");

	must(f && fwrite(data, 1, n, f) == n && !fclose(f), "no file");
}

/* The tensors of the model that config describes, each with the values 0, 1, 0, 1 ... */
static void put_tensors(void)
{
	static const struct {
		const char *name, *shape;
		int n;
	} t[] = {
		{ "embed_tokens", "3,4", 12 },
		{ "layers.0.input_layernorm", "4", 4 },
		{ "layers.0.self_attn.q_proj", "4,4", 16 },
		{ "layers.0.self_attn.k_proj", "2,4", 8 },
		{ "layers.0.self_attn.v_proj", "2,4", 8 },
		{ "layers.0.self_attn.q_norm", "2", 2 },
		{ "layers.0.self_attn.k_norm", "2", 2 },
		{ "layers.0.self_attn.o_proj", "4,4", 16 },
		{ "layers.0.post_attention_layernorm", "4", 4 },
		{ "layers.0.mlp.gate_proj", "2,4", 8 },
		{ "layers.0.mlp.up_proj", "2,4", 8 },
		{ "layers.0.mlp.down_proj", "4,2", 8 },
		{ "norm", "4", 4 },
	};
	char file[4096] = { 0 }, *at = file + 8;
	int n = 0;
	uint64_t head;

	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		at += sprintf(at,
			      "%c\"model.%s.weight\":{\"dtype\":\"BF16\",\"shape\":[%s],"
			      "\"data_offsets\":[%d,%d]}",
			      i ? ',' : '{', t[i].name, t[i].shape, 2 * n, 2 * (n + t[i].n));
		n += t[i].n;
	}
	*at++ = '}';
	head = (uint64_t)(at - file - 8);
	memcpy(file, &head, 8);
	for (int i = 0; i < n; i++, at += 2)
		memcpy(at, &(uint16_t){ i % 2 ? 0x3f80 : 0 }, 2);
	put(WEIGHTS_FILE, file, (size_t)(at - file));
}

static void check(const struct weights *w)
{
	must(w->model.n_layers > 0 && w->embed && w->head && w->norm, "a model without weights");
	for (size_t i = 0; i < w->n; i++)
		must(isfinite(bf16_to_f32(w->data[i])), "a value that is not finite");
}

static bool opens(void)
{
	struct ar_err err = { 0 };
	struct weights w;
	bool good = !weights_open(&w, dir, &err);

	if (good)
		check(&w);
	else
		told(&err);
	weights_release(&w);
	return good;
}

static void as(const char *name, const void *data, size_t n)
{
	put(name, data, n);
	opens();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	const char *tmp = getenv("TMPDIR"); /* one in memory is ten times as fast */

	snprintf(dir, sizeof dir, "%s/fuzz-weights-XXXXXX", tmp ? tmp : "/tmp");
	must(mkdtemp(dir), "no folder");
	put("config.json", config, strlen(config));
	put_tensors();
	must(opens(), "the model is not read");
	as(INDEX_FILE, data, n);
	put(INDEX_FILE, index_of_one, strlen(index_of_one));
	as("config.json", data, n);
	put("config.json", config, strlen(config));
	as(WEIGHTS_FILE, data, n);
	unlink(in_dir(INDEX_FILE));
	unlink(in_dir(WEIGHTS_FILE));
	unlink(in_dir("config.json"));
	must(!rmdir(dir), "the folder stays");
	return 0;
}
