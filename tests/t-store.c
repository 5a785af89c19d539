/* SPDX-License-Identifier: Apache-2.0 */
/* The database: rows are read back as they were written, also after failures and interrupts. */
#include "config.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/bootstrap.h"
#include "base/rng.h"
#include "base/stats.h"
#include "profiler/store/store.h"
#include "src/report/writer.h"
#include "tests/alloc_fault.h"
#include "tests/file.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

#define OPTIONS "{\"method\": \"dense\", \"max-num-seqs\": 256, \"rate\": 0.5, \"tile\": true}"

static const struct sample_run dense = {
	.method = "dense", .dense = true, .percent = 100, .options = OPTIONS, .full = true
};
static const struct sample_run sparse = {
	.method = "compact-fp", .percent = 50, .options = OPTIONS, .full = true
};

static char dir[] = "/tmp/t-store-XXXXXX";

/* ---- files and values ---- */

static const char *in_dir(const char *name)
{
	static char path[4][256];
	static int next;
	char *p = path[next++ & 3];

	snprintf(p, sizeof path[0], "%s/%s", dir, name);
	return p;
}

static struct store *open_store(const char *path)
{
	struct ar_err err;
	struct store *s;

	if (store_open(&s, path, &err))
		bail_out("%s", err.msg);
	return s;
}

static int64_t write_run(struct store *s, const struct sample_run *r)
{
	struct ar_err err;
	int64_t id = 0;

	if (sample_write(s, r, &id, &err))
		bail_out("%s", err.msg);
	return id;
}

/* The only value of a query, through a connection like anybody's. */
static double value(const char *path, const char *sql)
{
	sqlite3 *db;
	sqlite3_stmt *q = NULL;
	double x = NAN;

	if (sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL) ||
	    sqlite3_exec(db, store_views, NULL, NULL, NULL) ||
	    sqlite3_prepare_v2(db, sql, -1, &q, NULL) || sqlite3_step(q) != SQLITE_ROW)
		diag("%s: %s", sql, sqlite3_errmsg(db));
	else if (sqlite3_column_type(q, 0) != SQLITE_NULL)
		x = sqlite3_column_double(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(db);
	return x;
}

static void is_value(const char *path, const char *sql, double want, const char *what)
{
	double got = value(path, sql);

	if (!ok(fabs(got - want) <= 1e-9 * fabs(want), "%s", what))
		diag("%s: got %.17g, want %.17g", sql, got, want);
}

/* ---- tests ---- */

static void test_file(void)
{
	const char *path = in_dir("new.db");
	char wal[300];
	struct stat sb;

	store_close(open_store(path), NULL);
	is_value(path, "PRAGMA application_id", 0x41545250, "a new file carries the program's id");
	is_value(path, "PRAGMA user_version", 13, "a new file carries the schema's version");
	is_value(path, "PRAGMA page_size", 16384, "pages are 16 KiB");
	is_value(path, "SELECT count(*) FROM schema_log WHERE version = 13", 1,
		 "the schema's creation is on record");
	is_value(path, "SELECT phase_id FROM phase WHERE name = 'attend' AND core", 8,
		 "phases carry the program's numbers");
	is_value(path, "SELECT sum(core) FROM phase", 6, "six phases make the attention core");
	snprintf(wal, sizeof wal, "%s-wal", path);
	ok(stat(wal, &sb), "a closed database is one file");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM schema_log", 1, "opening again changes nothing");
	file_write(in_dir("empty.db"), "", 0);
	store_close(open_store(in_dir("empty.db")), NULL);
	is_value(in_dir("empty.db"), "PRAGMA user_version", 13, "an empty file is taken");
}

static void refused(const char *path, enum ar_status want, const char *words, bool reads)
{
	struct ar_err err = { 0 };
	struct store *s;
	sqlite3 *db;
	enum ar_status st;

	st = store_open(&s, path, &err);
	ok(st == want && !s, "refused for writing: %s", words);
	if (!ok(strstr(err.msg, words) && strstr(err.msg, path), "the message says so: %s", words))
		diag("%s", err.msg);
	if (!reads)
		return;
	st = store_open_read(&db, path, &err);
	if (!ok(st == AR_DATA && !db && strstr(err.msg, path), "refused for reading: %s", words))
		diag("%d %s", st, err.msg);
}

static void test_refusals(void)
{
	static const char text[] =
		"this is not a database, though it is long enough to be looked at\n";
	const char *path;
	struct ar_err err = { 0 };
	sqlite3 *db;

	path = in_dir("text");
	file_write(path, text, sizeof text - 1);
	refused(path, AR_DATA, "not a database", true);
	path = in_dir("foreign.db");
	change(path, "CREATE TABLE mine(x)");
	refused(path, AR_DATA, "not a database of attnreplay", true);
	is_value(path, "SELECT count(*) FROM sqlite_schema", 1, "a foreign file is left alone");
	path = in_dir("other.db");
	store_close(open_store(path), NULL);
	change(path, "PRAGMA user_version = 4");
	refused(path, AR_DATA, "schema version 4, this program has version 13", true);
	change(path, "PRAGMA user_version = 14");
	refused(path, AR_DATA, "schema version 14, this program has version 13", true);
	change(path, "PRAGMA user_version = 0");
	refused(path, AR_DATA, "schema version 0, this program has version 13", true);
	refused(in_dir("no/such/folder.db"), AR_IO, "check folder", true);
	refused(dir, AR_IO, "check folder", true);
	path = in_dir("nothing.db");
	file_write(path, "", 0);
	ok(store_open_read(&db, path, &err) == AR_DATA && strstr(err.msg, "empty"),
	   "an empty file cannot be read");
}

