/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a run is steady: v_steady of runs whose replays are known. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/store/store_file.h"
#include "src/run/replicates.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

static char path[] = "/tmp/t-steady-XXXXXX";

/* Requests 0 and 1 arrive at 0 and at last_ns; iterations take 1 and 3 s, with 0 and 4 waiting. */
static void make(const char *last_ns, const char *resampling)
{
	char sql[1000];

	snprintf(sql, sizeof sql,
		 "DELETE FROM iteration; DELETE FROM resampling;"
		 "UPDATE request_outcome SET arrival_ns = req_no * %s WHERE run_id = 1;"
		 "INSERT INTO iteration(run_id, iter_no, start_ns, end_ns, prefill_tokens, "
		 "decode_tokens, batch_size, blocks_used, waiting, running, preempted, "
		 "prefill_pairs, decode_context, composition) SELECT 1, column1, column1 * 1e9, "
		 "column2 * 1e9, 0, 8, 8, 5, column1 * 4, 8, 0, 0, 0, 0 FROM (VALUES (0, 1), "
		 "(1, 4));"
		 "INSERT INTO resampling(run_id, replicates, unit, units, block, draw_key, "
		 "steady_replays, unsteady, reason) SELECT 1, 200, 'request', 2, 1, 7, %s",
		 last_ns, resampling);
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

static void judged(const char *resampling, const char *verdict, const char *reason,
		   const char *what)
{
	make("2000000000", resampling);
	is_str(steady("verdict"), verdict, "%s", what);
	is_str(steady("reason"), reason, "... for its reason");
}

#define IN " replays of four times as many requests, the last quarter waits longer than the second"

static void test_verdicts(void)
{
	judged("40, 38, NULL", "backlogged", "in 38 of 40" IN ": latencies are of the backlog",
	       "95 % of the replays are a backlog");
	judged("40, 26, NULL", "steady", "in 26 of 40" IN, "two thirds of them are a steady load");
	judged("40, 37, NULL", "not known",
	       "in 37 of 40" IN "; it is known from 95 % on, or up to two thirds of them",
	       "between them nothing is known");
	judged("40, 27, NULL", "not known",
	       "in 27 of 40" IN "; it is known from 95 % on, or up to two thirds of them",
	       "... from two thirds on");
	judged("19, 19, NULL", "not known",
	       "too few longer replays were made: a closed loop has none, others take time",
	       "few replays tell nothing");
	judged("NULL, NULL, 'few'", "not known", "few", "what stops replicates is a reason");
	change(path, "DELETE FROM resampling");
	is_str(steady("verdict || ': ' || reason"), "not known: the run has no replicates",
	       "a run without replicates is not known");
	make("999999999", "40, 0, NULL");
	is_str(steady("verdict"), "closed batch",
	       "requests that arrive in the first iteration are a batch");
	make("1000000000", "40, 0, NULL");
	is_str(steady("verdict"), "steady", "... and not those that arrive in the next one");
	is_str(steady("printf('%g %g %g', running, waiting, blocks)"), "8 3 5",
	       "means are over time");
	change(path, "DELETE FROM iteration");
	is_str(steady("verdict"), "steady",
	       "runs whose iterations are not stored are known as well");
	change(path, "DELETE FROM request_outcome");
	is_str(steady("count(*)"), "0", "a run without requests has no verdict");
}

/* The verdict of n longer replays of which so many wait longer. */
static const char *verdict_of(int n, int slower)
{
	char counts[40];

	snprintf(counts, sizeof counts, "%d, %d, NULL", n, slower);
	make("2000000000", counts);
	return steady("verdict");
}

/* They end as soon as they tell, with the verdict that all 40 would have. */
static void test_known(void)
{
	char all[41][20];
	int n_end = 0, n_other = 0;

	for (int slower = 0; slower <= 40; slower++)
		snprintf(all[slower], sizeof all[slower], "%s", verdict_of(40, slower));
	for (int n = 1; n <= 40; n++)
		for (int slower = 0; slower <= n; slower++) {
			const char *verdict;

			if (!replicates_steady_known(n, slower) ||
			    (replicates_steady_known(n - 1, slower) &&
			     replicates_steady_known(n - 1, slower - 1)))
				continue;
			n_end++;
			verdict = verdict_of(n, slower);
			for (int k = slower; k <= slower + 40 - n; k++)
				n_other += strcmp(verdict, all[k]) != 0;
		}
	is_int(n_other, 0, "%d counts tell before all replays are made, none of them wrongly",
	       n_end);
	ok(replicates_steady_known(20, 6) && !replicates_steady_known(20, 7),
	   "14 replays that do not wait longer are a steady load");
	ok(replicates_steady_known(30, 27) && !replicates_steady_known(29, 27),
	   "3 of them and 27 others tell that nothing will be known");
	ok(replicates_steady_known(38, 38) && !replicates_steady_known(37, 37),
	   "38 that wait longer are a backlog");
	ok(!replicates_steady_known(19, 0), "fewer than 20 tell nothing");
}

int main(void)
{
	struct ar_err err;
	int fd = mkstemp(path);

	plan(0);
	if (fd < 0 || close(fd) || sample_database(path, &err))
		bail_out("no sample database");
	test_verdicts();
	test_known();
	unlink(path);
	return done_testing();
}
