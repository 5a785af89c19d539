/* SPDX-License-Identifier: Apache-2.0 */
/* Selection and unions, the reference: a worked example, then properties of random cases. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/flashprefill/flashprefill.h"
#include "kernels/select/top.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static const struct flashprefill plain = { .alpha = 0.05, .sink = 1, .window = 1 };

static void select_into(struct batch_case *c, const struct flashprefill *p, uint32_t *mask)
{
	struct ar_err err;

	if (selector_find("flashprefill")
		    ->ref(
			    &(struct attn_call){
				    .b = &c->b, .q = c->q, .kv = c->kv, .state = c->state },
			    p, &(struct selection){ .mask = mask }, &err))
		bail_out("%s", err.msg);
}

static uint32_t *select_new(struct batch_case *c, const struct flashprefill *p)
{
	size_t n = case_mask_words(c) * sizeof(uint32_t);
	uint32_t *mask = malloc(n);

	memset(mask, 0xff, n);
	select_into(c, p, mask);
	return mask;
}

static const uint32_t *row_of(const struct batch_case *c, const uint32_t *mask, int qblk, int head)
{
	return mask + (size_t)(qblk * c->b.shape.q_heads + head) * (size_t)c->b.keys.mask_words;
}

static bool kept(const uint32_t *row, int j)
{
	return row[j / 32] >> j % 32 & 1;
}

/* Bits as "0 2 5". */
static const char *bits(const uint32_t *row, int words)
{
	static char text[256];
	size_t n = 0;

	*text = 0;
	for (int j = 0; j < words * 32; j++)
		if (kept(row, j))
			n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", n ? " " : "", j);
	return text;
}

/* ---- the worked example: blocks of 2, heads of 2, ten cached tokens, a chunk of four ---- */

static const double
	example_s[2][2][7] = { /* [head][query block] */
			       { { .446433, .026387, .446433, .000092, .026387, .054268, 0 },
				 { .348429, .019513, .348429, .019513, .099426, .084709,
				   .079982 } },
			       { { .003430, .981822, .003430, .003430, .000834, .007054, 0 },
				 { .000205, .003463, .000205, .991401, .003463, .000842, .000421 } }
	};

static void example(struct batch_case *c)
{
	case_example(c);
	case_cut(c, (int[]){ 0 }, (int[]){ 10 });
	select_into(c, &plain, c->mask); /* leaves the means of the cached blocks */
	case_cut(c, (int[]){ 10 }, (int[]){ 4 });
}

static void test_example_masks(struct batch_case *c)
{
	struct flashprefill p = { .alpha = 0.30, .sink = 1, .window = 1 };
	uint32_t *mask = select_new(c, &p);

	is_int(c->b.rows.n_qblk, 2, "the chunk has two query blocks");
	is_str(bits(row_of(c, mask, 0, 0), 1), "0 2 5", "head 0, query block 0");
	is_str(bits(row_of(c, mask, 1, 0), 1), "0 2 6", "head 0, query block 1");
	is_str(bits(row_of(c, mask, 0, 1), 1), "0 1 5", "head 1, query block 0");
	is_str(bits(row_of(c, mask, 1, 1), 1), "0 3 6", "head 1, query block 1");
	free(mask);

	p.last_n = 1;
	mask = select_new(c, &p);
	is_str(bits(row_of(c, mask, 0, 1), 1), "0 1 5",
	       "last-n leaves the earlier query blocks alone");
	is_str(bits(row_of(c, mask, 1, 0), 1), "0 1 2 3 4 5 6", "and opens the last one");
	free(mask);

	c->left[0] = 1;
	mask = select_new(c, &p);
	is_str(bits(row_of(c, mask, 1, 0), 1), "0 2 6", "but only in the prompt's final chunk");
	free(mask);
	c->left[0] = 0;
}