static void test_worked_numbers(void)
{
	static const struct {
		const char *metric;
		double of[6]; /* n, mean, p50, p90, p99, max */
	} want[] = {
		{ "ttft", { 2, 10.3, 10.3, 16.14, 17.454, 17.6 } },
		{ "tpot", { 2, 3.5, 3.5, 3.9, 3.99, 4 } },
		{ "itl", { 8, 3.875, 3, 6, 6, 6 } },
		{ "e2e", { 2, 25.8, 25.8, 29.96, 30.896, 31 } },
		{ "queue", { 2, 0.05, 0.05, 0.09, 0.099, 0.1 } },
	};
	const char *path = in_dir("worked.db");
	struct store *s = open_store(path);
	char sql[128], what[128];

	write_run(s, &dense);
	store_close(s, NULL);
	for (size_t i = 0; i < sizeof want / sizeof *want; i++) {
		static const char *const col[] = { "n", "mean", "p50", "p90", "p99", "max" };

		for (int k = 0; k < 6; k++) {
			snprintf(sql, sizeof sql, "SELECT %s FROM v_latency WHERE metric = '%s'",
				 col[k], want[i].metric);
			snprintf(what, sizeof what, "%s of %s is as worked by hand", col[k],
				 want[i].metric);
			is_value(path, sql, want[i].of[k], what);
		}
	}
}

/* The same requests as other tools see them; the deviation is that of the whole population. */
static void test_other_tools(void)
{
	static const struct {
		const char *view, *where, *column;
		double want;
	} of[] = {
		{ "vllm", "figure = 'Mean TTFT (ms)'", "value", 10.3 },
		{ "vllm", "figure = 'P99 TTFT (ms)'", "value", 17.454 },
		{ "vllm", "figure = 'Mean TPOT (ms)'", "value", 3.5 },
		{ "vllm", "figure = 'P99 TPOT (ms)'", "value", 3.99 },
		{ "vllm", "figure = 'Mean ITL (ms)'", "value", 3.875 },
		{ "vllm", "figure = 'Median ITL (ms)'", "value", 3 },
		{ "vllm", "figure = 'Request throughput (req/s)'", "value", 2 / 0.031 },
		{ "vllm", "figure = 'Output token throughput (tok/s)'", "value", 10 / 0.031 },
		{ "vllm", "figure = 'Total Token throughput (tok/s)'", "value", 32 / 0.031 },
		{ "aiperf", "metric = 'Inter Token Latency (ms)'", "std", 0.5 },
		{ "aiperf", "metric = 'Inter Token Latency (ms)'", "p99", 3.99 },
		{ "aiperf", "metric = 'Input Sequence Length (tokens)'", "avg", 11 },
		{ "aiperf", "metric = 'Prefill Throughput (tokens/sec)'", "max", 20 / 0.0176 },
		{ "vidur", "metric = 'decode_time_execution_plus_preemption_normalized'", "max",
		  0.0035 },
		{ "vidur", "metric = 'decode_time_execution_plus_preemption_normalized'", "min",
		  0.0015 },
		{ "vidur", "metric = 'request_e2e_time_normalized'", "min", 0.003875 },
		{ "vidur", "metric = 'request_e2e_time_normalized'", "max", 0.0103 },
		{ "vidur", "metric = 'request_scheduling_delay'", "max", 0.0001 },
		{ "llmservingsim", "figure = 'P99 TPOT (ms)'", "value", 3.99 },
		{ "llmservingsim", "figure = 'Total latency (s)'", "value", 0.031 },
		{ "splitwise", "metric = 'tbt_times'", "mean", 0.0025 },
		{ "splitwise", "metric = 'ttft_times'", "p90", 0.01614 },
	};
	const char *path = in_dir("worked.db");
	char sql[200];

	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		snprintf(sql, sizeof sql, "SELECT \"%s\" FROM v_metrics_%s WHERE %s", of[i].column,
			 of[i].view, of[i].where);
		is_value(path, sql, of[i].want, sql);
	}
	is_value(path, "SELECT round(std, 5) FROM v_dist WHERE tool = 'vllm' AND metric = 'ITL'",
		 1.53603, "the deviation of ITL is as worked by hand");
}

/* {1, 2, 3, 4, 10}, as times and as one time that came often. */
static void test_weights(void)
{
	static const int64_t x[] = { 1, 2, 3, 4, 10 };
	const char *path = in_dir("weights.db");
	struct store *s = open_store(path);
	struct store_run r = sample_record(&dense);
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	for (int i = 0; i < 5; i++)
		store_gap(s, &(struct row_token_gap){ .itl_ns = x[i] * 1000000, .n = 1 }, NULL);
	store_run_end(s, "done", NULL, NULL);
	store_run_begin(s, &r, &id, NULL);
	store_gap(s, &(struct row_token_gap){ .itl_ns = 1000000, .n = 999 }, NULL);
	store_gap(s, &(struct row_token_gap){ .itl_ns = 3000000, .n = 2 }, NULL);
	store_run_end(s, "done", NULL, NULL);
	store_close(s, NULL);
#define ITL(run) " FROM v_dist WHERE tool = 'attnreplay' AND metric = 'itl' AND run_id = " #run
	is_value(path, "SELECT p50" ITL(1), 3, "the median of five");
	is_value(path, "SELECT p90" ITL(1), 7.6, "their 90th percentile");
	is_value(path, "SELECT p95" ITL(1), 8.8, "their 95th percentile");
	is_value(path, "SELECT p99" ITL(1), 9.76, "their 99th percentile");
	is_value(path, "SELECT round(std, 5)" ITL(1), 3.16228, "their deviation");
	is_value(path, "SELECT n" ITL(2), 1001, "a time counts as often as it came");
	is_value(path, "SELECT mean" ITL(2), 1005 / 1001.0, "... in the mean");
	is_value(path, "SELECT p99" ITL(2), 1, "... in percentiles");
	is_value(path, "SELECT p999" ITL(2), 3, "... up to the last ones");
#undef ITL
}

