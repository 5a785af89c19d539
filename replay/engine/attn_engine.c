/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/attn_engine.h"

#include <assert.h>
#include <stdlib.h>

static enum ar_status open_methods(const struct attn_engine *e, const struct backend_env *env,
				   struct selector_env s, struct ar_err *err)
{
	const struct rope *rope = e->act->rope(e->act_self);
	float *inv = calloc((size_t)e->shape.head_dim, sizeof *inv);
	enum ar_status st;

	if (!inv)
		return ar_nomem(err);
	rope_inv_freq(rope, e->shape.head_dim, inv);
	s.rope_inv = rope->theta > 0 ? inv : NULL;
	s.rope_unknown = *env->model->rope_unknown ? env->model->rope_unknown : NULL;
	st = plan_open(&e->plan, env->model, &s, err);
	free(inv);
	return st;
}

static enum ar_status open_as(struct attn_engine *e, const struct backend_env *env,
			      struct selector_env s, struct ar_err *err)
{
	enum ar_status st;

	assert(env->n_run_layers);
	*e = (struct attn_engine){ .run_layer = env->run_layer, .act = activations[0] };
	st = plan_init(&e->plan, env->plan, env->model, err);
	if (st)
		return st;
	if (env->page_tok)
		e->plan.page_tok = env->page_tok;
	e->shape = plan_shape(&e->plan, env->model, env->run_layer[0]);
	st = e->act->open(&e->act_self, env, &e->shape, err);
	return st ? st : open_methods(e, env, s, err);
}

enum ar_status attn_engine_open(struct attn_engine *e, const struct backend_env *env, bool device,
				struct ar_err *err)
{
	enum ar_status st = open_as(e, env, (struct selector_env){ .device = device }, err);

	return st ? st : groups_init(&e->groups, env->model, &e->plan, err);
}

void attn_engine_release(struct attn_engine *e)
{
	if (e->act)
		e->act->close(e->act_self);
	groups_release(&e->groups);
	plan_release(&e->plan);
}

enum ar_status attn_engine_try(const struct backend_env *env, struct ar_err *err)
{
	struct attn_engine e;
	enum ar_status st = open_as(&e, env, (struct selector_env){ .trial = true }, err);

	attn_engine_release(&e);
	return st;
}
