/* SPDX-License-Identifier: Apache-2.0 */
/* The rows of layers that differ: full, window and linear ones, and segments that keep some
 * rows. */
#include "config.h"
#include "replay/engine/rows.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "replay/engine/act_capture.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { TOK = 64, WINDOW = 100, MAX_LEN = 2000, MAX_ROW = 900, N_REQ = 5, N_PAGE = 200 };
enum { FULL, WINDOWED, LINEAR, LATER, VIEWS };

/* ---- views ---- */

static struct capture_seq seqs[] = { { .n_tok = 5000, .rope_applied = true, .name = "a" } };
static const uint16_t capture_of[N_REQ];
static struct act_capture act = { .shape = { 4, 2, 64, TOK },
				  .seq = seqs,
				  .n_seq = 1,
				  .capture_of = capture_of,
				  .ropes.n_rotation = 1 };

/* FULL and LATER share a group's shape, LATER is of segment 1. */
static struct cache_group group[VIEWS] = {
	[FULL] = { .no = FULL, .mixer = MIX_FULL, .shape = { 4, 2, 64, TOK }, .n_page = N_PAGE },
	[WINDOWED] = { .no = WINDOWED,
		       .mixer = MIX_WINDOW,
		       .window = WINDOW,
		       .shape = { 2, 2, 64, TOK },
		       .n_page = N_PAGE },
	[LINEAR] = { .no = LINEAR,
		     .mixer = MIX_LINEAR,
		     .shape = { .page_tok = 1 },
		     .state_bytes = 8,
		     .n_page = N_REQ },
	[LATER] = { .no = LATER, .mixer = MIX_FULL, .shape = { 4, 2, 64, TOK }, .n_page = N_PAGE },
};
static const struct block_group tables_of[VIEWS] = {
	[FULL] = { .page_tok = TOK, .n_page = N_PAGE },
	[WINDOWED] = { .page_tok = TOK, .window = WINDOW, .n_page = N_PAGE },
	[LINEAR] = { .page_tok = 1, .linear = true, .n_page = N_REQ },
	[LATER] = { .page_tok = TOK, .segment = 1, .n_page = N_PAGE },
};
static struct blocks tables;
static struct method *method;

