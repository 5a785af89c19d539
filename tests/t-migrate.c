/* SPDX-License-Identifier: Apache-2.0 */
/* A file of an older version becomes one of this version, in whole or not at all. */
#include "config.h"

#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "profiler/store/store.h"
#include "profiler/store/store_file.h"
#include "tests/query.h"
#include "tests/tap.h"

enum { ATTEMPTS = 100 };

static int steps_left; /* of SQLite's machine */
static bool kills;

static void shell(const char *command)
{
	if (system(command))
		bail_out("%s", command);
}

static int count_step(void *unused)
{
	(void)unused;
	if (--steps_left)
		return 0;
	if (kills)
		raise(SIGKILL);
	return 1;
}

/* For each connection that is opened from now on. */
static int watch(sqlite3 *db, char **message, const void *unused)
{
	(void)message, (void)unused;
	sqlite3_progress_handler(db, 1, count_step, NULL);
	return SQLITE_OK;
}

/* Open the file for writing and close it, which ends at a step.  False: the step was never
 * reached. */
static bool broken_open(int step)
{
	struct ar_err err;
	struct store *s = NULL;
	enum ar_status st;

	steps_left = step;
	sqlite3_auto_extension((void (*)(void))watch);
	st = store_open(&s, "a.db", &err);
	sqlite3_cancel_auto_extension((void (*)(void))watch);
	if (!st)
		store_close(s, NULL);
	return steps_left <= 0;
}

static bool killed_open(int step)
{
	int ended;
	pid_t child = fork();

	if (!child) {
		broken_open(step);
		_exit(0);
	}
	if (child < 0 || waitpid(child, &ended, 0) != child)
		bail_out("no child");
	return WIFSIGNALED(ended);
}

