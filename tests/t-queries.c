/* SPDX-License-Identifier: Apache-2.0 */
/* Queries of a database: its views, the functions of SQL that the program adds, and the
 * baseline of a run. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/rng.h"
#include "base/stats.h"
#include "profiler/store/store.h"
#include "profiler/store/stored_views.h"
#include "src/report/writer.h"
#include "tests/alloc_fault.h"
#include "tests/query.h"
#include "tests/store_case.h"
#include "tests/tap.h"

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

	write_run(s, &case_dense);
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
	struct store_run r = sample_record(&case_dense);
	int64_t id;

	store_run_begin(s, &r, &id, NULL);
	for (int i = 0; i < 5; i++)
		store_gap(s, &(struct row_token_gap){ .itl_ns = x[i] * 1000000, .n = 1 }, NULL);
	store_run_end(s, "done", NULL, NULL, NULL);
	store_run_begin(s, &r, &id, NULL);
	store_gap(s, &(struct row_token_gap){ .itl_ns = 1000000, .n = 999 }, NULL);
	store_gap(s, &(struct row_token_gap){ .itl_ns = 3000000, .n = 2 }, NULL);
	store_run_end(s, "done", NULL, NULL, NULL);
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

/* Replicates 0 ... 40 of a run, whose latencies are as many ms, over a divisor. */
#define REPLICATES(run, key, by) \
	"INSERT INTO resampling VALUES(" #run ", 41, 'request', 2, 1, " #key \
	", 0, 0, 0, 0, 9, 0, " \
	"NULL); INSERT INTO replicate_latency SELECT " #run ", value, 'ttft', value * 1e6 / " #by \
	", value * 1e6 / " #by ", value * 1e6 / " #by " " \
	"FROM (WITH RECURSIVE n(value) AS (SELECT 0 UNION ALL SELECT value + 1 FROM n " \
	"WHERE value < 40) SELECT value FROM n);"

static void test_views(void)
{
	const char *path = in_dir("rows.db");
	sqlite3 *db;
	sqlite3_stmt *views = NULL, *q = NULL;
	char sql[128];
	int n = 0;

	is_value(path, "SELECT count(*) FROM sqlite_schema WHERE type = 'view'", count_views(),
		 "the file has the views");
	change(path, "UPDATE run SET clock = 'engine' WHERE run_id = 3;"
		     "UPDATE run SET energy_mj = 1, energy_ns = 1, energy_idle_mw = 1;"
		     "INSERT INTO run_layer VALUES(1, 0, 'full', 1, 1, 1, 1, 1);"
		     "INSERT INTO layer_phase VALUES(1, 0, 1, 1, 1);" REPLICATES(1, 7, 1)
			     REPLICATES(2, 7, 2));
	sqlite3_open_v2(path, &db, SQLITE_OPEN_READONLY, NULL);
	ok(!sqlite3_exec(db, store_views, NULL, NULL, NULL), "anybody can make them");
	sqlite3_prepare_v2(db, "SELECT name FROM sqlite_temp_schema WHERE type = 'view'", -1,
			   &views, NULL);
	while (sqlite3_step(views) == SQLITE_ROW) {
		const char *name = (const char *)sqlite3_column_text(views, 0);

		snprintf(sql, sizeof sql, "SELECT * FROM %s", name);
		sqlite3_prepare_v2(db, sql, -1, &q, NULL);
		if (!ok(sqlite3_step(q) == SQLITE_ROW,
			"view %s needs no function of ours and has rows", name))
			diag("write_rows() here gives rows to the tables that it reads");
		sqlite3_finalize(q);
		n++;
	}
	is_int(n, count_views(), "all views were tried");
	sqlite3_finalize(views);
	sqlite3_close(db);
}

static void ends(const char *path, const char *of, double lo, double hi, const char *what)
{
	char sql[256];

	snprintf(sql, sizeof sql, "SELECT lo FROM %s", of);
	is_value(path, sql, lo, what);
	snprintf(sql, sizeof sql, "SELECT hi FROM %s", of);
	is_value(path, sql, hi, what);
}

#define TTFT(run) "v_interval WHERE run_id = " #run " AND metric = 'ttft' AND percentile = 50"
#define SPEEDUP "v_speedup WHERE run_id = 2 AND metric = 'ttft' AND percentile = 50"

/* A semicolon within a line ends no statement, such as one in a string. */
static void test_statements(void)
{
	is_int((long long)stored_views_length("SELECT ';', 1;\nSELECT 2;\n"), 13,
	       "a statement ends with its line");
	is_int((long long)stored_views_length("SELECT 1;"), 8, "... or with the text");
	is_int((long long)stored_views_length("SELECT 1"), 8, "... that has no semicolon");
	is_int((long long)stored_views_length(""), 0, "no text has no statement");
}

