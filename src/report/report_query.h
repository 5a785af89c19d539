/* SPDX-License-Identifier: Apache-2.0 */
/* The statements of a report, which its writers share. */
#ifndef AR_REPORT_QUERY_H
#define AR_REPORT_QUERY_H

#include "src/report/report.h"

/* Check r->run, make the table of limits, and set *baseline: the dense run of r->run, 0: none. */
enum ar_status report_begin(const struct report *r, int64_t *baseline, struct ar_err *err);

/* Prepare one of the report's statements, with its :run and :dialect.  Finalize *q also after a
 * failure. */
enum ar_status report_prepare(sqlite3_stmt **q, const struct report *r, const char *sql,
			      struct ar_err *err);
/* Write a section to d, or run it if it shows nothing. */
enum ar_status report_section(const struct report *r, const struct section *s, int64_t baseline,
			      struct document *d, struct ar_err *err);

#endif