static void test_rows(void)
{
	const char *path = in_dir("rows.db");
	struct store *s = open_store(path);

	write_run(s, &dense);
	write_run(s, &sparse);
	store_close(s, NULL);
	is_value(path, "SELECT count(*) FROM trace", 1, "two runs of one trace share its row");
	is_value(path, "SELECT count(*) FROM model", 1, "... and their model's");
	is_value(path, "SELECT count(*) FROM gpu", 1, "... and their device's");
	is_value(path, "SELECT count(*) FROM method", 2, "two methods are two rows");
	is_value(path,
		 "SELECT count(*) FROM run WHERE status = 'done' AND finished_utc_ns >= "
		 "started_utc_ns AND cupti_api = 130001 AND layers_run = 32 AND num_blocks = 100 "
		 "AND block_tokens = 16 AND seed = 1",
		 2, "a run keeps its facts");
	is_value(path,
		 "SELECT count(*) FROM run_param WHERE run_id = 1 AND (key, typeof(value), "
		 "value) IN (('max-num-seqs', 'integer', 256), ('rate', 'real', 0.5), ('tile', "
		 "'integer', 1), ('method', 'text', 'dense'))",
		 4, "options become rows with their types");
	is_value(path,
		 "SELECT count(*) FROM iteration WHERE run_id = 1 AND stop = 'budget' AND "
		 "span_ns = end_ns - start_ns AND busy_ns = span_ns - 1000 AND host_ns = 0 AND "
		 "blocks_used = 3 AND running = 2 AND waiting = 0",
		 8, "iterations come back");
	is_value(path,
		 "SELECT count(*) FROM iteration WHERE run_id = 1 AND cost_source = 'timed' "
		 "AND prefill_pairs = 30 + iter_no AND decode_context = 60 + iter_no AND "
		 "composition = -1 - iter_no",
		 8, "... with what their cost depends on");
	is_value(path, "SELECT ms FROM v_cost_source WHERE run_id = 1", 31,
		 "time is summed by the source of the cost");
	is_value(path, "SELECT sum(batch_size) FROM iteration WHERE run_id = 1", 12,
		 "the batch size is counted");
	is_value(path,
		 "SELECT sum(n_tokens) FROM iteration_request WHERE run_id = 1 AND NOT "
		 "decode",
		 22, "all prompt tokens are in entries");
	is_value(path, "SELECT sum(emit) FROM iteration_request WHERE run_id = 1", 10,
		 "entries emit as many tokens as the requests asked for");
	is_value(path, "SELECT count(*) FROM iteration_phase", 2 * 8 + 3 * 8,
		 "phases without time have no row");
	is_value(path, "SELECT count(*) FROM kernel_event", 2 * 8 + 3 * 8, "kernels come back");
	is_value(path, "SELECT count(*) FROM kernel_shape", 3, "equal launches share a shape");
	is_value(path,
		 "SELECT count(*) FROM v_kernel WHERE run_id = 2 AND iter_no = 3 AND "
		 "name LIKE '%_kernel' AND grid_x = 132 AND smem_dynamic = 200000",
		 3, "an iteration finds its kernels by their range");
	is_value(path, "SELECT count(*) FROM v_kernel WHERE layer IS NULL AND phase = 'head'", 16,
		 "a kernel outside of the layers has none");
	is_value(path, "SELECT min(start_ns) FROM v_kernel", 1700000000000000000.0,
		 "kernel times keep their base");
	is_value(path,
		 "SELECT sum(dur_ns) - (SELECT sum(gpu_ns) FROM iteration_phase) FROM "
		 "kernel_event",
		 0, "phases sum the kernels' times");
	is_value(path,
		 "SELECT max(chunk_start) FROM accuracy_sample WHERE chunk_tokens = 6 AND "
		 "req_no = 1 AND chunk_no = 2 AND head = 3 AND rel_l2 = 0.04",
		 14, "accuracy keeps the chunk's boundaries");
	is_value(path,
		 "SELECT count(*) FROM v_accuracy WHERE layer = 3 AND n = 16 AND rel_l2_max "
		 "= 0.04 AND cosine_min = 0.997",
		 2, "accuracy is summarised by layer");
	is_value(path, "SELECT executed FROM v_density WHERE run_id = 1", 0.55,
		 "densities are ratios of sums");
	is_value(path, "SELECT max(abs(rel_diff - 0.01 / 1.01)) < 1e-6 FROM v_clock", 1,
		 "the clock is compared with events");
	is_value(path, "SELECT share FROM v_phase_time WHERE run_id = 2 AND phase = 'select'", 0.1,
		 "a phase's share is of its run");
}

