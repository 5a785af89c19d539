/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/kv_groups.h"

#include <stdlib.h>

#include "replay/sched/kv_blocks.h"

struct table {
	uint32_t *block; /* [0, n_gone) are released */
	uint32_t n, n_gone;
	uint32_t n_named; /* [0, n_named) can be found, if they are not released */
};

struct kv_groups {
	struct kv_blocks blocks;
	const struct kv_group *group;
	size_t n_group;
	struct table *table; /* [n_row][n_group] */
	uint32_t *memory;    /* of the tables */
	uint32_t *free_row;  /* a stack */
	size_t n_free_row;
	int64_t *used, *peak; /* [n_group] */
	int64_t align;	      /* tokens found are a multiple of it */
};

static int64_t div_up(int64_t a, int64_t b)
{
	return (a + b - 1) / b;
}

static uint32_t blocks_of(const struct kv_group *g, int64_t n_tok)
{
	return g->mixer == MIX_LINEAR ? 1 : (uint32_t)div_up(n_tok, g->block_tok);
}

/* Blocks wholly before the window of token comp. */
static uint32_t blocks_before(const struct kv_group *g, uint32_t comp)
{
	int64_t gone = g->mixer == MIX_WINDOW ? (int64_t)comp - g->window + 1 : 0;

	return gone > 0 ? (uint32_t)(gone / g->block_tok) : 0;
}

/* Blocks of comp tokens just matched. */
static uint32_t blocks_found(const struct kv_group *g, uint32_t comp)
{
	return comp ? (uint32_t)(comp / g->block_tok) : 0;
}

int64_t kv_groups_most(const struct kv_group *group, size_t n_group, int64_t n_tok, int64_t max_tok)
{
	int64_t sum = 0;

	for (size_t i = 0; i < n_group; i++) {
		const struct kv_group *g = &group[i];
		int64_t all = blocks_of(g, n_tok), seen = g->window - 1 + max_tok;

		if (g->mixer == MIX_WINDOW && seen < n_tok && div_up(seen, g->block_tok) < all)
			all = div_up(seen, g->block_tok) + 1; /* it may begin within a block */
		sum += all;
	}
	return sum;
}

static int64_t common_multiple(int64_t a, int64_t b)
{
	int64_t x = a, y = b;

	while (y) {
		int64_t rest = x % y;

		x = y;
		y = rest;
	}
	return a / x * b;
}

enum ar_status kv_groups_open(struct kv_groups **out, struct block_pool *pool,
			      const struct trace *t, uint64_t root, const struct kv_group *group,
			      size_t n_group, size_t n_row, int64_t longest, struct ar_err *err)
{
	struct kv_groups *g = calloc(1, sizeof *g);
	size_t len = 0, at = 0;

	*out = NULL;
	if (!g)
		return ar_nomem(err);
	for (size_t i = 0; i < n_group; i++)
		len += blocks_of(&group[i], longest) + 1;
	g->group = group;
	g->n_group = n_group;
	g->n_free_row = n_row;
	g->table = calloc(n_row * n_group, sizeof *g->table);
	g->memory = calloc(n_row * len, sizeof *g->memory);
	g->free_row = calloc(n_row, sizeof *g->free_row);
	g->used = calloc(n_group, sizeof *g->used);
	g->peak = calloc(n_group, sizeof *g->peak);
	if (!g->table || !g->memory || !g->free_row || !g->used || !g->peak ||
	    kv_blocks_init(&g->blocks, pool, t, root, err)) {
		kv_groups_close(g);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < n_row; i++)
		g->free_row[i] = (uint32_t)i + 1;
	for (size_t i = 0; i < n_row * n_group; i++) {
		g->table[i].block = g->memory + at;
		at += blocks_of(&group[i % n_group], longest) + 1;
	}
	g->align = 1;
	for (size_t i = 0; i < n_group; i++)
		if (group[i].block_tok)
			g->align = common_multiple(g->align, group[i].block_tok);
	*out = g;
	return AR_OK;
}

void kv_groups_close(struct kv_groups *g)
{
	if (!g)
		return;
	kv_blocks_release(&g->blocks);
	free(g->table);
	free(g->memory);
	free(g->free_row);
	free(g->used);
	free(g->peak);
	free(g);
}

