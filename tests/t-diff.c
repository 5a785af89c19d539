/* SPDX-License-Identifier: Apache-2.0 */
/* Failures in the middle of a comparison. */
#include "config.h"

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

/* A comparison of runs 1 and 2 of the sample, in which sql was executed; it fails at allocation k,
 * if k is no less than 0. */
static enum ar_status compare(const char *sql, long k, struct ar_err *err)
{
	const struct store_source source[] = { { path, 1 }, { path, 2 } };
	struct document d = { .writer = writers[0], .f = fopen("/dev/null", "w") };
	struct diff x = { .resamples = 100, .seed = 1 };
	enum ar_status st;

	*err = (struct ar_err){ 0 };
	if (!d.f || store_open_runs(&x.db, source, 2, true, err) ||
	    sqlite3_exec(x.db, sql, NULL, NULL, NULL))
		bail_out("%s", err->msg);
	if (k >= 0)
		fault_arm(k);
	st = diff_compute(&x, err);
	if (!st)
		st = diff_write(&x, &d, err);
	sqlite3_close(x.db);
	fclose(d.f);
	return st;
}

int main(void)
{
	static const struct {
		const char *sql, *words;
	} lacks[] = {
		{ "DROP TABLE token_gap", "no such table: token_gap" },
		{ "DROP TABLE request_outcome", "no such table: request_outcome" },
		{ "CREATE TEMP TABLE diff_latency(x)", "diff_latency already exists" },
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
	unlink(path);
	return done_testing();
}
