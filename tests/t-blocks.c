/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the KV cache and the tables of requests. */
#include "config.h"
#include "replay/sched/blocks.h"

#include <string.h>

#include "base/rng.h"
#include "replay/engine/replay.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { TOK = 64 };

static struct blocks b;

/* Tables of n_req requests in one group. */
static void open_one(struct block_group group, size_t n_req)
{
	struct ar_err err;

	if (blocks_open(&b, &group, 1, n_req, &err))
		bail_out("%s", err.msg);
	blocks_begin(&b);
}

/* Empty the tables of request q. */
static void drop(uint32_t q)
{
	blocks_end(&b);
	blocks_leave(&b, q);
	blocks_begin(&b);
}

static enum ar_status grow(uint32_t req, int64_t n_tok)
{
	struct ar_err err;

	return blocks_grow(&b, 0, req, n_tok, &err);
}

static const int32_t *table(uint32_t req)
{
	return blocks_table(&b, 0, req);
}

static void test_tables(void)
{
	struct ar_err err;
	int32_t first;

	is_int(blocks_pages(1000, 16, 7, 128), 125 + 7,
	       "every request may waste the end of a page");
	is_int(blocks_pages(1001, 16, 0, 128), 126, "a part of a page is a page");
	open_one((struct block_group){ .page_tok = TOK, .n_page = 4 }, 3);
	is_int(grow(0, 1), AR_OK, "the first token takes a page");
	first = table(0)[0];
	is_int(grow(0, TOK), AR_OK, "63 more need none");
	is_int(blocks_free(&b, 0), 3, "three are left");
	is_int(grow(0, TOK + 1), AR_OK, "the next one does");
	is_int(blocks_free(&b, 0), 2, "two are left");
	is_int(table(0)[0], first, "what a table lists stays where it is");
	is_int(grow(0, 5), AR_OK, "asking for less is fine");
	is_int(blocks_len(&b, 0, 0), TOK + 1, "and takes nothing away");
	is_int(grow(1, TOK + 1), AR_OK, "another request takes the rest");
	ok(table(1)[0] != table(1)[1] && table(1)[0] != table(0)[0] && table(1)[0] != table(0)[1] &&
		   table(1)[1] != table(0)[0] && table(1)[1] != table(0)[1],
	   "no page is listed twice");
	is_int(blocks_grow(&b, 0, 1, 2 * TOK + 1, &err), AR_NOMEM, "exhaustion is an error");
	is_str(err.msg,
	       "the KV cache is full: request 1 needs 1 more of 4 pages, 0 are free; "
	       "raise --num-gpu-blocks",
	       "the message says what is missing");
	is_int(blocks_len(&b, 0, 1), TOK + 1, "and the table stays as it was");
	drop(0);
	is_int(blocks_free(&b, 0), 2, "leaving gives pages back");
	is_int(blocks_len(&b, 0, 0), 0, "and empties the table");
	is_int(grow(1, 4 * TOK), AR_OK, "others can have them");
	drop(2);
	is_int(blocks_free(&b, 0), 0, "leaving an empty table does nothing");
	blocks_release(&b);
}

/* A window leaves pages. */
static void test_trim(void)
{
	int32_t third;

	open_one((struct block_group){ .page_tok = TOK, .n_page = 6 }, 2);
	if (grow(0, 4 * TOK + 1))
		bail_out("no pages");
	third = table(0)[2];
	blocks_trim(&b, 0, 0, -5);
	blocks_trim(&b, 0, 0, TOK - 1);
	is_int(blocks_free(&b, 0), 1, "a page with one token in sight stays");
	blocks_trim(&b, 0, 0, TOK);
	is_int(blocks_free(&b, 0), 2, "one that is out of sight is free");
	blocks_trim(&b, 0, 0, 2 * TOK + 7);
	blocks_trim(&b, 0, 0, TOK);
	ok(blocks_free(&b, 0) == 3 && table(0)[0] == 0 && table(0)[1] == 0 && table(0)[2] == third,
	   "as is the next one, and pages keep their places");
	is_int(blocks_len(&b, 0, 0), 4 * TOK + 1, "the request is as long as before");
	is_int(grow(0, 8 * TOK), AR_OK, "it takes the free ones again");
	is_int(grow(0, 8 * TOK + 1), AR_NOMEM, "but no more than there are");
	drop(0);
	is_int(blocks_free(&b, 0), 6, "dropped, it gives back each page once");
	if (grow(1, 6 * TOK))
		bail_out("no pages");
	for (int i = 0; i < 6; i++)
		for (int k = 0; k < i; k++)
			if (table(1)[i] == table(1)[k])
				bail_out("a page is listed twice");
	blocks_trim(&b, 0, 1, 100 * TOK);
	is_int(blocks_free(&b, 0), 6, "no page that a table does not list is freed");
	blocks_release(&b);
}