/* The share of each block shows in the alpha at which it goes. */
static void test_example_scores(struct batch_case *c)
{
	struct flashprefill p = { .window = 1 };
	int bad = 0, n = 0;

	for (int h = 0; h < 2; h++)
		for (int i = 0; i < 2; i++) {
			const double *s = example_s[h][i];
			double max = 0;

			for (int j = 0; j < 7; j++)
				max = s[j] > max ? s[j] : max;
			for (int j = 0; j < 5 + i; j++) {
				double slack = 1e-6 / s[j] + 1e-6 / max;
				uint32_t *mask;

				p.alpha = s[j] / max * (1 - slack);
				mask = select_new(c, &p);
				bad += !kept(row_of(c, mask, i, h), j);
				free(mask);
				p.alpha = s[j] / max * (1 + slack);
				mask = select_new(c, &p);
				bad += s[j] < max && kept(row_of(c, mask, i, h), j);
				free(mask);
				n++;
			}
		}
	ok(n == 22 && !bad, "every block's share is right to 1e-6 (%d off)", bad);
}

static void count(const struct method_part *m, const struct batch_case *c, uint32_t *mask,
		  const uint32_t *table, struct selection_count *n)
{
	struct ar_err err;

	if (method_count(m, &c->b, &(struct selection){ .mask = mask }, table, n, &err))
		bail_out("%s", err.msg);
}

static void test_example_unions(struct batch_case *c)
{
	struct flashprefill p = { .alpha = 0.30, .sink = 1, .window = 1 };
	struct method_part m = { .selector = selector_find("flashprefill"),
				 .param = &p,
				 .u = UNION_GROUP };
	struct selection_count n;
	uint32_t *mask = select_new(c, &p), table[2];

	union_ref(&c->b, 1, mask, table);
	is_str(bits(&table[0], 1), "0 2 5 6", "union of head 0 over its query blocks");
	is_str(bits(&table[1], 1), "0 1 3 5 6", "union of head 1");
	union_ref(&c->b, 2, mask, table);
	is_str(bits(table, 1), "0 1 2 3 5 6", "union of the group");
	count(&m, c, mask, table, &n);
	ok(n.tiles_sel == 8 && n.tiles_total == 20, "8 of 20 past tiles are selected");
	ok(n.qunion_sel == 5 && n.qunion_total == 10, "5 of 10 after the union over query blocks");
	ok(n.group_sel == 4 && n.group_total == 5, "4 of 5 after the union of the group");
	ok(n.exec_sel == 84 && n.exec_total == 100, "84 of 100 causal pairs are run");
	m.u = UNION_NONE;
	count(&m, c, mask, NULL, &n);
	ok(n.group_sel == 8 && n.group_total == 20, "without a union the executor gets the tiles");
	is_int(n.exec_sel, 4 * (5 + 6), "and runs two past blocks and the diagonal for each list");
	m = (struct method_part){ .selector = selector_find("none"), .dense = true };
	count(&m, c, NULL, NULL, &n);
	ok(n.tiles_sel == 20 && n.tiles_total == 20 && n.qunion_sel == 10 && n.exec_sel == 100 &&
		   n.exec_total == 100,
	   "a dense method keeps everything");
	free(mask);

	p.window = 2;
	mask = select_new(c, &p);
	union_ref(&c->b, 2, mask, table);
	is_str(bits(table, 1), "0 1 2 3 4 5 6", "a window of two keeps the block before the chunk");
	free(mask);
}

static void test_lists(void)
{
	/* Tables of two KV heads, of two sub-groups of one, and more. */
	uint32_t mask[] = { 0x6f, 0, 0x71, 0, 0x65, 0, 0x6b, 0, 0x80000001, 0x80000001, 0, 0 };
	uint16_t block[6][8], none[8];
	int32_t n[6];
	struct block_lists l = { .block = block[0], .n = n, .stride = 8 };

	memset(block, 0xff, sizeof block);
	memset(none, 0xff, sizeof none);
	lists_ref(mask, 6, 2, &l);
	ok(n[0] == 6 && !memcmp(block[0], (uint16_t[]){ 0, 1, 2, 3, 5, 6 }, 12),
	   "a row becomes its block numbers");
	ok(n[1] == 4 && !memcmp(block[1], (uint16_t[]){ 0, 4, 5, 6 }, 8), "and so does the next");
	ok(n[2] == 4 && !memcmp(block[2], (uint16_t[]){ 0, 2, 5, 6 }, 8) && n[3] == 5 &&
		   !memcmp(block[3], (uint16_t[]){ 0, 1, 3, 5, 6 }, 10),
	   "rows may have blocks in common");
	ok(n[4] == 4 && !memcmp(block[4], (uint16_t[]){ 0, 31, 32, 63 }, 8),
	   "the ends of a word are found");
	ok(n[5] == 0 && !memcmp(block[5], none, sizeof none), "an empty row writes nothing");
}

