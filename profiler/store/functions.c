/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/functions.h"

#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/paired.h"
#include "base/stats.h"
#include "profiler/store/distribution.h"

/* The values of the group or window, in order of arrival.  A window drops the oldest first. */
struct sample {
	double *x;
	size_t first, n, cap;
	double p;
};

static void fail_nomem(sqlite3_context *c)
{
	sqlite3_result_error_nomem(c);
}

static void step_function(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	struct sample *s = sqlite3_aggregate_context(c, sizeof *s);
	double p = argc > 1 ? sqlite3_value_double(argv[1]) : 50;

	if (!s) {
		fail_nomem(c);
		return;
	}
	if (argc > 1 && (sqlite3_value_type(argv[1]) == SQLITE_NULL || !(p >= 0 && p <= 100))) {
		sqlite3_result_error(c, "percentile: the second argument is a number from 0 to 100",
				     -1);
		return;
	}
	if (s->n > s->first && p != s->p) {
		sqlite3_result_error(c, "percentile: the second argument is the same in all rows",
				     -1);
		return;
	}
	s->p = p;
	if (sqlite3_value_type(argv[0]) == SQLITE_NULL)
		return;
	if (!GROW(s->x, s->cap, s->n + 1)) {
		fail_nomem(c);
		return;
	}
	s->x[s->n++] = sqlite3_value_double(argv[0]);
}

static void inverse(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	struct sample *s = sqlite3_aggregate_context(c, sizeof *s);

	(void)argc;
	if (s && sqlite3_value_type(argv[0]) != SQLITE_NULL)
		s->first++;
}

static void value_function(sqlite3_context *c)
{
	struct sample *s = sqlite3_aggregate_context(c, 0);
	size_t n = s ? s->n - s->first : 0;
	double *sorted;

	if (!n) {
		sqlite3_result_null(c);
		return;
	}
	sorted = malloc(n * sizeof *sorted);
	if (!sorted) {
		fail_nomem(c);
		return;
	}
	memcpy(sorted, s->x + s->first, n * sizeof *sorted);
	stats_sort(sorted, n);
	sqlite3_result_double(c, stats_percentile(sorted, n, s->p));
	free(sorted);
}

static void final(sqlite3_context *c)
{
	struct sample *s = sqlite3_aggregate_context(c, 0);

	value_function(c);
	if (s)
		free(s->x);
}

/* One past the last of x[i..n) that follows the one before it; x is ascending, and values may
 * repeat. */
static size_t range_end(const double *x, size_t i, size_t n)
{
	while (++i < n && x[i] <= x[i - 1] + 1)
		;
	return i;
}

/* "run 3" or "runs 1, 3 to 5", of the numbers of all rows. */
static void runs(sqlite3_context *c)
{
	struct sample *s = sqlite3_aggregate_context(c, 0);
	size_t n = s ? s->n : 0;
	sqlite3_str *text;

	if (!n)
		return;
	stats_sort(s->x, n);
	text = sqlite3_str_new(sqlite3_context_db_handle(c));
	sqlite3_str_appendf(text, s->x[0] < s->x[n - 1] ? "runs" : "run");
	for (size_t i = 0, end; i < n; i = end) {
		const double first = s->x[i];
		double last;

		end = range_end(s->x, i, n);
		last = s->x[end - 1];
		sqlite3_str_appendf(text, "%s %.0f", i ? "," : "", first);
		if (last > first)
			sqlite3_str_appendf(text, last > first + 1 ? " to %.0f" : ", %.0f", last);
	}
	sqlite3_result_text(c, sqlite3_str_finish(text), -1, sqlite3_free);
	free(s->x);
}

static void mcnemar(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	const int64_t n[] = { sqlite3_value_int64(argv[0]), sqlite3_value_int64(argv[1]) };

	(void)argc;
	if (sqlite3_value_type(argv[0]) == SQLITE_NULL ||
	    sqlite3_value_type(argv[1]) == SQLITE_NULL)
		return;
	if (n[0] < 0 || n[1] < 0 || n[0] > 1000000 || n[1] > 1000000)
		sqlite3_result_error(c, "mcnemar: want two counts, up to a million", -1);
	else
		sqlite3_result_double(c, paired_mcnemar(n[0], n[1]));
}

/* x of all rows in x, y in y. */
struct two_samples {
	struct sample x, y;
};

static void add_two(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	struct two_samples *s = sqlite3_aggregate_context(c, sizeof *s);

	(void)argc;
	if (!s) {
		fail_nomem(c);
		return;
	}
	if (sqlite3_value_type(argv[0]) == SQLITE_NULL ||
	    sqlite3_value_type(argv[1]) == SQLITE_NULL)
		return;
	if (!GROW(s->x.x, s->x.cap, s->x.n + 1) || !GROW(s->y.x, s->y.cap, s->y.n + 1)) {
		fail_nomem(c);
		return;
	}
	s->x.x[s->x.n++] = sqlite3_value_double(argv[0]);
	s->y.x[s->y.n++] = sqlite3_value_double(argv[1]);
}

static void spearman(sqlite3_context *c)
{
	struct two_samples *s = sqlite3_aggregate_context(c, 0);
	struct ar_err err;
	double rho;

	if (!s)
		return;
	if (paired_spearman(s->x.x, s->y.x, s->x.n, &rho, &err))
		fail_nomem(c);
	else
		sqlite3_result_double(c, rho); /* NaN: NULL */
	free(s->x.x);
	free(s->y.x);
}

int functions_register(sqlite3 *db)
{
	const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
	int rc = sqlite3_create_window_function(db, "median", 1, flags, NULL, step_function, final,
						value_function, inverse, NULL);

	if (!rc)
		rc = sqlite3_create_window_function(db, "percentile", 2, flags, NULL, step_function,
						    final, value_function, inverse, NULL);
	if (!rc)
		rc = sqlite3_create_function(db, "runs", 1, flags, NULL, NULL, step_function, runs);
	if (!rc)
		rc = sqlite3_create_function(db, "mcnemar", 2, flags, NULL, mcnemar, NULL, NULL);
	if (!rc)
		rc = sqlite3_create_function(db, "spearman", 2, flags, NULL, NULL, add_two,
					     spearman);
	if (!rc)
		rc = distribution_register(db);
	return rc;
}
