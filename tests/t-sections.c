/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of the report: rules that each section keeps, and failures of the whole. */
#include "config.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "profiler/store/store_runs.h"
#include "src/report/interval.h"
#include "src/report/page.h"
#include "src/report/phrase.h"
#include "src/report/report.h"
#include "src/report/sums.h"
#include "tests/alloc_fault.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

static char path[] = "/tmp/t-sections-XXXXXX";

/* A parameter that nothing binds is NULL, so that a misspelt one goes unseen. */
static bool parameters_exist(sqlite3_stmt *q)
{
	for (int i = 1; i <= sqlite3_bind_parameter_count(q); i++) {
		const char *name = sqlite3_bind_parameter_name(q, i);

		if (!name || (strcmp(name, ":run") && strcmp(name, ":baseline") &&
			      strcmp(name, ":dialect") && strcmp(name, ":each"))) {
			diag("parameter %s", name ? name : "?");
			return false;
		}
	}
	return true;
}

/* As the keys of JSON objects. */
static bool columns_differ(sqlite3_stmt *q)
{
	for (int i = 0; i < sqlite3_column_count(q); i++)
		for (int k = 0; k < i; k++)
			if (!strcmp(sqlite3_column_name(q, i), sqlite3_column_name(q, k))) {
				diag("column %s twice", sqlite3_column_name(q, i));
				return false;
			}
	return true;
}

static bool is_dialect(const char *name)
{
	for (int i = 0; report_dialects[i]; i++)
		if (!strcmp(report_dialects[i], name))
			return true;
	return false;
}

static bool first_of_name(const struct section *s)
{
	for (const struct section *t = sections; t != s; t++)
		if (!strcmp(s->name, t->name))
			return false;
	return true;
}

static bool on_page(const struct section *s)
{
	for (const struct page_item *i = page_items; i->kind; i++)
		if (i->kind == PAGE_TABLE && !strcmp(i->name, s->name))
			return true;
	return false;
}

/* q: the section's statement; end: the rest of the file behind it. */
static void test_section(const struct section *s, sqlite3_stmt *q, const char *end)
{
	while (isspace((unsigned char)*end))
		end++;
	ok(q && !*end, "%s: is one statement", s->name);
	ok(parameters_exist(q), "%s: uses parameters that there are", s->name);
	ok(columns_differ(q), "%s: its columns have names of their own", s->name);
	ok(!s->title == !sqlite3_column_count(q), "%s: has a title if it shows something", s->name);
	ok(!s->dialect || is_dialect(s->dialect), "%s: belongs to a report", s->name);
	ok(first_of_name(s), "%s: is listed once", s->name);
	if (s->title && (!s->dialect || !strcmp(s->dialect, report_dialects[0])))
		ok(on_page(s), "%s: is on the page", s->name);
}

/* ---- the page ---- */

/* Columns that chart_query() knows. */
static bool is_mark(sqlite3_stmt *q)
{
	static const char *const known[] = { "panel", "series", "row",	 "title", "geom",
					     "style", "x",	"y",	 "x_lo",  "x_hi",
					     "y_lo",  "y_hi",	"value", "hatch", "ring" };

	for (int i = 0; i < sqlite3_column_count(q); i++) {
		size_t k = 0;

		while (k < sizeof known / sizeof *known &&
		       strcmp(known[k], sqlite3_column_name(q, i)))
			k++;
		if (k == sizeof known / sizeof *known) {
			diag("column %s", sqlite3_column_name(q, i));
			return false;
		}
	}
	return true;
}

static void test_statement(sqlite3 *db, const struct page_item *i)
{
	sqlite3_stmt *q = NULL;
	const char *end;

	if (sqlite3_prepare_v2(db, i->text, -1, &q, &end))
		bail_out("%s: %s", i->name, sqlite3_errmsg(db));
	while (isspace((unsigned char)*end))
		end++;
	ok(q && !*end, "%s: is one statement", i->name);
	ok(parameters_exist(q) && columns_differ(q), "%s: its parameters and columns are right",
	   i->name);
	ok(i->kind == PAGE_QUERY || i->kind == PAGE_FIRST || is_mark(q),
	   "%s: its columns make marks", i->name);
	sqlite3_finalize(q);
}

static bool is_section(const char *name)
{
	const struct section *s = sections;

	while (s->name && strcmp(s->name, name))
		s++;
	return s->name && s->title;
}

