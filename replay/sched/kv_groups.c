/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/kv_groups.h"

#include <stdlib.h>

#include "replay/sched/kv_blocks.h"

struct table {
	uint32_t *block; /* [0, n_gone) are released */
	uint32_t n, n_gone;
	uint32_t n_named; /* [0, n_named) have had their chance of a name */
	uint32_t before;  /* of states: one more than the place of the one before, or 0 */
};

struct kv_groups {
	struct kv_blocks blocks;
	struct kv_groups_config c;
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

/* A group keeps states at the ends of blocks. */
static bool keeps_states(const struct kv_group *g)
{
	return !mixer_attends(g->mixer) && g->block_tok;
}

static uint32_t blocks_of(const struct kv_group *g, int64_t n_tok)
{
	return g->block_tok ? (uint32_t)div_up(n_tok, g->block_tok) : 1;
}

/* Blocks that token comp does not look at. */
static uint32_t blocks_before(const struct kv_group *g, int64_t comp)
{
	int64_t gone = 0;

	if (g->mixer == MIX_WINDOW)
		gone = comp - g->window + 1;
	else if (g->mixer == MIX_CHUNK)
		gone = comp / g->window * g->window;
	else if (keeps_states(g))
		gone = comp - 1;
	return gone > 0 ? (uint32_t)(gone / g->block_tok) : 0;
}

/* Blocks of comp tokens just matched. */
static uint32_t blocks_found(const struct kv_group *g, uint32_t comp)
{
	return comp ? (uint32_t)(comp / g->block_tok) : 0;
}

/* What leaves a table does so one iteration later. */
static bool leaves_later(const struct kv_groups_config *c)
{
	return c->rules->processed && c->async;
}

/* Blocks leave a group while its sequence runs, from the first one on. */
static bool slides(const struct kv_group *g)
{
	return g->mixer == MIX_WINDOW || g->mixer == MIX_CHUNK;
}

/* Blocks that a window, which may begin within a block, or a chunk holds at most. */
static int64_t window_blocks(const struct kv_groups_config *c, const struct kv_group *g)
{
	int64_t in_flight = c->max_tok * (leaves_later(c) ? 2 : 1);

	if (g->mixer == MIX_CHUNK)
		return div_up(g->window + in_flight, g->block_tok);
	return div_up(g->window - 1 + in_flight, g->block_tok) + 1;
}

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t kv_groups_most(const struct kv_groups_config *c, int64_t n_tok)
{
	int64_t sum = 0;

	for (size_t i = 0; i < c->n_group; i++) {
		const struct kv_group *g = &c->group[i];
		int64_t all = blocks_of(g, n_tok);

		if (slides(g) && !c->rules->windows_whole)
			all = lesser(all, window_blocks(c, g));
		else if (keeps_states(g))
			all = lesser(all, 2 + c->rules->saves + leaves_later(c));
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
			      const struct trace *t, const struct kv_groups_config *c,
			      struct ar_err *err)
{
	struct kv_groups *g = calloc(1, sizeof *g);
	size_t len = 0, at = 0, n_row = c->n_row, n_group = c->n_group;

	*out = NULL;
	if (!g)
		return ar_nomem(err);
	for (size_t i = 0; i < n_group; i++)
		len += blocks_of(&c->group[i], c->longest) + 1;
	g->c = *c;
	g->n_free_row = n_row;
	g->table = calloc(n_row * n_group, sizeof *g->table);
	g->memory = calloc(n_row * len, sizeof *g->memory);
	g->free_row = calloc(n_row, sizeof *g->free_row);
	g->used = calloc(n_group, sizeof *g->used);
	g->peak = calloc(n_group, sizeof *g->peak);
	if (!g->table || !g->memory || !g->free_row || !g->used || !g->peak ||
	    kv_blocks_init(&g->blocks, pool, t, c->root, err)) {
		kv_groups_close(g);
		return ar_nomem(err);
	}
	for (size_t i = 0; i < n_row; i++)
		g->free_row[i] = (uint32_t)i + 1;
	for (size_t i = 0; i < n_row * n_group; i++) {
		g->table[i].block = g->memory + at;
		at += blocks_of(&c->group[i % n_group], c->longest) + 1;
	}
	g->align = 1;
	for (size_t i = 0; i < n_group; i++)
		if (c->group[i].block_tok)
			g->align = common_multiple(g->align, c->group[i].block_tok);
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

void kv_groups_begin(struct kv_groups *g)
{
	g->blocks.step++;
}

static struct table *tables_of(const struct kv_groups *g, uint32_t row)
{
	return g->table + (row - 1) * g->c.n_group;
}

static struct table *next_tables(const struct kv_groups *g)
{
	return tables_of(g, g->free_row[g->n_free_row - 1]);
}

/* ---- finding ---- */

/* Find block k of req in all groups of the type of group first. */
static bool find_block(const struct kv_groups *g, size_t first, uint32_t req, uint32_t k)
{
	const struct kv_group *x = g->c.group;
	struct table *t = next_tables(g);
	size_t i = first;

	for (; i < g->c.n_group && x[i].type == x[first].type; i++) {
		struct kv_key key = kv_key_of(&g->blocks, req, k, x[i].block_tok, (uint32_t)i);

		t[i].block[k] = *kv_find(&g->blocks, &key);
		if (!t[i].block[k])
			return false;
	}
	return true;
}

/* n blocks, rounded down to a block that ends at a boundary of every group. */
static uint32_t aligned(const struct kv_groups *g, size_t first, uint32_t n)
{
	while (n * g->c.group[first].block_tok % g->align)
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

/* Blocks that a hit of a window needs before its end. */
static uint32_t window_needs(const struct kv_group *x)
{
	return (uint32_t)div_up(x->window - 1, x->block_tok);
}

/* The last place, at most n blocks, before which a window of blocks is there, or else all are. */
static uint32_t match_window(const struct kv_groups *g, size_t first, uint32_t req, uint32_t n)
{
	uint32_t want = window_needs(&g->c.group[first]), run = 0;

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

/* The blocks from the chunk of token max on; those before it are as good as there. */
static uint32_t match_chunk(const struct kv_groups *g, size_t first, uint32_t req, uint32_t max)
{
	const struct kv_group *x = &g->c.group[first];
	uint32_t k = blocks_before(x, max), n = (uint32_t)(max / x->block_tok);

	while (k < n && find_block(g, first, req, k))
		k++;
	return aligned(g, first, k);
}

/* The last place, at most n blocks, whose state is there. */
static uint32_t match_state(const struct kv_groups *g, size_t first, uint32_t req, uint32_t n)
{
	for (; n; n--)
		if (aligned(g, first, n) == n && find_block(g, first, req, n - 1))
			break;
	return n;
}

/* Tokens, at most max, that the groups of one type hold. */
static uint32_t match_type(const struct kv_groups *g, size_t first, uint32_t req, uint32_t max)
{
	const struct kv_group *x = &g->c.group[first];
	uint32_t n = (uint32_t)(max / x->block_tok);

	if (x->mixer == MIX_FULL)
		n = match_full(g, first, req, n);
	else if (x->mixer == MIX_WINDOW)
		n = match_window(g, first, req, n);
	else if (x->mixer == MIX_CHUNK)
		n = match_chunk(g, first, req, max);
	else
		n = match_state(g, first, req, n);
	return n * (uint32_t)x->block_tok;
}

/* One pass over the types of full attention, or over the others.  *longest: what the first type
 * that is ever asked holds; UINT32_MAX: none was. */
static uint32_t match_pass(const struct kv_groups *g, bool full, uint32_t req, uint32_t max,
			   uint32_t *longest)
{
	const struct kv_group *x = g->c.group;

	for (size_t i = 0; i < g->c.n_group; i++) {
		if ((x[i].mixer == MIX_FULL) != full || (i && x[i].type == x[i - 1].type))
			continue;
		max = match_type(g, i, req, max);
		if (*longest == UINT32_MAX)
			*longest = max;
	}
	return max;
}

/* Full attention comes first: if it holds a prefix, it holds each shorter prefix, too.  Another
 * type may shorten the prefix that the others found, so they are asked again until none does. */
uint32_t kv_groups_match(struct kv_groups *g, uint32_t req, uint32_t max, uint32_t *junction)
{
	uint32_t longest = UINT32_MAX, hit, shorter = match_pass(g, true, req, max, &longest);

	do {
		hit = shorter;
		shorter = match_pass(g, false, req, hit, &longest);
	} while (shorter < hit);
	*junction = longest > hit ? longest : 0;
	return hit;
}

/* ---- states ---- */

int64_t kv_groups_states(const struct kv_groups *g)
{
	for (size_t i = 0; i < g->c.n_group; i++)
		if (keeps_states(&g->c.group[i]))
			return g->c.group[i].block_tok;
	return 0;
}

/* The state at the start, and the one at the end, are of other blocks. */
bool kv_groups_saves(const struct kv_groups *g, int64_t start, int64_t end, int64_t at)
{
	int64_t tok = kv_groups_states(g), before = start ? (start - 1) / tok : -1;

	return g->c.rules->saves && start % tok == 0 && div_up(end, tok) - 2 > before &&
	       start + tok <= at && at < end;
}

/* The chunk up to n_tok saves a state in the block before its last one.  t: its table, or NULL. */
static bool saves_state(const struct kv_groups *g, const struct kv_group *x, const struct table *t,
			const struct kv_progress *at, uint32_t n_tok)
{
	uint32_t whole = at->prompt > at->known - 1 ? at->prompt : at->known - 1;
	uint32_t n = blocks_of(x, n_tok);

	return n_tok >= whole && n >= 2 &&
	       kv_groups_saves(g, at->comp, n_tok, (n_tok - 1) / g->align * g->align) &&
	       (!t || n - 2 >= t->n || !t->block[n - 2]);
}

/* Blocks that a table of states needs for n_tok tokens. */
static int64_t states_need(const struct kv_groups *g, const struct kv_group *x,
			   const struct table *t, const struct kv_progress *at, uint32_t n_tok)
{
	uint32_t there = t ? t->n : blocks_found(x, at->comp);

	return lesser((int64_t)blocks_of(x, n_tok) - there, 1 + saves_state(g, x, t, at, n_tok));
}

/* ---- sequences ---- */

/* Blocks of group i that were found, and that nobody owns.  More than the pool has: the state that
 * was found is computed in this plan. */
static int64_t need_of_found(const struct kv_groups *g, size_t i, uint32_t comp)
{
	const struct kv_group *x = &g->c.group[i];
	const struct kv_block *all = g->blocks.block;
	const uint32_t *block = next_tables(g)[i].block;
	uint32_t n_hit = blocks_found(x, comp);
	int64_t need = 0;

	for (uint32_t k = blocks_before(x, comp); k < n_hit; k++) {
		need += !g->blocks.place[block[k]].n_owner;
		if (keeps_states(x) && all[all[block[k]].older].entered == g->blocks.step)
			return g->blocks.pool->n_usable + 1;
	}
	return need;
}

static int64_t need_of_group(const struct kv_groups *g, size_t i, const struct table *t,
			     const struct kv_progress *at, uint32_t n_tok, bool admission)
{
	const struct kv_group *x = &g->c.group[i];
	int64_t need = blocks_of(x, n_tok);

	if (keeps_states(x))
		return states_need(g, x, t, at, n_tok);
	if (admission && slides(x) && !g->c.rules->windows_whole)
		need = lesser(need, window_blocks(&g->c, x));
	need -= t ? t->n : blocks_found(x, at->comp);
	return need > 0 ? need : 0;
}

int64_t kv_groups_need(const struct kv_groups *g, uint32_t row, const struct kv_progress *at,
		       uint32_t n_tok, bool admission)
{
	int64_t sum = 0;

	for (size_t i = 0; i < g->c.n_group; i++) {
		const struct table *t = row ? &tables_of(g, row)[i] : NULL;

		sum += need_of_group(g, i, t, at, n_tok, admission);
		if (!row)
			sum += need_of_found(g, i, at->comp);
	}
	return sum;
}

/* Blocks of group i that leave a table together. */
struct leaving {
	struct kv_groups *g;
	size_t i;
	uint32_t *owned, last;
};

static void drop_block(struct leaving *l, uint32_t b)
{
	struct kv_groups *g = l->g;

	if (g->c.unnamed_first)
		kv_drop_unnamed_first(&g->blocks, b, &l->last);
	else
		kv_drop(&g->blocks, b);
	g->used[l->i] -= !g->blocks.place[b].n_owner;
	--*l->owned;
}

/* Count a block of group i that had no owner. */
static void count_block(struct kv_groups *g, size_t i)
{
	if (++g->used[i] > g->peak[i])
		g->peak[i] = g->used[i];
}

/* Release blocks [t->n_gone, gone) that are there, the last one first.  gaps: blocks before one
 * that is not there can be. */
static void release_before(struct leaving l, struct table *t, uint32_t gone, bool gaps)
{
	for (uint32_t k = gone; k-- > t->n_gone;) {
		if (!t->block[k] && !gaps)
			break;
		if (t->block[k])
			drop_block(&l, t->block[k]);
		t->block[k] = 0;
	}
}

/* Once comp tokens are computed, the state before the one that runs is not read any more.  Before
 * 0.33 a state before a gap stays until the next one takes its place. */
static void slide_states(struct leaving l, const struct kv_group *x, struct table *t, int64_t comp)
{
	bool gaps = l.g->c.rules->processed;
	uint32_t gone = (uint32_t)lesser(blocks_before(x, comp), t->n);

	release_before(l, t, gone, gaps);
	if (gaps && gone > t->n_gone)
		t->n_gone = gone;
	if (t->before && t->before < div_up(comp, x->block_tok) && t->block[t->before - 1]) {
		drop_block(&l, t->block[t->before - 1]);
		t->block[t->before - 1] = 0;
	}
}

/* Release blocks of running tables that the next token does not look at. */
static void slide(struct kv_groups *g, struct table *t, uint32_t *owned,
		  const struct kv_progress *at)
{
	int64_t comp = (int64_t)at->comp - (g->c.rules->processed ? at->in_flight : 0);

	for (size_t i = 0; i < g->c.n_group; i++, t++) {
		const struct kv_group *x = &g->c.group[i];
		struct leaving l = { g, i, owned, 0 };
		uint32_t gone = blocks_before(x, comp);

		if (keeps_states(x)) {
			slide_states(l, x, t, comp);
		} else if (gone > t->n_gone) {
			release_before(l, t, gone, true);
			t->n_gone = gone;
		}
	}
}

/* Take the blocks of comp tokens just matched. */
static void take_found(struct kv_groups *g, struct table *t, uint32_t *owned, uint32_t comp)
{
	for (size_t i = 0; i < g->c.n_group; i++, t++) {
		uint32_t gone = blocks_before(&g->c.group[i], comp);

		t->n = t->n_named = blocks_found(&g->c.group[i], comp);
		t->n_gone = keeps_states(&g->c.group[i]) ? 0 : gone;
		t->before = 0;
		for (uint32_t k = 0; k < gone; k++)
			t->block[k] = 0;
		for (uint32_t k = gone; k < t->n; k++, ++*owned) {
			if (!g->blocks.place[t->block[k]].n_owner)
				count_block(g, i);
			kv_touch(&g->blocks, t->block[k]);
		}
	}
}

/* Leave the places empty that lie between the last state and the n-th, or the one before it. */
static void skip_states(const struct kv_groups *g, const struct kv_group *x, struct table *t,
			const struct kv_progress *at, uint32_t n_tok)
{
	uint32_t want = blocks_of(x, n_tok), first = want - 1 - saves_state(g, x, t, at, n_tok);

	if (want > t->n)
		t->before = t->n;
	while (t->n < first)
		t->block[t->n++] = 0;
}

bool kv_groups_grow(struct kv_groups *g, uint32_t *row, uint32_t *owned,
		    const struct kv_progress *at, uint32_t n_tok)
{
	struct table *t;

	if (*row)
		slide(g, tables_of(g, *row), owned, at);
	if (kv_groups_need(g, *row, at, n_tok, false) > g->blocks.pool->n_free)
		return false;
	if (!*row) {
		*row = g->free_row[--g->n_free_row];
		take_found(g, tables_of(g, *row), owned, at->comp);
	}
	t = tables_of(g, *row);
	for (size_t i = 0; i < g->c.n_group; i++, t++) {
		const struct kv_group *x = &g->c.group[i];

		if (keeps_states(x))
			skip_states(g, x, t, at, n_tok);
		for (uint32_t want = blocks_of(x, n_tok); t->n < want; ++*owned) {
			kv_take(&g->blocks, &t->block[t->n++], 1);
			count_block(g, i);
		}
	}
	return true;
}

/* ---- names ---- */

/* Block k is one of the n blocks before the last common boundary of tokens [0, n_tok). */
static bool ends_at(const struct kv_groups *g, const struct kv_group *x, uint32_t k, int64_t n_tok,
		    int64_t n)
{
	int64_t end = n_tok / g->align * g->align / x->block_tok;

	return k < end && k >= end - n;
}

static bool gets_name(const struct kv_groups *g, const struct kv_group *x,
		      const struct kv_progress *at, uint32_t k)
{
	enum kv_names names = g->c.rules->names;
	int64_t n = x->mixer == MIX_WINDOW ? window_needs(x) : 1;
	int64_t period = g->align / x->block_tok;

	if (names == KV_NAMES_ALL || x->mixer == MIX_FULL || x->mixer == MIX_CHUNK)
		return true;
	if (names == KV_NAMES_REPLAY)
		return ends_at(g, x, k, (int64_t)at->prompt - 1, n) ||
		       ends_at(g, x, k, at->junction, n);
	return !mixer_attends(x->mixer) || n >= period || k % period >= period - n;
}

/* Block k of a request, in group i. */
static struct kv_key key_in(const struct kv_groups *g, size_t i, uint32_t req, uint32_t k)
{
	return kv_key_of(&g->blocks, req, k, g->c.group[i].block_tok, (uint32_t)i);
}

/* The first block of a request in group i that nobody else looks for, and that stays while the
 * request runs, so that it need not be found before. */
static uint32_t first_own(const struct kv_groups *g, size_t i, uint32_t req)
{
	const struct kv_group *x = &g->c.group[i];

	return x->mixer == MIX_FULL ? kv_n_shared(&g->blocks, req, x->block_tok) : UINT32_MAX;
}

void kv_groups_enter(struct kv_groups *g, uint32_t row, const struct kv_progress *at,
		     uint32_t n_tok)
{
	struct table *t = tables_of(g, row);

	if (g->c.rules->names != KV_NAMES_ALL && g->c.n_group > 1)
		n_tok -= n_tok % g->align;
	for (size_t i = 0; i < g->c.n_group; i++, t++) {
		const struct kv_group *x = &g->c.group[i];
		uint32_t full = x->block_tok ? (uint32_t)(n_tok / x->block_tok) : 0;
		uint32_t own;

		if (t->n_named >= full)
			continue;
		own = first_own(g, i, at->req);
		for (; t->n_named < full && t->n_named < own; t->n_named++)
			if (t->block[t->n_named] && gets_name(g, x, at, t->n_named))
				kv_enter(&g->blocks, t->block[t->n_named],
					 key_in(g, i, at->req, t->n_named));
		for (; t->n_named < full; t->n_named++)
			kv_name(&g->blocks, t->block[t->n_named]);
	}
}

void kv_groups_list(struct kv_groups *g, uint32_t row, uint32_t req)
{
	const struct table *t = tables_of(g, row);

	for (size_t i = 0; i < g->c.n_group; i++, t++)
		for (uint32_t k = first_own(g, i, req); k < t->n_named; k++)
			if (kv_unlisted(&g->blocks, t->block[k]))
				kv_enter(&g->blocks, t->block[k], key_in(g, i, req, k));
}

void kv_groups_release(struct kv_groups *g, uint32_t *row, uint32_t *owned)
{
	struct table *t;

	if (!*row)
		return;
	t = tables_of(g, *row);
	for (size_t i = 0; i < g->c.n_group; i++, t++) {
		release_before((struct leaving){ g, i, owned, 0 }, t, t->n, true);
		t->n = t->n_gone = 0;
	}
	g->free_row[g->n_free_row++] = *row;
	*row = 0;
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

uint32_t kv_groups_named(const struct kv_groups *g, uint32_t row, size_t i)
{
	return tables_of(g, row)[i].n_named;
}

uint32_t kv_groups_next_free(const struct kv_groups *g, uint32_t b)
{
	return kv_next_free(&g->blocks, b);
}
