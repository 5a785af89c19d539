/* SPDX-License-Identifier: Apache-2.0 */
/* Pages of the KV cache and the tables of requests. */
#include "config.h"
#include "replay/sched/blocks.h"

#include <string.h>

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
	bool same; /* its tables are those with which it ran */
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
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM || (!opened && (blocks_len(&b, 0, 0) || blocks_free(&b, 0) < 9)))
			bail_out("allocation %ld may not fail", k);
		blocks_release(&b);
	}
	ok(!st && k == 9, "each of %ld allocations may fail", k);
	blocks_release(&b);
}

int main(void)
{
	plan(0);
	test_tables();
	test_trim();
	test_missing();
	test_groups();
	test_leaving();
	test_in_flight(false);
	test_in_flight(true);
	test_refusals();
	test_faults();
	return done_testing();
}
