/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The KV cache on a device: pages, and the tables of requests, by KV cache group.  The policy's
 * pool counts blocks and decides whether there is room (block_pool.h); a page holds the tokens of
 * some of its blocks.  A run without kernels has no groups, and so no tables.
 *
 * A page has page_tok tokens of all KV heads.  A request has a table in each group: its pages, in
 * the order of its tokens.  Page 0 stands in a table where a window has left a page.  Several
 * tables may list a page.  Tokens are appended to pages of one table only.
 *
 * The life of a table.  The backend describes its groups with blocks_open().  While it runs a
 * batch, from blocks_begin() to blocks_end(), it makes room in the tables: for the entries before
 * they run, and behind a dropper when it knows the rows.  sched_preempt() and sched_retire() end a
 * table with blocks_leave(); it lists no pages from the next blocks_begin() on.  So no table
 * changes while a batch is planned.  The tables of an iteration in flight stay as they were when it
 * was run.  drop() of a backend is about its other state of a request.
 *
 * Shared pages.  With blocks_follow() the tables know the keys of the policy's prefix cache, and
 * the page where the tokens of a key are.  A page that no table lists stays while a key is in it.
 * The cache need not say that a block lost its name: its next owner writes to another page, and the
 * key goes there.  When a request comes with tokens that the policy found, blocks_hit() lists whole
 * pages of them in its table.  Of a last page that is not whole the tokens are copied, as the
 * request will append to it.  If a key is smaller than a page, pages can run out.  Then the page
 * that was listed longest ago is taken from its keys.
 *
 * An evictor moves the keys that a request keeps to its first places.  blocks_fork() takes a new
 * page for each of these that another table or a key needs.  blocks_cut() lists the new pages.
 *
 * batch_table() shows the table of an entry.
 */
#ifndef AR_BLOCKS_H
#define AR_BLOCKS_H

#include "base/status.h"
#include "replay/sched/batch.h"

/* Layers of the device whose tables are equal. */
struct block_group {
	int page_tok;	/* tokens of a page */
	int window;	/* keys that a row sees; 0: all before it */
	int segment;	/* of the layers, which droppers end: each has its own numbers of tokens */
	bool linear;	/* no keys: the one page of a request is its state */
	bool selects;	/* a selector keeps state beside the tokens of a page */
	int64_t n_page; /* all pages */
};

struct block_pages;

/* The keys of a prefix cache.  Tokens with one key lie in one page, at the same places in each
 * request that has them, and so do all tokens before them in this page. */
struct block_keys {
	const void *self;
	/* Keys of group g; they are numbers from 0 on. */
	int64_t (*count)(const void *self, const struct block_group *g);
	/* The key at a multiple of this many tokens differs from the one before. */
	int64_t (*step)(const void *self, const struct block_group *g);
	/* The key of token pos of a request, or -1.  own: for its own tokens, which it computes;
	 * else for tokens that it found in the cache. */
	int64_t (*key)(const void *self, const struct block_group *g, uint32_t req, int64_t pos,
		       bool own);
	/* First tokens of a running request that the cache can find, once it leaves. */
	int64_t (*named)(const void *self, const struct block_group *g, uint32_t req);
	bool drops; /* keys need no page of one table when an evictor moves tokens into it */
};

/* Tokens [0, n_tok) of a page of group g to be copied to another one, with the selector's state. */
struct block_copy {
	int g;
	int32_t from, to;
	int n_tok;
	bool fresh; /* the batch that runs writes the tokens */
};

struct blocks {
	struct block_group *group; /* [n] */
	struct block_pages *pages; /* [n] */
	int n;
	uint32_t *left; /* [n_left] requests that have left, in order */
	size_t n_left;
	bool *leaving; /* [requests] they are in left */
	struct block_span {
		int64_t from, to;
	} * span;	  /* [requests] tokens that blocks_merge() gave other keys; to 0: none */
	uint32_t *merged; /* [n_merged] requests with some */
	size_t n_merged;
	bool running; /* a batch is */
	uint32_t n_batch;
	struct block_keys keys;	 /* count is NULL: of no cache */
	struct block_copy *copy; /* [n_copy] of the batch that runs */
	size_t n_copy, cap_copy;
	int64_t n_refilled; /* tokens that the policy's cache had, and no page */
};

/* Pages that are enough for all that a pool of num_blocks blocks of block_tok tokens can hold.
 * Each of max_seqs requests may waste a page: at its end, and for copied tokens. */
int64_t blocks_pages(int64_t num_blocks, int64_t block_tok, int64_t max_seqs, int page_tok);

/* Empty tables of n_req requests in each of n groups, and all pages free.  group is copied.
 * Release *b even after a failure.  AR_USAGE: a group has too many or too few pages. */
