/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "replay/sched/blocks.h"

#include <stdlib.h>

struct held { /* by one request */
	int32_t *page;
	int32_t n, cap;
	int32_t n_freed; /* by pages_trim() */
	int64_t n_tok, n_chunked;
};

struct pages {
	int32_t *free; /* a stack: what was freed last is taken first */
	int64_t n_free, n_page;
	struct held *req;
	size_t n_req;
	int page_tok;
};

static int64_t pages_for(int64_t n_tok, int page_tok)
{
	return (n_tok + page_tok - 1) / page_tok;
}

int64_t pages_needed(int64_t num_blocks, int64_t block_tok, int64_t max_seqs, int page_tok)
{
	return pages_for(num_blocks * block_tok, page_tok) + max_seqs;
}

enum ar_status pages_open(struct pages **out, int64_t n_page, int page_tok, size_t n_req,
			  struct ar_err *err)
{
	struct pages *p;

	*out = NULL;
	if (n_page < 1 || n_page > INT32_MAX / page_tok) /* slots are 32-bit numbers */
		return ar_fail(err, AR_USAGE,
			       "a KV cache of %lld pages of %d tokens is out of range "
			       "1...%d; change --num-gpu-blocks",
			       (long long)n_page, page_tok, INT32_MAX / page_tok);
	p = calloc(1, sizeof *p);
	if (!p)
		return ar_nomem(err);
	p->free = malloc((size_t)n_page * sizeof *p->free);
	p->req = calloc(n_req ? n_req : 1, sizeof *p->req);
	if (!p->free || !p->req) {
		pages_close(p);
		return ar_nomem(err);
	}
	p->n_page = p->n_free = n_page;
	p->n_req = n_req;
	p->page_tok = page_tok;
	for (int64_t i = 0; i < n_page; i++)
		p->free[i] = (int32_t)(n_page - 1 - i);
	*out = p;
	return AR_OK;
}

void pages_close(struct pages *p)
{
	if (!p)
		return;
	for (size_t i = 0; i < p->n_req; i++)
		free(p->req[i].page);
	free(p->req);
	free(p->free);
	free(p);
}

enum ar_status pages_grow(struct pages *p, uint32_t req, int64_t n_tok, struct ar_err *err)
{
	struct held *h = &p->req[req];
	int64_t want = pages_for(n_tok, p->page_tok);

	if (want - h->n > p->n_free)
		return ar_fail(err, AR_NOMEM,
			       "the KV cache is full: request %u needs %lld more of %lld "
			       "pages, %lld are free; raise --num-gpu-blocks",
			       (unsigned)req, (long long)(want - h->n), (long long)p->n_page,
			       (long long)p->n_free);
	if (want > h->cap) {
		int64_t cap = want > 2 * (int64_t)h->cap ? want : 2 * (int64_t)h->cap;
		int32_t *page = realloc(h->page, (size_t)cap * sizeof *page);

		if (!page)
			return ar_nomem(err);
		h->page = page;
		h->cap = (int32_t)cap;
	}
	while (h->n < want)
		h->page[h->n++] = p->free[--p->n_free];
	if (n_tok > h->n_tok)
		h->n_tok = n_tok;
	return AR_OK;
}

void pages_drop(struct pages *p, uint32_t req)
{
	struct held *h = &p->req[req];

	while (h->n > h->n_freed)
		p->free[p->n_free++] = h->page[--h->n];
	h->n = h->n_freed = 0;
	h->n_tok = h->n_chunked = 0;
}

void pages_trim(struct pages *p, uint32_t req, int64_t n_tok)
{
	struct held *h = &p->req[req];

	while (h->n_freed < h->n && (int64_t)(h->n_freed + 1) * p->page_tok <= n_tok) {
		p->free[p->n_free++] = h->page[h->n_freed];
		h->page[h->n_freed++] = 0;
	}
}

int64_t pages_len(const struct pages *p, uint32_t req)
{
	return p->req[req].n_tok;
}

void pages_set_chunked(struct pages *p, uint32_t req, int64_t n_tok)
{
	if (n_tok > p->req[req].n_chunked)
		p->req[req].n_chunked = n_tok;
}

int64_t pages_chunked(const struct pages *p, uint32_t req)
{
	return p->req[req].n_chunked;
}

const int32_t *pages_of(const struct pages *p, uint32_t req)
{
	return p->req[req].page;
}

int64_t pages_free(const struct pages *p)
{
	return p->n_free;
}
