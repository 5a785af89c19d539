/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/functions.h"

#include <stdlib.h>
#include <string.h>

#include "base/number.h"
#include "base/stats.h"

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

static int reserve(struct sample *s)
{
	size_t cap = s->cap ? 2 * s->cap : 64;
	double *x;

	if (s->n < s->cap)
		return 1;
	x = realloc(s->x, cap * sizeof *x);
	if (!x)
		return 0;
	s->x = x;
	s->cap = cap;
	return 1;
}

static void step(sqlite3_context *c, int argc, sqlite3_value **argv)
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
	if (!reserve(s)) {
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

static void value(sqlite3_context *c)
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

	value(c);
	if (s)
		free(s->x);
}

/* ---- distribution ---- */

struct weighted {
	double x;
	int64_t n; /* how often x occurred */
};

struct weighted_sample {
	struct weighted *v;
	size_t n, cap;
};

static void add_weighted(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	struct weighted_sample *s = sqlite3_aggregate_context(c, sizeof *s);

	(void)argc;
	if (s && s->n == s->cap) {
		size_t cap = s->cap ? 2 * s->cap : 64;
		struct weighted *v = realloc(s->v, cap * sizeof *v);

		if (v) {
			s->v = v;
			s->cap = cap;
		}
	}
	if (!s || s->n == s->cap) {
		fail_nomem(c);
		return;
	}
	s->v[s->n++] = (struct weighted){ sqlite3_value_double(argv[0]),
					  sqlite3_value_int64(argv[1]) };
}

static int by_value(const void *a, const void *b)
{
	const struct weighted *x = a, *y = b;

	return (x->x > y->x) - (x->x < y->x);
}

/* The mean and the percentiles of v_dist, by the same arithmetic in the same order: a row of s is
 * the samples lo ... hi, m is the number of samples less one. */
static void write_distribution(sqlite3_context *c, const struct weighted_sample *s)
{
	static const int permille[] = { 500, 900, 950, 990 };
	enum { N = sizeof permille / sizeof *permille };
	int64_t m = -1, lo = 0;
	double p[N] = { 0 }, total = 0;
	char *json;

	for (size_t i = 0; i < s->n; i++) {
		m += s->v[i].n;
		total += (double)s->v[i].n * s->v[i].x;
	}
	for (size_t i = 0; i < s->n; i++) {
		int64_t hi = lo + s->v[i].n - 1;
		double x = s->v[i].x, step = i + 1 < s->n ? s->v[i + 1].x - x : 0;

		for (int j = 0; j < N; j++) {
			int64_t k = m * permille[j] / 1000;
			double part = (double)(m * permille[j] % 1000) / 1000;

			if (k >= lo && k <= hi)
				p[j] = k == hi ? x + part * step : x;
		}
		lo = hi + 1;
	}
	json = sqlite3_mprintf("[%lld,%!.17g,%!.17g,%!.17g,%!.17g,%!.17g,%!.17g]", m + 1,
			       total / ((double)m + 1), p[0], p[1], p[2], p[3], s->v[s->n - 1].x);
	if (json)
		sqlite3_result_text(c, json, -1, sqlite3_free);
	else
		fail_nomem(c);
}

static void end_distribution(sqlite3_context *c)
{
	struct weighted_sample *s = sqlite3_aggregate_context(c, 0);

	if (!s || !s->n) {
		sqlite3_result_null(c);
		return;
	}
	qsort(s->v, s->n, sizeof *s->v, by_value);
	write_distribution(c, s);
	free(s->v);
}

/* ---- ecdf ---- */

enum { ECDF_MAX = 256 };

static void put_share(sqlite3_str *out, double x, int64_t below, int64_t total)
{
	sqlite3_str_appendf(out, "%s[%!.17g,%!.17g]", sqlite3_str_length(out) > 1 ? "," : "", x,
			    (double)below / (double)total);
}

static void end_ecdf(sqlite3_context *c)
{
	struct weighted_sample *s = sqlite3_aggregate_context(c, 0);
	sqlite3_str *out = sqlite3_str_new(sqlite3_context_db_handle(c));
	int64_t total = 0, below = 0, before;
	char *json;

	if (s && s->n)
		qsort(s->v, s->n, sizeof *s->v, by_value);
	for (size_t i = 0; s && i < s->n; i++)
		total += s->v[i].n;
	sqlite3_str_appendchar(out, 1, '[');
	if (total)
		put_share(out, s->v[0].x, 0, total);
	for (size_t i = 0; total && i < s->n; i++) {
		before = below;
		below += s->v[i].n;
		if (num_mul(below, ECDF_MAX) / total > num_mul(before, ECDF_MAX) / total)
			put_share(out, s->v[i].x, below, total);
	}
	sqlite3_str_appendchar(out, 1, ']');
	json = sqlite3_str_finish(out);
	if (!json)
		fail_nomem(c);
	else if (total)
		sqlite3_result_text(c, json, -1, sqlite3_free);
	else
		sqlite3_free(json);
	if (s)
		free(s->v);
}

int functions_register(sqlite3 *db)
{
	const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
	int rc = sqlite3_create_window_function(db, "median", 1, flags, NULL, step, final, value,
						inverse, NULL);

	if (!rc)
		rc = sqlite3_create_window_function(db, "percentile", 2, flags, NULL, step, final,
						    value, inverse, NULL);
	if (!rc)
		rc = sqlite3_create_function(db, "distribution", 2, flags, NULL, NULL, add_weighted,
					     end_distribution);
	if (!rc)
		rc = sqlite3_create_function(db, "ecdf", 2, flags, NULL, NULL, add_weighted,
					     end_ecdf);
	return rc;
}
