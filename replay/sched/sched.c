/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/policy.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "base/order.h"
#include "replay/sched/block_keys.h"
#include "replay/sched/sched_part.h"

uint32_t sched_goal(const struct sched_limits *l, const struct request *r)
{
	uint64_t limit = l->max_len ? (uint64_t)l->max_len : UINT32_MAX;
	const uint64_t first = (uint64_t)r->prompt_tok + 1;
	uint64_t len = (uint64_t)r->prompt_tok + r->output_tok;

	if (l->num_blocks && l->policy->most_outputs) {
		int64_t most = l->policy->most_outputs(l, r->prompt_tok);
		uint64_t cut = (uint64_t)r->prompt_tok + (uint64_t)(most ? most : 1);

		limit = cut < limit ? cut : limit;
	}
	limit = l->first_only && first < limit ? first : limit;
	return (uint32_t)(len < limit ? len : limit);
}

int64_t sched_positions(const struct sched_limits *l, const struct request *r)
{
	return (int64_t)sched_goal(l, r) - !(l->async && l->policy->overruns);
}

static struct kv_groups_config groups_config(const struct sched_limits *l)
{
	return (struct kv_groups_config){ .group = l->group,
					  .n_group = l->n_group,
					  .rules = l->policy->groups,
					  .unnamed_first = l->policy->unnamed_first,
					  .max_tok = l->max_batched_tok,
					  .async = l->async,
					  .root = l->cache_root };
}

int64_t sched_length_blocks(const struct sched_limits *l, int64_t n_tok)
{
	const struct kv_groups_config c = groups_config(l);

	if (l->group)
		return kv_groups_most(&c, n_tok);
	return (n_tok + l->block_tok - 1) / l->block_tok;
}

static int64_t most_blocks(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	return sched_length_blocks(l, l->policy->slots(l, goal, longest));
}

bool sched_rejects(const struct sched_limits *l, const struct request *r, char *why, size_t n)
{
	if (l->max_len && r->prompt_tok >= l->max_len) {
		snprintf(why, n, "prompt of %" PRIu32 " tokens, maximum length %" PRId64,
			 r->prompt_tok, l->max_len);
		return true;
	}
	return l->policy->unfit(l, r, why, n);
}

enum ar_status sched_ample_blocks(const struct trace *t, const struct sched_limits *l,
				  int64_t *num_blocks, struct ar_err *err)
{
	int64_t *need = malloc((t->n + 1) * sizeof *need), sum = 1, longest = 0;

	if (!need)
		return ar_nomem(err);
	for (size_t i = 0; i < t->n; i++)
		if (sched_goal(l, &t->req[i]) > longest)
			longest = sched_goal(l, &t->req[i]);
	for (size_t i = 0; i < t->n; i++)
		need[i] = most_blocks(l, sched_goal(l, &t->req[i]), longest);
	qsort(need, t->n, sizeof *need, order_i64_down);
	for (size_t i = 0; i < t->n && (int64_t)i < l->max_seqs; i++)
		sum += need[i];
	free(need);
	if (l->watermark > 0)
		sum = (int64_t)((double)sum / (1 - l->watermark)) + 2;
	*num_blocks = sum > 2 ? sum : 2;
	return AR_OK;
}

void sched_close(struct sched *s)
{
	if (!s)
		return;
	if (!s->lim.seq)
		free(s->seq);
	free(s->other);
	free(s->running);
	free(s->wait_heap);
	free(s->batch.entry);
	free(s->preempted);
	free(s->finished);
	free(s->ended);
	free(s->evicted);
	free(s->evicting);
	sched_keys_close(s->keys);
	prefix_cache_close(s->cache);
	kv_groups_close(s->groups);
	radix_cache_close(s->radix);
	free(s->memory);
	free(s);
}

/* The maximum length if there is one, else the positions of the longest request that is not
 * rejected. */
