/* SPDX-License-Identifier: Apache-2.0 */
/* The common state of backends that run attention: the method of each layer, the groups of layers
 * that share pages, and the activations. */
#ifndef AR_ATTN_ENGINE_H
#define AR_ATTN_ENGINE_H

#include <stdbool.h>

#include "kernels/drop/kept.h"
#include "kernels/methods/plan.h"
#include "replay/engine/activations.h"
#include "replay/engine/backend.h"
#include "replay/engine/drops.h"
#include "replay/engine/groups.h"
#include "replay/engine/rows.h"

struct attn_engine {
	const struct model *model; /* borrowed */
	const int *run_layer;	   /* [n_run_layers] executed layers of the model; borrowed */
	int n_run_layers;
	struct layer_plan plan; /* the method of each layer */
	struct method *dense;	/* of window layers, and to compare with */
	struct cache_groups groups;
	struct drops drops;
	const struct activations *act;
	void *act_self;
	float *sink;   /* [n_run_layers][n_sink] random, on the host; NULL: no layer has sinks */
	size_t n_sink; /* of a layer: most query heads */
};

/* device: methods and activations run on the current CUDA device, else on the host.  Release *e
 * even after a failure.  Methods and activations fail with errors of their own. */
enum ar_status attn_engine_open(struct attn_engine *e, const struct backend_env *env, bool device,
				struct ar_err *err);
void attn_engine_release(struct attn_engine *e);

/* Run the methods of env->plan from here on.  They may differ from the methods before only in
 * thresholds of selectors.  Errors: see attn_engine_open(); the methods then stay. */
enum ar_status attn_engine_use(struct attn_engine *e, const struct backend_env *env, bool device,
			       struct ar_err *err);

/* The mixer, the group, the shape and the method of executed layer i.  A linear layer has no heads
 * and no method. */
static inline enum mixer attn_engine_mixer(const struct attn_engine *e, int i)
{
	return e->model->layer[e->run_layer[i]].mixer;
}

static inline const struct cache_group *attn_engine_group(const struct attn_engine *e, int i)
{
	return groups_of(&e->groups, e->run_layer[i]);
}

static inline const struct attn_shape *attn_engine_shape(const struct attn_engine *e, int i)
{
	return &attn_engine_group(e, i)->shape;
}

static inline const struct method *attn_engine_method(const struct attn_engine *e, int i)
{
	return plan_method(&e->plan, e->run_layer[i]);
}

/* The executed layer whose lists the decodes of executed layer i take; -1: they have their own.
 * Where lists pass between layers, all layers are executed. */
static inline int attn_engine_source(const struct attn_engine *e, int i)
{
	return plan_source(&e->plan, e->run_layer[i]);
}

/* Bytes of the lists that pass between layers, for decodes within limits. */
size_t attn_engine_lists_bytes(const struct attn_engine *e, const struct attn_limits *decode);

/* The dropper that acts after executed layer i, or NULL. */
static inline const struct drop *attn_engine_drop(const struct attn_engine *e, int i)
{
	return drop_acts_after(e->plan.drop, e->run_layer[i]) ? e->plan.drop : NULL;
}

/* The executed layer that ends segment s.  There is one: s is below drops.n - 1. */
int attn_engine_drop_layer(const struct attn_engine *e, int s);
/* Its inverse: the segment that executed layer i ends, as many layers that drop come before it. */
int attn_engine_drop_no(const struct attn_engine *e, int i);

/* Count the scores of the messages that ranks would send each other for the rows of a batch. */
void attn_engine_count_scores(struct attn_engine *e, const struct row_set *set);

/* Refuse b if the dropper cannot run it: tokens of the prefix cache were not dropped by it. */
enum ar_status attn_engine_check(const struct attn_engine *e, const struct batch *b,
				 struct ar_err *err);

/* If tokens are revived, tell the user the size of the aux caches.  The groups have their pages. */
void attn_engine_log_aux(const struct attn_engine *e);

/* Count the rows and pairs of b, which has run, in its groups.  attn_engine_forget() sets the
 * counts to 0. */
void attn_engine_tally(struct attn_engine *e, const struct batch *b);
void attn_engine_forget(struct attn_engine *e);
/* The counts of executed layer i, see struct backend. */
void attn_engine_work(const struct attn_engine *e, int i, struct layer_work *out);

/* Make Q and K of rows that begin() has set, in executed layer i, on the host. */
typedef enum ar_status engine_rows_fn(void *ctx, int i, const struct layer_row *row, int n_row,
				      bf16_t *q, bf16_t *k, struct ar_err *err);

/* Measure the tokens that go on after executed layer i, see kept.h.  entry: of the last batch.
 * out->n_tok 0: no token was dropped yet.  rows makes at most max_row rows at a time. */
enum ar_status attn_engine_kept(const struct attn_engine *e, const struct batch_entry *entry, int i,
				int max_row, engine_rows_fn *rows, void *ctx,
				struct kept_share *out, struct ar_err *err);

/* A shape of the most heads and the largest heads of all executed layers, with the run's page size.
 * A row of any layer fits into a row of this shape. */
struct attn_shape attn_engine_widest(const struct attn_engine *e);

/* The sinks of executed layer i in sink, e->sink or its copy; NULL: it has none. */
const float *attn_engine_sink(const struct attn_engine *e, const float *sink, int i);

/* attn_limits.n_sm on a GPU: one plan of tiles must suit the kernels of all layers. */
int attn_engine_n_sm(const struct attn_engine *e, const struct gpu *gpu);

/* Set up the rows of batches for the executed layers, but for memory.  Release *r even after a
 * failure. */
enum ar_status attn_engine_rows(const struct attn_engine *e, const struct backend_env *env,
				struct rows_env *r, struct ar_err *err);

/* Check that attn_engine_open() on the host would succeed.  env->plan cannot be used afterwards;
 * the caller frees it. */
enum ar_status attn_engine_try(const struct backend_env *env, struct ar_err *err);

#endif