static void test_counts(void)
{
	const char *path = in_dir("counts.db");
	const struct sample_run r = { .percent = 100, .options = "{}" };
	const struct store_run record = sample_record(&r);
	struct store *s = open_store(path);
	struct store_selection sel = { .row.req_no = 1 };
	const struct row_run_layer layer = { .layer = 3, .kind = "window", .n_rows = 7 };
	const struct row_layer_phase time = { 0, 3, PHASE_ATTEND, 2, 4000000 };
	const struct row_drop_sample kept = { .layer = 3, .mass = 0.75, .top_recall = 0.5 };
	int64_t id;
	int n = 0;

#define X(name, doc) sel.count.name = ++n;
	SELECTION_COUNTS(X)
#undef X
	if (store_run_begin(s, &record, &id, NULL) || store_selection(s, &sel, NULL) ||
	    store_layer(s, &layer, NULL) || store_layer_phase(s, &time, NULL) ||
	    store_kept(s, &kept, NULL) || store_run_end(s, "done", NULL, NULL))
		bail_out("no run");
	store_close(s, NULL);
	n = 0;
#define X(name, doc) \
	is_value(path, "SELECT " #name " FROM selection_stat", ++n, #name " is stored");
	SELECTION_COUNTS(X)
#undef X
	is_value(path, "SELECT layers * ms FROM v_layer_time WHERE kind = 'window'", 4,
		 "the time of a kind of layers");
	is_value(path, "SELECT mass + top_recall FROM drop_sample WHERE layer = 3", 1.25,
		 "and what was kept");
}

static void test_views(void)
{
	const char *path = in_dir("rows.db");
	sqlite3 *db;
	sqlite3_stmt *views = NULL, *q = NULL;
	char sql[128];
	int n = 0;

	is_value(path, "SELECT count(*) FROM sqlite_schema WHERE type = 'view'", 0,
		 "the file has no views");
	change(path, "UPDATE run SET energy_mj = 1, energy_ns = 1, energy_idle_mw = 1;"
		     "INSERT INTO run_layer VALUES(1, 0, 'full', 1, 1, 1, 1, 1);"
		     "INSERT INTO layer_phase VALUES(1, 0, 1, 1, 1)");
	sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
	ok(!sqlite3_exec(db, store_views, NULL, NULL, NULL), "anybody can make them");
	sqlite3_prepare_v2(db, "SELECT name FROM sqlite_temp_schema WHERE type = 'view'", -1,
			   &views, NULL);
	while (sqlite3_step(views) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(views, 0);

		snprintf(sql, sizeof sql, "SELECT * FROM %s", name);
		sqlite3_prepare_v2(db, sql, -1, &q, NULL);
		ok(sqlite3_step(q) == SQLITE_ROW, "view %s needs no function of ours and has rows",
		   name);
		sqlite3_finalize(q);
		n++;
	}
	is_int(n, 28, "all views were tried");
	sqlite3_finalize(views);
	sqlite3_close(db);
}

/* The values a run's requests wait for their first token, ms; sorted in x. */
static size_t random_run(struct store *s, struct rng *rng, size_t most, double *x)
{
	const struct sample_run r = { .percent = 100, .options = "{}" };
	const struct store_run record = sample_record(&r);
	size_t n = 1 + rng_below(rng, most);
	int64_t id;

	if (store_run_begin(s, &record, &id, NULL))
		bail_out("no run");
	for (size_t i = 0; i < n; i++) {
		int64_t t = (int64_t)rng_below(rng, 1000000000);
		const struct row_request_outcome o = { .req_no = (int64_t)i,
						       .first_token_ns = t,
						       .finish_ns = t,
						       .output_tokens = 1,
						       .outcome = "ok" };

		x[i] = (double)t / 1e6;
		store_outcome(s, &o, NULL);
	}
	store_run_end(s, "done", NULL, NULL);
	stats_sort(x, n);
	return n;
}

static void test_percentiles(void)
{
	enum { RUNS = 40, MOST = 500 };
	static double x[RUNS][MOST];
	static const double p[] = { 50, 90, 95, 99 };
	const char *path = in_dir("random.db");
	struct store *s = open_store(path);
	struct rng rng = { 7 };
	size_t n[RUNS];
	bool same = true, same_fn = true;
	sqlite3 *db;
	sqlite3_stmt *q;
	int runs = 0;

	for (int i = 0; i < RUNS; i++)
		n[i] = random_run(s, &rng, i < RUNS / 2 ? 12 : MOST, x[i]);
	store_close(s, NULL);
	if (store_open_read(&db, path, NULL) ||
	    sqlite3_prepare_v2(db,
			       "SELECT v.run_id - 1, p50, p90, p95, p99, percentile(ttft_ns, "
			       "50) / 1e6, percentile(ttft_ns, 90) / 1e6, percentile(ttft_ns, 95) "
			       "/ 1e6, percentile(ttft_ns, 99) / 1e6 FROM v_latency v JOIN "
			       "request_outcome USING(run_id) WHERE metric = 'ttft' GROUP BY "
			       "v.run_id",
			       -1, &q, NULL))
		bail_out("cannot query %s", path);
	for (; sqlite3_step(q) == SQLITE_ROW; runs++)
		for (int k = 0; k < 4; k++) {
			int i = sqlite3_column_int(q, 0);
			double want = stats_percentile(x[i], n[i], p[k]);

			same = same && fabs(sqlite3_column_double(q, 1 + k) - want) <= 1e-9 * want;
			same_fn = same_fn &&
				  fabs(sqlite3_column_double(q, 5 + k) - want) <= 1e-9 * want;
		}
	sqlite3_finalize(q);
	sqlite3_close(db);
	ok(same && runs == RUNS, "the view's percentiles follow the linear rule on random samples");
	ok(same_fn, "so does the function");
}

static void is_sql(sqlite3 *db, const char *sql, const char *want, const char *what)
{
	sqlite3_stmt *q = NULL;
	const char *got;
	int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);

	if (!rc)
		rc = sqlite3_step(q);
	got = rc == SQLITE_ROW ? (const char *)sqlite3_column_text(q, 0) : sqlite3_errmsg(db);
	if (got && strstr(want, "*"))
		ok(strstr(got, want + 1), "%s", what);
	else
		is_str(got ? got : "NULL", want, "%s", what);
	sqlite3_finalize(q);
}

