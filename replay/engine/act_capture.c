/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/act_capture.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/parallel.h"
#include "model/rope.h"
#include "replay/ranks/world.h"

enum { PIECE_TOK = 1024 }; /* tokens read at once where a file has no frames */

/* List in layer[] the captured layers that are read, each once. */
static void map_layers(struct act_capture *s, const struct backend_env *env)
{
	for (int i = 0; i < env->n_run_layers; i++) {
		int want = env->captured_layer[env->run_layer[i]], at = 0;

		s->layer_of[i] = -1;
		if (want < 0)
			continue;
		while (at < s->n_layers && s->layer[at] != want)
			at++;
		if (at == s->n_layers)
			s->layer[s->n_layers++] = want;
		s->layer_of[i] = at;
	}
}

/* A capture states the RoPE of layers that see all keys. */
static enum ar_status open_ropes(struct act_capture *s, const struct backend_env *env,
				 struct ar_err *err)
{
	const struct capture_info *info = capture_info(env->capture[0]);
	bool own = info->rope.theta > 0 && !*env->model->rope_unknown;

	return act_ropes_open(&s->ropes, env, s->shape.head_dim,
			      own ? &info->rope : &env->model->rope, info->rope_applied, err);
}

static int heads_of(const struct act_capture *s)
{
	return s->shape.q_heads + 2 * s->shape.kv_heads;
}

static void act_capture_close(void *self)
{
	struct act_capture *s = self;

	if (!s)
		return;
	if (s->owned) {
		free(s->data);
		act_ropes_unload_ref(&s->ropes);
	}
	act_ropes_release(&s->ropes);
	free(s->seq);
	free(s->layer);
	free(s->layer_of);
	free(s);
}

/* Place the captures in the memory.  True: Q and K of some rows must be rotated. */
static bool place_captures(struct act_capture *s, const struct backend_env *env)
{
	bool rotated = env->tile;

	for (size_t c = 0; c < s->n_seq; c++) {
		const struct capture_info *i = capture_info(env->capture[c]);

		assert(i->q_heads >= s->shape.q_heads && i->kv_heads >= s->shape.kv_heads &&
		       i->head_dim == s->shape.head_dim &&
		       i->n_layers == capture_info(env->capture[0])->n_layers);
		s->seq[c] = (struct capture_seq){ i->n_tok, s->n_tok, i->rope_applied, i->name };
		s->n_tok += i->n_tok;
		rotated |= !i->rope_applied;
	}
	s->elems = (size_t)s->n_layers * (size_t)heads_of(s) * (size_t)s->n_tok *
		   (size_t)s->shape.head_dim;
	s->ropes.n_rotation = rotated ? env->max_len : 1;
	return rotated;
}

/* All rows share the cosines, and with them the attention factor. */
static enum ar_status check_factor(const struct act_capture *s, struct ar_err *err)
{
	bool factor = false;

	for (int i = 0; i < s->ropes.n; i++)
		factor |= rope_attention_factor(&s->ropes.rope[i].r) != 1;

	for (size_t c = 1; c < s->n_seq; c++)
		if (s->seq[c].rope_applied != s->seq[0].rope_applied && factor)
			return ar_fail(err, AR_DATA,
				       "%s and %s: one is before RoPE, the other after it, and its "
				       "attention factor is not 1; replay them in separate runs",
				       s->seq[0].name, s->seq[c].name);
	return AR_OK;
}

/* Q and K must be rotated, but nobody knows by which angles. */
static enum ar_status no_angles(const struct backend_env *env, struct ar_err *err)
{
	const char *name = capture_info(env->capture[0])->name;

	if (*env->model->rope_unknown)
		return ar_fail(err, AR_DATA,
			       "%s: Q and K must be rotated, but the angles of %s, which model %s "
			       "has, are not known; replay captures after RoPE, without --extend "
			       "tile",
			       name, env->model->rope_unknown, env->model->name);
	return ar_fail(err, AR_DATA,
		       "%s: Q and K must be rotated, but neither the capture nor the model says "
		       "how; pack the capture with its rope_theta",
		       name);
}