/* ---- entries ---- */

static enum ar_status place(const struct batch_entry *e)
{
	struct ar_err err;

	return blocks_place(&b, e, &err);
}

/* An evictor leaves fewer tokens, in the first pages. */
static void test_cut(void)
{
	struct batch_entry e = { .start = 300, .n_tok = 9, .gone = 200 }, piece;
	int32_t first;

	open_one((struct block_group){ .page_tok = TOK, .selects = true, .n_page = 5 }, 2);
	is_int(grow(0, 300), AR_OK, "300 tokens take all pages");
	first = table(0)[0];
	blocks_cut(&b, 0, 100);
	is_int(blocks_len(&b, 0, 0), 100, "100 of them are left");
	is_int(blocks_free(&b, 0), 3, "three pages are free");
	is_int(table(0)[0], first, "the first ones stay");
	ok(!blocks_hold(&b, &e), "tokens behind them have no room");
	ok(blocks_missing(&b, &e, 999, &piece) && piece.start == 0 && piece.n_tok == 100,
	   "a selector has seen none of what is left");
	is_int(grow(0, 109), AR_OK, "tokens are added behind what is left");
	ok(blocks_hold(&b, &e), "... and have room");
	blocks_release(&b);
}

static void test_missing(void)
{
	struct batch_entry e = { .req = 0, .start = 300, .n_tok = 10 }, piece, decode = e;

	decode.kind = ROW_DECODE;
	decode.n_tok = 1;
	open_one((struct block_group){ .page_tok = TOK, .n_page = 10 }, 1);
	ok(blocks_missing(&b, &e, 200, &piece) && piece.start == 0 && piece.n_tok == 200 &&
		   !piece.n_emit,
	   "a prefix that was never computed here is missing");
	is_int(place(&piece), AR_OK, "after the first piece");
	b.group[0].selects = true;
	ok(blocks_missing(&b, &e, 200, &piece) && piece.start == 200 && piece.n_tok == 100,
	   "the rest is");
	is_int(place(&piece), AR_OK, "after the second");
	ok(!blocks_missing(&b, &e, 200, &piece), "nothing is");
	is_int(place(&decode), AR_OK, "after a decode");
	e.start = decode.start = 301;
	b.group[0].selects = false;
	ok(!blocks_missing(&b, &e, 200, &piece), "nor without state");
	b.group[0].selects = true;
	ok(!blocks_missing(&b, &decode, 200, &piece), "nor before a decode with it");
	ok(blocks_missing(&b, &e, 200, &piece) && piece.start == 300 && piece.n_tok == 1,
	   "but to a selector with state its token is");
	is_int(place(&e), AR_OK, "after a chunk at the same place");
	e.start = 311;
	ok(!blocks_missing(&b, &e, 200, &piece), "nothing is");
	drop(0);
	ok(blocks_missing(&b, &e, 500, &piece) && piece.start == 0 && piece.n_tok == 311,
	   "after a preemption everything is");
	blocks_release(&b);
}

