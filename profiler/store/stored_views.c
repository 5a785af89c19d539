/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/stored_views.h"

#include <string.h>

#include "profiler/store/store.h"

/* Called with each view of the program, in order, and its SQL. */
typedef int view_fn(sqlite3 *db, const char *name, const char *sql);

size_t stored_views_length(const char *sql)
{
	const char *end = strstr(sql, ";\n");
	const size_t n = end ? (size_t)(end - sql) : strlen(sql);

	return !end && n && sql[n - 1] == ';' ? n - 1 : n;
}

/* SQLite stores the SQL of a view as views.sql has it, without TEMP and without the semicolon. */
static int each_view(sqlite3 *db, view_fn *call)
{
	static const char temp[] = "CREATE TEMP VIEW ";
	int rc = SQLITE_OK;

	for (const char *s = strstr(store_views, temp); s && !rc; s = strstr(s, temp)) {
		const size_t n = strcspn(s += strlen(temp), " ");
		char *name = sqlite3_mprintf("%.*s", (int)n, s);
		char *sql = sqlite3_mprintf("CREATE VIEW %.*s", (int)stored_views_length(s), s);

		rc = name && sql ? call(db, name, sql) : SQLITE_NOMEM;
		sqlite3_free(name);
		sqlite3_free(sql);
	}
	return rc;
}

/* What the file calls by the name of a view. */
enum holds { HOLDS_NOTHING, HOLDS_VIEW, HOLDS_OTHER_VIEW, HOLDS_TABLE };

static int look(sqlite3 *db, const char *name, const char *sql, enum holds *what)
{
	sqlite3_stmt *q = NULL;
	int rc = sqlite3_prepare_v2(db,
				    "SELECT CASE WHEN type <> 'view' THEN 3 WHEN sql = ?2 THEN 1 "
				    "ELSE 2 END FROM main.sqlite_schema "
				    "WHERE name = ?1 COLLATE NOCASE",
				    -1, &q, NULL);

	*what = HOLDS_NOTHING;
	if (!rc)
		rc = sqlite3_bind_text(q, 1, name, -1, SQLITE_STATIC);
	if (!rc)
		rc = sqlite3_bind_text(q, 2, sql, -1, SQLITE_STATIC);
	if (!rc)
		rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		*what = (enum holds)sqlite3_column_int(q, 0);
	sqlite3_finalize(q);
	return rc == SQLITE_ROW || rc == SQLITE_DONE ? SQLITE_OK : rc;
}

static int drop(sqlite3 *db, const char *name)
{
	char *sql = sqlite3_mprintf("DROP VIEW main.\"%w\"", name);
	int rc = sql ? sqlite3_exec(db, sql, NULL, NULL, NULL) : SQLITE_NOMEM;

	sqlite3_free(sql);
	return rc;
}

static int drop_view(sqlite3 *db, const char *name, const char *sql)
{
	enum holds has;
	int rc = look(db, name, sql, &has);

	return rc || has == HOLDS_NOTHING || has == HOLDS_TABLE ? rc : drop(db, name);
}

/* A table of the user's keeps its name. */
static int make_view(sqlite3 *db, const char *name, const char *sql)
{
	enum holds has;
	int rc = look(db, name, sql, &has);

	if (!rc && has == HOLDS_OTHER_VIEW)
		rc = drop(db, name);
	return rc || has == HOLDS_VIEW || has == HOLDS_TABLE ?
		       rc :
		       sqlite3_exec(db, sql, NULL, NULL, NULL);
}

int stored_views_make(sqlite3 *db)
{
	return each_view(db, make_view);
}

int stored_views_drop(sqlite3 *db)
{
	return each_view(db, drop_view);
}
