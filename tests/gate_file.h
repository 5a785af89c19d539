/* SPDX-License-Identifier: Apache-2.0 */
/* Gates of SeerAttention for tests: files of random matrices. */
#ifndef AR_TESTS_GATE_FILE_H
#define AR_TESTS_GATE_FILE_H

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "base/safetensors.h"
#include "kernels/select/seer/seer.h"
#include "kernels/select/selectors.h"
#include "tests/tap.h"

/* Heads of the model; q_heads 0: no projection of queries. */
struct gate_file {
	int n_layers, k_heads, q_heads, head_dim;
};

static inline void gate_must(enum ar_status st, const struct ar_err *err)
{
	if (st)
		bail_out("%s", err->msg);
}

/* Write a gate for layers first, first + step ... of the model.  Matrices are random, in layer
 * order, k before q, scaled for logits of about 1.  w not NULL: w[tensor] gets their values; the
 * caller frees them. */
static inline void gate_write(const char *path, const struct gate_file *g, int first, int step,
			      struct rng *rng, bf16_t **w)
{
	struct safetensors_tensor t[16] = { 0 };
	char name[16][96];
	size_t n = 0;
	struct outfile f;
	struct ar_err err;

	for (int l = 0; l < g->n_layers; l++)
		for (int q = 0; q < 1 + !!g->q_heads; q++, n++) {
			snprintf(name[n], sizeof name[n], SEER_TENSOR, first + l * step,
				 q ? 'q' : 'k');
			t[n] = (struct safetensors_tensor){
				.name = name[n],
				.n_dim = 3,
				.dim = { q ? g->q_heads : g->k_heads,
					 g->head_dim * (q ? 1 : SEER_POOLS), g->head_dim }
			};
		}
	gate_must(outfile_open(&f, path, &err), &err);
	gate_must(safetensors_write_header(&f, t, n, (const char *const[]){ NULL }, &err), &err);
	for (size_t i = 0; i < n; i++) {
		size_t len = (size_t)(t[i].dim[0] * t[i].dim[1] * t[i].dim[2]);
		bf16_t *x = malloc(len * sizeof *x);

		for (size_t k = 0; k < len; k++)
			x[k] = bf16_from_f32(rng_normal(rng) * 3 / sqrtf((float)g->head_dim));
		gate_must(outfile_write(&f, x, len * sizeof *x, &err), &err);
		if (w)
			w[i] = x;
		else
			free(x);
	}
	gate_must(outfile_commit(&f, &err), &err);
	outfile_release(&f);
}

/* Open the gate file for a model of this shape with layers layers; RoPE base 10000. */
static inline enum ar_status gate_open(struct seer_self **self, const struct seer *p,
				       struct attn_shape s, int layers, bool device,
				       struct ar_err *err)
{
	float inv[128];
	const struct selector_env env = {
		.shape = s, .n_layers = layers, .rope_inv = inv, .device = device
	};
	void *x = NULL;
	enum ar_status st;

	for (int k = 0; k < s.head_dim / 2; k++)
		inv[k] = powf(10000, -2.0f * (float)k / (float)s.head_dim);
	st = selector_find("seer")->open(&x, p, &env, err);
	*self = x;
	return st;
}

#endif