static enum ar_status act_capture_open(void **self, const struct backend_env *env,
				       const struct attn_shape *shape, struct ar_err *err)
{
	struct act_capture *s = calloc(1, sizeof *s);
	enum ar_status st;

	*self = NULL;
	if (!s)
		return ar_nomem(err);
	assert(env->n_capture && env->n_run_layers);
	*s = (struct act_capture){ .shape = *shape,
				   .capture = env->capture,
				   .n_seq = env->n_capture,
				   .capture_of = env->capture_of,
				   .tile = env->tile,
				   .rank = env->world ? world_rank(env->world) : 0 };
	s->seq = calloc(s->n_seq, sizeof *s->seq);
	s->layer = calloc((size_t)env->n_run_layers, sizeof *s->layer);
	s->layer_of = calloc((size_t)env->n_run_layers, sizeof *s->layer_of);
	st = s->seq && s->layer && s->layer_of ? open_ropes(s, env, err) : ar_nomem(err);
	if (!st) {
		map_layers(s, env);
		if (place_captures(s, env) && !(s->ropes.rope[0].r.theta > 0))
			st = no_angles(env, err);
	}
	if (!st)
		st = check_factor(s, err);
	if (st)
		act_capture_close(s);
	else
		*self = s;
	return st;
}

static const struct rope *act_capture_rope(const void *self)
{
	return &((const struct act_capture *)self)->ropes.rope[0].r;
}

static int64_t act_capture_n_tok(const void *self, uint32_t req)
{
	const struct act_capture *s = self;

	return s->seq[s->capture_of[req]].n_tok;
}

/* Shared by the threads that read the captures in pieces. */
struct load {
	const struct act_capture *s;
	act_capture_put *put;
	void *ctx;
	int *piece0; /* [n_seq + 1] first piece of each capture */
};

/* Tokens of a piece: a whole frame, so that no frame is decoded twice. */
static int64_t piece_tok(const struct capture_info *i)
{
	return i->frame_tok ? i->frame_tok : PIECE_TOK;
}

static int pieces_of(const struct capture_info *i)
{
	return (int)((i->n_tok + piece_tok(i) - 1) / piece_tok(i));
}

/* Tokens [tok, tok + n) of one tensor of one layer. */
struct piece {
	size_t seq;
	int layer, tensor;
	int64_t tok, n;
};

static struct piece piece_at(const struct load *w, int i)
{
	const struct capture_info *info;
	struct piece p = { 0 };
	int64_t left;
	int n;

	while (i >= w->piece0[p.seq + 1])
		p.seq++;
	info = capture_info(w->s->capture[p.seq]);
	n = pieces_of(info);
	i -= w->piece0[p.seq];
	p.layer = i / n / 3;
	p.tensor = i / n % 3;
	p.tok = i % n * piece_tok(info);
	left = info->n_tok - p.tok;
	p.n = left < piece_tok(info) ? left : piece_tok(info);
	return p;
}

/* The first of the heads of this rank: a capture has those of all ranks, or of one.  Ranks share KV
 * heads that are fewer than they. */
static int first_head(const struct act_capture *s, const struct capture_info *info, int tensor)
{
	const int ranks = info->q_heads / s->shape.q_heads;
	const int heads = tensor == CAPTURE_Q ? info->q_heads : info->kv_heads;

	return s->rank % ranks * heads / ranks;
}

static enum ar_status load_piece(void *ctx, int i, struct ar_err *err)
{
	const struct load *w = ctx;
	const struct act_capture *s = w->s;
	const struct attn_shape *a = &s->shape;
	const int head0[] = { 0, a->q_heads, a->q_heads + a->kv_heads, heads_of(s) };
	struct piece p = piece_at(w, i);
	const struct capture_info *info = capture_info(s->capture[p.seq]);
	size_t dim = (size_t)a->head_dim, pitch = (size_t)s->n_tok * dim;
	int heads = p.tensor == CAPTURE_Q ? info->q_heads : info->kv_heads;
	size_t head = (size_t)(p.layer * heads_of(s) + head0[p.tensor]);
	size_t tok = (size_t)(s->seq[p.seq].first + p.tok);
	bf16_t *mem = malloc((size_t)heads * (size_t)p.n * dim * sizeof *mem);
	enum ar_status st;

