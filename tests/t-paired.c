/* SPDX-License-Identifier: Apache-2.0 */
/* McNemar's exact test and Spearman's rank correlation, against values worked out by hand. */
#include "config.h"
#include "base/paired.h"

#include <math.h>

#include "base/rng.h"
#include "tests/alloc_fault.h"
#include "tests/tap.h"

static void test_mcnemar(void)
{
	/* Twice the sum of the smaller binomial tail, in 2^n-ths. */
	static const struct {
		int64_t b, c;
		double p;
	} known[] = {
		{ 0, 0, 1 },
		{ 1, 0, 1 },
		{ 0, 5, 2.0 / 32 },
		{ 9, 1, 2.0 * (1 + 10) / 1024 },
		{ 5, 15, 2.0 * (1 + 20 + 190 + 1140 + 4845 + 15504) / 1048576 },
		{ 3, 3, 1 },
		{ 4, 3, 1 },
	};
	int good = 0, even = 0;

	for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
		good += fabs(paired_mcnemar(known[i].b, known[i].c) - known[i].p) < 1e-12;
		even += paired_mcnemar(known[i].b, known[i].c) ==
			paired_mcnemar(known[i].c, known[i].b);
	}
	is_int(good, sizeof known / sizeof *known, "McNemar's p is the exact one");
	is_int(even, sizeof known / sizeof *known, "... whichever way is the first");
	ok(paired_mcnemar(0, 4000) == 0 || paired_mcnemar(0, 4000) < 1e-300,
	   "... and of many pairs does not overflow");
	ok(fabs(paired_mcnemar(2000, 2000) - 1) < 1e-9, "... nor of as many each way");
}

static double rho(const double *x, const double *y, size_t n)
{
	struct ar_err err = { 0 };
	double r;

	if (paired_spearman(x, y, n, &r, &err))
		bail_out("%s", err.msg);
	return r;
}

static void test_spearman(void)
{
	/* The sum of the squared distances of ranks is 194: 1 - 6 * 194 / (10 * 99) = -29 / 165. */
	static const double iq[] = { 106, 100, 86, 101, 99, 103, 97, 113, 112, 110 };
	static const double tv[] = { 7, 27, 2, 50, 28, 29, 20, 12, 6, 17 };
	/* Ranks 0, 1.5, 1.5, 3 and 0, 1, 2, 3: 4.5 / sqrt(4.5 * 5). */
	static const double tied[] = { 1, 2, 2, 9 }, rising[] = { -4, -3, 8, 10 };
	static const double level[] = { 5, 5, 5, 5 };
	double x[50], y[50], up[50];
	struct rng r = { 1 };

	ok(fabs(rho(iq, tv, 10) + 29.0 / 165) < 1e-12, "Spearman's rho of a worked example");
	ok(fabs(rho(tied, rising, 4) - 4.5 / sqrt(4.5 * 5)) < 1e-12,
	   "equal values share their mean rank");
	ok(isnan(rho(level, rising, 4)) && isnan(rho(rising, level, 4)),
	   "a figure that is always the same correlates with none");
	ok(isnan(rho(iq, tv, 1)) && isnan(rho(iq, tv, 0)), "one pair has no correlation");
	for (int i = 0; i < 50; i++) {
		x[i] = rng_normal(&r);
		y[i] = rng_normal(&r);
		up[i] = exp(3 * x[i]);
	}
	ok(fabs(rho(x, up, 50) - 1) < 1e-12, "a rising function has the same ranks");
	ok(fabs(rho(x, y, 50) - rho(up, y, 50)) < 1e-12, "... and the same correlations");
	ok(fabs(rho(x, y, 50) - rho(y, x, 50)) < 1e-12, "either may be the first");
}

static void test_memory(void)
{
	static const double x[] = { 1, 2, 3 };
	int n = 0;

	for (;; n++) {
		struct ar_err err = { 0 };
		enum ar_status st;
		double r;

		fault_arm(n);
		st = paired_spearman(x, x, 3, &r, &err);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM)
			bail_out("allocation %d: status %d", n, st);
	}
	is_int(n, 2, "each of %d allocations fails cleanly", n);
}

int main(void)
{
	plan(0);
	test_mcnemar();
	test_spearman();
	test_memory();
	return done_testing();
}
