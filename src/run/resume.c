/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "src/run/resume.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/grow.h"
#include "base/json.h"
#include "profiler/store/process.h"
#include "src/run/run.h"

/* The database is input: if SQLite cannot read it, it is bad data. */
static enum ar_status sql_fail(const struct resumed *r, sqlite3 *db, struct ar_err *err)
{
	return sqlite3_errcode(db) == SQLITE_NOMEM ?
		       ar_nomem(err) :
		       ar_fail(err, AR_DATA, "%s: %s", r->db, sqlite3_errmsg(db));
}

/* Prepare a statement; number is its ?1. */
static enum ar_status prepare_number(const struct resumed *r, sqlite3 *db, const char *sql,
				     int64_t number, sqlite3_stmt **q, struct ar_err *err)
{
	return sqlite3_prepare_v2(db, sql, -1, q, NULL) || sqlite3_bind_int64(*q, 1, number) ?
		       sql_fail(r, db, err) :
		       AR_OK;
}

static enum ar_status get_text(sqlite3_stmt *q, int i, char **out, struct ar_err *err)
{
	const char *s = (const char *)sqlite3_column_text(q, i);

	if (sqlite3_column_type(q, i) == SQLITE_NULL)
		return AR_OK;
	*out = s ? strdup(s) : NULL;
	return *out ? AR_OK : ar_nomem(err);
}

/* ---- the runs of a command ---- */

/* Columns of a run of a command. */
enum {
	RUN_ID,
	STATUS,
	METHOD_NO,
	REPEAT_NO,
	PID,
	PID_START,
	BOOT_ID,
	PID_NS,
	NUM_BLOCKS,
	OPTIONS,
	BACKEND,
	SHA256,
	N_REQUESTS,
	CONFIG,
	RUN_KEY,
	PROGRAM,
	DEVICE,
	CMDLINE
};
static const char runs_sql[] =
	"SELECT run_id, status, method_no, repeat_no, pid, pid_start, boot_id, pid_ns, "
	"num_blocks, options, r.backend, sha256, n_requests, config, run_key, version, g.name, "
	"cmdline FROM run r JOIN trace USING(trace_id) LEFT JOIN model USING(model_id) LEFT JOIN "
	"gpu g USING(gpu_id) WHERE command_utc_ns = ?1 ORDER BY run_id";

static bool is_status(sqlite3_stmt *q, const char *status)
{
	const char *s = (const char *)sqlite3_column_text(q, STATUS);

	return s && !strcmp(s, status);
}

/* Between two runs only the process of the command tells that it goes on. */
static enum ar_status check_ended(const struct resumed *r, sqlite3_stmt *q, struct ar_err *err)
{
	const struct process p = { sqlite3_column_int64(q, PID), sqlite3_column_int64(q, PID_START),
				   (const char *)sqlite3_column_text(q, BOOT_ID),
				   sqlite3_column_int64(q, PID_NS) };
	const enum process_state state = process_state(&p);
	const int64_t run = sqlite3_column_int64(q, RUN_ID);

	if (state == PROCESS_LIVES)
		return ar_fail(err, AR_USAGE,
			       "%s: the command of run %" PRId64 " is still running, in process "
			       "%" PRId64 "; wait for its end, or end it",
			       r->db, run, p.pid);
	if (state == PROCESS_UNKNOWN && is_status(q, "running"))
		return ar_fail(err, AR_USAGE,
			       "%s: run %" PRId64 " is 'running' on another host, or was before a "
			       "restart; if it has ended, set its status to 'aborted' with "
			       "sqlite3(1)",
			       r->db, run);
	return AR_OK;
}

/* The runs that the command has, from its options. */
static enum ar_status count_runs(struct resumed *r, struct ar_err *err)
{
	cJSON *o = json_parse_all(r->options, NULL);
	const char *list = cJSON_GetStringValue(cJSON_GetObjectItemCaseSensitive(o, "method"));
	const cJSON *repeats = cJSON_GetObjectItemCaseSensitive(o, "repeats");
	char **name = NULL;
	enum ar_status st;

	if (!o)
		return json_nomem() ? ar_nomem(err) :
				      ar_fail(err, AR_DATA, "its options are malformed");
	st = list ? method_split(list, &name, &r->n_method, err) :
		    ar_fail(err, AR_DATA, "its options have no methods");
	for (size_t i = 0; i < r->n_method; i++)
		free(name[i]);
	free(name);
	/* Before there were repeats, no option named them. */
	r->n_run = r->n_method * (repeats && repeats->valueint > 1 ? (size_t)repeats->valueint : 1);
	cJSON_Delete(o);
	if (st)
		return st;
	r->done = calloc(r->n_run, sizeof *r->done);
	return r->done ? AR_OK : ar_nomem(err);
}

