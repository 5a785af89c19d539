/* SPDX-License-Identifier: Apache-2.0 */
/* FlexPrefill, the reference: a worked example, its rules, and properties of random batches. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/methods/method.h"
#include "kernels/select/flexprefill/flexprefill.h"
#include "kernels/select/lastq/lastq.h"
#include "kernels/select/means/means.h"
#include "tests/alloc_fault.h"
#include "tests/batch_case.h"
#include "tests/tap.h"

static enum ar_status try(struct batch_case *c, const struct flexprefill *p, float *state,
			  struct ar_err *err)
{
	return selector_find("flexprefill")
		->ref(&(struct attn_call){ .b = &c->b, .q = c->q, .kv = c->kv, .state = state }, p,
		      &(struct selection){ .mask = c->mask }, err);
}

/* The masks of a batch whose cached blocks have their means. */
static void choose(struct batch_case *c, const struct flexprefill *p, float *state)
{
	struct ar_err err;

	memset(c->mask, 0xff, case_mask_words(c) * sizeof *c->mask);
	if (try(c, p, state, &err))
		bail_out("%s", err.msg);
}

static float *state_new(const struct batch_case *c)
{
	return calloc((size_t)c->n_page, means_state_bytes(&c->b.shape));
}

static const uint32_t *row_of(const struct batch_case *c, int qblk, int head)
{
	return c->mask + (size_t)(qblk * c->b.shape.q_heads + head) * (size_t)c->b.keys.mask_words;
}

static bool kept(const uint32_t *row, int j)
{
	return row[j / 32] >> j % 32 & 1;
}

/* The rows of one head as "0|0 1|1 2". */
static const char *rows_of(const struct batch_case *c, int head)
{
	static char text[1024];
	size_t n = 0;

	for (int i = 0; i < c->b.rows.n_qblk; i++) {
		const char *sep = i ? "|" : "";

		for (int j = 0; j < c->b.keys.mask_words * 32; j++)
			if (kept(row_of(c, i, head), j)) {
				n += (size_t)snprintf(text + n, sizeof text - n, "%s%d", sep, j);
				sep = " ";
			}
	}
	return text;
}

/* ---- the worked example: 24 tokens, blocks of four, one head of four ---- */

static const struct attn_shape tiny = { 1, 1, 4, 4 };
static const struct flexprefill loose = { .gamma = 0.7, .tau = 0.1, .min_budget = 1 };

/* Sums over blocks, rounded to four places, as "0.1234 ...". */
static const char *pooled(const float *mass, bool reversed)
{
	static char text[128];
	size_t n = 0;

	for (int j = 0; j < 6; j++) {
		float sum = 0;

		for (int i = j * 4; i < j * 4 + 4; i++)
			sum += mass[reversed ? 23 - i : i];
		n += (size_t)snprintf(text + n, sizeof text - n, "%s%.4f", j ? " " : "", sum);
	}
	return text;
}

static void test_example(void)
{
	struct flexprefill p = loose;
	float column[24], slash[24], *state;
	struct batch_case c;
	struct ar_err err;

	case_formula(&c, tiny, 24);
	state = state_new(&c);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	if (lastq_ref(&c.b, 0, 0, 4, c.q, c.kv.k, column, slash, &err))
		bail_out("%s", err.msg);
	is_str(pooled(column, false), "0.0942 0.0764 0.1216 0.0625 0.3641 0.2812",
	       "columns by blocks");
	is_str(pooled(slash, true), "0.0656 0.0768 0.1098 0.0777 0.0806 0.5894",
	       "diagonals by blocks");
	choose(&c, &p, state);
	is_str(rows_of(&c, 0), "0|0 1|0 1 2|0 2 3|0 1 3 4|0 2 4 5", "columns and diagonals");
	p.tau = 0.1499;
	choose(&c, &p, state);
	is_str(rows_of(&c, 0), "0|0 1|0 1 2|0 2 3|0 1 3 4|0 2 4 5", "JS is 0.1500, not below");
	p.tau = 0.1501;
	choose(&c, &p, state);
	is_str(rows_of(&c, 0), "0|0 1|0 1 2|0 2 3|0 1 3 4|0 2 5",
	       "and below that the head is query-aware");
	p.tau = 0;
	p.max_budget = 8;
	choose(&c, &p, state);
	is_str(rows_of(&c, 0), "0|0 1|0 2|0 3|0 1 4|0 2 4 5", "two columns and diagonals at most");
	p = loose;
	case_cut(&c, (int[]){ 16 }, (int[]){ 8 });
	choose(&c, &p, state);
	is_str(rows_of(&c, 0), "0 1 3 4|0 2 4 5", "a chunk has the rows of the whole");
	p.tau = 1;
	p.gamma = 0.5;
	choose(&c, &p, state);
	is_str(rows_of(&c, 0), "0 1 3 4|0 2 5",
	       "but shares gamma among its own rows where it is query-aware");
	free(state);
	case_release(&c);
}

