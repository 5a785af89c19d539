/* SPDX-License-Identifier: Apache-2.0 */
/* UniPrefill, the reference: a worked example, a second implementation, chunks and limits. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/drop_case.h"
#include "tests/tap.h"

static const struct attn_shape tiny = { 2, 1, 4, 4 };

/* ---- uniprefill: 22 tokens, blocks of four, three queries ---- */

static const struct uniprefill_self small = {
	.rule = { .p = 0.6, .block = 4, .last_q = 3, .sinks = 2 }
};

static void test_mass(void)
{
	struct mass_rule m = uniprefill_mass(&small.rule);
	struct batch_case c;
	struct ar_err err;
	float mass[6], all = 0;

	case_formula(&c, tiny, 22);
	case_cut(&c, (int[]){ 0 }, (int[]){ 22 });
	m.round = false;
	if (mass_ref(&m, &c.b, 0, c.q, c.kv.k, mass, &err))
		bail_out("%s", err.msg);
	is_str(drop_numbers(mass, 6), "0.7816 0.8260 0.4800 1.1114 2.7391 0.0619",
	       "masses of blocks");
	m.round = true;
	if (mass_ref(&m, &c.b, 0, c.q, c.kv.k, mass, &err))
		bail_out("%s", err.msg);
	for (int i = 0; i < 6; i++)
		all += mass[i] = bf16_round(mass[i]);
	for (int i = 0; i < 6; i++)
		mass[i] = bf16_round(mass[i] / all);
	is_str(drop_numbers(mass, 6), "0.1309 0.1377 0.0801 0.1855 0.4570 0.0104",
	       "shares, rounded all the way");
	case_release(&c);
}

static void test_uniprefill(void)
{
	static const struct {
		double p;
		const char *kept;
	} v[] = { { 0.6, "0-1 12-21" },
		  { 0.7, "0-1 4-7 12-21" },
		  { 0.4, "0-1 16-21" },
		  { 0.8, "0-7 12-21" } };

	for (int i = 0; i < 8; i++) {
		struct uniprefill_self x = small;
		struct batch_case c;

		case_formula(&c, tiny, 22);
		case_cut(&c, (int[]){ 0 }, (int[]){ 22 });
		x.rule.p = v[i % 4].p;
		x.rule.rounding = i / 4;
		is_str(drop_case_rows(&c, "uniprefill", &x), v[i % 4].kept, "p %g%s", x.rule.p,
		       i / 4 ? "" : ", rounded");
		x.rule.crossing = CROSSING_EXCLUDE;
		if (i % 4 == 0)
			is_str(drop_case_rows(&c, "uniprefill", &x), "0-3 16-21",
			       "without the crossing block");
		case_release(&c);
	}
}

/* A limit that shares meet exactly: two blocks of one half each. */
static void test_pick(void)
{
	struct uniprefill p = small.rule;
	uint8_t k[4];
	struct ar_err err;

	p.p = 0.5;
	if (uniprefill_pick(&p, (float[]){ 2, 2 }, 2, k, &err))
		bail_out("%s", err.msg);
	ok(k[0] && k[1], "a block after a share of exactly p stays");
	p.p = 0.49;
	if (uniprefill_pick(&p, (float[]){ 2, 2 }, 2, k, &err))
		bail_out("%s", err.msg);
	ok(!k[0] && k[1], "of equal blocks the higher comes first");
	p.p = 0;
	if (uniprefill_pick(&p, (float[]){ 1, 2, 0, 1 }, 4, k, &err))
		bail_out("%s", err.msg);
	ok(!k[0] && k[1] && !k[2] && !k[3], "the first block of all stays at p 0");
	p.p = 1;
	if (uniprefill_pick(&p, (float[]){ 1, 2, 0, 1 }, 4, k, &err))
		bail_out("%s", err.msg);
	ok(k[0] && k[1] && k[2] && k[3], "all stay at p 1");
	p.crossing = CROSSING_EXCLUDE;
	p.p = 0.5;
	if (uniprefill_pick(&p, (float[]){ 1, 6, 0, 1 }, 4, k, &err))
		bail_out("%s", err.msg);
	ok(!k[0] && k[1] && !k[2] && !k[3], "even a crossing block that is to go, if it is first");
}