/* The groups of a full layer, of one behind a dropper, of a window and of a linear layer. */
static void test_groups(void)
{
	const struct block_group group[] = { { .page_tok = TOK, .n_page = 20 },
					     { .page_tok = TOK, .n_page = 20, .segment = 1 },
					     { .page_tok = 8, .n_page = 20, .window = 9 },
					     { .page_tok = 1, .n_page = 2, .linear = true } };
	const struct batch_entry e = { .req = 1, .n_tok = 100 },
				 next = { .req = 1, .start = 100, .n_tok = 30 };
	const struct batch batch = { .blocks = &b };
	struct batch_entry piece;
	struct ar_err err;

	if (blocks_open(&b, group, 4, 2, &err))
		bail_out("%s", err.msg);
	blocks_begin(&b);
	ok(!blocks_hold(&b, &e) && !place(&e) && blocks_hold(&b, &e), "an entry has room");
	ok(blocks_free(&b, 0) == 18 && blocks_free(&b, 1) == 20 && blocks_free(&b, 2) == 7 &&
		   blocks_free(&b, 3) == 1,
	   "in every group of the first segment");
	is_int(blocks_place_rows(&b, 1, &e, 0, 10, &err), AR_OK, "it has rows behind a dropper");
	ok(blocks_free(&b, 1) == 19 && blocks_len(&b, 1, 1) == 10 && blocks_len(&b, 0, 1) == 100,
	   "where the request is shorter");
	ok(!place(&next) && blocks_free(&b, 2) == 20 - 6 && blocks_free(&b, 3) == 1,
	   "windows give pages back, and a state stays where it is");
	ok(batch_table(&batch, &next, 2)[10] == 0 && batch_table(&batch, &next, 2)[11] != 0 &&
		   batch_table(&batch, &next, 2) == blocks_table(&b, 2, 1) &&
		   !batch_table(&batch, &(struct batch_entry){ .req = 0 }, 2),
	   "a batch shows the tables of its requests");
	drop(1);
	ok(blocks_free(&b, 0) == 20 && blocks_free(&b, 1) == 20 && blocks_free(&b, 2) == 20 &&
		   blocks_free(&b, 3) == 2,
	   "all groups forget a request");
	ok(!blocks_missing(&b, &e, 7, &piece) && blocks_missing(&b, &next, 7, &piece) &&
		   piece.n_tok == 7,
	   "which is missing again");
	blocks_release(&b);
	ok(!b.n && !b.group, "released, there are no tables");
}

/* ---- pages that tables share ---- */

enum { KEY_TOK = 4, KEYS = 64, KEY_REQS = 8, KEY_LEN = 64 };

/* Blocks of a pool in plain C, and the tokens of requests.  A block holds what its text says: all
 * tokens up to its end. */
static struct pool {
	struct text {
		int token[KEY_LEN], n;
	} of[KEY_REQS], block[KEYS];
	int n_owner[KEYS], used[KEYS]; /* when it was released */
	bool named[KEYS];
	int table[KEY_REQS][KEY_LEN / KEY_TOK], n_block[KEY_REQS], n_named[KEY_REQS];
	int block_tok, n_blocks, now, n_token;
} pool;

static int64_t divisor(int64_t a, int64_t m)
{
	return m ? divisor(m, a % m) : a;
}

static int64_t pool_step(const void *self, const struct block_group *g)
{
	(void)self;
	return divisor(pool.block_tok, g->page_tok);
}

static int64_t pool_count(const void *self, const struct block_group *g)
{
	return pool.n_blocks * (pool.block_tok / pool_step(self, g));
}

static int64_t pool_key(const void *self, const struct block_group *g, uint32_t req, int64_t pos,
			bool own)
{
	int64_t tok = pool.block_tok, step = pool_step(self, g);

	(void)own;
	return pos / tok < pool.n_block[req] ?
		       pool.table[req][pos / tok] * (tok / step) + pos % tok / step :
		       -1;
}

static int64_t pool_named(const void *self, const struct block_group *g, uint32_t req)
{
	(void)self, (void)g;
	return pool.n_named[req] * pool.block_tok;
}

static const struct block_keys pool_keys = { NULL,     pool_count, pool_step,
					     pool_key, pool_named, false };

/* A pool of n blocks, which the tables follow. */
static void open_pool(const struct block_group *group, int n_group, int block_tok, int n)
{
	struct ar_err err;

	pool = (struct pool){ .block_tok = block_tok, .n_blocks = n };
	if (blocks_open(&b, group, n_group, KEY_REQS, &err) || blocks_follow(&b, &pool_keys, &err))
		bail_out("%s", err.msg);
}

/* The named block with the first n tokens of t, or -1. */
static int find_block(const struct text *t, int n)
{
	for (int i = 0; i < pool.n_blocks; i++)
		if (pool.named[i] && pool.block[i].n == n &&
		    !memcmp(pool.block[i].token, t->token, (size_t)n * sizeof *t->token))
			return i;
	return -1;
}

