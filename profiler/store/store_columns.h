/* SPDX-License-Identifier: Apache-2.0 */
/* The tables of the database as C structs and SQL statements, made from columns.def.  A struct
 * row_TABLE holds the values of one INSERT.  In columns that are OR_NULL, an integer below 0, NaN
 * and a NULL pointer are stored as NULL. */
#ifndef AR_STORE_COLUMNS_H
#define AR_STORE_COLUMNS_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/methods/selection_count.h"

/* ---- rows ---- */

#define MEMBER_INTEGER int64_t
#define MEMBER_REAL double
#define MEMBER_TEXT const char *

#define TABLE(table, doc) struct row_##table {
#define COL(table, name, type, null, doc) MEMBER_##type name;
#define LATER(table, name, type, rule, doc)
#define AUTO(table, name, type, rule, doc)
#define END(table, rules, options) \
	} \
	;
#include "profiler/store/columns.def"

/* Columns of a run's row that are set when the run ends. */
struct run_end {
#define TABLE(table, doc)
#define COL(table, name, type, null, doc)
#define LATER(table, name, type, rule, doc) MEMBER_##type name;
#define AUTO(table, name, type, rule, doc)
#define END(table, rules, options)
#include "profiler/store/columns.def"
};

/* ---- tables ---- */

enum table_id {
#define TABLE(table, doc) TABLE_##table,
#define COL(table, name, type, null, doc)
#define LATER(table, name, type, rule, doc)
#define AUTO(table, name, type, rule, doc)
#define END(table, rules, options)
#include "profiler/store/columns.def"
	TABLE_COUNT
};

enum column_type { COLUMN_INTEGER, COLUMN_REAL, COLUMN_TEXT, COLUMN_ANY };
enum column_set { SET_BY_INSERT, SET_AT_END, SET_BY_SQL };
enum column_null { NOT_NULL, OR_NULL };

struct column {
	const char *name;
	enum column_type type;
	enum column_set set;
	enum column_null null; /* for columns that are bound */
	const char *rule;      /* SQL after the type; NULL: made from null */
	size_t off;	       /* offset of the member in struct row_TABLE or struct run_end */
};

struct table {
	const char *name;
	const struct column *col;
	int n_col;
	size_t row_size; /* of struct row_TABLE */
	const char *rules, *options;
};

extern const struct table store_tables[TABLE_COUNT];

/* The table that column c of t refers to by a row number; TABLE_COUNT: none.  The column that
 * numbers the rows of t itself is no reference. */
enum table_id column_refers(enum table_id t, const struct column *c);

/* Whether SQLite computes the column, so that no statement may set it. */
bool column_generated(const struct column *c);

/* SQL statements, to be freed by sqlite3_free().  NULL: no memory.  tail: SQL after the values. */
char *table_create_sql(const struct table *t);
char *table_insert_sql(const struct table *t, const char *tail);
/* An UPDATE that sets the columns of struct run_end.  Its last parameter is the run_id. */
char *table_end_sql(const struct table *t);

/* Bind the columns of set, in order from parameter 1.  row: a struct row_TABLE or struct run_end,
 * whose texts must live until the statement is reset.  Returns an SQLite result code. */
int table_bind(const struct table *t, enum column_set set, sqlite3_stmt *q, const void *row);

#endif
