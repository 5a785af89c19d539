/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run is steady: v_steady of runs whose trends are known. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "profiler/store/store_file.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

static char path[] = "/tmp/t-steady-XXXXXX";

/* Request i arrives at 0.1 i s.  Iteration i takes 50 ms from 0.05 i s.  So the warm-up of 301
 * requests ends at 10 s, and a batch is 40 iterations, 2 s. */
struct made {
	const char *requests, *answer;		/* how many, and the ns from first to last token */
	const char *arrival, *waiting, *blocks; /* SQL of i */
};

static const struct made usual = { "301", "900000000", "i * 100000000", "3", "500" };

static void make(const struct made *m)
{
	char sql[2000];

	snprintf(sql, sizeof sql,
		 "DELETE FROM request_outcome; DELETE FROM iteration;"
		 "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < %s - 1) "
		 "INSERT INTO request_outcome(run_id, req_no, outcome, arrival_ns, first_sched_ns, "
		 "first_token_ns, finish_ns, prompt_tokens, output_tokens, n_chunks, n_preempt, "
		 "recomputed_tokens, cached_tokens) SELECT 1, i, 'ok', a, a, a + 100000000, "
		 "a + 100000000 + %s, 10, 10, 1, 0, 0, 0 FROM (SELECT i, %s AS a FROM n);"
		 "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 639) "
		 "INSERT INTO iteration(run_id, iter_no, start_ns, end_ns, prefill_tokens, "
		 "decode_tokens, batch_size, blocks_used, waiting, running, preempted, "
		 "prefill_pairs, decode_context, composition) SELECT 1, i, i * 50000000, "
		 "(i + 1) * 50000000, 0, 8, 8, %s, %s, 8, 0, 0, 0, 0 FROM n",
		 m->requests, m->answer, m->arrival, m->blocks, m->waiting);
	change(path, sql);
}

/* The text that the query of v_steady returns. */
static const char *steady(const char *what)
{
	static char text[300];
	char sql[200];
	sqlite3_stmt *q;
	sqlite3 *db;

	snprintf(sql, sizeof sql, "SELECT %s FROM v_steady WHERE run_id = 1", what);
	if (store_open_read(&db, path, NULL) || sqlite3_prepare_v2(db, sql, -1, &q, NULL))
		bail_out("%s", sql);
	*text = 0;
	if (sqlite3_step(q) == SQLITE_ROW && sqlite3_column_text(q, 0))
		snprintf(text, sizeof text, "%s", (const char *)sqlite3_column_text(q, 0));
	sqlite3_finalize(q);
	sqlite3_close(db);
	return text;
}

static void judged(struct made m, const char *verdict, const char *reason, const char *what)
{
	make(&m);
	is_str(steady("verdict"), verdict, "%s", what);
	is_str(steady("reason"), reason, "... for its reason");
}

/* Means of batches, by hand: 6, 4, 6, ... at 0, 2, 4, ... s.  With k = 0 ... 9 instead of times,
 * the sum of squares of k is 82.5, that of the means 10, that of products -5.  So the slope is -2 /
 * 33 and its standard error sqrt((10 - 25 / 82.5) / 8 / 82.5), 4 / 33; t is 2.306. */
static void test_trend(void)
{
	struct made m = usual;

	m.waiting = "iif(i / 40 % 2, 6, 4)";
	m.blocks = "i * 20";
	make(&m);
	is_str(steady("printf('%.9f', waiting_trend)"), "-0.030303030", "a trend is a slope");
	is_str(steady("printf('%.9f', waiting_lo)"), "-0.170060606", "... with the lower end");
	is_str(steady("printf('%.9f', waiting_hi)"), "0.109454545",
	       "... and the upper one of its interval");
	is_str(steady("printf('%.4f %.4f %.4f', blocks_trend, blocks_lo, blocks_hi)"),
	       "400.0000 400.0000 400.0000", "a straight line has no interval");
	is_str(steady("printf('%.3f %.3f %d', warmup_s, window_s, served)"), "10.000 20.000 200",
	       "a third of the arrivals is the warm-up");
}

static void test_verdicts(void)
{
	struct made m = usual;

	judged(m, "steady", "waiting requests change by 0 a second (0 to 0)",
	       "a queue that stays is steady");
	m.waiting = "i * 2";
	judged(m, "backlogged",
	       "40 more requests wait each second (40 to 40): latencies are of the backlog",
	       "one that grows is a backlog");
	m.waiting = "iif(i / 40 % 2, 4, 6)";
	judged(m, "steady", "waiting requests change by 0.0303 a second (-0.109 to 0.17)",
	       "... unless that may be chance");
	m.waiting = "1300 - i * 2";
	judged(m, "steady", "waiting requests change by -40 a second (-40 to -40)",
	       "... or it shrinks");
	m.waiting = "3";
	m.blocks = "i * 20";
	judged(m, "too short", "400 more KV blocks are in use each second (400 to 400), of 7990",
	       "KV blocks that grow much are no steady state");
	m.blocks = "10000 + i";
	judged(m, "steady", "waiting requests change by 0 a second (0 to 0)",
	       "... but a little is");
	m = usual;
	m.answer = "15000000000";
	judged(m, "too short", "requests take 15.1 s, the warm-up is 10 s",
	       "a warm-up is as long as a request");
	m.answer = "900000000";
	m.requests = "40";
	judged(m, "too short", "26 requests were served between warm-up and last arrival, want 30",
	       "few requests tell nothing");
	m.requests = "301";
	m.arrival = "i * 1000";
	judged(m, "closed batch",
	       "all requests arrive before the first iteration ends: latencies are of one batch",
	       "requests that arrive in the first iteration are a batch");
	m.arrival = "i * 1000000";
	m.answer = "1";
	judged(m, "too short", "fewer than 10 iterations began between warm-up and last arrival",
	       "... and not those that arrive in the next ones");
	m = usual;
	m.requests = "1";
	judged(m, "too short", "0 requests were served between warm-up and last arrival, want 30",
	       "one request tells nothing");
	change(path, "DELETE FROM iteration; UPDATE request_outcome SET outcome = 'rejected', "
		     "first_token_ns = NULL, finish_ns = NULL");
	is_str(steady("verdict"), "too short", "nor does none that was served");
	change(path, "DELETE FROM request_outcome");
	is_str(steady("count(*)"), "0", "a run without requests has no verdict");
}

/* Of many requests, a part of the iterations is looked at: it tells the same. */
static void test_many(void)
{
	struct made m = usual;

	m.requests = "30001";
	m.arrival = "i * 1000000";
	m.waiting = "i * 2";
	make(&m);
	is_str(steady("printf('%s %.3f', verdict, waiting_trend)"), "backlogged 40.000",
	       "every seventh iteration tells the trend");
}

int main(void)
{
	struct ar_err err;
	int fd = mkstemp(path);

	plan(0);
	if (fd < 0 || close(fd) || sample_database(path, &err))
		bail_out("no sample database");
	test_trend();
	test_verdicts();
	test_many();
	unlink(path);
	return done_testing();
}
