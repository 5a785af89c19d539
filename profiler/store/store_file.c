/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"
#include "profiler/store/store_file.h"

#include <ctype.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "base/log.h"
#include "kernels/phase.h"
#include "profiler/store/store_columns.h"
#include "profiler/store/functions.h"
#include "profiler/store/store.h"
#include "profiler/store/store_disk.h"
#include "profiler/store/stored_views.h"

enum { BUSY_MS = 10000 }; /* how long to wait for another process */

const char store_views[] =
#include "profiler/store/views.inc"
	;

/* Two runs can be compared when they agree in everything but the method. */
const char store_baseline_sql[] =
	"UPDATE run AS r SET baseline_run_id = (SELECT id FROM "
	"(SELECT b.run_id AS id, b.status, "
	"coalesce(b.repeat_no, 0) <> coalesce(r.repeat_no, 0) AS other, "
	"b.run_id > r.run_id AS later, "
	"abs(b.run_id - r.run_id) AS far "
	"FROM run b JOIN method m USING(method_id) WHERE m.is_dense "
	"AND b.status IN ('done', 'running') AND b.trace_id = r.trace_id "
	"AND b.model_id IS r.model_id AND b.gpu_id IS r.gpu_id AND b.policy = r.policy "
	"AND b.backend = r.backend AND b.clock = r.clock AND b.setup = r.setup) "
	"ORDER BY status, other, later, far LIMIT 1) "
	"WHERE setup = (SELECT setup FROM run WHERE run_id = ?1) AND EXISTS "
	"(SELECT 1 FROM method m WHERE m.method_id = r.method_id AND NOT m.is_dense) "
	"AND NOT EXISTS (SELECT 1 FROM run b WHERE b.run_id = r.baseline_run_id "
	"AND b.status = 'done' AND coalesce(b.repeat_no, 0) = coalesce(r.repeat_no, 0))";

/* The columns of run that version 22 added, and those from versions 21, 19, 16 and 14 on, for views
 * of older files. */
#define RUN_22 "NULL AS barrier_spread_ns, NULL AS barrier_p99_ns"
#define RUN_21 "NULL AS nccl, NULL AS comm, " RUN_22
#define RUN_19 "NULL AS kv_refilled, NULL AS evict_waits, " RUN_21
#define RUN_16 "NULL AS rates, NULL AS host, " RUN_19
#define RUN_14 \
	"NULL AS n_params, NULL AS weight_bytes, NULL AS block_bytes, NULL AS pool_tokens, " \
	"NULL AS gpu_bytes, NULL AS gpu_share, NULL AS engine_defaults, " RUN_16

/* The columns of iteration that version 20 added, and those from version 15 on. */
#define ITERATION_20 "NULL AS replica"
#define ITERATION_15 "NULL AS longest_decode, " ITERATION_20

/* The column of samples that version 17 added: earlier ones are of prompts alone. */
#define HALF_17 "'prefill' AS half"

/* The columns of selections that version 18 added, and those from version 17 on. */
#define SELECTION_18 "NULL AS skip_total, NULL AS skip_sel"
#define SELECTION_17 HALF_17 ", " SELECTION_18

/* The SQL that makes a file of version `from` one of the next version.  A file that is only read
 * stays as it is: reading makes TEMP views that give its tables the names of the next version;
 * NULL: none. */