static uint32_t longest(const struct trace *t, const struct sched_limits *l)
{
	uint32_t most = 0;
	char why[160];

	for (size_t i = 0; i < t->n; i++) {
		uint32_t len = (uint32_t)sched_positions(l, &t->req[i]);

		if (len > most && !sched_rejects(l, &t->req[i], why, sizeof why))
			most = len;
	}
	return l->max_len ? (uint32_t)l->max_len : most;
}

static enum ar_status open_groups(struct sched *s, size_t n_row, struct ar_err *err)
{
	struct kv_groups_config c = groups_config(&s->lim);

	c.n_row = n_row;
	c.longest = s->longest;
	return kv_groups_open(&s->groups, &s->pool, s->trace, &c, err);
}

/* Allocate the arrays for `most` running sequences.  False: no memory. */
static bool alloc_arrays(struct sched *s, size_t most)
{
	const struct sched_limits *l = &s->lim;
	const size_t n = s->trace->n;
	const bool heap = l->order == SCHED_PRIORITY, other = l->evict && l->prefix_cache;

	s->seq = l->seq ? l->seq : calloc(n + 1, sizeof *s->seq);
	s->running = calloc(most + 1, sizeof *s->running);
	s->batch.entry = calloc(most + 1, sizeof *s->batch.entry);
	s->preempted = calloc(most + 1, sizeof *s->preempted);
	s->finished = calloc(most + 1, sizeof *s->finished);
	s->ended = calloc(most + 1, sizeof *s->ended);
	s->evicted = calloc(most + 1, sizeof *s->evicted);
	s->evicting = calloc(most + 1, sizeof *s->evicting);
	s->memory = calloc(1, l->policy->memory_size + 1 + most * l->policy->memory_per_seq);
	if (heap)
		s->wait_heap = calloc(n + 1, sizeof *s->wait_heap);
	if (other)
		s->other = calloc(n + 1, sizeof *s->other);
	return s->seq && s->running && s->batch.entry && s->preempted && s->finished && s->ended &&
	       s->evicted && s->evicting && s->memory && (!heap || s->wait_heap) &&
	       (!other || s->other);
}

static void begin_sequences(struct sched *s)
{
	const struct sched_limits *l = &s->lim;

	for (size_t i = 0; i < s->trace->n; i++) {
		const struct request *r = &s->trace->req[i];

		s->seq[i].prompt = s->seq[i].known = r->prompt_tok;
		s->seq[i].goal = sched_goal(l, r);
		s->seq[i].stays = l->evict ? (uint32_t)evict_kept(l->evict, r->prompt_tok) :
					     r->prompt_tok;
	}
}

/* Open what finds blocks again, if any; it has tables for `most` running sequences. */
static enum ar_status open_cache(struct sched *s, size_t most, struct ar_err *err)
{
	const struct sched_limits *l = &s->lim;
	enum ar_status st = AR_OK;

	s->numbered = l->group || (l->prefix_cache && !l->policy->radix_tree);
	if (l->group) /* block tables for every running sequence */
		st = open_groups(s, most + 1, err);
	else if (l->prefix_cache && l->policy->radix_tree)
		st = radix_cache_open(&s->radix, &s->pool, s->trace, err);
	else if (l->prefix_cache)
		st = prefix_cache_open(&s->cache, &s->pool, s->trace, l->cache_root,
				       (l->evict ? 2 : 1) * most + 1,
				       block_pool_need(&s->pool, s->longest) + 1, err);
	if (!st && l->blocks && l->prefix_cache && l->share_pages)
		st = sched_keys_open(&s->keys, s, err);
	if (!st && s->keys && s->radix)
		radix_cache_tell(s->radix, l->blocks);
	return st;
}

enum ar_status sched_open(struct sched **out, const struct trace *t, const struct sched_limits *l,
			  struct ar_err *err)
{
	size_t most = t->n < (size_t)l->max_seqs ? t->n : (size_t)l->max_seqs;
	struct sched *s = calloc(1, sizeof *s);
	enum ar_status st;

