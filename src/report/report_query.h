/* SPDX-License-Identifier: Apache-2.0 */
/* What the writers of a report share: its statements. */
#ifndef AR_REPORT_QUERY_H
#define AR_REPORT_QUERY_H

#include "src/report/report.h"

/* Check r->run, make the table of limits, and set *baseline: the dense run of r->run, 0: none. */
enum ar_status report_begin(const struct report *r, int64_t *baseline, struct ar_err *err);

/* Prepare one of the report's statements, with its :run and :dialect.  Finalize *q also after a
 * failure. */
enum ar_status report_prepare(sqlite3_stmt **q, const struct report *r, const char *sql,
			      struct ar_err *err);
/* Bind v if the statement has the parameter; 0 binds NULL.  Returns an SQLite result code. */
int report_bind(sqlite3_stmt *q, const char *name, int64_t v);

/* The error of a statement.  The user wrote none of them.  So an SQL error means that db lacks a table
 * or column: AR_DB. */
enum ar_status report_fail(sqlite3 *db, struct ar_err *err);

/* Write a section to d, or run it if it shows nothing. */
enum ar_status report_section(const struct report *r, const struct section *s, int64_t baseline,
			      struct document *d, struct ar_err *err);

/* Put the database's name before the error of a damaged or lacking database.  Returns st. */
enum ar_status report_end(const struct report *r, enum ar_status st, struct ar_err *err);

#endif
