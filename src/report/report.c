/* SPDX-License-Identifier: Apache-2.0 */
/* The report: limits go into a TEMP table, then the sections are written one after another. */
#include "config.h"
#include "src/report/report.h"

#include <string.h>

#include "src/report/interval.h"
#include "src/report/phrase.h"
#include "src/report/report_query.h"
#include "src/report/slo.h"
#include "src/report/sums.h"

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

enum ar_status report_prepare(sqlite3_stmt **q, const struct report *r, const char *sql,
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

/* own: it was given to the run. */
static enum ar_status add_limit(const struct report *r, const struct slo_limit *l, bool own,
				struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st =
		report_prepare(&q, r,
			       "INSERT INTO slo SELECT run_id, :metric, :ns, :own FROM run"
			       " WHERE :run IS NULL OR run_id = :run",
			       err);

	if (!st && (bind_text(q, ":metric", l->metric) || report_bind(q, ":ns", l->ns) ||
		    report_bind(q, ":own", own)))
		st = report_fail(r->db, err);
	if (!st)
		st = run_to_end(q, err);
	sqlite3_finalize(q);
	return st;
}

/* Add the limits r->slo to r->run, or to all runs. */
static enum ar_status add_limits(const struct report *r, bool own, struct ar_err *err)
{
	struct slo slo = { 0 };
	enum ar_status st = slo_parse(&slo, r->slo, false, err);

	for (size_t i = 0; i < slo.n && !st; i++)
		st = add_limit(r, &slo.limit[i], own, err);
	return st;
}

/* Add to each run the limits that it was given. */
static enum ar_status add_given_limits(const struct report *r, struct ar_err *err)
{
	struct report one = *r;
	sqlite3_stmt *q;
	enum ar_status st = report_prepare(&q, r,
					   "SELECT run_id, value FROM run_param"
					   " WHERE (:run IS NULL OR run_id = :run) AND key = 'slo'",
					   err);
	int rc = SQLITE_DONE;

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		one.run = sqlite3_column_int64(q, 0);
		one.slo = (const char *)sqlite3_column_text(q, 1);
		st = one.slo ? add_limits(&one, true, err) : ar_nomem(err);
	}
	if (!st && rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status make_limits(const struct report *r, struct ar_err *err)
{
	if (sqlite3_exec(r->db,
			 "CREATE TEMP TABLE slo(run_id, metric, ns, own,"
			 " PRIMARY KEY(run_id, metric))",
			 NULL, NULL, NULL))
		return report_fail(r->db, err);
	return r->slo ? add_limits(r, false, err) : add_given_limits(r, err);
}

/* ---- a baseline that was named ---- */

enum ar_status report_no_run(const struct report *r, int64_t run, struct ar_err *err)
{
	return ar_fail(err, AR_USAGE, "%s: no run %lld; 'attnreplay report %s' lists the runs",
		       r->path, (long long)run, r->path);
}

/* Run :baseline is done, and no run to report had other requests. */
static enum ar_status check_baseline(const struct report *r, struct ar_err *err)
{
#define REQUESTS "SELECT req_no, prompt_tokens, output_tokens FROM request_outcome WHERE run_id = "
	static const char sql[] =
		"SELECT b.status = 'done', (SELECT min(run_id) FROM run r "
		"WHERE (:run IS NULL OR run_id = :run) AND r.status = 'done' AND ("
		"EXISTS (" REQUESTS "r.run_id EXCEPT " REQUESTS "b.run_id) OR "
		"EXISTS (" REQUESTS "b.run_id EXCEPT " REQUESTS "r.run_id))) "
		"FROM run b WHERE b.run_id = :baseline";
#undef REQUESTS
	sqlite3_stmt *q;
	enum ar_status st = report_prepare(&q, r, sql, err);
	int rc = SQLITE_DONE;

	if (!st && report_bind(q, ":baseline", r->baseline))
		st = report_fail(r->db, err);
	if (!st)
		rc = sqlite3_step(q);
	if (rc == SQLITE_ROW && !sqlite3_column_int(q, 0))
		st = ar_fail(err, AR_USAGE, "baseline run %lld did not end; name one that is done",
			     (long long)r->baseline);
	else if (rc == SQLITE_ROW && sqlite3_column_int64(q, 1))
		st = ar_fail(err, AR_USAGE,
			     "run %lld had other requests than the baseline, run %lld; report runs "
			     "of the same requests",
			     (long long)sqlite3_column_int64(q, 1), (long long)r->baseline);
	else if (!st && rc == SQLITE_DONE)
		st = report_no_run(r, r->baseline, err);
	else if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	sqlite3_finalize(q);
	return st;
}

/* Compare each run with r->baseline: v_pair tells the sections. */
static enum ar_status use_baseline(const struct report *r, struct ar_err *err)
{
	enum ar_status st = check_baseline(r, err);
	char *sql;

	if (st)
		return st;
	sql = sqlite3_mprintf("DROP VIEW v_pair; CREATE TEMP VIEW v_pair AS "
			      "SELECT run_id, %lld AS base_id FROM run "
			      "WHERE status = 'done' AND run_id <> %lld",
			      (long long)r->baseline, (long long)r->baseline);
	if (!sql)
		return ar_nomem(err);
	if (sqlite3_exec(r->db, sql, NULL, NULL, NULL))
		st = report_fail(r->db, err);
	sqlite3_free(sql);
	return st;
}

/* *baseline: the run that r->run is compared with, 0: none. */
static enum ar_status find_baseline(const struct report *r, int64_t *baseline, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st;
	int rc = SQLITE_DONE;

	*baseline = 0;
	if (!r->run)
		return AR_OK;
	st = report_prepare(&q, r, "SELECT baseline_run_id FROM run WHERE run_id = :run", err);
	if (!st)
		rc = sqlite3_step(q);
	if (rc == SQLITE_ROW)
		*baseline = sqlite3_column_int64(q, 0);
	else if (rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	else if (!st)
		st = report_no_run(r, r->run, err);
	sqlite3_finalize(q);
	if (st || !r->baseline)
		return st;
	*baseline = r->baseline;
	return AR_OK;
}

/* ---- options in which runs differ ---- */

static bool has_column(sqlite3_stmt *q, const char *name)
{
	for (int i = 0; i < sqlite3_column_count(q); i++)
		if (!strcmp(sqlite3_column_name(q, i), name))
			return true;
	return false;
}

/* Append a column for each option in which runs differ, unless q has it. */
static enum ar_status append_options(sqlite3 *db, sqlite3_str *s, sqlite3_stmt *q,
				     struct ar_err *err)
{
	sqlite3_stmt *keys = NULL;
	int rc = sqlite3_prepare_v2(db, "SELECT DISTINCT key FROM run_option", -1, &keys, NULL);
	enum ar_status st = AR_OK;

	while (!rc && (rc = sqlite3_step(keys)) == SQLITE_ROW) {
		const char *key = (const char *)sqlite3_column_text(keys, 0);

		if (!has_column(q, key))
			sqlite3_str_appendf(s,
					    ", (SELECT value FROM run_option o WHERE o.run_id = "
					    "t.run AND o.key = %Q) AS \"%w\"",
					    key, key);
		rc = SQLITE_OK;
	}
	if (rc != SQLITE_DONE)
		st = report_fail(db, err);
	sqlite3_finalize(keys);
	return st;
}

/* A query of the rows of q, which are in section_rows, with these options after the method. */
static enum ar_status prepare_labelled(sqlite3_stmt **out, sqlite3_stmt *q, struct ar_err *err)
{
	sqlite3 *db = sqlite3_db_handle(q);
	sqlite3_str *s = sqlite3_str_new(db);
	enum ar_status st = AR_OK;
	char *sql;

	*out = NULL;
	for (int i = 0; i < sqlite3_column_count(q) && !st; i++) {
		const char *name = sqlite3_column_name(q, i);

		sqlite3_str_appendf(s, "%s t.\"%w\"", i ? "," : "SELECT", name);
		if (!strcmp(name, "method"))
			st = append_options(db, s, q, err);
	}
	sqlite3_str_appendall(s, " FROM section_rows t ORDER BY rowid");
	sql = sqlite3_str_finish(s);
	if (!st && (!sql || sqlite3_prepare_v2(db, sql, -1, out, NULL)))
		st = sql ? report_fail(db, err) : ar_nomem(err);
	sqlite3_free(sql);
	return st;
}

/* Store the rows of q, whose order they keep, and write them with the options.  q has the bindings
 * of a section. */
static enum ar_status write_labelled(const struct report *r, sqlite3_stmt *q, int64_t baseline,
				     struct document *d, struct ar_err *err)
{
	sqlite3_stmt *rows = NULL, *labelled = NULL;
	char *sql = sqlite3_mprintf("CREATE TEMP TABLE section_rows AS %s", sqlite3_sql(q));
	enum ar_status st = sql ? report_prepare(&rows, r, sql, err) : ar_nomem(err);

	if (!st && report_bind(rows, ":baseline", baseline))
		st = report_fail(r->db, err);
	if (!st)
		st = run_to_end(rows, err);
	if (!st)
		st = prepare_labelled(&labelled, q, err);
	if (!st)
		st = writer_query(d, labelled, err);
	sqlite3_finalize(labelled);
	sqlite3_finalize(rows);
	sqlite3_free(sql);
	if (!st && sqlite3_exec(r->db, "DROP TABLE section_rows", NULL, NULL, NULL))
		st = report_fail(r->db, err);
	return st;
}

/* *differ: runs differ in options. */
static enum ar_status runs_differ(const struct report *r, bool *differ, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st = report_prepare(&q, r, "SELECT 1 FROM run_option", err);
	int rc = st ? SQLITE_DONE : sqlite3_step(q);

	*differ = rc == SQLITE_ROW;
	if (rc != SQLITE_ROW && rc != SQLITE_DONE)
		st = report_fail(r->db, err);
	sqlite3_finalize(q);
	return st;
}

/* ---- all sections ---- */

static enum ar_status write_titled(const struct report *r, sqlite3_stmt *q, int64_t baseline,
				   struct document *d, struct ar_err *err)
{
	bool differ = false;
	enum ar_status st = AR_OK;

	if (has_column(q, "run") && has_column(q, "method"))
		st = runs_differ(r, &differ, err);
	if (st)
		return st;
	return differ ? write_labelled(r, q, baseline, d, err) : writer_query(d, q, err);
}

enum ar_status report_section(const struct report *r, const struct section *s, int64_t baseline,
			      struct document *d, struct ar_err *err)
{
	sqlite3_stmt *q;
	enum ar_status st = report_prepare(&q, r, s->sql, err);

	if (!st && report_bind(q, ":baseline", baseline))
		st = report_fail(r->db, err);
	if (!st && s->title) {
		d->name = r->table ? NULL : s->name;
		d->title = s->title;
		st = write_titled(r, q, baseline, d, err);
	} else if (!st) {
		st = run_to_end(q, err);
	}
	if (st)
		ar_err_prefix(err, "%s", s->name);
	sqlite3_finalize(q);
	return st;
}

enum ar_status report_begin(const struct report *r, int64_t *baseline, struct ar_err *err)
{
	enum ar_status st = find_baseline(r, baseline, err);

	if (!st && (interval_register(r->db) || phrase_register(r->db) || sums_register(r->db)))
		st = report_fail(r->db, err);
	if (!st && r->baseline)
		st = use_baseline(r, err);
	return st ? st : make_limits(r, err);
}

enum ar_status report_find_table(const struct section **out, const char *name, struct ar_err *err)
{
	char names[sizeof err->msg];
	size_t n = 0;

	for (const struct section *s = sections; s->name; s++) {
		*out = s;
		if (s->title && !strcmp(s->name, name))
			return AR_OK;
		if (s->title && n < sizeof names)
			n += (size_t)snprintf(names + n, sizeof names - n, "%s%s", n ? ", " : "",
					      s->name);
	}
	return ar_fail(err, AR_USAGE, "no table '%.80s'; want one of %s", name, names);
}

/* Sections without a title make what others read. */
static bool is_wanted(const struct report *r, const struct section *s, const struct document *d)
{
	if (s->dialect && strcmp(s->dialect, r->dialect))
		return false;
	if (r->table && s->title)
		return !strcmp(s->name, r->table);
	return !s->prose || d->writer->prose || r->table;
}

enum ar_status report_write(const struct report *r, struct document *d, struct ar_err *err)
{
	int64_t baseline;
	enum ar_status st = report_begin(r, &baseline, err);

	d->fold_intervals = true;
	for (const struct section *s = sections; s->name && !st; s++)
		if (is_wanted(r, s, d))
			st = report_section(r, s, baseline, d, err);
	writer_finish(d);
	if (st == AR_DATA || st == AR_DB)
		ar_err_prefix(err, "%s", r->path);
	return st;
}