/* Take the free block that was released longest ago, or -1. */
static int take_block(void)
{
	int best = -1;

	for (int i = 0; i < pool.n_blocks; i++)
		if (!pool.n_owner[i] && (best < 0 || pool.used[i] < pool.used[best]))
			best = i;
	if (best >= 0) {
		pool.named[best] = false;
		pool.n_owner[best] = 1;
	}
	return best;
}

/* Take the blocks of a request with the first n tokens of its text that others named.  Returns
 * their tokens. */
static int match(uint32_t req, int n)
{
	int hit = 0, i;

	while (hit + pool.block_tok <= n &&
	       (i = find_block(&pool.of[req], hit + pool.block_tok)) >= 0) {
		pool.n_owner[i]++;
		pool.table[req][pool.n_block[req]++] = i;
		hit += pool.block_tok;
	}
	pool.n_named[req] = pool.n_block[req];
	return hit;
}

/* Make blocks for n tokens of a request, and name the full ones.  False: too few are free. */
static bool reserve(uint32_t req, int n)
{
	int tok = pool.block_tok, i;

	while (pool.n_block[req] * tok < n) {
		if ((i = take_block()) < 0)
			return false;
		pool.table[req][pool.n_block[req]++] = i;
	}
	for (; (pool.n_named[req] + 1) * tok <= n; pool.n_named[req]++) {
		i = pool.table[req][pool.n_named[req]];
		pool.block[i] = pool.of[req];
		pool.block[i].n = (pool.n_named[req] + 1) * tok;
		pool.named[i] = true;
	}
	return true;
}

static void release(uint32_t req)
{
	blocks_leave(&b, req);
	while (pool.n_block[req]) {
		int i = pool.table[req][--pool.n_block[req]];

		if (!--pool.n_owner[i])
			pool.used[i] = ++pool.now;
	}
	pool.n_named[req] = 0;
}

/* Tokens of a request: n of another one, and new ones up to `len`. */
static void write_text(uint32_t req, uint32_t from, int n, int len)
{
	struct text *t = &pool.of[req];

	*t = pool.of[from];
	for (int i = n; i < KEY_LEN; i++)
		t->token[i] = ++pool.n_token;
	t->n = len;
}

/* Plan and run a request up to its n-th token, in a batch of its own. */
static enum ar_status run_text(uint32_t req, int n)
{
	int hit = pool.n_block[req] ? (int)blocks_len(&b, 0, req) : match(req, n - 1);
	struct batch_entry e = { .req = req, .start = (uint32_t)hit, .n_tok = (uint32_t)(n - hit) };
	struct ar_err err;
	enum ar_status st;

	if (!reserve(req, n))
		bail_out("no blocks");
	blocks_begin(&b);
	st = blocks_hit(&b, &e, &err);
	return st ? st : blocks_place(&b, &e, &err);
}

static bool lists(uint32_t req, int n, const int32_t *page)
{
	return !memcmp(table(req), page, (size_t)n * sizeof *page);
}

static bool copies(int32_t from, int32_t to, int n_tok)
{
	return b.n_copy == 1 && b.copy->from == from && b.copy->to == to && b.copy->n_tok == n_tok;
}

