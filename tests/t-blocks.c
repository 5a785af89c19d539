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

/* ---- pages of several tables ---- */

static bool copies(uint32_t req, int32_t from, int32_t to)
{
	struct block_copy c = blocks_copied(&b, 0, req);

	return c.from == from && c.to == to;
}

static enum ar_status share(uint32_t from, uint32_t req, int64_t n_tok)
{
	struct ar_err err;

	return blocks_share(&b, 0, from, req, n_tok, &err);
}

/* The first request has 22 tokens in pages 0, 1 and 2 of eight. */
static void test_share(void)
{
	const struct batch_entry next = { .req = 1, .start = 20, .n_tok = 5 };
	struct batch_entry piece;

	open_one((struct block_group){ .page_tok = 8, .n_page = 6, .selects = true }, 4);
	if (place(&(struct batch_entry){ .n_tok = 22 }))
		bail_out("no pages");
	is_int(share(0, 1, 20), AR_OK, "a second request shares 20 tokens");
	ok(blocks_free(&b, 0) == 3 && blocks_len(&b, 0, 1) == 20 &&
		   !memcmp(table(0), table(1), 3 * sizeof *table(0)),
	   "in the same pages");
	ok(!blocks_missing(&b, &next, 100, &piece), "a selector has seen them");
	is_int(grow(1, 27), AR_OK, "it appends seven");
	ok(table(1)[0] == 0 && table(1)[1] == 1 && table(1)[2] == 3 && table(1)[3] == 4 &&
		   table(0)[2] == 2 && copies(1, 2, 3),
	   "to a copy of the page that others read, and to a page of its own");
	ok(!grow(1, 28) && copies(1, 0, 0), "once");
	is_int(share(0, 2, 16), AR_OK, "a third request shares two pages");
	ok(!grow(2, 21) && table(2)[1] == 1 && table(2)[2] == 5 && copies(2, 0, 0),
	   "nothing is copied at the end of a page");
	ok(!grow(0, 23) && copies(0, 0, 0), "the first appends to a page that is its own again");
	drop(0);
	is_int(blocks_free(&b, 0), 1, "it leaves; a page that nobody else lists is free");
	ok(!share(1, 3, 28) && !grow(3, 28) && copies(3, 0, 0),
	   "a request that appends nothing copies nothing");
	is_int(grow(1, 29), AR_OK, "two read a page, and one appends");
	ok(table(1)[3] == 2 && table(3)[3] == 4 && copies(1, 4, 2), "to a copy");
	is_int(share(3, 0, 28), AR_OK, "a page that is shared");
	is_int(grow(0, 29), AR_NOMEM, "needs a free one");
	ok(table(0)[3] == 4 && blocks_len(&b, 0, 0) == 28, "else the table stays as it was");
	for (uint32_t q = 0; q < 4; q++)
		drop(q);
	is_int(blocks_free(&b, 0), 6, "all leave, and no page is lost");
	blocks_release(&b);
}

enum { TWINS = 10, TWIN_LEN = 60, TWIN_TOK = 4, TWIN_PAGES = 40 };

/* The tokens and pages of a request in a group. */
struct twin {
	int token[TWIN_LEN];
	int n, gone; /* tokens, pages that it left */
};

/* Both groups, and the tokens that lie in the pages. */
struct twins {
	struct twin of[2][TWINS];
	int cell[2][TWIN_PAGES][TWIN_TOK];
	int n_token, n_copy, n_full;
	bool right;
};

static int pages_of(int n_tok)
{
	return (n_tok + TWIN_TOK - 1) / TWIN_TOK;
}

/* Tables that list each page of group g. */
static void count_tables(const struct twins *x, int g, int *n)
{
	memset(n, 0, TWIN_PAGES * sizeof *n);
	for (uint32_t q = 0; q < TWINS; q++)
		for (int k = x->of[g][q].gone; k < pages_of(x->of[g][q].n); k++)
			n[blocks_table(&b, g, q)[k]]++;
}

/* Each request finds its tokens, and the other pages are free. */
static bool right_tables(const struct twins *x, int g)
{
	int n_table[TWIN_PAGES], n_free = 0;
	bool right = true;

	for (uint32_t q = 0; q < TWINS; q++) {
		const struct twin *t = &x->of[g][q];
		const int32_t *page = blocks_table(&b, g, q);

		right = right && blocks_len(&b, g, q) == t->n;
		for (int k = 0; k < t->gone; k++)
			right = right && !page[k];
		for (int i = t->gone * TWIN_TOK; i < t->n; i++)
			right = right &&
				x->cell[g][page[i / TWIN_TOK]][i % TWIN_TOK] == t->token[i];
	}
	count_tables(x, g, n_table);
	for (int i = 0; i < TWIN_PAGES; i++)
		n_free += !n_table[i];
	return right && blocks_free(&b, g) == n_free;
}

