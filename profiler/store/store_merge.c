/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_merge.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/store/store_columns.h"
#include "profiler/store/store.h"
#include "profiler/store/store_file.h"

/* A merge under way.  The file is attached as schema a. */
struct merge {
	sqlite3 *db;
	const char *db_path, *path;
	const struct merge_rule *rule;
	bool done[TABLE_COUNT];
	int64_t kernel_offset; /* from kernel numbers of the file to numbers of db */
};

/* ---- statements ---- */

static enum ar_status merge_fail(const struct merge *m, struct ar_err *err)
{
	enum ar_status st = store_sql_fail(m->db, m->db_path, err);

	ar_err_prefix(err, "merging %s", m->path);
	return st;
}

/* Run sql and free it.  *value: the integer of its last row; NULL: no rows are wanted. */
static enum ar_status run_sql(const struct merge *m, char *sql, int64_t *value, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;
	int rc;

	if (!sql)
		return ar_nomem(err);
	rc = sqlite3_prepare_v2(m->db, sql, -1, &q, NULL);
	while (!rc && (rc = sqlite3_step(q)) == SQLITE_ROW && value) {
		*value = sqlite3_column_int64(q, 0);
		rc = SQLITE_OK;
	}
	if (rc != SQLITE_DONE)
		st = merge_fail(m, err);
	sqlite3_finalize(q);
	sqlite3_free(sql);
	return st;
}

static enum ar_status merge_exec(const struct merge *m, struct ar_err *err, const char *format, ...)
{
	va_list args;
	char *sql;

	va_start(args, format);
	sql = sqlite3_vmprintf(format, args);
	va_end(args);
	return run_sql(m, sql, NULL, err);
}

static enum ar_status merge_ask(const struct merge *m, int64_t *value, struct ar_err *err,
				const char *format, ...)
{
	va_list args;
	char *sql;

	va_start(args, format);
	sql = sqlite3_vmprintf(format, args);
	va_end(args);
	return run_sql(m, sql, value, err);
}

/* ---- columns ---- */

static const struct column *column(enum table_id t, const char *name)
{
	for (int i = 0; i < store_tables[t].n_col; i++)
		if (!strcmp(store_tables[t].col[i].name, name))
			return &store_tables[t].col[i];
	return NULL;
}

/* Whether a row of t belongs to a run. */
static bool of_run(enum table_id t)
{
	return t != TABLE_run && column(t, "run_id");
}

/* Whether rows of t have a number of their own, which others refer to. */
static bool is_numbered(enum table_id t)
{
	const struct column *c = store_tables[t].col;

	return c->rule && !strcmp(c->rule, "PRIMARY KEY");
}

static bool left_out(const struct merge *m, enum table_id t)
{
	return !m->rule->kernels &&
	       (t == TABLE_kernel_event || t == TABLE_kernel_shape || t == TABLE_string_id);
}

/* The value of column c of row i of the file, as it is in db. */
static void put_value(const struct merge *m, sqlite3_str *s, enum table_id t,
		      const struct column *c)
{
	const bool own = t == TABLE_run && c == store_tables[t].col;
	const enum table_id to = own ? TABLE_run : column_refers(t, c);

	if (t == TABLE_run && !strcmp(c->name, "status") && !m->rule->all)
		sqlite3_str_appendall(s, "replace(i.status, 'running', 'aborted')");
	else if (to == TABLE_COUNT && !(t == TABLE_kernel_event && c == store_tables[t].col))
		sqlite3_str_appendf(s, "i.%s", c->name);
	else if (to != TABLE_COUNT && left_out(m, to))
		sqlite3_str_appendall(s, "NULL");
	else if (to == TABLE_kernel_event || to == TABLE_COUNT)
		sqlite3_str_appendf(s, "i.%s + %lld", c->name, (long long)m->kernel_offset);
	else
		sqlite3_str_appendf(s, "(SELECT new FROM temp.new_%s WHERE old = i.%s)",
				    store_tables[to].name, c->name);
}

/* "INSERT INTO main.t(columns) SELECT their values", from column number first on. */
static sqlite3_str *insert_sql(const struct merge *m, const char *insert, enum table_id t,
			       int first)
{
	const struct table *x = &store_tables[t];
	sqlite3_str *s = sqlite3_str_new(NULL);

	sqlite3_str_appendf(s, "%s INTO main.%s(", insert, x->name);
	for (int i = first; i < x->n_col; i++)
		if (!column_generated(&x->col[i]))
			sqlite3_str_appendf(s, "%s%s", i > first ? ", " : "", x->col[i].name);
	sqlite3_str_appendall(s, ") SELECT ");
	for (int i = first; i < x->n_col; i++)
		if (!column_generated(&x->col[i])) {
			sqlite3_str_appendall(s, i > first ? ", " : "");
			put_value(m, s, t, &x->col[i]);
		}
	sqlite3_str_appendf(s, " FROM a.%s i", x->name);
	return s;
}