/* Blocks of four tokens, pages of eight. */
static void test_hits(void)
{
	const struct block_group group = { .page_tok = 8, .n_page = 7, .selects = true };
	const struct batch_entry next = { .req = 1, .start = 20, .n_tok = 7 };
	struct batch_entry piece;

	open_pool(&group, 1, KEY_TOK, 20);
	write_text(0, 0, 0, 22);
	write_text(1, 0, 20, 27);
	write_text(2, 0, 16, 21);
	ok(!run_text(0, 22) && !b.n_copy && lists(0, 3, (int32_t[]){ 0, 1, 2 }),
	   "a prompt of 22 tokens takes three pages");
	blocks_end(&b);
	ok(!run_text(1, 27) && lists(1, 4, (int32_t[]){ 0, 1, 3, 4 }) && copies(2, 3, 4) &&
		   !b.copy->fresh,
	   "one that finds 20 of them shares two, and copies four tokens");
	ok(!blocks_missing(&b, &next, 100, &piece), "a selector has seen them");
	blocks_end(&b);
	ok(!run_text(2, 21) && lists(2, 3, (int32_t[]){ 0, 1, 5 }) && !b.n_copy,
	   "one that finds 16 copies nothing");
	blocks_end(&b);
	release(0);
	blocks_begin(&b);
	ok(blocks_free(&b, 0) == 1 && blocks_kept(&b, 0) == 1,
	   "the first ends: its last page stays, as a block with a name is there");
	blocks_end(&b);
	release(1);
	release(2);
	blocks_begin(&b);
	ok(blocks_free(&b, 0) == 2 && blocks_kept(&b, 0) == 5,
	   "all end: pages without a named block are free");
	blocks_end(&b);
	write_text(3, 1, 27, 28);
	ok(!run_text(3, 28) && lists(3, 3, (int32_t[]){ 0, 1, 3 }) && copies(4, 6, 0) == false &&
		   blocks_len(&b, 0, 3) == 28,
	   "they are found again");
	blocks_end(&b);
	ok(!b.n_refilled, "no token was computed twice");
	blocks_unfollow(&b);
	release(3);
	blocks_begin(&b);
	is_int(blocks_free(&b, 0), 7, "without keys all pages are free");
	blocks_release(&b);
}

/* Two requests of one batch have a prefix that the first computes; pages that run out. */
static void test_batch_of_hits(void)
{
	const struct block_group group = { .page_tok = 8, .n_page = 5 };

	open_pool(&group, 1, KEY_TOK, 20);
	write_text(0, 0, 0, 13);
	write_text(1, 0, 12, 14);
	ok(!run_text(0, 13), "a prompt runs");
	b.running = false; /* in the same batch */
	b.n_batch--;
	ok(!run_text(1, 14) && lists(1, 2, (int32_t[]){ 0, 2 }) && copies(1, 2, 4) && b.copy->fresh,
	   "another finds 12 tokens that the batch computes");
	blocks_end(&b);
	ok(!b.n_copy, "the copies are those of a batch");
	release(0);
	release(1);
	write_text(3, 0, 0, 30);
	ok(!run_text(3, 30) && blocks_kept(&b, 0) == 1, "a long prompt takes all but one page");
	blocks_end(&b);
	write_text(2, 0, 12, 14);
	is_int(run_text(2, 14), AR_NOMEM,
	       "to copy tokens of the last one, a request needs another");
	blocks_end(&b);
	blocks_release(&b);
}

/* A request gets blocks with names, and is preempted before it runs. */
static void test_forget(void)
{
	const struct block_group group = { .page_tok = 8, .n_page = 5 };

	open_pool(&group, 1, KEY_TOK, 2);
	write_text(0, 0, 0, 8);
	write_text(1, 0, 0, 8);
	write_text(2, 1, 8, 8);
	if (run_text(0, 8))
		bail_out("no pages");
	blocks_end(&b);
	release(0);
	if (!reserve(1, 8))
		bail_out("no blocks");
	blocks_forget(&b, 1, 0, 8);
	release(1);
	ok(!run_text(2, 8) && b.n_refilled == KEY_TOK && !b.n_copy,
	   "tokens of blocks that never ran are on no page");
	blocks_end(&b);
	blocks_release(&b);
}

enum { STEPS = 100000, MOST_PAGES = 64, PAGE = 8 };

/* What the pages of each group hold. */
struct cells {
	int token[2][MOST_PAGES][PAGE];
	int start[KEY_REQS]; /* of the last entry of each request */
	int hits, copied, preempted, full, shared, refused;
	bool right;
};

/* Rows [start, end) of a request are written. */
static void write_cells(struct cells *x, uint32_t q, int start, int end)
{
	for (int g = 0; g < b.n; g++)
		for (int i = start; i < end; i++)
			x->token[g][blocks_table(&b, g, q)[i / PAGE]][i % PAGE] =
				pool.of[q].token[i];
}

