/* SPDX-License-Identifier: Apache-2.0 */
/* SlimInfer and LazyLLM, the references: worked examples and rules. */
#include "config.h"

#include <stdlib.h>

#include "kernels/drop/lazyllm/lazyllm.h"
#include "kernels/drop/sliminfer/sliminfer.h"
#include "tests/drop_case.h"
#include "tests/tap.h"

static const struct attn_shape tiny = { 2, 1, 4, 4 };

/* ---- sliminfer ---- */

static const struct sliminfer_self slim = { .rule = { NULL, 4, 2, 2, 4 },
					    .layers = { 1, { 0 }, { 2 } } };

static void test_sliminfer(void)
{
	struct sliminfer_self x = slim;
	struct batch_case c;
	float score[6];

	case_formula(&c, tiny, 24);
	case_cut(&c, (int[]){ 0 }, (int[]){ 24 });
	sliminfer_scores(&(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv }, &x.rule, 0, score);
	is_str(drop_numbers(score, 6), "1.2529 0.4668 1.2871 -0.0117 0.6377 0.9756",
	       "sliminfer: scores of blocks");
	is_str(drop_case_rows(&c, "sliminfer", &x), "0-3 8-11 16-23", "two blocks by score");
	x.layers.value[0] = 0.34;
	is_str(drop_case_rows(&c, "sliminfer", &x), "0-3 8-11 16-23",
	       "or a third of all, which is two");
	x.layers.value[0] = 0.33;
	is_str(drop_case_rows(&c, "sliminfer", &x), "0-3 8-11 20-23", "a share is rounded down");
	x.layers.value[0] = 0;
	is_str(drop_case_rows(&c, "sliminfer", &x), "0-3 20-23", "sinks and window stay");
	x.layers.value[0] = 1;
	is_str(drop_case_rows(&c, "sliminfer", &x), "0-23", "all is everything");
	x.rule.window = 3;
	x.rule.block = 18;
	x.layers.value[0] = 0;
	is_str(drop_case_rows(&c, "sliminfer", &x), "0-23",
	       "a prompt below sinks, window and block is left");
	case_release(&c);
}

/* Budgets come from the chunk as it was before any drop; sinks from the prompt's beginning. */
static void test_slim_chunk(void)
{
	struct sliminfer_self x = slim;
	struct drop d = { .dropper = dropper_find("sliminfer"), .self = &x };
	struct batch_case c;
	struct drop_kept got;
	struct ar_err err;

	case_formula(&c, tiny, 40);
	case_cut(&c, (int[]){ 16 }, (int[]){ 24 });
	got = drop_kept_new(&c);
	x.layers.value[0] = 0.25;
	if (drop_ref(&d,
		     &(struct drop_call){
			     .at = &(struct attn_call){ .b = &c.b, .q = c.q, .kv = c.kv },
			     .chunk = (int32_t[]){ 48 },
			     .n_step = 24 },
		     &got, &err))
		bail_out("%s", err.msg);
	is_int(got.n_keep[0], 16, "a quarter of 48 tokens and the window stay of 24 rows");
	ok(got.keep[22] && got.keep[23], "the window is the chunk's");
	drop_kept_free(&got);
	case_release(&c);
}

/* ---- lazyllm: a second layer over the tokens that stayed, with the inputs of token t + 5 ---- */

static void put_token(struct batch_case *c, int at, int t)
{
	const struct attn_shape *s = &c->b.shape;

	for (int d = 0; d < s->head_dim; d++) {
		for (int h = 0; h < s->q_heads; h++)
			c->all_q[(at * s->q_heads + h) * s->head_dim + d] = bf16_from_f32(
				(float)((5 * h + 3 * t + 7 * d + t * t) % 37 - 18) / 8);
		for (int h = 0; h < s->kv_heads; h++)
			c->kv.k[((c->page[at / s->page_tok] * s->kv_heads + h) * s->page_tok +
				 at % s->page_tok) *
					s->head_dim +
				d] =
				bf16_from_f32(
					(float)((3 * h + 5 * t + 2 * d + 2 * t * t) % 41 - 20) / 8);
	}
}