	*out = NULL;
	if (!s)
		return ar_nomem(err);
	s->trace = t;
	s->lim = *l;
	if (!alloc_arrays(s, most)) {
		sched_close(s);
		return ar_nomem(err);
	}
	if (!l->seq)
		begin_sequences(s);
	s->most_stored = l->evict ? evict_bound(l->evict) : INT64_MAX;
	s->keeps = UINT32_MAX;
	if (s->most_stored < UINT32_MAX && !l->prefix_cache) {
		s->keeps = (uint32_t)s->most_stored - 1;
		s->keeps_block = (uint32_t)((s->keeps + l->block_tok - 1) / l->block_tok);
	}
	s->batch.blocks = l->blocks;
	s->wait_head = s->wait_tail = SCHED_NONE;
	block_pool_init(&s->pool, l->num_blocks, l->block_tok);
	s->longest = longest(t, l);
	st = open_cache(s, most, err);
	if (st) {
		sched_close(s);
		return st;
	}
	if (l->policy->begin)
		l->policy->begin(s);
	*out = s;
	return AR_OK;
}

/* ---- the waiting queue ---- */

static bool queued_before(const struct sched *s, uint32_t a, uint32_t b)
{
	int32_t pa = s->trace->req[a].priority, pb = s->trace->req[b].priority;

	return pa != pb ? pa < pb : s->seq[a].order < s->seq[b].order;
}

static void heap_push(struct sched *s, uint32_t id)
{
	uint32_t *heap = s->wait_heap;
	size_t i = s->n_waiting++;

	for (; i && queued_before(s, id, heap[(i - 1) / 2]); i = (i - 1) / 2)
		heap[i] = heap[(i - 1) / 2];
	heap[i] = id;
	s->wait_head = heap[0];
}

static void heap_pop(struct sched *s)
{
	uint32_t *heap = s->wait_heap, id = heap[--s->n_waiting];
	size_t n = s->n_waiting, i = 0;

	for (size_t child = 1; child < n; child = 2 * i + 1) {
		child += child + 1 < n && queued_before(s, heap[child + 1], heap[child]);
		if (!queued_before(s, heap[child], id))
			break;
		heap[i] = heap[child];
		i = child;
	}
	heap[i] = id;
	s->wait_head = n ? heap[0] : SCHED_NONE;
}

/* At the head, but behind those that were placed: they hold blocks, so all others wait for them. */
static void push_front(struct sched *s, uint32_t id)
{
	uint32_t *at = &s->wait_head;

	while (*at != SCHED_NONE && s->seq[*at].n_block)
		at = &s->seq[*at].next;
	s->seq[id].next = *at;
	if (*at == SCHED_NONE)
		s->wait_tail = id;
	*at = id;
	s->n_waiting++;
}

static void pop_front(struct sched *s)
{
	s->wait_head = s->seq[s->wait_head].next;
	if (s->wait_head == SCHED_NONE)
		s->wait_tail = SCHED_NONE;
	s->n_waiting--;
}

static void push_back(struct sched *s, uint32_t id)
{
	if (s->wait_heap) {
		heap_push(s, id);
		return;
	}
	s->seq[id].next = SCHED_NONE;
	if (s->wait_tail == SCHED_NONE)
		s->wait_head = id;
	else
		s->seq[s->wait_tail].next = id;
	s->wait_tail = id;
	s->n_waiting++;
}

void sched_arrive(struct sched *s, uint32_t id, int64_t at_ns)
{
	s->seq[id].arrival_ns = at_ns;
	s->seq[id].order = s->n_arrived++;
	if (s->seq[id].n_block)
		push_front(s, id);
	else
		push_back(s, id);
}

/* ---- the plan ---- */

void sched_begin(struct sched *s)
{
	for (size_t i = 0; s->other && i < s->n_evicted; i++)
		if (sched_has_other(s, s->evicted[i]) && !s->seq[s->evicted[i]].moved)
			sched_move(s, s->evicted[i]);
	s->n_plan++;
	s->batch.n = s->n_preempted = s->n_evicting = 0;
	s->sparing = false;
	s->batch.prefill_tok = s->batch.decode_tok = 0;
	s->stop = s->fails = NULL;
	if (s->groups)
		kv_groups_begin(s->groups);
}

