/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/engine/backend.h"

#include <assert.h>

enum ar_status backend_open(const struct backend *b, void **self, const void *opts,
			    const struct backend_env *env, struct ar_err *err)
{
	return b->open(self, opts, env, err);
}

int64_t backend_fit_blocks(const struct backend *b, void *self)
{
	return b->fit_blocks ? b->fit_blocks(self) : BACKEND_ANY_BLOCKS;
}

int64_t backend_max_captured(const struct backend *b, void *self)
{
	return b->max_captured ? b->max_captured(self) : -1;
}

const struct store_gpu *backend_gpu(const struct backend *b, void *self)
{
	return b->gpu ? b->gpu(self) : NULL;
}

enum ar_status backend_start(const struct backend *b, void *self, int64_t num_blocks,
			     struct ar_err *err)
{
	return b->start(self, num_blocks, err);
}

enum ar_status backend_run(const struct backend *b, void *self, const struct batch *batch,
			   struct iter_cost *cost, struct ar_err *err)
{
	assert(batch->n);
	return b->run(self, batch, cost, err);
}

bool backend_compares(const struct backend *b)
{
	return b->compare;
}

enum ar_status backend_compare(const struct backend *b, void *self, const struct batch_entry *e,
			       int i, struct accuracy *acc, struct selection_count *count,
			       struct method_selection *sel, struct ar_err *err)
{
	assert(backend_compares_kind(e->kind));
	return b->compare(self, e, i, acc, count, sel, err);
}

enum ar_status backend_kept(const struct backend *b, void *self, const struct batch_entry *e, int i,
			    struct kept_share *out, struct ar_err *err)
{
	assert(e->kind == ROW_PREFILL);
	*out = (struct kept_share){ 0 };
	return b->kept ? b->kept(self, e, i, out, err) : AR_OK;
}

bool backend_layer_work(const struct backend *b, const void *self, int i, struct layer_work *out)
{
	if (b->layer_work)
		b->layer_work(self, i, out);
	return b->layer_work;
}

void backend_drop(const struct backend *b, void *self, uint32_t req)
{
	b->drop(self, req);
}

enum ar_status backend_barriers(const struct backend *b, void *self, int n, int64_t *ns,
				bool *timed, struct ar_err *err)
{
	*timed = b->barriers;
	return *timed ? b->barriers(self, n, ns, err) : AR_OK;
}

void backend_leave(const struct backend *b, void *self)
{
	if (b->leave)
		b->leave(self);
}

void backend_close(const struct backend *b, void *self)
{
	if (self)
		b->close(self);
}