/* Each request finds the tokens that its next row looks at, and pages are counted. */
static void check_cells(struct cells *x)
{
	for (int g = 0; g < b.n && x->right; g++) {
		bool listed[MOST_PAGES] = { false };
		int64_t n = 0;

		for (uint32_t q = 0; q < KEY_REQS; q++) {
			int len = (int)blocks_len(&b, g, q);
			int first = x->start[q] - b.group[g].window + 1;
			const int32_t *page = blocks_table(&b, g, q);

			first = b.group[g].window && first > 0 ? first : 0;
			for (int i = first; i < len; i++)
				x->right &= x->token[g][page[i / PAGE]][i % PAGE] ==
					    pool.of[q].token[i];
			for (int i = first / PAGE * PAGE; i < len; i += PAGE) {
				x->shared += listed[page[i / PAGE]];
				listed[page[i / PAGE]] = true;
			}
		}
		for (int i = 0; i < b.group[g].n_page; i++)
			n += listed[i];
		x->right &= n + blocks_free(&b, g) + blocks_kept(&b, g) == b.group[g].n_page;
	}
}

/* Run an entry as a backend does, but for its copies. */
static enum ar_status run_entry(struct cells *x, const struct batch_entry *e)
{
	struct batch_entry piece;
	struct ar_err err;
	enum ar_status st = blocks_hit(&b, e, &err);

	while (!st && blocks_missing(&b, e, 5, &piece)) {
		st = blocks_place(&b, &piece, &err);
		if (!st)
			write_cells(x, e->req, (int)piece.start, (int)(piece.start + piece.n_tok));
	}
	st = st ? st : blocks_place(&b, e, &err);
	x->start[e->req] = (int)e->start;
	if (!st)
		write_cells(x, e->req, (int)e->start, (int)(e->start + e->n_tok));
	return st;
}

static void run_copies(struct cells *x)
{
	for (size_t i = 0; i < b.n_copy; i++) {
		const struct block_copy *c = &b.copy[i];

		memcpy(x->token[c->g][c->to], x->token[c->g][c->from],
		       (size_t)c->n_tok * sizeof x->token[0][0][0]);
		x->copied += c->n_tok;
	}
}

/* Plan a chunk of q, or a token.  False: the pool is full, and it is preempted. */
static bool plan_entry(struct cells *x, uint32_t q, struct rng *r, struct batch_entry *e)
{
	bool runs = pool.n_block[q];
	int len = runs ? (int)blocks_len(&b, 0, q) : 0, n;

	if (!runs && rng_below(r, 4)) /* else it is back with its own tokens */
		write_text(q, (uint32_t)rng_below(r, KEY_REQS), (int)rng_below(r, KEY_LEN / 2), 0);
	if (!runs) {
		len = match(q, 1 + (int)rng_below(r, KEY_LEN / 2));
		x->hits += len > 0;
	}
	n = rng_below(r, 3) ? 1 : 1 + (int)rng_below(r, 12);
	*e = (struct batch_entry){ .req = q, .start = (uint32_t)len, .n_tok = (uint32_t)n };
	if (len + n <= KEY_LEN && reserve(q, len + n))
		return true;
	release(q);
	x->preempted++;
	return false;
}

static void step(struct cells *x, struct rng *r)
{
	struct batch_entry e[KEY_REQS];
	bool in[KEY_REQS] = { false };
	size_t n = 0;

	for (int i = 0; i < 3; i++) {
		uint32_t q = (uint32_t)rng_below(r, KEY_REQS);

		if (in[q])
			continue;
		in[q] = true;
		if (!rng_below(r, 12))
			release(q);
		else
			n += plan_entry(x, q, r, &e[n]);
	}
	blocks_begin(&b);
	for (size_t i = 0; i < n; i++)
		x->right &= !run_entry(x, &e[i]);
	run_copies(x);
	blocks_end(&b);
	check_cells(x);
}