/* Its version, if the file is as that version has it; else -1. */
static int64_t whole_version(void)
{
	sqlite3 *db;
	int64_t version, views, scope;
	int64_t host, command, state;
	bool fine, renamed, engine, captures, modelled, drops, evals, layers, memory, longest,
		replicates, halves, skips, counts, replicas, ranks, barriers;

	if (sqlite3_open("a.db", &db))
		bail_out("%s", sqlite3_errmsg(db));
	version = ask(db, "PRAGMA user_version");
	views = ask(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'view' "
			"AND name <> 'mine'");
	renamed = ask(db, "SELECT count(*) FROM pragma_table_info('selection_stat') "
			  "WHERE name = 'empty_rows'");
	scope = ask(db, "SELECT count(*) FROM pragma_table_info('run') "
			"WHERE name IN ('boot_id', 'pid_ns')");
	command = ask(db, "SELECT count(*) FROM pragma_table_info('run') "
			  "WHERE name IN ('command_utc_ns', 'method_no', 'run_key', 'repeat_no', "
			  "'energy_mj', 'energy_ns', 'energy_idle_mw')");
	host = ask(db, "SELECT count(*) FROM pragma_table_info('iteration') "
		       "WHERE name GLOB 'host_?*_ns'");
	captures = ask(db, "SELECT count(*) FROM sqlite_schema WHERE type = 'table' "
			   "AND name GLOB '*capture'") == 2;
	drops = ask(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('iteration_drop', "
			"'kv_group')") == 2;
	evals = ask(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('eval_prompt', "
			"'eval_token')") == 2;
	state = ask(db, "SELECT count(*) FROM pragma_table_info('run') "
			"WHERE name IN ('driver', 'sm_mhz', 'mem_mhz')");
	layers = ask(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('run_layer', "
			 "'layer_phase', 'drop_sample')") == 3;
	memory = ask(db, "SELECT count(*) FROM pragma_table_info('run') WHERE name IN "
			 "('n_params', 'weight_bytes', 'block_bytes', 'pool_tokens', 'gpu_bytes', "
			 "'gpu_share', 'engine_defaults')") == 7;
	longest = ask(db, "SELECT count(*) FROM pragma_table_info('iteration') "
			  "WHERE name = 'longest_decode'");
	replicates = ask(db, "SELECT count(*) FROM sqlite_schema WHERE name IN ('resampling', "
			     "'replicate', 'replicate_latency')") == 3;
	halves = ask(db, "SELECT count(*) FROM sqlite_schema m, pragma_table_info(m.name) x "
			 "WHERE m.type = 'table' AND x.name IN ('half', 'form')") == 3;
	skips = ask(db, "SELECT count(*) FROM pragma_table_info('selection_stat') "
			"WHERE name GLOB 'skip_*'") == 2;
	counts = ask(db, "SELECT count(*) FROM pragma_table_info('run') "
			 "WHERE name IN ('kv_refilled', 'evict_waits')") == 2;
	replicas = ask(db, "SELECT count(*) FROM sqlite_schema m, pragma_table_info(m.name) x "
			   "WHERE m.type = 'table' AND x.name = 'replica'") == 2;
	ranks = ask(db, "SELECT count(*) FROM sqlite_schema m, pragma_table_info(m.name) x "
			"WHERE m.type = 'table' AND x.name IN ('rank', 'nccl', 'comm') "
			"AND m.name <> 'eval_token'") == 4;
	barriers = ask(db, "SELECT count(*) FROM pragma_table_info('run') "
			   "WHERE name IN ('barrier_spread_ns', 'barrier_p99_ns')") == 2;
	engine = ask(db, "SELECT sql LIKE '%''engine''%' FROM sqlite_schema WHERE name = 'run'");
	modelled = ask(db,
		       "SELECT count(*) = 2 FROM sqlite_schema WHERE sql LIKE '%''modelled'')%'");
	fine = ask(db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check") &&
	       ask(db, "SELECT max(version) FROM schema_log") == version &&
	       ask(db, "SELECT count(*) FROM run WHERE status = 'done'") == 3;
	sqlite3_close(db);
	return fine &&
			       views == (version == 5		  ? 21 :
					 version == STORE_VERSION ? count_views() :
								    0) &&
			       renamed == (version >= 7) && scope == (version >= 8 ? 2 : 0) &&
			       engine == (version >= 9) && host == (version >= 9 ? 4 : 0) &&
			       captures == (version >= 10) && command == (version >= 10 ? 7 : 0) &&
			       modelled == (version >= 10) && evals == (version >= 12) &&
			       drops == (version >= 11) && state == (version >= 11 ? 3 : 0) &&
			       layers == (version >= 13) && memory == (version >= 14) &&
			       longest == (version >= 15) && replicates == (version >= 16) &&
			       halves == (version >= 17) && skips == (version >= 18) &&
			       counts == (version >= 19) && replicas == (version >= 20) &&
			       ranks == (version >= 21) && barriers == (version >= 22) ?
		       version :
		       -1;
}

static void test_ends(bool kill_it, const char *what)
{
	int n[STORE_VERSION + 1] = { 0 }, bad = 0, stride;
	bool ended = true;

	kills = kill_it;
	shell("rm -f a.db* && cp old.db a.db");
	broken_open(INT_MAX);
	stride = (INT_MAX - steps_left) / ATTEMPTS * fault_stride(2);
	for (int step = 1; ended; step += stride) {
		int64_t version;

		shell("rm -f a.db* && cp old.db a.db");
		ended = kill_it ? killed_open(step) : broken_open(step);
		version = whole_version();
		bad += version < STORE_OLDEST;
		n[version < STORE_OLDEST ? 0 : version]++;
	}
	is_int(bad, 0, "%s: the file is never between versions", what);
	for (int version = STORE_OLDEST; version < STORE_VERSION; version++)
		ok(n[version] > 0, "... and of version %d %d times", version, n[version]);
}

/* The columns of main's tables that the other database has not, and the other way round. */
static int64_t columns_differ(sqlite3 *db)
{
#define COLUMNS(of) \
	"SELECT m.name, x.cid, x.name, x.type, x.dflt_value, x.pk, x.hidden, " \
	"CASE x.pk WHEN 0 THEN x.\"notnull\" END FROM " #of ".sqlite_schema m, " \
	"pragma_table_xinfo(m.name, '" #of "') x WHERE m.type = 'table' AND m.name NOT LIKE " \
	"'sqlite_%'"
	return ask(db, "SELECT count(*) FROM (" COLUMNS(main) " EXCEPT " COLUMNS(new) ")") +
	       ask(db, "SELECT count(*) FROM (" COLUMNS(new) " EXCEPT " COLUMNS(main) ")");
#undef COLUMNS
}

/* Open a.db, a file of the version, for writing, and close it. */
static void migrate(int version)
{
	struct ar_err err = { 0 };
	struct store *s;

	if (!is_int(store_open(&s, "a.db", &err), AR_OK,
		    "a file of version %d is opened for writing", version))
		diag("%s", err.msg);
	store_close(s, NULL);
	is_int(whole_version(), STORE_VERSION, "... and is one of this version");
}

static void test_tables(void)
{
	struct ar_err err = { 0 };
	struct store *s;
	sqlite3 *db;

	shell("rm -f a.db* && cp old.db a.db");
	migrate(5);
	if (store_open(&s, "new.db", &err))
		bail_out("%s", err.msg);
	store_close(s, NULL);
	if (sqlite3_open("a.db", &db) ||
	    sqlite3_exec(db, "ATTACH 'new.db' AS new", NULL, NULL, NULL))
		bail_out("%s", sqlite3_errmsg(db));
	is_int(columns_differ(db), 0, "... with the tables of a new file");
	is_int(ask(db, "SELECT count(*) FROM new.sqlite_schema WHERE sql LIKE 'CREATE TABLE%'") -
		       ask(db, "SELECT count(*) FROM main.sqlite_schema WHERE sql LIKE 'CREATE "
			       "TABLE%'"),
	       0, "... all of them");
	sqlite3_close(db);
	change("a.db", "UPDATE run SET clock = 'engine'");
	is_int(whole_version(), STORE_VERSION, "... and a run may be one of an engine");
	change("a.db",
	       "UPDATE run SET clock = 'modelled';"
	       "UPDATE iteration SET cost_source = 'modelled' WHERE cost_source IS NOT NULL");
	is_int(whole_version(), STORE_VERSION, "... or a modelled one");
}

/* A file that is only read has the names of this version. */
static void test_reading(const char *path, int version)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change(path, "UPDATE selection_stat SET blind = 3");
	if (store_open_read(&db, path, &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT min(empty_rows) FROM selection_stat"), 3,
	       "version %d is read with the names of this version", version);
	is_int(ask(db, "SELECT count(*) FROM iteration WHERE host_launch_ns IS NULL AND rowid > 0"),
	       ask(db, "SELECT count(*) FROM main.iteration"),
	       "... and columns that it lacks are NULL");
	is_int(ask(db, "SELECT count(*) + count(capture) FROM v_run LEFT JOIN run_capture "
		       "USING(run_id) LEFT JOIN capture c USING(capture_id) WHERE c.name IS NULL"),
	       ask(db, "SELECT count(*) FROM run"), "... and runs have no captures");
	is_int(ask(db, "SELECT count(*) FROM run WHERE run_key IS NULL AND command_utc_ns IS NULL "
		       "AND repeat_no IS NULL AND energy_ns IS NULL AND gpu_share IS NULL "
		       "AND engine_defaults IS NULL"),
	       ask(db, "SELECT count(*) FROM main.run"), "... in table run, too");
	is_int(ask(db, "SELECT count(*) + count(peak_blocks) FROM run LEFT JOIN kv_group "
		       "USING(run_id) WHERE driver IS NULL AND sm_mhz IS NULL AND mem_mhz IS NULL"),
	       ask(db, "SELECT count(*) FROM main.run"), "... or groups, or drivers");
	is_int(ask(db, "SELECT sum(n) FROM v_density"),
	       ask(db, "SELECT count(*) FROM main.selection_stat"), "... and views find its rows");
	is_int(ask(db, "PRAGMA user_version"), version, "... and is left as it is");
	sqlite3_close(db);
	if (store_open_tables(&db, path, &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM run WHERE run_key IS NULL"),
	       ask(db, "SELECT count(*) FROM main.run"), "its tables alone have these names");
	ok(ask(db, "SELECT count(*) FROM iteration_request") > 0 &&
		   !ask(db, "SELECT count(*) FROM sqlite_temp_schema WHERE name GLOB 'v_*'"),
	   "... with the entries of batches, and no other view");
	sqlite3_close(db);
}

#define DROP_VIEWS \
	"PRAGMA writable_schema = ON; DELETE FROM sqlite_schema WHERE type = 'view' " \
	"AND name <> 'mine'; PRAGMA writable_schema = RESET;"
#define DROP_22 \
	DROP_VIEWS \
	"ALTER TABLE run DROP COLUMN barrier_spread_ns;" \
	"ALTER TABLE run DROP COLUMN barrier_p99_ns;" \
	"DELETE FROM schema_log WHERE version > 21; PRAGMA user_version = 21;"
#define DROP_21 \
	DROP_22 \
	"ALTER TABLE run DROP COLUMN nccl; ALTER TABLE run DROP COLUMN comm;" \
	"DROP TABLE run_rank; DROP TABLE iteration_rank;" \
	"DELETE FROM schema_log WHERE version > 20; PRAGMA user_version = 20;"
#define DROP_20 \
	DROP_21 \
	"ALTER TABLE iteration DROP COLUMN replica;" \
	"ALTER TABLE request_outcome DROP COLUMN replica;" \
	"ALTER TABLE request_outcome DROP COLUMN prefill_replica;" \
	"ALTER TABLE request_outcome DROP COLUMN kv_end_ns;" \
	"DELETE FROM schema_log WHERE version > 19; PRAGMA user_version = 19;"
#define DROP_19 \
	DROP_20 \
	"ALTER TABLE run DROP COLUMN kv_refilled; ALTER TABLE run DROP COLUMN evict_waits;" \
	"DELETE FROM schema_log WHERE version > 18; PRAGMA user_version = 18;"
#define DROP_18 \
	DROP_19 \
	"ALTER TABLE selection_stat DROP COLUMN skip_total;" \
	"ALTER TABLE selection_stat DROP COLUMN skip_sel;" \
	"DELETE FROM schema_log WHERE version > 17; PRAGMA user_version = 17;"
#define DROP_17 \
	DROP_18 \
	"ALTER TABLE accuracy_sample DROP COLUMN half;" \
	"ALTER TABLE selection_stat DROP COLUMN half; DROP TABLE hot_buffer;" \
	"DROP TABLE latent_form; DROP TABLE request_turn;" \
	"DELETE FROM schema_log WHERE version > 16; PRAGMA user_version = 16;"
#define DROP_16 \
	DROP_17 \
	"ALTER TABLE run DROP COLUMN rates; ALTER TABLE run DROP COLUMN host;" \
	"DROP TABLE resampling; DROP TABLE replicate; DROP TABLE replicate_latency;" \
	"DELETE FROM schema_log WHERE version > 15; PRAGMA user_version = 15;"
#define DROP_15 \
	DROP_16 "ALTER TABLE iteration DROP COLUMN longest_decode;" \
		"DELETE FROM schema_log WHERE version > 14; PRAGMA user_version = 14;"
#define DROP_14 \
	DROP_15 "ALTER TABLE run DROP COLUMN n_params;" \
		"ALTER TABLE run DROP COLUMN weight_bytes;" \
		"ALTER TABLE run DROP COLUMN block_bytes;" \
		"ALTER TABLE run DROP COLUMN pool_tokens;" \
		"ALTER TABLE run DROP COLUMN gpu_bytes; ALTER TABLE run DROP COLUMN gpu_share;" \
		"ALTER TABLE run DROP COLUMN engine_defaults;" \
		"DELETE FROM schema_log WHERE version > 13; PRAGMA user_version = 13;"
#define DROP_13 \
	DROP_14 "DROP TABLE run_layer; DROP TABLE layer_phase; DROP TABLE drop_sample;" \
		"DELETE FROM schema_log WHERE version > 12; PRAGMA user_version = 12;"
#define DROP_12 \
	DROP_13 "DROP TABLE eval_prompt; DROP TABLE eval_token;" \
		"DELETE FROM schema_log WHERE version > 11; PRAGMA user_version = 11;"

/* Turn a.db, of this version, into a file of version 21: undo the last migration. */
static void test_version_21(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_22);
	is_int(whole_version(), 21, "a file of version 21 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	ok(ask(db, "SELECT count(*) FROM run WHERE barrier_spread_ns IS NULL "
		   "AND barrier_p99_ns IS NULL") == ask(db, "SELECT count(*) FROM main.run"),
	   "... and read with runs whose barriers were not timed");
	sqlite3_close(db);
	migrate(21);
}

/* Turn a.db, of this version, into a file of version 20. */
static void test_version_20(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_21);
	is_int(whole_version(), 20, "a file of version 20 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	ok(ask(db, "SELECT count(*) FROM run LEFT JOIN run_rank x USING(run_id) WHERE nccl IS NULL "
		   "AND x.host IS NULL") == ask(db, "SELECT count(*) FROM main.run") &&
		   !ask(db, "SELECT count(*) + count(comm_overlap_ns) FROM iteration_rank"),
	   "... and read with runs of one rank");
	sqlite3_close(db);
	migrate(20);
}

/* Turn a.db, of this version, into a file of version 19. */
static void test_version_19(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_20);
	is_int(whole_version(), 19, "a file of version 19 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	ok(ask(db, "SELECT count(*) FROM iteration WHERE replica IS NULL AND rowid > 0") ==
			   ask(db, "SELECT count(*) FROM main.iteration") &&
		   ask(db, "SELECT count(*) FROM request_outcome WHERE replica IS NULL") ==
			   ask(db, "SELECT count(*) FROM main.request_outcome"),
	   "... and read with runs of one engine");
	sqlite3_close(db);
	migrate(19);
}