/* Options do not tell that the answers of its requests were given. */
static enum ar_status check_command(sqlite3_stmt *q, struct ar_err *err)
{
	static const char eval[] = "attnreplay eval ";
	const char *line = (const char *)sqlite3_column_text(q, CMDLINE);

	if (line && !strncmp(line, eval, strlen(eval)))
		return ar_fail(
			err, AR_USAGE,
			"it is of 'attnreplay eval', which cannot be resumed; run that command "
			"again");
	return AR_OK;
}

static enum ar_status get_command(struct resumed *r, sqlite3_stmt *q, struct ar_err *err)
{
	enum ar_status st = check_command(q, err);

	if (!st)
		st = get_text(q, OPTIONS, &r->options, err);
	r->run = sqlite3_column_int64(q, RUN_ID);
	r->n_requests = sqlite3_column_int64(q, N_REQUESTS);
	if (!st)
		st = get_text(q, BACKEND, &r->backend, err);
	if (!st)
		st = get_text(q, SHA256, &r->trace_sha256, err);
	if (!st)
		st = get_text(q, CONFIG, &r->model_json, err);
	if (!st && !(r->options && r->backend && r->trace_sha256))
		st = ar_fail(err, AR_DATA, "a value is missing");
	return st ? st : count_runs(r, err);
}

/* Keep the key of run i of the command, if it has one. */
static enum ar_status get_key(struct resumed *r, sqlite3_stmt *q, size_t i, struct ar_err *err)
{
	struct resumed_key *k;
	enum ar_status st;

	if (!GROW(r->key, r->cap_key, r->n_key + 1))
		return ar_nomem(err);
	k = &r->key[r->n_key++];
	*k = (struct resumed_key){ .run = sqlite3_column_int64(q, RUN_ID), .i = i };
	st = get_text(q, RUN_KEY, &k->key, err);
	if (!st)
		st = get_text(q, PROGRAM, &k->version, err);
	return st ? st : get_text(q, DEVICE, &k->device, err);
}

static enum ar_status get_run(struct resumed *r, sqlite3_stmt *q, struct ar_err *err)
{
	const int64_t i = sqlite3_column_int64(q, METHOD_NO);
	const int64_t repeat = sqlite3_column_int64(q, REPEAT_NO);
	enum ar_status st = r->options ? AR_OK : get_command(r, q, err);

	if (!st && (i < 0 || (uint64_t)i >= r->n_method))
		st = ar_fail(err, AR_DATA, "the command has no method %" PRId64, i);
	if (!st && (repeat < 0 || (uint64_t)repeat >= r->n_run / r->n_method))
		st = ar_fail(err, AR_DATA, "the command has no repeat %" PRId64, repeat);
	r->num_blocks = sqlite3_column_int64(q, NUM_BLOCKS);
	if (!st && (r->num_blocks < 2 || r->num_blocks > UINT32_MAX))
		st = ar_fail(err, AR_DATA, "an invalid KV pool");
	if (st) {
		ar_err_prefix(err, "%s: run %" PRId64, r->db,
			      (int64_t)sqlite3_column_int64(q, RUN_ID));
		return st;
	}
	if (is_status(q, "done"))
		r->done[repeat * (int64_t)r->n_method + i] = true;
	st = get_key(r, q, (size_t)repeat * r->n_method + (size_t)i, err);
	return st ? st : check_ended(r, q, err);
}

static void forget_command(struct resumed *r)
{
	free(r->options);
	free(r->backend);
	free(r->trace_sha256);
	free(r->model_json);
	free(r->done);
	for (size_t i = 0; i < r->n_key; i++) {
		free(r->key[i].key);
		free(r->key[i].version);
		free(r->key[i].device);
	}
	free(r->key);
	for (size_t i = 0; i < r->n_capture; i++)
		free(r->capture_sha256[i]);
	free(r->capture_sha256);
	*r = (struct resumed){ .db = r->db };
}

