/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "tests/query.h"

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