/* ---- properties ---- */

static const struct attn_shape small = {
	.q_heads = 4, .kv_heads = 2, .head_dim = 16, .page_tok = 8
};

static int draw(struct rng *rng, int lo, int hi)
{
	return lo + (int)rng_below(rng, (uint64_t)(hi - lo + 1));
}

/* Three sequences with their means in place, cut at random. */
static void random_case(struct batch_case *c, struct rng *rng)
{
	int len[3], ctx[3], rows[3];

	for (int r = 0; r < 3; r++) {
		len[r] = draw(rng, 1, 400);
		ctx[r] = draw(rng, 0, len[r] - 1);
		rows[r] = draw(rng, 1, len[r] - ctx[r]);
	}
	case_make(c, rng, FILL_BLOCKS, small, 3, len);
	case_cut(c, (int[3]){ 0 }, len);
	select_into(c, &plain, c->mask);
	case_cut(c, ctx, rows);
}

/* No bit of a is set that b lacks. */
static bool subset(const uint32_t *a, const uint32_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] & ~b[i])
			return false;
	return true;
}

/* Every row keeps the blocks for which want() is 1 and lacks the blocks for which it is 0. */
static bool rows_are(const struct batch_case *c, const uint32_t *mask, int (*want)(int qa, int j))
{
	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++)
			for (int h = 0; h < c->b.shape.q_heads; h++)
				for (int j = 0; j < c->b.keys.mask_words * 32; j++) {
					int qa = c->ctx[r] / c->b.shape.page_tok + i - c->qblk0[r];
					int w = want(qa, j);

					if (w >= 0 && kept(row_of(c, mask, i, h), j) != w)
						return false;
				}
	return true;
}

static int up_to_diagonal(int qa, int j)
{
	return j <= qa;
}

static int sink_and_window(int qa, int j)
{
	return j > qa ? 0 : j < 3 || qa - j < 2 ? 1 : -1;
}

static int only_forced(int qa, int j)
{
	return j <= qa && (j < 3 || qa - j < 2);
}

static void test_thresholds(void)
{
	int monotone = 0, all = 0, forced = 0, open = 0, fewer = 0;

	for (int k = 0; k < 40; k++) {
		struct flashprefill p = { .alpha = 0, .sink = 3, .window = 2 };
		struct rng rng = { (uint64_t)k };
		uint32_t *low, *high;
		struct batch_case c;

		random_case(&c, &rng);
		low = select_new(&c, &p);
		all += rows_are(&c, low, up_to_diagonal);
		for (double alpha = 0.001; alpha <= 1; alpha *= 3) {
			p.alpha = alpha;
			high = select_new(&c, &p);
			monotone += subset(high, low, case_mask_words(&c));
			fewer += memcmp(high, low, case_mask_words(&c) * sizeof *high) != 0;
			forced += rows_are(&c, high, sink_and_window);
			free(low);
			low = high;
		}
		free(low);
		p = (struct flashprefill){
			.alpha = 0.05, .sink = 3, .window = 2, .dense_first = true
		};
		case_cut(&c, (int[3]){ 0 }, c.len);
		low = select_new(&c, &p);
		open += rows_are(&c, low, up_to_diagonal);
		free(low);
		case_release(&c);
	}
	is_int(all, 40, "alpha 0 keeps every block up to the diagonal");
	is_int(monotone, 40 * 7, "a higher alpha keeps a subset");
	ok(fewer > 140, "and mostly a smaller one (%d of 280)", fewer);
	is_int(forced, 40 * 7, "sink and window are always kept, nothing past the diagonal ever");
	is_int(open, 40, "dense-first keeps all of a chunk without context");
}

