/* SPDX-License-Identifier: Apache-2.0 */
/* Positions in captures, and the arrays of ragged batches. */
#include "config.h"
#include "replay/engine/rows.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "replay/engine/act_capture.h"
#include "replay/engine/graph_sizes.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { PAGE_TOK = 128 };

/* ---- rows ---- */

enum { MAX_REQ = 8, MAX_ROW = 900, MAX_LEN = 4000, N_REQ = 6, N_PAGE = 300 };

static struct capture_seq seqs[] = {
	{ .n_tok = 100, .rope_applied = true, .name = "a" },
	{ .n_tok = 5000, .first = 100, .rope_applied = false, .name = "b" },
};
static const uint16_t capture_of[N_REQ] = { 0, 1, 0, 1, 0, 1 };
static struct act_capture act = {
	.shape = { 4, 2, 64, PAGE_TOK },
	.seq = seqs,
	.n_seq = 2,
	.capture_of = capture_of,
	.ropes.n_rotation = MAX_LEN,
	.tile = true,
};

static struct cache_group group = { .shape = { 4, 2, 64, PAGE_TOK }, .n_page = N_PAGE };

/* The rows of `layers` layers, each with a view of its own. */
static void set_views(struct rows_env *e, int layers, const struct row_view *view)
{
	struct ar_err err;

	if (rows_env_init(e, layers, &err))
		bail_out("out of memory");
	for (int i = 0; i < layers; i++)
		rows_env_add(e, i, &view[i]);
	e->act = &activations_capture;
	e->act_self = &act;
	e->limit[ROW_PREFILL] = (struct attn_limits){ MAX_REQ, MAX_ROW, MAX_LEN / PAGE_TOK + 1, 0,
						      0 };
	e->limit[ROW_DECODE] = (struct attn_limits){ MAX_REQ, MAX_REQ, MAX_LEN / PAGE_TOK + 1, 0,
						     0 };
	e->limit[ROW_VERIFY] = e->limit[ROW_PREFILL];
	e->bytes = rows_bytes(e);
	e->mem = malloc(e->bytes);
	if (!e->mem)
		bail_out("out of memory");
}

static struct blocks tables;

/* One layer. */
static void rows_env_open(struct rows_env *e)
{
	struct ar_err err;

	if (blocks_open(&tables, &(struct block_group){ .page_tok = PAGE_TOK, .n_page = N_PAGE }, 1,
			N_REQ, &err))
		bail_out("out of memory");
	blocks_begin(&tables);
	set_views(e, 1, &(struct row_view){ .group = &group });
}

static void rows_env_close(struct rows_env *e)
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

static enum ar_status build(struct rows *r, const struct rows_env *e, const struct batch *b,
			    int pad, size_t *used, struct ar_err *err)
{
	struct row_set set = { r, e->of, 1 };

	return rows_build(&set, e, b, NULL, NULL, pad, used, err);
}

static enum ar_status build_decodes(struct rows *r, const struct rows_env *e, const struct batch *b,
				    int n, size_t *used, struct ar_err *err)
{
	struct row_set set = { r, e->of, 1 };

	return rows_build_decodes(&set, e, b, NULL, n, used, err);
}

static void grow(const struct batch *b)
{
	struct ar_err err;

	for (size_t i = 0; i < b->n; i++)
		if (blocks_grow(&tables, 0, b->entry[i].req, b->entry[i].start + b->entry[i].n_tok,
				&err))
			bail_out("%s", err.msg);
}

/* A decode entry between two chunks: 200 tokens on 130 of request 0, 1 on 256 of request 1,
 * 3 on 0 of request 2. */
