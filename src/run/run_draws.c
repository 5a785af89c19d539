/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies of a run whose host's times were drawn: their range over draws. */
#include "config.h"
#include "src/run/run.h"

#include <inttypes.h>
#include <sqlite3.h>
#include <stdio.h>
#include <string.h>

bool run_is_drawn(const struct run *r)
{
	for (int k = 0; k < HOST_KINDS; k++)
		if (r->in.host.spread[k][0])
			return true;
	return false;
}

/* Decimals that leave about three digits. */
static int decimals(double x)
{
	return x >= 100 ? 0 : x >= 10 ? 1 : x >= 1 ? 2 : 3;
}

int run_latency_decimals(const struct run *r, double ms)
{
	return run_is_drawn(r) ? decimals(ms) : 3;
}

/* Rows of metric, and lo and hi of three percentiles. */
static const char ranges_sql[] =
	"SELECT metric,"
	" max(lo) FILTER (WHERE percentile = 50), max(hi) FILTER (WHERE percentile = 50),"
	" max(lo) FILTER (WHERE percentile = 90), max(hi) FILTER (WHERE percentile = 90),"
	" max(lo) FILTER (WHERE percentile = 99), max(hi) FILTER (WHERE percentile = 99)"
	" FROM v_replicate_interval WHERE run_id = ?1 GROUP BY metric ORDER BY"
	" instr('ttft tpot itl e2e queue', metric)";

static void print_row(sqlite3_stmt *q)
{
	const char *metric = (const char *)sqlite3_column_text(q, 0);
	char range[64];

	for (int m = 0; m < LATENCY_COUNT; m++)
		if (!strcasecmp(latency_names[m], metric))
			printf("%-8s%24s", latency_names[m], "");
	for (int i = 1; i < 7; i += 2) {
		double lo = sqlite3_column_double(q, i), hi = sqlite3_column_double(q, i + 1);

		snprintf(range, sizeof range, "%.*f-%.*f", decimals(lo), lo, decimals(hi), hi);
		printf("%14s", range);
	}
	putchar('\n');
}

/* Print the ranges that the database has.  *n: so many. */
static enum ar_status print_ranges(const struct run *r, int *n, struct ar_err *err)
{
	sqlite3 *db = NULL;
	sqlite3_stmt *q = NULL;
	enum ar_status st = store_open_read(&db, r->session.o.db, err);

	if (!st && sqlite3_prepare_v2(db, ranges_sql, -1, &q, NULL))
		st = ar_fail(err, AR_DB, "%s: %s", r->session.o.db, sqlite3_errmsg(db));
	if (!st)
		sqlite3_bind_int64(q, 1, r->out.run_id);
	while (!st && sqlite3_step(q) == SQLITE_ROW) {
		if (!(*n)++)
			puts("... 95 % range over such requests and draws of the host");
		print_row(q);
	}
	sqlite3_finalize(q);
	sqlite3_close(db);
	return st;
}

enum ar_status run_print_draws(const struct run *r, struct ar_err *err)
{
	enum ar_status st = AR_OK;
	int n = 0;

	if (!run_is_drawn(r))
		return AR_OK;
	if (r->session.store && r->session.o.intervals)
		st = print_ranges(r, &n, err);
	if (!st && !n)
		printf("the host is one draw of its spread (--host-seed %" PRId64 "); %s\n",
		       r->session.o.host_seed,
		       r->session.store ? "the report says why there is no range" :
					  "with --db there is a range over draws");
	return st;
}
