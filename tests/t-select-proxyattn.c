/* SPDX-License-Identifier: Apache-2.0 */
/* ProxyAttn, the reference: a worked example, properties, and refusals. */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/proxyattn/proxyattn.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static enum ar_status choose(struct batch_case *c, const struct proxyattn *p, struct ar_err *err)
{
	return selector_find("proxyattn")
		->ref(&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv }, p,
		      &(struct selection){ .mask = c->mask }, err);
}

static void must_choose(struct batch_case *c, const struct proxyattn *p)
{
	struct ar_err err;

	if (choose(c, p, &err))
		bail_out("%s", err.msg);
}

static int count(const struct batch_case *c)
{
	int n = 0;

	for (size_t i = 0; i < case_mask_words(c); i++)
		n += __builtin_popcount(c->mask[i]);
	return n;
}

/* ---- the worked vector: 24 tokens, blocks of 4, two heads in one group ---- */

static void formula(struct batch_case *c, int kv_heads)
{
	const struct attn_shape s = { 2, kv_heads, 4, 4 };
	struct rng rng = { 3 };
	int len = 24;

	case_make(c, &rng, FILL_NORMAL, s, 1, &len);
	for (int i = 0; i < len; i++)
		for (int d = 0; d < 4; d++) {
			int t = i + 7, k = (5 * t + 2 * d + 2 * t * t) % 41 - 20;

			for (int h = 0; h < 2; h++) {
				int q = (5 * h + 3 * t + 7 * d + t * t) % 37 - 18;

				c->all_q[(i * 2 + h) * 4 + d] = bf16_from_f32((float)q / 8);
			}
			for (int h = 0; h < kv_heads; h++)
				c->kv.k[((c->page[i / 4] * kv_heads + h) * 4 + i % 4) * 4 + d] =
					bf16_from_f32((float)k / 8);
		}
}

static const char *const worked[2][6] = {
	/* [head][query block] */
	{ "1", "11", "101", "1001", "10011", "100101" },
	{ "1", "11", "101", "1011", "11011", "101101" },
};

static bool is_worked(const struct batch_case *c)
{
	bool good = true;

	for (int i = 0; i < c->b.rows.n_qblk; i++)
		for (int h = 0; h < 2; h++)
			for (int j = 0; j < 32; j++) {
				int qa = c->ctx[0] / 4 + i;

				good &= case_kept(c, i, h, j) ==
					(j <= qa && worked[h][qa][j] == '1');
			}
	return good;
}

static void test_worked(void)
{
	static const struct proxyattn p = { .groups = 1, .stride = 1, .mass = 0.8 };
	struct batch_case c;

	formula(&c, 1);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	must_choose(&c, &p);
	ok(is_worked(&c), "a whole prompt keeps the worked blocks");
	case_cut(&c, (int[]){ 8 }, (int[]){ 16 });
	must_choose(&c, &p);
	ok(is_worked(&c), "its last chunk keeps the same");
	case_release(&c);
	formula(&c, 2);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	must_choose(&c, &p);
	ok(is_worked(&c), "a group over KV heads takes the mean of their keys");
	case_release(&c);
}

static void test_scores(void)
{
	static const double want[6][6] = {
		{ 1 },
		{ .3334, .3510 },
		{ .0811, .3449, .3141 },
		{ .1387, .1802, .1941, .9818 },
		{ .0977, .3401, .2966, .8154, .1086 },
		{ .1023, .0517, .1345, .4954, .1173, .9492 },
	};
	const struct proxyattn p = { .groups = 1, .stride = 1, .mass = 0.8 };
	struct batch_case c;
	struct ar_err err;
	float score[6 * 2 * 6];
	int off = 0;

	formula(&c, 1);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	if (selector_find("proxyattn")
		    ->ref(&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv }, &p,
			  &(struct selection){ .mask = c.mask, .score = score }, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 12; i++)
		for (int j = 0; j <= i / 2; j++)
			off += fabs(score[i * 6 + j] - want[i / 2][j]) > 5.1e-5;
	is_int(off, 0, "the worked scores, the same for both heads");
	case_release(&c);
}

/* A stride of 3 in blocks of 4 rows passes over the two in the middle. */
static void test_stride(void)
{
	const struct proxyattn p = { .groups = 1, .stride = 3, .mass = 0.8 };
	struct batch_case c;
	struct ar_err err;
	float score[2][6 * 2 * 6] = { 0 };
	int differ = 0;

	formula(&c, 1);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	for (int n = 0; n < 2; n++) {
		if (selector_find("proxyattn")
			    ->ref(&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv }, &p,
				  &(struct selection){ .mask = c.mask, .score = score[n] }, &err))
			bail_out("%s", err.msg);
		for (int i = 0; i < 24 * 2 * 4; i++)
			if (i / 8 % 4 == 1 || i / 8 % 4 == 2)
				c.q[i] = bf16_from_f32(9);
	}
	for (int i = 0; i < 6 * 2 * 6; i++)
		differ += score[0][i] != score[1][i];
	is_int(differ, 0, "rows that the stride passes over change nothing");
	ok(score[0][0] == 1 && score[0][5 * 12] > 0, "... and there are scores");
	case_release(&c);
}