/* near: sums in fp32 may differ by 1e-5; 2^-7 is a unit in the last place of bf16. */
static void test_plain(struct batch_case *c, const char *of)
{
	static const double p[] = { 0.6, 0.9, 0.99 };

	for (int i = 0; i < 6; i++) {
		struct uniprefill_self x = { .rule = { .p = p[i % 3],
						       .block = i % 2 ? 64 : 16,
						       .last_q = 24,
						       .sinks = 32,
						       .rounding = i / 3 } };
		struct drop_kept got = drop_case(c, "uniprefill", &x);
		double share[256], near = x.rule.rounding == ROUNDING_BF16 ? 0x1p-7 : 1e-5;
		int bad = 0, gone = 0;

		for (int r = 0; r < c->n_seq; r++) {
			drop_plain_shares(c, &x.rule, r, share);
			bad += drop_share_faults(&x.rule, share, 0, c->end[r],
						 got.keep + c->row0[r], near);
			gone += attn_n_row(&c->b.rows, r) - got.n_keep[r];
		}
		ok(!bad && (gone || x.rule.p > 0.9), "%s, p %g%s: %d of %d rows dropped", of,
		   x.rule.p, i / 3 ? "" : ", rounded", gone, c->b.rows.n_row);
		drop_kept_free(&got);
	}
}

static void test_random(void)
{
	int ctx[] = { 0, 0 }, rows[] = { 700, 333 };
	struct rng rng = { 11 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_BLOCKS, (struct attn_shape){ 4, 2, 64, 64 }, 2, ctx, rows);
	test_plain(&c, "random blocks");
	case_release(&c);
}

/* The first tokens of a capture, and whole captures by the published parameters. */
static void test_capture(void)
{
	struct batch_case c;
	int n = drop_captures();

	drop_case_capture(&c, 0, 0, 1024);
	test_plain(&c, "a capture");
	case_release(&c);
	for (int i = 0; i < n; i++)
		for (int l = 0; drop_case_capture(&c, i, l, 0); l++) {
			for (int k = 0; k < 6; k++) {
				struct uniprefill_self x = drop_published(k);
				struct drop_kept got = drop_case(&c, "uniprefill", &x);

				ok(!drop_plain_faults(&c, &x.rule, &got, k / 3 ? 1e-5 : 0x1p-7),
				   "%s", drop_text(&c, &x.rule, &got));
				drop_kept_free(&got);
			}
			case_release(&c);
		}
}

/* ---- uniprefill: chunks and limits ---- */

static void test_extremes(void)
{
	struct uniprefill_self x = { .rule = { .p = 1, .block = 16, .last_q = 8, .sinks = 5 } };
	struct drop_kept all, none;
	int ctx = 0, rows = 200, bad = 0;
	struct rng rng = { 5 };
	struct batch_case c;

	case_chunks(&c, &rng, FILL_HUGE, (struct attn_shape){ 4, 2, 64, 64 }, 1, &ctx, &rows);
	all = drop_case(&c, "uniprefill", &x);
	is_int(all.n_keep[0], 200, "p 1 keeps everything");
	x.rule.p = 0;
	none = drop_case(&c, "uniprefill", &x);
	for (int i = 0; i < 200; i++)
		bad += !none.keep[i] && (i < 5 || i >= 192);
	ok(!bad && none.n_keep[0] <= 13 + 16, "p 0 keeps sinks, last rows and one block");
	drop_kept_free(&all);
	drop_kept_free(&none);
	x.rule.min_tokens = 200;
	is_str(drop_case_rows(&c, "uniprefill", &x), "0-199",
	       "an iteration of min-tokens rows keeps all");
	x.rule.min_tokens = 0;
	x.rule.sinks = 192;
	is_str(drop_case_rows(&c, "uniprefill", &x), "0-199",
	       "so does a prompt of sinks and last rows");
	x.rule.sinks = 5;
	case_cut(&c, (int[]){ 0 }, (int[]){ 150 });
	is_str(drop_case_rows(&c, "uniprefill", &x), "0-149",
	       "the first chunk of a cut prompt keeps all");
	case_cut(&c, (int[]){ 150 }, (int[]){ 50 });
	is_str(drop_case_rows(&c, "uniprefill", &x), "0-49", "and so does its last");
	case_release(&c);
}