void sched_match(struct sched *s)
{
	uint32_t id = s->wait_head, block_tok = (uint32_t)s->pool.block_tok;
	struct sched_seq *q = &s->seq[id];
	const uint32_t most = (s->lim.evict ? q->prompt : q->known) - 1;

	if (!s->lim.prefix_cache || q->n_block)
		return;
	if (s->radix)
		q->comp = radix_cache_match(s->radix, id, most, &q->row);
	else if (s->groups)
		q->comp = kv_groups_match(s->groups, id, most, &q->junction);
	else
		q->comp = block_tok * prefix_cache_match(s->cache, id, most / block_tok);
}

/* Blocks that sched_match() found for q; 0 once q owns blocks. */
static uint32_t hits(const struct sched *s, const struct sched_seq *q)
{
	return q->n_block ? 0 : q->comp / (uint32_t)s->pool.block_tok;
}

static struct kv_progress progress_of(const struct sched *s, uint32_t id)
{
	const struct sched_seq *q = &s->seq[id];

	return (struct kv_progress){ .req = id,
				     .comp = q->comp,
				     .in_flight = sched_tok_in_flight(s, id),
				     .prompt = q->prompt,
				     .known = q->known - sched_in_flight(s, id),
				     .junction = q->junction };
}

bool sched_fits(const struct sched *s, uint32_t id, uint32_t n_tok, int64_t keep, bool whole)
{
	const struct sched_seq *q = &s->seq[id];
	uint32_t want = (uint32_t)block_pool_need(&s->pool, n_tok);
	int64_t need = (int64_t)want - q->n_block;
	const struct kv_progress at = progress_of(s, id);

	if (s->groups)
		need = kv_groups_need(s->groups, q->row, &at, n_tok, whole);
	else if (s->cache)
		need = prefix_cache_need(s->cache, q->n_block, hits(s, q), want);
	return need + keep <= s->pool.n_free;
}

/* The blocks of positions [0, n_tok) that are full can be found from now on. */
static void name_blocks(struct sched *s, uint32_t id, uint32_t n_tok)
{
	struct sched_seq *q = &s->seq[id];
	uint32_t full = n_tok / (uint32_t)s->pool.block_tok;

	if (full <= q->n_named)
		return;
	prefix_cache_enter(s->cache, id, q->row, q->n_named, full);
	q->n_named = full;
}

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static bool reserve_grouped(struct sched *s, uint32_t id, uint32_t n)
{
	struct sched_seq *q = &s->seq[id];
	const struct kv_progress at = progress_of(s, id);

	if (!kv_groups_grow(s->groups, &q->row, &q->n_block, &at, q->comp + n))
		return false;
	if (s->lim.prefix_cache)
		kv_groups_enter(s->groups, q->row, &at, least(q->comp + n, at.known));
	return true;
}

/* Blocks that become full can be found even by sequences admitted in this iteration: a backend
 * writes all keys and values of a layer before it reads any.  But a block's name is made of its
 * tokens, so it can be found only when they are there.  vLLM 0.16.0 does not name the block of an
 * output in flight: kv_cache_manager.py:370, async_scheduler.py:57. */
static bool reserve_numbered(struct sched *s, uint32_t id, uint32_t n)
{
	struct sched_seq *q = &s->seq[id];
	uint32_t tok = (uint32_t)s->pool.block_tok, end = q->comp + n, n_hit, there;

	if (s->groups)
		return reserve_grouped(s, id, n);
	there = q->known - sched_in_flight(s, id);
	/* Most decodes neither need nor fill a block. */
	if (end <= q->n_block * tok && least(end, there) < (q->n_named + 1) * tok)
		return true;
	n_hit = hits(s, q);
	if (!prefix_cache_grow(s->cache, &q->row, &q->n_block, n_hit,
			       (uint32_t)block_pool_need(&s->pool, end)))
		return false;
	if (n_hit)
		q->n_named = n_hit;
	name_blocks(s, id, least(end, there));
	return true;
}

