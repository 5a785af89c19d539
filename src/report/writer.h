/* Exporters: how the rows of a query are written.  One file export_NAME.c each, one row in
 * exporters.c. */
#ifndef AR_EXPORTER_H
#define AR_EXPORTER_H

#include <sqlite3.h>
#include <stdbool.h>
#include <stdio.h>

#include "base/status.h"

/* A document under way: one or more results. */
struct export {
	FILE *f;
	const char *name;	/* of this result: "latency"; NULL in all or in none */
	const char *title;	/* for people, or NULL */
	bool text;		/* lines to read: people need no header over them */
	size_t n_results;	/* before this one */
	size_t n_rows;		/* of this result, so far */
	bool failed;		/* this result broke off */
	void *state;		/* the exporter's, from begin to end of a result */
};

struct exporter {
	const char *name, *title;

	/* Called in this order for each result; q is at a row in row() only.  end() releases
	 * state, also after a failure.  All but row may be NULL. */
	enum ar_status (*begin)(struct export *x, sqlite3_stmt *q, struct ar_err *err);
	enum ar_status (*row)(struct export *x, sqlite3_stmt *q, struct ar_err *err);
	void (*end)(struct export *x, sqlite3_stmt *q);
	void (*finish)(struct export *x);	/* once, after the last result */
};

extern const struct exporter *const exporters[];	/* ends with NULL */
extern const char *const exporter_names[];		/* the same, for an option's choice */

/* Run q to its end and write what it returns.  AR_USAGE: the query fails; AR_DATA: the
 * database is damaged; AR_INTERRUPTED. */
enum ar_status export_query(const struct exporter *e, struct export *x, sqlite3_stmt *q,
			    struct ar_err *err);

/* The same for a statement that could not be prepared. */
enum ar_status export_fail(sqlite3 *db, struct ar_err *err);
void export_finish(const struct exporter *e, struct export *x);

/* A number that reads back as the same double, as short as that allows.  Returns buf. */
char *export_real(char *buf, size_t n, double r);

#endif
