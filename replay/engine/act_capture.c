/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/act_capture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

enum { PIECE_TOK = 4096 };	/* tokens read at once */

/* List in layer[] the captured layers that are read, each once. */
static void map_layers(struct act_capture *s, const struct backend_env *env)
{
	for (int i = 0; i < env->n_run_layers; i++) {
		int want = env->captured_layer[env->run_layer[i]], at = 0;

		while (at < s->n_layers && s->layer[at] != want)
			at++;
		if (at == s->n_layers)
			s->layer[s->n_layers++] = want;
		s->layer_of[i] = at;
	}
}

static int heads_of(const struct act_capture *s)
{
	return s->shape.q_heads + 2 * s->shape.kv_heads;
}

static void close(void *self)
{
	struct act_capture *s = self;

	if (!s)
		return;
	if (s->owned) {
		free(s->data);
		free(s->table);
		free(s->trig);
	}
	free(s->seq);
	free(s->layer);
	free(s->layer_of);
	free(s);
}

/* Place the captures in the memory.  True: Q and K of some rows must be rotated. */
static bool place_captures(struct act_capture *s, const struct backend_env *env)
{
	const struct capture_info *first = capture_info(env->capture[0]);
	bool rotated = env->tile;

	for (size_t c = 0; c < s->n_seq; c++) {
		const struct capture_info *i = capture_info(env->capture[c]);

		assert(i->q_heads >= s->shape.q_heads && i->kv_heads >= s->shape.kv_heads &&
		       i->head_dim == s->shape.head_dim && i->n_layers == first->n_layers);
		s->seq[c] = (struct capture_seq){ i->n_tok, s->elems, i->rope_applied, i->name };
		s->elems += (size_t)s->n_layers * (size_t)heads_of(s) * (size_t)i->n_tok *
			    (size_t)i->head_dim;
		rotated |= !i->rope_applied;
	}
	s->rope = first->rope.theta > 0 ? first->rope : env->model->rope;
	s->n_rotation = rotated ? env->max_len : 1;
	return rotated;
}

static enum ar_status open(void **self, const struct backend_env *env,
			   const struct attn_shape *shape, struct ar_err *err)
{
	struct act_capture *s = calloc(1, sizeof *s);

	*self = NULL;
	if (!s)
		return ar_nomem(err);
	assert(env->n_capture && env->n_run_layers);
	*s = (struct act_capture){ .shape = *shape, .capture = env->capture,
				   .n_seq = env->n_capture, .capture_of = env->capture_of,
				   .run_layer = env->run_layer, .tile = env->tile };
	s->seq = calloc(s->n_seq, sizeof *s->seq);
	s->layer = calloc((size_t)env->n_run_layers, sizeof *s->layer);
	s->layer_of = calloc((size_t)env->n_run_layers, sizeof *s->layer_of);
	if (!s->seq || !s->layer || !s->layer_of) {
		close(s);
		return ar_nomem(err);
	}
	map_layers(s, env);
	if (place_captures(s, env) && !(s->rope.theta > 0)) {
		close(s);
		return ar_fail(err, AR_DATA, "%s: Q and K must be rotated, but neither the capture "
			       "nor the model says how; pack the capture with its rope_theta",
			       capture_info(env->capture[0])->name);
	}
	*self = s;
	return AR_OK;
}

static const struct rope *rope(const void *self)
{
	return &((const struct act_capture *)self)->rope;
}

static int64_t n_tok(const void *self, uint32_t req)
{
	const struct act_capture *s = self;

	return s->seq[s->capture_of[req]].n_tok;
}

/* Load tensor t of one layer of one capture.  off: where its first head goes, in elements. */
static enum ar_status load_tensor(struct capture *c, int layer, enum capture_tensor t, int heads,
				  size_t off, bf16_t *piece, act_capture_put *put, void *ctx,
				  struct ar_err *err)
{
	const struct capture_info *info = capture_info(c);
	size_t dim = (size_t)info->head_dim;

	for (int64_t tok = 0; tok < info->n_tok; tok += PIECE_TOK) {
		int64_t n = info->n_tok - tok < PIECE_TOK ? info->n_tok - tok : PIECE_TOK;
		enum ar_status st = capture_read_finite(c, layer, t, tok, n, piece, err);

		if (!st)
			st = put(ctx, off + (size_t)tok * dim, (size_t)info->n_tok * dim, piece,
				 (size_t)n * dim, (size_t)heads, err);
		if (st)
			return st;
	}
	return AR_OK;
}

static enum ar_status load_capture(const struct act_capture *s, size_t seq, struct capture *c,
				   bf16_t *piece, act_capture_put *put, void *ctx,
				   struct ar_err *err)
{
	static const enum capture_tensor tensor[] = { CAPTURE_Q, CAPTURE_K, CAPTURE_V };
	size_t head = (size_t)s->seq[seq].n_tok * (size_t)s->shape.head_dim, off = s->seq[seq].off;

