/* SPDX-License-Identifier: Apache-2.0 */
/* A-shape by tokens: each row attends to exactly the keys of the rule, wherever a prompt is cut.
 * With equal keys an output row is the mean of the values of its keys.  Unit vectors as values then
 * show which keys these are. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/ashape/ashape.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

enum { DIM = 64, TOK = 4 };

static const struct attn_shape shape = { 2, 1, DIM, TOK };

static bool sees(const int rule[3], int len, int i, int j)
{
	return j <= i && (i >= len - rule[2] || i - j < rule[1] || j < rule[0]);
}

/* Rows [ctx, ctx + rows) of a prompt of len tokens, rule: init, local, last.  count: pairs that the
 * method says it ran. */
static bool right(struct batch_case *c, const int rule[3], int ctx, int rows, bool *counted)
{
	struct selection_count count[1];
	char text[64];
	struct method *m;
	struct ar_err err;
	bf16_t *out;
	int64_t pairs = 0;
	bool good = true;

	snprintf(text, sizeof text, "ashape:init=%d,local=%d,last=%d", rule[0], rule[1], rule[2]);
	case_cut(c, &ctx, &rows);
	out = malloc(c->q_len * sizeof *out);
	if (method_parse(&m, text, &err) ||
	    method_ref(method_prefill(m),
		       &(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv, .out = out }, count,
		       &err))
		bail_out("%s", err.msg);
	for (int i = ctx; i < ctx + rows; i++)
		for (int h = 0; h < 2; h++) {
			const bf16_t *o = out + ((i - ctx) * 2 + h) * DIM;

			for (int j = 0; j < DIM; j++) {
				good &= (bf16_to_f32(o[j]) > 0) == sees(rule, c->len[0], i, j);
				pairs += sees(rule, c->len[0], i, j);
			}
		}
	*counted = count->exec_sel == pairs;
	method_free(m);
	free(out);
	return good;
}

static void test_example(void)
{
	static const char *const want[] = { [4] = "0 1 2 3 4",
					    [5] = "0 1 3 4 5",
					    [7] = "0 1 5 6 7",
					    [9] = "0 1 7 8 9",
					    [10] = "0 1 2 3 4 5 6 7 8 9 10",
					    [11] = "0 1 2 3 4 5 6 7 8 9 10 11" };
	const int rule[] = { 2, 3, 2 };

	for (int i = 0; i < 12; i++) {
		char text[64] = "";
		size_t n = 0;

		if (!want[i])
			continue;
		for (int j = 0; j < 12; j++)
			if (sees(rule, 12, i, j))
				n += (size_t)snprintf(text + n, sizeof text - n, "%s%d",
						      n ? " " : "", j);
		is_str(text, want[i], "the worked example, row %d", i);
	}
}

static void test_runs(void)
{
	static const struct {
		int init, local, qa;
		const char *want;
	} v[] = {
		{ 2, 3, 0, "0" },	    { 2, 3, 1, "0 4" },		{ 2, 3, 2, "0 4 8" },
		{ 2, 1, 2, "0 8" },	    { 0, 5, 2, "4 8" },		{ 0, 6, 2, "0 4 8" },
		{ 4, 1, 3, "0 12" },	    { 5, 1, 3, "0 4 12" },	{ 0, 1, 3, "12" },
		{ 1 << 30, 1, 2, "0 4 8" }, { 0, 1 << 30, 2, "0 4 8" }, { 0, 0, 2, "0 4 8" },
	};
	struct rng rng = { 6 };
	struct batch_case c;

	case_make(&c, &rng, FILL_EQUAL, shape, 1, (int[]){ 16 });
	case_cut(&c, (int[]){ 0 }, (int[]){ 16 });
	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		const struct attn_band band = { v[i].init, v[i].local, 0 };
		char text[64] = "";
		int32_t run[4];
		int n = ashape_runs(&band, &c.b, 0, v[i].qa, run), at = 0;

		for (int k = 0; k < n; k++)
			at += snprintf(text + at, sizeof text - (size_t)at, "%s%d", k ? " " : "",
				       run[k]);
		is_str(text, v[i].want,
		       "query block %d reads what it must: the first %d, the last "
		       "%d",
		       v[i].qa, v[i].init, v[i].local);
	}
	case_release(&c);
}

int main(void)
{
	struct rng rng = { 5 };
	int rows_off = 0, counts_off = 0, n = 0;

	plan(0);
	test_example();
	test_runs();
	for (; n < 400; n++) {
		int len = n ? 1 + (int)rng_below(&rng, DIM) : 12;
		int ctx = n ? (int)rng_below(&rng, (uint64_t)len) : 0;
		int rows = n ? 1 + (int)rng_below(&rng, (uint64_t)(len - ctx)) : 12;
		const int rule[] = { n ? (int)rng_below(&rng, 20) : 2,
				     n ? 1 + (int)rng_below(&rng, 20) : 3,
				     n ? (int)rng_below(&rng, 2) * (int)rng_below(&rng, 9) : 2 };
		struct batch_case c;
		bool counted;

		case_make(&c, &rng, FILL_EQUAL, shape, 1, &len);
		case_unit_values(&c);
		rows_off += !right(&c, rule, ctx, rows, &counted);
		counts_off += !counted;
		case_release(&c);
	}
	is_int(rows_off, 0, "rows see what the rule says, in the example and %d random prompts",
	       n - 1);
	is_int(counts_off, 0, "and the pairs are counted");
	return done_testing();
}