static void test_append(void)
{
	struct uniprefill_self official = { .rule = { .p = 0.5,
						      .block = 16,
						      .last_q = 8,
						      .sinks = 20 } },
			       x = official;
	int ctx = 0, rows = 300, same = 0, kept_sinks = 0, kept_last = 0;
	struct drop_kept want, got;
	struct rng rng = { 6 };
	struct batch_case c;

	x.rule.mode = MODE_APPEND;
	case_chunks(&c, &rng, FILL_BLOCKS, (struct attn_shape){ 4, 2, 64, 64 }, 1, &ctx, &rows);
	want = drop_case(&c, "uniprefill", &official);
	for (int i = 0; i < 2; i++) {
		x.rule.scores = i;
		got = drop_case(&c, "uniprefill", &x);
		same += !memcmp(got.keep, want.keep, 300);
		drop_kept_free(&got);
	}
	ok(same == 2 && want.n_keep[0] < 250, "one chunk: append is official");
	drop_kept_free(&want);
	for (int i = 0; i < 2; i++) {
		x.rule.scores = i;
		case_cut(&c, (int[]){ 0 }, (int[]){ 100 });
		got = drop_case(&c, "uniprefill", &x);
		for (int k = 0; k < 20; k++)
			kept_sinks += got.keep[k];
		drop_kept_free(&got);
		case_cut(&c, (int[]){ 100 }, (int[]){ 90 });
		got = drop_case(&c, "uniprefill", &x);
		for (int k = 82; k < 90; k++)
			kept_last += got.keep[k];
		ok(got.n_keep[0] < 90, "a chunk in the middle drops %d of 90 rows, scores=%s",
		   90 - got.n_keep[0], i ? "chunk" : "cache");
		drop_kept_free(&got);
	}
	is_int(kept_sinks, 40, "the first chunk keeps the sinks");
	is_int(kept_last, 16, "every chunk keeps its last rows");
	case_release(&c);
}

/* Keys of the cache outweigh the chunk's: with scores=cache they use up p, with scores=chunk they
 * are not asked. */
static void test_cache_scores(void)
{
	struct uniprefill_self x = {
		.rule = { .p = 0.5, .block = 16, .last_q = 1, .mode = MODE_APPEND }
	};
	int ctx = 64, rows = 64, most = 0;
	struct rng rng = { 8 };
	struct batch_case c;
	struct drop_kept got;

	case_chunks(&c, &rng, FILL_NORMAL, (struct attn_shape){ 1, 1, 64, 64 }, 1, &ctx, &rows);
	for (int t = 0; t < 64; t++)
		for (int d = 0; d < 64; d++)
			c.kv.k[(c.page[0] * 64 + t) * 64 + d] = c.q[63 * 64 + d];
	got = drop_case(&c, "uniprefill", &x);
	is_int(got.n_keep[0], 1, "a chunk that nobody looks at keeps its last row");
	drop_kept_free(&got);
	x.rule.scores = SCORES_CHUNK;
	got = drop_case(&c, "uniprefill", &x);
	most = got.n_keep[0];
	ok(most > 16 && most < 64, "among its own keys it keeps %d of 64 rows", most);
	drop_kept_free(&got);
	case_release(&c);
}

int main(void)
{
	plan(0);
	test_mass();
	test_uniprefill();
	test_pick();
	test_random();
	test_capture();
	test_extremes();
	test_append();
	test_cache_scores();
	return done_testing();
}
