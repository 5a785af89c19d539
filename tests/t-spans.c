/* SPDX-License-Identifier: Apache-2.0 */
/* Entries are stored joined in spans; reading gives back every single entry. */
#include "config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/rng.h"
#include "profiler/store/store_spans.h"
#include "tests/alloc_fault.h"
#include "tests/query.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

enum { REQUESTS = 30, ITERATIONS = 2500 };

static char dir[] = "/tmp/t-spans-XXXXXX";

static sqlite3 *open_db(const char *path)
{
	sqlite3 *db;

	if (sqlite3_open(path, &db) || sqlite3_exec(db, store_views, NULL, NULL, NULL))
		bail_out("%s: %s", path, sqlite3_errmsg(db));
	return db;
}

/* A step of the plan that sql explains holds the text. */
static bool has_step(sqlite3 *db, const char *sql, const char *text)
{
	sqlite3_stmt *q = NULL;
	bool found = false;

	if (sqlite3_prepare_v2(db, sql, -1, &q, NULL))
		bail_out("%s: %s", sql, sqlite3_errmsg(db));
	while (sqlite3_step(q) == SQLITE_ROW)
		found |= strstr((const char *)sqlite3_column_text(q, 3), text) != NULL;
	sqlite3_finalize(q);
	return found;
}

/* The successor of e; one time in eight a member differs. */
static void go_on(struct store_entry *e, struct rng *r)
{
	e->start += e->n_tok;
	e->chunk_no++;
	switch (rng_below(r, 48)) {
	case 0: e->start = (uint32_t)rng_below(r, 1000); break;
	case 1: e->n_tok = 1 + (uint32_t)rng_below(r, 3); break;
	case 2: e->chunk_no++; break;
	case 3: e->decode = !e->decode; break;
	case 4: e->emit = !e->emit; break;
	case 5: e->recompute = !e->recompute;
	}
}

/* Write iterations of random entries, and the entries into table plain of db as well. */
static void write_random(const char *path, sqlite3 *db, bool pause)
{
	struct store_entry req[REQUESTS] = { { 0 } }, batch[REQUESTS];
	struct store_run run =
		sample_record(&(struct sample_run){ .method = "dense", .options = "{}" });
	struct store_iteration it = { .entry = batch, .row.event_ns = -1 };
	struct rng r = { 11 };
	sqlite3_stmt *q = NULL;
	struct store *s;
	int64_t id;

	if (store_open(&s, path, NULL) || store_run_begin(s, &run, &id, NULL))
		bail_out("cannot write %s", path);
	sqlite3_exec(db, "CREATE TABLE IF NOT EXISTS plain(a, b, c, d, e, f, g, h, i); BEGIN", NULL,
		     NULL, NULL);
	sqlite3_prepare_v2(db, "INSERT INTO plain VALUES(?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)", -1,
			   &q, NULL);
	for (; it.row.iter_no < ITERATIONS; it.row.iter_no++) {
		it.n_entry = 0;
		it.row.end_ns = it.row.iter_no * it.row.iter_no;
		for (uint32_t i = 0; i < REQUESTS; i++) {
			struct store_entry *e = &req[i];

			if (i && !rng_below(&r, 20))
				continue;
			if (i)
				go_on(e, &r);
			else
				e->start = e->chunk_no = (uint32_t)it.row.iter_no;
			e->req = i * 1000;
			e->n_tok = e->n_tok ? e->n_tok : 1;
			batch[it.n_entry++] = *e;
			for (int c = 0; c < 9; c++)
				sqlite3_bind_int64(q, c + 1,
						   (const int64_t[]){ id, it.row.iter_no, e->req,
								      e->chunk_no, e->start,
								      e->n_tok, e->decode, e->emit,
								      e->recompute }[c]);
			sqlite3_step(q);
			sqlite3_reset(q);
		}
		if (store_iteration(s, &it, NULL))
			bail_out("cannot write %s", path);
		if (pause && it.row.iter_no % 500 == 77)
			usleep(400000);
	}
	sqlite3_finalize(q);
	sqlite3_exec(db, "COMMIT", NULL, NULL, NULL);
	if (store_run_end(s, "done", NULL, NULL, NULL) || store_close(s, NULL))
		bail_out("cannot finish %s", path);
}