/* Turn a.db, of this version, into a file of version 18. */
static void test_version_18(void)
{
	static const char none[] = "SELECT count(*) FROM v_run WHERE kv_refilled IS NULL "
				   "AND evict_waits IS NULL";
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_19);
	is_int(whole_version(), 18, "a file of version 18 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, none), 3, "... and read with runs that have no counts of evictors");
	sqlite3_close(db);
	migrate(18);
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, none), 3, "... which they have not");
	sqlite3_close(db);
}

/* Turn a.db, of this version, into a file of version 17. */
static void test_version_17(void)
{
	static const char none[] = "SELECT count(*) FROM v_density WHERE skipped IS NULL";
	struct ar_err err = { 0 };
	sqlite3 *db;
	int64_t n;

	change("a.db", DROP_18);
	is_int(whole_version(), 17, "a file of version 17 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	n = ask(db, none);
	ok(n > 0, "... and read with densities that have no skipped tiles (%d)", (int)n);
	sqlite3_close(db);
	migrate(17);
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, none), n, "... which they have not");
	sqlite3_close(db);
}

/* Turn a.db, of this version, into a file of version 16. */
static void test_version_16(void)
{
	static const char halves[] = "SELECT count(*) FROM accuracy_sample JOIN selection_stat "
				     "USING(run_id, req_no, chunk_no, layer, half)"
				     "WHERE half = 'prefill'";
	struct ar_err err = { 0 };
	sqlite3 *db;
	int64_t n;

	change("a.db", DROP_17);
	is_int(whole_version(), 16, "a file of version 16 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	n = ask(db, halves);
	ok(n > 0, "... and read with samples of prompts (%d)", (int)n);
	sqlite3_close(db);
	migrate(16);
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, halves), n, "... which they are");
	sqlite3_close(db);
}