static const struct migration {
	int from;
	const char *sql, *reading;
} migrations[] = {
	{ 5,
	  "DROP VIEW IF EXISTS v_run; DROP VIEW IF EXISTS iteration_request;"
	  "DROP VIEW IF EXISTS v_itl; DROP VIEW IF EXISTS v_sample; DROP VIEW IF EXISTS v_dist;"
	  "DROP VIEW IF EXISTS v_latency; DROP VIEW IF EXISTS v_load;"
	  "DROP VIEW IF EXISTS v_metrics_vllm; DROP VIEW IF EXISTS v_metrics_aiperf;"
	  "DROP VIEW IF EXISTS v_metrics_vidur; DROP VIEW IF EXISTS v_metrics_llmservingsim;"
	  "DROP VIEW IF EXISTS v_metrics_splitwise; DROP VIEW IF EXISTS v_phase_time;"
	  "DROP VIEW IF EXISTS v_cost_source; DROP VIEW IF EXISTS v_pair;"
	  "DROP VIEW IF EXISTS v_vs_dense; DROP VIEW IF EXISTS v_paired;"
	  "DROP VIEW IF EXISTS v_accuracy; DROP VIEW IF EXISTS v_density;"
	  "DROP VIEW IF EXISTS v_kernel; DROP VIEW IF EXISTS v_clock",
	  NULL },
	/* With writable_schema, a view of the user's on a dropped view does not stop the ALTER. */
	{ 6,
	  "PRAGMA writable_schema = ON;"
	  "ALTER TABLE selection_stat RENAME COLUMN blind TO empty_rows;"
	  "PRAGMA writable_schema = OFF",
	  "CREATE TEMP VIEW selection_stat AS "
	  "SELECT *, blind AS empty_rows, " SELECTION_17 " FROM main.selection_stat" },
	{ 7,
	  "ALTER TABLE run ADD COLUMN boot_id TEXT;"
	  "ALTER TABLE run ADD COLUMN pid_ns INTEGER",
	  NULL },
	/* SQLite has no statement that changes a check. */
	{ 8,
	  "ALTER TABLE iteration ADD COLUMN host_schedule_ns INTEGER;"
	  "ALTER TABLE iteration ADD COLUMN host_prepare_ns INTEGER;"
	  "ALTER TABLE iteration ADD COLUMN host_launch_ns INTEGER;"
	  "ALTER TABLE iteration ADD COLUMN host_update_ns INTEGER;"
	  "PRAGMA writable_schema = ON;"
	  "UPDATE sqlite_schema SET sql = replace(sql, '''cpu'', ''cost'')', "
	  "'''cpu'', ''cost'', ''engine'')') WHERE name = 'run';"
	  "PRAGMA writable_schema = RESET",
	  "CREATE TEMP VIEW iteration AS "
	  "SELECT rowid AS rowid, *, NULL AS host_schedule_ns, NULL AS host_prepare_ns, "
	  "NULL AS host_launch_ns, NULL AS host_update_ns, " ITERATION_15 " FROM main.iteration" },
	{ 9,
	  "ALTER TABLE run ADD COLUMN command_utc_ns INTEGER;"
	  "ALTER TABLE run ADD COLUMN method_no INTEGER;"
	  "ALTER TABLE run ADD COLUMN run_key TEXT;"
	  "ALTER TABLE run ADD COLUMN repeat_no INTEGER;"
	  "ALTER TABLE run ADD COLUMN energy_mj INTEGER;"
	  "ALTER TABLE run ADD COLUMN energy_ns INTEGER;"
	  "ALTER TABLE run ADD COLUMN energy_idle_mw INTEGER;"
	  "CREATE TABLE capture(capture_id INTEGER PRIMARY KEY, name TEXT NOT NULL, "
	  "sha256 TEXT NOT NULL, model TEXT NOT NULL, n_tokens INTEGER NOT NULL, "
	  "n_layers INTEGER NOT NULL, q_heads INTEGER NOT NULL, kv_heads INTEGER NOT NULL, "
	  "head_dim INTEGER NOT NULL, UNIQUE(name, sha256, model, n_tokens, n_layers, q_heads, "
	  "kv_heads, head_dim)) STRICT;"
	  "CREATE TABLE run_capture(run_id INTEGER NOT NULL, capture_no INTEGER NOT NULL, "
	  "capture_id INTEGER NOT NULL, origin TEXT NOT NULL, "
	  "FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "FOREIGN KEY(capture_id) REFERENCES capture, "
	  "CHECK(origin IN ('same', 'other', 'unknown', 'random')), "
	  "PRIMARY KEY(run_id, capture_no)) STRICT, WITHOUT ROWID;"
	  "PRAGMA writable_schema = ON;"
	  "UPDATE sqlite_schema SET sql = replace(sql, '''cost'', ''engine'')', "
	  "'''cost'', ''engine'', ''modelled'')') WHERE name = 'run';"
	  "UPDATE sqlite_schema SET sql = replace(sql, 'cost_source = ''extrapolated'')', "
	  "'cost_source = ''extrapolated'' OR cost_source = ''modelled'')') "
	  "WHERE name = 'iteration';"
	  "PRAGMA writable_schema = RESET",
	  "CREATE TEMP VIEW run AS "
	  "SELECT *, NULL AS command_utc_ns, NULL AS method_no, NULL AS run_key, "
	  "NULL AS repeat_no, NULL AS energy_mj, NULL AS energy_ns, NULL AS energy_idle_mw, "
	  "NULL AS driver, NULL AS sm_mhz, NULL AS mem_mhz, " RUN_14 " FROM main.run;"
	  "CREATE TEMP VIEW capture AS SELECT NULL AS capture_id, NULL AS name, NULL AS sha256, "
	  "NULL AS model, NULL AS n_tokens, NULL AS n_layers, NULL AS q_heads, NULL AS kv_heads, "
	  "NULL AS head_dim WHERE 0;"
	  "CREATE TEMP VIEW run_capture AS SELECT NULL AS run_id, NULL AS capture_no, "
	  "NULL AS capture_id, NULL AS origin WHERE 0" },
	{ 10,
	  "CREATE TABLE iteration_drop(run_id INTEGER NOT NULL, iter_no INTEGER NOT NULL, "
	  "layer INTEGER NOT NULL, n_rows INTEGER NOT NULL, n_kept INTEGER NOT NULL, "
	  "PRIMARY KEY(run_id, iter_no, layer)) STRICT, WITHOUT ROWID;"
	  "ALTER TABLE run ADD COLUMN driver TEXT;"
	  "ALTER TABLE run ADD COLUMN sm_mhz INTEGER;"
	  "ALTER TABLE run ADD COLUMN mem_mhz INTEGER;"
	  "CREATE TABLE kv_group(run_id INTEGER NOT NULL, group_no INTEGER NOT NULL, "
	  "kind TEXT NOT NULL, window INTEGER, n_layers INTEGER NOT NULL, block_tokens INTEGER, "
	  "block_bytes INTEGER NOT NULL, peak_blocks INTEGER NOT NULL, "
	  "FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "CHECK(kind IN ('full', 'window', 'linear')), "
	  "PRIMARY KEY(run_id, group_no)) STRICT, WITHOUT ROWID",
	  "CREATE TEMP VIEW iteration_drop AS SELECT NULL AS run_id, NULL AS iter_no, "
	  "NULL AS layer, NULL AS n_rows, NULL AS n_kept WHERE 0;"
	  "CREATE TEMP VIEW IF NOT EXISTS run AS " /* an older version's has these columns */
	  "SELECT *, NULL AS driver, NULL AS sm_mhz, NULL AS mem_mhz, " RUN_14 " FROM main.run;"
	  "CREATE TEMP VIEW kv_group AS SELECT NULL AS run_id, NULL AS group_no, NULL AS kind, "
	  "NULL AS window, NULL AS n_layers, NULL AS block_tokens, NULL AS block_bytes, "
	  "NULL AS peak_blocks WHERE 0" },
	{ 11,
	  "CREATE TABLE eval_prompt(run_id INTEGER NOT NULL, req_no INTEGER NOT NULL, "
	  "task TEXT NOT NULL, length INTEGER NOT NULL, n_answer INTEGER NOT NULL, "
	  "n_best INTEGER NOT NULL, exact INTEGER NOT NULL, rank_max INTEGER NOT NULL, "
	  "logprob REAL, kl REAL, expected INTEGER, CHECK(exact = (n_best = n_answer)), "
	  "PRIMARY KEY(run_id, req_no)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE eval_token(run_id INTEGER NOT NULL, req_no INTEGER NOT NULL, "
	  "out_no INTEGER NOT NULL, gold INTEGER NOT NULL, best INTEGER NOT NULL, "
	  "rank INTEGER NOT NULL, logprob REAL, kl REAL, "
	  "PRIMARY KEY(run_id, req_no, out_no)) STRICT, WITHOUT ROWID",
	  "CREATE TEMP VIEW eval_prompt AS SELECT NULL AS run_id, NULL AS req_no, NULL AS task, "
	  "NULL AS length, NULL AS n_answer, NULL AS n_best, NULL AS exact, NULL AS rank_max, "
	  "NULL AS logprob, NULL AS kl, NULL AS expected WHERE 0;"
	  "CREATE TEMP VIEW eval_token AS SELECT NULL AS run_id, NULL AS req_no, NULL AS out_no, "
	  "NULL AS gold, NULL AS best, NULL AS rank, NULL AS logprob, NULL AS kl WHERE 0" },
	{ 12,
	  "CREATE TABLE run_layer(run_id INTEGER NOT NULL, layer INTEGER NOT NULL, "
	  "kind TEXT NOT NULL, n_rows INTEGER NOT NULL, n_pairs INTEGER NOT NULL, "
	  "product_flops REAL NOT NULL, mixer_flops REAL NOT NULL, kv_bytes INTEGER NOT NULL, "
	  "FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "CHECK(kind IN ('full', 'window', 'linear')), "
	  "PRIMARY KEY(run_id, layer)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE layer_phase(run_id INTEGER NOT NULL, layer INTEGER NOT NULL, "
	  "phase_id INTEGER NOT NULL, kernels INTEGER NOT NULL, gpu_ns INTEGER NOT NULL, "
	  "PRIMARY KEY(run_id, layer, phase_id)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE drop_sample(run_id INTEGER NOT NULL, req_no INTEGER NOT NULL, "
	  "chunk_no INTEGER NOT NULL, layer INTEGER NOT NULL, iter_no INTEGER NOT NULL, "
	  "n_tokens INTEGER NOT NULL, n_kept INTEGER NOT NULL, queries INTEGER NOT NULL, "
	  "mass REAL, top INTEGER NOT NULL, top_recall REAL, "
	  "PRIMARY KEY(run_id, req_no, chunk_no, layer)) STRICT, WITHOUT ROWID",
	  "CREATE TEMP VIEW run_layer AS SELECT NULL AS run_id, NULL AS layer, NULL AS kind, "
	  "NULL AS n_rows, NULL AS n_pairs, NULL AS product_flops, NULL AS mixer_flops, "
	  "NULL AS kv_bytes WHERE 0;"
	  "CREATE TEMP VIEW layer_phase AS SELECT NULL AS run_id, NULL AS layer, "
	  "NULL AS phase_id, NULL AS kernels, NULL AS gpu_ns WHERE 0;"
	  "CREATE TEMP VIEW drop_sample AS SELECT NULL AS run_id, NULL AS req_no, "
	  "NULL AS chunk_no, NULL AS layer, NULL AS iter_no, NULL AS n_tokens, NULL AS n_kept, "
	  "NULL AS queries, NULL AS mass, NULL AS top, NULL AS top_recall WHERE 0" },
	{ 13,
	  "ALTER TABLE run ADD COLUMN n_params INTEGER;"
	  "ALTER TABLE run ADD COLUMN weight_bytes INTEGER;"
	  "ALTER TABLE run ADD COLUMN block_bytes INTEGER;"
	  "ALTER TABLE run ADD COLUMN pool_tokens INTEGER;"
	  "ALTER TABLE run ADD COLUMN gpu_bytes INTEGER;"
	  "ALTER TABLE run ADD COLUMN gpu_share REAL;"
	  "ALTER TABLE run ADD COLUMN engine_defaults TEXT;"
	  "PRAGMA writable_schema = ON;"
	  "UPDATE sqlite_schema SET sql = replace(sql, '''linear'')', "
	  "'''linear'', ''ssm'', ''none'', ''latent'')') WHERE name IN ('kv_group', 'run_layer');"
	  "PRAGMA writable_schema = RESET",
	  "CREATE TEMP VIEW IF NOT EXISTS run AS " /* an older version's has these columns */
	  "SELECT *, " RUN_14 " FROM main.run" },
	{ 14, "ALTER TABLE iteration ADD COLUMN longest_decode INTEGER",
	  "CREATE TEMP VIEW IF NOT EXISTS iteration AS " /* an older version's has this column */
	  "SELECT rowid AS rowid, *, " ITERATION_15 " FROM main.iteration" },
	{ 15,
	  "ALTER TABLE run ADD COLUMN rates TEXT; ALTER TABLE run ADD COLUMN host TEXT;"
	  "CREATE TABLE resampling(run_id INTEGER NOT NULL, replicates INTEGER NOT NULL, "
	  "unit TEXT NOT NULL, units INTEGER NOT NULL, block INTEGER NOT NULL, "
	  "draw_key INTEGER NOT NULL, cost_error REAL, extrapolated REAL, cached REAL, "
	  "run_cached REAL, steady_replays INTEGER, unsteady INTEGER, reason TEXT, "
	  "FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "CHECK(unit IN ('request', 'session', 'tree')), PRIMARY KEY(run_id)) "
	  "STRICT, WITHOUT ROWID;"
	  "CREATE TABLE replicate(run_id INTEGER NOT NULL, replicate_no INTEGER NOT NULL, "
	  "ok INTEGER NOT NULL, good INTEGER, output_tokens INTEGER NOT NULL, "
	  "duration_ns INTEGER NOT NULL, FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "PRIMARY KEY(run_id, replicate_no)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE replicate_latency(run_id INTEGER NOT NULL, "
	  "replicate_no INTEGER NOT NULL, metric TEXT NOT NULL, p50 REAL NOT NULL, "
	  "p90 REAL NOT NULL, p99 REAL NOT NULL, "
	  "FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "PRIMARY KEY(run_id, metric, replicate_no)) STRICT, WITHOUT ROWID",
	  "CREATE TEMP VIEW IF NOT EXISTS run AS SELECT *, " RUN_16 " FROM main.run;"
	  "CREATE TEMP VIEW resampling AS SELECT NULL AS run_id, NULL AS replicates, "
	  "NULL AS unit, NULL AS units, NULL AS block, NULL AS draw_key, NULL AS cost_error, "
	  "NULL AS extrapolated, NULL AS cached, NULL AS run_cached, NULL AS steady_replays, "
	  "NULL AS unsteady, NULL AS reason WHERE 0;"
	  "CREATE TEMP VIEW replicate AS SELECT NULL AS run_id, NULL AS replicate_no, "
	  "NULL AS ok, NULL AS good, NULL AS output_tokens, NULL AS duration_ns WHERE 0;"
	  "CREATE TEMP VIEW replicate_latency AS SELECT NULL AS run_id, NULL AS replicate_no, "
	  "NULL AS metric, NULL AS p50, NULL AS p90, NULL AS p99 WHERE 0" },
	{ 16,
	  "ALTER TABLE accuracy_sample ADD COLUMN half TEXT;"
	  "UPDATE accuracy_sample SET half = 'prefill';"
	  "ALTER TABLE selection_stat ADD COLUMN half TEXT;"
	  "UPDATE selection_stat SET half = 'prefill';"
	  "CREATE TABLE request_turn(run_id INTEGER NOT NULL, req_no INTEGER NOT NULL, "
	  "session_no INTEGER NOT NULL, tree_no INTEGER NOT NULL, turn INTEGER NOT NULL, "
	  "seen_tokens INTEGER NOT NULL, FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "PRIMARY KEY(run_id, req_no)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE hot_buffer(run_id INTEGER NOT NULL, layer INTEGER NOT NULL, "
	  "buffer_tok INTEGER NOT NULL, n_rows INTEGER NOT NULL, listed_tok INTEGER NOT NULL, "
	  "missed_tok INTEGER NOT NULL, FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "PRIMARY KEY(run_id, layer, buffer_tok)) STRICT, WITHOUT ROWID;"
	  "CREATE TABLE latent_form(run_id INTEGER NOT NULL, form TEXT NOT NULL, "
	  "n_chunks INTEGER NOT NULL, FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, "
	  "CHECK(form IN ('absorb', 'expand')), PRIMARY KEY(run_id, form)) STRICT, WITHOUT ROWID",
	  "CREATE TEMP VIEW request_turn AS SELECT NULL AS run_id, NULL AS req_no, "
	  "NULL AS session_no, NULL AS tree_no, NULL AS turn, NULL AS seen_tokens WHERE 0;"
	  "CREATE TEMP VIEW hot_buffer AS SELECT NULL AS run_id, NULL AS layer, "
	  "NULL AS buffer_tok, NULL AS n_rows, NULL AS listed_tok, NULL AS missed_tok WHERE 0;"
	  "CREATE TEMP VIEW latent_form AS SELECT NULL AS run_id, NULL AS form, NULL AS n_chunks "
	  "WHERE 0;"
	  "CREATE TEMP VIEW accuracy_sample AS SELECT *, " HALF_17 " FROM main.accuracy_sample;"
	  /* an older version's has this column */
	  "CREATE TEMP VIEW IF NOT EXISTS selection_stat AS "
	  "SELECT *, " SELECTION_17 " FROM main.selection_stat" },
	{ 17,
	  "ALTER TABLE selection_stat ADD COLUMN skip_total INTEGER;"
	  "ALTER TABLE selection_stat ADD COLUMN skip_sel INTEGER",
	  "CREATE TEMP VIEW IF NOT EXISTS selection_stat AS "
	  "SELECT *, " SELECTION_18 " FROM main.selection_stat" },
	{ 18,
	  "ALTER TABLE run ADD COLUMN kv_refilled INTEGER;"
	  "ALTER TABLE run ADD COLUMN evict_waits INTEGER",
	  "CREATE TEMP VIEW IF NOT EXISTS run AS SELECT *, " RUN_19 " FROM main.run" },
	{ 19,
	  "ALTER TABLE request_outcome ADD COLUMN replica INTEGER;"
	  "ALTER TABLE request_outcome ADD COLUMN prefill_replica INTEGER;"
	  "ALTER TABLE request_outcome ADD COLUMN kv_end_ns INTEGER;"
	  "ALTER TABLE iteration ADD COLUMN replica INTEGER",
	  "CREATE TEMP VIEW request_outcome AS SELECT *, NULL AS replica, NULL AS prefill_replica, "
	  "NULL AS kv_end_ns FROM main.request_outcome;"
	  /* an older version's has this column */
	  "CREATE TEMP VIEW IF NOT EXISTS iteration AS "
	  "SELECT rowid AS rowid, *, " ITERATION_20 " FROM main.iteration" },
	{ 20,
	  "ALTER TABLE run ADD COLUMN nccl TEXT; ALTER TABLE run ADD COLUMN comm TEXT;"
	  "CREATE TABLE run_rank(run_id INTEGER NOT NULL, rank INTEGER NOT NULL, "
	  "host TEXT NOT NULL, pid INTEGER NOT NULL, device INTEGER, gpu TEXT, "
	  "FOREIGN KEY(run_id) REFERENCES run ON DELETE CASCADE, PRIMARY KEY(run_id, rank)) "
	  "STRICT, WITHOUT ROWID;"
	  "CREATE TABLE iteration_rank(run_id INTEGER NOT NULL, iter_no INTEGER NOT NULL, "
	  "rank INTEGER NOT NULL, cost_ns INTEGER NOT NULL, span_ns INTEGER, busy_ns INTEGER, "
	  "comm_exposed_ns INTEGER, comm_overlap_ns INTEGER, "
	  "PRIMARY KEY(run_id, iter_no, rank)) STRICT, WITHOUT ROWID",
	  "CREATE TEMP VIEW IF NOT EXISTS run AS SELECT *, " RUN_21 " FROM main.run;"
	  "CREATE TEMP VIEW run_rank AS SELECT NULL AS run_id, NULL AS rank, NULL AS host, "
	  "NULL AS pid, NULL AS device, NULL AS gpu WHERE 0;"
	  "CREATE TEMP VIEW iteration_rank AS SELECT NULL AS run_id, NULL AS iter_no, "
	  "NULL AS rank, NULL AS cost_ns, NULL AS span_ns, NULL AS busy_ns, "
	  "NULL AS comm_exposed_ns, NULL AS comm_overlap_ns WHERE 0" },
	{ 21,
	  "ALTER TABLE run ADD COLUMN barrier_spread_ns INTEGER;"
	  "ALTER TABLE run ADD COLUMN barrier_p99_ns INTEGER",
	  "CREATE TEMP VIEW IF NOT EXISTS run AS SELECT *, " RUN_22 " FROM main.run" },
};
_Static_assert(sizeof migrations / sizeof *migrations == STORE_VERSION - STORE_OLDEST,
	       "one migration from each older version");

