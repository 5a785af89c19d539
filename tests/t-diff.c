/* SPDX-License-Identifier: Apache-2.0 */
/* Failures in the middle of a comparison. */
#include "config.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "profiler/store/store_runs.h"
#include "src/diff/diff.h"
#include "tests/alloc_fault.h"
#include "tests/sample_db.h"
#include "tests/tap.h"

static char path[] = "/tmp/t-diff-XXXXXX";

/* Runs 1 and second of the sample, in which sql was executed. */
static struct diff open_diff(int64_t second, const char *sql)
{
	const struct store_source source[] = { { path, 1 }, { path, second } };
	struct diff x = { 0 };
	struct ar_err err;

	if (store_open_runs(&x.db, source, 2, true, &err))
		bail_out("%s", err.msg);
	if (sqlite3_exec(x.db, sql, NULL, NULL, NULL))
		bail_out("%s: %s", sql, sqlite3_errmsg(x.db));
	return x;
}

/* The comparison of runs 1 and 2 fails at allocation k, if k is no less than 0. */
static enum ar_status compare(const char *sql, long k, struct ar_err *err)
{
	struct document d = { .writer = writers[0], .f = fopen("/dev/null", "w") };
	struct diff x = open_diff(2, sql);
	enum ar_status st;

	*err = (struct ar_err){ 0 };
	if (!d.f)
		bail_out("cannot write");
	if (k >= 0)
		fault_arm(k);
	st = diff_compute(&x, err);
	if (!st)
		st = diff_write(&x, &d, err);
	sqlite3_close(x.db);
	fclose(d.f);
	return st;
}

/* Run 2 has half the time of run 1, and replicates 0.48 to 0.52 times those of it. */
static void test_limits(void)
{
	static const struct {
		const char *limit;
		enum ar_status want;
		const char *words;
	} of[] = {
		{ "ttft.p50>-48%", AR_OK, "" },
		{ "ttft.p50<-52%", AR_OK, "" },
		{ "ttft.p50>-52%", AR_LIMIT, "limit > -52 %, 95 % interval -51.90 to -48.10 %" },
		{ "e2e.p99<-48%", AR_LIMIT, "limit < -48 %, 95 % interval -51.90 to -48.10 %" },
		{ "ttft.p50>-50.5%", AR_UNKNOWN, "as the limit is within its 95 % interval" },
		{ "itl.p90<-49%", AR_UNKNOWN, "as the limit is within its 95 % interval" },
		{ "tpot.p90>5%", AR_UNKNOWN, "as it has no interval: it lies outside of what" },
	};
	struct diff x = open_diff(2, "UPDATE replicate_latency SET p50 = p50 * (0.96 + 0.002 * "
				     "replicate_no), p90 = p90 * (0.96 + 0.002 * replicate_no), "
				     "p99 = p99 * (0.96 + 0.002 * replicate_no) WHERE run_id = 2;"
				     "UPDATE replicate_latency SET p90 = p90 * 2 WHERE run_id = 2 "
				     "AND metric = 'tpot'");
	struct ar_err err;

	if (diff_compute(&x, &err))
		bail_out("%s", err.msg);
	for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
		struct diff_limit l;
		enum ar_status st;

		err = (struct ar_err){ 0 };
		if (diff_limit_parse(&l, of[i].limit, strlen(of[i].limit), &err))
			bail_out("%s", err.msg);
		st = diff_judge(&x, &l, &err);
		ok(st == of[i].want && strstr(err.msg, of[i].words), "%s: %s", of[i].limit,
		   err.msg);
	}
	sqlite3_close(x.db);
}

/* Run 1 beside itself with TTFT a tenth longer; the ratios of its 41 replicates are 1.1 times
 * exp(step * k), k from -20 to 20.  Returns the p of TTFT p50; -1: it has no interval. */
static double p_of(double step)
{
	char sql[1000];
	struct ar_err err;
	struct diff x;
	sqlite3_stmt *q;
	double p = -1;

	snprintf(sql, sizeof sql,
		 "UPDATE request_outcome SET finish_ns = finish_ns + (first_token_ns - arrival_ns) "
		 "/ 10, first_token_ns = first_token_ns + (first_token_ns - arrival_ns) / 10 "
		 "WHERE run_id = 2;"
		 "UPDATE replicate_latency SET p50 = p50 * f, p90 = p90 * f, p99 = p99 * f FROM "
		 "(SELECT replicate_no AS no, 1.1 * exp(%g * (replicate_no - 20)) AS f "
		 "FROM replicate WHERE run_id = 2) WHERE run_id = 2 AND replicate_no = no AND "
		 "metric = 'ttft'",
		 step);
	x = open_diff(1, sql);
	if (diff_compute(&x, &err) ||
	    sqlite3_prepare_v2(x.db,
			       "SELECT p FROM diff_latency WHERE metric = 'ttft' AND at = 'p50'",
			       -1, &q, NULL))
		bail_out("%s", sqlite3_errmsg(x.db));
	if (sqlite3_step(q) == SQLITE_ROW && sqlite3_column_type(q, 0) != SQLITE_NULL)
		p = sqlite3_column_double(q, 0);
	sqlite3_finalize(q);
	sqlite3_close(x.db);
	return p;
}

/* TTFT and TPOT are judged: E2E lies outside of its interval.  The lowest tenth is five replicates,
 * of which the highest is two steps above their mean. */
static void test_holm(void)
{
	const double of = log(1.1), far = p_of(0.004), tail = 5 / 41. * exp(-(of - 0.064) / 0.008);

	ok(fabs(far - 6 * 2 * tail) < 1e-6, "Holm's p of the least of six: %g", far);
	ok(far < p_of(0.0045) && p_of(0.0045) < 1, "... is more for ratios that reach nearer to 1");
	ok(p_of(0.007) >= 1, "... and 1 where they reach beyond it");
	ok(p_of(0.08) >= 1, "... far beyond it, too");
}

int main(void)
{
	static const struct {
		const char *sql, *words;
	} lacks[] = {
		{ "DROP TABLE token_gap", "no such table: token_gap" },
		{ "DROP TABLE request_outcome", "no such table: request_outcome" },
		{ "CREATE TEMP TABLE diff_latency(x)", "diff_latency already exists" },
		{ "DROP TABLE replicate_latency", "no such table: replicate_latency" },
		{ "DROP VIEW v_phase_time", "phases: no such table: v_phase_time" },
	};
	struct ar_err err;
	int fd = mkstemp(path);
	bool clean = true;
	long k = 0;

	plan(0);
	if (fd < 0 || close(fd) || sample_database(path, &err))
		bail_out("no sample database");
	ok(!compare("", -1, &err), "two runs are compared");
	for (;; k += 1 + k / 8) {
		enum ar_status st = compare("", k, &err);

		if (!fault_disarm())
			break;
		if (st != AR_NOMEM) {
			diag("allocation %ld: %d %s", k, st, err.msg);
			clean = false;
		}
	}
	ok(clean && k > 50, "failed allocations, up to number %ld, end it cleanly", k);
	for (size_t i = 0; i < sizeof lacks / sizeof *lacks; i++)
		ok(compare(lacks[i].sql, -1, &err) && strstr(err.msg, lacks[i].words), "%s: %s",
		   lacks[i].sql, err.msg);
	test_limits();
	test_holm();
	unlink(path);
	return done_testing();
}