static void test_functions(void)
{
#define FIVE "(VALUES (1), (2), (NULL), (3), (4), (10))"
	sqlite3 *db;

	if (store_open_read(&db, in_dir("rows.db"), NULL))
		bail_out("cannot read");
	is_sql(db, "SELECT median(column1) FROM " FIVE, "3.0", "the median skips NULL");
	is_sql(db, "SELECT percentile(column1, 90) FROM " FIVE, "7.6",
	       "the 90th percentile by hand");
	is_sql(db, "SELECT percentile(column1, 99) FROM " FIVE, "9.76",
	       "the 99th percentile by hand");
	is_sql(db, "SELECT median(column1) FROM " FIVE " WHERE 0", "NULL", "of nothing is NULL");
	is_sql(db,
	       "SELECT group_concat(m) FROM (SELECT median(column1) OVER (ORDER BY column1 "
	       "ROWS BETWEEN 1 PRECEDING AND 1 FOLLOWING) AS m FROM (VALUES (1), (5), (2), (9)))",
	       "1.5,2.0,5.0,7.0", "the median slides as a window function");
	is_sql(db, "SELECT percentile(column1, 101) FROM " FIVE, "*from 0 to 100",
	       "a percentile above 100 is an error");
	is_sql(db, "SELECT percentile(column1, column1) FROM (VALUES (1), (2))",
	       "*same in all rows", "a percentile that changes is an error");
	is_sql(db, "SELECT runs(column1) FROM (VALUES (9), (4), (NULL), (5), (5), (3), (1), (8))",
	       "runs 1, 3 to 5, 8, 9", "numbers of runs have ranges");
	is_sql(db, "SELECT runs(7)", "run 7", "... of one run there is none");
	is_sql(db, "SELECT runs(column1) FROM " FIVE " WHERE 0", "NULL", "... nor of no run");
	is_sql(db, "SELECT printf('%.9f', mcnemar(9, 1))", "0.021484375",
	       "McNemar's p of ten pairs by hand");
	is_sql(db, "SELECT coalesce(mcnemar(NULL, 1), mcnemar(1, NULL))", "NULL",
	       "... of an unknown count is NULL");
	is_sql(db, "SELECT mcnemar(-1, 2)", "*two counts", "... and of a negative one an error");
	is_sql(db, "SELECT mcnemar(2, 1e9)", "*up to a million", "... or of a huge one");
	is_sql(db,
	       "SELECT printf('%.9f', spearman(column1, column2)) FROM "
	       "(VALUES (1, 5), (2, 6), (NULL, 0), (3, NULL), (4, 4))",
	       "-0.500000000", "the rank correlation of three pairs by hand skips NULL");
	is_sql(db, "SELECT spearman(column1, 1) FROM " FIVE, "NULL", "... with a constant is NULL");
	is_sql(db, "SELECT spearman(column1, 1) FROM " FIVE " WHERE 0", "NULL",
	       "... of nothing is NULL");
	sqlite3_close(db);
}

/* 600 values in an order in which neighbours are alike. */
#define WAVE \
	"(WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 599) " \
	"SELECT i, i / 60 * 100 + i * 37 % 60 AS x FROM n)"

/* The interval that SQL has of percentile p is that of base/bootstrap.h. */
static void is_interval(const char *sql, const struct sample *s, size_t block, double p,
			const char *what)
{
	const struct bootstrap b = { 400, 1, block };
	double draw[400], lo, hi;
	char want[64];
	sqlite3 *db;

	if (store_open_read(&db, in_dir("rows.db"), NULL) || bootstrap_draw(&b, s, p, draw, NULL))
		bail_out("cannot read");
	bootstrap_interval(draw, 400, 0.95, &lo, &hi);
	snprintf(want, sizeof want, "%.9f %.9f", lo, hi);
	is_sql(db, sql, want, what);
	sqlite3_close(db);
}

static void test_distribution(void)
{
	double x[600], sorted[600];
	int64_t times[600];
	struct sample s;

	for (int i = 0; i < 600; i++) {
		x[i] = sorted[i] = i / 60 * 100 + i * 37 % 60;
		times[i] = 2;
	}
	if (sample_of_values(&s, x, 600, NULL))
		bail_out("no memory");
#define ENDS(d, lo, hi) \
	"SELECT printf('%.9f %.9f', json_extract(d, '$[" lo "]'), json_extract(d, '$[" hi "]')) " \
	"FROM (SELECT " d " AS d FROM " WAVE ")"
	is_interval(ENDS("distribution(x)", "7", "8"), &s, bootstrap_block(600), 50,
		    "the interval of p50 is of blocks");
	is_interval(ENDS("distribution(x)", "11", "12"), &s, bootstrap_block(600), 99,
		    "... so is that of p99");
	sample_release(&s);
	stats_sort(sorted, 600);
	if (sample_of_counts(&s, sorted, times, 600, NULL))
		bail_out("no memory");
	is_interval(ENDS("distribution(x, 2)", "9", "10"), &s, 0, 90,
		    "values that are counted are independent, whatever their order");
	sample_release(&s);
}