/* ---- tables ---- */

/* Tell which row of t no row of db equals. */
static enum ar_status check_numbers(const struct merge *m, enum table_id t, struct ar_err *err)
{
	const char *name = store_tables[t].name, *key = store_tables[t].col->name;
	int64_t row = 0;
	enum ar_status st = merge_ask(m, &row, err,
				      "SELECT min(%s) FROM a.%s WHERE %s NOT IN "
				      "(SELECT old FROM temp.new_%s)",
				      key, name, key, name);

	if (!st && row)
		st = ar_fail(err, AR_DATA,
			     "%s: row %lld of table %s contradicts the row of %s that describes "
			     "the same; merge it into another file",
			     m->path, (long long)row, name, m->db_path);
	return st;
}

/* Rows that runs share.  A column that one of the two files leaves NULL makes no difference. */
static enum ar_status copy_shared(const struct merge *m, enum table_id t, struct ar_err *err)
{
	const struct table *x = &store_tables[t];
	enum ar_status st = run_sql(m, sqlite3_str_finish(insert_sql(m, "INSERT OR IGNORE", t, 1)),
				    NULL, err);
	sqlite3_str *s;

	if (!st)
		st = merge_exec(
			m, err,
			"CREATE TEMP TABLE new_%s(old INTEGER PRIMARY KEY, new INTEGER NOT NULL)",
			x->name);
	if (st)
		return st;
	s = sqlite3_str_new(NULL);
	sqlite3_str_appendf(s,
			    "INSERT INTO temp.new_%s SELECT i.%s, o.%s FROM a.%s i "
			    "CROSS JOIN main.%s o WHERE 1",
			    x->name, x->col->name, x->col->name, x->name, x->name);
	for (int i = 1; i < x->n_col; i++) {
		const struct column *c = &x->col[i];

		sqlite3_str_appendf(s, " AND (o.%s = ", c->name);
		put_value(m, s, t, c);
		if (c->null == OR_NULL)
			sqlite3_str_appendf(s, " OR o.%s IS NULL OR i.%s IS NULL", c->name,
					    c->name);
		sqlite3_str_appendall(s, ")");
	}
	st = run_sql(m, sqlite3_str_finish(s), NULL, err);
	return st ? st : check_numbers(m, t, err);
}

/* Rows of the runs that are copied, in the order of the file. */
static enum ar_status copy_of_runs(struct merge *m, enum table_id t, struct ar_err *err)
{
	sqlite3_str *s;
	enum ar_status st = AR_OK;

	if (t == TABLE_kernel_event)
		st = merge_ask(m, &m->kernel_offset, err,
			       "SELECT coalesce(max(id), 0) FROM main.kernel_event");
	if (st)
		return st;
	s = insert_sql(m, "INSERT", t, 0);
	sqlite3_str_appendf(s, " %s",
			    t == TABLE_run ?
				    "JOIN temp.new_run n ON n.old = i.run_id ORDER BY new" :
				    "CROSS JOIN temp.new_run n ON n.old = i.run_id");
	return run_sql(m, sqlite3_str_finish(s), NULL, err);
}

/* Copy the rows of table t.  Its columns refer to other tables; these are copied first. */
static enum ar_status copy_table(struct merge *m, enum table_id t, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	if (m->done[t] || left_out(m, t) || t == TABLE_schema_log)
		return AR_OK;
	m->done[t] = true;
	for (int i = 0; i < store_tables[t].n_col && !st; i++) {
		enum table_id to = column_refers(t, &store_tables[t].col[i]);

		if (to != TABLE_COUNT)
			st = copy_table(m, to, err);
	}
	if (st)
		return st;
	if (t == TABLE_run || of_run(t))
		return copy_of_runs(m, t, err);
	if (is_numbered(t))
		return copy_shared(m, t, err);
	return run_sql(m, sqlite3_str_finish(insert_sql(m, "INSERT OR IGNORE", t, 0)), NULL, err);
}

/* ---- runs ---- */

/* Decide which runs of the file are copied, and give these new numbers.  If several runs have one
 * key, the first that is done is copied. */