static bool has_log(const char *path)
{
	char log[PATH_MAX];
	struct stat sb;
	int n = snprintf(log, sizeof log, "%s-wal", path);

	return n < (int)sizeof log && !stat(log, &sb);
}

/* SQLite's header: where a field is, IN_LOG the version of files with a log, and its length. */
enum { WRITE_VERSION = 18, IN_LOG = 2, PAGES = 28, HEAD_BYTES = 32 };

static bool read_head(const char *path, unsigned char head[HEAD_BYTES])
{
	FILE *f = fopen(path, "rb");
	const bool whole = f && fread(head, HEAD_BYTES, 1, f) == 1;

	if (f)
		fclose(f);
	return whole;
}

bool store_file_lacks_log(const char *path)
{
	unsigned char head[HEAD_BYTES];

	return read_head(path, head) && head[WRITE_VERSION] == IN_LOG && !has_log(path);
}

void store_file_warn_log(const char *path)
{
	/* A program that closes the file removes the log shortly before it says so. */
	if (store_file_lacks_log(path) && sqlite3_sleep(100) && store_file_lacks_log(path))
		log_warn("%s: its log %s-wal is missing, as in a copy of a file that a run still "
			 "writes; its last rows may be missing, too",
			 path, path);
}

bool store_file_is_blank(const char *path)
{
	static const unsigned char one[] = { 0, 0, 0, 1 };
	unsigned char head[HEAD_BYTES];

	return read_head(path, head) && !memcmp(head + PAGES, one, sizeof one);
}

