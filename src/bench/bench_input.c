/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/bench/bench_input.h"

#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "base/rng.h"
#include "kernels/layer/layer.h"

enum { Q_LEAN_TOK = 1024, K_LEAN_TOK = 128, PIECE_TOK = 4096, MAX_DIM = 256 };

static enum ar_status input_alloc(struct bench_input *s, const struct attn_shape *shape,
				  int64_t n_tok, int64_t asked, struct ar_err *err)
{
	size_t heads = (size_t)(shape->q_heads + 2 * shape->kv_heads);

	*s = (struct bench_input){ .shape = *shape, .n_tok = n_tok, .asked = asked };
	s->data = malloc(heads * (size_t)n_tok * (size_t)shape->head_dim * sizeof *s->data);
	return s->data ? AR_OK : ar_nomem(err);
}

void bench_input_release(struct bench_input *s)
{
	free(s->data);
	s->data = NULL;
}

/* ---- drawn ---- */

struct draw {
	const struct bench_input *s;
	uint64_t seed;
};

static void lean_on(bf16_t *x, int64_t n_tok, int dim, uint64_t seed, int lean_tok, float scale)
{
	bf16_t lean[MAX_DIM];

	for (int64_t t = 0; t < n_tok; t++, x += dim) {
		if (t % lean_tok == 0)
			layer_fill_ref(lean, (size_t)dim, rng_mix(seed + (uint64_t)(t / lean_tok)),
				       scale);
		for (int d = 0; d < dim; d++)
			x[d] = bf16_from_f32(bf16_to_f32(x[d]) + bf16_to_f32(lean[d]));
	}
}

static enum ar_status draw_head(void *ctx, int i, struct ar_err *err)
{
	const struct draw *w = ctx;
	const struct attn_shape *shape = &w->s->shape;
	size_t n = (size_t)w->s->n_tok * (size_t)shape->head_dim;
	bf16_t *x = w->s->data + (size_t)i * n;
	uint64_t seed = rng_mix(rng_mix(w->seed) + (uint64_t)i), lean = rng_mix(seed + 1);
	bool q = i < shape->q_heads, k = !q && i < shape->q_heads + shape->kv_heads;

	(void)err;
	layer_fill_ref(x, n, seed, q ? 0.5f : 1);
	if (q)
		lean_on(x, w->s->n_tok, shape->head_dim, lean, Q_LEAN_TOK, 1);
	if (k)
		lean_on(x, w->s->n_tok, shape->head_dim, lean, K_LEAN_TOK, 1.5f);
	return AR_OK;
}

enum ar_status bench_input_random(struct bench_input *s, const struct attn_shape *shape,
				  int64_t n_tok, uint64_t seed, struct ar_err *err)
{
	struct draw w = { s, seed };
	enum ar_status st = input_alloc(s, shape, n_tok, n_tok, err);

	if (st)
		return st;
	s->n_layers = s->repeats = 1;
	s->rope = (struct rope){ .theta = 500000 };
	s->rope_applied = true;
	st = parallel_each(shape->q_heads + 2 * shape->kv_heads, draw_head, &w, err);
	if (st)
		bench_input_release(s);
	return st;
}

/* ---- captured ---- */

bool bench_input_fits(const struct capture_info *info, const struct attn_shape *shape)
{
	int q = shape->q_heads;

	return q > 0 && shape->head_dim == info->head_dim &&
	       q * info->kv_heads == shape->kv_heads * info->q_heads &&
	       (q <= info->q_heads || q % info->q_heads == 0);
}

int bench_input_repeats(const struct capture_info *info, const struct attn_shape *shape)
{
	return shape->q_heads > info->q_heads ? shape->q_heads / info->q_heads : 1;
}

/* Read `heads` heads of a tensor to `to`, repeating the `own` heads of the capture.  piece: room
 * for PIECE_TOK tokens of it. */
static enum ar_status read_heads(const struct bench_input *s, struct capture *c, int i,
				 enum capture_tensor t, int heads, int own, bf16_t *to,
				 bf16_t *piece, struct ar_err *err)
{
	size_t dim = (size_t)s->shape.head_dim, head = (size_t)s->n_tok * dim;

	for (int64_t tok = 0; tok < s->n_tok; tok += PIECE_TOK) {
		int64_t left = s->n_tok - tok, n = left < PIECE_TOK ? left : PIECE_TOK;
		enum ar_status st = capture_read_finite(c, i, t, tok, n, piece, err);

		if (st)
			return st;
		for (int h = 0; h < heads; h++)
			memcpy(to + (size_t)h * head + (size_t)tok * dim,
			       piece + (size_t)(h % own * n) * dim, (size_t)n * dim * sizeof *to);
	}
	return AR_OK;
}

enum ar_status bench_input_capture(struct bench_input *s, struct capture *c, int i,
				   const struct attn_shape *shape, int64_t n_tok,
				   struct ar_err *err)
{
	const struct capture_info *info = capture_info(c);
	bool needs_rope = !info->rope_applied || n_tok > info->n_tok;
	int most = info->q_heads > info->kv_heads ? info->q_heads : info->kv_heads;
	int64_t there = n_tok < info->n_tok ? n_tok : info->n_tok;
	size_t head = (size_t)there * (size_t)info->head_dim;
	bf16_t *piece = malloc((size_t)most * PIECE_TOK * (size_t)info->head_dim * sizeof *piece);
	enum ar_status st = input_alloc(s, shape, there, n_tok, err);
	bf16_t *k;

	if (!st && !piece)
		st = ar_nomem(err);
	if (!st && needs_rope && !(info->rope.theta > 0))
		st = ar_fail(err, AR_DATA,
			     "%s: does not state its RoPE, which %s needs; pack it "
			     "with its rope_theta",
			     info->name,
			     info->rope_applied ? "a context longer than the capture" :
						  "a capture before RoPE");
	if (st)
		goto out;
	s->repeats = bench_input_repeats(info, shape);
	s->layer = info->layer[i];
	s->n_layers = info->layer[info->n_layers - 1] + 1;
	s->rope = info->rope;
	s->rope_applied = info->rope_applied;
	k = s->data + (size_t)shape->q_heads * head;
	st = read_heads(s, c, i, CAPTURE_Q, shape->q_heads, info->q_heads, s->data, piece, err);
	if (!st)
		st = read_heads(s, c, i, CAPTURE_K, shape->kv_heads, info->kv_heads, k, piece, err);
	if (!st)
		st = read_heads(s, c, i, CAPTURE_V, shape->kv_heads, info->kv_heads,
				k + (size_t)shape->kv_heads * head, piece, err);
out:
	free(piece);
	if (st)
		bench_input_release(s);
	return st;
}