static enum ar_status choose_runs(const struct merge *m, struct ar_err *err)
{
	const struct merge_rule *r = m->rule;
	enum ar_status st = merge_exec(
		m, err,
		"CREATE TEMP TABLE chosen AS SELECT run_id, run_key, CASE WHEN %d THEN 'added' "
		"WHEN status <> 'done' AND NOT %d THEN 'unfinished' "
		"WHEN run_key IS NULL THEN iif(%d, 'added', 'keyless') "
		"WHEN nth > 1 OR EXISTS (SELECT 1 FROM main.run o WHERE o.run_key = i.run_key "
		"AND (o.status = 'done' OR i.status <> 'done')) THEN 'there' ELSE 'added' END AS "
		"what FROM (SELECT *, row_number() OVER (PARTITION BY run_key "
		"ORDER BY status <> 'done', run_id) AS nth FROM a.run) i WHERE %lld IN (0, run_id)",
		r->all, r->failed, r->no_key, (long long)r->run);

	if (!st)
		st = merge_exec(
			m, err,
			"CREATE TEMP TABLE new_run(old INTEGER PRIMARY KEY, new INTEGER NOT NULL)");
	if (!st)
		st = merge_exec(
			m, err,
			"INSERT INTO temp.new_run SELECT run_id, row_number() OVER "
			"(ORDER BY run_id) + (SELECT coalesce(max(run_id), 0) FROM main.run) "
			"FROM temp.chosen WHERE what = 'added'");
	return st;
}

static enum ar_status count_runs(const struct merge *m, struct merge_count *n, struct ar_err *err)
{
	const struct {
		const char *what;
		int64_t *n;
	} of[] = { { "added", &n->added },
		   { "there", &n->there },
		   { "unfinished", &n->unfinished },
		   { "keyless", &n->keyless } };
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof of / sizeof *of && !st; i++)
		st = merge_ask(m, of[i].n, err, "SELECT count(*) FROM temp.chosen WHERE what = %Q",
			       of[i].what);
	if (!st && m->rule->run && !(n->added + n->there + n->unfinished + n->keyless))
		st = ar_fail(err, AR_USAGE,
			     "%s: no run %lld; 'attnreplay report %s' lists the runs", m->path,
			     (long long)m->rule->run, m->path);
	return st;
}

/* Runs of one key have the same requests with the same times. */
static enum ar_status verify_runs(const struct merge *m, struct ar_err *err)
{
#define COLUMNS \
	"req_no, outcome, reason, arrival_ns, first_sched_ns, first_token_ns, finish_ns, " \
	"prompt_tokens, output_tokens"
	int64_t run = 0;
	enum ar_status st = merge_ask(
		m, &run, err,
		"SELECT min(c.run_id) FROM temp.chosen c JOIN main.run o ON o.run_key = c.run_key "
		"AND o.status = 'done' WHERE what = 'there' AND (EXISTS (SELECT " COLUMNS
		" FROM a.request_outcome WHERE run_id = c.run_id EXCEPT SELECT " COLUMNS
		" FROM main.request_outcome WHERE run_id = o.run_id) OR "
		"(SELECT count(*) FROM a.request_outcome WHERE run_id = c.run_id) <> "
		"(SELECT count(*) FROM main.request_outcome WHERE run_id = o.run_id))");
#undef COLUMNS

	if (!st && run)
		st = ar_fail(err, AR_DATA,
			     "%s: the requests of run %lld differ from those of the run with its "
			     "key in %s; one of them was measured under other conditions",
			     m->path, (long long)run, m->db_path);
	return st;
}

/* A run's baseline may be in another file. */
static enum ar_status find_baselines(const struct merge *m, struct ar_err *err)
{
	sqlite3_stmt *list = NULL, *find = NULL;
	int rc = sqlite3_prepare_v2(m->db, "SELECT new FROM temp.new_run", -1, &list, NULL);
	enum ar_status st = AR_OK;

	if (!rc)
		rc = sqlite3_prepare_v2(m->db, store_baseline_sql, -1, &find, NULL);
	while (!rc && (rc = sqlite3_step(list)) == SQLITE_ROW) {
		rc = sqlite3_bind_int64(find, 1, sqlite3_column_int64(list, 0));
		if (!rc && sqlite3_step(find) != SQLITE_DONE)
			rc = SQLITE_ERROR;
		sqlite3_reset(find);
	}
	if (rc != SQLITE_DONE)
		st = merge_fail(m, err);
	sqlite3_finalize(list);
	sqlite3_finalize(find);
	return st;
}

/* ---- files ---- */

/* Tables that this program does not know would be lost. */
static enum ar_status check_tables(const struct merge *m, struct ar_err *err)
{
	int64_t unknown = 0;
	enum ar_status st =
		merge_ask(m, &unknown, err,
			  "SELECT count(*) FROM a.sqlite_schema WHERE type = 'table' AND "
			  "name NOT LIKE 'sqlite_%%' AND name NOT IN "
			  "(SELECT name FROM main.sqlite_schema)");