static enum ar_status no_space(const char *path, const char *cause, struct ar_err *err)
{
	return ar_fail(err, AR_IO,
		       "%s: cannot write: %s; free some space: the database keeps what was "
		       "committed",
		       path, cause);
}

/* The system call that failed, of an extended result code. */
static const char *io_action(int code)
{
	switch (code) {
	case SQLITE_IOERR_READ:
	case SQLITE_IOERR_SHORT_READ: return "read";
	case SQLITE_IOERR_WRITE: return "write";
	case SQLITE_IOERR_FSYNC:
	case SQLITE_IOERR_DIR_FSYNC: return "sync";
	case SQLITE_IOERR_TRUNCATE: return "truncate";
	case SQLITE_IOERR_DELETE: return "remove the log of";
	case SQLITE_IOERR_LOCK:
	case SQLITE_IOERR_RDLOCK:
	case SQLITE_IOERR_UNLOCK:
	case SQLITE_IOERR_CHECKRESERVEDLOCK: return "lock";
	case SQLITE_IOERR_SHMOPEN:
	case SQLITE_IOERR_SHMSIZE:
	case SQLITE_IOERR_SHMMAP:
	case SQLITE_IOERR_SHMLOCK: return "map the -shm file of";
	}
	return "use";
}

/* SQLite does not keep the errno of each failed write.  A short read has none: the log has pages
 * that the file lacks. */
