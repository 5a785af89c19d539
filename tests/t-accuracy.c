/* SPDX-License-Identifier: Apache-2.0 */
/* Distances between attention outputs. */
#include "config.h"
#include "kernels/methods/accuracy.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

#include "base/rng.h"
#include "tests/tap.h"

enum { ROWS = 5, HEADS = 3, DIM = 8, N = ROWS * HEADS * DIM };

static const struct attn_shape shape = { HEADS, 1, DIM, 128 };
static bf16_t a[N], b[N];
static float lse_a[ROWS * HEADS], lse_b[ROWS * HEADS];
static struct accuracy acc[HEADS];

static struct ar_err err;

static enum ar_status measure(void)
{
	return accuracy_measure(&shape, ROWS, a, b, lse_a, lse_b, acc, &err);
}

static void reset(void)
{
	struct rng r = { 7 };

	for (int i = 0; i < N; i++)
		a[i] = b[i] = bf16_from_f32(rng_normal(&r));
	for (int i = 0; i < ROWS * HEADS; i++)
		lse_a[i] = lse_b[i] = rng_normal(&r);
}

/* Element i of head h of row r. */
static bf16_t *at(bf16_t *x, int r, int h, int i)
{
	return x + (r * HEADS + h) * DIM + i;
}

static void test_identical(void)
{
	bool exact = true;

	reset();
	measure();
	for (int h = 0; h < HEADS; h++)
		exact &= acc[h].rel_l2 == 0 && acc[h].cosine == 1 && acc[h].max_abs == 0 &&
			 acc[h].mass_recall == 1;
	ok(exact, "identical outputs are at distance 0 with cosine and mass 1, exactly");
}

static void test_known(void)
{
	/* Head 1: dense rows (3, 4, 0 ...); the first output row is (3, 0, 0 ...). */
	reset();
	for (int r = 0; r < ROWS; r++)
		for (int i = 0; i < DIM; i++)
			*at(a, r, 1, i) = *at(b, r, 1, i) = bf16_from_f32(i == 0 ? 3 :
									  i == 1 ? 4 :
										   0);
	*at(a, 0, 1, 1) = 0;
	lse_a[0 * HEADS + 1] = lse_b[0 * HEADS + 1] - logf(2);
	measure();
	ok(fabs(acc[1].rel_l2 - 4 / sqrt(ROWS * 25.)) < 1e-12,
	   "relative L2 is over all rows of a head");
	ok(fabs(acc[1].cosine - (ROWS - 1 + 0.6) / ROWS) < 1e-12, "the cosine is a mean over rows");
	ok(acc[1].max_abs == 4, "the largest difference is an element's");
	ok(fabs(acc[1].mass_recall - (ROWS - 0.5) / ROWS) < 1e-6, "mass is a mean over rows");
	ok(acc[0].rel_l2 == 0 && acc[2].mass_recall == 1, "other heads are left alone");
}

static void test_edges(void)
{
	reset();
	for (int r = 0; r < ROWS; r++) {
		memset(at(a, r, 0, 0), 0, DIM * sizeof *a);
		memset(at(b, r, 1, 0), 0, DIM * sizeof *b);
		memset(at(a, r, 2, 0), 0, DIM * sizeof *a);
		memset(at(b, r, 2, 0), 0, DIM * sizeof *b);
		lse_a[r * HEADS] = -INFINITY;
		lse_a[r * HEADS + 1] = lse_b[r * HEADS + 1] + 1e-6f;
	}
	measure();
	ok(acc[0].rel_l2 == 1 && acc[0].cosine == 0 && acc[0].mass_recall == 0,
	   "rows that saw no key have lost everything");
	ok(acc[1].rel_l2 == 1 && acc[1].cosine == 0, "a difference from nothing is a whole one");
	ok(acc[1].mass_recall == 1, "rounding does not raise the mass above 1");
	ok(acc[2].rel_l2 == 0 && acc[2].cosine == 1, "two zero outputs are equal");
}

/* A NaN must not look like a distance of 0. */
static void test_not_finite(void)
{
	static const float odd[] = { NAN, INFINITY, -INFINITY };
	int bad = 0;

	for (int i = 0; i < 3; i++) {
		reset();
		*at(a, 1, 2, 3) = bf16_from_f32(odd[i]);
		bad += measure() != AR_DATA;
		reset();
		*at(b, 1, 2, 3) = bf16_from_f32(odd[i]);
		bad += measure() != AR_DATA;
		reset();
		lse_b[1 * HEADS + 2] = odd[i];
		bad += measure() != AR_DATA;
		reset();
		lse_a[1 * HEADS + 2] = odd[i];
		bad += measure() != (odd[i] < 0 ? AR_OK : AR_DATA);
	}
	is_int(bad, 0, "outputs that are not finite are refused, and dense rows that saw nothing");
	reset();
	lse_b[1 * HEADS + 2] = NAN;
	measure();
	is_str(err.msg,
	       "query head 2, row 1: attention is not finite; Q, K or V of the capture "
	       "are out of range",
	       "the message says which");
}

int main(void)
{
	plan(0);
	test_identical();
	test_known();
	test_edges();
	test_not_finite();
	return done_testing();
}