/* Places 1 and 39 of 0 ... 40 are the ends of 95 %. */
static void test_intervals(void)
{
	const char *path = in_dir("intervals.db");
	struct store *s = open_store(path);

	write_run(s, &case_dense);
	write_run(s, &case_sparse);
	store_close(s, NULL);
	is_value(path, "SELECT lo IS NULL AND reason = 'the run has no replicates' FROM " TTFT(1),
		 1, "without replicates there is no interval");
	change(path, REPLICATES(1, 7, 1) REPLICATES(2, 7, 2));
	ends(path, TTFT(1), 1, 39, "the interval of a percentile");
	ends(path, TTFT(2), 0.5, 19.5, "of another run");
	ends(path, SPEEDUP, 2, 2, "replicates are compared one by one");
	is_value(path, "SELECT speedup FROM " SPEEDUP, 2, "as the runs are");
	change(path, "UPDATE resampling SET cost_error = 0.5 WHERE run_id = 1");
	ends(path, TTFT(1), 1 / 1.5, 39 * 1.5, "an error of the costs makes it wider");
	ends(path, SPEEDUP, 2 / 1.5, 2 * 1.5, "of the baseline's, too");
	change(path, "UPDATE resampling SET draw_key = 8 WHERE run_id = 1");
	ends(path, SPEEDUP, 2 / 1.5, 2 * 1.5, "other resamples are compared as well");
	change(path, "UPDATE replicate_latency SET p50 = p50 + 1e9 WHERE run_id = 1");
	is_value(path, "SELECT lo IS NULL AND reason LIKE '%bursts are longer%' FROM " TTFT(1), 1,
		 "a figure outside of its interval has none");
	change(path, "UPDATE resampling SET reason = 'few' WHERE run_id = 1");
	is_value(path, "SELECT lo IS NULL AND reason = 'few' FROM " TTFT(1), 1,
		 "nor has a run with a reason");
	is_value(path, "SELECT lo IS NULL AND reason = 'few' FROM " SPEEDUP, 1,
		 "or whose baseline has one");
}