/* Blocks of block_tok tokens; pages for all of them and spare more. */
static void test_random(int block_tok, int n_blocks, int spare, const char *what)
{
	const int n = (n_blocks * block_tok + PAGE - 1) / PAGE + spare;
	const struct block_group group[] = { { .page_tok = PAGE, .n_page = n },
					     { .page_tok = PAGE, .n_page = n, .window = 11 } };
	static struct cells x;
	struct rng r = { 7 };

	x = (struct cells){ .right = true };
	open_pool(group, 2, block_tok, n_blocks);
	for (int i = 0; i < STEPS && x.right; i++)
		step(&x, &r);
	ok(x.right, "%s: each request reads its own tokens", what);
	ok(x.hits > 100 && x.preempted > 100 && x.shared > 1000 &&
		   !x.copied == !(block_tok % PAGE) && !b.n_refilled == !(block_tok % PAGE),
	   "after %d hits, %d preemptions, %d copied and %d computed tokens", x.hits, x.preempted,
	   x.copied, (int)b.n_refilled);
	for (uint32_t q = 0; q < KEY_REQS; q++)
		release(q);
	blocks_unfollow(&b);
	blocks_begin(&b);
	ok(blocks_free(&b, 0) == n && blocks_free(&b, 1) == n, "%s: no page is lost", what);
	blocks_release(&b);
}

/* ---- iterations in flight ---- */

static void test_leaving(void)
{
	open_one((struct block_group){ .page_tok = TOK, .n_page = 4 }, 3);
	if (grow(0, 2 * TOK) || grow(1, TOK))
		bail_out("no pages");
	blocks_end(&b);
	blocks_leave(&b, 0);
	blocks_leave(&b, 1);
	blocks_leave(&b, 0);
	ok(blocks_len(&b, 0, 0) == 2 * TOK && blocks_len(&b, 0, 1) == TOK &&
		   blocks_free(&b, 0) == 1,
	   "a request that leaves keeps its table");
	blocks_begin(&b);
	ok(!blocks_len(&b, 0, 0) && !blocks_len(&b, 0, 1) && blocks_free(&b, 0) == 4,
	   "until the next batch runs");
	ok(!grow(2, 3 * TOK) && table(2)[0] == 2 && table(2)[1] == 0 && table(2)[2] == 1,
	   "which takes the pages that left last first");
	blocks_end(&b);
	blocks_leave(&b, 2);
	blocks_begin(&b);
	is_int(blocks_free(&b, 0), 4, "it may leave as well");
	blocks_release(&b);
}

enum { N_REQ = 12, MOST = 40, SEQS = 8 };

/* A backend that makes room and nothing else. */
struct paged {
	struct batch_entry entry[SEQS]; /* of the iteration in flight */
	size_t n;
	int32_t page[SEQS][MOST];
	int64_t len[SEQS];
	int left;  /* requests that left while it was in flight */
	bool same; /* its tables have not changed since it began */
	bool own;  /* no page is in two tables */
};

static bool same_table(const struct paged *x, size_t i)
{
	uint32_t req = x->entry[i].req;
	size_t n = (size_t)(x->len[i] + TOK - 1) / TOK;

	return blocks_len(&b, 0, req) == x->len[i] &&
	       !memcmp(table(req), x->page[i], n * sizeof *table(req));
}

static void keep_tables(struct paged *x, const struct batch *batch)
{
	bool listed[MOST] = { false };

	x->n = batch->n;
	memcpy(x->entry, batch->entry, batch->n * sizeof *batch->entry);
	for (size_t i = 0; i < x->n; i++) {
		const int32_t *page = batch_table(batch, &batch->entry[i], 0);

		x->len[i] = blocks_len(&b, 0, x->entry[i].req);
		for (int64_t k = 0; k * TOK < x->len[i]; k++) {
			x->own = x->own && !listed[page[k]];
			listed[page[k]] = true;
			x->page[i][k] = page[k];
		}
	}
}

static enum ar_status paged_run(void *self, const struct batch *batch, struct iter_cost *cost,
				struct ar_err *err)
{
	struct paged *x = self;
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < x->n; i++)
		x->same = x->same && same_table(x, i);
	blocks_begin(&b);
	for (size_t i = 0; i < batch->n && !st; i++)
		st = blocks_place(&b, &batch->entry[i], err);
	blocks_end(&b);
	if (!st)
		keep_tables(x, batch);
	*cost = (struct iter_cost){ .cost_ns = 1000000 };
	return st;
}

static void paged_drop(void *self, uint32_t req)
{
	struct paged *x = self;

	for (size_t i = 0; i < x->n; i++)
		x->left += x->entry[i].req == req;
}