bool sched_take_blocks(struct sched *s, uint32_t id, uint32_t n)
{
	struct sched_seq *q = &s->seq[id];
	int64_t stored = (int64_t)sched_stored(q) + n;

	if (s->numbered && !q->moved)
		return reserve_numbered(s, id, n);
	if (!s->numbered)
		return block_pool_grow(&s->pool, &q->n_block, stored);
	return stored <= q->n_block * s->pool.block_tok ||
	       prefix_cache_grow(s->cache, &q->row, &q->n_block, 0,
				 (uint32_t)block_pool_need(&s->pool, stored));
}

/* The tree has the blocks from now on.  Where it had others, the sequence takes those, and its own
 * are free.  A node ends where the prompt does, so that outputs can be taken back without it:
 * unified_radix_cache.py, checkpoint_into_tree(). */
void sched_enter(struct sched *s, uint32_t id, uint32_t n_tok)
{
	uint32_t tok = (uint32_t)s->pool.block_tok, whole = n_tok - n_tok % tok, had;
	struct sched_seq *q = &s->seq[id];
	uint32_t node = q->row, end = node;

	if (!s->radix || !whole)
		return;
	had = radix_cache_insert(s->radix, id, whole, &node) / tok;
	if (had > q->n_named) {
		s->pool.n_free += had - q->n_named;
		if (s->keys)
			blocks_merge(s->lim.blocks, id, (int64_t)q->n_named * tok,
				     (int64_t)had * tok);
	}
	if (q->prompt >= tok && q->prompt - q->prompt % tok < whole)
		radix_cache_insert(s->radix, id, q->prompt - q->prompt % tok, &end);
	radix_cache_unlock(s->radix, q->row);
	radix_cache_lock(s->radix, node);
	q->row = node;
	q->n_named = whole / tok;
}

void sched_make_room(struct sched *s, int64_t n_block)
{
	if (s->radix)
		radix_cache_make_room(s->radix, n_block);
}

/* Use the prefix that was found. */
static void take_prefix(struct sched *s, struct sched_seq *q)
{
	q->n_block = q->n_named = q->comp / (uint32_t)s->pool.block_tok;
	radix_cache_lock(s->radix, q->row);
}

static void release_radix(struct sched *s, uint32_t id)
{
	struct sched_seq *q = &s->seq[id];

	s->pool.n_free += q->n_block - q->n_named;
	radix_cache_unlock(s->radix, q->row);
	q->n_block = q->n_named = q->row = 0;
}

/* The blocks of all computed positions can be found from now on. */
static void name_computed(struct sched *s, uint32_t id)
{
	struct sched_seq *q = &s->seq[id];
	const struct kv_progress at = progress_of(s, id);

	if (s->radix)
		sched_enter(s, id, q->comp);
	else if (s->groups && q->row && s->lim.prefix_cache)
		kv_groups_enter(s->groups, q->row, &at, q->comp);
	else if (s->cache)
		name_blocks(s, id, q->comp);
}

void sched_release_own(struct sched *s, uint32_t id)
{
	struct sched_seq *q = &s->seq[id];

	if (s->radix) {
		release_radix(s, id);
		return;
	}
	if (!s->numbered) {
		block_pool_release(&s->pool, &q->n_block);
		return;
	}
	if (s->groups) {
		if (q->row && q->known < q->goal) /* it is preempted */
			kv_groups_list(s->groups, q->row, id);
		kv_groups_release(s->groups, &q->row, &q->n_block);
		return;
	}
	if (q->known < q->goal)
		prefix_cache_list(s->cache, id, q->row, q->n_named);
	prefix_cache_release(s->cache, q->row, &q->n_block, s->lim.policy->unnamed_first);
	q->n_named = 0;
}

/* there: the tokens of all computed positions are there. */
static void release_blocks(struct sched *s, uint32_t id, bool there)
{
	struct sched_seq *q = &s->seq[id];

	if (there && !q->moved)
		name_computed(s, id);
	if (s->lim.blocks)
		blocks_leave(s->lim.blocks, id);
	sched_release_own(s, id);
	if (sched_has_other(s, id)) {
		sched_move(s, id);
		sched_release_own(s, id);
	}
	q->moved = false;
}