/* One block that dwarfs the others leaves nothing but the forced blocks beside it. */
static void test_peak(void)
{
	struct flashprefill p = { .alpha = 1, .sink = 3, .window = 2 };
	struct attn_shape shape = { .q_heads = 2, .kv_heads = 1, .head_dim = 4, .page_tok = 4 };
	struct rng rng = { 5 };
	struct batch_case c;
	uint32_t *mask;

	case_make(&c, &rng, FILL_BLOCKS, shape, 1, (int[]){ 80 });
	memset(c.kv.k, 0, (size_t)c.n_page * case_page_elements(&c) * sizeof(bf16_t));
	for (int d = 0; d < 16; d++)
		c.kv.k[c.page[0] * 16 + d] = bf16_from_f32(60);
	for (int i = 0; i < 80 * 8; i++)
		c.all_q[i] = bf16_from_f32(60);
	case_cut(&c, (int[]){ 0 }, (int[]){ 80 });
	mask = select_new(&c, &p);
	ok(rows_are(&c, mask, only_forced),
	   "alpha 1 beside a huge score keeps the forced blocks only");
	free(mask);
	case_release(&c);
}

/* Query blocks that lie whole in a chunk select the same however the prompt is cut. */
static bool cut_is_neutral(struct batch_case *c, const uint32_t *whole, int whole_words,
			   struct rng *rng)
{
	int tok = small.page_tok, len = c->len[0];
	bool same = true;

	for (int at = 0, n; at < len; at += n) {
		n = draw(rng, 1, len - at < 60 ? len - at : 60);
		case_cut(c, (int[]){ at }, (int[]){ n });
		select_into(c, &plain, c->mask);
		for (int i = 0; i < c->b.rows.n_qblk; i++) {
			int qa = at / tok + i;

			if (qa * tok < at || (qa + 1) * tok > at + n)
				continue;
			for (int h = 0; h < small.q_heads; h++)
				for (int w = 0; w < c->b.keys.mask_words; w++)
					same &= row_of(c, c->mask, i, h)[w] ==
						whole[(qa * small.q_heads + h) * whole_words + w];
		}
	}
	return same;
}

static void test_cuts(void)
{
	int neutral = 0, states = 0;

	for (int k = 0; k < 20; k++) {
		struct rng rng = { 100 + (uint64_t)k };
		struct batch_case c;
		size_t state_bytes;
		bf16_t *state;
		uint32_t *whole;
		int words;

		case_make(&c, &rng, FILL_BLOCKS, small, 1, (int[]){ draw(&rng, 100, 500) });
		state_bytes = (size_t)c.n_page *
			      selector_find("flashprefill")->state_bytes(NULL, &small);
		state = malloc(state_bytes);
		case_cut(&c, (int[]){ 0 }, c.len);
		whole = select_new(&c, &plain);
		words = c.b.keys.mask_words;
		memcpy(state, c.state, state_bytes);
		memset(c.state, 0xff, state_bytes);
		neutral += cut_is_neutral(&c, whole, words, &rng);
		states += !memcmp(state, c.state, state_bytes);
		free(state);
		free(whole);
		case_release(&c);
	}
	is_int(neutral, 20, "whole query blocks select the same however the prompt is cut");
	is_int(states, 20, "a state rebuilt in one chunk equals one kept over many");
}

