/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/blocks.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"

struct table {
	int32_t *page;
	size_t cap;
	int32_t n;
	int32_t n_gone; /* pages [0, n_gone) are freed */
	int64_t n_tok;
	/* Tokens that chunks computed.  A selector does not see tokens that decodes compute, so its
	 * state of their pages is out of date. */
	int64_t n_chunked;
};

/* A page is free, listed by tables, or kept: only keys are in it. */
struct page {
	uint32_t n_ref;	      /* tables that list it */
	uint32_t n_key;	      /* keys in it */
	uint32_t n_lost;      /* how often it was taken from its keys */
	uint32_t batch;	      /* the last one that wrote to it */
	int32_t n_chunked;    /* see struct table */
	int32_t older, newer; /* of a kept one: in a ring by the time when it was left */
};

/* Where the tokens of a key are.  They are nowhere if the page was taken from its keys since. */
struct place {
	int32_t page; /* one more than its number; 0: nowhere */
	uint32_t n_lost;
};

struct block_pages {
	int32_t *free; /* a stack: the page freed last is taken first */
	int64_t n_free, n_kept;
	struct page *page;   /* [n_page + 1]; the last one is the ring's start, older than all */
	struct place *place; /* by key */
	int64_t n_key;	     /* one more than the last key that has had a place */
	struct table *table; /* [n_req] */
	size_t n_req;
	int32_t *fork; /* [n_fork] pages for what an event leaves of a request */
	size_t cap_fork;
	int64_t n_fork;
};

static int64_t pages_for(int64_t n_tok, int page_tok)
{
	return (n_tok + page_tok - 1) / page_tok;
}

