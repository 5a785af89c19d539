#include "config.h"

#include <string.h>

#include "base/rng.h"
#include "profiler/store/store_stage.h"
#include "tests/alloc_fault.h"
#include "tests/query.h"
#include "tests/tap.h"

enum { COLS = 5, ROWS = 5000 };

static sqlite3 *open_with(const char *sql)
{
	sqlite3 *db = NULL;

	if (sqlite3_open(":memory:", &db) || sqlite3_exec(db, sql, NULL, NULL, NULL))
		bail_out("cannot make a database");
	return db;
}

/* Integers of all sizes, most of them next to where a size ends. */
static int64_t some_int(struct rng *r)
{
	uint64_t x = (uint64_t)1 << rng_below(r, 64);

	x += rng_below(r, 3) - 1;
	return (int64_t)(rng_below(r, 2) ? x : ~x);
}

static void fill(struct rng *r, struct val *v)
{
	static const char *const text[] = { "", "budget", "a text of fifty-eight bytes, for its "
					    "type to take two bytes" };

	v[0] = (struct val){ .type = VAL_INT, .i = some_int(r) };
	v[1] = (struct val){ .type = VAL_INT, .i = some_int(r) };
	v[2] = (struct val){ .type = rng_below(r, 2) ? VAL_NULL : VAL_INT, .i = some_int(r) };
	v[3] = (struct val){ .type = VAL_REAL, .r = rng_unit(r) - 0.5 };
	v[4] = (struct val){ .type = VAL_TEXT, .t = text[rng_below(r, 3)] };
}

static bool same(sqlite3_stmt *q, const struct val *v)
{
	return sqlite3_column_int64(q, 0) == v[0].i && sqlite3_column_int64(q, 1) == v[1].i &&
		(v[2].type == VAL_NULL ? sqlite3_column_type(q, 2) == SQLITE_NULL
				       : sqlite3_column_int64(q, 2) == v[2].i) &&
		sqlite3_column_double(q, 3) == v[3].r &&
		!strcmp((const char *)sqlite3_column_text(q, 4), v[4].t);
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
	struct val v[COLS];
	sqlite3_stmt *q = NULL;
	int full = 0;
	bool fine = true;

	if (stage_open(&g, db, "t"))
		bail_out("%s", sqlite3_errmsg(db));
	sqlite3_exec(db, "BEGIN IMMEDIATE", NULL, NULL, NULL);
	for (int i = 0; i < ROWS; i++) {
		if (stage_full(g)) {
			fine &= flush(db, g);
			full++;
		}
		fill(&r, v);
		stage_put(g, v, COLS);
	}
	ok(flush(db, g) && flush(db, g) && fine && full > 1, "%s: pages go into the table", what);
	ok(ask(db, "SELECT count(*) FROM t") == ROWS, "%s: as many rows as were put", what);
	r = (struct rng){ 7 };
	sqlite3_prepare_v2(db, "SELECT * FROM t ORDER BY rowid", -1, &q, NULL);
	fine = true;
	while (sqlite3_step(q) == SQLITE_ROW) {
		fill(&r, v);
		fine &= same(q, v);
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

	is_int(stage_open(&g, db, "u"), SQLITE_CORRUPT, "a table that is not there is an error");
	ok(!g, "... and leaves no stage");
	fault_arm(0);
	is_int(stage_open(&g, db, "t"), SQLITE_NOMEM, "a lack of memory is an error");
	fault_disarm();
	if (stage_open(&g, db, "t"))
		bail_out("%s", sqlite3_errmsg(db));
	ok(stage_open(&(struct stage *){ NULL }, db, "t"), "a second stage is an error");
	stage_close(g);
	stage_close(NULL);
	sqlite3_close(db);
}

static void test_failed_insert(void)
{
	sqlite3 *db = open_with("CREATE TABLE t(a INTEGER)");
	struct val v = { .type = VAL_INT, .i = 1 };
	struct stage *g;

	if (stage_open(&g, db, "t"))
		bail_out("%s", sqlite3_errmsg(db));
	stage_put(g, &v, 1);
	sqlite3_exec(db, "PRAGMA query_only = ON", NULL, NULL, NULL);
	is_int(stage_flush(g), SQLITE_READONLY, "a table that cannot be written is an error");
	stage_close(g);
	sqlite3_close(db);
}

int main(void)
{
	test_rows("CREATE TABLE t(a INTEGER NOT NULL, b INTEGER, c INTEGER, d REAL, e TEXT) STRICT",
		  "copied");
	test_rows("CREATE TABLE t(a INTEGER NOT NULL, b INTEGER, c INTEGER, d REAL, e TEXT) STRICT;"
		  "CREATE INDEX i ON t(b)", "made anew for an index");
	test_errors();
	test_failed_insert();
	return done_testing();
}