	if (!mem)
		return ar_nomem(err);
	st = capture_read_finite(s->capture[p.seq], s->layer[p.layer],
				 (enum capture_tensor)p.tensor, p.tok, p.n, mem, err);
	if (!st)
		st = w->put(w->ctx, head * pitch + tok * dim, pitch,
			    mem + (size_t)first_head(s, info, p.tensor) * (size_t)p.n * dim,
			    (size_t)p.n * dim, (size_t)(head0[p.tensor + 1] - head0[p.tensor]),
			    err);
	free(mem);
	return st;
}

enum ar_status act_capture_read(const struct act_capture *s, act_capture_put *put, void *ctx,
				struct ar_err *err)
{
	struct load w = { s, put, ctx, calloc(s->n_seq + 1, sizeof *w.piece0) };
	enum ar_status st;

	if (!w.piece0)
		return ar_nomem(err);
	for (size_t i = 0; i < s->n_seq; i++)
		w.piece0[i + 1] = w.piece0[i] +
				  s->n_layers * 3 * pieces_of(capture_info(s->capture[i]));
	st = parallel_each(w.piece0[s->n_seq], load_piece, &w, err);
	free(w.piece0);
	return st;
}

static enum ar_status find_row(const struct act_capture *s, size_t seq, int64_t pos,
			       struct layer_row *row, struct ar_err *err)
{
	const struct capture_seq *from = &s->seq[seq];
	int64_t tok = s->tile ? pos % from->n_tok : pos;
	int64_t by = from->rope_applied ? pos - tok : pos;

	if (tok >= from->n_tok)
		return ar_fail(err, AR_DATA,
			       "%s: has %lld tokens, position %lld is wanted; use "
			       "--extend tile or a longer capture",
			       from->name, (long long)from->n_tok, (long long)pos);
	if (by >= s->ropes.n_rotation)
		return ar_fail(err, AR_USAGE,
			       "position %lld is past the longest request of %lld tokens",
			       (long long)by, (long long)s->ropes.n_rotation);
	row->tok = (int32_t)(from->first + tok);
	row->rotation = (int32_t)by;
	return AR_OK;
}

static enum ar_status act_capture_begin(const void *self, uint32_t req, int64_t start, uint32_t n,
					struct layer_row *row, struct ar_err *err)
{
	const struct act_capture *s = self;
	enum ar_status st = AR_OK;

	for (uint32_t i = 0; i < n && !st; i++)
		st = find_row(s, s->capture_of[req], start + i, &row[i], err);
	return st;
}

/* ---- on the host ---- */

static enum ar_status put_host(void *ctx, size_t off, size_t pitch, const bf16_t *from,
			       size_t width, size_t rows, struct ar_err *err)
{
	bf16_t *to = (bf16_t *)ctx + off;

	(void)err;
	for (size_t r = 0; r < rows; r++)
		memcpy(to + r * pitch, from + r * width, width * sizeof *to);
	return AR_OK;
}

static enum ar_status act_capture_load_ref(void *self, struct ar_err *err)
{
	struct act_capture *s = self;
	enum ar_status st;

	s->owned = true;
	s->data = calloc(s->elems, sizeof *s->data);
	st = s->data ? act_ropes_load_ref(&s->ropes, err) : ar_nomem(err);
	return st ? st : act_capture_read(s, put_host, s->data, err);
}

static enum ar_status act_capture_qkv_ref(const void *self, int i, const struct layer_row *row,
					  int n_row, const struct layer_qkv *product,
					  const struct qkv *out, struct ar_err *err)
{
	const struct act_capture *s = self;
	const struct layer_seq seq = { s->data, s->n_tok };
	const struct layer_angles angles = act_ropes_angles(&s->ropes, i);
	int layer = s->layer_of[i];

	(void)product;
	(void)err;
	layer_rope_ref(&s->shape, &seq, layer, row, n_row, &angles, out->q, out->k);
	if (out->kv)
		layer_cache_ref(&s->shape, &seq, layer, row, n_row, out->k, out->kv);
	return AR_OK;
}

const struct activations activations_capture = {
	.name = "capture",
	.open = act_capture_open,
	.rope = act_capture_rope,
	.n_tok = act_capture_n_tok,
	.begin = act_capture_begin,
	.load_ref = act_capture_load_ref,
	.qkv_ref = act_capture_qkv_ref,
	.load = HAVE_CUDA ? capture_load : NULL,
	.qkv = HAVE_CUDA ? capture_qkv : NULL,
	.close = act_capture_close,
};
