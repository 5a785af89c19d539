/* SPDX-License-Identifier: Apache-2.0 */
/* Each table of columns.def: the columns that CREATE TABLE makes, and where INSERT puts the members
 * of a row. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "profiler/store/store_columns.h"
#include "tests/tap.h"

enum { MOST_COLUMNS = 64 };

/* Room for any row; its members have 8 bytes each. */
struct any_row {
	_Alignas(8) char at[8 * MOST_COLUMNS];
	char text[MOST_COLUMNS][16];
};

static sqlite3 *db;

static sqlite3_stmt *prepare(char *sql)
{
	sqlite3_stmt *q = NULL;

	if (!sql || sqlite3_prepare_v2(db, sql, -1, &q, NULL))
		bail_out("%s: %s", sql, sqlite3_errmsg(db));
	sqlite3_free(sql);
	return q;
}

static bool run(sqlite3_stmt *q)
{
	bool done = sqlite3_step(q) == SQLITE_DONE;

	if (!done)
		diag("%s", sqlite3_errmsg(db));
	sqlite3_finalize(q);
	return done;
}

/* A value of its own for each column that is set so. */
static void fill(const struct table *t, enum column_set set, struct any_row *row)
{
	for (int i = 0; i < t->n_col; i++) {
		char *at = row->at + t->col[i].off;

		if (t->col[i].set != set)
			continue;
		snprintf(row->text[i], sizeof row->text[i], "t%d", i);
		if (t->col[i].type == COLUMN_INTEGER)
			*(int64_t *)at = 1000 + i;
		else if (t->col[i].type == COLUMN_REAL)
			*(double *)at = i + 0.5;
		else
			*(const char **)at = row->text[i];
	}
}

static bool holds(sqlite3_stmt *q, int i, enum column_type type)
{
	char text[16];

	snprintf(text, sizeof text, "t%d", i);
	if (type == COLUMN_INTEGER)
		return sqlite3_column_int64(q, i) == 1000 + i;
	if (type == COLUMN_REAL)
		return sqlite3_column_double(q, i) == i + 0.5;
	return !strcmp((const char *)sqlite3_column_text(q, i), text);
}

static void is_row(const struct table *t, enum column_set set, const char *what)
{
	sqlite3_stmt *q = prepare(sqlite3_mprintf("SELECT * FROM %s", t->name));
	bool fine = sqlite3_step(q) == SQLITE_ROW && sqlite3_column_count(q) == t->n_col;

	for (int i = 0; i < t->n_col && fine; i++)
		fine = !strcmp(sqlite3_column_name(q, i), t->col[i].name) &&
		       (t->col[i].set != set || holds(q, i, t->col[i].type));
	ok(fine, "%s: %s", t->name, what);
	sqlite3_finalize(q);
}

static void test_values(const struct table *t)
{
	struct any_row row;
	sqlite3_stmt *q;

	ok(run(prepare(table_create_sql(t))), "%s: is created", t->name);
	fill(t, SET_BY_INSERT, &row);
	q = prepare(table_insert_sql(t, ""));
	ok(!table_bind(t, SET_BY_INSERT, q, &row) && run(q), "%s: takes a row", t->name);
	is_row(t, SET_BY_INSERT, "each member of the row is in its column");
}

static void empty(const struct table *t, struct any_row *row)
{
	for (int i = 0; i < t->n_col; i++) {
		char *at = row->at + t->col[i].off;

		if (t->col[i].null == NOT_NULL || t->col[i].set != SET_BY_INSERT)
			continue;
		if (t->col[i].type == COLUMN_INTEGER)
			*(int64_t *)at = -1;
		else if (t->col[i].type == COLUMN_REAL)
			*(double *)at = NAN;
		else
			*(const char **)at = NULL;
	}
}

static void test_nulls(const struct table *t)
{
	struct any_row row;
	sqlite3_stmt *q;
	bool fine;

	fill(t, SET_BY_INSERT, &row);
	empty(t, &row);
	run(prepare(sqlite3_mprintf("DELETE FROM %s", t->name)));
	q = prepare(table_insert_sql(t, ""));
	fine = !table_bind(t, SET_BY_INSERT, q, &row) && run(q);
	q = prepare(sqlite3_mprintf("SELECT * FROM %s", t->name));
	fine = fine && sqlite3_step(q) == SQLITE_ROW;
	for (int i = 0; i < t->n_col && fine; i++)
		fine = t->col[i].set != SET_BY_INSERT ||
		       (sqlite3_column_type(q, i) == SQLITE_NULL) == (t->col[i].null == OR_NULL);
	ok(fine, "%s: what a row lacks is NULL, where that is allowed", t->name);
	sqlite3_finalize(q);
}

static void test_negative(void)
{
	const struct row_token_gap gap = { .run_id = 1, .itl_ns = -1, .n = 1 };
	const struct table *t = &store_tables[TABLE_token_gap];
	sqlite3_stmt *q = prepare(table_insert_sql(t, ""));

	ok(!table_bind(t, SET_BY_INSERT, q, &gap) && run(q), "a negative integer is one");
}

static void test_end(void)
{
	const struct table *t = &store_tables[TABLE_run];
	struct any_row row;
	sqlite3_stmt *q = prepare(table_end_sql(t));

	fill(t, SET_AT_END, &row);
	ok(!table_bind(t, SET_AT_END, q, &row) &&
		   !sqlite3_bind_int64(q, sqlite3_bind_parameter_count(q), 1) && run(q),
	   "the end of a run is written");
	is_row(t, SET_AT_END, "each member of the end is in its column");
}

/* Rows that are copied between files must know which table each of their numbers refers to. */
static void test_references(void)
{
	int unknown = 0, n = 0;

	for (int t = 0; t < TABLE_COUNT; t++)
		for (int i = 0; i < store_tables[t].n_col; i++) {
			const struct column *c = &store_tables[t].col[i];
			const size_t len = strlen(c->name);
			bool is_id = len > 3 && !strcmp(c->name + len - 3, "_id");
			enum table_id to = column_refers(t, c);

			n += to != TABLE_COUNT;
			if (!is_id || !i || to != TABLE_COUNT || !strcmp(c->name, "phase_id") ||
			    !strcmp(c->name, "boot_id"))
				continue;
			diag("%s.%s", store_tables[t].name, c->name);
			unknown++;
		}
	ok(!unknown && n > 15, "each of %d columns that number rows says of which table", n);
	for (int i = 0; i < store_tables[TABLE_request_outcome].n_col; i++) {
		const struct column *c = &store_tables[TABLE_request_outcome].col[i];

		if (!strcmp(c->name, "ttft_ns") || !strcmp(c->name, "req_no"))
			is_int(column_generated(c), *c->name == 't', "%s is %s", c->name,
			       *c->name == 't' ? "computed" : "set");
	}
}

int main(void)
{
	plan(0);
	if (sqlite3_open(":memory:", &db) ||
	    sqlite3_exec(db, "PRAGMA ignore_check_constraints = ON", NULL, NULL, NULL))
		bail_out("cannot make a database");
	for (int i = 0; i < TABLE_COUNT; i++) {
		test_values(&store_tables[i]);
		test_nulls(&store_tables[i]);
	}
	test_negative();
	test_end();
	test_references();
	sqlite3_close(db);
	return done_testing();
}