static void test_open(void)
{
	static const struct {
		int ctx, rows, budget;
		bool open;
	} v[] = {
		{ 0, 8, 1, true },   { 4, 4, 1, true },	  { 0, 9, 1, false },  { 23, 1, 1, true },
		{ 22, 2, 1, false }, { 16, 4, 20, true }, { 16, 4, 17, true }, { 16, 5, 12, false },
	};

	for (size_t i = 0; i < sizeof v / sizeof *v; i++) {
		struct flexprefill p = { .min_budget = v[i].budget };
		bool all = true;
		struct batch_case c;
		float *state;

		case_formula(&c, tiny, 24);
		state = state_new(&c);
		case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
		choose(&c, &p, state);
		case_cut(&c, &v[i].ctx, &v[i].rows);
		choose(&c, &p, state);
		for (int q = 0; q < c.b.rows.n_qblk; q++)
			for (int j = 0; j <= v[i].ctx / 4 + q; j++)
				all &= kept(row_of(&c, q, 0), j);
		ok(all == v[i].open, "%d rows behind %d, at least %d tokens: %s", v[i].rows,
		   v[i].ctx, v[i].budget, v[i].open ? "everything" : "a selection");
		free(state);
		case_release(&c);
	}
}

/* ---- properties ---- */

static const struct attn_shape small = { 4, 2, 8, 8 };

static int draw(struct rng *rng, int lo, int hi)
{
	return lo + (int)rng_below(rng, (uint64_t)(hi - lo + 1));
}

/* Three sequences cut at random, and the means of their cached tokens. */
static float *random_case(struct batch_case *c, struct rng *rng)
{
	const struct flexprefill p = { .gamma = 0.5 };
	int len[3], ctx[3], rows[3];
	float *state;

	for (int r = 0; r < 3; r++) {
		len[r] = draw(rng, 2, 300);
		ctx[r] = draw(rng, 0, len[r] - 2);
		rows[r] = draw(rng, 2, len[r] - ctx[r]);
	}
	case_make(c, rng, FILL_BLOCKS, small, 3, len);
	state = state_new(c);
	case_cut(c, (int[3]){ 0 }, len);
	choose(c, &p, state);
	case_cut(c, ctx, rows);
	return state;
}

static bool all_kept(const struct batch_case *c, bool only_ends)
{
	for (int r = 0; r < c->b.rows.n_req; r++)
		for (int i = c->qblk0[r]; i < c->qblk0[r + 1]; i++)
			for (int h = 0; h < c->b.shape.q_heads; h++) {
				const uint32_t *row = row_of(c, i, h);
				int qa = c->ctx[r] / c->b.shape.page_tok + i - c->qblk0[r];

				for (int j = 0; j < c->b.keys.mask_words * 32; j++)
					if (j > qa ? kept(row, j) :
						     !kept(row, j) &&
							     (!only_ends || j == 0 || j == qa))
						return false;
			}
	return true;
}

static bool subset(const uint32_t *a, const uint32_t *b, size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (a[i] & ~b[i])
			return false;
	return true;
}

