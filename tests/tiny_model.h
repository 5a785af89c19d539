/* SPDX-License-Identifier: Apache-2.0 */
/* Tiny random models of each architecture, written as Hugging Face folders.  Any failure bails
 * out. */
#ifndef AR_TESTS_TINY_MODEL_H
#define AR_TESTS_TINY_MODEL_H

#include <stdbool.h>
#include <stddef.h>

enum { TINY_MAX = 64, TINY_HIDDEN = 32, TINY_FFN = 48, TINY_VOCAB = 70, TINY_LAYERS = 3 };

struct tiny {
	const char *what, *config; /* the keys of this model, after the keys of all */
	int heads, kv_heads, dim;
	int vocab;	   /* 0: TINY_VOCAB */
	int window, every; /* keys of a window; every every-th layer sees all, 0: none does */
	double scale;	   /* of scores; 0: 1 / sqrt(dim) */
	bool bias, o_bias, mlp_bias, qk_norm, gemma, tied;
};

enum { TINY_MODELS = 5 };
extern const struct tiny tiny_models[TINY_MODELS]; /* Llama, Mistral, Qwen2, Qwen3, Gemma 3 */

struct tiny_tensor {
	char name[80];
	const char *type; /* BF16, F16, F32, or another text */
	int rows, cols;	  /* cols 0: one dimension */
	int file;	  /* of tiny_write() */
	float *value;	  /* exact in bf16 and in f16 */
};

struct tiny_weights {
	struct tiny_tensor t[TINY_MAX];
	int n;
};

void tiny_make(struct tiny_weights *w, const struct tiny *m);
void tiny_free(struct tiny_weights *w);
struct tiny_tensor *tiny_find(struct tiny_weights *w, const char *name);
/* The values of tensor "model.layers.LAYER.NAME"; layer -1: of NAME. */
const float *tiny_value(struct tiny_weights *w, int layer, const char *name);

/* Write dir/config.json and files shards, file i from the tensors whose file is i; one file has no
 * index. */
void tiny_config(const char *dir, const struct tiny *m);
void tiny_write(const char *dir, const struct tiny_weights *w, int files);
/* Write model m with one file; remove it. */
void tiny_folder(const char *dir, const struct tiny *m);
void tiny_remove(const char *dir);

#endif