static struct table *tables_of(const struct kv_groups *g, uint32_t row)
{
	return g->table + (row - 1) * g->n_group;
}

static struct table *next_tables(const struct kv_groups *g)
{
	return tables_of(g, g->free_row[g->n_free_row - 1]);
}

/* ---- finding ---- */

/* Find block k of req in all groups of the type of group first. */
static bool find_block(const struct kv_groups *g, size_t first, uint32_t req, uint32_t k)
{
	struct table *t = next_tables(g);
	size_t i = first;

	for (; i < g->n_group && g->group[i].type == g->group[first].type; i++) {
		struct kv_key key = kv_key_of(&g->blocks, req, k, g->group[i].block_tok,
					      (uint32_t)i);

		t[i].block[k] = *kv_find(&g->blocks, &key);
		if (!t[i].block[k])
			return false;
	}
	return true;
}

/* n blocks, rounded down to a block that ends at a boundary of every group. */
static uint32_t aligned(const struct kv_groups *g, size_t first, uint32_t n)
{
	while (n * g->group[first].block_tok % g->align)
		n--;
	return n;
}

/* The blocks of full attention from the first one on, at most n. */
static uint32_t match_full(const struct kv_groups *g, size_t first, uint32_t req, uint32_t n)
{
	uint32_t k = 0;

	while (k < n && find_block(g, first, req, k))
		k++;
	return aligned(g, first, k);
}

/* The last place, at most n blocks, before which a window of blocks is there, or else all are. */
static uint32_t match_window(const struct kv_groups *g, size_t first, uint32_t req, uint32_t n)
{
	const struct kv_group *x = &g->group[first];
	uint32_t want = (uint32_t)div_up(x->window - 1, x->block_tok), run = 0;

	for (uint32_t k = n; k-- > 0;) {
		if (!find_block(g, first, req, k))
			run = 0;
		else if (run || aligned(g, first, k + 1) == k + 1)
			run++;
		if (run && run >= want)
			return k + run;
	}
	return aligned(g, first, run);
}

/* Tokens, at most max, that the groups of one type hold. */
static uint32_t match_type(const struct kv_groups *g, size_t first, uint32_t req, uint32_t max)
{
	const struct kv_group *x = &g->group[first];
	uint32_t n = (uint32_t)(max / x->block_tok);

	n = x->mixer == MIX_FULL ? match_full(g, first, req, n) : match_window(g, first, req, n);
	return n * (uint32_t)x->block_tok;
}

/* One pass over the types with this mixer. */
static uint32_t match_pass(const struct kv_groups *g, enum mixer mixer, uint32_t req, uint32_t max)
{
	for (size_t i = 0; i < g->n_group; i++)
		if (g->group[i].mixer == mixer && (!i || g->group[i].type != g->group[i - 1].type))
			max = match_type(g, i, req, max);
	return max;
}

/* Full attention comes first: if it holds a prefix, it holds each shorter prefix, too.  A window
 * may shorten the prefix that the others found, so the windows are asked again until none does. */
uint32_t kv_groups_match(struct kv_groups *g, uint32_t req, uint32_t max)
{
	uint32_t hit, shorter = match_pass(g, MIX_FULL, req, max);

	do {
		hit = shorter;
		shorter = match_pass(g, MIX_WINDOW, req, hit);
	} while (shorter < hit);
	return hit;
}

/* ---- sequences ---- */

static int64_t need_of_new(const struct kv_groups *g, size_t i, uint32_t comp, uint32_t n_tok)
{
	const uint32_t *block = next_tables(g)[i].block;
	uint32_t n_hit = blocks_found(&g->group[i], comp);
	int64_t need = (int64_t)blocks_of(&g->group[i], n_tok) - n_hit;

	for (uint32_t k = blocks_before(&g->group[i], comp); k < n_hit; k++)
		need += !g->blocks.block[block[k]].n_owner;
	return need;
}

int64_t kv_groups_need(const struct kv_groups *g, uint32_t row, uint32_t comp, uint32_t n_tok)
{
	int64_t sum = 0, more;

	for (size_t i = 0; i < g->n_group; i++) {
		if (row)
			more = (int64_t)blocks_of(&g->group[i], n_tok) - tables_of(g, row)[i].n;
		else
			more = need_of_new(g, i, comp, n_tok);
		sum += more > 0 ? more : 0;
	}
	return sum;
}

