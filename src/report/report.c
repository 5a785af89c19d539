/* SPDX-License-Identifier: Apache-2.0 */
/* The report: limits go into a TEMP table, then the sections are written one after another. */
#include "config.h"
#include "src/report/report.h"

#include <string.h>

#include "src/report/slo.h"

/* ---- statements ---- */

int report_bind(sqlite3_stmt *q, const char *name, int64_t v)
{
	int i = sqlite3_bind_parameter_index(q, name);

	return i && v ? sqlite3_bind_int64(q, i, v) : SQLITE_OK;
}

static int bind_text(sqlite3_stmt *q, const char *name, const char *v)
{
	int i = sqlite3_bind_parameter_index(q, name);

	return i ? sqlite3_bind_text(q, i, v, -1, SQLITE_STATIC) : SQLITE_OK;
}

/* The user wrote none of these statements. */
enum ar_status report_fail(sqlite3 *db, struct ar_err *err)
{
	return sqlite3_errcode(db) == SQLITE_ERROR ? ar_fail(err, AR_DB, "%s", sqlite3_errmsg(db)) :
						     writer_fail(db, err);
}

/* One of the report's statements.  Finalize *q also after a failure. */
static enum ar_status prepare(sqlite3_stmt **q, const struct report *r, const char *sql,
			      struct ar_err *err)
{
	*q = NULL;
	if (sqlite3_prepare_v2(r->db, sql, -1, q, NULL) || report_bind(*q, ":run", r->run) ||
	    bind_text(*q, ":dialect", r->dialect))
		return report_fail(r->db, err);
	return AR_OK;
}

static enum ar_status run_to_end(sqlite3_stmt *q, struct ar_err *err)
{
	return sqlite3_step(q) == SQLITE_DONE ? AR_OK : report_fail(sqlite3_db_handle(q), err);
}

/* ---- limits ---- */

static enum ar_status add_limit(const struct report *r, const struct slo_limit *l,
				struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st = prepare(&q, r,
				    "INSERT INTO slo SELECT run_id, :metric, :ns FROM run"
				    " WHERE :run IS NULL OR run_id = :run",
				    err);

	if (!st && (bind_text(q, ":metric", l->metric) || report_bind(q, ":ns", l->ns)))
		st = report_fail(r->db, err);
	if (!st)
		st = run_to_end(q, err);
	sqlite3_finalize(q);
	return st;
}

/* Add the limits r->slo to r->run, or to all runs. */
static enum ar_status add_limits(const struct report *r, struct ar_err *err)
{
	struct slo slo = { 0 };
	enum ar_status st = slo_parse(&slo, r->slo, false, err);

	for (size_t i = 0; i < slo.n && !st; i++)
		st = add_limit(r, &slo.limit[i], err);
	return st;
}

/* Add to each run the limits that it was given. */
static enum ar_status add_given_limits(const struct report *r, struct ar_err *err)
{
	struct report one = *r;
	sqlite3_stmt *q;
	enum ar_status st = prepare(&q, r,
				    "SELECT run_id, value FROM run_param"
				    " WHERE (:run IS NULL OR run_id = :run) AND key = 'slo'",
				    err);
	int rc = SQLITE_DONE;

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		one.run = sqlite3_column_int64(q, 0);
		one.slo = (const char *)sqlite3_column_text(q, 1);
		st = one.slo ? add_limits(&one, err) : ar_nomem(err);
	}
	if (!st && rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status make_limits(const struct report *r, struct ar_err *err)
{
	if (sqlite3_exec(r->db,
			 "CREATE TEMP TABLE slo(run_id, metric, ns,"
			 " PRIMARY KEY(run_id, metric))",
			 NULL, NULL, NULL))
		return report_fail(r->db, err);
	return r->slo ? add_limits(r, err) : add_given_limits(r, err);
}

/* ---- sections ---- */

enum ar_status report_no_run(const struct report *r, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "%s: no run %lld; 'attnreplay report %s' lists the runs",
		       r->path, (long long)r->run, r->path);
}

/* *baseline: the dense run of r->run, 0: none. */
static enum ar_status find_baseline(const struct report *r, int64_t *baseline, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st;
	int rc = SQLITE_DONE;

	*baseline = 0;
	if (!r->run)
		return AR_OK;
	st = prepare(&q, r, "SELECT baseline_run_id FROM run WHERE run_id = :run", err);
	if (!st)
		rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		*baseline = sqlite3_column_int64(q, 0);
	else if (rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	else if (!st)
		st = report_no_run(r, err);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status write_section(const struct report *r, const struct section *s,
				    int64_t baseline, struct document *d, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st = prepare(&q, r, s->sql, err);

	if (!st && report_bind(q, ":baseline", baseline))
		st = report_fail(r->db, err);
	if (!st && s->title) {
		d->name = s->name;
		d->title = s->title;
		st = writer_query(d, q, err);
	} else if (!st) {
		st = run_to_end(q, err);
	}
	if (st)
		ar_err_prefix(err, "%s", s->name);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status write_sections(const struct report *r, struct document *d, struct ar_err *err)
{
	int64_t baseline;
	enum ar_status st = find_baseline(r, &baseline, err);

	if (!st)
		st = make_limits(r, err);
	for (const struct section *s = sections; s->name && !st; s++)
		if (!s->dialect || !strcmp(s->dialect, r->dialect))
			st = write_section(r, s, baseline, d, err);
	return st;
}

enum ar_status report_write(const struct report *r, struct document *d, struct ar_err *err)
{
	enum ar_status st = write_sections(r, d, err);

	writer_finish(d);
	if (st == AR_DATA || st == AR_DB)
		ar_err_prefix(err, "%s", r->path);
	return st;
}
