/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "profiler/store/store_file.h"
#include "profiler/store/store_stage.h"
#include "profiler/store/store_writer.h"
#include "tests/alloc_fault.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

enum { ROWS = 5000 };

struct row {
	int64_t a, b, c;
	double d;
	const char *e;
};

#define COL(name, type, null) \
	{ \
#name, type, SET_BY_INSERT, null, NULL, offsetof(struct row, name) \
	}
static const struct column columns[] = {
	COL(a, COLUMN_INTEGER, NOT_NULL), COL(b, COLUMN_INTEGER, NOT_NULL),
	COL(c, COLUMN_INTEGER, OR_NULL),  COL(d, COLUMN_REAL, OR_NULL),
	COL(e, COLUMN_TEXT, OR_NULL),
};
#undef COL
#define TABLE(name, n) \
	{ \
		name, columns, n, sizeof(struct row), "", "" \
	}
static const struct table five = TABLE("t", 5), one = TABLE("t", 1), absent = TABLE("u", 1);
#undef TABLE

static sqlite3 *open_with(const char *sql)
{
	sqlite3 *db = NULL;

	if (sqlite3_open(":memory:", &db) || sqlite3_exec(db, sql, NULL, NULL, NULL))
		bail_out("cannot make a database");
	return db;
}

/* Integers of all sizes; most are next to where a size ends. */
static int64_t some_int(struct rng *r)
{
	uint64_t x = (uint64_t)1 << rng_below(r, 64);

	x += rng_below(r, 3) - 1;
	return (int64_t)(rng_below(r, 2) ? x : ~x);
}

static struct row some_row(struct rng *r)
{
	static const char *const text[] = { "", "budget",
					    "a text of fifty-eight bytes, for its "
					    "type to take two bytes",
					    NULL };

	return (struct row){
		.a = some_int(r),
		.b = some_int(r),
		.c = some_int(r),
		.d = rng_below(r, 8) ? rng_unit(r) - 0.5 : NAN,
		.e = text[rng_below(r, 4)],
	};
}

static bool is_null(sqlite3_stmt *q, int i)
{
	return sqlite3_column_type(q, i) == SQLITE_NULL;
}

static bool same(sqlite3_stmt *q, const struct row *v)
{
	return sqlite3_column_int64(q, 0) == v->a && sqlite3_column_int64(q, 1) == v->b &&
	       (v->c < 0 ? is_null(q, 2) : sqlite3_column_int64(q, 2) == v->c) &&
	       (isnan(v->d) ? is_null(q, 3) : sqlite3_column_double(q, 3) == v->d) &&
	       (v->e ? !strcmp((const char *)sqlite3_column_text(q, 4), v->e) : is_null(q, 4));
}

static bool flush(sqlite3 *db, struct stage *g)
{
	return !stage_flush(g) && !sqlite3_exec(db, "COMMIT; BEGIN IMMEDIATE", NULL, NULL, NULL);
}