	if (!st && unknown)
		st = ar_fail(err, AR_DATA,
			     "%s: %lld of its tables are not those of attnreplay; drop them in a "
			     "copy of the file",
			     m->path, (long long)unknown);
	return st;
}

static enum ar_status copy_runs(struct merge *m, struct merge_count *n, struct ar_err *err)
{
	enum ar_status st = choose_runs(m, err);

	if (!st)
		st = count_runs(m, n, err);
	if (!st && m->rule->verify)
		st = verify_runs(m, err);
	for (int t = 0; t < TABLE_COUNT && !st && n->added; t++)
		st = copy_table(m, t, err);
	if (!st && m->rule->all)
		st = merge_exec(m, err,
				"INSERT INTO temp.source_run SELECT new, %Q, old FROM temp.new_run",
				m->path);
	return st ? st : find_baselines(m, err);
}

/* The TEMP tables of a merge go with its transaction, or here. */
static enum ar_status drop_tables(const struct merge *m, struct ar_err *err)
{
	enum ar_status st = merge_exec(m, err, "DROP TABLE temp.chosen");

	for (int t = 0; t < TABLE_COUNT && !st; t++)
		st = merge_exec(m, err, "DROP TABLE IF EXISTS temp.new_%s", store_tables[t].name);
	return st;
}

static enum ar_status copy_whole(struct merge *m, struct merge_count *n, struct ar_err *err)
{
	enum ar_status st = merge_exec(m, err, "BEGIN IMMEDIATE");

	if (!st && !m->rule->all)
		st = check_tables(m, err);
	if (!st)
		st = copy_runs(m, n, err);
	if (!st)
		st = drop_tables(m, err);
	if (!st)
		st = merge_exec(m, err, "COMMIT");
	if (st && !sqlite3_get_autocommit(m->db))
		sqlite3_exec(m->db, "ROLLBACK", NULL, NULL, NULL);
	return st;
}

/* Merge the file at, which is m->path or a copy of it. */
static enum ar_status merge_file(struct merge *m, const char *at, struct merge_count *n,
				 struct ar_err *err)
{
	char *uri = store_file_uri(at, "mode=ro");
	enum ar_status st = uri ? merge_exec(m, err, "ATTACH %Q AS a", uri) : ar_nomem(err);

	sqlite3_free(uri);
	if (st)
		return st;
	st = copy_whole(m, n, err);
	sqlite3_exec(m->db, "DETACH a", NULL, NULL, NULL);
	return st;
}

/* Copy the open file in into the new file at, and migrate that. */
static enum ar_status migrate_copy(sqlite3 *in, const char *path, const char *at,
				   struct ar_err *err)
{
	sqlite3 *copy = NULL;
	sqlite3_backup *b;
	enum ar_status st = AR_OK;

	if (sqlite3_open(at, &copy) || !(b = sqlite3_backup_init(copy, "main", in, "main"))) {
		st = store_sql_fail(copy, at, err);
	} else {
		sqlite3_backup_step(b, -1);
		if (sqlite3_backup_finish(b))
			st = store_sql_fail(copy, path, err);
	}
	sqlite3_close(copy);
	if (st)
		return st;
	st = store_file_open(&copy, at, err);
	return st ? st : store_file_close(copy, at, err);
}

static enum ar_status merge_older(struct merge *m, sqlite3 *in, struct merge_count *n,
				  struct ar_err *err)
{
	const char *dir = getenv("TMPDIR");
	char *at = sqlite3_mprintf("%s/attnreplay-XXXXXX", dir && *dir ? dir : "/tmp");
	enum ar_status st;
	int fd;

	if (!at)
		return ar_nomem(err);
	fd = mkstemp(at);
	if (fd < 0) {
		st = ar_fail(err, AR_IO, "%s: %s; set TMPDIR to a folder that is writable", at,
			     strerror(errno));
		sqlite3_free(at);
		return st;
	}
	close(fd);
	st = migrate_copy(in, m->path, at, err);
	if (!st)
		st = merge_file(m, at, n, err);
	unlink(at);
	sqlite3_free(at);
	return st;
}

enum ar_status store_merge(sqlite3 *db, const char *db_path, const char *path,
			   const struct merge_rule *rule, struct merge_count *n, struct ar_err *err)
{
	struct merge m = { .db = db, .db_path = db_path, .path = path, .rule = rule };
	sqlite3 *in;
	int64_t version;
	enum ar_status st = store_file_read(&in, path, &version, err);

	*n = (struct merge_count){ 0 };
	if (st)
		return st;
	st = version < STORE_VERSION ? merge_older(&m, in, n, err) : merge_file(&m, path, n, err);
	sqlite3_close(in);
	return st;
}
