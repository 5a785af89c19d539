/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/policy.h"

#include "replay/sched/sched_part.h"

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

/* ---- back to the waiting queue, for policies ---- */

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
