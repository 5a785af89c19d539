/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/prefix_cache.h"

#include <stdlib.h>

#include "base/rng.h"

/* Key of a block.  k: its number in the sequence.  own: id is the number of a request; else id is
 * a trace's id mixed with the root.  Mixing keeps different ids of one root different. */
struct key {
	uint64_t id;
	uint32_t k, own;
};

struct block {
	struct key key;
	uint32_t n_owner;
	uint32_t prev, next;   /* in the free list */
	uint32_t chain;	       /* next key in the bucket; only in the oldest of a ring */
	uint32_t older, newer; /* ring of equal contents, oldest first; 0: no content */
};

struct prefix_cache {
	struct block_pool *pool;
	const struct trace *trace;
	uint64_t root;
	struct block *block; /* [0] ends the free list: next its head, prev its tail */
	uint32_t *bucket, mask;
	uint32_t *table; /* [n_row][row_len] */
	size_t row_len;
	uint32_t *free_row; /* a stack */
	size_t n_free_row;
};

/* ---- contents ---- */

static struct key key_of(const struct prefix_cache *c, uint32_t req, uint32_t k)
{
	const struct request *r = &c->trace->req[req];
	uint64_t last = ((uint64_t)k + 1) * (uint64_t)c->pool->block_tok - 1, hash;

	if (!r->n_block || last >= r->prompt_tok)
		return (struct key){ req, k, true };
	hash = c->trace->block[r->block + last / c->trace->block_tok];
	return (struct key){ rng_mix(c->root ^ hash), k, false };
}

static uint64_t hash_of(const struct key *key)
{
	return rng_mix(key->id ^ rng_mix((uint64_t)key->k << 1 | key->own));
}

uint64_t prefix_cache_hash(const struct prefix_cache *c, uint32_t req, uint32_t k)
{
	struct key key = key_of(c, req, k);

	return hash_of(&key);
}

uint64_t prefix_cache_root(const char *params)
{
	uint64_t root = 0;

	for (; params && *params; params++)
		root = rng_mix(root ^ (unsigned char)*params);
	return root;
}

static bool same(const struct key *a, const struct key *b)
{
	return a->id == b->id && a->k == b->k && a->own == b->own;
}

/* The link to the oldest block with this key.  If there is none: the link at the bucket's end,
 * which is 0. */
static uint32_t *find(const struct prefix_cache *c, const struct key *key)
{
	uint32_t *link = &c->bucket[hash_of(key) & c->mask];

	while (*link && !same(&c->block[*link].key, key))
		link = &c->block[*link].chain;
	return link;
}

static void enter(struct prefix_cache *c, uint32_t b, struct key key)
{
	uint32_t *link = find(c, &key), first = *link;
	struct block *q = &c->block[b];

	q->key = key;
	q->chain = 0;
	if (!first) {
		q->older = q->newer = b;
		*link = b;
		return;
	}
	q->newer = first;
	q->older = c->block[first].older;
	c->block[q->older].newer = b;
	c->block[first].older = b;
}

static void forget(struct prefix_cache *c, uint32_t b)
{
	struct block *q = &c->block[b];
	uint32_t *link = find(c, &q->key);

	if (*link == b) {
		*link = q->newer == b ? q->chain : q->newer;
		if (q->newer != b)
			c->block[q->newer].chain = q->chain;
	}
	c->block[q->older].newer = q->newer;
	c->block[q->newer].older = q->older;
	q->older = q->newer = 0;
}

/* ---- the free list ---- */

static void unlink_free(struct prefix_cache *c, uint32_t b)
{
	struct block *q = &c->block[b];

	c->block[q->prev].next = q->next;
	c->block[q->next].prev = q->prev;
	c->pool->n_free--;
}

/* Free block b.  It is taken right after block prev, a free one; prev 0: first of all. */
static void insert_free(struct prefix_cache *c, uint32_t b, uint32_t prev)
{
	struct block *q = &c->block[b];

	q->prev = prev;
	q->next = c->block[prev].next;
	c->block[q->prev].next = b;
	c->block[q->next].prev = b;
	c->pool->n_free++;
}

static uint32_t take_free(struct prefix_cache *c)
{
	uint32_t b = c->block[0].next;

	unlink_free(c, b);
	if (c->block[b].newer)
		forget(c, b);
	c->block[b].n_owner = 1;
	return b;
}