/* Read the checksums of the captures of its first run. */
static enum ar_status read_captures(struct resumed *r, sqlite3 *db, struct ar_err *err)
{
	static const char sql[] = "SELECT sha256 FROM run_capture JOIN capture USING(capture_id) "
				  "WHERE run_id = ?1 ORDER BY capture_no";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_number(r, db, sql, r->run, &q, err);
	int rc = SQLITE_DONE;

	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		if (!GROW(r->capture_sha256, r->cap_capture, r->n_capture + 1)) {
			st = ar_nomem(err);
			break;
		}
		r->capture_sha256[r->n_capture++] = NULL;
		st = get_text(q, 0, &r->capture_sha256[r->n_capture - 1], err);
	}
	if (!st && rc != SQLITE_DONE)
		st = sql_fail(r, db, err);
	sqlite3_finalize(q);
	return st;
}

/* Read the runs of a command.  *left: the number of runs that are not done. */
static enum ar_status read_command(struct resumed *r, sqlite3 *db, int64_t command, size_t *left,
				   struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_number(r, db, runs_sql, command, &q, err);
	int rc = SQLITE_DONE;

	forget_command(r);
	r->command_utc_ns = command;
	while (!st && (rc = sqlite3_step(q)) == SQLITE_ROW)
		st = get_run(r, q, err);
	if (!st && rc != SQLITE_DONE)
		st = sql_fail(r, db, err);
	sqlite3_finalize(q);
	*left = r->n_run;
	for (size_t i = 0; i < r->n_run; i++)
		*left -= r->done && r->done[i];
	return st || !*left ? st : read_captures(r, db, err);
}

/* ---- which command ---- */

static enum ar_status find_by_run(struct resumed *r, sqlite3 *db, int64_t run, struct ar_err *err)
{
	static const char sql[] = "SELECT command_utc_ns FROM run WHERE run_id = ?1";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_number(r, db, sql, run, &q, err);
	int rc = st ? SQLITE_DONE : sqlite3_step(q);
	const bool known = rc == SQLITE_ROW && sqlite3_column_type(q, 0) != SQLITE_NULL;
	const int64_t command = known ? sqlite3_column_int64(q, 0) : 0;
	size_t left = 0;

	if (!st && rc == SQLITE_DONE)
		st = ar_fail(err, AR_USAGE,
			     "%s: no run %" PRId64 "; 'attnreplay report %s' lists the runs", r->db,
			     run, r->db);
	else if (!st && rc != SQLITE_ROW)
		st = sql_fail(r, db, err);
	else if (!st && !known)
		st = ar_fail(err, AR_USAGE,
			     "%s: run %" PRId64 " was imported from an engine, or an older "
			     "attnreplay stored it without its command; it cannot be resumed",
			     r->db, run);
	sqlite3_finalize(q);
	if (!st)
		st = read_command(r, db, command, &left, err);
	if (!st && !left)
		st = ar_fail(err, AR_USAGE,
			     "%s: every method of the command of run %" PRId64
			     " is done; there is nothing to resume",
			     r->db, run);
	return st;
}

static enum ar_status find_latest(struct resumed *r, sqlite3 *db, struct ar_err *err)
{
	static const char sql[] = "SELECT command_utc_ns FROM run WHERE command_utc_ns > ?1 "
				  "GROUP BY 1 ORDER BY max(run_id) DESC";
	sqlite3_stmt *q = NULL;
	enum ar_status st = prepare_number(r, db, sql, 0, &q, err);
	int rc = SQLITE_DONE;
	size_t left = 0;

	while (!st && !left && (rc = sqlite3_step(q)) == SQLITE_ROW)
		st = read_command(r, db, sqlite3_column_int64(q, 0), &left, err);
	if (!st && rc != SQLITE_ROW && rc != SQLITE_DONE)
		st = sql_fail(r, db, err);
	else if (!st && !left)
		st = ar_fail(err, AR_USAGE,
			     "%s: every method of every command is done; there is nothing to "
			     "resume",
			     r->db);
	sqlite3_finalize(q);
	return st;
}

enum ar_status resume_open(struct resumed **out, const char *where, struct ar_err *err)
{
	struct resumed *r = calloc(1, sizeof *r);
	sqlite3 *db = NULL;
	int64_t run;
	enum ar_status st = r ? store_where(where, &r->db, &run, err) : ar_nomem(err);

	*out = NULL;
	if (!st)
		st = store_open_tables(&db, r->db, err);
	if (!st)
		st = run ? find_by_run(r, db, run, err) : find_latest(r, db, err);
	sqlite3_close(db);
	if (st)
		resume_close(r);
	else
		*out = r;
	return st;
}

void resume_close(struct resumed *r)
{
	if (!r)
		return;
	forget_command(r);
	free(r->db);
	free(r);
}