static int64_t lesser(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

int64_t blocks_pages(int64_t num_blocks, int64_t block_tok, int64_t max_seqs, int page_tok)
{
	return pages_for(num_blocks * block_tok, page_tok) + max_seqs;
}

/* ---- groups ---- */

static enum ar_status open_pages(struct block_pages *p, const struct block_group *g, size_t n_req,
				 struct ar_err *err)
{
	int64_t n = g->n_page;

	if (n < 1 || n > INT32_MAX / g->page_tok) /* slots are 32-bit numbers */
		return ar_fail(err, AR_USAGE,
			       "a KV cache of %lld pages of %d tokens is out of range "
			       "1...%d; change --num-gpu-blocks",
			       (long long)n, g->page_tok, INT32_MAX / g->page_tok);
	p->free = malloc((size_t)n * sizeof *p->free);
	p->page = calloc((size_t)n + 1, sizeof *p->page);
	p->table = calloc(n_req ? n_req : 1, sizeof *p->table);
	if (!p->free || !p->page || !p->table)
		return ar_nomem(err);
	p->page[n].older = p->page[n].newer = (int32_t)n;
	p->n_req = n_req;
	for (p->n_free = 0; p->n_free < n; p->n_free++)
		p->free[p->n_free] = (int32_t)(n - 1 - p->n_free);
	return AR_OK;
}

enum ar_status blocks_open(struct blocks *b, const struct block_group *group, int n, size_t n_req,
			   struct ar_err *err)
{
	enum ar_status st = AR_OK;

	*b = (struct blocks){ .group = calloc((size_t)n, sizeof *b->group),
			      .pages = calloc((size_t)n, sizeof *b->pages),
			      .n = n,
			      .left = calloc(n_req + 1, sizeof *b->left),
			      .leaving = calloc(n_req + 1, sizeof *b->leaving),
			      .span = calloc(n_req + 1, sizeof *b->span),
			      .merged = calloc(n_req + 1, sizeof *b->merged) };
	if (!b->group || !b->pages || !b->left || !b->leaving || !b->span || !b->merged)
		return ar_nomem(err);
	memcpy(b->group, group, (size_t)n * sizeof *group);
	for (int g = 0; g < n && !st; g++)
		st = open_pages(&b->pages[g], &group[g], n_req, err);
	return st;
}

void blocks_release(struct blocks *b)
{
	for (int g = 0; b->pages && g < b->n; g++) {
		struct block_pages *p = &b->pages[g];

		for (size_t i = 0; i < p->n_req; i++)
			free(p->table[i].page);
		free(p->table);
		free(p->page);
		free(p->place);
		free(p->free);
		free(p->fork);
	}
	free(b->group);
	free(b->pages);
	free(b->left);
	free(b->leaving);
	free(b->span);
	free(b->merged);
	free(b->copy);
	*b = (struct blocks){ 0 };
}

/* ---- pages ---- */

static void keep_page(struct block_pages *p, int32_t start, int32_t page)
{
	struct page *x = &p->page[page];

	x->newer = start;
	x->older = p->page[start].older;
	p->page[x->older].newer = p->page[start].older = page;
	p->n_kept++;
}

static void unkeep_page(struct block_pages *p, int32_t page)
{
	struct page *x = &p->page[page];

	p->page[x->older].newer = x->newer;
	p->page[x->newer].older = x->older;
	p->n_kept--;
}

/* Take a page that is free, or the one that is kept for the longest time.  There is one. */
static int32_t take_page(struct block_pages *p, int32_t start)
{
	int32_t page = p->page[start].newer;

	if (p->n_free) {
		page = p->free[--p->n_free];
	} else {
		unkeep_page(p, page);
		p->page[page].n_lost++;
		p->page[page].n_key = 0;
	}
	p->page[page].n_ref = 1;
	p->page[page].n_chunked = 0;
	return page;
}

/* One more table lists the page. */
static void list_page(struct block_pages *p, int32_t page)
{
	if (!p->page[page].n_ref++)
		unkeep_page(p, page);
}

/* A table lists the page no more. */
static void leave_page(struct block_pages *p, int32_t start, int32_t page)
{
	struct page *x = &p->page[page];

	if (--x->n_ref)
		return;
	if (x->n_key)
		keep_page(p, start, page);
	else
		p->free[p->n_free++] = page;
}

/* ---- keys ---- */

/* The page with the tokens of a key, or -1. */
static int32_t page_of_key(const struct block_pages *p, int64_t key)
{
	struct place x = key < 0 ? (struct place){ 0 } : p->place[key];

	return x.page && p->page[x.page - 1].n_lost == x.n_lost ? x.page - 1 : -1;
}

static void forget_key(struct block_pages *p, int64_t key)
{
	int32_t page = page_of_key(p, key);

	if (page < 0)
		return;
	p->place[key].page = 0;
	if (--p->page[page].n_key || p->page[page].n_ref)
		return;
	unkeep_page(p, page);
	p->free[p->n_free++] = page;
}

/* The tokens of a key are in a page that a table lists. */
static void place_key(struct block_pages *p, int64_t key, int32_t page)
{
	if (key < 0 || page_of_key(p, key) == page)
		return;
	forget_key(p, key);
	p->place[key] = (struct place){ page + 1, p->page[page].n_lost };
	p->page[page].n_key++;
	if (p->n_key <= key)
		p->n_key = key + 1;
}

/* Keys are of tokens that each request has at the same place. */
static bool has_keys(const struct blocks *b, int g)
{
	return b->keys.count && !b->group[g].linear && !b->group[g].segment;
}

enum ar_status blocks_follow(struct blocks *b, const struct block_keys *keys, struct ar_err *err)
{
	b->keys = *keys;
	for (int g = 0; g < b->n; g++) {
		struct block_pages *p = &b->pages[g];

		if (!has_keys(b, g))
			continue;
		p->n_key = 0;
		p->place = calloc((size_t)keys->count(keys->self, &b->group[g]), sizeof *p->place);
		if (!p->place) {
			blocks_unfollow(b);
			return ar_nomem(err);
		}
	}
	return AR_OK;
}

void blocks_unfollow(struct blocks *b)
{
	for (int g = 0; g < b->n; g++) {
		struct block_pages *p = &b->pages[g];

		for (int64_t i = 0; p->place && i < p->n_key; i++)
			forget_key(p, i);
		free(p->place);
		p->place = NULL;
	}
	b->keys = (struct block_keys){ 0 };
}

static void forget_keys(struct blocks *b, int g, uint32_t req, int64_t from, int64_t to)
{
	const struct block_keys *k = &b->keys;
	const struct block_group *x = &b->group[g];
	int64_t step = k->step(k->self, x);

	for (int64_t pos = (from + step - 1) / step * step; pos < to; pos += step)
		forget_key(&b->pages[g], k->key(k->self, x, req, pos, true));
}

void blocks_forget(struct blocks *b, uint32_t req, int64_t from, int64_t to)
{
	for (int g = 0; g < b->n; g++)
		if (has_keys(b, g))
			forget_keys(b, g, req, from, to);
}

/* Tokens [start, end) of req are in the pages of its table. */
static void place_keys(struct blocks *b, int g, uint32_t req, int64_t start, int64_t end)
{
	const struct block_keys *k = &b->keys;
	const struct block_group *x = &b->group[g];
	int64_t step = k->step(k->self, x);

	for (int64_t pos = start - start % step; pos < end; pos += step)
		place_key(&b->pages[g], k->key(k->self, x, req, pos, true),
			  b->pages[g].table[req].page[pos / x->page_tok]);
}

/* ---- tables ---- */

static struct table *table_of(const struct blocks *b, int g, uint32_t req)
{
	return &b->pages[g].table[req];
}

/* The start of the ring of pages that are kept. */
static int32_t ring_of(const struct blocks *b, int g)
{
	return (int32_t)b->group[g].n_page;
}

/* Check that n pages can be taken. */
static enum ar_status check_room(const struct blocks *b, int g, uint32_t req, int64_t n,
				 struct ar_err *err)
{
	int64_t have = b->pages[g].n_free + b->pages[g].n_kept;

	return n <= have ? AR_OK :
			   ar_fail(err, AR_NOMEM,
				   "the KV cache is full: request %u needs %lld more of %lld "
				   "pages, %lld are free; raise --num-gpu-blocks",
				   (unsigned)req, (long long)n, (long long)b->group[g].n_page,
				   (long long)have);
}

enum ar_status blocks_grow(struct blocks *b, int g, uint32_t req, int64_t n_tok, struct ar_err *err)
{
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);
	int64_t want = pages_for(n_tok, b->group[g].page_tok);
	enum ar_status st = check_room(b, g, req, want - t->n, err);

	assert(b->running);
	if (st)
		return st;
	if (!GROW(t->page, t->cap, (size_t)want))
		return ar_nomem(err);
	while (t->n < want)
		t->page[t->n++] = take_page(p, ring_of(b, g));
	if (n_tok > t->n_tok)
		t->n_tok = n_tok;
	return AR_OK;
}

