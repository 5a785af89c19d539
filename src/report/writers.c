/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/report/writer.h"

#include <stdlib.h>
#include <string.h>

#include "profiler/store/store.h"

#define WRITER(name) extern const struct report_writer write_##name;
#include "src/report/writer_list.h"
#undef WRITER

const struct report_writer *const writers[] = {
#define WRITER(name) &write_##name,
#include "src/report/writer_list.h"
#undef WRITER
	NULL
};

const char *const writer_names[] = {
#define WRITER(name) #name,
#include "src/report/writer_list.h"
#undef WRITER
	NULL
};

const struct report_writer *writer_of(const char *name)
{
	const struct report_writer *const *w = writers;

	while (strcmp((*w)->name, name))
		w++;
	return *w;
}

char *writer_real(char *buf, size_t n, double r)
{
	double back;

	snprintf(buf, n, "%.15g", r);
	back = strtod(buf, NULL);
	if (back < r || back > r)
		snprintf(buf, n, "%.17g", r);
	return buf;
}

enum ar_status writer_fail(sqlite3 *db, struct ar_err *err)
{
	switch (sqlite3_errcode(db)) {
	case SQLITE_TOOBIG:
	case SQLITE_ERROR: return ar_fail(err, AR_USAGE, "%s", sqlite3_errmsg(db));
	case SQLITE_INTERRUPT: return ar_fail(err, AR_INTERRUPTED, "interrupted");
	case SQLITE_NOMEM: return ar_nomem(err);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return ar_fail(err, AR_DATA, "%s; the file is damaged, go back to a copy",
			       sqlite3_errmsg(db));
	}
	return ar_fail(err, AR_DB, "%s", sqlite3_errmsg(db));
}

enum ar_status writer_query(struct document *d, sqlite3_stmt *q, struct ar_err *err)
{
	const struct report_writer *w = d->writer;
	enum ar_status st = AR_OK;
	int rc = SQLITE_DONE;

	d->n_rows = 0;
	d->state = NULL;
	if (w->begin)
		st = w->begin(d, q, err);
	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		st = w->row(d, q, err);
		d->n_rows++;
	}
	d->failed = st || rc != SQLITE_DONE;
	if (w->end)
		w->end(d, q);
	d->n_results++;
	if (st || rc == SQLITE_DONE)
		return st;
	return writer_fail(sqlite3_db_handle(q), err);
}

void writer_finish(struct document *d)
{
	if (d->writer->finish)
		d->writer->finish(d);
}

enum {
	/* A function runs between two polls.  These bounds and STORE_TEXT_MAX keep that below some
	 * seconds. */
	PATTERN_MAX = 1000,	 /* bytes of a pattern of LIKE or GLOB */
	POLL_INSTRUCTIONS = 100, /* of SQLite's machine */
};

static int poll_interrupt(void *unused)
{
	(void)unused;
	return ar_interrupted();
}

void writer_heed_interrupt(sqlite3 *db)
{
	sqlite3_limit(db, SQLITE_LIMIT_LENGTH, STORE_TEXT_MAX);
	sqlite3_limit(db, SQLITE_LIMIT_LIKE_PATTERN_LENGTH, PATTERN_MAX);
	sqlite3_progress_handler(db, POLL_INSTRUCTIONS, poll_interrupt, NULL);
}