static enum ar_status io_fail(sqlite3 *db, const char *path, struct ar_err *err)
{
	const int code = sqlite3_extended_errcode(db), number = sqlite3_system_errno(db);

	if (code == SQLITE_IOERR_NOMEM)
		return ar_nomem(err);
	if (number == ENOSPC || number == EDQUOT || number == EFBIG)
		return no_space(path, strerror(number), err);
	if (code == SQLITE_IOERR_WRITE && !number)
		return no_space(path, sqlite3_errmsg(db), err);
	if (code == SQLITE_IOERR_SHORT_READ && has_log(path))
		return ar_fail(err, AR_IO,
			       "%s: %s-wal is left from a removed database; end the run that uses "
			       "it, then remove both files",
			       path, path);
	return ar_fail(err, AR_IO, "%s: cannot %s the file: %s (SQLite's code %d)", path,
		       io_action(code), number ? strerror(number) : sqlite3_errmsg(db), code);
}

enum ar_status store_sql_fail(sqlite3 *db, const char *path, struct ar_err *err)
{
	int rc = sqlite3_errcode(db);

	switch (rc) {
	case SQLITE_NOMEM: return ar_nomem(err);
	case SQLITE_NOTADB:
	case SQLITE_CORRUPT:
		if (has_log(path))
			return ar_fail(err, AR_DATA,
				       "%s: %s; if %s-wal is left from another database, remove "
				       "both",
				       path, sqlite3_errmsg(db), path);
		return ar_fail(err, AR_DATA, "%s: %s; name another file", path, sqlite3_errmsg(db));
	case SQLITE_INTERRUPT: return ar_fail(err, AR_INTERRUPTED, "interrupted");
	case SQLITE_FULL: return no_space(path, sqlite3_errmsg(db), err);
	case SQLITE_IOERR: return io_fail(db, path, err);
	case SQLITE_CANTOPEN:
	case SQLITE_READONLY:
	case SQLITE_PERM:
		return ar_fail(err, AR_IO, "%s: %s; check folder and permissions", path,
			       sqlite3_errmsg(db));
	case SQLITE_BUSY:
	case SQLITE_LOCKED:
		return ar_fail(err, AR_DB,
			       "%s: %s by another process; wait for its end or name "
			       "another file",
			       path, sqlite3_errmsg(db));
	}
	return ar_fail(err, AR_DB, "%s: %s", path, sqlite3_errmsg(db));
}