/* The second run repeats the first. */
static void test_repeats(void)
{
	const char *path = in_dir("repeats.db");
	struct store *s = open_store(path);

	write_run(s, &case_dense);
	write_run(s, &case_dense);
	store_close(s, NULL);
	change(path, REPLICATES(1, 7, 1) REPLICATES(2, 7, 1));
	change(path, "UPDATE replicate_latency SET p50 = p50 + 41e6 WHERE run_id = 2;"
		     "UPDATE run SET command_utc_ns = 5, method_no = 0, repeat_no = run_id - 1");
	ends(path, "v_replicate_interval WHERE run_id = 1 AND percentile = 50", 2.025, 78.975,
	     "repeats have their replicates together");
	ends(path, "v_replicate_interval WHERE run_id = 2 AND percentile = 50", 2.025, 78.975,
	     "each of them");
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
	store_run_end(s, "done", NULL, NULL, NULL);
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

static int count_rows(sqlite3 *db, const char *sql)
{
	sqlite3_stmt *q = NULL;
	int rc = sqlite3_prepare_v2(db, sql, -1, &q, NULL);

	if (!rc)
		rc = sqlite3_step(q);
	sqlite3_finalize(q);
	return rc;
}

static void test_distribution(void)
{
	sqlite3 *db;

	if (store_open_read(&db, in_dir("rows.db"), NULL))
		bail_out("cannot read");
	is_sql(db, "SELECT distribution(column1) FROM (VALUES (1000), (NULL), (0), (500))",
	       "[3,500.0,500.0,900.0,950.0,990.0,1000.0]", "the distribution of three values");
	is_sql(db,
	       "SELECT distribution(x) = (SELECT distribution(x, n) FROM (SELECT x, count(*) AS n "
	       "FROM " WAVE " GROUP BY x ORDER BY x DESC)) FROM " WAVE,
	       "1", "values may be counted");
	is_sql(db, "SELECT distribution(1, 0)", "NULL", "what did not occur has no distribution");
	is_sql(db, "SELECT distribution(x) FROM " WAVE " WHERE 0", "NULL", "nor has nothing");
	is_sql(db, "SELECT json_extract(distribution(1, 1 << 53), '$[0]') || ecdf(1, 1 << 53)",
	       "9007199254740992[[1.0,0.0],[1.0,1.0]]", "2^53 values are counted");
	is_int(count_rows(db, "SELECT distribution(1, (1 << 53) + 1)"), SQLITE_ERROR,
	       "... more are an error");
	is_int(count_rows(db, "SELECT ecdf(column1, 9223372036854775807) FROM (VALUES (1), (2))"),
	       SQLITE_ERROR, "... of ecdf() too");
	sqlite3_close(db);
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
	ok(!bad && k > 4, "%s: each of %ld allocations fails cleanly", sql, k);
	sqlite3_close(db);
}

static void test_baseline(void)
{
	const char *path = in_dir("base.db");
	struct store *s = open_store(path);
	struct sample_run other = case_sparse, none = { .percent = 100, .options = CASE_OPTIONS };
	struct sample_run renamed = case_sparse;
	struct store_run r = sample_record(&case_dense);
	int64_t id;

	write_run(s, &case_sparse); /* 1: before its baseline */
	is_int(store_run_begin(s, &r, &id, NULL), AR_OK, "a dense run begins");
	store_run_end(s, "failed", NULL, NULL, NULL); /* 2: fails */
	write_run(s, &case_dense);		      /* 3 */
	write_run(s, &case_sparse);		      /* 4: after it */
	other.options = "{\"method\": \"dense\", \"max-num-seqs\": 128, \"rate\": 0.5, \"tile\": "
			"true}";
	write_run(s, &other);	   /* 5: another setup */
	write_run(s, &case_dense); /* 6 */
	renamed.options = "{\"tile\": true, \"max-num-seqs\": 256, \"rate\": 0.5, \"method\": "
			  "\"x\", "
			  "\"db\": \"y\"}";
	renamed.setup = CASE_OPTIONS;
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

/* Passes 1 to 3, two of the same log; 4 has other options, 5 is aborted, 6 a replay. */
static void test_passes(void)
{
	static const char *const logs[] = {
		"a", "b", "a", "a\",\"async\":true,\"x\":\"", "a", "a"
	};
	const char *path = in_dir("passes.db");
	struct store *s = open_store(path);
	char options[64];

	for (int i = 0; i < 6; i++) {
		struct sample_run r = case_dense;

		snprintf(options, sizeof options, "{\"log\":\"%s\"}", logs[i]);
		r.options = options;
		write_run(s, &r);
	}
	store_close(s, NULL);
	change(path, "UPDATE run SET clock = 'engine' WHERE run_id < 6;"
		     "UPDATE run SET status = 'aborted' WHERE run_id = 5");
	is_value(path,
		 "SELECT count(*) = 3 AND max(first_id) = 1 AND min(passes) = 3 FROM v_pass "
		 "WHERE run_id < 4",
		 1, "passes have the same options but for their logs");
	is_value(path, "SELECT first_id FROM v_pass WHERE run_id = 4", 4, "... others are alone");
	is_value(path, "SELECT count(*) FROM v_pass", 4, "... and replays are none");
	change(path, "UPDATE request_outcome SET first_token_ns = 1000000 * run_id "
		     "WHERE run_id < 4 AND req_no = 0");
	/* Medians of 9.3, 9.8 and 10.3 ms: logarithms of mean 2.2820 and deviation 0.0511. */
	is_value(path, "SELECT printf('%.4f', lo) FROM " TTFT(2), 7.5971,
		 "passes have an interval, in which a further one lies");
	is_value(path, "SELECT printf('%.4f', hi) FROM " TTFT(2), 12.6198, "... with an upper end");
	is_value(path, "SELECT reason = 'the engine has fewer than 3 passes' FROM " TTFT(4), 1,
		 "... fewer than 3 have none");
	change(path,
	       "UPDATE request_outcome SET output_tokens = 7 WHERE run_id = 2 AND req_no = 0");
	is_value(path, "SELECT passes FROM v_pass WHERE run_id = 1", 2,
		 "passes have requests of the same lengths");
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

static void write_rows(void)
{
	struct store *s = open_store(in_dir("rows.db"));

	write_run(s, &case_dense);
	write_run(s, &case_sparse);
	write_run(s, &case_sparse);
	store_close(s, NULL);
}

int main(void)
{
	plan(0);
	case_begin();
	test_worked_numbers();
	test_other_tools();
	test_weights();
	write_rows();
	test_views();
	test_statements();
	test_intervals();
	test_repeats();
	test_percentiles();
	test_functions();
	test_distribution();
	test_distribution_faults("SELECT distribution(x) FROM " WAVE);
	test_distribution_faults("SELECT distribution(x, 1) FROM " WAVE);
	test_baseline();
	test_passes();
	test_writer_faults();
	case_end();
	return done_testing();
}