/* Turn a.db, of this version, into a file of version 15. */
static void test_version_15(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_16);
	is_int(whole_version(), 15, "a file of version 15 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM v_interval WHERE metric = 'ttft' AND percentile = 50 "
		       "AND x > 0 AND lo IS NULL AND hi IS NULL AND reason IS NOT NULL"),
	       3, "... and read with figures that have no intervals, and why");
	sqlite3_close(db);
	migrate(15);
}

/* Turn a.db, of this version, into a file of version 14. */
static void test_version_14(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_15);
	is_int(whole_version(), 14, "a file of version 14 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM iteration WHERE longest_decode IS NULL AND rowid > 0"),
	       ask(db, "SELECT count(*) FROM main.iteration"),
	       "... and read with the column that it lacks");
	sqlite3_close(db);
	migrate(14);
}

/* Turn a.db, of this version, into a file of version 13. */
static void test_version_13(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_14);
	is_int(whole_version(), 13, "a file of version 13 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM v_run JOIN run USING(run_id) WHERE n_params IS NULL "
		       "AND weight_bytes IS NULL AND block_bytes IS NULL AND pool_tokens IS NULL "
		       "AND gpu_bytes IS NULL AND gpu_share IS NULL AND engine_defaults IS NULL"),
	       3, "... and read with the columns that it lacks");
	sqlite3_close(db);
	migrate(13);
}

