/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/query.h"

#include <math.h>
#include <string.h>

#include "profiler/store/store.h"
#include "tests/tap.h"

int64_t ask(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *q = NULL;
	int64_t x;

	if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) || sqlite3_step(q) != SQLITE_ROW)
		bail_out("%s: %s", sql, sqlite3_errmsg(db));
	x = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	return x;
}

void change(const char *path, const char *sql)
{
	sqlite3 *db;

	if (sqlite3_open(path, &db) || sqlite3_exec(db, sql, NULL, NULL, NULL))
		bail_out("%s: %s", path, sqlite3_errmsg(db));
	sqlite3_close(db);
}

double value(const char *path, const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *q = NULL;
	double x = NAN;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) ||
	    sqlite3_prepare_v2(db, sql, -1, &q, NULL) || sqlite3_step(q) != SQLITE_ROW)
		diag("%s: %s", sql, sqlite3_errmsg(db));
	else if (sqlite3_column_type(q, 0) != SQLITE_NULL)
		x = sqlite3_column_double(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return x;
}

void is_value(const char *path, const char *sql, double want, const char *what)
{
	double got = value(path, sql);

	if (!ok(fabs(got - want) <= 1e-9 * fabs(want), "%s", what))
		diag("%s: got %.17g, want %.17g", sql, got, want);
}

int count_views(void)
{
	int n = 0;

	for (const char *s = store_views; (s = strstr(s, "TEMP VIEW ")); s++)
		n++;
	return n;
}
