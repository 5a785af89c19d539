/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/export/script.h"

#include "src/report/report.h"

static enum ar_status run_one(sqlite3_stmt *q, const struct script_values *v, script_fn *fn,
			      void *self, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int rc = SQLITE_DONE;

	if (report_bind(q, ":run", v->run) || report_bind(q, ":pid", v->pid))
		return report_fail(sqlite3_db_handle(q), err);
	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW)
		st = fn(self, q, true, err);
	if (!st && rc != SQLITE_DONE)
		return report_fail(sqlite3_db_handle(q), err);
	return st || !sqlite3_column_count(q) ? st : fn(self, q, false, err);
}

enum ar_status script_run(sqlite3 *db, const char *sql, const struct script_values *v,
			  script_fn *fn, void *self, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	sqlite3_stmt *q = NULL;

	while (!st && *sql) {
		if (sqlite3_prepare_v2(db, sql, -1, &q, &sql))
			return report_fail(db, err);
		if (q) /* NULL: nothing but blanks and comments */
			st = run_one(q, v, fn, self, err);
		sqlite3_finalize(q);
	}
	return st;
}
