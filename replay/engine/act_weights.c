/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/act_weights.h"

#include <assert.h>
#include <stdlib.h>

#include "replay/engine/tokens.h"
#include "replay/forward/rotate.h"

static void act_weights_close(void *self)
{
	struct act_weights *s = self;

	if (!s)
		return;
	if (s->owned)
		act_ropes_unload_ref(&s->ropes);
	act_ropes_release(&s->ropes);
	free(s);
}

static enum ar_status act_weights_open(void **self, const struct backend_env *env,
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
		act_weights_close(s);
	else
		*self = s;
	return st;
}

static const struct rope *act_weights_rope(const void *self)
{
	return &((const struct act_weights *)self)->ropes.rope[0].r;
}

static int64_t act_weights_n_tok(const void *self, uint32_t req)
{
	return ((const struct act_weights *)self)->trace->req[req].prompt_tok;
}

static enum ar_status act_weights_begin(const void *self, uint32_t req, int64_t start, uint32_t n,
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

static enum ar_status act_weights_load_ref(void *self, struct ar_err *err)
{
	struct act_weights *s = self;

	s->owned = true;
	return act_ropes_load_ref(&s->ropes, err);
}

static enum ar_status act_weights_qkv_ref(const void *self, int i, const struct layer_row *row,
					  int n_row, const struct layer_qkv *product,
					  const struct qkv *out, struct ar_err *err)
{
	const struct act_weights *s = self;

	assert(product && product->n_row == n_row && !product->gated);
	return rotate_ref(&(struct rotate){ .shape = s->shape,
					    .angles = act_ropes_angles(&s->ropes, i),
					    .product = *product,
					    .row = row,
					    .q = out->q,
					    .k = out->k,
					    .kv = out->kv },
			  err);
}

const struct activations activations_weights = {
	.name = "weights",
	.open = act_weights_open,
	.rope = act_weights_rope,
	.n_tok = act_weights_n_tok,
	.begin = act_weights_begin,
	.load_ref = act_weights_load_ref,
	.qkv_ref = act_weights_qkv_ref,
	.load = HAVE_CUDA ? weights_load : NULL,
	.qkv = HAVE_CUDA ? weights_qkv : NULL,
	.close = act_weights_close,
};