static bool is_chart(const char *name)
{
	const struct page_item *i = page_items;

	while (i->kind &&
	       ((i->kind != PAGE_CHART && i->kind != PAGE_EACH) || strcmp(i->name, name)))
		i++;
	return i->kind;
}

static bool only_letters(const char *s)
{
	return *s && strspn(s, "abcdefghijklmnopqrstuvwxyz") == strlen(s);
}

/* A part says how to get it, and its charts or tables follow it. */
static void test_part(const struct page_item *i)
{
	ok(i->title && *i->title && i->text && *i->text && !page_is_part(&i[1]) &&
		   i[1].kind != PAGE_END && only_letters(i->name),
	   "part %s: has a name, a title, what would bring it, and charts or tables", i->title);
}

/* After the sections, whose tables they read. */
static void test_page(sqlite3 *db)
{
	int parts = 0;

	for (const struct page_item *i = page_items; i->kind; i++) {
		parts += page_is_part(i);
		switch (i->kind) {
		case PAGE_PART:
		case PAGE_FOLDED: test_part(i); break;
		case PAGE_BESIDE: ok(is_chart(i->name), "%s: is a chart", i->name); break;
		case PAGE_TABLE: ok(is_section(i->name), "%s: is a section", i->name); break;
		default: test_statement(db, i);
		}
	}
	ok(parts <= PAGE_PARTS_MAX, "there is room for %d parts", parts);
	is_int(page_items->kind, PAGE_FIRST, "the page begins with the first screen");
}

static sqlite3 *open_sample(void)
{
	struct ar_err err;
	sqlite3 *db;

	if (store_open_runs(&db, &(struct store_source){ .path = path }, 1, false, &err))
		bail_out("%s", err.msg);
	return db;
}

/* One more way to the rows of a view. */
static void test_phase_time(sqlite3 *db)
{
#define ROWS(of) \
	"(SELECT group_concat(run_id || ',' || phase || ',' || core || ',' || kernels || ',' || " \
	"ms, ';') FROM (SELECT * FROM " of " ORDER BY run_id, phase))"
	static const char sql[] = "SELECT " ROWS("phase_time") ", " ROWS("v_phase_time");
#undef ROWS
	sqlite3_stmt *q = NULL;

	if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) || sqlite3_step(q) != SQLITE_ROW ||
	    !sqlite3_column_text(q, 0))
		bail_out("times of phases: %s", sqlite3_errmsg(db));
	is_str((const char *)sqlite3_column_text(q, 0), (const char *)sqlite3_column_text(q, 1),
	       "times of phases are those of the view");
	sqlite3_finalize(q);
}

/* In order, since a section may use the tables of sections before it. */
static void test_sections(void)
{
	sqlite3 *db = open_sample();

	if (interval_register(db) || phrase_register(db) || sums_register(db))
		bail_out("%s", sqlite3_errmsg(db));
	sqlite3_exec(db, "CREATE TEMP TABLE slo(run_id, metric, ns, own)", NULL, NULL, NULL);
	for (const struct section *s = sections; s->name; s++) {
		sqlite3_stmt *q = NULL;
		const char *end;

		if (sqlite3_prepare_v2(db, s->sql, -1, &q, &end))
			bail_out("%s: %s", s->name, sqlite3_errmsg(db));
		test_section(s, q, end);
		if (!s->title)
			sqlite3_step(q);
		sqlite3_finalize(q);
	}
	test_phase_time(db);
	test_page(db);
	sqlite3_close(db);
}

static enum ar_status write_page(bool armed, long k, size_t *size, struct ar_err *err)
{
	char *text = NULL;
	struct report r = { .db = open_sample(),
			    .path = path,
			    .dialect = report_dialects[0],
			    .slo = "ttft:10ms,tpot:1s" };
	FILE *f = open_memstream(&text, size);
	enum ar_status st;

	if (!f)
		bail_out("no memory");
	*err = (struct ar_err){ 0 };
	if (armed)
		fault_arm(k);
	st = report_html(&r, f, err);
	sqlite3_close(r.db);
	fclose(f);
	free(text);
	return st;
}

