/* SPDX-License-Identifier: Apache-2.0 */
/* Writers: how the rows of a query are written.  A writer is a file write_NAME.c and one line in
 * writer_list.h. */
#ifndef AR_WRITER_H
#define AR_WRITER_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* A document being written: one or more results. */
struct document {
	const struct report_writer *writer;
	FILE *f;
	const char *name;    /* of this result, such as "latency"; all results of a document have
				 * a name, or none */
	const char *title;   /* heading for people, or NULL; a titled result of one column is
				 * lines of text */
	bool fold_intervals; /* tables show half the distance of X_lo and X_hi behind X, as ± */
	size_t n_results;    /* finished so far */
	size_t n_rows;	     /* of this result, so far */
	bool failed;	     /* this result broke off */
	void *state;	     /* the writer's own, from begin() to end() */
};

struct report_writer {
	const char *name; /* as --format has it */
	bool prose;	  /* its reader breaks lines, so that results may be long sentences */

	/* Called in this order for each result; q is at a row in row() only.  end() releases
	 * state, also after a failure.  All but row may be NULL. */
	enum ar_status (*begin)(struct document *d, sqlite3_stmt *q, struct ar_err *err);
	enum ar_status (*row)(struct document *d, sqlite3_stmt *q, struct ar_err *err);
	void (*end)(struct document *d, sqlite3_stmt *q);
	void (*finish)(struct document *d); /* once, after the last result */
};

extern const struct report_writer *const writers[]; /* ends with NULL */
extern const char *const writer_names[];	    /* the same, for an option's choice */

/* The writer of this name, one of writers. */
const struct report_writer *writer_of(const char *name);

/* Run q to its end and write its result.  AR_USAGE: the query fails; AR_DATA: the
 * database is damaged; AR_INTERRUPTED. */
enum ar_status writer_query(struct document *d, sqlite3_stmt *q, struct ar_err *err);

/* The error of a statement that could not be prepared.  Statuses: as from writer_query(). */
enum ar_status writer_fail(sqlite3 *db, struct ar_err *err);
void writer_finish(struct document *d);

/* An interrupt ends the queries of db with AR_INTERRUPTED.  Values have at most 1 MiB, and patterns
 * 1000 bytes, because a function of SQLite cannot be interrupted. */
void writer_heed_interrupt(sqlite3 *db);

/* Format r with 15 digits, or 17 if it needs them to read back as the same double.  Returns buf. */
char *writer_real(char *buf, size_t n, double r);

#endif