static enum ar_status exec_sql(sqlite3 *db, const char *path, const char *sql, struct ar_err *err)
{
	return sqlite3_exec(db, sql, NULL, NULL, NULL) ? store_sql_fail(db, path, err) : AR_OK;
}

/* Read the version of a file; 0: it is empty.  One statement, because another program may be making
 * the file: one statement sees one state of it. */
static enum ar_status identify_file(sqlite3 *db, const char *path, int64_t *version,
				    struct ar_err *err)
{
	static const char sql[] =
		"SELECT application_id, user_version, (SELECT count(*) FROM sqlite_schema) "
		"FROM pragma_application_id, pragma_user_version";
	enum ar_status st = AR_OK;
	sqlite3_stmt *q = NULL;
	int64_t id = 0, n_tables = 0;

	if (sqlite3_prepare_v2(db, sql, -1, &q, NULL) || sqlite3_step(q) != SQLITE_ROW) {
		st = store_sql_fail(db, path, err);
	} else {
		id = sqlite3_column_int64(q, 0);
		*version = sqlite3_column_int64(q, 1);
		n_tables = sqlite3_column_int64(q, 2);
	}
	sqlite3_finalize(q);
	if (st)
		return st;
	if (id != STORE_APPLICATION_ID && (id || *version || n_tables))
		return ar_fail(err, AR_DATA, "%s: not a database of attnreplay; name another file",
			       path);
	if (id == STORE_APPLICATION_ID && (*version < STORE_OLDEST || *version > STORE_VERSION))
		return ar_fail(err, AR_DATA,
			       "%s: schema version %lld, this program has version "
			       "%d; use the attnreplay that made the file, or name another file",
			       path, (long long)*version, STORE_VERSION);
	return AR_OK;
}

static bool is_table(const char *name)
{
	for (int i = 0; i < TABLE_COUNT; i++)
		if (!sqlite3_stricmp(name, store_tables[i].name))
			return true;
	return false;
}

/* A view in place of a table may have rows without end. */
static enum ar_status check_tables(sqlite3 *db, const char *path, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	sqlite3_stmt *q = NULL;
	int rc = sqlite3_prepare_v2(db, "SELECT name FROM main.sqlite_schema WHERE type = 'view'",
				    -1, &q, NULL);

	while (!rc && !st && (rc = sqlite3_step(q)) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(q, 0);

		rc = name ? SQLITE_OK : SQLITE_NOMEM;
		if (name && is_table(name))
			st = ar_fail(err, AR_DATA,
				     "%s: %s is a view and no table, so the file is not as "
				     "attnreplay made it; go back to a copy",
				     path, name);
	}
	if (!st && rc != SQLITE_DONE)
		st = store_sql_fail(db, path, err);
	sqlite3_finalize(q);
	return st;
}

static enum ar_status fill_phases(sqlite3 *db, const char *path, struct ar_err *err)
{
	static const char sql[] =
#define X(name, id, core, text) \
	"INSERT OR REPLACE INTO phase(phase_id, name, core, title) " \
	"VALUES(" #id ", lower('" #name "'), " #core ", '" text "');"
		PHASE_MAP(X);
#undef X

	return exec_sql(db, path, sql, err);
}

static enum ar_status make_tables(sqlite3 *db, const char *path, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (int i = 0; i < TABLE_COUNT && !st; i++) {
		char *sql = table_create_sql(&store_tables[i]);

		st = sql ? exec_sql(db, path, sql, err) : ar_nomem(err);
		sqlite3_free(sql);
	}
	return st ? st : exec_sql(db, path, "INSERT INTO iteration_number(n) VALUES(0)", err);
}

/* rc: of stored_views.h, which may have run out of memory elsewhere. */
static enum ar_status views_status(sqlite3 *db, const char *path, int rc, struct ar_err *err)
{
	if (rc == SQLITE_NOMEM)
		return ar_nomem(err);
	return rc ? store_sql_fail(db, path, err) : AR_OK;
}

static enum ar_status migrate(sqlite3 *db, const char *path, int64_t from, struct ar_err *err)
{
	const struct migration *m = migrations;
	enum ar_status st = views_status(db, path, stored_views_drop(db), err);

	while (m->from != from)
		m++;
	return st ? st : exec_sql(db, path, m->sql, err);
}

static enum ar_status set_version(sqlite3 *db, const char *path, int version, struct ar_err *err)
{
	char sql[256];

	snprintf(sql, sizeof sql,
		 "PRAGMA application_id = %d; PRAGMA user_version = %d;"
		 "INSERT INTO schema_log(version, tool_version) VALUES(%d, '%s')",
		 STORE_APPLICATION_ID, version, version, PACKAGE_VERSION);
	return exec_sql(db, path, sql, err);
}

/* Bring the names of phases and the views of the file up to date. */
static enum ar_status fill_rest(sqlite3 *db, const char *path, struct ar_err *err)
{
	enum ar_status st = fill_phases(db, path, err);

	return st ? st : views_status(db, path, stored_views_make(db), err);
}

/* Make the tables, or migrate the file to the next version, unless another program was faster.
 * *current: it is up to date now. */
static enum ar_status advance_version(sqlite3 *db, const char *path, bool *current,
				      struct ar_err *err)
{
	int64_t version = 0;
	enum ar_status st = identify_file(db, path, &version, err);

	if (!st && version != STORE_VERSION) {
		st = version ? migrate(db, path, version, err) : make_tables(db, path, err);
		version = version ? version + 1 : STORE_VERSION;
		if (!st)
			st = set_version(db, path, (int)version, err);
	}
	*current = version == STORE_VERSION;
	return st || !*current ? st : fill_rest(db, path, err);
}

