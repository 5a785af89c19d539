/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/ranks/tell.h"

#include <inttypes.h>
#include <string.h>

#include "base/rng.h"

enum { MAGIC = 0x6b6e6172 };

uint64_t tell_digest(const struct batch *b)
{
	uint64_t x = b->n;

	for (size_t i = 0; i < b->n; i++) {
		const struct batch_entry *e = &b->entry[i];
		const uint64_t part[] = { (uint64_t)e->req << 32 | e->start,
					  (uint64_t)e->n_tok << 32 | e->gone,
					  (uint64_t)e->evict << 32 | e->n_emit << 8 | e->kind };

		for (int k = 0; k < 3; k++)
			x = rng_mix(x ^ part[k]);
	}
	return x;
}

static struct rank_tell my_tell(const struct world *w, int64_t iter, const struct batch *b,
				const struct iter_cost *c)
{
	struct rank_tell t = { .magic = MAGIC,
			       .rank = (uint32_t)world_rank(w),
			       .iter = iter,
			       .digest = rng_mix(tell_digest(b) ^ c->drop_digest),
			       .cost_ns = c->cost_ns,
			       .event_ns = c->event_ns,
			       .span_ns = c->span_ns,
			       .busy_ns = c->busy_ns,
			       .comm_exposed_ns = c->n_kernel ? c->comm_exposed_ns : -1,
			       .comm_overlap_ns = c->n_kernel ? c->comm_overlap_ns : -1,
			       .interrupted = ar_interrupted() != 0,
			       .select_kernels = (int32_t)iter_cost_select_kernels(c) };

	memcpy(t.phase_ns, c->phase_ns, sizeof t.phase_ns);
	return t;
}

static enum ar_status check_tells(const struct rank_tells *all, int size,
				  const struct rank_tell *mine, struct ar_err *err)
{
	for (int i = 0; i < size; i++) {
		const struct rank_tell *x = &all->of[i];

		if (x->magic != MAGIC || x->rank != (uint32_t)i || x->iter != mine->iter)
			return ar_fail(err, AR_DATA,
				       "rank %d is in another iteration than rank %" PRIu32
				       ", which is in %" PRId64,
				       i, mine->rank, mine->iter);
		if (x->digest != all->of[0].digest)
			return ar_fail(err, AR_DATA,
				       "rank %d scheduled another batch than rank 0, or kept other "
				       "rows, in iteration %" PRId64,
				       i, mine->iter);
	}
	for (int i = 0; i < size; i++)
		if (all->of[i].interrupted)
			return ar_fail(err, AR_INTERRUPTED, "rank %d was interrupted", i);
	return AR_OK;
}

enum ar_status tell_iteration(struct world *w, int64_t iter, const struct batch *b,
			      const struct iter_cost *c, struct rank_tells *all, struct ar_err *err)
{
	const struct rank_tell mine = my_tell(w, iter, b, c);
	enum ar_status st = world_gather(w, &mine, all->of, sizeof mine, err);

	if (!st)
		world_count_told(w, iter + 1);
	if (!st)
		st = world_agree(w, check_tells(all, world_size(w), &mine, err));
	all->slowest = 0;
	for (int i = 1; i < world_size(w) && !st; i++)
		if (all->of[i].cost_ns > all->of[all->slowest].cost_ns)
			all->slowest = i;
	return st;
}

void tell_take_slowest(const struct rank_tells *all, struct iter_cost *c)
{
	const struct rank_tell *x = &all->of[all->slowest];

	c->cost_ns = x->cost_ns;
	c->event_ns = x->event_ns;
	c->span_ns = x->span_ns;
	c->busy_ns = x->busy_ns;
	memcpy(c->phase_ns, x->phase_ns, sizeof x->phase_ns);
}
