/* SPDX-License-Identifier: Apache-2.0 */
/* What a backend that runs attention is made of: which method each layer runs, which layers share
 * pages, and where activations come from. */
#ifndef AR_ATTN_ENGINE_H
#define AR_ATTN_ENGINE_H

#include <stdbool.h>

#include "kernels/methods/plan.h"
#include "replay/engine/activations.h"
#include "replay/engine/backend.h"
#include "replay/engine/groups.h"

struct attn_engine {
	const int *run_layer;		/* of the model, that are executed; borrowed */
	struct layer_plan plan;
	struct attn_shape shape;	/* of this rank, of every layer */
	struct cache_groups groups;
	const struct activations *act;
	void *act_self;
};

/* device: methods and activations will be on the current device.  *e is to be released even after
 * a failure. */
enum ar_status attn_engine_open(struct attn_engine *e, const struct backend_env *env, bool device,
				struct ar_err *err);
void attn_engine_release(struct attn_engine *e);

/* Of executed layer i. */
static inline const struct cache_group *attn_engine_group(const struct attn_engine *e, int i)
{
	return groups_of(&e->groups, e->run_layer[i]);
}

static inline const struct method *attn_engine_method(const struct attn_engine *e, int i)
{
	return plan_method(&e->plan, e->run_layer[i]);
}

/* Whether a later attn_engine_open() on the host would succeed; env's method is to be freed. */
enum ar_status attn_engine_try(const struct backend_env *env, struct ar_err *err);

#endif
