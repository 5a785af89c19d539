/* SPDX-License-Identifier: Apache-2.0 */
/* Events of evictors: what leaves after the entries of a plan, and the blocks that come back. */
#include "config.h"
#include "replay/sched/sched_part.h"

#include "replay/sched/policy.h"

void sched_move(struct sched *s, uint32_t id)
{
	struct sched_seq *q = &s->seq[id];
	struct sched_owned was = { q->n_block, q->row, q->n_named };

	q->n_block = s->other[id].n_block;
	q->row = s->other[id].row;
	q->n_named = s->other[id].n_named;
	s->other[id] = was;
	q->moved = true;
}

bool sched_has_other(const struct sched *s, uint32_t id)
{
	return s->other && s->other[id].n_block;
}

static int64_t greater(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

/* Tokens whose blocks q keeps when `gone` have left: those in its blocks now, and more where the
 * policy has set blocks aside. */
static int64_t keeps(const struct sched *s, uint32_t id, int64_t gone)
{
	const struct sched_seq *q = &s->seq[id];
	int64_t n = q->comp;

	if (s->lim.policy->keeps == KEEPS_ALL)
		return greater(n - gone, sched_stored_later(s, id, q->goal));
	return (s->lim.policy->keeps == KEEPS_ADMITTED ? greater(n, q->admitted) : n) - gone;
}

/* Set blocks aside for what an event leaves of id when n more tokens have gone.  False: there is no
 * room. */
static bool set_aside(struct sched *s, uint32_t id, uint32_t n)
{
	struct sched_seq *q = &s->seq[id];
	uint32_t want = (uint32_t)block_pool_need(&s->pool, keeps(s, id, (int64_t)q->gone + n));

	if (!s->lim.prefix_cache || q->moved)
		return true;
	if (s->cache &&
	    !prefix_cache_set_aside(s->cache, q->row, q->n_block, want,
				    s->lim.evict_cache == SCHED_EVICT_DROP, &s->other[id].row))
		return false;
	if (s->radix && want > s->pool.n_free)
		return false;
	if (s->radix) {
		sched_make_room(s, want);
		s->pool.n_free -= want;
	}
	s->other[id].n_block = want;
	return true;
}

/* What leaves after entry e: at the end of the prompt and, with some evictors, from there on. */
static void plan_eviction(struct sched *s, struct batch_entry *e)
{
	const bool decodes = s->lim.evict->evictor->decodes;
	struct sched_seq *q = &s->seq[e->req];
	int64_t n = q->prompt; /* generated tokens never leave, unless decodes evict */
	uint32_t leave;

	if (q->comp < q->prompt || (!decodes && q->gone))
		return;
	if (decodes)
		n = batch_stores(e);
	leave = (uint32_t)(n - evict_kept(s->lim.evict, n));
	if (!leave)
		return;
	if (!set_aside(s, e->req, leave)) {
		s->n_evict_waits++;
		return;
	}
	sched_take_tokens(q, e, leave);
	s->evicting[s->n_evicting++] = e->req;
}

/* Without a prefix cache, events of decodes are planned with them, see sched_plan(). */
void sched_evict(struct sched *s)
{
	struct batch_entry *e = s->batch.entry, *end = e + s->batch.n;
	int64_t left = s->batch.prefill_tok;

	for (; s->other && e < end; e++)
		plan_eviction(s, e);
	while (s->lim.evict && !s->other && left) {
		if ((--end)->kind == ROW_DECODE)
			continue;
		left -= end->n_tok;
		plan_eviction(s, end);
	}
}

/* Give back the blocks from which an event moved the keys of id.  Full ones get names before. */
static void leave_blocks(struct sched *s, uint32_t id)
{
	struct sched_seq *q = &s->seq[id];

	if (q->moved)
		sched_move(s, id);
	if (s->radix)
		sched_enter(s, id, q->admitted);
	sched_release_own(s, id);
	sched_move(s, id);
	s->other[id] = (struct sched_owned){ 0 };
}

void sched_give_back(struct sched *s, uint32_t id)
{
	struct sched_seq *q = &s->seq[id];
	bool runs = s->lim.async && q->planned == s->n_plan;
	int64_t gone = (int64_t)q->gone - (runs ? q->n_evict : 0), kept;

	if (sched_has_other(s, id)) {
		leave_blocks(s, id);
		return;
	}
	if (!gone || q->comp - gone > (q->n_block - 1) * s->pool.block_tok)
		return; /* they were in the last block */
	kept = keeps(s, id, gone);
	if (s->cache)
		prefix_cache_shrink(s->cache, q->row, &q->n_block,
				    (uint32_t)block_pool_need(&s->pool, kept));
	else if (s->lim.policy->keeps != KEEPS_BLOCKS)
		block_pool_shrink(&s->pool, &q->n_block, kept);
}
