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
	struct block_copy copied;
};

struct block_pages {
	int32_t *free; /* a stack: the page freed last is taken first */
	int64_t n_free;
	uint32_t *n_ref;     /* [n_page] tables that list the page */
	struct table *table; /* [n_req] */
	size_t n_req;
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
	p->n_ref = calloc((size_t)n, sizeof *p->n_ref);
	p->table = calloc(n_req ? n_req : 1, sizeof *p->table);
	if (!p->free || !p->n_ref || !p->table)
		return ar_nomem(err);
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
			      .leaving = calloc(n_req + 1, sizeof *b->leaving) };
	if (!b->group || !b->pages || !b->left || !b->leaving)
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
		free(p->n_ref);
		free(p->free);
	}
	free(b->group);
	free(b->pages);
	free(b->left);
	free(b->leaving);
	*b = (struct blocks){ 0 };
}

/* ---- tables ---- */

static struct table *table_of(const struct blocks *b, int g, uint32_t req)
{
	return &b->pages[g].table[req];
}

static int32_t take_page(struct block_pages *p)
{
	int32_t page = p->free[--p->n_free];

	p->n_ref[page] = 1;
	return page;
}

/* A table lists the page no more. */
static void leave_page(struct block_pages *p, int32_t page)
{
	if (!--p->n_ref[page])
		p->free[p->n_free++] = page;
}

/* The place in t of the page that the next token shares with other tables, or -1. */
static int32_t shared_end(const struct block_pages *p, const struct table *t, int page_tok)
{
	int32_t k = (int32_t)(t->n_tok / page_tok);

	return t->n_tok % page_tok && k >= t->n_gone && p->n_ref[t->page[k]] > 1 ? k : -1;
}

/* Replace the page at place k, which other tables list. */
static struct block_copy replace_page(struct block_pages *p, struct table *t, int32_t k)
{
	struct block_copy c = { t->page[k], take_page(p) };

	leave_page(p, c.from);
	t->page[k] = c.to;
	return c;
}

enum ar_status blocks_grow(struct blocks *b, int g, uint32_t req, int64_t n_tok, struct ar_err *err)
{
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);
	int tok = b->group[g].page_tok;
	int32_t shared = n_tok > t->n_tok ? shared_end(p, t, tok) : -1;
	int64_t want = pages_for(n_tok, tok), more = want - t->n + (shared >= 0);

	assert(b->running);
	if (more > p->n_free)
		return ar_fail(err, AR_NOMEM,
			       "the KV cache is full: request %u needs %lld more of %lld "
			       "pages, %lld are free; raise --num-gpu-blocks",
			       (unsigned)req, (long long)more, (long long)b->group[g].n_page,
			       (long long)p->n_free);
	if (!GROW(t->page, t->cap, (size_t)want))
		return ar_nomem(err);
	t->copied = shared < 0 ? (struct block_copy){ 0 } : replace_page(p, t, shared);
	while (t->n < want)
		t->page[t->n++] = take_page(p);
	if (n_tok > t->n_tok)
		t->n_tok = n_tok;
	return AR_OK;
}

struct block_copy blocks_copied(const struct blocks *b, int g, uint32_t req)
{
	return table_of(b, g, req)->copied;
}

enum ar_status blocks_share(struct blocks *b, int g, uint32_t from, uint32_t req, int64_t n_tok,
			    struct ar_err *err)
{
	const struct table *f = table_of(b, g, from);
	struct table *t = table_of(b, g, req);
	int64_t n = pages_for(n_tok, b->group[g].page_tok);

	assert(b->running && !b->group[g].linear && !t->n);
	assert(n_tok <= f->n_tok && f->n_gone < n);
	if (!GROW(t->page, t->cap, (size_t)n))
		return ar_nomem(err);
	memcpy(t->page, f->page, (size_t)n * sizeof *t->page);
	for (int64_t k = f->n_gone; k < n; k++)
		b->pages[g].n_ref[t->page[k]]++;
	t->n = (int32_t)n;
	t->n_gone = f->n_gone;
	t->n_tok = n_tok;
	t->n_chunked = lesser(f->n_chunked, n_tok);
	return AR_OK;
}

void blocks_trim(struct blocks *b, int g, uint32_t req, int64_t n_tok)
{
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);

	assert(b->running);
	while (t->n_gone < t->n && (int64_t)(t->n_gone + 1) * b->group[g].page_tok <= n_tok) {
		leave_page(p, t->page[t->n_gone]);
		t->page[t->n_gone++] = 0;
	}
}

static void empty(struct blocks *b, int g, uint32_t req)
{
	struct block_pages *p = &b->pages[g];
	struct table *t = table_of(b, g, req);

	while (t->n > t->n_gone)
		leave_page(p, t->page[--t->n]);
	t->n = t->n_gone = 0;
	t->n_tok = t->n_chunked = 0;
	t->copied = (struct block_copy){ 0 };
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

/* ---- requests ---- */

void blocks_begin(struct blocks *b)
{
	b->running = true;
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
}

/* A request may leave twice: preempted while its last output is in flight, it finishes later. */
void blocks_leave(struct blocks *b, uint32_t req)
{
	assert(!b->running);
	if (b->leaving[req])
		return;
	b->leaving[req] = true;
	b->left[b->n_left++] = req;
}

enum ar_status blocks_place(struct blocks *b, const struct batch_entry *e, struct ar_err *err)
{
	return blocks_place_rows(b, 0, e, e->start, (int64_t)e->start + e->n_tok, err);
}

enum ar_status blocks_place_rows(struct blocks *b, int segment, const struct batch_entry *e,
				 int64_t start, int64_t end, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int g = 0; g < b->n && !st; g++) {
		const struct block_group *x = &b->group[g];
		struct table *t = table_of(b, g, e->req);

		if (x->segment != segment)
			continue;
		if (x->window)
			blocks_trim(b, g, e->req, start - x->window + 1);
		st = blocks_grow(b, g, e->req, x->linear ? 1 : end, err);
		if (!st && e->kind == ROW_PREFILL && end > t->n_chunked)
			t->n_chunked = end;
	}
	return st;
}

bool blocks_hold(const struct blocks *b, const struct batch_entry *e)
{
	int64_t end = (int64_t)e->start + e->n_tok;

	for (int g = 0; g < b->n; g++)
		if (!b->group[g].segment && !b->group[g].linear && blocks_len(b, g, e->req) < end)
			return false;
	return true;
}

bool blocks_missing(const struct blocks *b, const struct batch_entry *e, int64_t max_tok,
		    struct batch_entry *piece)
{
	int64_t have = e->start, held = e->start;

	for (int g = 0; g < b->n; g++) {
		const struct block_group *x = &b->group[g];
		const struct table *t = table_of(b, g, e->req);
		bool chunked = x->selects && e->kind == ROW_PREFILL;

		if (x->segment || x->linear)
			continue;
		held = lesser(held, t->n_tok);
		have = lesser(have, chunked ? t->n_chunked : held);
	}
	if (have >= e->start)
		return false;
	held = held > have ? held : e->start; /* where the piece must end */
	*piece = (struct batch_entry){ .req = e->req,
				       .start = (uint32_t)have,
				       .n_tok = (uint32_t)lesser(held - have, max_tok) };
	return true;
}
