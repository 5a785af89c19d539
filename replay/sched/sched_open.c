/* SPDX-License-Identifier: Apache-2.0 */
/* What limits ask of requests and blocks; opening and closing a scheduler. */
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
