#include "config.h"
#include "replay/engine/act_capture.h"

#include <assert.h>
#include <stdlib.h>

#include "replay/engine/pages.h"

enum { PIECE_TOK = 4096 };	/* tokens read at once */

/* Which captured layers are read, each once. */
static void map_layers(struct source *s, const struct backend_env *env)
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

static int heads_of(const struct source *s)
{
	return s->shape.q_heads + 2 * s->shape.kv_heads;
}

enum ar_status source_init(struct source *s, const struct backend_env *env,
			   const struct attn_shape *shape, struct ar_err *err)
{
	const struct capture_info *first = capture_info(env->capture[0]);
	bool turned = env->tile;

	assert(env->n_capture && env->n_run_layers);
	*s = (struct source){ .shape = *shape, .n_seq = env->n_capture, .tile = env->tile };
	s->seq = calloc(s->n_seq, sizeof *s->seq);
	s->layer = calloc((size_t)env->n_run_layers, sizeof *s->layer);
	s->layer_of = calloc((size_t)env->n_run_layers, sizeof *s->layer_of);
	if (!s->seq || !s->layer || !s->layer_of) {
		source_release(s);
		return ar_nomem(err);
	}
	map_layers(s, env);
	for (size_t c = 0; c < s->n_seq; c++) {
		const struct capture_info *i = capture_info(env->capture[c]);

		assert(i->q_heads >= shape->q_heads && i->kv_heads >= shape->kv_heads &&
		       i->head_dim == shape->head_dim && i->n_layers == first->n_layers);
		s->seq[c] = (struct source_seq){ i->n_tok, s->elems, i->rope_applied, i->name };
		s->elems += (size_t)s->n_layers * (size_t)heads_of(s) * (size_t)i->n_tok *
			    (size_t)i->head_dim;
		turned |= !i->rope_applied;
	}
	s->rope = first->rope.theta > 0 ? first->rope : env->model->rope;
	s->n_turn = turned ? env->max_len : 1;
	if (!turned || s->rope.theta > 0)
		return AR_OK;
	source_release(s);
	return ar_fail(err, AR_DATA, "%s: does not say its rotary embedding, nor does the model, "
		       "and its rows are to be turned; pack it with its rope_theta", first->name);
}

void source_release(struct source *s)
{
	free(s->seq);
	free(s->layer);
	free(s->layer_of);
	*s = (struct source){ 0 };
}

/* One tensor of one layer of one capture, whose heads begin at element off. */
static enum ar_status load_tensor(struct capture *c, int layer, enum capture_tensor t, int heads,
				  size_t off, bf16_t *piece, source_put *put, void *ctx,
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

static enum ar_status load_capture(const struct source *s, size_t seq, struct capture *c,
				   bf16_t *piece, source_put *put, void *ctx, struct ar_err *err)
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

enum ar_status source_load(const struct source *s, struct capture **c, source_put *put, void *ctx,
			   struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < s->n_seq && !st; i++) {
		const struct capture_info *info = capture_info(c[i]);
		int heads = info->q_heads > info->kv_heads ? info->q_heads : info->kv_heads;
		bf16_t *piece = malloc((size_t)heads * PIECE_TOK * (size_t)info->head_dim *
				       sizeof *piece);

		st = piece ? load_capture(s, i, c[i], piece, put, ctx, err) : ar_nomem(err);
		free(piece);
	}
	return st;
}

void source_seqs(const struct source *s, const bf16_t *data, struct layer_seq *out)
{
	for (size_t i = 0; i < s->n_seq; i++)
		out[i] = (struct layer_seq){ data + s->seq[i].off, s->seq[i].n_tok };
}

enum ar_status source_row(const struct source *s, size_t seq, int64_t pos, struct layer_row *row,
			  struct ar_err *err)
{
	const struct source_seq *from = &s->seq[seq];
	int64_t tok = s->tile ? pos % from->n_tok : pos;
	int64_t by = from->rope_applied ? pos - tok : pos;

	if (tok >= from->n_tok)
		return ar_fail(err, AR_DATA, "%s: has %lld tokens, position %lld is wanted; use "
			       "--extend tile or a longer capture", from->name,
			       (long long)from->n_tok, (long long)pos);
	if (by >= s->n_turn)
		return ar_fail(err, AR_USAGE,
			       "position %lld is past the longest request of %lld tokens",
			       (long long)by, (long long)s->n_turn);
	row->seq = (int32_t)seq;
	row->tok = (int32_t)tok;
	row->turn = (int32_t)by;
	return AR_OK;
}
