/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks of a tensor-parallel group in the decoder on the device. */
#include "config.h"

#include "tests/gpu_test.h"
#include "tests/rank_case.h"
#include "tests/tap.h"

/* Each rank of a case has two tests, each case two more. */
enum { N_TEST = TINY_MODELS * 6 + 14 };

#if HAVE_CUDA

#include "replay/engine/decoder_state.h"

static void note(void *ctx, int layer, enum phase what)
{
	(void)ctx;
	(void)layer;
	(void)what;
}

static bool run(const struct weights *w, enum rank_part part, const struct layer_row *row,
		const bf16_t *attn, struct rank_out *out)
{
	static const int32_t all[RANK_ROWS] = { 0, 1, 2, 3, 4 };
	static const int layer[TINY_LAYERS] = { 0, 1, 2 };
	const struct layer_spec *l = &w->model.layer[RANK_LAYER];
	const struct decoder_env env = { .model = &w->model,
					 .layer = layer,
					 .n_layers = TINY_LAYERS,
					 .max_row = RANK_ROWS,
					 .max_emit = RANK_ROWS,
					 .weights = w,
					 .phase = note };
	size_t width = (size_t)(l->q_heads * l->head_dim);
	struct decoder *d;
	struct ar_err err;
	enum ar_status st = decoder_open(&d, &env, &err);

	if (st == AR_NODEV)
		return false;
	if (!st)
		st = decoder_begin(d, gpu_copy(row, RANK_ROWS * sizeof *row), RANK_ROWS, &err);
	if (!st && part == RANK_PROJECT)
		st = decoder_project(d, RANK_LAYER, RANK_LAYER,
				     gpu_copy(attn, RANK_ROWS * width * sizeof *attn), &err);
	if (!st && part == RANK_MLP)
		st = decoder_mlp(d, RANK_LAYER, RANK_LAYER, &err);
	if (!st)
		st = decoder_head(d, gpu_copy(all, sizeof all), RANK_ROWS, &err);
	for (int i = 0; i < RANK_ROWS && !st; i++)
		st = decoder_logits(d, i, out->logit + i * w->model.vocab, &err);
	gpu_must(st, &err);
	gpu_read(out->x, d->now.x, sizeof out->x);
	decoder_close(d);
	gpu_free_all();
	return true;
}

/* The kernels take FFN widths of multiples of 8, and heads of multiples of 16. */
static void run_all(void)
{
	for (int i = 0; i < TINY_MODELS; i++) {
		struct tiny m = tiny_models[i];

		m.dim = 64;
		rank_case(&m, 2, run);
	}
	rank_case(&tiny_models[0], 6, run);
}
#else
#define run_all NULL
#endif

int main(void)
{
	return gpu_main(N_TEST, run_all);
}