static void test_few_values(void)
{
	sqlite3 *db;

	if (store_open_read(&db, in_dir("rows.db"), NULL))
		bail_out("cannot read");
	is_sql(db, "SELECT distribution(column1) FROM (VALUES (1000), (NULL), (0), (500))",
	       "[3,500.0,500.0,900.0,950.0,990.0,1000.0,null,null,null,null,null,null]",
	       "few values have no interval");
	is_sql(db, "SELECT json_extract(distribution(1), '$[8]') FROM " WAVE " WHERE i < 10", "1.0",
	       "ten values have one of the median");
	is_sql(db, "SELECT json_extract(distribution(1), '$[9]') FROM " WAVE " WHERE i < 49",
	       "NULL", "49 have none of p90");
	is_sql(db, "SELECT distribution(1, 0)", "NULL", "what did not occur has no distribution");
	is_sql(db, "SELECT distribution(x) FROM " WAVE " WHERE 0", "NULL", "nor has nothing");
	sqlite3_close(db);
}

static int count_rows(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *q = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);

	if (!rc)
		rc = sqlite3_step(q);
	sqlite3_finalize(q);
	return rc;
}

static void test_distribution_faults(const char *sql)
{
	int bad = 0;
	long k = 0;
	sqlite3 *db;

	if (store_open_read(&db, in_dir("rows.db"), NULL))
		bail_out("cannot read");
	for (;; k++) {
		int rc;

		fault_arm(k);
		rc = count_rows(db, sql);
		if (!fault_disarm())
			break;
		bad += rc != SQLITE_NOMEM && rc != SQLITE_ROW;
	}
	ok(!bad && k > 8, "%s: each of %ld allocations fails cleanly", sql, k);
	sqlite3_close(db);
}

static void test_baseline(void)
{
	const char *path = in_dir("base.db");
	struct store *s = open_store(path);
	struct sample_run other = sparse, none = { .percent = 100, .options = OPTIONS };
	struct sample_run renamed = sparse;
	struct store_run r = sample_record(&dense);
	int64_t id;

	write_run(s, &sparse); /* 1: before its baseline */
	is_int(store_run_begin(s, &r, &id, NULL), AR_OK, "a dense run begins");
	store_run_end(s, "failed", NULL, NULL); /* 2: fails */
	write_run(s, &dense);			/* 3 */
	write_run(s, &sparse);			/* 4: after it */
	other.options = "{\"method\": \"dense\", \"max-num-seqs\": 128, \"rate\": 0.5, \"tile\": "
			"true}";
	write_run(s, &other); /* 5: another setup */
	write_run(s, &dense); /* 6 */
	renamed.options = "{\"tile\": true, \"max-num-seqs\": 256, \"rate\": 0.5, \"method\": "
			  "\"x\", "
			  "\"db\": \"y\"}";
	renamed.setup = OPTIONS;
	write_run(s, &renamed); /* 7: other options, the same setup */
	none.method = NULL;
	write_run(s, &none); /* 8 */
	store_close(s, NULL);
	is_value(path, "SELECT baseline_run_id FROM run WHERE run_id = 1", 3,
		 "a run before its dense run is paired when that is done");
	is_value(path, "SELECT baseline_run_id FROM run WHERE run_id = 4", 3,
		 "a run after its dense run is paired with it");
	is_value(path, "SELECT count(baseline_run_id) FROM run WHERE run_id = 5", 0,
		 "another setup is not comparable");
	is_value(path, "SELECT baseline_run_id FROM run WHERE run_id = 7", 6,
		 "the latest dense run before with the same setup is taken, whatever the options");
	is_value(path, "SELECT count(baseline_run_id) FROM run WHERE run_id IN (2, 3, 6, 8)", 0,
		 "dense runs and runs without method have no baseline");
	is_value(path, "SELECT count(*) FROM v_pair", 3, "pairs are of runs that are done");
	is_value(path, "SELECT speedup_p99 FROM v_vs_dense WHERE run_id = 4 AND metric = 'itl'", 2,
		 "half the time is a speed-up of two");
	is_value(path, "SELECT min(ttft_speedup) FROM v_paired WHERE run_id = 4", 2,
		 "also request by request");
}

static void test_losses(void)
{
	const char *path = in_dir("loss.db");
	struct store *s = open_store(path);
	const struct prof_loss loss[] = { { 10, 1, 2, 3, 4 }, { 30, 1, 2, 4, 4 } };
	struct store_run r = sample_record(&dense);
	int64_t id;

	for (int i = 0; i < 2; i++) {
		store_run_begin(s, &r, &id, NULL);
		store_run_end(s, "done", &loss[i], NULL);
	}
	store_close(s, NULL);
	is_value(path, "SELECT lost_records FROM v_run WHERE run_id = 1", 10,
		 "losses are recorded");
	is_value(path,
		 "SELECT records * 100 + unattributed * 10 + dropped FROM run WHERE run_id = "
		 "2",
		 2010, "a session's counts become those of the run");
}

/* ---- failures ---- */

