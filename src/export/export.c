/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/export/export.h"

#include <stddef.h>

#include "base/log.h"
#include "src/export/export_names.h"
#include "src/export/script.h"

/* The views and tables that all scripts use. */
static const char shared[] =
#include "src/export/views.inc"
	;

#define EXPORT(name, help) extern const struct exporter export_##name;
#include "src/export/export_list.h"
#undef EXPORT

static const struct exporter *const exporters[] = {
#define EXPORT(name, help) &export_##name,
#include "src/export/export_list.h"
#undef EXPORT
};

/* clang-format off */
const struct opt export_opts[] = {
#define EXPORT(id, text) \
	{ .name = #id, .type = OPT_STR, .off = offsetof(struct export_files, id), .arg = "FILE", \
	  .help = text },
#include "src/export/export_list.h"
#undef EXPORT
	{ .name = NULL }
};
/* clang-format on */

enum { N_EXPORT = sizeof exporters / sizeof *exporters };

static const char *path_of(const struct export_files *o, int i)
{
	return *(char *const *)((const char *)o + export_opts[i].off);
}

bool export_wanted(const struct export_files *o)
{
	for (int i = 0; i < N_EXPORT; i++)
		if (path_of(o, i))
			return true;
	return false;
}

/* Output i is none of the databases, nor an output before it. */
static enum ar_status check_output(const struct export_files *o, int i,
				   const struct store_source *source, size_t n, struct ar_err *err)
{
	const char *path = path_of(o, i);
	bool same = false;
	enum ar_status st = AR_OK;

	for (size_t k = 0; k < n && !st && !same; k++)
		st = outfile_same(source[k].path, path, &same, err);
	if (!st && same)
		return ar_fail(err, AR_USAGE, "%s: it is a database to report; name another file",
			       path);
	for (int k = 0; k < i && !st && !same; k++)
		if (path_of(o, k))
			st = outfile_same(path_of(o, k), path, &same, err);
	return same ? ar_fail(err, AR_USAGE, "%s: given for two outputs; name another file", path) :
		      st;
}

enum ar_status export_check(const struct export_files *o, const struct store_source *source,
			    size_t n, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < N_EXPORT && !st; i++) {
		if (!path_of(o, i))
			continue;
		st = exporters[i]->kernels && n > 1 ?
			     ar_fail(err, AR_USAGE,
				     "--%s is of one database; join them first: "
				     "attnreplay merge --no-key ALL.db %s ...",
				     exporters[i]->name, source->path) :
			     check_output(o, i, source, n, err);
	}
	return st;
}

enum ar_status export_next_run(const struct report *r, int64_t *run, struct ar_err *err)
{
	static const char sql[] = "SELECT coalesce(min(run_id), 0) FROM run WHERE run_id > :after "
				  "AND (:run IS NULL OR run_id = :run)";
	enum ar_status st = AR_OK;
	sqlite3_stmt *q = NULL;

	if (sqlite3_prepare_v2(r->db, sql, -1, &q, NULL) || report_bind(q, ":run", r->run) ||
	    sqlite3_bind_int64(q, 1, *run) || sqlite3_step(q) != SQLITE_ROW)
		st = report_fail(r->db, err);
	else
		*run = sqlite3_column_int64(q, 0);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status find_run(const struct report *r, struct ar_err *err)
{
	int64_t run = 0;
	enum ar_status st = export_next_run(r, &run, err);

	if (st || run)
		return st;
	return r->run ? report_no_run(r, r->run, err) :
			ar_fail(err, AR_DATA,
				"there is no run; fill the database with 'attnreplay run --db'");
}

static enum ar_status write_one(const struct exporter *e, const struct report *r, const char *path,
				struct ar_err *err)
{
	struct outfile f;
	enum ar_status st = outfile_open(&f, path, err);

	if (st)
		return st;
	st = e->write(r, &f, err);
	if (!st)
		st = outfile_commit(&f, err);
	outfile_release(&f);
	return st;
}

/* Make the views and tables of all scripts, with demangled names of kernels. */
static enum ar_status name_kernels(sqlite3 *db, struct ar_err *err)
{
	const struct script_values none = { 0 };
	struct ar_err without;

	if (names_load(&without))
		log_warn("%s; the names of kernels stay mangled", without.msg);
	if (names_register(db))
		return report_fail(db, err);
	return script_run(db, shared, &none, NULL, NULL, err);
}

static enum ar_status write_all(const struct export_files *o, const struct report *r,
				struct ar_err *err)
{
	bool kernels = false;
	enum ar_status st = find_run(r, err);

	for (int i = 0; i < N_EXPORT; i++)
		kernels |= path_of(o, i) && exporters[i]->kernels;
	if (!st && kernels)
		st = name_kernels(r->db, err);
	for (int i = 0; i < N_EXPORT && !st; i++)
		if (path_of(o, i))
			st = write_one(exporters[i], r, path_of(o, i), err);
	return st;
}

enum ar_status export_write(const struct export_files *o, const struct report *r,
			    struct ar_err *err)
{
	enum ar_status st = write_all(o, r, err);

	if (st == AR_DATA || st == AR_DB)
		ar_err_prefix(err, "%s", r->path);
	return st;
}
