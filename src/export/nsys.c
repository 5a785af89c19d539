/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels in the SQLite layout of Nsight Systems, for scripts that read its exports. */
#include "config.h"

#include <stdlib.h>
#include <string.h>

#include "profiler/store/store_file.h"
#include "src/export/export.h"
#include "src/export/script.h"

static const char rows[] =
#include "src/export/nsys.inc"
	;
static const char tables[] =
#include "src/export/nsys_tables.inc"
	;

struct nsys {
	sqlite3 *db; /* being written */
	const char *path;
	sqlite3_stmt *insert; /* for the rows of the present statement, or NULL */
};

static enum ar_status nsys_fail(const struct nsys *o, struct ar_err *err)
{
	int number = sqlite3_system_errno(o->db);

	if (sqlite3_errcode(o->db) == SQLITE_NOMEM)
		return ar_nomem(err);
	return ar_fail(err, AR_IO, "%s: cannot write: %s", o->path,
		       number ? strerror(number) : sqlite3_errmsg(o->db));
}

/* An INSERT for the table and columns that q names. */
static enum ar_status prepare_insert(struct nsys *o, sqlite3_stmt *q, struct ar_err *err)
{
	sqlite3_str *sql = sqlite3_str_new(o->db);
	int n = sqlite3_column_count(q);
	char *text;
	enum ar_status st = AR_OK;

	sqlite3_str_appendf(sql, "INSERT INTO %s(", sqlite3_column_text(q, 0));
	for (int i = 1; i < n; i++)
		sqlite3_str_appendf(sql, "%s\"%w\"", i > 1 ? "," : "", sqlite3_column_name(q, i));
	sqlite3_str_appendall(sql, ") VALUES(");
	for (int i = 1; i < n; i++)
		sqlite3_str_appendall(sql, i > 1 ? ",?" : "?");
	sqlite3_str_appendall(sql, ")");
	text = sqlite3_str_finish(sql);
	if (!text)
		return ar_nomem(err);
	if (sqlite3_prepare_v2(o->db, text, -1, &o->insert, NULL))
		st = nsys_fail(o, err);
	sqlite3_free(text);
	return st;
}

static enum ar_status copy_row(void *self, sqlite3_stmt *q, bool row, struct ar_err *err)
{
	struct nsys *o = self;
	enum ar_status st = row && !o->insert ? prepare_insert(o, q, err) : AR_OK;

	for (int i = 1; row && !st && i < sqlite3_column_count(q); i++)
		if (sqlite3_bind_value(o->insert, i, sqlite3_column_value(q, i)))
			st = nsys_fail(o, err);
	if (row && !st && sqlite3_step(o->insert) != SQLITE_DONE)
		st = nsys_fail(o, err);
	if (row && !st) {
		sqlite3_reset(o->insert);
		return AR_OK;
	}
	sqlite3_finalize(o->insert);
	o->insert = NULL;
	return st;
}

static enum ar_status nsys_exec(const struct nsys *o, const char *sql, struct ar_err *err)
{
	return sqlite3_exec(o->db, sql, NULL, NULL, NULL) ? nsys_fail(o, err) : AR_OK;
}

static enum ar_status has_kernels(const struct report *r, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;
	int rc = sqlite3_prepare_v2(r->db,
				    "SELECT 1 FROM iteration WHERE kernel_lo IS NOT NULL AND "
				    "(:run IS NULL OR run_id = :run)",
				    -1, &q, NULL);

	if (!rc)
		rc = report_bind(q, ":run", r->run);
	if (!rc)
		rc = sqlite3_step(q);
	if (rc == SQLITE_DONE)
		st = ar_fail(err, AR_USAGE,
			     "%s: no kernels are kept; run with backend cuda and --keep-kernels",
			     r->path);
	else if (rc != SQLITE_ROW)
		st = report_fail(r->db, err);
	sqlite3_finalize(q);
	return st;
}

/* The caller syncs and renames the file, so SQLite needs no journal. */
static enum ar_status fill_file(struct nsys *o, const struct report *r, struct ar_err *err)
{
	const struct script_values v = { .run = r->run };
	enum ar_status st =
		nsys_exec(o, "PRAGMA journal_mode = OFF; PRAGMA synchronous = OFF; BEGIN", err);

	if (!st)
		st = nsys_exec(o, tables, err);
	if (!st)
		st = script_run(r->db, rows, &v, copy_row, o, err);
	sqlite3_finalize(o->insert);
	return st ? st : nsys_exec(o, "COMMIT", err);
}

static enum ar_status nsys(const struct report *r, struct outfile *f, struct ar_err *err)
{
	struct nsys o = { .path = f->path };
	enum ar_status st = has_kernels(r, err);

	if (!st && !f->tmp)
		st = ar_fail(err, AR_USAGE, "%s: not a regular file, as SQLite needs; name another",
			     f->path);
	if (!st && store_file_open_plain(&o.db, f->tmp, SQLITE_OPEN_READWRITE))
		st = nsys_fail(&o, err);
	if (!st)
		st = fill_file(&o, r, err);
	sqlite3_close(o.db);
	return st;
}

extern const struct exporter export_nsys;
const struct exporter export_nsys = { .name = "nsys", .kernels = true, .write = nsys };
