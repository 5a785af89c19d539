/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/act_rope.h"

#include <stdlib.h>

#include "model/rope.h"
#include "replay/forward/rotate.h"

static struct act_rope rope_of(const struct rope *r, int head_dim, bool applied)
{
	return (struct act_rope){ .r = *r,
				  .dim = rope_dim(r, head_dim),
				  .factor = applied ? 1 : (float)rope_attention_factor(r) };
}

enum ar_status act_ropes_open(struct act_ropes *a, const struct backend_env *env, int head_dim,
			      const struct rope *full, bool applied, struct ar_err *err)
{
	const struct model *m = env->model;
	const struct rope *window = &m->rope_window;

	*a = (struct act_ropes){ .model = m, .run_layer = env->run_layer, .n_rotation = 1 };
	a->of = calloc((size_t)env->n_run_layers, sizeof *a->of);
	if (!a->of)
		return ar_nomem(err);
	a->rope[a->n++] = rope_of(full, head_dim, applied);
	if (!(window->theta > 0) || rope_equal(window, full))
		return AR_OK;
	a->rope[a->n++] = rope_of(window, head_dim, applied);
	for (int i = 0; i < env->n_run_layers; i++)
		a->of[i] = m->layer[env->run_layer[i]].mixer == MIX_WINDOW;
	return AR_OK;
}

void act_ropes_release(struct act_ropes *a)
{
	free(a->of);
	a->of = NULL;
}

enum ar_status act_ropes_load_ref(struct act_ropes *a, struct ar_err *err)
{
	for (int i = 0; i < a->n; i++) {
		struct act_rope *r = &a->rope[i];

		r->trig = rotate_trig(&r->r, r->dim, (int)a->n_rotation, r->factor);
		if (!r->trig)
			return ar_nomem(err);
	}
	return AR_OK;
}

void act_ropes_unload_ref(struct act_ropes *a)
{
	for (int i = 0; i < a->n; i++) {
		free(a->rope[i].trig);
		a->rope[i].trig = NULL;
	}
}

struct layer_angles act_ropes_angles(const struct act_ropes *a, int i)
{
	const struct act_rope *r = &a->rope[a->of[i]];
	const struct layer_spec *l = &a->model->layer[a->run_layer[i]];

	return (struct layer_angles){ r->trig, r->dim, (float)layer_q_scale(l) };
}
