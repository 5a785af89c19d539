/* SPDX-License-Identifier: Apache-2.0 */
/* Latencies of both runs, with the intervals of their replicates.  Which percentiles changed: Holm
 * (1979) keeps the chance of any false change at 5 %. */
#include "config.h"
#include "src/diff/diff.h"

/* Run 1 is the baseline of run 2. */
static const char pair[] = "DROP VIEW v_pair; "
			   "CREATE TEMP VIEW v_pair AS SELECT 2 AS run_id, 1 AS base_id";

/* How far each replicate lies beyond no change, as a logarithm and less the error of costs: y, in
 * order.  p is twice the share below 0.  It is often less than one of all replicates, so the lowest
 * tenth counts as an exponential tail, below `high`.  ITL is not judged. */
static const char latencies[] =
	"CREATE TEMP TABLE diff_latency AS WITH figure AS MATERIALIZED (SELECT * FROM v_interval), "
	"far AS (SELECT metric, percentile, y, count(*) OVER w AS n, "
	"row_number() OVER (PARTITION BY metric, percentile ORDER BY y) - 1 AS i "
	"FROM (SELECT metric, percentile, iif(speedup > 1, 1, -1) * ln(x) - ln(1 + e) AS y "
	"FROM v_replicate_ratio JOIN v_speedup s USING(metric, percentile) "
	"WHERE s.lo IS NOT NULL AND metric NOT IN ('itl', 'queue')) "
	"WINDOW w AS (PARTITION BY metric, percentile)), "
	"tail AS (SELECT metric, percentile, avg(y <= 0) AS below, "
	"max(iif(10 * i < n, y, NULL)) AS high, avg(iif(10 * i < n, y, NULL)) AS mean, "
	"avg(10 * i < n) AS part FROM far GROUP BY metric, percentile), "
	"ratios AS (SELECT metric, percentile, 1 / speedup AS ratio, 1 / hi AS ratio_lo, "
	"1 / lo AS ratio_hi, reason, "
	"2 * iif(high > 0, part * exp(-high / max(high - mean, 1e-12)), below) AS p "
	"FROM v_speedup LEFT JOIN tail USING(metric, percentile)), "
	"holm AS (SELECT metric, percentile, "
	"min(1.0, max(p * left) OVER (ORDER BY left DESC)) AS p "
	"FROM (SELECT *, row_number() OVER (ORDER BY p DESC) AS left FROM ratios "
	"WHERE p IS NOT NULL)) "
	"SELECT b.metric, 'p' || percentile AS at, m.n AS n_before, n.n AS n_after, b.x AS before, "
	"b.lo AS before_lo, b.hi AS before_hi, a.x AS after, a.lo AS after_lo, a.hi AS after_hi, "
	"ratio, ratio_lo, ratio_hi, r.reason, holm.p "
	"FROM figure b JOIN figure a USING(metric, percentile) "
	"JOIN v_latency m ON m.run_id = 1 AND m.metric = b.metric "
	"JOIN v_latency n ON n.run_id = 2 AND n.metric = b.metric "
	"LEFT JOIN ratios r USING(metric, percentile) LEFT JOIN holm USING(metric, percentile) "
	"WHERE b.run_id = 1 AND a.run_id = 2 AND b.metric <> 'queue' "
	"ORDER BY instr('ttft tpot itl e2e', b.metric), percentile";

static enum ar_status check_runs(const struct diff *x, struct ar_err *err)
{
	sqlite3_stmt *q = NULL;
	enum ar_status st = AR_OK;
	long long n;

	if (sqlite3_prepare_v2(x->db, "SELECT count(*) FROM run", -1, &q, NULL) ||
	    sqlite3_step(q) != SQLITE_ROW)
		st = writer_fail(x->db, err);
	else if ((n = sqlite3_column_int64(q, 0)) != 2)
		st = ar_fail(err, AR_USAGE,
			     "the operands hold %lld runs, want two; name each as DB:RUN", n);
	sqlite3_finalize(q);
	return st;
}

enum ar_status diff_compute(const struct diff *x, struct ar_err *err)
{
	enum ar_status st = check_runs(x, err);

	if (!st && (sqlite3_exec(x->db, pair, NULL, NULL, NULL) ||
		    sqlite3_exec(x->db, latencies, NULL, NULL, NULL)))
		st = writer_fail(x->db, err);
	return st;
}