static void drop_block(struct kv_groups *g, size_t i, uint32_t b)
{
	kv_drop(&g->blocks, b);
	g->used[i] -= !g->blocks.block[b].n_owner;
}

/* Count a block of group i that had no owner. */
static void count_block(struct kv_groups *g, size_t i)
{
	if (++g->used[i] > g->peak[i])
		g->peak[i] = g->used[i];
}

/* Release blocks of running tables before the windows, the last one first. */
static void slide(struct kv_groups *g, struct table *t, uint32_t *owned, uint32_t comp)
{
	for (size_t i = 0; i < g->n_group; i++, t++) {
		uint32_t gone = blocks_before(&g->group[i], comp);

		for (uint32_t k = gone; k-- > t->n_gone; --*owned) {
			drop_block(g, i, t->block[k]);
			t->block[k] = 0;
		}
		if (gone > t->n_gone)
			t->n_gone = gone;
	}
}

/* Take the blocks of comp tokens just matched. */
static void take_found(struct kv_groups *g, struct table *t, uint32_t *owned, uint32_t comp)
{
	for (size_t i = 0; i < g->n_group; i++, t++) {
		t->n_gone = blocks_before(&g->group[i], comp);
		t->n = t->n_named = blocks_found(&g->group[i], comp);
		for (uint32_t k = 0; k < t->n_gone; k++)
			t->block[k] = 0;
		for (uint32_t k = t->n_gone; k < t->n; k++, ++*owned) {
			if (!g->blocks.block[t->block[k]].n_owner)
				count_block(g, i);
			kv_touch(&g->blocks, t->block[k]);
		}
	}
}

bool kv_groups_grow(struct kv_groups *g, uint32_t *row, uint32_t *owned, uint32_t comp,
		    uint32_t n_tok)
{
	struct table *t;

	if (*row)
		slide(g, tables_of(g, *row), owned, comp);
	if (kv_groups_need(g, *row, comp, n_tok) > g->blocks.pool->n_free)
		return false;
	if (!*row) {
		*row = g->free_row[--g->n_free_row];
		take_found(g, tables_of(g, *row), owned, comp);
	}
	t = tables_of(g, *row);
	for (size_t i = 0; i < g->n_group; i++, t++)
		for (uint32_t want = blocks_of(&g->group[i], n_tok); t->n < want; ++*owned) {
			t->block[t->n++] = kv_take(&g->blocks);
			count_block(g, i);
		}
	return true;
}

void kv_groups_enter(struct kv_groups *g, uint32_t req, uint32_t row, uint32_t n_tok)
{
	struct table *t = tables_of(g, row);

	for (size_t i = 0; i < g->n_group; i++, t++) {
		int64_t block_tok = g->group[i].block_tok;
		uint32_t full = block_tok ? (uint32_t)(n_tok / block_tok) : 0;

		for (; t->n_named < full; t->n_named++)
			if (t->block[t->n_named])
				kv_enter(&g->blocks, t->block[t->n_named],
					 kv_key_of(&g->blocks, req, t->n_named, block_tok,
						   (uint32_t)i));
	}
}

void kv_groups_release(struct kv_groups *g, uint32_t *row, uint32_t *owned)
{
	struct table *t;

	if (!*row)
		return;
	t = tables_of(g, *row);
	for (size_t i = 0; i < g->n_group; i++, t++)
		while (t->n > t->n_gone)
			drop_block(g, i, t->block[--t->n]);
	g->free_row[g->n_free_row++] = *row;
	*owned = *row = 0;
}

int64_t kv_groups_used(const struct kv_groups *g, size_t i)
{
	return g->used[i];
}

int64_t kv_groups_peak(const struct kv_groups *g, size_t i)
{
	return g->peak[i];
}

const uint32_t *kv_groups_table(const struct kv_groups *g, uint32_t row, size_t i, uint32_t *n)
{
	*n = tables_of(g, row)[i].n;
	return tables_of(g, row)[i].block;
}

uint32_t kv_groups_next_free(const struct kv_groups *g, uint32_t b)
{
	return g->blocks.block[b].next;
}