/* advance_version() in one transaction. */
static enum ar_status advance_whole(sqlite3 *db, const char *path, bool *current,
				    struct ar_err *err)
{
	enum ar_status st = exec_sql(db, path, "BEGIN IMMEDIATE", err);

	if (!st)
		st = advance_version(db, path, current, err);
	if (!st)
		st = exec_sql(db, path, "COMMIT", err);
	if (st && !sqlite3_get_autocommit(db))
		sqlite3_exec(db, "ROLLBACK", NULL, NULL, NULL);
	return st;
}

static enum ar_status set_up(sqlite3 *db, const char *path, struct ar_err *err)
{
	static const char with_log[] = "PRAGMA page_size = 16384; PRAGMA journal_mode = WAL";
	static const char without[] = "PRAGMA page_size = 16384; PRAGMA journal_mode = DELETE";
	static const char pragmas[] =
		"PRAGMA synchronous = NORMAL;"
		"PRAGMA cache_size = -16384; PRAGMA temp_store = MEMORY;"
		"PRAGMA wal_autocheckpoint = 4096; PRAGMA secure_delete = OFF;"
		"PRAGMA foreign_keys = ON";
	bool current = false;
	int64_t version;
	enum ar_status st = identify_file(db, path, &version, err);

	if (!st)
		st = check_tables(db, path, err);
	if (!st)
		st = exec_sql(db, path, store_disk_network(path) ? without : with_log, err);
	if (!st)
		st = exec_sql(db, path, pragmas, err);
	while (!st && !current)
		st = advance_whole(db, path, &current, err);
	/* A copy without the log shall have tables.  Without room they stay in the log.  A new file
	 * has nothing to lose, so this does not wait for the disk. */
	if (!st && !version)
		sqlite3_exec(db,
			     "PRAGMA synchronous = OFF; PRAGMA wal_checkpoint;"
			     "PRAGMA synchronous = NORMAL",
			     NULL, NULL, NULL);
	return st;
}

/* Of each connection.  Databases are attached by URI, so that they are opened for reading only. */
enum { FLAGS = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_URI };

/* SQLite may take a name that begins with "file:" as a URI. */
int store_file_open_plain(sqlite3 **db, const char *path, int flags)
{
	char *name = sqlite3_mprintf("%s%s", strncmp(path, "file:", 5) ? "" : "./", path);
	int rc = SQLITE_NOMEM;

	*db = NULL;
	if (name)
		rc = sqlite3_open_v2(name, db, flags | FLAGS, NULL);
	sqlite3_free(name);
	return rc;
}

char *store_file_uri(const char *path, const char *query)
{
	sqlite3_str *s = sqlite3_str_new(NULL);

	sqlite3_str_appendall(s, "file:");
	for (const char *p = path; *p; p++) {
		if (isalnum((unsigned char)*p) || strchr("._-", *p) || (*p == '/' && p > path))
			sqlite3_str_appendchar(s, 1, *p);
		else
			sqlite3_str_appendf(s, "%%%02X", (unsigned char)*p);
	}
	sqlite3_str_appendf(s, "?%s", query);
	return sqlite3_str_finish(s);
}

static int64_t now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

enum ar_status store_file_open(sqlite3 **out, const char *path, struct ar_err *err)
{
	const int64_t give_up_ms = now_ms() + BUSY_MS;
	sqlite3 *db = NULL;
	enum ar_status st = AR_OK;

	*out = NULL;
	if (!*path || *path == ':') /* SQLite's names for temporary databases */
		return ar_fail(err, AR_USAGE,
			       "database '%s': want the name of a file; put ./ "
			       "before a name that begins with a colon",
			       path);
	if (store_file_open_plain(&db, path, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE)) {
		st = store_sql_fail(db, path, err);
		goto out;
	}
	sqlite3_busy_timeout(db, BUSY_MS);
	/* Where two programs would wait for each other, SQLite returns SQLITE_BUSY at once.  Both
	 * may be switching a new file to WAL. */
	while ((st = set_up(db, path, err)) && sqlite3_errcode(db) == SQLITE_BUSY &&
	       now_ms() < give_up_ms)
		sqlite3_sleep(10);
	if (st)
		goto out;
	*out = db;
	db = NULL;
out:
	sqlite3_close(db);
	return st;
}

/* ANALYZE estimates the sizes of tables, by which SQLite orders joins.  Journal mode DELETE leaves
 * a single file, which can be read in a folder that is not writable.  It is set even where a
 * full disk has no room for ANALYZE.  It cannot be set while somebody reads.  Then the log stays
 * beside the file, which is as safe. */
enum ar_status store_file_close(sqlite3 *db, const char *path, struct ar_err *err)
{
	static const char *const last[] = { "PRAGMA analysis_limit = 400; ANALYZE main",
					    "PRAGMA journal_mode = DELETE" };
	enum ar_status st = AR_OK;

	if (!db)
		return AR_OK;
	sqlite3_busy_timeout(db, 0);
	for (int i = 0; i < 2; i++) {
		const int rc = sqlite3_exec(db, last[i], NULL, NULL, NULL);

		if (rc && rc != SQLITE_BUSY && rc != SQLITE_LOCKED && !st)
			st = store_sql_fail(db, path, err);
	}
	sqlite3_close(db);
	return st;
}

/* v_latency takes one pass with distribution(), where that of other programs sorts in windows. */
static const char own_latency[] =
	"DROP VIEW temp.v_latency; CREATE TEMP VIEW v_latency AS "
	"SELECT run_id, me.name AS method, metric, json_extract(d, '$[0]') AS n, "
	"json_extract(d, '$[1]') AS mean, json_extract(d, '$[2]') AS p50, "
	"json_extract(d, '$[3]') AS p90, json_extract(d, '$[4]') AS p95, "
	"json_extract(d, '$[5]') AS p99, json_extract(d, '$[6]') AS max "
	"FROM (SELECT run_id, column1 AS metric, CASE column1 WHEN 'ttft' THEN ttft "
	"WHEN 'tpot' THEN tpot WHEN 'e2e' THEN e2e ELSE queue END AS d "
	"FROM (SELECT run_id, distribution(ttft_ns / 1e6) AS ttft, "
	"distribution(tpot_ns / 1e6) AS tpot, distribution(e2e_ns / 1e6) AS e2e, "
	"distribution(queue_ns / 1e6) AS queue FROM request_outcome WHERE outcome = 'ok' "
	"GROUP BY run_id) JOIN (VALUES ('ttft'), ('tpot'), ('e2e'), ('queue')) "
	"UNION ALL SELECT run_id, 'itl', distribution(itl_ns / 1e6, n) FROM token_gap "
	"GROUP BY run_id) JOIN run USING(run_id) LEFT JOIN method me USING(method_id) "
	"WHERE d IS NOT NULL";