/* ---- sequences ---- */

enum ar_status prefix_cache_open(struct prefix_cache **out, struct block_pool *pool,
				 const struct trace *t, uint64_t root, size_t n_row,
				 int64_t row_len, struct ar_err *err)
{
	struct prefix_cache *c = calloc(1, sizeof *c);
	size_t n_bucket = 1;
	int64_t n = pool->n_usable;

	*out = NULL;
	if (!c)
		return ar_nomem(err);
	while (n_bucket <= (size_t)n)
		n_bucket *= 2;
	c->pool = pool;
	c->trace = t;
	c->root = root;
	c->mask = (uint32_t)(n_bucket - 1);
	c->row_len = (size_t)row_len;
	c->n_free_row = n_row;
	c->block = calloc((size_t)n + 1, sizeof *c->block);
	c->bucket = calloc(n_bucket, sizeof *c->bucket);
	c->table = calloc(n_row * c->row_len, sizeof *c->table);
	c->free_row = calloc(n_row, sizeof *c->free_row);
	if (!c->block || !c->bucket || !c->table || !c->free_row) {
		prefix_cache_close(c);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < n_row; i++)
		c->free_row[i] = (uint32_t)i;
	pool->n_free = 0;
	for (int64_t b = 1; b <= n; b++)
		insert_free(c, (uint32_t)b, c->block[0].prev);
	*out = c;
	return AR_OK;
}

void prefix_cache_close(struct prefix_cache *c)
{
	if (!c)
		return;
	free(c->block);
	free(c->bucket);
	free(c->table);
	free(c->free_row);
	free(c);
}

static uint32_t *row_at(const struct prefix_cache *c, uint32_t row)
{
	return c->table + row * c->row_len;
}

static uint32_t *next_row(const struct prefix_cache *c)
{
	return row_at(c, c->free_row[c->n_free_row - 1]);
}

uint32_t prefix_cache_match(struct prefix_cache *c, uint32_t req, uint32_t max)
{
	uint32_t *table = next_row(c), n;

	for (n = 0; n < max; n++) {
		struct key key = key_of(c, req, n);

		table[n] = *find(c, &key);
		if (!table[n])
			break;
	}
	return n;
}

int64_t prefix_cache_need(const struct prefix_cache *c, uint32_t owned, uint32_t n_hit,
			  uint32_t want)
{
	int64_t need = (int64_t)want - owned - n_hit;

	if (need < 0)
		need = 0;
	for (uint32_t i = 0; i < n_hit; i++)
		need += !c->block[next_row(c)[i]].n_owner;
	return need;
}

bool prefix_cache_grow(struct prefix_cache *c, uint32_t *row, uint32_t *owned, uint32_t n_hit,
		       uint32_t want)
{
	uint32_t *table;

	if (prefix_cache_need(c, *owned, n_hit, want) > c->pool->n_free)
		return false;
	if (!*owned)
		*row = c->free_row[--c->n_free_row];
	table = row_at(c, *row);
	for (uint32_t i = 0; i < n_hit; i++)
		if (!c->block[table[i]].n_owner++)
			unlink_free(c, table[i]);
	*owned += n_hit;
	while (*owned < want)
		table[(*owned)++] = take_free(c);
	return true;
}

void prefix_cache_enter(struct prefix_cache *c, uint32_t req, uint32_t row, uint32_t from,
			uint32_t to)
{
	for (uint32_t k = from; k < to; k++)
		enter(c, row_at(c, row)[k], key_of(c, req, k));
}

void prefix_cache_release(struct prefix_cache *c, uint32_t row, uint32_t *owned, bool unnamed_first)
{
	const uint32_t *table = row_at(c, row);
	uint32_t unnamed = 0; /* the last one freed */

	if (!*owned)
		return;
	while (*owned) {
		uint32_t b = table[--*owned];

		if (--c->block[b].n_owner)
			continue;
		if (unnamed_first && !c->block[b].newer) {
			insert_free(c, b, unnamed);
			unnamed = b;
		} else {
			insert_free(c, b, c->block[0].prev);
		}
	}
	c->free_row[c->n_free_row++] = row;
}

const uint32_t *prefix_cache_table(const struct prefix_cache *c, uint32_t row)
{
	return row_at(c, row);
}

uint32_t prefix_cache_next_free(const struct prefix_cache *c, uint32_t b)
{
	return c->block[b].next;
}