static void lazy_scores(const struct batch_case *c, const char *want, const char *of)
{
	struct mass_rule m = lazyllm_mass();
	struct ar_err err;
	float mass[12];

	if (mass_ref(&m, &c->b, 0, c->q, c->kv.k, mass, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < c->end[0]; i++)
		mass[i] /= (float)c->b.shape.q_heads;
	is_str(drop_numbers(mass, c->end[0]), want, "lazyllm: attention of the last token, %s", of);
}

static void test_lazyllm(void)
{
	struct lazyllm_self x = { { 1, { 0 }, { 0.25 } }, 0 };
	struct batch_case c;
	struct drop_kept first;

	case_formula(&c, tiny, 12);
	case_cut(&c, (int[]){ 0 }, (int[]){ 12 });
	lazy_scores(&c,
		    "0.0723 0.0585 0.0614 0.1808 0.0555 0.1994 0.0667 0.0559 0.0632 0.0673 0.0632 "
		    "0.0559",
		    "layer A");
	first = drop_case(&c, "lazyllm", &x);
	is_str(drop_ranges(first.index, first.n_keep[0]), "0 2-3 5-6 8-11", "a quarter is dropped");
	for (int i = 0; i < 9; i++)
		put_token(&c, i, first.index[i] + 5);
	case_cut(&c, (int[]){ 0 }, (int[]){ 9 });
	lazy_scores(&c, "0.2389 0.0512 0.0451 0.0451 0.0512 0.2389 0.0525 0.2113 0.0657",
		    "layer B");
	x.layers.value[0] = 0.5;
	is_str(drop_case_rows(&c, "lazyllm", &x), "0 5-8", "then half of those that are left");
	x.layers.value[0] = 0;
	is_str(drop_case_rows(&c, "lazyllm", &x), "0-8", "rate 0 drops nothing");
	x.layers.value[0] = 1;
	is_str(drop_case_rows(&c, "lazyllm", &x), "8", "rate 1 all but the last");
	case_cut(&c, (int[]){ 8 }, (int[]){ 1 });
	is_str(drop_case_rows(&c, "lazyllm", &x), "0", "a chunk of one row keeps it");
	drop_kept_free(&first);
	case_release(&c);
}

static void test_lazy_ties(void)
{
	struct lazyllm_self x = { { 1, { 0 }, { 0.5 } }, 0 };
	int ctx = 6, rows = 10;
	struct rng rng = { 2 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_EQUAL, tiny, 1, &ctx, &rows);
	is_str(drop_case_rows(&c, "lazyllm", &x), "0-3 9", "of equal tokens the lower stay");
	case_release(&c);
}

/* ---- lazyllm: tokens that a decode revives ---- */

/* Of the tokens marked in gone, the ones that the last token of 12 revives. */
static const char *revived(struct batch_case *c, double rate, int most, const char *gone)
{
	struct lazyllm_self x = { { 1, { 0 }, { rate } }, most };
	struct drop d = { .dropper = dropper_find("lazyllm"), .self = &x };
	uint8_t flag[12];
	int32_t n, index[16];
	struct ar_err err;

	for (int i = 0; i < 12; i++)
		flag[i] = gone[i] == 'x';
	if (drop_revives(&d) != most ||
	    drop_revive_ref(&d,
			    &(struct drop_call){ .at = &(struct attn_call){ .b = &c->b,
									    .q = c->q,
									    .kv = c->kv } },
			    &(struct drop_revived){ flag, &n, index }, &err))
		bail_out("%s", err.msg);
	return drop_ranges(index, n);
}

/* The scores are as in layer A above: 5 3 0 9 6 8 10 2 1 7 4, from high to low. */
static void test_revival(void)
{
	struct rng rng = { 2 };
	struct batch_case c;

	case_formula(&c, tiny, 12);
	case_cut(&c, (int[]){ 11 }, (int[]){ 1 });
	is_str(revived(&c, 0.25, 16, "xx.xxx.x...."), "0 3 5",
	       "lazyllm: tokens come back that a quarter less would hold");
	is_str(revived(&c, 0.25, 2, "xx.xxx.x...."), "3 5", "those with most attention first");
	is_str(revived(&c, 0.5, 16, "xx.xxx.x...."), "0 3 5", "half of 12 hold five others");
	is_str(revived(&c, 0.5, 16, "........x..."), "", "of which this is none");
	is_str(revived(&c, 0, 16, "xxxxxxxxxxx."), "0-10", "rate 0 revives all");
	is_str(revived(&c, 1, 16, "xxxxxxxxxxx."), "", "rate 1 none");
	case_release(&c);
	case_chunks(&c, &rng, FILL_EQUAL, tiny, 1, (int[]){ 11 }, (int[]){ 1 });
	is_str(revived(&c, 0.5, 3, ".xxxxxxxxxx."), "1-3", "of equal tokens those before");
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_sliminfer();
	test_slim_chunk();
	test_lazyllm();
	test_lazy_ties();
	test_revival();
	return done_testing();
}