/* ---- entries ---- */

void sched_plan(struct sched *s, uint32_t id, uint32_t n)
{
	struct sched_seq *q = &s->seq[id];
	struct batch_entry *e = &s->batch.entry[s->batch.n++];

	e->start = q->comp;
	e->known = q->known;
	e->gone = q->gone;
	e->chunk_no = q->n_chunk++;
	e->req = id;
	e->n_tok = n;
	e->evict = 0;
	e->recompute = q->comp < q->high;
	q->planned = s->n_plan;
	q->n_planned = n;
	q->n_evict = 0;
	q->comp += n;
	e->n_emit = q->comp == q->known && q->known < q->goal;
	if (n > 1 || e->start < q->prompt) {
		e->kind = ROW_PREFILL;
		s->batch.prefill_tok += n;
		return;
	}
	e->kind = ROW_DECODE;
	q->n_decode++;
	s->batch.decode_tok++;
	if (sched_stored(q) > s->keeps) {
		sched_take_tokens(q, e, sched_stored(q) - s->keeps);
		s->sparing |= q->n_block > s->keeps_block;
	}
}

void sched_extend(struct sched *s, size_t i, uint32_t n)
{
	struct batch_entry *e = &s->batch.entry[i];
	struct sched_seq *q = &s->seq[e->req];

	e->n_tok += n;
	q->comp += n;
	e->n_emit = q->comp == q->known;
	s->batch.prefill_tok += n;
}

uint32_t sched_unplan(struct sched *s, uint32_t id)
{
	struct batch *b = &s->batch;
	struct batch_entry e;
	size_t i = 0;

	while (i < b->n && b->entry[i].req != id)
		i++;
	if (i == b->n)
		return 0;
	e = b->entry[i];
	if (s->keys) /* its blocks have names, and no tokens */
		blocks_forget(s->lim.blocks, id, e.start - e.start % s->pool.block_tok,
			      e.start + e.n_tok);
	for (b->n--; i < b->n; i++)
		b->entry[i] = b->entry[i + 1];
	s->seq[id].n_chunk--;
	s->seq[id].n_decode -= e.kind == ROW_DECODE;
	if (e.kind == ROW_DECODE)
		b->decode_tok--;
	else
		b->prefill_tok -= e.n_tok;
	return e.n_tok;
}

void sched_admit(struct sched *s)
{
	uint32_t id = s->wait_head;
	struct sched_seq *q = &s->seq[id];

	q->admitted = q->known;
	if (s->radix)
		take_prefix(s, q);
	if (q->comp > q->high) {
		q->cached += q->comp - q->high;
		q->high = q->comp;
	}
	if (s->wait_heap)
		heap_pop(s);
	else
		pop_front(s);
	s->running[s->n_running++] = id;
}

static void reverse(struct batch_entry *e, size_t n)
{
	for (size_t i = 0; i < n / 2; i++) {
		struct batch_entry x = e[i];

		e[i] = e[n - 1 - i];
		e[n - 1 - i] = x;
	}
}

void sched_prefills_first(struct sched *s, size_t n_decode)
{
	struct batch *b = &s->batch;

	reverse(b->entry, n_decode);
	reverse(b->entry + n_decode, b->n - n_decode);
	reverse(b->entry, b->n);
}

static bool less_important(const struct sched *s, uint32_t a, uint32_t b)
{
	int32_t pa = s->trace->req[a].priority, pb = s->trace->req[b].priority;

	return pa != pb ? pa > pb : s->seq[a].arrival_ns > s->seq[b].arrival_ns;
}

/* vLLM 0.33.0, scheduler.py:935: the greatest by priority and time of arrival, the first of
 * equals. */
size_t sched_victim(const struct sched *s)
{
	size_t least = 0;

	if (!s->wait_heap)
		return s->n_running - 1;
	for (size_t i = 1; i < s->n_running; i++)
		if (less_important(s, s->running[i], s->running[least]))
			least = i;
	return least;
}

