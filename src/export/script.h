/* SPDX-License-Identifier: Apache-2.0 */
/* Scripts: the SQL statements of an exporter, whose rows it writes one by one.  So memory does not
 * grow with the run: SQLite keeps TEMP tables and sorted rows in temporary files. */
#ifndef AR_EXPORT_SCRIPT_H
#define AR_EXPORT_SCRIPT_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

/* Values of :run and :pid; 0: NULL. */
struct script_values {
	int64_t run, pid;
};

/* q is at a row, or has just ended: then row is false. */
typedef enum ar_status script_fn(void *self, sqlite3_stmt *q, bool row, struct ar_err *err);

/* Run the statements one after another, and call fn for each row that one returns.  Statuses: as
 * from report_fail(), and from fn. */
enum ar_status script_run(sqlite3 *db, const char *sql, const struct script_values *v,
			  script_fn *fn, void *self, struct ar_err *err);

#endif
