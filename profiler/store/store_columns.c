/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_columns.h"

#include <string.h>

#define TABLE(table, doc) static const struct column table##_columns[] = {
#define COL(table, name, type, null, doc) \
	{ #name, COLUMN_##type, SET_BY_INSERT, null, NULL, offsetof(struct row_##table, name) },
#define LATER(table, name, type, rule, doc) \
	{ #name, COLUMN_##type, SET_AT_END, OR_NULL, rule, offsetof(struct run_end, name) },
#define AUTO(table, name, type, rule, doc) { #name, COLUMN_##type, SET_BY_SQL, OR_NULL, rule, 0 },
#define END(table, rules, options) \
	} \
	;
#include "profiler/store/columns.def"

const struct table store_tables[TABLE_COUNT] = {
#define TABLE(table, doc)
#define COL(table, name, type, null, doc)
#define LATER(table, name, type, rule, doc)
#define AUTO(table, name, type, rule, doc)
#define END(table, rules, options) \
	[TABLE_##table] = { #table, \
			    table##_columns, \
			    sizeof table##_columns / sizeof *table##_columns, \
			    sizeof(struct row_##table), \
			    rules, \
			    options },
#include "profiler/store/columns.def"
};

static const struct {
	enum table_id table, to;
	const char *column;
} references[] = {
#define TABLE(table, doc)
#define COL(table, name, type, null, doc)
#define LATER(table, name, type, rule, doc)
#define AUTO(table, name, type, rule, doc)
#define END(table, rules, options)
#define REFERS(table, name, to) { TABLE_##table, TABLE_##to, #name },
#include "profiler/store/columns.def"
};

enum table_id column_refers(enum table_id t, const struct column *c)
{
	for (size_t i = 0; i < sizeof references / sizeof *references; i++)
		if (references[i].table == t && !strcmp(references[i].column, c->name))
			return references[i].to;
	return t != TABLE_run && !strcmp(c->name, "run_id") ? TABLE_run : TABLE_COUNT;
}

bool column_generated(const struct column *c)
{
	return c->rule && !strncmp(c->rule, "AS ", 3);
}

char *table_create_sql(const struct table *t)
{
	static const char *const type[] = { "INTEGER", "REAL", "TEXT", "ANY" };
	static const char *const null[] = { " NOT NULL", "" };
	sqlite3_str *s = sqlite3_str_new(NULL);

	sqlite3_str_appendf(s, "CREATE TABLE %s(", t->name);
	for (int i = 0; i < t->n_col; i++) {
		const struct column *c = &t->col[i];

		sqlite3_str_appendf(s, "%s\n  %s %s", i ? "," : "", c->name, type[c->type]);
		if (c->rule)
			sqlite3_str_appendf(s, " %s", c->rule);
		else
			sqlite3_str_appendall(s, null[c->null]);
	}
	sqlite3_str_appendf(s, "%s%s) STRICT%s", *t->rules ? ",\n  " : "", t->rules, t->options);
	return sqlite3_str_finish(s);
}

/* Append format, with the column's name, for each column of set. */
static void append_columns(sqlite3_str *s, const struct table *t, enum column_set set,
			   const char *format)
{
	const char *comma = "";

	for (int i = 0; i < t->n_col; i++) {
		if (t->col[i].set != set)
			continue;
		sqlite3_str_appendall(s, comma);
		sqlite3_str_appendf(s, format, t->col[i].name);
		comma = ", ";
	}
}

char *table_insert_sql(const struct table *t, const char *tail)
{
	sqlite3_str *s = sqlite3_str_new(NULL);

	sqlite3_str_appendf(s, "INSERT INTO %s(", t->name);
	append_columns(s, t, SET_BY_INSERT, "%s");
	sqlite3_str_appendall(s, ") VALUES(");
	append_columns(s, t, SET_BY_INSERT, "?");
	sqlite3_str_appendf(s, ") %s", tail);
	return sqlite3_str_finish(s);
}

char *table_end_sql(const struct table *t)
{
	sqlite3_str *s = sqlite3_str_new(NULL);

	sqlite3_str_appendf(s, "UPDATE %s SET ", t->name);
	append_columns(s, t, SET_AT_END, "%s = ?");
	sqlite3_str_appendall(s, " WHERE run_id = ?");
	return sqlite3_str_finish(s);
}

static int bind_column(sqlite3_stmt *q, int i, const struct column *c, const char *at)
{
	int64_t v;

	switch (c->type) {
	case COLUMN_INTEGER:
		v = *(const int64_t *)at;
		if (v >= 0 || c->null == NOT_NULL)
			return sqlite3_bind_int64(q, i, v);
		break;
	case COLUMN_REAL: return sqlite3_bind_double(q, i, *(const double *)at);
	case COLUMN_TEXT:
		return sqlite3_bind_text(q, i, *(const char *const *)at, -1, SQLITE_STATIC);
	case COLUMN_ANY: break;
	}
	return sqlite3_bind_null(q, i);
}

int table_bind(const struct table *t, enum column_set set, sqlite3_stmt *q, const void *row)
{
	int rc = SQLITE_OK, n = 0;

	for (int i = 0; i < t->n_col && !rc; i++) {
		const struct column *c = &t->col[i];

		if (c->set == set)
			rc = bind_column(q, ++n, c, (const char *)row + c->off);
	}
	return rc;
}