static void leave_list(uint32_t *list, size_t *n, uint32_t id)
{
	size_t kept = 0;

	for (size_t i = 0; i < *n; i++)
		if (list[i] != id)
			list[kept++] = list[i];
	*n = kept;
}

/* The output in flight of a sequence is lost.  If it was the last one, the sequence has not
 * finished. */
static void drop_in_flight(struct sched *s, uint32_t id)
{
	struct sched_seq *q = &s->seq[id];

	if (q->known == q->goal)
		leave_list(s->finished, &s->n_finished, id);
	leave_list(s->ended, &s->n_ended, id);
	q->known--;
	q->emitted = 0;
}

void sched_preempt(struct sched *s, size_t i)
{
	uint32_t id = s->running[i];
	struct sched_seq *q = &s->seq[id];

	for (s->n_running--; i < s->n_running; i++)
		s->running[i] = s->running[i + 1];
	release_blocks(s, id, !s->radix && !sched_in_flight(s, id));
	if (s->lim.evict)
		leave_list(s->evicted, &s->n_evicted, id);
	if (s->lim.policy->drops_in_flight && sched_in_flight(s, id))
		drop_in_flight(s, id);
	if (q->comp) { /* else it had computed nothing */
		q->n_preempt++;
		s->preempted[s->n_preempted++] = id;
	}
	q->comp = q->gone = 0;
	s->lim.policy->requeue(s, id);
}

/* The evictions of the plan come true when it retires. */
static void list_evicted(struct sched *s)
{
	uint32_t *last = s->evicted;

	s->evicted = s->evicting;
	s->n_evicted = s->n_evicting;
	s->evicting = last;
	s->n_evicting = 0;
	s->spared = s->sparing;
	s->sparing = false;
}

void sched_emit(struct sched *s)
{
	list_evicted(s);
	s->n_finished = s->n_ended = 0;
	for (size_t i = 0; i < s->batch.n; i++) {
		const struct batch_entry *e = &s->batch.entry[i];
		struct sched_seq *q = &s->seq[e->req];
		uint32_t end = e->start + e->n_tok;

		if (e->recompute)
			q->recomputed += (end < q->high ? end : q->high) - e->start;
		if (q->high < end)
			q->high = end;
		if (!e->n_emit)
			continue;
		q->emitted = s->n_plan;
		if (++q->known == q->goal)
			s->finished[s->n_finished++] = e->req;
		if (s->radix && (q->known == q->goal || e->start < q->admitted))
			s->ended[s->n_ended++] = e->req;
	}
}

static bool is_finished(const struct sched *s, uint32_t id)
{
	return s->seq[id].known == s->seq[id].goal;
}

/* Remove finished sequences from the queue: they were preempted before their last token came. */
static void leave_queue(struct sched *s)
{
	uint32_t next = s->wait_head;
	size_t n = s->n_waiting;

	s->wait_head = s->wait_tail = SCHED_NONE;
	s->n_waiting = 0;
	for (size_t i = 0; i < n; i++) {
		uint32_t id = s->wait_heap ? s->wait_heap[i] : next;

		next = s->seq[id].next;
		if (!is_finished(s, id))
			push_back(s, id);
	}
}

/* All running sequences are in the plan that was made meanwhile, but those that finish.  Tokens of
 * theirs take the place of those that left. */
static bool all_go_on(const struct sched *s)
{
	return s->lim.async && !s->n_preempted && !s->lim.policy->overruns &&
	       s->batch.n + s->n_finished == s->n_running;
}

