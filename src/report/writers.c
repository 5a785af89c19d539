#include "config.h"
#include "src/report/writer.h"

#include <stdlib.h>

#define EXPORTERS(X) X(table) X(csv) X(json)

#define X(name) extern const struct exporter export_##name;
EXPORTERS(X)
#undef X

const struct exporter *const exporters[] = {
#define X(name) &export_##name,
	EXPORTERS(X)
#undef X
	NULL
};

const char *const exporter_names[] = {
#define X(name) #name,
	EXPORTERS(X)
#undef X
	NULL
};

char *export_real(char *buf, size_t n, double r)
{
	double back;

	snprintf(buf, n, "%.15g", r);
	back = strtod(buf, NULL);
	if (back < r || back > r)
		snprintf(buf, n, "%.17g", r);
	return buf;
}

enum ar_status export_fail(sqlite3 *db, struct ar_err *err)
{
	switch (sqlite3_errcode(db)) {
	case SQLITE_ERROR:
		return ar_fail(err, AR_USAGE, "%s", sqlite3_errmsg(db));
	case SQLITE_INTERRUPT:
		return ar_fail(err, AR_INTERRUPTED, "interrupted");
	case SQLITE_NOMEM:
		return ar_nomem(err);
	case SQLITE_CORRUPT:
	case SQLITE_NOTADB:
		return ar_fail(err, AR_DATA, "%s; the file is damaged, go back to a copy",
			       sqlite3_errmsg(db));
	}
	return ar_fail(err, AR_DB, "%s", sqlite3_errmsg(db));
}

enum ar_status export_query(const struct exporter *e, struct export *x, sqlite3_stmt *q,
			    struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int rc = SQLITE_DONE;

	x->n_rows = 0;
	x->state = NULL;
	if (e->begin)
		st = e->begin(x, q, err);
	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		st = e->row(x, q, err);
		x->n_rows++;
	}
	x->failed = st || rc != SQLITE_DONE;
	if (e->end)
		e->end(x, q);
	x->n_results++;
	if (st || rc == SQLITE_DONE)
		return st;
	return export_fail(sqlite3_db_handle(q), err);
}

void export_finish(const struct exporter *e, struct export *x)
{
	if (e->finish)
		e->finish(x);
}