void blocks_trim(struct blocks *b, int g, uint32_t req, int64_t n_tok)
{
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);

	assert(b->running);
	while (t->n_gone < t->n && (int64_t)(t->n_gone + 1) * b->group[g].page_tok <= n_tok) {
		leave_page(p, ring_of(b, g), t->page[t->n_gone]);
		t->page[t->n_gone++] = 0;
	}
}

/* Does a table or a key beside that of the request need the page? */
static bool is_needed(const struct blocks *b, const struct page *x)
{
	return x->n_ref > 1 || (x->n_key && !b->keys.drops);
}

static enum ar_status fork_pages(struct blocks *b, int g, uint32_t req, int64_t n_tok,
				 struct ar_err *err)
{
	struct block_pages *p = &b->pages[g];
	const struct table *t = table_of(b, g, req);
	const int32_t *page = t->page;
	int64_t want = lesser(pages_for(n_tok, b->group[g].page_tok), t->n), more = 0;
	enum ar_status st;

	for (int64_t i = 0; i < want; i++)
		more += is_needed(b, &p->page[page[i]]);
	st = check_room(b, g, req, more, err);
	if (st)
		return st;
	if (!GROW(p->fork, p->cap_fork, (size_t)want))
		return ar_nomem(err);
	for (p->n_fork = 0; p->n_fork < want; p->n_fork++) {
		int32_t own = page[p->n_fork];
		bool needed = is_needed(b, &p->page[own]);

		p->fork[p->n_fork] = needed ? take_page(p, ring_of(b, g)) : own;
		if (needed || !p->page[own].n_key)
			continue;
		p->page[own].n_lost++;
		p->page[own].n_key = 0;
	}
	return AR_OK;
}