/* A child writes until it is killed; it says on a pipe when it has begun. */
static void write_for_ever(const char *path, int fd)
{
	struct store *s = open_store(path);
	struct store_run r = sample_record(&dense);
	struct store_entry e[50] = { { 0 } };
	struct store_iteration it = { .entry = e, .n_entry = 50, .row.event_ns = -1 };
	int64_t id;

	for (uint32_t i = 0; i < 50; i++)
		e[i].req = i;
	store_run_begin(s, &r, &id, NULL);
	for (;; it.row.iter_no++) {
		if (store_iteration(s, &it, NULL))
			_exit(1);
		if (it.row.iter_no == 100 && write(fd, "x", 1) != 1)
			_exit(1);
	}
}

static void test_kill(void)
{
	const char *path = in_dir("kill.db");
	int fd[2], ended;
	char c;
	pid_t child;

	if (pipe(fd))
		bail_out("no pipe");
	child = fork();
	if (!child)
		write_for_ever(path, fd[1]);
	if (child < 0 || read(fd[0], &c, 1) != 1)
		bail_out("the child did not begin");
	for (int i = 0; i < 300 && !(value(path, "SELECT count(*) FROM iteration") > 100); i++)
		usleep(100000);
	kill(child, SIGKILL);
	waitid(P_PID, (id_t)child, NULL, WEXITED | WNOWAIT);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "its run is readable, as running");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'aborted'", 1,
		 "the next to open the database marks it aborted, a zombie as well");
	waitpid(child, &ended, 0);
	ok(WIFSIGNALED(ended), "the writing process was killed");
	ok(value(path, "SELECT count(*) FROM iteration") > 100, "its iterations were kept");
	is_value(path, "SELECT max(iter_no) + 1 - count(*) FROM iteration", 0, "without a gap");
	is_value(path,
		 "SELECT count(*) - 50 * (SELECT count(*) FROM iteration) FROM "
		 "iteration_request",
		 0, "each with all of its rows");
	close(fd[0]);
	close(fd[1]);
}

static void test_alive(void)
{
	const char *path = in_dir("alive.db");
	struct store *s = open_store(path), *t;
	struct store_run r = sample_record(&dense);
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	t = open_store(path);
	store_close(t, NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "a run of a living process stays running");
	store_close(s, NULL);
	change(path, "UPDATE run SET pid_start = pid_start - 1, boot_id = 'x' || boot_id");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "a run of another host or an earlier boot is not judged");
	change(path, "UPDATE run SET boot_id = substr(boot_id, 2), pid_ns = pid_ns + 1");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'running'", 1,
		 "nor is one of another PID namespace");
	change(path, "UPDATE run SET pid_ns = pid_ns - 1");
	store_close(open_store(path), NULL);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'aborted'", 1,
		 "a process number that was given out again does not count as living");
}

static void test_pause(void)
{
	const char *path = in_dir("pause.db");
	struct store *s = open_store(path);
	struct store_run r = sample_record(&dense);
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	sample_iteration(s, &dense, 0, NULL);
	usleep(700000);
	is_value(path, "SELECT count(*) FROM iteration", 1, "what is written shows after a pause");
	store_close(s, NULL);
	is_value(path, "SELECT count(*) FROM iteration", 1, "and stays");
}

static void test_full_disk(void)
{
	const char *path = in_dir("full.db");
	static struct store_entry e[20000];
	struct store_iteration it = { .entry = e, .n_entry = 20000 };
	struct store *s = open_store(path);
	struct store_run r = sample_record(&dense);
	struct ar_err err = { 0 }, again = { 0 };
	struct rlimit old, small;
	int64_t id;
	enum ar_status st = AR_OK;

	for (uint32_t i = 0; i < 20000; i++)
		e[i].req = i;
	store_run_begin(s, &r, &id, NULL);
	signal(SIGXFSZ, SIG_IGN);
	getrlimit(RLIMIT_FSIZE, &old);
	small = old;
	small.rlim_cur = 4 << 20;
	setrlimit(RLIMIT_FSIZE, &small);
	for (; it.row.iter_no < 1000 && !st; it.row.iter_no++)
		st = store_iteration(s, &it, &err);
	is_int(st, AR_IO, "a full disk is an output error");
	if (!ok(strstr(err.msg, path) && strstr(err.msg, "holds all committed iterations"),
		"it names the file and says what is safe"))
		diag("%s", err.msg);
	is_int(store_run_end(s, "failed", NULL, &again), AR_IO, "every later call fails as well");
	is_str(again.msg, err.msg, "with the same message");
	is_int(store_close(s, &again), AR_IO, "so does closing");
	setrlimit(RLIMIT_FSIZE, &old);
	is_value(path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check", 1,
		 "the file is in order");
	is_value(path, "SELECT count(*) > 0 AND max(iter_no) + 1 = count(*) FROM iteration", 1,
		 "it holds iterations without a gap");
	is_value(path,
		 "SELECT count(*) - 20000 * (SELECT count(*) FROM iteration) FROM "
		 "iteration_request",
		 0, "each with all of its rows");
}

static void test_bad_rows(void)
{
	const char *path = in_dir("bad.db");
	struct store *s = open_store(path);
	struct store_run r = sample_record(&dense);
	const struct row_request_outcome o = { .outcome = "lost" };
	struct ar_err err = { 0 };
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	sample_iteration(s, &dense, 0, NULL);
	store_outcome(s, &o, NULL);
	is_int(store_run_end(s, "done", NULL, &err), AR_DB, "a row against the schema is an error");
	ok(strstr(err.msg, "constraint"), "SQLite's reason is passed on");
	is_int(store_close(s, NULL), AR_DB, "closing repeats it");
	s = open_store(path);
	r.options = "{";
	is_int(store_run_begin(s, &r, &id, &err), AR_DB, "options that are no JSON are an error");
	store_close(s, NULL);
	is_value(path, "SELECT count(*) FROM run", 1, "and leave no run behind");
}