/* Spoil all keys after one of the query blocks, in the chunk and past it. */
static void test_future(void)
{
	int blind = 0, n = 0;

	for (int k = 0; k < 20; k++) {
		struct rng rng = { 200 + (uint64_t)k };
		struct batch_case c;
		uint32_t *before, *after;
		size_t page;
		int first, cut;

		random_case(&c, &rng);
		page = case_page_elements(&c);
		first = c.ctx[0] / small.page_tok;
		cut = draw(&rng, first, (c.ctx[0] + c.row0[1] - 1) / small.page_tok);
		before = select_new(&c, &plain);
		for (int j = cut + 1; j < c.page0[1]; j++)
			memset(c.kv.k + (size_t)c.page[j] * page, 0xff, page * sizeof(bf16_t));
		after = select_new(&c, &plain);
		for (int i = 0; i <= cut - first; i++) {
			blind += !memcmp(row_of(&c, before, i, 0), row_of(&c, after, i, 0),
					 (size_t)(small.q_heads * c.b.keys.mask_words) *
						 sizeof *before);
			n++;
		}
		free(before);
		free(after);
		case_release(&c);
	}
	ok(n > 20 && blind == n, "no query block is moved by later keys (%d of %d)", blind, n);
}

static void test_ragged(void)
{
	int same = 0;

	for (int k = 0; k < 20; k++) {
		struct rng rng = { 300 + (uint64_t)k };
		struct batch_case c;
		uint32_t *mask;
		struct attn_batch all;
		bf16_t *q;

		random_case(&c, &rng);
		mask = select_new(&c, &plain);
		all = c.b;
		q = c.q;
		for (int r = 0; r < 3; r++) {
			int32_t row0[] = { 0, all.rows.row0[r + 1] - all.rows.row0[r] };
			int32_t qblk0[] = { 0, all.rows.qblk0[r + 1] - all.rows.qblk0[r] };
			int32_t page0[] = { 0, all.keys.page0[r + 1] - all.keys.page0[r] };

			c.b = all;
			c.b.rows.n_req = 1, c.b.rows.n_row = row0[1], c.b.rows.n_qblk = qblk0[1];
			c.b.rows.row0 = row0, c.b.rows.qblk0 = qblk0, c.b.keys.page0 = page0;
			c.b.rows.pos += all.rows.row0[r], c.b.rows.pos0 += r, c.b.rows.left += r;
			c.b.keys.len += r, c.b.keys.page += all.keys.page0[r];
			c.q = q +
			      (size_t)all.rows.row0[r] * (size_t)(small.q_heads * small.head_dim);
			select_into(&c, &plain, c.mask);
			same += !memcmp(c.mask,
					mask + all.rows.qblk0[r] * small.q_heads *
							all.keys.mask_words,
					case_mask_words(&c) * sizeof *mask);
		}
		c.q = q;
		free(mask);
		case_release(&c);
	}
	is_int(same, 60, "a ragged batch selects what its requests select alone");
}

/* Table rows against the definition, bit by bit. */
static bool union_is_or(const struct batch_case *c, int heads, const uint32_t *mask,
			const uint32_t *table)
{
	const struct attn_batch *b = &c->b;
	int group = b->shape.q_heads / b->shape.kv_heads, per_kv = (group + heads - 1) / heads;
	bool good = true;

	for (int r = 0; r < b->rows.n_req; r++)
		for (int g = 0; g < b->shape.kv_heads * per_kv; g++, table += b->keys.mask_words) {
			int past = b->rows.pos0[r] / b->shape.page_tok;
			int end = b->rows.pos0[r] + b->rows.row0[r + 1] - b->rows.row0[r];
			int h1 = (g / per_kv + 1) * group;
			int h0 = h1 - group + g % per_kv * heads;

			for (int j = 0; j < b->keys.mask_words * 32; j++) {
				bool want = j >= past && j * b->shape.page_tok < end;

				for (int i = b->rows.qblk0[r]; i < b->rows.qblk0[r + 1] && j < past;
				     i++)
					for (int h = h0; h < h1 && h < h0 + heads; h++)
						want |= kept(row_of(c, mask, i, h), j);
				good &= kept(table, j) == want;
			}
		}
	return good;
}