static void env_open_for(struct rows_env *e, int revives)
{
	/* layers 0, 3 and 4 are full, and 5 after a segment; 4 has a method of its own */
	static const int of_layer[] = { FULL, WINDOWED, LINEAR, FULL, FULL, LATER };
	struct ar_err err;

	if (rows_env_init(e, 6, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 6; i++)
		rows_env_add(e, i,
			     &(struct row_view){ .segment = of_layer[i] == LATER,
						 .group = &group[of_layer[i]],
						 .method = i == 4 ? method : NULL });
	e->act = &activations_capture;
	e->act_self = &act;
	e->limit[ROW_PREFILL] = (struct attn_limits){ N_REQ, MAX_ROW, MAX_LEN / TOK + 1, 0, 0 };
	e->limit[ROW_DECODE] = (struct attn_limits){ N_REQ, N_REQ, MAX_LEN / TOK + 1, 0, 0 };
	e->limit[ROW_VERIFY] = e->limit[ROW_PREFILL];
	e->limit[ROW_REVIVED] = (struct attn_limits){ N_REQ * revives, N_REQ * revives, 0, 0, 0 };
	e->revives = revives;
	if (blocks_open(&tables, tables_of, VIEWS, N_REQ, &err))
		bail_out("%s", err.msg);
	blocks_begin(&tables);
	e->bytes = rows_bytes(e);
	e->mem = malloc(e->bytes);
	if (!e->mem)
		bail_out("out of memory");
}

static void env_open(struct rows_env *e)
{
	env_open_for(e, 0);
}

static void env_close(struct rows_env *e)
{
	blocks_release(&tables);
	free(e->mem);
	rows_env_release(e);
}

/* Empty the tables of request q. */
static void drop(uint32_t q)
{
	blocks_end(&tables);
	blocks_leave(&tables, q);
	blocks_begin(&tables);
}

static void grow(const struct batch *b)
{
	struct ar_err err;

	for (size_t i = 0; i < b->n; i++)
		if (blocks_place(&tables, &b->entry[i], &err) ||
		    blocks_grow(&tables, LATER, b->entry[i].req,
				b->entry[i].start + b->entry[i].n_tok, &err))
			bail_out("%s", err.msg);
}

static void build(struct row_set *set, const struct rows_env *e, const struct batch *b,
		  const struct row_segment *segment, size_t *used)
{
	struct ar_err err;

	if (rows_build(set, e, b, segment, NULL, 0, used, &err))
		bail_out("%s", err.msg);
	ok(*used <= e->bytes, "the block of memory is enough");
}

static void set_open(struct row_set *set, const struct rows_env *e)
{
	struct ar_err err;

	if (row_set_init(set, e, &err))
		bail_out("%s", err.msg);
}

/* A chunk past the window, a decode, and the first chunk of a request. */
static void test_views(void)
{
	struct batch_entry before = { .n_tok = 500, .known = 600 };
	struct batch_entry entry[] = {
		{ .start = 500, .n_tok = 90, .known = 600 },
		{ .req = 1, .start = 99, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		{ .req = 2, .n_tok = 130, .known = 130, .n_emit = 1 },
	};
	const struct batch b = { .entry = entry, .n = 3, .blocks = &tables };
	const struct rows *full, *window, *linear;
	struct rows_env e;
	struct row_set set;
	bool right = true;
	size_t used;

	env_open(&e);
	ok(e.n_view == 5 && e.of[0] == e.of[3] && e.of[4] != e.of[0] && e.of[5] != e.of[0],
	   "layers share a view if group, method and segment are the same");
	set_open(&set, &e);
	grow(&(struct batch){ .entry = &before, .n = 1, .blocks = &tables });
	grow(&b);
	build(&set, &e, &b, NULL, &used);
	full = row_set_of(&set, 0);
	window = row_set_of(&set, 1);
	linear = row_set_of(&set, 2);
	ok(full == row_set_of(&set, 3) && full != row_set_of(&set, 4), "as the layers say");
	ok(!full->part[ROW_PREFILL].rows.first && !full->part[ROW_DECODE].rows.first &&
		   !linear->part[ROW_PREFILL].rows.first,
	   "rows of full layers see every key");
	for (int i = 0; i < 220; i++) {
		int pos = i < 90 ? 500 + i : i - 90;

		right = right && window->part[ROW_PREFILL].rows.pos[i] == pos &&
			window->part[ROW_PREFILL].rows.first[i] ==
				(pos < WINDOW ? 0 : pos - WINDOW + 1);
	}
	ok(right && window->part[ROW_DECODE].rows.first[0] == 0,
	   "those of window layers the last ones");
	ok(window->part[ROW_PREFILL].shape.q_heads == 2 &&
		   full->part[ROW_PREFILL].shape.q_heads == 4,
	   "each with its own heads");
	/* rows 500 ... see keys from 401 on, in block 6 */
	ok(window->part[ROW_PREFILL].keys.page[5] == 0 &&
		   full->part[ROW_PREFILL].keys.page[5] != 0 &&
		   window->part[ROW_PREFILL].keys.page[6] ==
			   blocks_table(&tables, WINDOWED, 0)[6] &&
		   blocks_free(&tables, WINDOWED) == blocks_free(&tables, FULL) + 6,
	   "pages out of sight are free");
	ok(window->row[0].slot == window->part[ROW_PREFILL].keys.page[7] * TOK + 500 - 7 * TOK,
	   "rows are stored in the pages of their group");
	ok(!linear->row && linear->n_row == 221 && rows_count(linear, ROW_PREFILL) == 220 &&
		   linear->n_emit == 2 && linear->emit[0] == 219 && linear->emit[1] == 220,
	   "linear layers have the same rows, and store none");
	ok(linear->part[ROW_PREFILL].rows.pos0[0] == 500 &&
		   linear->part[ROW_PREFILL].rows.pos0[1] == 0 &&
		   linear->part[ROW_PREFILL].keys.page[0] == blocks_table(&tables, LINEAR, 0)[0] &&
		   linear->part[ROW_PREFILL].keys.page[1] == blocks_table(&tables, LINEAR, 2)[0] &&
		   linear->part[ROW_DECODE].keys.page[0] == blocks_table(&tables, LINEAR, 1)[0] &&
		   linear->part[ROW_PREFILL].keys.n_page == 2 &&
		   linear->part[ROW_DECODE].keys.n_page == 1,
	   "but each request has a state");
	ok(linear->state.n_seq == 2 && linear->state.n_chunk == 5 &&
		   linear->state.seq[0].slot == linear->part[ROW_PREFILL].keys.page[0] &&
		   !linear->state.seq[0].fresh && linear->state.seq[1].fresh &&
		   linear->state.seq[1].row == 90 && linear->state.chunk[4].first == 128 &&
		   !full->state.n_seq,
	   "which goes on, or is new where the request begins");
	drop(0);
	ok(blocks_free(&tables, LINEAR) == N_REQ - 2 && !blocks_table(&tables, WINDOWED, 3) &&
		   blocks_free(&tables, WINDOWED) == blocks_free(&tables, FULL),
	   "which goes with the request");
	row_set_release(&set);
	env_close(&e);
}

/* Of 90 rows at 200 the later layers keep three, at index 50; of another chunk none. */
static void test_segments(void)
{
	static const int32_t keep0[] = { 2, 3, 88 },
			     start[2][3] = { { 200, 0, 300 }, { 50, 0, 70 } };
	static const int32_t n[2][3] = { { 90, 40, 1 }, { 3, 0, 1 } };
	static const int32_t *const all[3], *const keep[] = { keep0, NULL, NULL };
	const struct row_segment segment[] = { { .start = start[0], .n = n[0], .keep = all },
					       { .start = start[1], .n = n[1], .keep = keep } };
	struct batch_entry entry[] = {
		{ .start = 200, .n_tok = 90, .known = 290, .n_emit = 1 },
		{ .req = 1, .n_tok = 40, .known = 100 },
		{ .req = 2, .start = 300, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
	};
	const struct batch b = { .entry = entry, .n = 3, .blocks = &tables };
	const int32_t *page;
	const struct rows *r;
	struct rows_env e;
	struct row_set set;
	size_t used;

	env_open(&e);
	set_open(&set, &e);
	grow(&b);
	build(&set, &e, &b, segment, &used);
	page = blocks_table(&tables, LATER, 0);
	r = row_set_of(&set, 0);
	ok(r->n_row == 131 && r->part[ROW_PREFILL].rows.n_req == 2 && r->row[130].tok == 300,
	   "all rows go through the first segment");
	r = row_set_of(&set, 5);
	ok(r->n_row == 4 && rows_count(r, ROW_PREFILL) == 3 &&
		   r->part[ROW_PREFILL].rows.n_req == 1 && r->part[ROW_DECODE].rows.n_req == 1,
	   "some through the next one, and none of a request that keeps none");
	ok(r->row[0].tok == 202 && r->row[1].tok == 203 && r->row[2].tok == 288 &&
		   r->row[3].tok == 300,
	   "they have the activations of their positions");
	ok(r->part[ROW_PREFILL].rows.pos[0] == 50 && r->part[ROW_PREFILL].rows.pos[2] == 52 &&
		   r->part[ROW_PREFILL].keys.len[0] == 53 &&
		   r->part[ROW_PREFILL].rows.pos0[0] == 50 &&
		   r->part[ROW_PREFILL].keys.n_page == 1 && r->part[ROW_DECODE].keys.len[0] == 71 &&
		   r->row[0].slot == page[0] * TOK + 50 && r->row[2].slot == page[0] * TOK + 52,
	   "and follow each other in the cache");
	ok(r->n_emit == 2 && r->emit[0] == 2 && r->emit[1] == 3 &&
		   r->part[ROW_PREFILL].rows.left[0] == 0,
	   "the last one of a prompt emits");
	row_set_release(&set);
	env_close(&e);
}

/* A decode at position 300 revives tokens 7 and 120; the cache of the later layers holds tokens 0,
 * 200 and 90, of which 90 is gone from the next segment. */
static void test_revived(void)
{
	static const int32_t start[2][2] = { { 0, 300 }, { 0, 3 } },
			     n[2][2] = { { 5, 1 }, { 5, 3 } };
	static const int32_t n_back[2][2] = { { 0 }, { 0, 2 } }, back[] = { 7, 120 };
	static const int32_t before[] = { 0, 200, 90 }, *const all[2],
			     *const backs[] = { NULL, back };
	static const int32_t *const befores[] = { before, before };
	static const uint8_t gone[] = { 0, 0, 1 }, *const gones[] = { NULL, gone };
	static const int32_t *const no_backs[2];
	static const uint8_t want[] = { 0, 0, 1, 1, 1, 0 };
	const struct row_segment segment[] = {
		{ .start = start[0],
		  .n = n[0],
		  .keep = all,
		  .n_back = n_back[0],
		  .back = no_backs },
		{ start[1], n[1], all, befores, n_back[1], backs, gones },
	};
	struct batch_entry entry[] = {
		{ .n_tok = 5, .known = 5, .n_emit = 1 },
		{ .req = 2, .start = 300, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
	};
	const struct batch b = { .entry = entry, .n = 2, .blocks = &tables };
	const int32_t *page;
	const struct rows *r;
	struct rows_env e;
	struct row_set set;
	size_t used;

	env_open_for(&e, 2);
	set_open(&set, &e);
	grow(&b);
	build(&set, &e, &b, segment, &used);
	page = blocks_table(&tables, LATER, 2);
	r = row_set_of(&set, 5);
	ok(r->n_row == 8 && rows_count(r, ROW_PREFILL) == 5 &&
		   r->part[ROW_DECODE].rows.n_row == 1 && r->part[ROW_REVIVED].rows.n_req == 2 &&
		   r->row[5].tok == 300 && r->row[6].tok == 7 && r->row[7].tok == 120 &&
		   r->emit[1] == 5,
	   "revived rows come after the decodes");
	ok(r->row[6].slot == page[0] * TOK + 3 && r->row[7].slot == page[0] * TOK + 4 &&
		   r->row[5].slot == page[0] * TOK + 5 && r->part[ROW_DECODE].rows.pos0[0] == 5 &&
		   r->part[ROW_DECODE].keys.len[0] == 6,
	   "but before its own in the cache");
	ok(r->part[ROW_REVIVED].rows.own[0] == 7 && r->part[ROW_REVIVED].rows.own[1] == 120 &&
		   r->part[ROW_REVIVED].keys.len[0] == 6 &&
		   r->part[ROW_REVIVED].rows.pos0[1] == 5 &&
		   r->part[ROW_REVIVED].keys.page[r->part[ROW_REVIVED].keys.page0[1]] == page[0] &&
		   !memcmp(r->part[ROW_REVIVED].keys.pos, (int32_t[]){ 0, 200, 90, 7, 120, 300 },
			   6 * sizeof(int32_t)),
	   "each looks at all keys, which have positions");
	ok(r->gone && !memcmp(r->gone, want, sizeof want) && !row_set_of(&set, 0)->gone,
	   "and flags, where they are asked for");
	is_int(rows_pairs(&segment[1], &b, 1, 0), 6 + 2 + 4,
	       "pairs are those of keys that rows see");
	row_set_release(&set);
	env_close(&e);
}

/* ---- decodes of a graph ---- */

static bool same_places(const struct rows *a, const struct rows *b)
{
	const struct attn_batch *x = &a->part[ROW_DECODE], *y = &b->part[ROW_DECODE];

	return a->row == b->row && a->emit == b->emit && a->n_row == b->n_row &&
	       !memcmp(&x->rows, &y->rows, sizeof x->rows) && x->keys.len == y->keys.len &&
	       x->keys.page0 == y->keys.page0 && x->keys.page == y->keys.page &&
	       x->keys.max_kv_blk == y->keys.max_kv_blk;
}

/* Request r of the batch against the pages of its group and, from b->n on, the scratch page. */
static bool right_request(const struct rows *r, int i, const struct cache_group *g,
			  const struct batch *b)
{
	const struct attn_batch *d = &r->part[ROW_DECODE];
	bool real = i < (int)b->n;
	uint32_t pos = real ? b->entry[i].start : 0;
	int tok = g->shape.page_tok, n = g->mixer == MIX_LINEAR ? 1 : (int)pos / tok + 1;
	const int32_t *page = d->keys.page + d->keys.page0[i];
	int32_t scratch = (int32_t)g->n_page;
	const int32_t *want = real ? batch_table(b, &b->entry[i], g->no) : &scratch;
	int first = g->window && (int)pos >= g->window ? (int)pos - g->window + 1 : 0;

	return d->keys.page0[i + 1] - d->keys.page0[i] == n &&
	       !memcmp(page, want, (size_t)n * sizeof *page) && d->rows.pos[i] == (int)pos &&
	       d->keys.len[i] == (int)pos + 1 && (!g->window || d->rows.first[i] == first) &&
	       (!r->row || r->row[i].slot == want[n - 1] * tok + (int)pos % tok);
}

/* The k-th row that entry i, of request req, revives in a graph, and its keys.  at: rows that the
 * entries before revive. */
static bool right_revived(const struct rows *r, int at, int k, const struct row_segment *s,
			  size_t i, uint32_t req)
{
	const struct attn_batch *v = &r->part[ROW_REVIVED];
	const int32_t *page = blocks_table(&tables, LATER, req);
	const int32_t *key = v->keys.pos + v->keys.page0[at + k] * TOK;
	int slot = s->start[i] + k, len = s->start[i] + s->n[i];

	return v->rows.own[at + k] == s->back[i][k] && v->keys.len[at + k] == len &&
	       v->keys.page[v->keys.page0[at + k]] == page[0] && key[slot] == s->back[i][k] &&
	       !memcmp(key, s->before[i], (size_t)s->start[i] * sizeof *key) &&
	       r->row[r->part[ROW_DECODE].rows.n_req + at + k].tok == s->back[i][k] &&
	       r->row[r->part[ROW_DECODE].rows.n_req + at + k].slot ==
		       page[slot / TOK] * TOK + slot % TOK;
}

/* Decodes that revive 0 to MOST tokens each, padded: a view after segment 0 has PAD * MOST rows
 * more, and the same addresses for any batch. */
static void test_revived_decodes(void)
{
	enum { PAD = 4, MOST = 3, N = 60 };
	static int32_t start[2][3], n[2][3], n_back[2][3], back[3][MOST], before[3][MAX_LEN];
	static const int32_t *const all[3], *const no_backs[3];
	static const int32_t *const backs[] = { back[0], back[1], back[2] };
	static const int32_t *const befores[] = { before[0], before[1], before[2] };
	const struct row_segment segment[] = {
		{ start[0], n[0], all, befores, n_back[0], no_backs, NULL },
		{ start[1], n[1], all, befores, n_back[1], backs, NULL },
	};
	struct rng rng = { 5 };
	struct rows first = { 0 };
	struct rows_env e;
	struct row_set set;
	bool fixed = true, right = true, padded = true;
	struct ar_err err;
	size_t used;

	env_open_for(&e, MOST);
	set_open(&set, &e);
	for (int t = 0; t < N; t++) {
		struct batch_entry entry[3];
		struct batch b = { .entry = entry, .n = 1 + rng_below(&rng, 3), .blocks = &tables };
		const struct rows *r;
		int at = 0;

		for (size_t i = 0; i < b.n; i++) {
			start[0][i] = 200 + (int32_t)rng_below(&rng, 1000);
			start[1][i] = (int32_t)rng_below(&rng, 150);
			n_back[1][i] = (int32_t)rng_below(&rng, MOST + 1);
			n[0][i] = 1;
			n[1][i] = n_back[1][i] + 1;
			for (int k = 0; k < start[1][i]; k++)
				before[i][k] = (int32_t)rng_below(&rng, 200);
			for (int k = 0; k < n_back[1][i]; k++)
				back[i][k] = (int32_t)rng_below(&rng, 200);
			entry[i] = (struct batch_entry){ .req = (uint32_t)i,
							 .start = (uint32_t)start[0][i],
							 .n_tok = 1,
							 .kind = ROW_DECODE };
		}
		grow(&b);
		if (rows_build_decodes(&set, &e, &b, segment, PAD, &used, &err))
			bail_out("%s", err.msg);
		r = row_set_of(&set, 5);
		if (!t)
			first = *r;
		fixed = fixed && same_places(&first, r) && used <= e.bytes &&
			!memcmp(&first.part[ROW_REVIVED], &r->part[ROW_REVIVED],
				sizeof first.part[ROW_REVIVED]) &&
			r->n_row == PAD * (1 + MOST) && row_set_of(&set, 0)->n_row == PAD &&
			r->part[ROW_DECODE].keys.n_page == first.part[ROW_DECODE].keys.n_page;
		for (size_t i = 0; i < b.n; at += n_back[1][i++])
			for (int k = 0; k < n_back[1][i]; k++)
				right = right &&
					right_revived(r, at, k, &segment[1], i, (uint32_t)i);
		for (; at < PAD * MOST; at++) {
			int page0 = r->part[ROW_REVIVED].keys.page0[at];

			padded = padded && r->part[ROW_REVIVED].keys.len[at] == 1 &&
				 r->part[ROW_REVIVED].keys.page[page0] ==
					 (int)group[LATER].n_page &&
				 r->part[ROW_REVIVED].keys.pos[page0 * TOK] <=
					 r->part[ROW_REVIVED].rows.own[at] &&
				 r->row[PAD + at].slot == (int)group[LATER].n_page * TOK;
		}
	}
	ok(fixed, "a graph with revived rows runs any batch");
	ok(right, "revived rows are those of the batch");
	ok(padded, "the others lie in the scratch page, and see themselves");
	row_set_release(&set);
	env_close(&e);
}

static void test_decodes(void)
{
	enum { PAD = 4, N = 100 };
	struct rng rng = { 3 };
	struct rows first[5];
	struct rows_env e;
	struct row_set set, dev;
	bool fixed = true, right = true, copied = true;
	struct ar_err err;
	size_t used;
	char *copy;

	env_open(&e);
	set_open(&set, &e);
	set_open(&dev, &e);
	copy = malloc(e.bytes);
	if (!copy)
		bail_out("out of memory");
	for (int t = 0; t < N; t++) {
		struct batch_entry entry[3];
		struct batch b = { .entry = entry, .blocks = &tables };

		for (uint32_t q = 0; q < 3; q++)
			if (!b.n || rng_below(&rng, 2))
				entry[b.n++] = (struct batch_entry){
					.req = q,
					.start = (uint32_t)rng_below(&rng, MAX_LEN - 1),
					.n_tok = 1,
					.kind = ROW_DECODE
				};
		grow(&b);
		if (rows_build_decodes(&set, &e, &b, NULL, PAD, &used, &err))
			bail_out("%s", err.msg);
		memcpy(copy, e.mem, used);
		row_set_at(&dev, &set, e.mem, copy);
		memset(e.mem, 0xff, e.bytes);
		if (!t)
			memcpy(first, set.view, sizeof first);
		for (int i = 0; i < 6; i++) {
			const struct row_view *v = &e.view[e.of[i]];
			const struct rows *r = row_set_of(&dev, i);

			fixed = fixed && same_places(row_set_of(&set, i), &first[e.of[i]]);
			copied = copied && (char *)r->emit >= copy &&
				 (char *)r->emit < copy + used && r->emit[PAD - 1] == PAD - 1;
			for (int k = 0; k < PAD; k++)
				right = right && right_request(r, k, v->group, &b);
		}
		for (uint32_t q = 0; q < 3; q++) {
			drop(q);
		}
	}
	ok(right, "padded decodes of every view are at the places of their groups");
	ok(fixed, "at addresses that the number of rows decides");
	ok(copied, "one copy moves all views");
	e.bytes = 3000;
	is_int(rows_build_decodes(
		       &set, &e,
		       &(struct batch){
			       .entry = &(struct batch_entry){ .n_tok = 1, .kind = ROW_DECODE },
			       .n = 1 },
		       NULL, PAD, &used, &err),
	       AR_USAGE, "memory for some of the views only is too small");
	free(copy);
	row_set_release(&dev);
	row_set_release(&set);
	env_close(&e);
}

/* Requests that share pages list more of them than lists of decodes have room for. */
static void test_many_pages(void)
{
	struct batch_entry entry = { .start = 200, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 };
	const struct batch b = { .entry = &entry, .n = 1, .blocks = &tables };
	struct method *dense = method;
	struct rows_env e;
	struct row_set set;
	struct ar_err err;
	size_t used;

	if (method_parse(&method, "dense/decode=streaming", &err))
		bail_out("%s", err.msg);
	env_open(&e);
	set_open(&set, &e);
	grow(&b);
	e.limit[ROW_PREFILL].max_page = 4;
	is_int(rows_build(&set, &e, &b, NULL, NULL, 0, &used, &err), AR_OK,
	       "a method has room for the pages of the cache");
	e.limit[ROW_PREFILL].max_page = 3;
	is_int(rows_build(&set, &e, &b, NULL, NULL, 0, &used, &err), AR_USAGE,
	       "... and for no more");
	is_str(err.msg,
	       "1 requests list 4 pages, as they share some, and method 'dense/decode=streaming' "
	       "has room for the 3 of the cache; lower --max-num-seqs, or take --no-share-kv",
	       "... for a reason");
	row_set_release(&set);
	env_close(&e);
	method_free(method);
	method = dense;
}

/* Rows of drafts that are refused would stay in states and in choices. */
static void test_refused(void)
{
	struct batch_entry entry = { .start = 200, .n_tok = 3, .kind = ROW_VERIFY, .n_emit = 3 };
	const struct batch b = { .entry = &entry, .n = 1, .blocks = &tables };
	static const int32_t start[] = { 200 }, n[] = { 3 }, *const keep[] = { NULL };
	static const struct row_segment segment[] = { { .start = start, .n = n, .keep = keep },
						      { .start = start, .n = n, .keep = keep } };
	static const struct {
		const struct row_segment *segment;
		const char *what;
	} cases[] = { { NULL, "a linear layer" }, { segment, "a dropper" } };
	struct rows_env e;
	struct row_set set;
	struct ar_err err;
	char want[128];
	size_t used;

	env_open(&e);
	set_open(&set, &e);
	grow(&b);
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		is_int(rows_build(&set, &e, &b, cases[i].segment, NULL, 0, &used, &err), AR_USAGE,
		       "verify entries do not go through %s", cases[i].what);
		snprintf(want, sizeof want,
			 "1 verify entries meet %s, which cannot take refused drafts back; leave "
			 "the drafts out",
			 cases[i].what);
		is_str(err.msg, want, "... for a reason");
	}
	row_set_release(&set);
	env_close(&e);
}

static void test_faults(void)
{
	struct rows_env e;
	struct row_set set;
	struct ar_err err;

	for (long k = 0; k < 3; k++) {
		fault_arm(k);
		ok(rows_env_init(&e, 3, &err) == AR_NOMEM && fault_disarm(),
		   "without memory there are no views");
		rows_env_release(&e);
	}
	if (rows_env_init(&e, 1, &err))
		bail_out("%s", err.msg);
	rows_env_add(&e, 0, &(struct row_view){ .group = group });
	fault_arm(0);
	ok(row_set_init(&set, &e, &err) == AR_NOMEM && fault_disarm(), "nor sets of them");
	row_set_release(&set);
	rows_env_release(&e);
}

int main(void)
{
	struct ar_err err;

	plan(0);
	if (method_parse(&method, "dense", &err))
		bail_out("%s", err.msg);
	test_views();
	test_segments();
	test_revived();
	test_decodes();
	test_revived_decodes();
	test_refused();
	test_many_pages();
	test_faults();
	method_free(method);
	return done_testing();
}