/* Turn a.db, of this version, into a file of version 12. */
static void test_version_12(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_13);
	is_int(whole_version(), 12, "a file of version 12 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM v_run LEFT JOIN v_layer_time USING(run_id) "
		       "LEFT JOIN drop_sample USING(run_id) WHERE kind IS NULL AND mass IS NULL"),
	       3, "... and read without the tables that it lacks");
	sqlite3_close(db);
	migrate(12);
}

/* Turn a.db, of this version, into a file of version 11. */
static void test_version_11(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db", DROP_12);
	is_int(whole_version(), 11, "a file of version 11 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM run LEFT JOIN eval_prompt USING(run_id) "
		       "LEFT JOIN eval_token USING(run_id) WHERE task IS NULL AND gold IS NULL"),
	       3, "... and read with the tables that it lacks");
	sqlite3_close(db);
	migrate(11);
}

/* Turn a.db, of this version, into a file of version 10. */
static void test_version_10(void)
{
	struct ar_err err = { 0 };
	sqlite3 *db;

	change("a.db",
	       DROP_12 "DROP TABLE iteration_drop; DROP TABLE kv_group;"
		       "ALTER TABLE run DROP COLUMN driver; ALTER TABLE run DROP COLUMN sm_mhz;"
		       "ALTER TABLE run DROP COLUMN mem_mhz; DELETE FROM phase WHERE phase_id > 10;"
		       "DELETE FROM schema_log WHERE version > 10; PRAGMA user_version = 10");
	is_int(whole_version(), 10, "a file of version 10 is made");
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM v_run JOIN run USING(run_id) LEFT JOIN kv_group "
		       "USING(run_id) WHERE driver IS NULL AND kind IS NULL"),
	       3, "... and read with the columns that it lacks");
	sqlite3_close(db);
	migrate(10);
	if (store_open_read(&db, "a.db", &err))
		bail_out("%s", err.msg);
	is_int(ask(db, "SELECT count(*) FROM phase WHERE (phase_id, name) IN "
		       "(VALUES(11, 'mix'), (12, 'drop'))"),
	       2, "... with the new phases");
	sqlite3_close(db);
}

