/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/act_weights.h"

#include <assert.h>
#include <stdlib.h>

#include "base/parallel.h"
#include "replay/engine/tokens.h"

enum { ROW_STEP = 64 }; /* rows of a job */

static void close(void *self)
{
	struct act_weights *s = self;

	if (!s)
		return;
	if (s->owned)
		act_ropes_unload_ref(&s->ropes);
	act_ropes_release(&s->ropes);
	free(s);
}

static enum ar_status open(void **self, const struct backend_env *env,
			   const struct attn_shape *shape, struct ar_err *err)
{
	const struct model *m = env->model;
	struct act_weights *s;
	enum ar_status st;

	*self = NULL;
	assert(env->weights && env->tokens);
	if (!(m->rope.theta > 0))
		return ar_fail(err, AR_DATA,
			       "%s: the angles of %s are not known; its weights cannot run",
			       m->name, m->rope_unknown);
	s = calloc(1, sizeof *s);
	if (!s)
		return ar_nomem(err);
	*s = (struct act_weights){ .shape = *shape, .trace = env->trace, .tokens = env->tokens };
	st = act_ropes_open(&s->ropes, env, shape->head_dim, &m->rope, false, err);
	s->ropes.n_rotation = env->max_len;
	if (st)
		close(s);
	else
		*self = s;
	return st;
}

static const struct rope *rope(const void *self)
{
	return &((const struct act_weights *)self)->ropes.rope[0].r;
}

static int64_t n_tok(const void *self, uint32_t req)
{
	return ((const struct act_weights *)self)->trace->req[req].prompt_tok;
}

static enum ar_status begin(const void *self, uint32_t req, int64_t start, uint32_t n,
			    struct layer_row *row, struct ar_err *err)
{
	const struct act_weights *s = self;

	if (start + n > s->ropes.n_rotation)
		return ar_fail(err, AR_USAGE,
			       "request %u: position %lld is past the longest request of %lld "
			       "tokens",
			       req, (long long)(start + n - 1), (long long)s->ropes.n_rotation);
	for (uint32_t i = 0; i < n; i++) {
		row[i].tok = tokens_id(s->tokens, req, start + i);
		row[i].rotation = (int32_t)(start + i);
	}
	return AR_OK;
}

/* ---- on the host ---- */

static enum ar_status load_ref(void *self, struct ar_err *err)
{
	struct act_weights *s = self;

	s->owned = true;
	return act_ropes_load_ref(&s->ropes, err);
}

struct rotation {
	const struct act_weights *s;
	struct layer_angles angles;
	const struct layer_row *row;
	int n_row;
	const struct layer_qkv *product;
	const struct qkv *out;
};

/* A row of the product serves RoPE and the cache as a capture of one token. */
static enum ar_status rotate_rows(void *ctx, int job, struct ar_err *err)
{
	const struct rotation *w = ctx;
	const struct attn_shape *a = &w->s->shape;
	int end = (job + 1) * ROW_STEP < w->n_row ? (job + 1) * ROW_STEP : w->n_row;

	(void)err;
	for (int r = job * ROW_STEP; r < end; r++) {
		const struct layer_seq seq = { w->product->x + r * layer_qkv_row(w->product), 1 };
		struct layer_row row = w->row[r];
		bf16_t *q = w->out->q + (size_t)r * (size_t)(a->q_heads * a->head_dim);
		bf16_t *k = w->out->k + (size_t)r * (size_t)(a->kv_heads * a->head_dim);

		row.tok = 0;
		layer_rope_ref(a, &seq, 0, &row, 1, &w->angles, q, k);
		if (w->out->kv)
			layer_cache_ref(a, &seq, 0, &row, 1, k, w->out->kv);
	}
	return AR_OK;
}

static enum ar_status qkv_ref(const void *self, int i, const struct layer_row *row, int n_row,
			      const struct layer_qkv *product, const struct qkv *out,
			      struct ar_err *err)
{
	const struct act_weights *s = self;
	struct rotation w = { s, act_ropes_angles(&s->ropes, i), row, n_row, product, out };

	assert(product && !product->gated);
	return parallel_each((n_row + ROW_STEP - 1) / ROW_STEP, rotate_rows, &w, err);
}

const struct activations activations_weights = {
	.name = "weights",
	.open = open,
	.rope = rope,
	.n_tok = n_tok,
	.begin = begin,
	.load_ref = load_ref,
	.qkv_ref = qkv_ref,
	.load = HAVE_CUDA ? weights_load : NULL,
	.qkv = HAVE_CUDA ? weights_qkv : NULL,
	.close = close,
};