static void test_rows(const char *table, const char *what)
{
	sqlite3 *db = open_with(table);
	struct rng r = { 7 };
	struct stage *g;
	struct row v;
	sqlite3_stmt *q = NULL;
	int full = 0;
	bool fine = true;

	if (stage_open(&g, db, &five))
		bail_out("%s", sqlite3_errmsg(db));
	sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	for (int i = 0; i < ROWS; i++) {
		if (stage_full(g)) {
			fine &= flush(db, g);
			full++;
		}
		v = some_row(&r);
		stage_put(g, &v);
	}
	ok(flush(db, g) && flush(db, g) && fine && full > 1, "%s: pages go into the table", what);
	ok(ask(db, "SELECT count(*) FROM t") == ROWS, "%s: as many rows as were put", what);
	r = (struct rng){ 7 };
	sqlite3_prepare_v2(db, "SELECT * FROM t ORDER BY rowid", -1, &q, NULL);
	fine = true;
	while (sqlite3_step(q) == SQLITE_ROW) {
		v = some_row(&r);
		fine &= same(q, &v);
	}
	sqlite3_finalize(q);
	ok(fine, "%s: each value is what was put, in order", what);
	ok(ask(db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
	   "%s: the file is in order", what);
	stage_close(g);
	sqlite3_close(db);
}

static void test_errors(void)
{
	sqlite3 *db = open_with("CREATE TABLE t(a INTEGER)");
	struct stage *g;

	is_int(stage_open(&g, db, &absent), SQLITE_CORRUPT,
	       "a table that is not there is an error");
	ok(!g, "... and leaves no stage");
	fault_arm(0);
	is_int(stage_open(&g, db, &one), SQLITE_NOMEM, "so is a lack of memory");
	fault_disarm();
	if (stage_open(&g, db, &one))
		bail_out("%s", sqlite3_errmsg(db));
	ok(stage_open(&(struct stage *){ NULL }, db, &one), "so is a second stage");
	stage_close(g);
	stage_close(NULL);
	sqlite3_close(db);
}

static void test_failed_insert(void)
{
	sqlite3 *db = open_with("CREATE TABLE t(a INTEGER)");
	const struct row v = { .a = 1 };
	struct stage *g;

	if (stage_open(&g, db, &one))
		bail_out("%s", sqlite3_errmsg(db));
	stage_put(g, &v);
	sqlite3_exec(db, "PRAGMA query_only = ON", NULL, NULL, NULL);
	is_int(stage_flush(g), SQLITE_READONLY, "a table that cannot be written is an error");
	stage_close(g);
	sqlite3_close(db);
}

/* ---- the switch ---- */

static struct store_iteration some_iteration(struct rng *r, int64_t iter_no)
{
	static const char *const source[] = { NULL, "timed", "measured" };
	struct store_iteration it = { .n_entry = rng_below(r, 300) };
	const struct table *t = &store_tables[TABLE_iteration];

	for (int i = 0; i < t->n_col; i++)
		if (t->col[i].type == COLUMN_INTEGER)
			*(int64_t *)((char *)&it.row + t->col[i].off) = some_int(r);
	it.row.iter_no = iter_no;
	it.row.stop = rng_below(r, 2) ? "budget" : NULL;
	it.row.cost_source = source[rng_below(r, 3)];
	return it;
}

static void write_iterations(const char *path, bool stage)
{
	struct store_run run = sample_record(&(struct sample_run){ .options = "{}" });
	struct rng r = { 11 };
	struct ar_err err = { 0 };
	struct writer *w = NULL;
	sqlite3 *db;
	int64_t id;
	enum ar_status st = store_file_open(&db, path, &err);

	if (!st)
		st = writer_open(&w, db, path, stage, &err);
	if (!st)
		st = writer_run_begin(w, &run, &id, &err);
	for (int i = 0; i < ROWS && !st; i++) {
		struct store_iteration it = some_iteration(&r, i);

		st = writer_iteration(w, &it, &err);
	}
	if (!st)
		st = writer_run_end(w, "done", NULL, NULL, &err);
	if (st || writer_close(w, &err))
		bail_out("%s", err.msg);
}

static void test_both_ways(void)
{
	char dir[] = "/tmp/t-stage-XXXXXX";
	sqlite3 *db;

	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a temporary folder");
	write_iterations("a.db", true);
	write_iterations("b.db", false);
	if (sqlite3_open("a.db", &db) || sqlite3_exec(db, "ATTACH 'b.db' AS b", NULL, NULL, NULL))
		bail_out("%s", sqlite3_errmsg(db));
	is_int(ask(db, "SELECT count(*) FROM (SELECT rowid, * FROM main.iteration "
		       "INTERSECT SELECT rowid, * FROM b.iteration)"),
	       ROWS, "iterations are the same by the stage and by INSERT");
	is_int(ask(db, "SELECT count(*) FROM b.iteration"), ROWS, "... and no more");
	sqlite3_close(db);
	unlink("a.db");
	unlink("b.db");
	rmdir(dir);
}

int main(void)
{
	test_rows("CREATE TABLE t(a INTEGER NOT NULL, b INTEGER, c INTEGER, d REAL, e TEXT) STRICT",
		  "copied");
	test_rows("CREATE TABLE t(a INTEGER NOT NULL, b INTEGER, c INTEGER, d REAL, e TEXT) STRICT;"
		  "CREATE INDEX i ON t(b)",
		  "made anew for an index");
	test_errors();
	test_failed_insert();
	test_both_ways();
	return done_testing();
}