/* Fail one in 13 allocations, or in 65: SQLite makes most allocations. */
static void test_page_faults(void)
{
	size_t size = 0;
	bool clean = true;
	struct ar_err err;
	long k = 0;

	ok(!write_page(false, 0, &size, &err) && size > 20000, "the page is written: %zu bytes",
	   size);
	for (;; k += 13 * fault_stride(5)) {
		enum ar_status st = write_page(true, k, &size, &err);

		if (!fault_disarm())
			break;
		if (st && st != AR_NOMEM) {
			diag("allocation %ld: %s", k, err.msg);
			clean = false;
		}
	}
	ok(clean && k > 100, "any 13th of %ld allocations fails cleanly", k);
}

static enum ar_status write_report(const char *dialect, bool armed, long k, struct ar_err *err)
{
	struct document d = { .writer = writers[0], .f = fopen("/dev/null", "w") };
	struct report r = { .db = open_sample(),
			    .path = path,
			    .run = 2,
			    .dialect = dialect,
			    .slo = "ttft:10ms,tpot:1s" };
	enum ar_status st;

	if (!d.f)
		bail_out("cannot open /dev/null");
	*err = (struct ar_err){ 0 };
	if (armed)
		fault_arm(k);
	st = report_write(&r, &d, err);
	sqlite3_close(r.db);
	fclose(d.f);
	return st;
}

static void test_report(const char *dialect)
{
	bool clean = true;
	struct ar_err err;
	long k = 0;

	ok(!write_report(dialect, false, 0, &err), "%s is reported", dialect);
	for (;; k += fault_stride(5)) {
		enum ar_status st = write_report(dialect, true, k, &err);

		if (!fault_disarm())
			break;
		if (st && st != AR_NOMEM) {
			diag("allocation %ld: %s", k, err.msg);
			clean = false;
		}
	}
	ok(clean && k > 30, "%s: any of %ld allocations fails cleanly", dialect, k);
}

static void test_lacking(void)
{
	struct document d = { .writer = writers[0], .f = stdout };
	struct report r = { .db = open_sample(), .path = "a.db", .dialect = report_dialects[0] };
	struct ar_err err = { 0 };

	sqlite3_exec(r.db,
		     "DROP VIEW IF EXISTS temp.v_run;"
		     "CREATE TEMP VIEW v_run AS SELECT no_such",
		     NULL, NULL, NULL);
	ok(report_write(&r, &d, &err) == AR_DB && strstr(err.msg, "a.db: "),
	   "what a section lacks is the database's fault: %s", err.msg);
	sqlite3_close(r.db);
}

/* Set text to the function's result over the columns of these rows.  Returns whether it did. */
static bool interval(sqlite3 *db, const char *call, const char *rows, char *text, size_t n)
{
	char sql[2400];
	sqlite3_stmt *q = NULL;
	bool done = false;

	snprintf(sql, sizeof sql, "SELECT coalesce(%s, 'NULL') FROM (%s)", call, rows);
	if (!sqlite3_prepare_v2(db, sql, -1, &q, NULL) && sqlite3_step(q) == SQLITE_ROW) {
		const char *s = (const char *)sqlite3_column_text(q, 0);

		snprintf(text, n, "%s", s ? s : "");
		done = s;
	}
	sqlite3_finalize(q);
	return done;
}

/* Rows: place, x. */
static bool mean(sqlite3 *db, const char *rows, char *text, size_t n)
{
	return interval(db, "mean_interval(column1, column2)", rows, text, n);
}

/* The values i^2 % 101, i < 400, whose mean and deviation SQL has. */
#define SQUARES \
	"(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 399) " \
	"SELECT i, i * i % 101 AS x FROM n)"

#define EQUAL_12 \
	"(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 12) " \
	"SELECT i, 2 * i AS total FROM n)"

/* ---- coverage, by simulation ---- */

static double draw_normal(struct rng *r)
{
	return sqrt(-2 * log(1 - rng_unit(r))) * cos(6.283185307179586 * rng_unit(r));
}

static double draw_skewed(struct rng *r)
{
	return -exp(1.3 * draw_normal(r));
}

/* Of 100 prompts 8 lose 2 nats. */
static double draw_rare(struct rng *r)
{
	return 0.1 * draw_normal(r) - (rng_unit(r) < 0.08 ? 2 : 0);
}

struct simulated {
	int covered;
	double width; /* mean */
};

static struct simulated simulate(sqlite3 *db, double (*draw)(struct rng *), double truth, int n)
{
	enum { TRIALS = 400 };
	struct simulated out = { 0 };
	struct rng r = { 1 };