static void test_batch(void)
{
	struct batch_entry entry[] = {
		{ .req = 0, .start = 130, .n_tok = 200, .known = 330, .n_emit = 1 },
		{ .req = 1, .start = 256, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		{ .req = 2, .start = 0, .n_tok = 3, .known = 9 },
	};
	const struct batch b = { .entry = entry, .n = 3, .blocks = &tables };
	struct rows_env e;
	struct rows r;
	struct ar_err err;
	size_t used;

	rows_env_open(&e);
	grow(&b);
	is_int(build(&r, &e, &b, 0, &used, &err), AR_OK, "a ragged batch");
	is_int(r.n_row, 204, "has a row per token");
	is_int(rows_count(&r, ROW_PREFILL), 203, "those of chunks first");
	is_int(r.part[ROW_PREFILL].rows.n_req, 2, "two of its entries are chunks");
	ok(r.part[ROW_PREFILL].rows.row0[0] == 0 && r.part[ROW_PREFILL].rows.row0[1] == 200 &&
		   r.part[ROW_PREFILL].rows.row0[2] == 203,
	   "rows are counted up");
	ok(r.part[ROW_PREFILL].rows.pos0[0] == 130 && r.part[ROW_PREFILL].rows.pos0[1] == 0,
	   "the context is where the chunk starts");
	ok(r.part[ROW_PREFILL].rows.qblk0[1] == 2 && r.part[ROW_PREFILL].rows.qblk0[2] == 3 &&
		   r.part[ROW_PREFILL].rows.n_qblk == 3,
	   "rows 130 ... 329 touch two blocks of the grid, not three");
	ok(r.part[ROW_PREFILL].keys.page0[1] == 3 && r.part[ROW_PREFILL].keys.page0[2] == 4,
	   "pages until the end of the chunk");
	ok(!memcmp(r.part[ROW_PREFILL].keys.page, blocks_table(&tables, 0, 0),
		   3 * sizeof *r.part[ROW_PREFILL].keys.page) &&
		   r.part[ROW_PREFILL].keys.page[3] == blocks_table(&tables, 0, 2)[0],
	   "in the order of positions");
	is_int(r.part[ROW_PREFILL].keys.max_kv_blk, 3, "the largest request has three blocks");
	is_int(r.part[ROW_PREFILL].keys.mask_words, 1, "whose mask is one word");
	ok(!r.part[ROW_PREFILL].rows.left[0] && r.part[ROW_PREFILL].rows.left[1],
	   "the chunk a token comes out of is the last");
	ok(r.part[ROW_DECODE].rows.n_req == 1 && r.part[ROW_DECODE].rows.n_row == 1 &&
		   r.part[ROW_DECODE].rows.pos0[0] == 256 &&
		   r.part[ROW_DECODE].keys.max_kv_blk == 3,
	   "the decode row stands on 256 tokens in three blocks");
	ok(r.n_emit == 2 && r.emit[0] == 199 && r.emit[1] == 203, "tokens come out of last rows");
	ok(r.row[0].tok == 30 && r.row[0].rotation == 100,
	   "position 130 of a capture of 100 tokens is token 30 turned by 100");
	ok(r.row[203].tok == 100 + 256 && r.row[203].rotation == 256,
	   "before RoPE the turn is the position; the next capture's tokens follow");
	is_int(r.row[0].slot, blocks_table(&tables, 0, 0)[1] * PAGE_TOK + 2,
	       "and lies in place 2 of page 1");
	ok(used <= e.bytes, "the block of memory was enough");
	rows_env_close(&e);
}

/* 64 tokens on 3000: one query block and few heads, so a tile or two. */
static void test_parts(void)
{
	struct batch_entry entry = { .req = 0, .start = 3000, .n_tok = 64 };
	const struct batch b = { .entry = &entry, .n = 1, .blocks = &tables };
	int n_whole, small = 0, sms[] = { 4, 132, 1000 };
	struct method *m;
	struct rows_env e;
	struct rows r;
	struct ar_err err;
	size_t used;

	if (method_parse(&m, "dense", &err))
		bail_out("%s", err.msg);
	rows_env_open(&e);
	e.view[0].method = m;
	e.tiles = true;
	grow(&b);
	is_int(build(&r, &e, &b, 0, &used, &err), AR_OK, "rows with tiles");
	n_whole = r.part[ROW_PREFILL].n_tile;
	ok(n_whole > 0 && r.part[ROW_PREFILL].n_part == 0, "the tiles are whole");
	for (int i = 0; i < 3; i++) {
		free(e.mem);
		e.limit[ROW_PREFILL].n_sm = sms[i];
		e.bytes = rows_bytes(&e);
		e.mem = malloc(e.bytes);
		if (!e.mem)
			bail_out("out of memory");
		is_int(build(&r, &e, &b, 0, &used, &err), AR_OK, "for %d multiprocessors", sms[i]);
		small += r.part[ROW_PREFILL].n_tile <= n_whole ||
			 r.part[ROW_PREFILL].n_part != r.part[ROW_PREFILL].n_tile || used > e.bytes;
	}
	is_int(small, 0, "they are cut into parts");
	method_free(m);
	rows_env_close(&e);
}

/* ---- padded decodes ---- */

static void sizes_open(struct graph_sizes *s, const char *list, int64_t max_seqs, int64_t max_tok)
{
	struct ar_err err;

	if (graph_sizes_open(s, list, max_seqs, 0, max_tok, &err))
		bail_out("%s", err.msg);
}

static void test_sizes(void)
{
	static const int n[] = { 1, 2, 3, 4, 5, 8, 9, 250, 256, 257, 272, 273, 512, 513 };
	static const int want[] = { 1, 2, 4, 4, 8, 8, 16, 256, 256, 272, 272, 288, 512, 0 };
	static const char *const bad[] = { "", "0", "1,1", "4,2", "1,", "1;2", "1048577" };
	struct graph_sizes s;
	struct ar_err err;
	bool right = true, ascending = true;
	int refused = 0;

	sizes_open(&s, NULL, 256, 8192);
	for (size_t i = 0; i < sizeof n / sizeof *n; i++)
		right = right && graph_sizes_fit(&s, n[i]) == want[i];
	ok(right, "batches are padded to 1, 2, 4, multiples of 8, and of 16 from 256 to 512");
	is_int(s.n, 51, "which makes 51 sizes, as vLLM captures");
	for (int i = 1; i < s.n; i++)
		ascending = ascending && s.size[i - 1] < s.size[i];
	ok(ascending, "in ascending order");
	graph_sizes_release(&s);
	sizes_open(&s, NULL, 5, 8192);
	ok(s.size[s.n - 1] == 8 && !graph_sizes_fit(&s, 9), "none is above twice the requests");
	graph_sizes_release(&s);
	sizes_open(&s, NULL, 256, 30);
	ok(s.size[s.n - 1] == 30 && s.size[s.n - 2] == 24,
	   "the token budget is one, if it is small");
	graph_sizes_release(&s);
	if (graph_sizes_open(&s, NULL, 256, 1024, 8192, &err))
		bail_out("%s", err.msg);
	ok(s.size[s.n - 1] == 1024 && graph_sizes_fit(&s, 1009) == 1024,
	   "an engine may have larger ones");
	graph_sizes_release(&s);
	sizes_open(&s, NULL, 1, 1);
	ok(s.n == 1 && s.size[0] == 1, "there is always one");
	graph_sizes_release(&s);
	sizes_open(&s, "3,10,1048576", 5, 10);
	ok(s.n == 2 && graph_sizes_fit(&s, 1) == 3 && graph_sizes_fit(&s, 4) == 10 &&
		   !graph_sizes_fit(&s, 11),
	   "a list replaces them, as far as the token budget");
	graph_sizes_release(&s);
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		refused += graph_sizes_open(&s, bad[i], 5, 0, 10, &err) == AR_USAGE && !s.size;
	is_int(refused, (int)(sizeof bad / sizeof *bad), "a malformed list is refused");
	is_str(err.msg,
	       "cudagraph-capture-sizes '1048577': want ascending numbers from 1 to 1048576, such "
	       "as 1,2,4,8",
	       "with what is wanted");
	fault_arm(0);
	is_int(graph_sizes_open(&s, NULL, 5, 0, 10, &err), AR_NOMEM, "no memory is an error");
	fault_disarm();
}

/* Decodes on 130 and 256 tokens as four rows. */
static void test_padding(void)
{
	enum { PAD = 4 };
	struct batch_entry entry[] = {
		{ .req = 0, .start = 130, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		{ .req = 1, .start = 256, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
	};
	const struct batch b = { .entry = entry, .n = 2, .blocks = &tables };
	static const int32_t upto[] = { 0, 1, 2, 3, 4 }, page0[] = { 0, 2, 5, 6, 7 };
	struct rows_env e;
	struct rows r;
	struct ar_err err;
	size_t used;
	int32_t slot;

	rows_env_open(&e);
	slot = N_PAGE * PAGE_TOK;
	grow(&b);
	is_int(build_decodes(&r, &e, &b, PAD, &used, &err), AR_OK, "two decodes as four");
	ok(r.n_row == PAD && r.n_emit == PAD && rows_count(&r, ROW_PREFILL) == 0 &&
		   r.part[ROW_PREFILL].rows.n_req == 0,
	   "are four rows that emit, and no chunk");
	ok(r.part[ROW_DECODE].rows.n_req == PAD && r.part[ROW_DECODE].rows.n_row == PAD &&
		   r.part[ROW_DECODE].rows.n_qblk == PAD &&
		   !memcmp(r.emit, upto, PAD * sizeof *upto) &&
		   !memcmp(r.part[ROW_DECODE].rows.row0, upto, sizeof upto) &&
		   !memcmp(r.part[ROW_DECODE].rows.qblk0, upto, sizeof upto),
	   "a request, a row and a query block each");
	ok(r.part[ROW_DECODE].rows.pos0[0] == 130 && r.part[ROW_DECODE].rows.pos0[1] == 256 &&
		   !r.part[ROW_DECODE].rows.pos0[2] && !r.part[ROW_DECODE].rows.pos0[3],
	   "those that pad stand on nothing");
	ok(!memcmp(r.part[ROW_DECODE].keys.page0, page0, sizeof page0) &&
		   !memcmp(r.part[ROW_DECODE].keys.page, blocks_table(&tables, 0, 0),
			   2 * sizeof *page0) &&
		   !memcmp(r.part[ROW_DECODE].keys.page + 2, blocks_table(&tables, 0, 1),
			   3 * sizeof *page0) &&
		   r.part[ROW_DECODE].keys.page[5] == N_PAGE &&
		   r.part[ROW_DECODE].keys.page[6] == N_PAGE,
	   "in the scratch page");
	ok(r.row[0].slot == blocks_table(&tables, 0, 0)[1] * PAGE_TOK + 2 &&
		   r.row[2].slot == slot && r.row[3].slot == slot,
	   "where they are written to");
	ok(r.row[2].tok == 0 && r.row[2].rotation == 0, "with the first token there is");
	is_int(r.part[ROW_DECODE].keys.max_kv_blk, e.limit[ROW_DECODE].max_kv_blk,
	       "the number of blocks is the limit");
	is_int(r.part[ROW_DECODE].keys.mask_words, (e.limit[ROW_DECODE].max_kv_blk + 31) / 32,
	       "also in words");
	act.tile = false;
	is_int(build_decodes(&r, &e, &b, PAD, &used, &err), AR_DATA,
	       "positions past a capture are refused");
	act.tile = true;
	entry[0].start = 5000;
	is_int(build_decodes(&r, &e, &b, PAD, &used, &err), AR_USAGE, "so are too many blocks");
	entry[0].start = 130;
	e.bytes = 1000;
	is_int(build_decodes(&r, &e, &b, PAD, &used, &err), AR_USAGE,
	       "a block that is too small is seen");
	rows_env_close(&e);
}

static size_t random_decodes(struct batch_entry *entry, struct rng *r)
{
	size_t n = 0;

	for (uint32_t q = 0; q < N_REQ; q++)
		if (!n || rng_below(r, 3))
			entry[n++] =
				(struct batch_entry){ .req = q,
						      .n_tok = 1,
						      .kind = ROW_DECODE,
						      .start = (uint32_t)rng_below(r, MAX_LEN) };
	return n;
}

/* 200 tokens of a prompt and a decode as 400 rows. */
static void test_padded_prompt(void)
{
	enum { PAD = 400 };
	struct batch_entry entry[] = {
		{ .req = 1, .start = 256, .n_tok = 1, .kind = ROW_DECODE, .n_emit = 1 },
		{ .req = 0, .start = 130, .n_tok = 200, .known = 330, .n_emit = 1 },
	};
	const struct batch b = { .entry = entry, .n = 2, .blocks = &tables };
	const int32_t slot = N_PAGE * PAGE_TOK;
	struct rows_env e;
	struct rows r;
	struct ar_err err;
	size_t used;
	bool padded = true;

	rows_env_open(&e);
	grow(&b);
	is_int(build(&r, &e, &b, 201, &used, &err), AR_OK, "no row to add");
	is_int(r.n_row, 201, "adds none");
	is_int(build(&r, &e, &b, PAD, &used, &err), AR_OK, "201 rows as 400");
	ok(r.n_row == PAD && rows_count(&r, ROW_PREFILL) == 200 && r.n_emit == 2 &&
		   r.emit[1] == 200,
	   "rows of prompts, of decodes, then those that pad");
	for (int i = 201; i < PAD; i++)
		padded = padded && r.row[i].slot == slot && !r.row[i].tok && !r.row[i].rotation;
	ok(padded && r.row[200].slot != slot, "which are in the scratch page");
	ok(r.part[ROW_PREFILL].rows.n_row == 200 && r.part[ROW_DECODE].rows.n_row == 1,
	   "and take no part in attention");
	ok(used <= e.bytes, "the block of memory is enough");
	rows_env_close(&e);
}

static bool same_places(const struct rows *a, const struct rows *b)
{
	const struct attn_batch *x = &a->part[ROW_DECODE], *y = &b->part[ROW_DECODE];

	return a->row == b->row && a->emit == b->emit && a->n_row == b->n_row &&
	       a->n_emit == b->n_emit && rows_count(a, ROW_PREFILL) == rows_count(b, ROW_PREFILL) &&
	       !memcmp(&x->rows, &y->rows, sizeof x->rows) &&
	       x->keys.max_kv_blk == y->keys.max_kv_blk &&
	       x->keys.mask_words == y->keys.mask_words && x->keys.len == y->keys.len &&
	       x->keys.page0 == y->keys.page0 && x->keys.page == y->keys.page && !x->tile &&
	       !y->tile;
}

static bool same_rows(const struct rows *a, const struct rows *b, int n)
{
	return !memcmp(a->row, b->row, (size_t)n * sizeof *a->row) &&
	       !memcmp(a->part[ROW_DECODE].rows.pos0, b->part[ROW_DECODE].rows.pos0,
		       (size_t)n * sizeof *a->part[ROW_DECODE].rows.pos0) &&
	       !memcmp(a->part[ROW_DECODE].keys.page0, b->part[ROW_DECODE].keys.page0,
		       (size_t)(n + 1) * sizeof *a->part[ROW_DECODE].keys.page0) &&
	       !memcmp(a->part[ROW_DECODE].keys.page, b->part[ROW_DECODE].keys.page,
		       (size_t)a->part[ROW_DECODE].keys.page0[n] *
			       sizeof *a->part[ROW_DECODE].keys.page);
}

/* The arguments of a captured graph must not change. */
static void test_fixed(void)
{
	struct rng r = { 7 };
	struct rows first[MAX_REQ + 1] = { 0 };
	struct graph_sizes sizes;
	struct rows_env e, plain;
	bool fixed = true, same = true;

	rows_env_open(&e);
	sizes_open(&sizes, NULL, MAX_REQ / 2, MAX_ROW);
	plain = e;
	plain.mem = malloc(plain.bytes);
	if (!plain.mem)
		bail_out("out of memory");
	for (int i = 0; i < 300; i++) {
		struct batch_entry entry[N_REQ];
		const struct batch b = { .entry = entry,
					 .n = random_decodes(entry, &r),
					 .blocks = &tables };
		int n = graph_sizes_fit(&sizes, (int64_t)b.n);
		struct rows x, y;
		struct ar_err err;
		size_t used;

		grow(&b);
		if (build(&y, &plain, &b, 0, &used, &err) ||
		    build_decodes(&x, &e, &b, n, &used, &err))
			bail_out("%s", err.msg);
		if (!first[n].row)
			first[n] = x;
		fixed = fixed && same_places(&x, &first[n]);
		same = same && same_rows(&x, &y, (int)b.n);
		for (uint32_t q = 0; q < N_REQ; q++)
			if (rng_below(&r, 3) == 0)
				drop(q);
	}
	ok(fixed, "batches of one size differ in contents only");
	ok(same, "and begin with the rows that they have without padding");
	graph_sizes_release(&sizes);
	free(plain.mem);
	rows_env_close(&e);
}

static void test_refusals(void)
{
	struct batch_entry entry = { .req = 0, .start = 0, .n_tok = MAX_ROW + 1 };
	const struct batch b = { .entry = &entry, .n = 1, .blocks = &tables };
	struct rows_env e;
	struct rows r;
	struct ar_err err;
	size_t used;

	rows_env_open(&e);
	grow(&b);
	is_int(build(&r, &e, &b, 0, &used, &err), AR_USAGE, "too many rows are refused");
	entry.n_tok = 1;
	entry.start = 5000;
	is_int(build(&r, &e, &b, 0, &used, &err), AR_USAGE, "so are too many blocks");
	entry.start = 200;
	act.tile = false;
	is_int(build(&r, &e, &b, 0, &used, &err), AR_DATA, "and positions past a capture");
	is_str(err.msg,
	       "a: has 100 tokens, position 200 is wanted; use --extend tile or a longer "
	       "capture",
	       "with the way out");
	act.tile = true;
	act.ropes.n_rotation = 50;
	is_int(build(&r, &e, &b, 0, &used, &err), AR_USAGE, "and turns without a table");
	act.ropes.n_rotation = MAX_LEN;
	e.bytes = 1000;
	is_int(build(&r, &e, &b, 0, &used, &err), AR_USAGE, "a block that is too small is seen");
	rows_env_close(&e);
}

/* ---- verify entries ---- */

static void test_verify(void)
{
	static struct cache_group near = { .mixer = MIX_WINDOW,
					   .window = 100,
					   .shape = { 4, 2, 64, PAGE_TOK },
					   .n_page = N_PAGE };
	struct batch_entry entry[] = {
		{ .start = 254, .n_tok = 4, .known = 258, .kind = ROW_VERIFY, .n_emit = 3 },
		{ .req = 1, .start = 40, .n_tok = 1, .known = 41, .kind = ROW_DECODE, .n_emit = 1 },
		{ .req = 2, .n_tok = 20, .known = 20, .n_emit = 1 },
	};
	const struct batch b = { .entry = entry, .n = 3, .blocks = &tables };
	struct rows x[2];
	struct row_set set = { x, NULL, 2 };
	const struct attn_batch *v = &x[0].part[ROW_VERIFY];
	struct rows_env e;
	struct ar_err err;
	bool right = true;
	size_t used;

	rows_env_open(&e);
	free(e.mem);
	rows_env_release(&e);
	set_views(&e, 2, (struct row_view[]){ { .group = &group }, { .group = &near } });
	grow(&b);
	is_int(rows_build(&set, &e, &b, NULL, NULL, 0, &used, &err), AR_OK,
	       "a batch of prefill, decode and verify entries");
	ok(rows_count(x, ROW_VERIFY) == 4 && rows_before(x, ROW_VERIFY) == 21 && x->n_row == 25 &&
		   v->rows.n_req == 1 && v->rows.pos0[0] == 254 && v->keys.len[0] == 258 &&
		   v->rows.left[0] == 0,
	   "verify rows come after decodes, where their request goes on");
	ok(v->keys.n_page == 3 &&
		   !memcmp(v->keys.page, blocks_table(&tables, 0, 0), 3 * sizeof *v->keys.page),
	   "with its pages");
	for (int i = 0; i < 4; i++)
		right = right && v->rows.pos[i] == 254 + i &&
			x[1].part[ROW_VERIFY].rows.first[i] == 254 + i - 99 &&
			x->row[21 + i].slot == v->keys.page[(254 + i) / PAGE_TOK] * PAGE_TOK +
						       (254 + i) % PAGE_TOK;
	ok(right && !v->rows.first, "each at its place, and with the window before it");
	ok(x->n_emit == 5 &&
		   !memcmp(x->emit, (int32_t[]){ 19, 20, 22, 23, 24 }, 5 * sizeof *x->emit),
	   "its last rows output a token each");
	rows_env_close(&e);
}

/* Limits without drafts, with some, and with more than the tokens of a batch. */
static void test_verify_limits(void)
{
	struct backend_env env = { .max_seqs = 10, .max_batched_tok = 64, .max_len = MAX_LEN };
	struct batch_entry entry = { .n_tok = 2, .known = 2, .kind = ROW_VERIFY, .n_emit = 2 };
	const struct batch b = { .entry = &entry, .n = 1, .blocks = &tables };
	struct rows_env e;
	struct rows r;
	struct ar_err err;
	size_t used, bytes;

	rows_env_open(&e);
	grow(&b);
	rows_limits(&e, &env, PAGE_TOK);
	bytes = rows_bytes(&e);
	ok(!e.limit[ROW_VERIFY].max_row && rows_max(&e) == 64 + 10 && rows_max_emit(&e) == 10 + 10,
	   "without drafts there is no room for verify rows");
	is_int(build(&r, &e, &b, 0, &used, &err), AR_USAGE, "so they are refused");
	ok(strstr(err.msg, "1 verify entries with 2 tokens") != NULL, "by name: %s", err.msg);
	env.max_draft_tok = 3;
	rows_limits(&e, &env, PAGE_TOK);
	ok(e.limit[ROW_VERIFY].max_req == 10 && rows_max(&e) == 64 + 10 + 40 &&
		   rows_max_emit(&e) == 10 + 10 + 40 && rows_bytes(&e) > bytes,
	   "with drafts there is room for those of each request");
	env.max_draft_tok = 9;
	rows_limits(&e, &env, PAGE_TOK);
	is_int(e.limit[ROW_VERIFY].max_row, 64, "within the tokens of a batch");
	rows_env_close(&e);
}

/* ---- random batches ---- */

static size_t random_batch(struct batch_entry *entry, struct rng *r)
{
	size_t n = 0;

	for (uint32_t q = 0; q < N_REQ; q++)
		if (rng_below(r, 4)) {
			static const uint32_t most[] = { MAX_ROW / N_REQ, 1, 9 }; /* by kind */
			enum row_kind kind = (enum row_kind)rng_below(r, ROW_REVIVED);
			uint32_t n_tok = 1 + (uint32_t)rng_below(r, most[kind]);

			entry[n++] = (struct batch_entry){
				.req = q,
				.start = (uint32_t)rng_below(r, 3000),
				.n_tok = n_tok,
				.kind = kind,
				.n_emit = (uint32_t)rng_below(r, kind == ROW_VERIFY ? n_tok + 1 : 2)
			};
		}
	return n;
}

/* Every row against its definition, by walking the arrays of its kind.  *emit: the number of rows
 * of emit before; the rows of the kind are added. */
static bool check_kind(const struct rows *r, enum row_kind kind, const struct batch *batch,
		       int *emit)
{
	const struct attn_batch *b = &r->part[kind];
	int row = rows_before(r, kind);
	bool good = b->rows.row0[0] == 0 && b->rows.qblk0[0] == 0 && b->keys.page0[0] == 0;
	int q = 0, most = 0;

	for (size_t i = 0; i < batch->n; i++) {
		const struct batch_entry *e = &batch->entry[i];
		const struct capture_seq *from = &seqs[capture_of[e->req]];
		int n_page;

		if (e->kind != kind)
			continue;
		n_page = b->keys.page0[q + 1] - b->keys.page0[q];
		most = n_page > most ? n_page : most;
		good &= b->rows.row0[q + 1] - b->rows.row0[q] == (int)e->n_tok &&
			b->rows.pos0[q] == (int)e->start &&
			b->keys.len[q] == (int)(e->start + e->n_tok);
		good &= n_page == (int)(e->start + e->n_tok - 1) / PAGE_TOK + 1;
		good &= b->rows.qblk0[q + 1] - b->rows.qblk0[q] ==
			n_page - (int)e->start / PAGE_TOK;
		for (uint32_t t = 0; t < e->n_tok; t++, row++) {
			uint32_t pos = e->start + t;
			const struct layer_row *x = &r->row[row];

			good &= b->rows.pos[b->rows.row0[q] + (int)t] == (int)pos;
			good &= x->slot / PAGE_TOK ==
					b->keys.page[b->keys.page0[q] + (int)pos / PAGE_TOK] &&
				x->slot % PAGE_TOK == (int)pos % PAGE_TOK;
			good &= x->tok == (int)(from->first + pos % from->n_tok) &&
				x->rotation == (int)pos - (from->rope_applied ? x->tok : 0);
		}
		for (int left = (int)e->n_emit; left; left--)
			good &= r->emit[(*emit)++] == row - left;
		q++;
	}
	return good && q == b->rows.n_req && b->rows.n_row == b->rows.row0[q] &&
	       b->rows.n_qblk == b->rows.qblk0[q] && most == b->keys.max_kv_blk &&
	       b->keys.mask_words == (most + 31) / 32;
}

static bool check_all(const struct rows *r, const struct batch *batch)
{
	bool good = true;
	int emit = 0;

	for (int k = 0; k < ROW_REVIVED; k++)
		good &= check_kind(r, k, batch, &emit);
	return good && emit == r->n_emit && r->n_row == rows_before(r, ROW_KINDS);
}

static void test_random(void)
{
	struct rng r = { 99 };
	struct rows_env e;
	bool good = true, copied = true;

	rows_env_open(&e);
	for (int n = 0; n < 300; n++) {
		struct batch_entry entry[N_REQ];
		const struct batch b = { .entry = entry,
					 .n = random_batch(entry, &r),
					 .blocks = &tables };
		struct rows x, y;
		struct ar_err err;
		size_t used;
		char *copy;

		grow(&b);
		if (build(&x, &e, &b, 0, &used, &err))
			bail_out("%s", err.msg);
		copy = malloc(used + 1);
		if (!copy)
			bail_out("out of memory");
		memcpy(copy, e.mem, used);
		row_set_at(&(struct row_set){ .view = &y }, &(struct row_set){ &x, e.of, 1 }, e.mem,
			   copy);
		memset(e.mem, 0xff, used);
		copied &= check_all(&y, &b);
		memcpy(e.mem, copy, used);
		good &= check_all(&x, &b);
		free(copy);
		for (uint32_t q = 0; q < N_REQ; q++)
			if (rng_below(&r, 3) == 0)
				drop(q);
	}
	ok(good, "rows, pages and blocks of random batches agree with their definitions");
	ok(copied, "a copy of the block holds all of it");
	rows_env_close(&e);
}

static void test_offset(void)
{
	const struct attn_shape s = { 8, 4, 64, PAGE_TOK };

	is_int((long long)pages_offset(&s, 0, 1), 128 * 64, "heads of a page follow each other");
	is_int((long long)pages_offset(&s, 3, 2), (3 * 4 + 2) * 128 * 64, "pages hold all heads");
}

int main(void)
{
	plan(0);
	test_batch();
	test_parts();
	test_sizes();
	test_padding();
	test_padded_prompt();
	test_fixed();
	test_refusals();
	test_verify();
	test_verify_limits();
	test_random();
	test_offset();
	return done_testing();
}
