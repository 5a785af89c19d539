/* SPDX-License-Identifier: Apache-2.0 */
/* Hot buffers of decodes: a worked example, and the rule in the plainest words on random lists. */
#include "config.h"

#include <string.h>

#include "base/rng.h"
#include "replay/engine/hot_list.h"
#include "replay/engine/hot_rows.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { SLOTS = 24, PIECES = 60, LIST = 12 };

static bool order_is(const struct hot_list *h, const int32_t *want)
{
	return !memcmp(h->piece, want, (size_t)h->n * sizeof *want);
}

/* A worked example: 4 slots, and lists of 3. */
static void test_example(void)
{
	static const struct {
		int32_t list[3];
		int misses;
		int32_t order[4];
	} step[] = {
		{ { 0, 3, 7 }, 3, { -1, 0, 3, 7 } },
		{ { 0, 7, 9 }, 1, { 3, 9, 0, 7 } },
		{ { 3, 7, 10 }, 1, { 0, 10, 3, 7 } },
		{ { 0, 9, 10 }, 1, { 7, 9, 0, 10 } },
	};
	struct hot_list h;

	if (!hot_list_init(&h, 4))
		bail_out("no memory");
	for (int i = 0; i < 4; i++) {
		is_int(hot_list_read(&h, step[i].list, 3), step[i].misses, "list %d: its misses",
		       i);
		ok(order_is(&h, step[i].order), "list %d: the order after it", i);
	}
	hot_list_release(&h);
}

/* ---- the rule, slot by slot ---- */

struct plain {
	int32_t piece[SLOTS];
};

static int find(const int32_t *a, int n, int32_t x)
{
	int i = 0;

	while (i < n && a[i] != x)
		i++;
	return i < n ? i : -1;
}

static void move_to_end(struct plain *p, int at, int32_t x)
{
	memmove(p->piece + at, p->piece + at + 1, (size_t)(SLOTS - 1 - at) * sizeof *p->piece);
	p->piece[SLOTS - 1] = x;
}

/* Misses take the oldest slots that no hit has; then all hits become the newest, in old order. */
static int plain_read(struct plain *p, const int32_t *list, int n)
{
	int32_t old[SLOTS];
	int misses = 0;

	memcpy(old, p->piece, sizeof old);
	for (int i = 0; i < n; i++) {
		int at = 0;

		if (find(old, SLOTS, list[i]) >= 0)
			continue;
		misses++;
		while (at < SLOTS && find(list, n, p->piece[at]) >= 0)
			at++;
		if (at < SLOTS)
			move_to_end(p, at, list[i]);
	}
	for (int i = 0; i < SLOTS; i++)
		if (find(list, n, old[i]) >= 0)
			move_to_end(p, find(p->piece, SLOTS, old[i]), old[i]);
	return misses;
}

static int random_list(struct rng *r, int32_t *list, int most)
{
	int n = 0;

	for (int32_t piece = 0; piece < PIECES && n < most; piece++)
		if (rng_below(r, PIECES) < (uint64_t)most)
			list[n++] = piece;
	return n;
}

/* most: of a list; some are longer than the buffer. */
static void test_random(int most)
{
	struct rng r = { 11 };
	struct plain p;
	struct hot_list h;
	int32_t list[PIECES];
	int bad = 0;

	if (!hot_list_init(&h, SLOTS))
		bail_out("no memory");
	memset(p.piece, -1, sizeof p.piece);
	for (int i = 0; i < 2000; i++) {
		int n = random_list(&r, list, most);

		bad += hot_list_read(&h, list, n) != plain_read(&p, list, n) ||
		       !order_is(&h, p.piece);
	}
	is_int(bad, 0, "lists of up to %d pieces: misses and order", most);
	hot_list_release(&h);
}

static void test_edges(void)
{
	struct hot_list h;
	int n = 0;

	ok(hot_list_init(&h, 0) && hot_list_read(&h, (int32_t[]){ 1, 2 }, 2) == 2,
	   "without slots all is missed");
	hot_list_release(&h);
	ok(hot_list_init(&h, 3) && !hot_list_read(&h, NULL, 0), "an empty list misses nothing");
	hot_list_release(&h);
	for (bool fault = true; fault; n += fault) {
		fault_arm(n);
		hot_list_init(&h, 3);
		fault = fault_disarm();
		hot_list_release(&h);
	}
	is_int(n, 2, "both allocations may fail");
}

/* ---- requests ---- */

enum { LAYERS = 2, LISTS = 2 };

/* Two lists of pieces of 4 tokens, and the row at position 41, in piece 10. */
static int32_t pieces[] = { 0, 3, 10, -1, 3, 7, 8, 10 }, n_piece[] = { 3, 4 };
static const struct piece_lists lists = { .tok = 4, .stride = 4, .piece = pieces, .n = n_piece };
static const int64_t sizes[] = { 8, 400 };

static void test_requests(void)
{
	struct hot_rows h;
	struct ar_err err;
	bool good = !hot_rows_init(&h, sizes, 2, LAYERS, 3, &err);

	for (int k = 0; k < 2; k++)
		good = good && !hot_rows_read(&h, 1, 0, &lists, LISTS, 41, &err);
	ok(good && hot_rows_count(&h, 0, 0)->rows == 2 && hot_rows_count(&h, 0, 0)->listed == 40,
	   "lists count without the newest piece");
	is_int(hot_rows_count(&h, 0, 1)->missed, 20, "a large buffer misses each piece once");
	is_int(hot_rows_count(&h, 0, 0)->missed, 4 * (2 + 3 + 1),
	       "a small one has two of a list of three");
	ok(!hot_rows_count(&h, 1, 0)->rows, "another layer counts by itself");
	hot_rows_forget(&h, 1);
	ok(!hot_rows_read(&h, 1, 0, &lists, LISTS, 41, &err) &&
		   hot_rows_count(&h, 0, 1)->missed == 40,
	   "a request that was forgotten begins anew");
	hot_rows_release(&h);
}

static void test_no_memory(void)
{
	int n = 0, bad = 0;

	for (bool fault = true; fault; n += fault) {
		struct hot_rows h;
		struct ar_err err;
		enum ar_status st;

		fault_arm(n);
		st = hot_rows_init(&h, sizes, 2, LAYERS, 3, &err);
		if (!st)
			st = hot_rows_read(&h, 1, 0, &lists, LISTS, 41, &err);
		fault = fault_disarm();
		bad += fault != (st != AR_OK);
		hot_rows_release(&h);
	}
	ok(!bad && n, "each of %d allocations of a request may fail", n);
}

int main(void)
{
	plan(0);
	test_example();
	test_random(LIST);
	test_random(PIECES);
	test_edges();
	test_requests();
	test_no_memory();
	return done_testing();
}