	for (int trial = 0; trial < TRIALS; trial++) {
		char rows[2000] = "VALUES ", text[200];
		size_t at = strlen(rows);
		double x[3];

		for (int i = 0; i < n; i++)
			at += (size_t)snprintf(rows + at, sizeof rows - at, "%s(%d, %.17g)",
					       i ? ", " : "", i, draw(&r));
		if (!mean(db, rows, text, sizeof text) ||
		    sscanf(text, "[%lf,%lf,%lf]", &x[0], &x[1], &x[2]) != 3)
			bail_out("no interval of %s", rows);
		out.covered += x[1] <= truth && truth <= x[2];
		out.width += (x[2] - x[1]) / TRIALS;
	}
	return out;
}

/* With 24 prompts, no method covers more than 346 of 400 of the rare case: so often is one in the
 * sample. */
static void test_coverage(void)
{
	static const struct {
		const char *name;
		double (*draw)(struct rng *);
		double truth;
		int n, least, most;
		double width;
	} t[] = {
		{ "normal", draw_normal, 0, 24, 370, 390, 0.9 },
		{ "skewed", draw_skewed, -2.3280, 24, 352, 390, 5.5 },
		{ "rare", draw_rare, -0.16, 24, 328, 346, 0.8 },
		{ "normal, 12 of it", draw_normal, 0, 12, 370, 390, 1.4 },
	};
	sqlite3 *db = open_sample();

	if (interval_register(db))
		bail_out("%s", sqlite3_errmsg(db));
	for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
		struct simulated s = simulate(db, t[i].draw, t[i].truth, t[i].n);

		ok(s.covered >= t[i].least && s.covered <= t[i].most && s.width < t[i].width,
		   "%s: %d of 400 intervals hold the mean, of width %.2f", t[i].name, s.covered,
		   s.width);
	}
	sqlite3_close(db);
}

/* ---- what they are of ---- */

static void test_mean(void)
{
	static const char in_order[] = "VALUES (1, -2), (2, 6), (3, 1), (4, 3), (5, 9), (6, 2), "
				       "(7, 4), (8, 8), (9, -6), (10, 5), (11, 0), (12, 7)";
	sqlite3 *db = open_sample();
	char a[200], b[200];
	double r[3] = { 0 }, want[2] = { 0 };
	bool clean = true, failed = true;
	long k = 0;

	if (interval_register(db))
		bail_out("%s", sqlite3_errmsg(db));
	ok(mean(db, "VALUES (1, 2), (2, 2)", a, sizeof a), "values have a mean");
	is_str(a, "[2.0,null,null]", "... without an interval, as they are few");
	ok(interval(db, "mean_interval(i, 2)", EQUAL_12, a, sizeof a) &&
		   !strcmp(a, "[2.0,2.0,2.0]"),
	   "12 values have one, of no width if all are the same");
	ok(mean(db, in_order, a, sizeof a) &&
		   mean(db,
			"VALUES (12, 7), (4, 3), (2, 6), (7, 4), (6, NULL), (1, -2), (3, 1), "
			"(5, 9), (6, 2), (9, -6), (8, 8), (11, 0), (10, 5)",
			b, sizeof b),
	   "rows come in any order, some without a value");
	is_str(b, a, "... which changes nothing");
	ok(mean(db, "VALUES (1, 2)", b, sizeof b) && !strcmp(b, "[2.0,null,null]"),
	   "one value has no interval");
	ok(mean(db, "VALUES (1, NULL)", b, sizeof b) && !strcmp(b, "NULL"), "none has no mean");
	ok(interval(db, "json_array(avg(x), sqrt(avg(x * x) - avg(x) * avg(x)))", SQUARES, b,
		    sizeof b) &&
		   sscanf(b, "[%lf,%lf]", &want[0], &want[1]) == 2 &&
		   interval(db, "mean_interval(i, x)", SQUARES, b, sizeof b) &&
		   sscanf(b, "[%lf,%lf,%lf]", &r[0], &r[1], &r[2]) == 3 &&
		   fabs(r[0] - want[0]) < 1e-9,
	   "the mean of 400 values");
	want[1] *= 1.96 / 20;
	ok(fabs(r[1] - r[0] + want[1]) < 0.1 * want[1] &&
		   fabs(r[2] - r[0] - want[1]) < 0.1 * want[1],
	   "its interval is about 1.96 standard errors on both sides: %g, %g to %g", r[0], r[1],
	   r[2]);
	for (; failed && clean; k++) {
		fault_arm(k);
		clean = !mean(db, in_order, b, sizeof b) || !strcmp(a, b);
		failed = fault_disarm();
		clean &= failed || !strcmp(a, b);
	}
	ok(clean && k > 2, "each of %ld allocations fails cleanly", k);
	sqlite3_close(db);
}