/* Turn a.db, of this version, into a file of version 6: undo the migrations. */
static void test_version_6(void)
{
	change("a.db",
	       DROP_12 "DROP TABLE iteration_drop; DROP TABLE kv_group;"
		       "ALTER TABLE run DROP COLUMN driver; ALTER TABLE run DROP COLUMN sm_mhz;"
		       "ALTER TABLE run DROP COLUMN mem_mhz");
	change("a.db", "ALTER TABLE selection_stat RENAME COLUMN empty_rows TO blind;"
		       "ALTER TABLE run DROP COLUMN boot_id; ALTER TABLE run DROP COLUMN pid_ns;"
		       "ALTER TABLE run DROP COLUMN command_utc_ns;"
		       "ALTER TABLE run DROP COLUMN method_no;"
		       "ALTER TABLE run DROP COLUMN run_key;"
		       "ALTER TABLE run DROP COLUMN repeat_no;"
		       "ALTER TABLE run DROP COLUMN energy_mj;"
		       "ALTER TABLE run DROP COLUMN energy_ns;"
		       "ALTER TABLE run DROP COLUMN energy_idle_mw;"
		       "ALTER TABLE iteration DROP COLUMN host_schedule_ns;"
		       "ALTER TABLE iteration DROP COLUMN host_prepare_ns;"
		       "ALTER TABLE iteration DROP COLUMN host_launch_ns;"
		       "ALTER TABLE iteration DROP COLUMN host_update_ns;"
		       "DROP TABLE run_capture; DROP TABLE capture;"
		       "UPDATE run SET clock = 'cpu';"
		       "UPDATE iteration SET cost_source = 'timed' WHERE cost_source IS NOT NULL;"
		       "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET "
		       "sql = replace(replace(sql, ', ''engine''', ''), ', ''modelled''', '') "
		       "WHERE name = 'run'; UPDATE sqlite_schema SET sql = replace(sql, "
		       "' OR cost_source = ''modelled''', '') WHERE name = 'iteration';"
		       "PRAGMA writable_schema = RESET;"
		       "DELETE FROM schema_log WHERE version > 6; PRAGMA user_version = 6");
	is_int(whole_version(), 6, "a file of version 6 is made");
	test_reading("a.db", 6);
	migrate(6);
}

/* A view of the user's on a view that version 6 has not. */
static void test_own_view(void)
{
	shell("rm -f a.db* && cp old.db a.db");
	change("a.db", "CREATE VIEW mine AS SELECT * FROM v_run");
	migrate(5);
}

int main(void)
{
	char dir[] = "/tmp/t-migrate-XXXXXX", command[64];

	plan(0);
	if (!mkdtemp(dir) || chdir(dir))
		bail_out("cannot make a temporary folder");
	shell("gzip -dc \"$srcdir/tests/data/version-5.db.gz\" >old.db");
	test_tables();
	test_version_21();
	test_version_20();
	test_version_19();
	test_version_18();
	test_version_17();
	test_version_16();
	test_version_15();
	test_version_14();
	test_version_13();
	test_version_12();
	test_version_11();
	test_version_10();
	test_version_6();
	test_own_view();
	test_reading("old.db", 5);
	test_ends(false, "interrupted");
	test_ends(true, "killed");
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	shell(command);
	return done_testing();
}