/* plain holds the entries that were stored. */
static void test_gaps(sqlite3 *plain, const char *path)
{
	static const char *const differ[] = {
		"SELECT count(*) FROM (SELECT * FROM gap EXCEPT SELECT * FROM v_itl)",
		"SELECT count(*) FROM (SELECT * FROM v_itl EXCEPT SELECT * FROM gap)",
		"SELECT count(*) - (SELECT count(*) FROM gap) FROM v_itl"
	};
	char sql[400];

	snprintf(sql, sizeof sql, "ATTACH '%s' AS s", path);
	sqlite3_exec(plain, sql, NULL, NULL, NULL);
	sqlite3_exec(plain,
		     "CREATE TABLE gap AS SELECT * FROM (SELECT a, c, b, b * b - "
		     "lag(b * b) OVER (PARTITION BY a, c ORDER BY b) AS ns FROM plain WHERE h) "
		     "WHERE ns IS NOT NULL",
		     NULL, NULL, NULL);
	ok(ask(plain, "SELECT count(*) FROM gap") > REQUESTS * ITERATIONS / 2,
	   "there are times between tokens to compare");
	for (int i = 0; i < 3; i++)
		is_int(ask(plain, differ[i]), 0, "v_itl has them all and no others (%d)", i);
}

static void test_round_trip(void)
{
	char path[2][300], sql[400];
	sqlite3 *plain = open_db(":memory:"), *again = open_db(":memory:"), *db;

	for (int i = 0; i < 2; i++)
		snprintf(path[i], sizeof path[i], "%s/%d.db", dir, i);
	write_random(path[0], plain, false);
	write_random(path[1], again, true);
	snprintf(sql, sizeof sql, "ATTACH '%s' AS s", path[0]);
	sqlite3_exec(plain, sql, NULL, NULL, NULL);
	ok(ask(plain, "SELECT count(*) FROM plain") > REQUESTS * ITERATIONS * 9 / 10,
	   "there are entries to compare");
	is_int(ask(plain, "SELECT count(*) - (SELECT count(*) FROM plain) FROM "
			  "iteration_request"),
	       0, "as many entries come out as went in");
	is_int(ask(plain, "SELECT count(*) FROM (SELECT * FROM plain EXCEPT SELECT * FROM "
			  "iteration_request)"),
	       0, "each of them as it was");
	is_int(ask(plain, "SELECT count(*) FROM request_span WHERE req_no = 0"),
	       (ITERATIONS + SPAN_MAX - 1) / SPAN_MAX,
	       "spans of one request are as long as may be");
	ok(ask(plain, "SELECT 5 * count(*) < (SELECT count(*) FROM plain) FROM request_span"),
	   "an entry that does not follow begins a span, others do not");
	db = open_db(path[1]);
	snprintf(sql, sizeof sql, "ATTACH '%s' AS s", path[0]);
	sqlite3_exec(db, sql, NULL, NULL, NULL);
	is_int(ask(db, "SELECT count(*) FROM (SELECT * FROM s.request_span EXCEPT SELECT * FROM "
		       "main.request_span)") +
		       ask(db,
			   "SELECT count(*) FROM (SELECT * FROM main.request_span EXCEPT SELECT "
			   "* FROM s.request_span)"),
	       0, "when transactions end changes no span");
	sqlite3_exec(db, "CREATE INDEX mine ON iteration(run_id, iter_no)", NULL, NULL, NULL);
	write_random(path[1], again, false);
	is_int(ask(db, "SELECT count(*) FROM iteration i WHERE batch_size = (SELECT count(*) FROM "
		       "iteration_request r WHERE r.run_id = i.run_id AND r.iter_no = i.iter_no)"),
	       2 * ITERATIONS, "an index of the reader's finds iterations of all runs");
	ok(ask(db, "SELECT integrity_check = 'ok' FROM pragma_integrity_check"),
	   "... and is in order");
	test_gaps(again, path[1]);
	sqlite3_close(db);
	sqlite3_close(again);
	sqlite3_close(plain);
	for (int i = 0; i < 2; i++)
		remove(path[i]);
}

