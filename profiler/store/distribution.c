/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/distribution.h"

#include <stdbool.h>
#include <stdlib.h>

#include "base/bootstrap.h"
#include "base/grow.h"
#include "base/number.h"
#include "base/order.h"

#define SHARE 0.95    /* of an interval */
#define RESAMPLES 400 /* an interval's width varies by 5 %, */
#define FEWER 200     /* ... by 7 % with these, */
#define MANY 100000   /* ... which are drawn of more values */
#define BEYOND 5      /* values that a percentile with an interval has on either side, at least */
#define MOST (INT64_C(1) << 53) /* values: a double counts them, and 990 times as many fit */

/* The values in order of rows; if counted, each is followed by how often it occurred. */
struct collected {
	double *v;
	size_t n, cap;	 /* of v */
	int64_t n_value; /* if counted */
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
	if (!s->counted)
		return;
	s->v[s->n++] = (double)sqlite3_value_int64(argv[1]);
	s->n_value = num_add(s->n_value, sqlite3_value_int64(argv[1]));
	if (s->n_value > MOST)
		sqlite3_result_error(c, "counts add up to more than 2^53", -1);
}

static enum ar_status make_counted(struct sample *s, struct collected *from, struct ar_err *err)
{
	size_t n = from->n / 2;
	double *x = malloc(n * sizeof *x);
	int64_t *times = malloc(n * sizeof *times);
	enum ar_status st = x && times ? AR_OK : ar_nomem(err);

	qsort(from->v, n, 2 * sizeof *from->v, order_f64);
	for (size_t i = 0; i < n && !st; i++) {
		x[i] = from->v[2 * i];
		times[i] = (int64_t)from->v[2 * i + 1];
	}
	if (!st)
		st = sample_of_counts(s, x, times, n, err);
	free(x);
	free(times);
	return st;
}

/* ---- figures ---- */

struct figures {
	double mean, p[4]; /* p50, p90, p95, p99 */
	double end[3][2];  /* of the intervals of p50, p90, p99 */
	bool has_end[3];
};

static size_t upto(const struct sample *s, size_t i)
{
	return s->upto ? s->upto[i] : i + 1;
}

/* The mean and the percentiles of v_dist, by the same arithmetic in the same order: value i of s is
 * the samples lo ... hi, m is the number of samples less one. */
static void set_percentiles(struct figures *f, const struct sample *s)
{
	static const int permille[] = { 500, 900, 950, 990 };
	const int64_t m = (int64_t)s->n - 1;
	int64_t lo = 0;
	double total = 0;

	for (size_t i = 0; i < s->n_sorted; i++) {
		int64_t hi = (int64_t)upto(s, i) - 1;
		double x = s->sorted[i], step = i + 1 < s->n_sorted ? s->sorted[i + 1] - x : 0;

		total += (double)(hi - lo + 1) * x;
		for (int j = 0; j < 4; j++) {
			int64_t k = m * permille[j] / 1000;
			double part = (double)(m * permille[j] % 1000) / 1000;

			if (k >= lo && k <= hi)
				f->p[j] = k == hi ? x + part * step : x;
		}
		lo = hi + 1;
	}
	f->mean = total / ((double)m + 1);
}

static enum ar_status set_intervals(struct figures *f, const struct sample *s, struct ar_err *err)
{
	static const double p[] = { 50, 90, 99 };
	const struct bootstrap b = { .resamples = s->rank && s->n > MANY ? FEWER : RESAMPLES,
				     .seed = 1,
				     .block = s->rank ? bootstrap_block(s->n) : 0 };
	double draw[RESAMPLES];
	enum ar_status st = AR_OK;

	for (int i = 0; i < 3 && !st; i++) {
		f->has_end[i] = (double)s->n * (100 - p[i]) >= 100 * BEYOND;
		if (!f->has_end[i])
			continue;
		st = bootstrap_draw(&b, s, p[i], draw, err);
		if (!st)
			bootstrap_interval(draw, b.resamples, SHARE, &f->end[i][0], &f->end[i][1]);
	}
	return st;
}

static void write_figures(sqlite3_context *c, const struct sample *s, const struct figures *f)
{
	sqlite3_str *json = sqlite3_str_new(NULL);
	char *text;

	sqlite3_str_appendf(json, "[%lld,%!.17g,%!.17g,%!.17g,%!.17g,%!.17g,%!.17g",
			    (sqlite3_int64)s->n, f->mean, f->p[0], f->p[1], f->p[2], f->p[3],
			    s->sorted[s->n_sorted - 1]);
	for (int i = 0; i < 3; i++)
		if (f->has_end[i])
			sqlite3_str_appendf(json, ",%!.17g,%!.17g", f->end[i][0], f->end[i][1]);
		else
			sqlite3_str_appendall(json, ",null,null");
	sqlite3_str_appendall(json, "]");
	text = sqlite3_str_finish(json);
	if (text)
		sqlite3_result_text(c, text, -1, sqlite3_free);
	else
		sqlite3_result_error_nomem(c);
}

static void dist_end(sqlite3_context *c)
{
	struct collected *from = sqlite3_aggregate_context(c, 0);
	struct sample s = { 0 };
	struct figures f = { 0 };
	enum ar_status st;

	if (!from || !from->n) {
		if (from)
			free(from->v);
		sqlite3_result_null(c);
		return;
	}
	st = from->counted ? make_counted(&s, from, NULL) :
			     sample_of_values(&s, from->v, from->n, NULL);
	free(from->v);
	if (!st) {
		set_percentiles(&f, &s);
		st = set_intervals(&f, &s, NULL);
	}
	if (st)
		sqlite3_result_error_nomem(c);
	else
		write_figures(c, &s, &f);
	sample_release(&s);
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