/* Requests end and are preempted while the last iteration is in flight.  A pool of few blocks. */
static void test_in_flight(bool async)
{
	static const struct backend paged = { .name = "paged",
					      .run = paged_run,
					      .drop = paged_drop };
	struct paged x = { .same = true, .own = true };
	struct request req[N_REQ];
	const struct trace trace = { .req = req, .n = N_REQ };
	const struct block_group group = { .page_tok = TOK,
					   .n_page = blocks_pages(40, 16, SEQS, TOK) };
	const struct replay cfg = { .trace = &trace,
				    .backend = &paged,
				    .self = &x,
				    .limits = { .policy = policy_find("vllm-0.16"),
						.max_batched_tok = 128,
						.max_seqs = SEQS,
						.block_tok = 16,
						.num_blocks = 41,
						.async = async,
						.blocks = &b } };
	struct replay_result res;
	struct ar_err err;

	for (int i = 0; i < N_REQ; i++)
		req[i] = (struct request){ .prompt_tok = 40 + 9 * (uint32_t)i,
					   .output_tok = 30 + 17 * (uint32_t)(i % 4) };
	if (blocks_open(&b, &group, 1, N_REQ, &err))
		bail_out("%s", err.msg);
	is_int(replay_run(&cfg, &res, &err), AR_OK, "a pool of blocks has the pages for them");
	ok(res.ok == N_REQ && res.preemptions > 2 && x.left > 2,
	   "requests end, are preempted and leave an iteration in flight: %d", x.left);
	ok(x.same, "its tables stay as they were while the next one is planned");
	ok(x.own, "no page is in two tables");
	blocks_begin(&b);
	is_int(blocks_free(&b, 0), group.n_page, "in the end all pages are free");
	blocks_release(&b);
	replay_result_release(&res);
}

/* ---- errors ---- */

static void test_refusals(void)
{
	struct block_group group[] = { { .page_tok = TOK, .n_page = 9 }, { .page_tok = TOK } };
	struct ar_err err;

	is_int(blocks_open(&b, group, 2, 3, &err), AR_USAGE, "a group without pages is refused");
	blocks_release(&b);
	group[1].n_page = (int64_t)1 << 40;
	is_int(blocks_open(&b, group, 2, 3, &err), AR_USAGE, "and more than slots can number");
	is_str(err.msg,
	       "a KV cache of 1099511627776 pages of 64 tokens is out of range 1...33554431; "
	       "change --num-gpu-blocks",
	       "with the way out");
	blocks_release(&b);
}

/* Two requests with a prefix, of which a part of a page is copied. */
static enum ar_status run_two(const struct block_group *group)
{
	struct ar_err err;
	enum ar_status st = blocks_open(&b, group, 2, KEY_REQS, &err);

	pool = (struct pool){ .block_tok = KEY_TOK, .n_blocks = 9 };
	write_text(0, 0, 0, 6);
	write_text(1, 0, 4, 6);
	if (!st)
		st = blocks_follow(&b, &pool_keys, &err);
	if (!st)
		st = run_text(0, 6);
	blocks_end(&b);
	if (!st)
		st = run_text(1, 6);
	blocks_end(&b);
	return st;
}

static void test_faults(void)
{
	const struct block_group group[] = { { .page_tok = 8, .n_page = 9 },
					     { .page_tok = 8, .n_page = 9 } };
	enum ar_status st;
	long k;

	for (k = 0;; k++) {
		fault_arm(k);
		st = run_two(group);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM)
			bail_out("allocation %ld may not fail", k);
		blocks_release(&b);
	}
	ok(!st && k == 19, "each of %ld allocations may fail", k);
	blocks_release(&b);
}

int main(void)
{
	plan(0);
	test_tables();
	test_trim();
	test_cut();
	test_missing();
	test_groups();
	test_hits();
	test_batch_of_hits();
	test_forget();
	test_random(4, 60, KEY_REQS, "blocks of half a page");
	test_random(8, 30, 0, "blocks of a page");
	test_random(16, 16, 0, "blocks of two pages");
	test_random(6, 40, KEY_REQS, "blocks that are no part of a page");
	test_leaving();
	test_in_flight(false);
	test_in_flight(true);
	test_refusals();
	test_faults();
	return done_testing();
}