enum ar_status blocks_fork(struct blocks *b, uint32_t req, int64_t n_tok, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	assert(b->running);
	for (int g = 0; g < b->n && !st; g++)
		st = fork_pages(b, g, req, n_tok, err);
	return st;
}

const int32_t *blocks_forked(const struct blocks *b, int g)
{
	return b->pages[g].n_fork ? b->pages[g].fork : NULL;
}

/* List the pages that were found for the first places. */
static void list_forked(struct blocks *b, int g, struct table *t)
{
	struct block_pages *p = &b->pages[g];

	for (int64_t i = 0; i < p->n_fork; i++) {
		if (p->fork[i] != t->page[i])
			leave_page(p, ring_of(b, g), t->page[i]);
		t->page[i] = p->fork[i];
	}
	p->n_fork = 0;
}

void blocks_cut(struct blocks *b, uint32_t req, int64_t n_tok)
{
	assert(b->running);
	for (int g = 0; g < b->n; g++) {
		struct table *t = table_of(b, g, req);
		int64_t want = pages_for(n_tok, b->group[g].page_tok);

		list_forked(b, g, t);
		while (t->n > want)
			leave_page(&b->pages[g], ring_of(b, g), t->page[--t->n]);
		t->n_tok = n_tok;
		t->n_chunked = 0;
	}
}

static void empty(struct blocks *b, int g, uint32_t req)
{
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);

	while (t->n > t->n_gone)
		leave_page(p, ring_of(b, g), t->page[--t->n]);
	t->n = t->n_gone = 0;
	t->n_tok = t->n_chunked = 0;
}

const int32_t *blocks_table(const struct blocks *b, int g, uint32_t req)
{
	return table_of(b, g, req)->page;
}

int64_t blocks_len(const struct blocks *b, int g, uint32_t req)
{
	return table_of(b, g, req)->n_tok;
}

int64_t blocks_free(const struct blocks *b, int g)
{
	return b->pages[g].n_free;
}

int64_t blocks_kept(const struct blocks *b, int g)
{
	return b->pages[g].n_kept;
}

/* ---- requests ---- */

/* List the pages where tokens [from, to) of a table were found, but not one with others. */
static void merge_pages(struct blocks *b, int g, uint32_t req, int64_t from, int64_t to)
{
	const struct block_keys *k = &b->keys;
	const struct block_group *x = &b->group[g];
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);

	for (int64_t i = from / x->page_tok; (i + 1) * x->page_tok <= to; i++) {
		int64_t last = (i + 1) * x->page_tok - 1;
		int32_t page = page_of_key(p, k->key(k->self, x, req, last, false));

		if (i < t->n_gone || page < 0 || page == t->page[i])
			continue;
		list_page(p, page);
		forget_key(p, k->key(k->self, x, req, last, true));
		leave_page(p, ring_of(b, g), t->page[i]);
		t->page[i] = page;
	}
}

static void merge_all(struct blocks *b)
{
	for (size_t i = 0; i < b->n_merged; i++) {
		uint32_t req = b->merged[i];

		for (int g = 0; g < b->n && !b->leaving[req]; g++)
			if (has_keys(b, g))
				merge_pages(b, g, req, b->span[req].from, b->span[req].to);
		b->span[req].to = 0;
	}
	b->n_merged = 0;
}

void blocks_merge(struct blocks *b, uint32_t req, int64_t from, int64_t to)
{
	struct block_span *x = &b->span[req];

	if (!x->to) {
		b->merged[b->n_merged++] = req;
		x->from = from;
	}
	x->to = to;
}

void blocks_begin(struct blocks *b)
{
	b->running = true;
	b->n_batch++;
	merge_all(b);
	for (size_t i = 0; i < b->n_left; i++) {
		for (int g = 0; g < b->n; g++)
			empty(b, g, b->left[i]);
		b->leaving[b->left[i]] = false;
	}
	b->n_left = 0;
}

void blocks_end(struct blocks *b)
{
	b->running = false;
	while (b->n_copy) {
		const struct block_copy *c = &b->copy[--b->n_copy];

		leave_page(&b->pages[c->g], ring_of(b, c->g), c->from);
	}
}