/* Rows: place, sum, number of values. */
static bool group_mean(sqlite3 *db, const char *rows, char *text, size_t n)
{
	return interval(db, "mean_interval(column1, column2, column3)", rows, text, n);
}

static void test_sums(void)
{
	static const char rows[] = "VALUES (7, 1, 10), (0, 2, 20), (7, 3, -30), (4095, 0, 0)";
	sqlite3 *db = open_sample();
	char a[200], b[200];
	bool clean = true, failed = true;
	long k = 0;

	if (sums_register(db))
		bail_out("%s", sqlite3_errmsg(db));
	ok(interval(db, "sums(column1, column2, column3)", rows, a, sizeof a), "sums by key");
	is_str(a, "[[0,2,20],[7,4,-20],[4095,0,0]]",
	       "... are in order, with keys that add up to 0");
	ok(interval(db, "sums(1, column1, 0)",
		    "VALUES (9223372036854775807), (9223372036854775807)", a, sizeof a),
	   "large sums");
	is_str(a, "[[1,9223372036854775807,0]]", "... end where 64 bits do");
	ok(interval(db, "sums(1, 1, 1)", "SELECT 1 WHERE 0", a, sizeof a) && !strcmp(a, "[]"),
	   "no rows have no sums");
	ok(!interval(db, "sums(column1, 1, 1)", "VALUES (-1)", a, sizeof a) &&
		   !interval(db, "sums(column1, 1, 1)", "VALUES (4096)", a, sizeof a),
	   "keys have a range");
	is_str(sqlite3_errmsg(db), "sums: the first argument is an integer from 0 to 4095",
	       "... which the message says");
	for (; failed && clean; k++) {
		fault_arm(k);
		clean = !interval(db, "sums(column1, column2, column3)", rows, b, sizeof b) ||
			strlen(b) == 31;
		failed = fault_disarm();
	}
	ok(clean && k > 2, "each of %ld allocations fails cleanly", k);
	sqlite3_close(db);
}

static void test_group_mean(void)
{
	sqlite3 *db = open_sample();
	char a[200], b[200];
	double mean = 0;

	if (interval_register(db))
		bail_out("%s", sqlite3_errmsg(db));
	ok(group_mean(db, "VALUES (1, 2, 1), (2, 10, 2), (7, 15, 3)", a, sizeof a) &&
		   sscanf(a, "[%lf,", &mean) == 1 && fabs(mean - 4.5) < 1e-9,
	   "groups weigh by their values: %g", mean);
	ok(interval(db, "mean_interval(i, total, i)", EQUAL_12, a, sizeof a) &&
		   !strcmp(a, "[2.0,2.0,2.0]"),
	   "groups of one mean have no spread");
	ok(interval(db, "mean_interval(i, x)", SQUARES, a, sizeof a) &&
		   interval(db, "mean_interval(i, 4.0 * x, 4)", SQUARES, b, sizeof b),
	   "a value four times");
	is_str(b, a, "... makes the interval no narrower");
	ok(group_mean(db, "VALUES (1, 6, 3)", a, sizeof a) && !strcmp(a, "[2.0,null,null]"),
	   "one group has no interval");
	ok(group_mean(db, "VALUES (1, NULL, 0)", a, sizeof a) && !strcmp(a, "NULL"),
	   "a group without values is none");
	sqlite3_close(db);
}

int main(void)
{
	struct ar_err err;
	int fd = mkstemp(path);

	plan(0);
	if (fd < 0 || close(fd) || sample_database(path, &err))
		bail_out("no sample database");
	test_mean();
	test_coverage();
	test_group_mean();
	test_sums();
	test_sections();
	for (int i = 0; report_dialects[i]; i++)
		test_report(report_dialects[i]);
	test_page_faults();
	test_lacking();
	unlink(path);
	return done_testing();
}
