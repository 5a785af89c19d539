/* SPDX-License-Identifier: Apache-2.0 */
/* Which method each layer of a model runs.  Today all layers run the same. */
#ifndef AR_PLAN_H
#define AR_PLAN_H

#include <stdbool.h>

#include "kernels/methods/method.h"
#include "model/model.h"

struct layer_plan {
	int n_layers;		/* of the model */
	int page_tok;		/* tokens of a page of the cache, in every layer */
	struct method **method; /* [n_layers], borrowed; NULL: the layer has no attention */
};

/* Every layer runs m, and pages have the size that m takes; a run may set another page_tok. */
enum ar_status plan_init(struct layer_plan *p, int n_layers, struct method *m, struct ar_err *err);
void plan_release(struct layer_plan *p);

static inline const struct method *plan_method(const struct layer_plan *p, int layer)
{
	return p->method[layer];
}

/* Whether this is the first layer that runs its method.  Not where there is none. */
bool plan_first(const struct layer_plan *p, int layer);

/* Heads of the layer, and the page size. */
struct attn_shape plan_shape(const struct layer_plan *p, const struct model *m, int layer);

/* method_open() each method once.  env->shape and env->n_layers are ignored: the methods get those
 * of their layers.  AR_USAGE: a method does not take the page size. */
enum ar_status plan_open(const struct layer_plan *p, const struct model *m,
			 const struct selector_env *env, struct ar_err *err);

#endif
