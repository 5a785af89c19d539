/* SPDX-License-Identifier: Apache-2.0 */
/* The report of a database: sections, each the rows of a query.  A section is a file
 * sections/NAME.sql and one line in section_list.h. */
#ifndef AR_REPORT_H
#define AR_REPORT_H

#include <sqlite3.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"
#include "src/report/writer.h"

struct section {
	const char *name, *title, *sql; /* as section_list.h says */
	const char *dialect;		/* the report that it belongs to, NULL: all */
	bool prose;			/* long lines, see struct report_writer */
};
extern const struct section sections[]; /* ends with name NULL */

/* Names of the reports, ended by NULL: "attnreplay", then the DIALECTs of section_list.h. */
extern const char *const report_dialects[];

struct report {
	sqlite3 *db;	     /* of store_open_runs(); TEMP tables are made in it */
	const char *path;    /* of db, for messages */
	int64_t run;	     /* 0: all */
	int64_t baseline;    /* run to compare with; 0: the dense run of each run */
	const char *dialect; /* one of report_dialects */
	const char *slo;     /* limits for every run, NULL: the limits given to each run */
	const char *table;   /* the section to write, NULL: all of the dialect */
};

/* The section of a table.  AR_USAGE: there is none of this name; the message has all names. */
enum ar_status report_find_table(const struct section **out, const char *name, struct ar_err *err);

/* Write the report to d, whose writer and file the caller set.  AR_USAGE: there is no such run, the
 * baseline did not end or had other requests, or slo is wrong; AR_DATA, AR_DB: db is damaged or of
 * another schema; AR_INTERRUPTED. */
enum ar_status report_write(const struct report *r, struct document *d, struct ar_err *err);

/* Write the report to f as one HTML page, with the charts of chart_list.h.  The same errors,
 * without the name of db. */
enum ar_status report_html(const struct report *r, FILE *f, struct ar_err *err);

/* Runs that a page shows one after another: REPORT_EACH_MIN in any case.  More follow, up to
 * REPORT_EACH_MAX, until their charts have REPORT_EACH_MARKS marks. */
enum { REPORT_EACH_MIN = 4, REPORT_EACH_MAX = 8, REPORT_EACH_MARKS = 800 };
/* For statements of the program's own over db: an SQL error means that db lacks a table or column,
 * AR_DB.  Other statuses: as from writer_query(). */
enum ar_status report_fail(sqlite3 *db, struct ar_err *err);
/* Bind v if the statement has the parameter; 0 binds NULL.  Returns an SQLite result code. */
int report_bind(sqlite3_stmt *q, const char *name, int64_t v);
/* AR_USAGE: there is no run r->run. */
enum ar_status report_no_run(const struct report *r, int64_t run, struct ar_err *err);

#endif