static void test_gamma(void)
{
	int all = 0, ends = 0, monotone = 0, fewer = 0, n = 0;

	for (int k = 0; k < 40; k++) {
		struct rng rng = { (uint64_t)k };
		struct batch_case c;
		float *state = random_case(&c, &rng);
		size_t words = case_mask_words(&c);
		uint32_t *last = malloc(words * sizeof *last);

		for (int aware = 0; aware < 2; aware++) {
			struct flexprefill p = { .gamma = 1, .tau = aware };

			choose(&c, &p, state);
			all += all_kept(&c, false);
			for (p.gamma = 0.9; p.gamma > 0.01; p.gamma /= 2, n++) {
				memcpy(last, c.mask, words * sizeof *last);
				choose(&c, &p, state);
				ends += all_kept(&c, true);
				monotone += subset(c.mask, last, words);
				fewer += memcmp(c.mask, last, words * sizeof *last) != 0;
			}
		}
		free(last);
		free(state);
		case_release(&c);
	}
	is_int(all, 80, "gamma 1 keeps every block up to the diagonal");
	is_int(ends, n, "the first block and the diagonal are always kept, nothing past it ever");
	is_int(monotone, n, "a lower gamma keeps a subset");
	ok(fewer > n / 2, "and mostly a smaller one (%d of %d)", fewer, n);
}

/* A prompt in one piece and its last chunk of whole blocks decide alike for the rows of both. */
static void test_chunks(void)
{
	const struct flexprefill p = { .gamma = 0.6 };
	int same = 0;

	for (int k = 0; k < 20; k++) {
		struct rng rng = { (uint64_t)k };
		int len = draw(&rng, 100, 300), ctx = (len - draw(&rng, 16, 60)) / 8 * 8;
		int rows = len - ctx;
		struct batch_case c;
		uint32_t *whole;
		float *state;

		case_make(&c, &rng, FILL_BLOCKS, small, 1, &len);
		state = state_new(&c);
		case_cut(&c, (int[]){ 0 }, &len);
		choose(&c, &p, state);
		whole = malloc(case_mask_words(&c) * sizeof *whole);
		memcpy(whole, c.mask, case_mask_words(&c) * sizeof *whole);
		case_cut(&c, &ctx, &rows);
		choose(&c, &p, state);
		same += !memcmp(whole + (size_t)(ctx / 8 * 4 * c.b.keys.mask_words), c.mask,
				case_mask_words(&c) * sizeof *whole);
		free(whole);
		free(state);
		case_release(&c);
	}
	is_int(same, 20, "the last chunk's rows are those of the prompt in one piece");
}

/* All scores equal: no mass decides, places do. */
static void test_equal(void)
{
	const struct flexprefill p = { .gamma = 0.5, .tau = 0.5, .min_budget = 8 };
	int len = 80;
	struct rng rng = { 3 };
	struct batch_case c;
	float *state;

	case_make(&c, &rng, FILL_EQUAL, small, 1, &len);
	state = state_new(&c);
	case_cut(&c, (int[]){ 0 }, &len);
	choose(&c, &p, state);
	ok(all_kept(&c, true), "equal scores are a selection like any other");
	is_str(strrchr(rows_of(&c, 0), '|'), "|0 9", "the last rows' shares are the smallest");
	free(state);
	case_release(&c);
}

static void test_faults(void)
{
	struct batch_case c;
	struct ar_err err;
	float *state;
	bool hit = true;
	int bad = 0, k = 0;

	case_formula(&c, tiny, 24);
	state = state_new(&c);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	for (; hit && k < 20; k++) {
		enum ar_status st;

		fault_arm(k);
		st = try(&c, &loose, state, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && k > 6 && !hit, "every allocation that fails is reported");
	free(state);
	case_release(&c);
}

static void test_method(void)
{
	struct method *m;
	struct ar_err err = { 0 };

	ok(!method_parse(&m, "flexprefill:gamma=0.95,max-budget=4096", &err), "it is a method");
	is_str(m->params,
	       "{\"exec\":\"blocksparse\",\"gamma\":0.95,\"max-budget\":4096,\"min-budget\":1024,"
	       "\"select\":\"flexprefill\",\"tau\":0.1,\"union\":\"none\"}",
	       "with its parameters");
	method_free(m);
	is_int(method_parse(&m, "flexprefill:max-budget=512", &err), AR_USAGE,
	       "a limit below the least is refused");
	is_str(err.msg,
	       "method 'flexprefill:max-budget=512': max-budget=512 is below "
	       "min-budget=1024: want at least as much, or 0",
	       "which the message says");
}

int main(void)
{
	plan(0);
	test_example();
	test_open();
	test_gamma();
	test_chunks();
	test_equal();
	test_faults();
	test_method();
	return done_testing();
}