static enum ar_status write_captures(const char *path, const char *origin, struct ar_err *err)
{
	const struct store_capture c = { { .name = "a.arc", .sha256 = "00", .model = "m" },
					 origin };
	struct store_run r = sample_record(&dense);
	struct store *s;
	int64_t id;
	enum ar_status st = store_open(&s, path, err), close_st;

	if (st)
		return st;
	r.capture = (const struct store_capture[]){ c, c };
	r.n_capture = 2;
	st = store_run_begin(s, &r, &id, err);
	if (!st)
		st = store_run_end(s, "done", NULL, err);
	close_st = store_close(s, NULL);
	return st ? st : close_st;
}

static void test_captures(void)
{
	const char *path = in_dir("captures.db");
	struct ar_err err;
	bool clean = true;
	long k = 0;

	is_int(write_captures(path, "other", &err), AR_OK, "a run has captures");
	is_int(write_captures(path, "stolen", &err), AR_DB, "... of the origins that there are");
	is_value(path, "SELECT count(*) FROM run", 1, "... or it leaves no run behind");
	for (;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = write_captures(path, "same", &err);
		if (!fault_disarm())
			break;
		clean &= st == AR_NOMEM;
	}
	ok(clean && k > 5, "each of %ld allocations fails cleanly", k);
	is_value(path, "SELECT count(*) FROM capture", 1, "a capture is one row");
	is_value(path,
		 "SELECT count(*) = 2 * (SELECT count(*) FROM run) FROM run_capture "
		 "JOIN capture USING(capture_id) WHERE sha256 = '00' AND capture_no IN (0, 1)",
		 1, "... in each of its places in each run");
}

static enum ar_status write_all(const char *path, struct ar_err *err)
{
	struct store *s;
	int64_t id;
	enum ar_status st = store_open(&s, path, err), close_st;

	if (st)
		return st;
	st = sample_write(s, &sparse, &id, err);
	close_st = store_close(s, NULL);
	return st ? st : close_st;
}

static void test_faults(void)
{
	const char *path = in_dir("fault.db");
	struct ar_err err;
	bool clean = true;
	long k = 0;

	store_close(open_store(path), NULL);
	for (;; k++) {
		enum ar_status st;

		fault_arm(k);
		st = write_all(path, &err);
		if (!fault_disarm())
			break;
		if (st != AR_NOMEM) {
			diag("allocation %ld: status %d", k, st);
			clean = false;
		}
	}
	ok(clean && k > 5, "each of %ld allocations fails cleanly", k);
	is_value(path, "SELECT count(*) FROM run WHERE status = 'done'", 1,
		 "only the run without a fault is done");
	is_value(path, "SELECT integrity_check = 'ok' FROM pragma_integrity_check", 1,
		 "the file is in order after all of them");
}

static enum ar_status write_once(sqlite3 *db, const struct report_writer *w, struct ar_err *err)
{
	struct document d = { .writer = w, .f = fopen("/dev/null", "w") };
	sqlite3_stmt *q = NULL;
	enum ar_status st;

	if (!d.f || sqlite3_prepare_v2(db,
				       "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + "
				       "1 FROM n WHERE i < 200) SELECT 'x' AS a, median(i) OVER "
				       "(ORDER BY i) AS m FROM n",
				       -1, &q, NULL))
		bail_out("cannot write: %s", sqlite3_errmsg(db));
	st = writer_query(&d, q, err);
	writer_finish(&d);
	sqlite3_finalize(q);
	fclose(d.f);
	return st;
}

static void test_writer_faults(void)
{
	struct ar_err err;
	sqlite3 *db;

	if (store_open_read(&db, in_dir("rows.db"), NULL))
		bail_out("cannot read");
	for (int i = 0; writers[i]; i++) {
		bool clean = true;
		long k = 0;

		for (;; k++) {
			enum ar_status st;

			fault_arm(k);
			st = write_once(db, writers[i], &err);
			if (!fault_disarm())
				break;
			clean = clean && st == AR_NOMEM;
		}
		ok(clean && k > 200, "%s: each of %ld allocations fails cleanly", writers[i]->name,
		   k);
	}
	sqlite3_close(db);
}

int main(void)
{
	char command[64];

	plan(0);
	if (!mkdtemp(dir))
		bail_out("cannot make a temporary folder");
	test_file();
	test_refusals();
	test_worked_numbers();
	test_other_tools();
	test_weights();
	test_rows();
	test_counts();
	test_views();
	test_percentiles();
	test_functions();
	test_distribution();
	test_few_values();
	test_distribution_faults("SELECT distribution(x) FROM " WAVE);
	test_distribution_faults("SELECT distribution(x, 1) FROM " WAVE);
	test_baseline();
	test_losses();
	test_kill();
	test_alive();
	test_pause();
	test_full_disk();
	test_bad_rows();
	test_captures();
	test_faults();
	test_writer_faults();
	snprintf(command, sizeof command, "rm -rf '%s'", dir);
	if (system(command))
		diag("cannot remove %s", dir);
	return done_testing();
}
