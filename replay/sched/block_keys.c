/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/block_keys.h"

#include <stdlib.h>

struct sched_keys {
	const struct sched *s;
	int64_t *before; /* [requests + 1] positions of the requests before; NULL: no radix tree */
};

static int64_t common_divisor(int64_t a, int64_t b)
{
	while (b) {
		int64_t rest = a % b;

		a = b;
		b = rest;
	}
	return a;
}

/* ---- blocks with numbers ---- */

/* The policy's group of the layers of x.  Where it has no group of their window, they are among
 * those of full attention. */
static size_t group_of(const struct sched *s, const struct block_group *x)
{
	size_t full = 0;

	for (size_t i = s->lim.n_group; i-- > 0;) {
		const struct kv_group *g = &s->lim.group[i];

		if (x->window && g->mixer == MIX_WINDOW && g->window == x->window)
			return i;
		if (g->mixer == MIX_FULL)
			full = i;
	}
	return full;
}

static int64_t block_tok(const struct sched *s, const struct block_group *x)
{
	return s->groups ? s->lim.group[group_of(s, x)].block_tok : s->pool.block_tok;
}

/* Tokens of the part of a block that lies in one page. */
static int64_t block_step(const void *self, const struct block_group *x)
{
	const struct sched_keys *k = self;

	return common_divisor(block_tok(k->s, x), x->page_tok);
}

static int64_t block_count(const void *self, const struct block_group *x)
{
	const struct sched_keys *k = self;

	return (k->s->pool.n_usable + 1) * (block_tok(k->s, x) / block_step(self, x));
}

static int64_t block_key(const void *self, const struct block_group *x, uint32_t req, int64_t pos,
			 bool own)
{
	const struct sched *s = ((const struct sched_keys *)self)->s;
	const struct sched_seq *q = &s->seq[req];
	const int64_t tok = block_tok(s, x), step = block_step(self, x), at = pos / tok;
	const uint32_t *table = NULL;
	uint32_t n = 0;

	(void)own;
	if (q->moved) /* to blocks without names */
		return -1;
	if (s->groups && q->row)
		table = kv_groups_table(s->groups, q->row, group_of(s, x), &n);
	else if (s->cache && (n = q->n_block))
		table = prefix_cache_table(s->cache, q->row);
	if (at >= n || !table[at])
		return -1;
	return table[at] * (tok / step) + pos % tok / step;
}

static int64_t block_named(const void *self, const struct block_group *x, uint32_t req)
{
	const struct sched *s = ((const struct sched_keys *)self)->s;
	const struct sched_seq *q = &s->seq[req];
	uint32_t n = q->n_named;

	if (s->groups)
		n = q->row ? kv_groups_named(s->groups, q->row, group_of(s, x)) : 0;
	return n * block_tok(s, x);
}

/* ---- a radix tree ---- */

static int64_t tree_step(const void *self, const struct block_group *x)
{
	(void)self;
	return x->page_tok;
}

/* Page `place` of a request.  Each request has one key more than its positions need at least. */
static int64_t page_key(const struct sched_keys *k, const struct block_group *x, uint32_t req,
			int64_t place)
{
	return k->before[req] / x->page_tok + req + place;
}

static int64_t tree_count(const void *self, const struct block_group *x)
{
	const struct sched_keys *k = self;

	return page_key(k, x, (uint32_t)k->s->trace->n, 0);
}

static int64_t tree_key(const void *self, const struct block_group *x, uint32_t req, int64_t pos,
			bool own)
{
	const struct sched_keys *k = self;
	const struct sched *s = k->s;

	if (s->seq[req].moved) /* to blocks without names */
		return -1;
	if (!own)
		req = radix_cache_request(s->radix, s->seq[req].row, (uint32_t)pos);
	return page_key(k, x, req, pos / x->page_tok);
}

static int64_t tree_named(const void *self, const struct block_group *x, uint32_t req)
{
	const struct sched *s = ((const struct sched_keys *)self)->s;

	(void)x;
	return radix_cache_own(s->radix, s->seq[req].row, req);
}

/* ---- opening ---- */

static enum ar_status count_positions(struct sched_keys *k, struct ar_err *err)
{
	const struct sched *s = k->s;
	size_t n = s->trace->n;

	k->before = calloc(n + 1, sizeof *k->before);
	if (!k->before)
		return ar_nomem(err);
	for (size_t i = 0; i < n; i++)
		k->before[i + 1] = k->before[i] + s->seq[i].goal;
	return AR_OK;
}

enum ar_status sched_keys_open(struct sched_keys **out, const struct sched *s, struct ar_err *err)
{
	static const struct block_keys of_blocks = { NULL,	block_count, block_step,
						     block_key, block_named, false };
	static const struct block_keys of_tree = { NULL,     tree_count, tree_step,
						   tree_key, tree_named, false };
	struct sched_keys *k = calloc(1, sizeof *k);
	struct block_keys keys = s->radix ? of_tree : of_blocks;
	enum ar_status st;

	*out = NULL;
	if (!k)
		return ar_nomem(err);
	*k = (struct sched_keys){ .s = s };
	keys.drops = s->lim.evict_cache == SCHED_EVICT_DROP;
	st = s->radix ? count_positions(k, err) : AR_OK;
	keys.self = k;
	if (!st)
		st = blocks_follow(s->lim.blocks, &keys, err);
	if (st) {
		sched_keys_close(k);
		return st;
	}
	*out = k;
	return AR_OK;
}

void sched_keys_close(struct sched_keys *k)
{
	if (!k)
		return;
	blocks_unfollow(k->s->lim.blocks);
	free(k->before);
	free(k);
}
