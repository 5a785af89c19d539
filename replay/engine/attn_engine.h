/* SPDX-License-Identifier: Apache-2.0 */
/* The common state of backends that run attention: the method of each layer, the groups of layers
 * that share pages, and the activations. */
#ifndef AR_ATTN_ENGINE_H
#define AR_ATTN_ENGINE_H

#include <stdbool.h>

#include "kernels/methods/plan.h"
#include "replay/engine/activations.h"
#include "replay/engine/backend.h"
#include "replay/engine/groups.h"

struct attn_engine {
	const int *run_layer;	 /* executed layers of the model; borrowed */
	struct layer_plan plan;	 /* the method of each layer */
	struct attn_shape shape; /* of every layer, on one rank */
	struct cache_groups groups;
	const struct activations *act;
	void *act_self;
};

/* device: methods and activations run on the current CUDA device, else on the host.  Release *e
 * even after a failure. */
enum ar_status attn_engine_open(struct attn_engine *e, const struct backend_env *env, bool device,
				struct ar_err *err);
void attn_engine_release(struct attn_engine *e);

/* The group and the method of executed layer i. */
static inline const struct cache_group *attn_engine_group(const struct attn_engine *e, int i)
{
	return groups_of(&e->groups, e->run_layer[i]);
}

static inline const struct method *attn_engine_method(const struct attn_engine *e, int i)
{
	return plan_method(&e->plan, e->run_layer[i]);
}

/* Check that attn_engine_open() on the host would succeed.  env->plan cannot be used afterwards;
 * the caller frees it. */
enum ar_status attn_engine_try(const struct backend_env *env, struct ar_err *err);

#endif