enum ar_status blocks_open(struct blocks *b, const struct block_group *group, int n, size_t n_req,
			   struct ar_err *err);
void blocks_release(struct blocks *b);

/* A batch runs from now on: requests that have left are gone, the first one first. */
void blocks_begin(struct blocks *b);
void blocks_end(struct blocks *b);
/* Request req has finished or is preempted.  No batch runs.  With keys, the prefix cache has named
 * its blocks, and the request still has them. */
void blocks_leave(struct blocks *b, uint32_t req);

/* The tables follow the keys of a cache, of which they know no token yet.  They follow none after
 * blocks_unfollow(), and after a failure: AR_NOMEM. */
enum ar_status blocks_follow(struct blocks *b, const struct block_keys *keys, struct ar_err *err);
void blocks_unfollow(struct blocks *b);
/* Request req, which runs, has found tokens [from, to) that it computed itself: from the next
 * blocks_begin() on it lists the pages where they were found. */
void blocks_merge(struct blocks *b, uint32_t req, int64_t from, int64_t to);
/* The tokens of req with keys that lie in [from, to) are not found any more. */
void blocks_forget(struct blocks *b, uint32_t req, int64_t from, int64_t to);

/* ---- the table of request req in group g; it changes while a batch runs ---- */

/* Make room for tokens [0, n_tok).  AR_NOMEM: the pages run out; the table stays as it was. */
enum ar_status blocks_grow(struct blocks *b, int g, uint32_t req, int64_t n_tok,
			   struct ar_err *err);
/* Find pages for the n_tok tokens that an event leaves, in all groups: blocks_forked().  The table
 * stays as it is, for the event to read.  AR_NOMEM: the pages run out. */
enum ar_status blocks_fork(struct blocks *b, uint32_t req, int64_t n_tok, struct ar_err *err);
const int32_t *blocks_forked(const struct blocks *b, int g); /* borrowed; NULL: none */
/* The request stores n_tok tokens from now on, in all groups: list the pages of blocks_fork(), if
 * it was called, and leave the others.  Tokens lie in other places than before, so the state of
 * selectors is out of date. */
void blocks_cut(struct blocks *b, uint32_t req, int64_t n_tok);
/* Leave the pages that lie before token n_tok, which the request does not read again. */
void blocks_trim(struct blocks *b, int g, uint32_t req, int64_t n_tok);

const int32_t *blocks_table(const struct blocks *b, int g, uint32_t req); /* borrowed */
/* Tokens that the table has room for. */
int64_t blocks_len(const struct blocks *b, int g, uint32_t req);
int64_t blocks_free(const struct blocks *b, int g); /* pages that no table lists and no key is in */
int64_t blocks_kept(const struct blocks *b, int g); /* pages that no table lists and a key is in */

/* ---- requests, in all groups ---- */

/* Before e runs, and after the entries before it in its batch: if its tables are empty, list the
 * pages of tokens below e->start that the policy found.  Where there is none, the rest are missing,
 * see blocks_missing().  b->copy gets what the backend copies in each layer, once the keys of the
 * batch are there and before a row looks at them.  AR_NOMEM: the pages run out. */
enum ar_status blocks_hit(struct blocks *b, const struct batch_entry *e, struct ar_err *err);

/* Make room for the tokens of e in every group of segment 0, before e runs.  Free the pages that
 * neither e nor a later entry will read.  AR_NOMEM: the pages run out. */
enum ar_status blocks_place(struct blocks *b, const struct batch_entry *e, struct ar_err *err);
/* The same in the groups of a segment, where the rows of e lie at [start, end). */
enum ar_status blocks_place_rows(struct blocks *b, int segment, const struct batch_entry *e,
				 int64_t start, int64_t end, struct ar_err *err);

/* True: the tables of the request already hold the tokens of e.  It looks at groups of segment 0
 * only, and so does blocks_missing(). */
bool blocks_hold(const struct blocks *b, const struct batch_entry *e);

/* Find stored tokens before e that must be computed first.  True: *piece is an entry of the next
 * ones, at most max_tok.  Missing are tokens that the tables do not hold, as when the policy found
 * them in its prefix cache.  If e is a chunk and a selector keeps state, tokens that no chunk
 * computed are missing too.  The tables hold all of a piece or nothing. */
bool blocks_missing(const struct blocks *b, const struct batch_entry *e, int64_t max_tok,
		    struct batch_entry *piece);

/* The table of entry e of a batch in group g. */
static inline const int32_t *batch_table(const struct batch *b, const struct batch_entry *e, int g)
{
	return blocks_table(b->blocks, g, e->req);
}

#endif