/* sum[h][k]: the mass that the k + 1 heaviest blocks of head h hold.  The last row keeps as many
 * blocks as hold p.mass, two at least. */
static void test_budgets(void)
{
	static const double sum[2][6] = {
		{ .5192, .7565, .8480, .9124, .9731, 1 },
		{ .2919, .5607, .6932, .8150, .9263, 1 },
	};
	struct proxyattn p = { .groups = 1, .stride = 1 };
	struct batch_case c;
	int wrong = 0;

	formula(&c, 1);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	for (int h = 0; h < 2; h++)
		for (int k = 2; k < 6; k++)
			for (int more = 0; more < 2; more++) {
				p.mass = sum[h][k - 1] + (more ? 4e-4 : -4e-4);
				must_choose(&c, &p);
				wrong += __builtin_popcount(
						 c.mask[(5 * 2 + h) * c.b.keys.mask_words]) !=
					 k + more;
			}
	is_int(wrong, 0, "budgets follow the worked masses");
	case_release(&c);
}

/* ---- properties ---- */

static void test_properties(void)
{
	const struct attn_shape s = { 6, 2, 16, 16 };
	struct proxyattn p = { .groups = 2, .stride = 1, .mass = 1 };
	struct rng rng = { 9 };
	struct batch_case c;
	int ctx[2] = { 155, 40 }, rows[2] = { 60, 33 }, last = 0, fewer = 0, open = 0, all;
	uint32_t *first;
	size_t bytes;

	case_chunks(&c, &rng, FILL_BLOCKS, s, 2, ctx, rows);
	must_choose(&c, &p);
	all = count(&c);
	is_int(all, 6 * ((10 + 11 + 12 + 13 + 14) + (3 + 4 + 5)),
	       "all of the mass is everything up to the diagonal");
	for (int k = 0; k < 10; k++) {
		p.mass = 0.1 * k;
		must_choose(&c, &p);
		fewer += count(&c) < last;
		last = count(&c);
		for (int i = 0; i < c.b.rows.n_qblk; i++)
			for (int h = 0; h < 6; h++) {
				int qa = i < 5 ? 9 + i : 2 + i - 5;

				open += !case_kept(&c, i, h, 0) + !case_kept(&c, i, h, qa);
			}
	}
	is_int(fewer, 0, "more mass never keeps less");
	is_int(open, 0, "the first and the own block are always kept");
	ok(last < all, "less than all of the mass is not everything");
	p.mass = 0.5;
	bytes = case_mask_words(&c) * sizeof *first;
	first = malloc(bytes);
	p.groups = 6;
	must_choose(&c, &p);
	memcpy(first, c.mask, bytes);
	p.groups = 1000;
	must_choose(&c, &p);
	ok(!memcmp(first, c.mask, bytes), "there are no more groups than heads");
	p.groups = 1;
	must_choose(&c, &p);
	ok(memcmp(first, c.mask, bytes), "groups matter");
	p.groups = 6;
	p.stride = 16;
	must_choose(&c, &p);
	ok(memcmp(first, c.mask, bytes), "so does the stride of queries");
	free(first);
	case_cut(&c, ctx, (int[]){ 60, 1 });
	must_choose(&c, &p);
	open = 0;
	for (int j = 0; j <= 2; j++)
		open += case_kept(&c, 5, 0, j);
	is_int(open, 3, "a chunk of one token sees everything");
	case_release(&c);
}

static void test_faults(void)
{
	static const struct proxyattn p = { .groups = 1, .stride = 1, .mass = 0.8 };
	struct batch_case c;
	struct ar_err err;
	bool hit = true;
	int bad = 0, k = 0;

	formula(&c, 1);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	for (; hit && k < 20; k++) {
		enum ar_status st;

		fault_arm(k);
		st = choose(&c, &p, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 2, "every allocation that fails is reported");
	case_release(&c);
}

static void test_spelling(void)
{
	struct method *m;
	struct ar_err err;

	is_int(method_parse(&m, "proxyattn:q-stride=0", &err), AR_USAGE,
	       "a stride of 0 is refused");
	if (method_parse(&m, "proxyattn:block=64,q-stride=8", &err))
		bail_out("%s", err.msg);
	is_int(method_page_tok(m), 64, "blocks can have 64 tokens");
	method_free(m);
}

int main(void)
{
	plan(0);
	test_worked();
	test_scores();
	test_stride();
	test_budgets();
	test_properties();
	test_faults();
	test_spelling();
	return done_testing();
}