/* A request may leave twice: preempted while its last output is in flight, it finishes later. */
void blocks_leave(struct blocks *b, uint32_t req)
{
	assert(!b->running);
	if (b->leaving[req])
		return;
	for (int g = 0; g < b->n; g++)
		if (has_keys(b, g))
			forget_keys(b, g, req, b->keys.named(b->keys.self, &b->group[g], req),
				    blocks_len(b, g, req));
	b->leaving[req] = true;
	b->left[b->n_left++] = req;
}

/* Rows [start, end) of e are written to the pages of its table. */
static void write_pages(struct blocks *b, int g, const struct batch_entry *e, int64_t start,
			int64_t end)
{
	const int tok = b->group[g].page_tok;
	const bool chunk = e->kind == ROW_PREFILL;
	struct table *t = table_of(b, g, e->req);

	if (chunk && end > t->n_chunked)
		t->n_chunked = end;
	if (!has_keys(b, g))
		return;
	for (int64_t k = start / tok; k < pages_for(end, tok); k++) {
		struct page *x = &b->pages[g].page[t->page[k]];

		x->batch = b->n_batch;
		if (chunk)
			x->n_chunked = (int32_t)lesser(tok, end - k * tok);
	}
	place_keys(b, g, e->req, start, end);
}

enum ar_status blocks_place(struct blocks *b, const struct batch_entry *e, struct ar_err *err)
{
	return blocks_place_rows(b, 0, e, batch_stored(e), batch_stores(e), err);
}

enum ar_status blocks_place_rows(struct blocks *b, int segment, const struct batch_entry *e,
				 int64_t start, int64_t end, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int g = 0; g < b->n && !st; g++) {
		const struct block_group *x = &b->group[g];

		if (x->segment != segment)
			continue;
		if (x->window)
			blocks_trim(b, g, e->req, start - x->window + 1);
		if (has_keys(b, g)) /* what they had before is gone, and its pages may be taken */
			forget_keys(b, g, e->req, start, end);
		st = blocks_grow(b, g, e->req, x->linear ? 1 : end, err);
		if (!st)
			write_pages(b, g, e, start, end);
	}
	return st;
}

/* ---- hits ---- */

/* The first page that a row at position n_tok looks at. */
static int64_t first_page(const struct block_group *x, int64_t n_tok)
{
	int64_t first = x->window ? n_tok - x->window + 1 : 0;

	return first > 0 ? first / x->page_tok : 0;
}

/* The page with the last of tokens [0, n_tok) of its place, or -1. */
static int32_t find_page(const struct blocks *b, int g, uint32_t req, int64_t place, int64_t n_tok)
{
	const struct block_keys *k = &b->keys;
	const struct block_group *x = &b->group[g];
	int64_t last = lesser((place + 1) * x->page_tok, n_tok) - 1;

	return page_of_key(&b->pages[g], k->key(k->self, x, req, last, false));
}

/* Of n_tok tokens that the policy found, those up to the first page that is not there.  written:
 * nor is a page that this batch writes to. */
static int64_t found_in(const struct blocks *b, int g, uint32_t req, int64_t n_tok, bool written)
{
	const int tok = b->group[g].page_tok;

	for (int64_t k = first_page(&b->group[g], n_tok); k < pages_for(n_tok, tok); k++) {
		int32_t page = find_page(b, g, req, k, n_tok);

		if (page < 0 || (written && b->pages[g].page[page].batch == b->n_batch))
			return k * tok;
	}
	return n_tok;
}

/* The same in all groups.  If one has fewer, another may need pages that its window has left. */
static int64_t found(const struct blocks *b, uint32_t req, int64_t n_tok, bool written)
{
	int64_t was;

	do {
		was = n_tok;
		for (int g = 0; g < b->n; g++)
			if (has_keys(b, g))
				n_tok = lesser(n_tok, found_in(b, g, req, n_tok, written));
	} while (n_tok < was);
	return n_tok;
}

/* A fresh page at the end of the table is for the first n_tok tokens of `from`.  That page stays
 * listed until the batch ends. */
static enum ar_status copy_page(struct blocks *b, int g, struct table *t, int32_t from, int n_tok,
				struct ar_err *err)
{
	struct block_pages *p = &b->pages[g];
	struct page *x = p->page;
	int32_t to;