static void append(struct twins *x, int g, uint32_t q, int n)
{
	struct twin *t = &x->of[g][q];
	int n_table[TWIN_PAGES], end = t->n + n;
	struct block_copy c;
	struct ar_err err;
	bool shared;

	if (end > TWIN_LEN)
		return;
	count_tables(x, g, n_table);
	shared = t->n % TWIN_TOK && n_table[blocks_table(&b, g, q)[t->n / TWIN_TOK]] > 1;
	if (pages_of(end) - pages_of(t->n) + shared > blocks_free(&b, g)) {
		x->right = x->right && blocks_grow(&b, g, q, end, &err) == AR_NOMEM;
		x->n_full++;
		return;
	}
	x->right = x->right && blocks_grow(&b, g, q, end, &err) == AR_OK;
	c = blocks_copied(&b, g, q);
	x->right = x->right && (c.from != c.to) == shared;
	x->n_copy += shared;
	memcpy(x->cell[g][c.to], x->cell[g][c.from], sizeof x->cell[g][0]);
	while (t->n < end) {
		int32_t page = blocks_table(&b, g, q)[t->n / TWIN_TOK];

		x->cell[g][page][t->n % TWIN_TOK] = t->token[t->n] = ++x->n_token;
		t->n++;
	}
}

static void share_some(struct twins *x, int g, uint32_t from, uint32_t q, struct rng *r)
{
	struct twin *f = &x->of[g][from], *t = &x->of[g][q];
	int least = f->gone * TWIN_TOK, n;
	struct ar_err err;

	if (t->n || least >= f->n)
		return;
	n = least + 1 + (int)rng_below(r, (uint32_t)(f->n - least));
	x->right = x->right && blocks_share(&b, g, from, q, n, &err) == AR_OK;
	*t = *f;
	t->n = n;
}

static void leave_some(struct twins *x, uint32_t q)
{
	drop(q);
	x->of[0][q] = x->of[1][q] = (struct twin){ 0 };
}

/* Requests of the second group leave pages. */
static void trim_some(struct twins *x, uint32_t q, struct rng *r)
{
	struct twin *t = &x->of[1][q];
	int n = (int)rng_below(r, (uint32_t)t->n + 1);

	blocks_trim(&b, 1, q, n);
	t->gone = n / TWIN_TOK > t->gone ? n / TWIN_TOK : t->gone;
}

static void test_random(void)
{
	const struct block_group group[] = { { .page_tok = TWIN_TOK, .n_page = TWIN_PAGES },
					     { .page_tok = TWIN_TOK, .n_page = TWIN_PAGES } };
	static struct twins x = { .right = true };
	struct rng r = { 5 };
	struct ar_err err;

	if (blocks_open(&b, group, 2, TWINS, &err))
		bail_out("%s", err.msg);
	blocks_begin(&b);
	for (int i = 0; i < 100000 && x.right; i++) {
		uint32_t q = (uint32_t)rng_below(&r, TWINS), from = (uint32_t)rng_below(&r, TWINS);
		int g = (int)rng_below(&r, 2), what = (int)rng_below(&r, 16);

		if (what < 9)
			append(&x, g, q, 1 + (int)rng_below(&r, 9));
		else if (what < 13)
			share_some(&x, g, from, q, &r);
		else if (what < 14)
			trim_some(&x, q, &r);
		else
			leave_some(&x, q);
		x.right = x.right && right_tables(&x, 0) && right_tables(&x, 1);
	}
	ok(x.right, "each request reads its own tokens, whatever the others append and leave");
	ok(x.n_copy > 1000 && x.n_full > 1000, "after %d copies and %d refusals", x.n_copy,
	   x.n_full);
	for (uint32_t q = 0; q < TWINS; q++)
		leave_some(&x, q);
	ok(blocks_free(&b, 0) == TWIN_PAGES && blocks_free(&b, 1) == TWIN_PAGES,
	   "all leave, and no page is lost");
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

static void test_faults(void)
{
	const struct block_group group[] = { { .page_tok = TOK, .n_page = 9 },
					     { .page_tok = TOK, .n_page = 9 } };
	struct ar_err err;
	enum ar_status st;
	long k;

	for (k = 0;; k++) {
		enum ar_status opened;

		fault_arm(k);
		st = opened = blocks_open(&b, group, 2, 3, &err);
		blocks_begin(&b);
		if (!st)
			st = grow(0, 3);
		if (!st)
			st = share(0, 1, 2);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM || (!opened && blocks_len(&b, 0, 1)))
			bail_out("allocation %ld may not fail", k);
		blocks_release(&b);
	}
	ok(!st && k == 12, "each of %ld allocations may fail", k);
	blocks_release(&b);
}

int main(void)
{
	plan(0);
	test_tables();
	test_trim();
	test_missing();
	test_groups();
	test_share();
	test_random();
	test_leaving();
	test_in_flight(false);
	test_in_flight(true);
	test_refusals();
	test_faults();
	return done_testing();
}