	for (int l = 0; l < s->n_layers; l++)
		for (int t = 0; t < 3; t++) {
			int heads = tensor[t] == CAPTURE_Q ? s->shape.q_heads : s->shape.kv_heads;
			enum ar_status st = load_tensor(c, s->layer[l], tensor[t], heads, off,
							piece, put, ctx, err);

			if (st)
				return st;
			off += (size_t)heads * head;
		}
	return AR_OK;
}

enum ar_status act_capture_read(const struct act_capture *s, act_capture_put *put, void *ctx,
				struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < s->n_seq && !st; i++) {
		const struct capture_info *info = capture_info(s->capture[i]);
		int heads = info->q_heads > info->kv_heads ? info->q_heads : info->kv_heads;
		bf16_t *piece = malloc((size_t)heads * PIECE_TOK * (size_t)info->head_dim *
				       sizeof *piece);

		st = piece ? load_capture(s, i, s->capture[i], piece, put, ctx, err) : ar_nomem(err);
		free(piece);
	}
	return st;
}

void act_capture_table(const struct act_capture *s, const bf16_t *data, struct layer_seq *out)
{
	for (size_t i = 0; i < s->n_seq; i++)
		out[i] = (struct layer_seq){ data + s->seq[i].off, s->seq[i].n_tok };
}

static enum ar_status find_row(const struct act_capture *s, size_t seq, int64_t pos,
			       struct layer_row *row, struct ar_err *err)
{
	const struct capture_seq *from = &s->seq[seq];
	int64_t tok = s->tile ? pos % from->n_tok : pos;
	int64_t by = from->rope_applied ? pos - tok : pos;

	if (tok >= from->n_tok)
		return ar_fail(err, AR_DATA, "%s: has %lld tokens, position %lld is wanted; use "
			       "--extend tile or a longer capture", from->name,
			       (long long)from->n_tok, (long long)pos);
	if (by >= s->n_rotation)
		return ar_fail(err, AR_USAGE,
			       "position %lld is past the longest request of %lld tokens",
			       (long long)by, (long long)s->n_rotation);
	row->seq = (int32_t)seq;
	row->tok = (int32_t)tok;
	row->rotation = (int32_t)by;
	return AR_OK;
}

static enum ar_status begin(const void *self, uint32_t req, int64_t start, uint32_t n,
			    struct layer_row *row, struct ar_err *err)
{
	const struct act_capture *s = self;
	enum ar_status st = AR_OK;

	for (uint32_t i = 0; i < n && !st; i++)
		st = find_row(s, s->capture_of[req], start + i, &row[i], err);
	return st;
}

/* ---- on the host ---- */

static enum ar_status put(void *ctx, size_t off, size_t pitch, const bf16_t *from, size_t width,
			  size_t rows, struct ar_err *err)
{
	bf16_t *to = (bf16_t *)ctx + off;

	(void)err;
	for (size_t r = 0; r < rows; r++)
		memcpy(to + r * pitch, from + r * width, width * sizeof *to);
	return AR_OK;
}

static enum ar_status load_ref(void *self, struct ar_err *err)
{
	struct act_capture *s = self;
	size_t half = (size_t)s->shape.head_dim / 2;
	float *inv = calloc(half, sizeof *inv);
	enum ar_status st;

	s->owned = true;
	s->data = calloc(s->elems, sizeof *s->data);
	s->table = calloc(s->n_seq, sizeof *s->table);
	s->trig = calloc((size_t)s->n_rotation * half, 2 * sizeof *s->trig);
	if (!inv || !s->data || !s->table || !s->trig) {
		st = ar_nomem(err);
		goto out;
	}
	rope_inv_freq(&s->rope, s->shape.head_dim, inv);
	layer_trig_ref(inv, (int)half, (int)s->n_rotation, s->trig);
	act_capture_table(s, s->data, s->table);
	st = act_capture_read(s, put, s->data, err);
out:
	free(inv);
	return st;
}

static enum ar_status qkv_ref(const void *self, int i, const struct layer_row *row, int n_row,
			      const struct qkv *out, struct ar_err *err)
{
	const struct act_capture *s = self;
	int layer = s->layer_of[i];

	(void)err;
	layer_rope_ref(&s->shape, s->table, layer, row, n_row, s->trig, out->q, out->k);
	if (out->kv)
		layer_cache_ref(&s->shape, s->table, layer, row, n_row, out->k, out->kv);
	return AR_OK;
}

const struct activations activations_capture = {
	.name = "capture",
	.open = open,
	.rope = rope,
	.n_tok = n_tok,
	.begin = begin,
	.load_ref = load_ref,
	.qkv_ref = qkv_ref,
	.load = HAVE_CUDA ? capture_load : NULL,
	.qkv = HAVE_CUDA ? capture_qkv : NULL,
	.close = close,
};
