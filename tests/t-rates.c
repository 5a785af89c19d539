/* SPDX-License-Identifier: Apache-2.0 */
/* The rates that a search tries, on limits that are known. */
#include "config.h"
#include "src/search/rates.h"

#include <string.h>

#include "tests/tap.h"

/* Rates up to most keep the limits, except rates from gap to gap_end. */
struct limit {
	double most, gap, gap_end;
	int tries, fails_at; /* number of the try that fails, 0: none */
	double tried[64];
};

static enum ar_status keeps(void *self, double rate, bool *kept, struct ar_err *err)
{
	struct limit *l = self;

	if (l->tries + 1 == l->fails_at)
		return ar_fail(err, AR_DATA, "no");
	for (int i = 0; i < l->tries; i++)
		if (l->tried[i] == rate)
			bail_out("rate %g was tried twice", rate);
	if (l->tries == 64)
		bail_out("more than 64 tries");
	l->tried[l->tries++] = rate;
	*kept = rate <= l->most && !(rate >= l->gap && rate < l->gap_end);
	return AR_OK;
}

static struct rates_found find(struct limit *l, double start, double lowest, double highest,
			       double precision)
{
	struct rates_found f;
	struct ar_err err;

	if (rates_find(&(struct rates){ .start = start,
					.lowest = lowest,
					.highest = highest,
					.precision = precision,
					.keeps = keeps,
					.self = l },
		       &f, &err))
		bail_out("%s", err.msg);
	return f;
}

static void test_bisection(void)
{
	static const double starts[] = { 0.013, 1, 7.003, 7.01, 1234 };
	static const double precisions[] = { 0.01, 0.02, 0.5 };

	for (size_t i = 0; i < sizeof starts / sizeof *starts; i++)
		for (size_t k = 0; k < sizeof precisions / sizeof *precisions; k++) {
			struct limit l = { .most = 7.005 };
			struct rates_found f = find(&l, starts[i], 0, 0, precisions[k]);

			ok(f.kept <= 7.005 && f.failed > 7.005 &&
				   f.failed <= f.kept * (1 + precisions[k]),
			   "from %g, 7.005 lies between %g and %g", starts[i], f.kept, f.failed);
		}
}

static void test_ends(void)
{
	struct limit l = { .most = 1e9 };
	struct rates_found f = find(&l, 3, 0, 0, 0.02);

	ok(f.kept == 3 * 1024 && f.failed == 0 && l.tries == RATES_STEPS + 1,
	   "limits that are always kept end the search");
	l = (struct limit){ .most = 1e-9 };
	f = find(&l, 3, 0, 0, 0.02);
	ok(f.kept == 0 && f.failed == rates_round(3.0 / 1024) && l.tries == RATES_STEPS + 1,
	   "limits that are never kept do, too");
	l = (struct limit){ .most = 1e9 };
	f = find(&l, 3, 3, 10, 0.02);
	ok(f.kept == 10 && f.failed == 0 && l.tries == 3 && l.tried[2] == 10,
	   "the highest rate is tried, and none above it");
	l = (struct limit){ .most = 1 };
	f = find(&l, 3, 3, 100, 0.02);
	ok(f.kept == 0 && f.failed == 3 && l.tries == 2 && l.tried[1] == 6,
	   "below the lowest rate none is tried, above it one more");
	l = (struct limit){ .most = 1e9 };
	f = find(&l, 3, 3, 3, 0.02);
	ok(f.kept == 3 && f.failed == 0 && l.tries == 1, "both ends may be one");
}

static void test_dips(void)
{
	struct limit l = { .most = 40, .gap = 5, .gap_end = 10 };
	struct rates_found f = find(&l, 3, 0, 0, 0.02);

	ok(f.kept > 39 && f.kept <= 40 && f.failed > 40,
	   "one rate that fails does not end the scan");
	l = (struct limit){ .most = 40, .gap = 5, .gap_end = 13 };
	f = find(&l, 3, 0, 0, 0.02);
	ok(f.kept < 5 && f.kept > 4.9 && f.failed >= 5, "... two in a row do");
	l = (struct limit){ .most = 40, .gap = 2.5, .gap_end = 5 };
	f = find(&l, 3, 0, 0, 0.02);
	ok(f.kept > 39 && f.kept <= 40, "... and after halving the scan goes on above the start");
}

static void test_errors(void)
{
	/* 3 and 6 keep the limits, 12 and 24 do not, then it bisects; from 100 it halves. */
	static const struct {
		double start;
		int at;
	} cases[] = { { 3, 1 }, { 3, 2 }, { 3, 5 }, { 100, 3 } };

	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		struct limit l = { .most = 7, .fails_at = cases[i].at };
		struct rates_found f;
		struct ar_err err = { 0 };
		struct rates r = {
			.start = cases[i].start, .precision = 0.02, .keeps = keeps, .self = &l
		};

		is_int(rates_find(&r, &f, &err), AR_DATA, "an error of try %d ends the search",
		       cases[i].at);
	}
}

static void test_text(void)
{
	char text[RATE_CHARS];

	is_str(rate_text(2, text), "2", "a rate as text is short");
	is_str(rate_text(7.125, text), "7.125", "... in full");
	is_str(rate_text(0.1, text), "0.1", "... without digits that are not its own");
	is_str(rate_text(123456.7, text), "123456.7", "... also where four digits do not do");
}

int main(void)
{
	test_bisection();
	test_ends();
	test_dips();
	test_errors();
	test_text();
	return done_testing();
}
