/* SPDX-License-Identifier: Apache-2.0 */
/* The share of dense attention that kept tokens hold, and counts of rows and pairs. */
#include "config.h"

#include <math.h>
#include <stdlib.h>

#include "base/rng.h"
#include "kernels/drop/kept.h"
#include "replay/engine/attn_engine.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

enum { TOK = 600, DIM = 64 };
static const struct attn_shape shape = { 4, 2, DIM, 64 };

static bf16_t *draw(struct rng *rng, size_t n)
{
	bf16_t *x = malloc(n * sizeof *x);

	if (!x)
		bail_out("out of memory");
	for (size_t i = 0; i < n; i++)
		x[i] = bf16_from_f32(rng_normal(rng));
	return x;
}

static double dot(const bf16_t *a, const bf16_t *b)
{
	double sum = 0;

	for (int d = 0; d < DIM; d++)
		sum += (double)bf16_to_f32(a[d]) * (double)bf16_to_f32(b[d]);
	return sum;
}

/* Attention that each token gets from the last n rows, in double. */
static void plain_mass(const bf16_t *q, const bf16_t *k, int n_tok, int n, double *mass)
{
	for (int t = 0; t < n_tok; t++)
		mass[t] = 0;
	for (int i = 0; i < n; i++)
		for (int h = 0; h < 4; h++) {
			int seen = n_tok - n + i + 1;
			double x[TOK], sum = 0;

			for (int t = 0; t < seen; t++)
				sum += x[t] =
					exp(dot(q + (i * 4 + h) * DIM, k + (t * 2 + h / 2) * DIM) /
					    sqrt(DIM));
			for (int t = 0; t < seen; t++)
				mass[t] += x[t] / sum;
		}
}

static void test_shares(void)
{
	struct rng rng = { 5 };
	bf16_t *q = draw(&rng, (size_t)(128 * 4 * DIM)), *k = draw(&rng, (size_t)(TOK * 2 * DIM));
	struct kept_share x = { .n_tok = TOK, .queries = 100 };
	double mass[TOK], all = 0, kept = 0;
	uint8_t keep[TOK];
	int n_kept = 0, top = 0;
	struct ar_err err;

	plain_mass(q, k, TOK, 100, mass);
	for (int t = 0; t < TOK; t++) {
		keep[t] = rng_unit(&rng) < 0.4;
		n_kept += keep[t];
		all += mass[t];
		kept += keep[t] * mass[t];
	}
	for (int t = 0; t < TOK; t++) {
		int more = 0;

		for (int u = 0; u < TOK; u++)
			more += mass[u] > mass[t];
		top += more < KEPT_TOP && keep[t];
	}
	if (kept_share(&shape, q, k, keep, &x, &err))
		bail_out("%s", err.msg);
	ok(fabs(x.mass - kept / all) < 1e-5, "mass %.6f, computed plainly %.6f", x.mass,
	   kept / all);
	ok(x.top == KEPT_TOP && fabs(x.recall - (double)top / KEPT_TOP) < 1e-9,
	   "recall %.6f of %d tokens", x.recall, x.top);
	is_int(x.n_kept, n_kept, "%d of %d tokens", x.n_kept, x.n_tok);
	x = (struct kept_share){ .n_tok = 9, .queries = 9 };
	for (int t = 0; t < 9; t++)
		keep[t] = 1;
	if (kept_share(&shape, q, k, keep, &x, &err))
		bail_out("%s", err.msg);
	ok(x.mass == 1 && x.recall == 1 && x.top == 9, "a short prompt that is kept whole");
	free(q);
	free(k);
}

static void test_faults(void)
{
	struct rng rng = { 6 };
	bf16_t *q = draw(&rng, (size_t)(8 * 4 * DIM)), *k = draw(&rng, (size_t)(20 * 2 * DIM));
	uint8_t keep[20] = { 1 };
	int bad = 0;
	bool hit = true;
	long n = 0;

	for (; hit; n++) {
		struct kept_share x = { .n_tok = 20, .queries = 8 };
		struct ar_err err = { 0 };
		enum ar_status st;

		fault_arm(n);
		st = kept_share(&shape, q, k, keep, &x, &err);
		hit = fault_disarm();
		bad += st != (hit ? AR_NOMEM : AR_OK);
	}
	ok(!bad && n > 3, "each of %ld allocations that fails is reported", n - 1);
	free(q);
	free(k);
}

/* ---- counts ---- */

static int64_t plain_pairs(int start, int n, int window)
{
	int64_t sum = 0;

	for (int i = start; i < start + n; i++)
		sum += !window || i + 1 < window ? i + 1 : window;
	return sum;
}

static void test_tally(void)
{
	static const int v[][2] = { { 0, 100 }, { 0, 5 },  { 37, 64 },
				    { 50, 1 },	{ 49, 2 }, { 500, 9 } };
	struct cache_group group[2] = { { .mixer = MIX_FULL },
					{ .mixer = MIX_WINDOW, .window = 50 } };
	struct attn_engine e = { .groups = { .group = group, .n = 2 }, .drops = { .n = 1 } };
	struct batch_entry entry[6];
	int64_t rows = 0, full = 0, window = 0;

	for (int i = 0; i < 6; i++) {
		entry[i] = (struct batch_entry){ .start = (uint32_t)v[i][0],
						 .n_tok = (uint32_t)v[i][1] };
		rows += v[i][1];
		full += plain_pairs(v[i][0], v[i][1], 0);
		window += plain_pairs(v[i][0], v[i][1], 50);
	}
	attn_engine_tally(&e, &(struct batch){ .entry = entry, .n = 6 });
	ok(group[0].n_row == rows && group[0].n_pair == full, "rows and pairs of full layers");
	ok(group[1].n_row == rows && group[1].n_pair == window, "and of window layers");
	attn_engine_forget(&e);
	ok(!group[0].n_row && !group[1].n_pair, "which are forgotten");
}

int main(void)
{
	plan(8);
	test_shares();
	test_faults();
	test_tally();
	return done_testing();
}