/* The plan of a query reads none of the tables behind the entries from end to end. */
static bool searches(sqlite3 *db, const char *sql, const char *by)
{
	char plan[400];

	snprintf(plan, sizeof plan, "EXPLAIN QUERY PLAN %s", sql);
	return has_step(db, plan, "SEARCH request_span USING PRIMARY KEY") &&
	       has_step(db, plan, by) &&
	       has_step(db, plan, "SEARCH iteration_number USING INTEGER PRIMARY KEY") &&
	       !has_step(db, plan, "SCAN request_span") &&
	       !has_step(db, plan, "SCAN iteration_number");
}

static void test_plans(void)
{
	static const char range[] = "(run_id=? AND iter_no>? AND iter_no<?)";
	static const char of_iteration[] = "SELECT * FROM iteration_request WHERE run_id = 1 "
					   "AND iter_no = 7";
	static const char each[] =
		"SELECT (SELECT count(*) FROM iteration_request r "
		"WHERE r.run_id = i.run_id AND r.iter_no = i.iter_no) FROM iteration i";
	sqlite3 *plain = open_db(":memory:"), *db;
	char path[300];

	snprintf(path, sizeof path, "%s/plans.db", dir);
	write_random(path, plain, false);
	db = open_db(path);
	for (int i = 0; i < 2; i++) {
		const char *when = i ? "without estimates" : "with estimates";

		ok(searches(db, "SELECT * FROM iteration_request WHERE run_id = 1 AND req_no = 5",
			    "(run_id=?)"),
		   "entries of a request are looked up, %s", when);
		ok(searches(db, of_iteration, range),
		   "those of an iteration are a range of the key, %s", when);
		ok(searches(db,
			    "SELECT * FROM iteration_request JOIN iteration "
			    "USING(run_id, iter_no)",
			    range),
		   "joins look them up, %s", when);
		ok(searches(db, each, range), "so does a query for each iteration, %s", when);
		sqlite3_exec(db, "DROP TABLE sqlite_stat1", NULL, NULL, NULL);
		sqlite3_close(db);
		db = open_db(path);
	}
	is_int(ask(db, "SELECT max(n) = count(*) - 1 AND min(n) = 0 FROM iteration_number"), 1,
	       "numbers of iterations are without a gap");
	sqlite3_close(db);
	sqlite3_close(plain);
	remove(path);
}

static void test_runs(void)
{
	struct request_spans s = { 0 };
	struct store_entry e = { .req = 7, .n_tok = 1 };

	spans_add(&s, 0, &e);
	spans_clear(&s);
	e.start = e.chunk_no = 1;
	ok(spans_add(&s, 1, &e) && s.n == 1 && s.span[0].n == 1 && s.span[0].iter_no == 1,
	   "what was cleared does not grow");
	spans_release(&s);
}

static void test_faults(void)
{
	struct request_spans s = { 0 };
	bool fine = true;
	long k = 0;

	for (bool done = false; !done; k++) {
		fault_arm(k);
		done = true;
		for (uint32_t i = 0; i < 300 && done; i++)
			done = spans_add(&s, i, &(struct store_entry){ .req = i });
		fine &= fault_disarm() == !done;
		spans_release(&s);
	}
	ok(fine && k > 4, "each allocation that fails is told, and nothing else");
}

int main(void)
{
	if (!mkdtemp(dir))
		bail_out("no folder for files");
	test_round_trip();
	test_plans();
	test_runs();
	test_faults();
	rmdir(dir);
	return done_testing();
}