	if (!GROW(b->copy, b->cap_copy, b->n_copy + 1))
		return ar_nomem(err);
	list_page(p, from);
	to = take_page(p, ring_of(b, g));
	x[to].n_chunked = (int32_t)lesser(x[from].n_chunked, n_tok);
	x[to].batch = b->n_batch;
	t->page[t->n++] = to;
	b->copy[b->n_copy++] = (struct block_copy){ g, from, to, n_tok,
						    x[from].batch == b->n_batch };
	return AR_OK;
}

/* Tokens [0, n_tok) of t that chunks computed. */
static int64_t chunked(const struct block_pages *p, const struct table *t, int tok, int64_t n_tok)
{
	for (int64_t k = t->n_gone; k < t->n; k++) {
		int64_t n = p->page[t->page[k]].n_chunked;

		if (n < lesser(tok, n_tok - k * tok))
			return k * tok + n;
	}
	return n_tok;
}

/* List the pages of n_tok tokens that are found, in a table that is empty. */
static enum ar_status list_found(struct blocks *b, int g, uint32_t req, int64_t n_tok,
				 struct ar_err *err)
{
	const int tok = b->group[g].page_tok;
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);
	int64_t whole = n_tok / tok;
	enum ar_status st = AR_OK;

	if (!GROW(t->page, t->cap, (size_t)whole + 1))
		return ar_nomem(err);
	for (t->n_gone = 0; t->n_gone < first_page(&b->group[g], n_tok); t->n_gone++)
		t->page[t->n_gone] = 0;
	for (t->n = t->n_gone; t->n < whole; t->n++) {
		t->page[t->n] = find_page(b, g, req, t->n, n_tok);
		list_page(p, t->page[t->n]);
	}
	if (n_tok % tok) {
		int32_t from = find_page(b, g, req, whole, n_tok);

		st = check_room(b, g, req, 1 + !p->page[from].n_ref, err);
		if (!st)
			st = copy_page(b, g, t, from, (int)(n_tok % tok), err);
	}
	t->n_tok = n_tok;
	t->n_chunked = chunked(p, t, tok, n_tok);
	return st;
}

/* Tables with keys are of one length. */
static bool is_empty(const struct blocks *b, uint32_t req)
{
	bool empty = false;

	for (int g = 0; g < b->n; g++)
		if (has_keys(b, g))
			empty = !table_of(b, g, req)->n_tok;
	return empty;
}

enum ar_status blocks_hit(struct blocks *b, const struct batch_entry *e, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int64_t n;

	assert(b->running);
	if (!e->start || !is_empty(b, e->req))
		return AR_OK;
	n = found(b, e->req, e->start, false);
	if (n < e->start) /* the rest is computed before the batch */
		n = found(b, e->req, n, true);
	b->n_refilled += e->start - n;
	for (int g = 0; g < b->n && n && !st; g++)
		if (has_keys(b, g))
			st = list_found(b, g, e->req, n, err);
	return st;
}

bool blocks_hold(const struct blocks *b, const struct batch_entry *e)
{
	int64_t end = batch_stores(e);

	for (int g = 0; g < b->n; g++)
		if (!b->group[g].segment && !b->group[g].linear && blocks_len(b, g, e->req) < end)
			return false;
	return true;
}

bool blocks_missing(const struct blocks *b, const struct batch_entry *e, int64_t max_tok,
		    struct batch_entry *piece)
{
	const int64_t start = batch_stored(e);
	int64_t have = start, held = start;

	for (int g = 0; g < b->n; g++) {
		const struct block_group *x = &b->group[g];
		const struct table *t = table_of(b, g, e->req);
		bool chunked = x->selects && e->kind == ROW_PREFILL;

		if (x->segment || x->linear)
			continue;
		held = lesser(held, t->n_tok);
		have = lesser(have, chunked ? t->n_chunked : held);
	}
	if (have >= start)
		return false;
	held = held > have ? held : start; /* where the piece must end */
	*piece = (struct batch_entry){ .req = e->req,
				       .start = (uint32_t)have,
				       .n_tok = (uint32_t)lesser(held - have, max_tok) };
	return true;
}
