/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/prefix_cache.h"

#include <stdlib.h>

#include "base/large.h"
#include "replay/sched/kv_blocks.h"

struct prefix_cache {
	struct kv_blocks blocks;
	uint32_t *table; /* [n_row][row_len], unset: of a row only what it owns is read */
	size_t row_len;
	uint32_t *free_row; /* a stack */
	size_t n_free_row;
};

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static struct kv_key key_of(const struct prefix_cache *c, uint32_t req, uint32_t k)
{
	return kv_key_of(&c->blocks, req, k, c->blocks.pool->block_tok, 0);
}

uint64_t prefix_cache_hash(const struct prefix_cache *c, uint32_t req, uint32_t k)
{
	struct kv_key key = key_of(c, req, k);

	return kv_hash_of(&key);
}

uint64_t prefix_cache_root(const char *params)
{
	uint64_t root = 0;

	for (; params && *params; params++)
		root = rng_mix(root ^ (unsigned char)*params);
	return root;
}

enum ar_status prefix_cache_open(struct prefix_cache **out, struct block_pool *pool,
				 const struct trace *t, uint64_t root, size_t n_row,
				 int64_t row_len, struct ar_err *err)
{
	struct prefix_cache *c = calloc(1, sizeof *c);

	*out = NULL;
	if (!c)
		return ar_nomem(err);
	c->row_len = (size_t)row_len;
	c->n_free_row = n_row;
	c->table = large_alloc(n_row * c->row_len * sizeof *c->table);
	c->free_row = calloc(n_row, sizeof *c->free_row);
	if (!c->table || !c->free_row || kv_blocks_init(&c->blocks, pool, t, root, err)) {
		prefix_cache_close(c);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < n_row; i++)
		c->free_row[i] = (uint32_t)i;
	*out = c;
	return AR_OK;
}

void prefix_cache_close(struct prefix_cache *c)
{
	if (!c)
		return;
	kv_blocks_release(&c->blocks);
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

/* The keys of consecutive blocks of a request.  Those that end in one block of the trace have one
 * id, and so have those without; it is looked up and mixed once. */
struct walk {
	const struct prefix_cache *c;
	uint32_t req, n_shared, end; /* the first block with another id */
	struct kv_key key;
	uint32_t hash; /* of the key, less k */
};

static struct walk walk_of(const struct prefix_cache *c, uint32_t req)
{
	return (struct walk){ .c = c,
			      .req = req,
			      .n_shared = kv_n_shared(&c->blocks, req, c->blocks.pool->block_tok) };
}

/* Block k has another id than the one before. */
static void walk_on(struct walk *w, uint32_t k)
{
	const struct kv_blocks *b = &w->c->blocks;
	const uint64_t tok = (uint64_t)b->pool->block_tok, from = b->trace->block_tok;

	w->end = UINT32_MAX;
	if (k < w->n_shared) {
		const uint64_t at = ((k + 1) * tok - 1) / from;

		w->key = kv_shared_key(b, w->req, k, (uint32_t)at, 0);
		w->end = least((uint32_t)((at + 1) * from / tok), w->n_shared);
	} else {
		w->key = kv_own_key(w->req, k, 0);
	}
	w->hash = kv_hash_of(&w->key) - k;
}

/* Go on to block k. */
static inline void walk_to(struct walk *w, uint32_t k)
{
	w->key.k = k;
	if (k >= w->end)
		walk_on(w, k);
}

uint32_t prefix_cache_match(struct prefix_cache *c, uint32_t req, uint32_t max)
{
	struct walk w = walk_of(c, req);
	uint32_t *table = next_row(c), n;

	for (n = 0; n < max; n++) {
		walk_to(&w, n);
		table[n] = *kv_find_at(&c->blocks, w.hash + n, &w.key);
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
		need += !c->blocks.place[next_row(c)[i]].n_owner;
	return need;
}

bool prefix_cache_grow(struct prefix_cache *c, uint32_t *row, uint32_t *owned, uint32_t n_hit,
		       uint32_t want)
{
	uint32_t *table;

	if (prefix_cache_need(c, *owned, n_hit, want) > c->blocks.pool->n_free)
		return false;
	if (!*owned)
		*row = c->free_row[--c->n_free_row];
	table = row_at(c, *row);
	for (uint32_t i = 0; i < n_hit; i++)
		kv_touch(&c->blocks, table[i]);
	*owned += n_hit;
	if (want > *owned) {
		kv_take(&c->blocks, table + *owned, want - *owned);
		*owned = want;
	}
	return true;
}

void prefix_cache_enter(struct prefix_cache *c, uint32_t req, uint32_t row, uint32_t from,
			uint32_t to)
{
	const uint32_t *table = row_at(c, row);
	struct walk w = walk_of(c, req);
	uint32_t k = from;

	for (; k < to && k < w.n_shared; k++) {
		walk_to(&w, k);
		kv_enter_at(&c->blocks, table[k], w.hash + k, w.key);
	}
	for (; k < to; k++)
		kv_name(&c->blocks, table[k]);
}

void prefix_cache_list(struct prefix_cache *c, uint32_t req, uint32_t row, uint32_t n)
{
	const uint32_t *table = row_at(c, row);
	struct kv_blocks *b = &c->blocks;

	for (uint32_t k = kv_n_shared(b, req, b->pool->block_tok); k < n; k++)
		if (kv_unlisted(b, table[k]))
			kv_enter(b, table[k], key_of(c, req, k));
}

void prefix_cache_release(struct prefix_cache *c, uint32_t row, uint32_t *owned, bool unnamed_first)
{
	const uint32_t *table = row_at(c, row);
	struct kv_blocks *b = &c->blocks;
	uint32_t unnamed = 0; /* the last one freed */

	if (!*owned)
		return;
	while (*owned) {
		uint32_t n = table[--*owned];

		if (unnamed_first)
			kv_drop_unnamed_first(b, n, &unnamed);
		else
			kv_drop(b, n);
	}
	c->free_row[c->n_free_row++] = row;
}

void prefix_cache_shrink(struct prefix_cache *c, uint32_t row, uint32_t *owned, uint32_t want)
{
	while (*owned > want)
		kv_drop(&c->blocks, row_at(c, row)[--*owned]);
}

bool prefix_cache_set_aside(struct prefix_cache *c, uint32_t row, uint32_t owned, uint32_t n,
			    bool drop, uint32_t *to)
{
	const uint32_t *from = row_at(c, row);
	struct kv_blocks *b = &c->blocks;
	uint32_t *table = next_row(c);
	int64_t fresh = 0;

	for (uint32_t k = 0; k < n; k++) {
		table[k] = drop && k < owned && b->place[from[k]].n_owner == 1 ? from[k] : 0;
		fresh += !table[k];
	}
	if (fresh > b->pool->n_free)
		return false;
	*to = c->free_row[--c->n_free_row];
	for (uint32_t k = 0; k < n; k++) {
		if (!table[k]) {
			kv_take(b, &table[k], 1);
			continue;
		}
		kv_touch(b, table[k]);
		if (b->place[table[k]].newer)
			kv_forget(b, table[k]);
	}
	return true;
}

const uint32_t *prefix_cache_table(const struct prefix_cache *c, uint32_t row)
{
	return row_at(c, row);
}

uint32_t prefix_cache_next_free(const struct prefix_cache *c, uint32_t b)
{
	return kv_next_free(&c->blocks, b);
}
