/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks that share the heads drop the same rows: those that one drops which has all heads, up to
 * rounding.  And they revive the same tokens. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/drop/lazyllm/lazyllm.h"
#include "tests/drop_case.h"
#include "tests/drop_ranks.h"
#include "tests/tap.h"

enum { CASES = 12, MOST = 4 /* tokens that are revived */ };

static void copy(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

static void draw(struct batch_case *c, uint64_t seed)
{
	int ctx[] = { 0, 0, 40 }, rows[] = { 300, 700, 500 };
	struct rng rng = { seed };

	case_chunks(c, &rng, FILL_BLOCKS, (struct attn_shape){ 8, 4, 64, 64 }, 3, ctx, rows);
}

static int differ(const struct drop_kept *a, const struct drop_kept *b, int n)
{
	int x = 0;

	for (int i = 0; i < n; i++)
		x += a->keep[i] != b->keep[i];
	return x;
}

/* Rows that the ranks keep, or each by its own heads alone. */
static void drop_all(const struct batch_case *whole, const struct drop *d, bool apart,
		     struct drop_kept out[DROP_RANKS])
{
	struct drop_meeting m = { .copy = copy };
	int32_t chunk[8];
	struct ar_err err;

	for (int r = 0; r < whole->n_seq; r++)
		chunk[r] = attn_n_row(&whole->b.rows, r);
	for (int k = 0; k < 2 * DROP_RANKS; k++) {
		struct batch_case c = drop_rank_case(whole, k % DROP_RANKS);
		struct attn_call at = { .b = &c.b, .q = c.q, .kv = c.kv };
		struct drop_call call = { &at, chunk, c.b.rows.n_row, { 0 } };

		if (!apart)
			call.ranks = drop_meet(&m, k % DROP_RANKS, k >= DROP_RANKS);
		if (drop_ref(d, &call, &out[k % DROP_RANKS], &err))
			bail_out("%s", err.msg);
		drop_rank_free(&c);
	}
	drop_meeting_free(&m);
}

static void test_band(const struct dropper_band *b)
{
	struct drop *d = drop_case_open(b->text, b->value);
	int n = 0, off = 0, other = 0, alone = 0;

	for (int i = 0; i < CASES; i++) {
		struct drop_kept one, kept[DROP_RANKS];
		struct batch_case c;

		draw(&c, (uint64_t)i);
		one = drop_case(&c, d->dropper->name, d->self);
		for (int k = 0; k < DROP_RANKS; k++)
			kept[k] = drop_kept_new(&c);
		drop_all(&c, d, true, kept);
		alone += differ(&one, &kept[0], c.b.rows.n_row);
		drop_all(&c, d, false, kept);
		n += c.b.rows.n_row;
		off += differ(&one, &kept[0], c.b.rows.n_row);
		other += differ(&kept[0], &kept[1], c.b.rows.n_row);
		drop_kept_free(&one);
		for (int k = 0; k < DROP_RANKS; k++)
			drop_kept_free(&kept[k]);
		case_release(&c);
	}
	is_int(other, 0, "%s, %s: ranks keep the same rows", b->text, b->value);
	ok(off <= b->slack * n, "... %d of %d differ from those by all heads, %.3f %%", off, n,
	   100.0 * off / n);
	ok(alone > 10 * off && alone > n / 50, "... and %d of one rank alone, %.1f %%", alone,
	   100.0 * alone / n);
	drop_free(d);
}

/* The tokens that decodes revive, by x. */
static void revive(const struct batch_case *c, const struct lazyllm_self *x,
		   struct drop_ranks ranks, const uint8_t *gone, int32_t *n, int32_t *index)
{
	const struct drop d = { .dropper = dropper_find("lazyllm"), .self = (void *)(uintptr_t)x };
	struct attn_call at = { .b = &c->b, .q = c->q, .kv = c->kv };
	struct ar_err err;

	if (drop_revive_ref(&d, &(struct drop_call){ &at, NULL, c->b.rows.n_row, ranks },
			    &(struct drop_revived){ gone, n, index }, &err))
		bail_out("%s", err.msg);
}

static void test_revival(void)
{
	const struct lazyllm_self x = { { 1, { 0 }, { 0.5 } }, MOST };
	int32_t n[1 + DROP_RANKS][3], index[1 + DROP_RANKS][3 * MOST];
	struct drop_meeting m = { .copy = copy };
	int ctx[3], rows[] = { 1, 1, 1 };
	struct batch_case c;
	uint8_t *gone;

	draw(&c, 7);
	for (int r = 0; r < 3; r++)
		ctx[r] = c.len[r] - 1;
	case_cut(&c, ctx, rows);
	gone = malloc((size_t)(c.b.keys.n_page * c.b.shape.page_tok));
	memset(gone, 1, (size_t)(c.b.keys.n_page * c.b.shape.page_tok));
	memset(index, 0, sizeof index);
	revive(&c, &x, (struct drop_ranks){ 0 }, gone, n[0], index[0]);
	for (int k = 0; k < 2 * DROP_RANKS; k++) {
		const int rank = k % DROP_RANKS;
		struct batch_case own = drop_rank_case(&c, rank);

		revive(&own, &x, drop_meet(&m, rank, k >= DROP_RANKS), gone, n[1 + rank],
		       index[1 + rank]);
		drop_rank_free(&own);
	}
	is_int(n[0][0] + n[0][1] + n[0][2], 3 * MOST, "decodes revive tokens");
	ok(!memcmp(n[0], n[1], sizeof *n) && !memcmp(n[0], n[2], sizeof *n) &&
		   !memcmp(index[0], index[1], sizeof *index) &&
		   !memcmp(index[0], index[2], sizeof *index),
	   "... and ranks those that one with all heads revives");
	drop_meeting_free(&m);
	free(gone);
	case_release(&c);
}

int main(void)
{
	plan(0);
	for (int i = 0; droppers[i]; i++)
		for (const struct dropper_band *b = droppers[i]->band; b && b->text; b++)
			test_band(b);
	test_revival();
	return done_testing();
}