static void test_unions(void)
{
	static const struct attn_shape shapes[] = {
		{ .q_heads = 4, .kv_heads = 2, .head_dim = 16, .page_tok = 8 },
		{ .q_heads = 5, .kv_heads = 1, .head_dim = 16, .page_tok = 8 },
		{ .q_heads = 16, .kv_heads = 2, .head_dim = 16, .page_tok = 8 },
	};
	struct flashprefill p = { .alpha = 0.5, .sink = 1, .window = 1 };
	int good = 0;

	for (int k = 0; k < 9; k++) {
		const struct attn_shape *s = &shapes[k / 3];
		int heads = union_heads(unions[1 + k % 3].kind, s);
		struct rng rng = { 400 + (uint64_t)k };
		struct batch_case c;
		uint32_t *mask, *table;
		size_t bytes;

		case_make(&c, &rng, FILL_BLOCKS, *s, 2, (int[]){ 390, 77 });
		case_cut(&c, (int[2]){ 0 }, c.len);
		select_into(&c, &p, c.mask);
		case_cut(&c, (int[]){ 301, 64 }, (int[]){ 80, 13 });
		mask = select_new(&c, &p);
		bytes = (size_t)(2 * union_groups(heads, s) * c.b.keys.mask_words) * sizeof *table;
		table = malloc(bytes);
		memset(table, 0xff, bytes);
		union_ref(&c.b, heads, mask, table);
		good += union_is_or(&c, heads, mask, table);
		free(mask);
		free(table);
		case_release(&c);
	}
	is_int(good, 9, "a union holds what any of its heads and query blocks keep, and the chunk");
	is_int(union_groups(union_heads(UNION_SUBGROUP, &shapes[1]), &shapes[1]), 2,
	       "five heads make a sub-group of four and one of one");
	ok(union_heads(UNION_NONE, &shapes[0]) == 0 && union_groups(0, &shapes[0]) == 0 &&
		   union_heads(UNION_SUBGROUP, &shapes[0]) == 2,
	   "no union has no tables, a small group is whole");
	good = 0;
	for (int i = 0; unions[i].name; i++)
		good += (int)unions[i].kind == i;
	is_int(good, 4, "the unions stand in the order of their kinds");
}

static void test_table(void)
{
	ok(selector_find("none") && !selector_find("none")->ref, "no selection has no reference");
	ok(!selector_find("flash") && !selector_find(""), "an unknown selector is not found");
	is_int((long long)selector_find("flashprefill")->state_bytes(NULL, &small), 2 * 16 * 2,
	       "a mean per KV head is kept beside each page");
}

static void test_no_memory(void)
{
	const struct selector *fp = selector_find("flashprefill");
	struct rng rng = { 6 };
	struct batch_case c;
	struct ar_err err;

	random_case(&c, &rng);
	for (long k = 0;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = fp->ref(
			&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv, .state = c.state },
			&plain, &(struct selection){ .mask = c.mask }, &err);
		if (!fault_disarm())
			break;
		ok(st == AR_NOMEM, "allocation %ld fails cleanly", k);
	}
	case_release(&c);
}

static void test_top(void)
{
	const float key[] = { 1, 3, -2, 3, 0.5f, -0.0f, 3, 0 };
	const int64_t want[] = { 1, 3, 6, 0, 4, 5, 7, 2 };
	struct top_cell cell[8] = { { UINT32_MAX, -7 },
				    { UINT32_MAX - 1.0, 0 },
				    { UINT32_MAX, -8 } };
	int right = 0;

	top_sort(cell, 3);
	ok(cell[0].at == -8 && cell[1].at == -7 && cell[2].at == 0,
	   "the largest integers come first, of equal ones the lowest place");
	top_of(cell, key, 8);
	for (int i = 0; i < 8; i++)
		right += cell[i].at == want[i] && cell[i].key == (double)key[want[i]];
	is_int(right, 8, "the same for all of an array");
	top_of(cell, key, -1);
	ok(cell[0].at == 1, "nothing is sorted of no cells");
}

int main(void)
{
	struct batch_case c;

	plan(0);
	example(&c);
	test_example_masks(&c);
	test_example_scores(&c);
	test_example_unions(&c);
	case_release(&c);
	test_lists();
	test_thresholds();
	test_peak();
	test_top();
	test_cuts();
	test_future();
	test_ragged();
	test_unions();
	test_table();
	test_no_memory();
	return done_testing();
}