/* Give the tables of a file of this version the names of the present one. */
static enum ar_status name_tables(sqlite3 *db, const char *path, int64_t version,
				  struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof migrations / sizeof *migrations && !st; i++)
		if (migrations[i].from >= version && migrations[i].reading)
			st = exec_sql(db, path, migrations[i].reading, err);
	return st;
}

/* Open a file for reading, and find its version.  fixed: nobody writes it. */
static enum ar_status open_reading(sqlite3 **db, const char *path, bool fixed, int64_t *version,
				   struct ar_err *err)
{
	char *uri = fixed ? store_file_uri(path, "immutable=1") : NULL;
	const int flags = SQLITE_OPEN_READONLY;
	int rc = SQLITE_NOMEM;

	if (!fixed)
		rc = store_file_open_plain(db, path, flags);
	else if (uri)
		rc = sqlite3_open_v2(uri, db, flags | FLAGS, NULL);
	sqlite3_free(uri);
	if (rc)
		return rc == SQLITE_NOMEM ?
			       ar_nomem(err) :
			       ar_fail(err, AR_DATA, "%s: %s", path, sqlite3_errmsg(*db));
	sqlite3_busy_timeout(*db, BUSY_MS);
	sqlite3_db_config(*db, SQLITE_DBCONFIG_DEFENSIVE, 1, NULL);
	sqlite3_db_config(*db, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, NULL);
	return identify_file(*db, path, version, err);
}

/* SQLite reads a file that lacks its log in a read-only folder only if nobody writes the file. */
enum ar_status store_file_read(sqlite3 **out, const char *path, int64_t *version,
			       struct ar_err *err)
{
	sqlite3 *db = NULL;
	struct stat sb;
	enum ar_status st;

	*out = NULL;
	*version = 0;
	if (stat(path, &sb))
		return ar_fail(err, AR_DATA, "%s: %s", path, strerror(errno));
	if (S_ISDIR(sb.st_mode))
		return ar_fail(err, AR_DATA, "%s: a folder; name a database in it", path);
	st = open_reading(&db, path, false, version, err);
	if (st == AR_IO && store_file_lacks_log(path)) {
		sqlite3_close(db);
		db = NULL;
		st = open_reading(&db, path, true, version, err);
	}
	if (st == AR_IO) /* a run that did not end left a log beside the file */
		st = ar_fail(err, AR_DATA,
			     "%s: %s; if a run did not end, its folder must be "
			     "writable",
			     path, sqlite3_errmsg(db));
	if (!st && !*version)
		st = ar_fail(err, AR_DATA, "%s: empty; fill it with 'attnreplay run --db'", path);
	if (!st)
		st = check_tables(db, path, err);
	if (st)
		goto out;
	*out = db;
	db = NULL;
out:
	sqlite3_close(db);
	return st;
}

enum ar_status store_file_views(sqlite3 *db, const char *path, int64_t version, struct ar_err *err)
{
	enum ar_status st = name_tables(db, path, version, err);

	if (!st)
		st = exec_sql(db, path, store_views, err);
	if (!st)
		st = exec_sql(db, path, own_latency, err);
	if (!st && functions_register(db))
		st = store_sql_fail(db, path, err);
	return st;
}

/* All views take SQLite twice as long as the rest of the file. */
static enum ar_status make_one_view(sqlite3 *db, const char *path, int64_t version,
				    struct ar_err *err)
{
	const char *view = strstr(store_views, "CREATE TEMP VIEW iteration_request ");
	char *sql = sqlite3_mprintf("%.*s", (int)stored_views_length(view), view);
	enum ar_status st = sql ? name_tables(db, path, version, err) : ar_nomem(err);

	if (!st)
		st = exec_sql(db, path, sql, err);
	sqlite3_free(sql);
	return st;
}

typedef enum ar_status make_fn(sqlite3 *db, const char *path, int64_t version, struct ar_err *err);

static enum ar_status open_with(make_fn *make, sqlite3 **out, const char *path, struct ar_err *err)
{
	sqlite3 *db = NULL;
	int64_t version;
	enum ar_status st;

	*out = NULL;
	store_file_warn_log(path);
	st = store_file_read(&db, path, &version, err);
	if (!st)
		st = make(db, path, version, err);
	if (st)
		sqlite3_close(db);
	else
		*out = db;
	return st;
}

enum ar_status store_open_read(sqlite3 **db, const char *path, struct ar_err *err)
{
	return open_with(store_file_views, db, path, err);
}

enum ar_status store_open_tables(sqlite3 **db, const char *path, struct ar_err *err)
{
	return open_with(make_one_view, db, path, err);
}

enum ar_status store_file_scratch(sqlite3 **out, const char *name, struct ar_err *err)
{
	sqlite3 *db = NULL;
	enum ar_status st;

	*out = NULL;
	if (sqlite3_open_v2("", &db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | FLAGS, NULL))
		st = store_sql_fail(db, name, err);
	else
		st = exec_sql(db, name, "PRAGMA journal_mode = OFF; PRAGMA page_size = 16384", err);
	if (!st)
		st = make_tables(db, name, err);
	if (!st)
		st = fill_phases(db, name, err);
	if (st)
		sqlite3_close(db);
	else
		*out = db;
	return st;
}
