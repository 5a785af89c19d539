/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/distribution.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/grow.h"
#include "base/number.h"
#include "base/order.h"
#include "base/stats.h"

#define MOST (INT64_C(1) << 53) /* values: a double counts them, and 990 times as many fit */

/* The values; if counted, each is followed by how often it occurred. */
struct collected {
	double *v;
	size_t n, cap; /* of v */
	int64_t n_value;
	bool counted;
};

static void dist_add(sqlite3_context *c, int argc, sqlite3_value **argv)
{
	struct collected *s = sqlite3_aggregate_context(c, sizeof *s);

	if (!s || !GROW(s->v, s->cap, s->n + 2)) {
		sqlite3_result_error_nomem(c);
		return;
	}
	s->counted = argc > 1;
	if (sqlite3_value_type(argv[0]) == SQLITE_NULL ||
	    (s->counted && sqlite3_value_int64(argv[1]) <= 0))
		return;
	s->v[s->n++] = sqlite3_value_double(argv[0]);
	s->n_value = num_add(s->n_value, s->counted ? sqlite3_value_int64(argv[1]) : 1);
	if (!s->counted)
		return;
	s->v[s->n++] = (double)sqlite3_value_int64(argv[1]);
	if (s->n_value > MOST)
		sqlite3_result_error(c, "counts add up to more than 2^53", -1);
}

/* The mean and the percentiles of v_dist, by the same arithmetic in the same order: a value is the
 * samples lo ... hi, m is the number of samples less one. */
struct figures {
	double mean, p[4]; /* p50, p90, p95, p99 */
};

static struct figures find_figures(const struct collected *s)
{
	static const int permille[] = { 500, 900, 950, 990 };
	const size_t width = s->counted ? 2 : 1;
	const int64_t m = s->n_value - 1;
	struct figures f = { 0 };
	int64_t lo = 0;

	for (size_t i = 0; i < s->n; i += width) {
		int64_t hi = lo + (s->counted ? (int64_t)s->v[i + 1] : 1) - 1;
		double x = s->v[i], step = i + width < s->n ? s->v[i + width] - x : 0;

		f.mean += (double)(hi - lo + 1) * x;
		for (int j = 0; j < 4; j++) {
			int64_t k = m * permille[j] / 1000;
			double part = (double)(m * permille[j] % 1000) / 1000;

			if (k >= lo && k <= hi)
				f.p[j] = k == hi ? x + part * step : x;
		}
		lo = hi + 1;
	}
	f.mean /= (double)m + 1;
	return f;
}

static void dist_end(sqlite3_context *c)
{
	struct collected *s = sqlite3_aggregate_context(c, 0);
	struct figures f;
	sqlite3_str *json;
	char *text;

	if (!s || !s->n) {
		if (s)
			free(s->v);
		sqlite3_result_null(c);
		return;
	}
	if (s->counted)
		qsort(s->v, s->n / 2, 2 * sizeof *s->v, order_f64);
	else
		stats_sort(s->v, s->n);
	f = find_figures(s);
	json = sqlite3_str_new(NULL);
	sqlite3_str_appendf(json, "[%lld,%!.17g,%!.17g,%!.17g,%!.17g,%!.17g,%!.17g]",
			    (sqlite3_int64)s->n_value, f.mean, f.p[0], f.p[1], f.p[2], f.p[3],
			    s->v[s->counted ? s->n - 2 : s->n - 1]);
	free(s->v);
	text = sqlite3_str_finish(json);
	if (text)
		sqlite3_result_text(c, text, -1, sqlite3_free);
	else
		sqlite3_result_error_nomem(c);
}

/* ---- ecdf ---- */

enum { ECDF_MAX = 256 };

static void put_share(sqlite3_str *out, double x, int64_t below, int64_t total)
{
	sqlite3_str_appendf(out, "%s[%!.17g,%!.17g]", sqlite3_str_length(out) > 1 ? "," : "", x,
			    (double)below / (double)total);
}

/* s: sorted, each value followed by how often it occurred. */
static void put_shares(sqlite3_str *out, const struct collected *s)
{
	int64_t total = 0, below = 0, before;

	for (size_t i = 0; i < s->n; i += 2)
		total += (int64_t)s->v[i + 1];
	put_share(out, s->v[0], 0, total);
	for (size_t i = 0; i < s->n; i += 2) {
		before = below;
		below += (int64_t)s->v[i + 1];
		if (num_mul(below, ECDF_MAX) / total > num_mul(before, ECDF_MAX) / total)
			put_share(out, s->v[i], below, total);
	}
}

static void end_ecdf(sqlite3_context *c)
{
	struct collected *s = sqlite3_aggregate_context(c, 0);
	sqlite3_str *out;
	char *json;

	if (!s || !s->n) {
		if (s)
			free(s->v);
		sqlite3_result_null(c);
		return;
	}
	qsort(s->v, s->n / 2, 2 * sizeof *s->v, order_f64);
	out = sqlite3_str_new(NULL);
	sqlite3_str_appendchar(out, 1, '[');
	put_shares(out, s);
	sqlite3_str_appendchar(out, 1, ']');
	json = sqlite3_str_finish(out);
	if (json)
		sqlite3_result_text(c, json, -1, sqlite3_free);
	else
		sqlite3_result_error_nomem(c);
	free(s->v);
}

int distribution_register(sqlite3 *db)
{
	const int flags = SQLITE_UTF8 | SQLITE_DETERMINISTIC | SQLITE_INNOCUOUS;
	int rc = SQLITE_OK;

	for (int n_arg = 1; n_arg <= 2 && !rc; n_arg++)
		rc = sqlite3_create_function(db, "distribution", n_arg, flags, NULL, NULL, dist_add,
					     dist_end);
	return rc ? rc :
		    sqlite3_create_function(db, "ecdf", 2, flags, NULL, NULL, dist_add, end_ecdf);
}