void sched_retire(struct sched *s)
{
	size_t n = 0, n_before = s->n_running;

	for (size_t i = 0; i < s->n_ended; i++)
		if (s->seq[s->ended[i]].moved && !is_finished(s, s->ended[i]))
			continue; /* leave_blocks() enters its tokens */
		else if (!is_finished(s, s->ended[i]))
			sched_enter(s, s->ended[i], s->seq[s->ended[i]].admitted);
		else
			release_blocks(s, s->ended[i], true);
	s->n_ended = 0;
	for (size_t i = 0; i < s->n_evicted; i++)
		sched_give_back(s, s->evicted[i]);
	if (s->spared && !all_go_on(s))
		for (size_t i = 0; i < s->n_running; i++)
			sched_give_back(s, s->running[i]);
	s->n_evicted = 0;
	s->spared = false;
	if (!s->n_finished)
		return;
	for (size_t i = 0; !s->radix && i < s->n_finished; i++)
		if (!sched_goes_on(s, s->finished[i]))
			release_blocks(s, s->finished[i], true);
	for (size_t i = 0; i < s->n_running; i++)
		if (!is_finished(s, s->running[i]))
			s->running[n++] = s->running[i];
	s->n_running = n;
	if (n_before - n < s->n_finished)
		leave_queue(s);
}

/* ---- KV of another engine ---- */

bool sched_goes_on(const struct sched *s, uint32_t id)
{
	struct sched_limits whole = s->lim;

	if (!s->lim.first_only)
		return false;
	whole.first_only = false;
	return sched_goal(&whole, &s->trace->req[id]) > s->seq[id].goal;
}

void sched_leave(struct sched *s, uint32_t id)
{
	release_blocks(s, id, true);
}

bool sched_place(struct sched *s, uint32_t id, const struct sched_seq *from)
{
	struct sched_seq *q = &s->seq[id];
	const int64_t keep = s->n_running ? sched_watermark(&s->lim) : 0;

	if ((s->n_waiting && !s->seq[s->wait_tail].n_block) ||
	    !sched_fits(s, id, q->prompt + 1, keep, true) ||
	    !sched_take_blocks(s, id, q->prompt + 1))
		return false;
	q->comp = q->high = q->prompt;
	q->known = q->prompt + 1;
	q->n_chunk = from->n_chunk;
	q->n_decode = from->n_decode;
	q->n_preempt = from->n_preempt;
	q->recomputed = from->recomputed;
	q->cached = from->cached;
	return true;
}

/* ---- rules that policies share ---- */

int64_t sched_watermark(const struct sched_limits *l)
{
	return (int64_t)(l->watermark * (double)(l->num_blocks - 1));
}

int64_t sched_slots_computed(const struct sched_limits *l, int64_t goal, int64_t longest)
{
	(void)l, (void)longest;
	return goal - 1;
}

bool sched_lacks(int64_t need, int64_t usable, char *why, size_t n)
{
	if (need <= usable)
		return false;
	snprintf(why, n, "needs %" PRId64 " KV blocks, %" PRId64 " are usable", need, usable);
	return true;
}

bool sched_lacks_blocks(const struct sched_limits *l, const struct request *r, int64_t usable,
			char *why, size_t n)
{
	int64_t goal = sched_goal(l, r);

	return l->num_blocks && sched_lacks(most_blocks(l, goal, goal), usable, why, n);
}

bool sched_unfit_pool(const struct sched_limits *l, const struct request *r, char *why, size_t n)
{
	return sched_lacks_blocks(l, r, l->num_blocks - 1, why, n);
}

void sched_requeue_first(struct sched *s, uint32_t id)
{
	if (s->wait_heap)
		heap_push(s, id);
	else
		push_front(s, id);
}

void sched_requeue_last(struct sched *s, uint32_t id)
{
	push_back(s, id);
}

enum ar_status sched_check_whole_blocks(const struct sched_limits *l, struct ar_err *err)
{
	int64_t unit = sched_chunk_unit(l);

	if (l->max_batched_tok >= unit || l->chunks == SCHED_CHUNKS_NONE)
		return AR_OK;
	return ar_fail(err, AR_USAGE,
		       "max-num-batched-tokens %" PRId64 " is less than %s of %" PRId64
		       " tokens, the least that policy %s cuts from a prompt",
		       l->max_batched_tok, l->chunk_unit ? "a unit" : "a block", unit,
		       l->policy->name);
}
