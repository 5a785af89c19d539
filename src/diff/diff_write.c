/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of a comparison: run 1 is before, run 2 after. */
#include "config.h"
#include "src/diff/diff.h"

#define CHANGED "p <= 0.05 AND NOT 1 BETWEEN ratio_lo AND ratio_hi"

static const struct {
	const char *name, *title, *sql;
} sections[] = {
	{ "runs", "Runs",
	  "SELECT iif(run_id = 1, 'before', 'after') AS run, path || ':' || s.run AS source, "
	  "method, trace, model, policy, gpu, backend, status, ok "
	  "FROM v_run r JOIN source_run s USING(run_id) ORDER BY run_id" },
	/* Of a run's own record, not of the command that made several runs. */
	{ "options", "Options that differ",
	  "WITH o AS (SELECT run_id, key, value FROM run_param "
	  "WHERE key NOT IN ('db', 'json', 'method') "
	  "UNION ALL SELECT run_id, 'method', method FROM v_run "
	  "UNION ALL SELECT run_id, name || ':' || j.key, j.value "
	  "FROM run JOIN method USING(method_id), json_each(params) j "
	  "UNION ALL SELECT run_id, 'version', version FROM run "
	  "UNION ALL SELECT run_id, 'gpu', gpu FROM v_run "
	  "UNION ALL SELECT run_id, 'clock', clock FROM run "
	  "UNION ALL SELECT run_id, 'trace sha256', sha256 FROM run JOIN trace USING(trace_id)) "
	  "SELECT key AS option, before, after FROM (SELECT key, "
	  "max(value) FILTER (WHERE run_id = 1) AS before, "
	  "max(value) FILTER (WHERE run_id = 2) AS after FROM o GROUP BY key) "
	  "WHERE before IS NOT after ORDER BY key" },
	{ "latency", "Latency, ms, with intervals of 95 %; ratio is after / before",
	  "SELECT metric, at, n_before AS n, before, before_lo AS lo, before_hi AS hi, "
	  "nullif(n_after, n_before) AS after_n, after, "
	  "after_lo, after_hi, ratio, ratio_lo, ratio_hi FROM diff_latency" },
	{ "changed", "Percentiles that changed, by Holm's test of all at 5 %",
	  "SELECT metric, at, 100 * (ratio - 1) AS percent, 100 * (ratio_lo - 1) AS lo, "
	  "100 * (ratio_hi - 1) AS hi, p FROM diff_latency WHERE " CHANGED },
	{ "phases", "Time by phase, ms of kernels and percent of the run; * is the attention core",
	  "SELECT phase, iif(c, '*', '') AS core, before, after, after / nullif(before, 0) AS "
	  "ratio, before_percent, after_percent FROM (SELECT phase, max(core) AS c, "
	  "max(ms) FILTER (WHERE run_id = 1) AS before, max(ms) FILTER (WHERE run_id = 2) AS "
	  "after, 100 * max(share) FILTER (WHERE run_id = 1) AS before_percent, "
	  "100 * max(share) FILTER (WHERE run_id = 2) AS after_percent "
	  "FROM v_phase_time GROUP BY phase) JOIN phase p ON p.name = phase ORDER BY p.phase_id" },
	{ "kernels", "Kernels that changed most, of the iterations whose kernels were kept",
	  "SELECT name AS kernel, phase, n_before, n_after, before_ms, after_ms, "
	  "after_ms - before_ms AS change_ms FROM (SELECT name, phase, "
	  "count(*) FILTER (WHERE run_id = 1) AS n_before, "
	  "count(*) FILTER (WHERE run_id = 2) AS n_after, "
	  "total(dur_ns) FILTER (WHERE run_id = 1) / 1e6 AS before_ms, "
	  "total(dur_ns) FILTER (WHERE run_id = 2) / 1e6 AS after_ms "
	  "FROM v_kernel GROUP BY name, phase) WHERE before_ms <> after_ms "
	  "ORDER BY abs(after_ms - before_ms) DESC, name LIMIT 10" },
	{ "notes", "Notes",
	  "SELECT iif(min(draw_key) = max(draw_key), 'the runs have the same resamples of the same "
	  "requests: ratios are those of each', 'each run has resamples of its own') AS note "
	  "FROM resampling HAVING count(*) = 2 "
	  "UNION ALL SELECT 'no interval for ' || group_concat(metric || '.' || at, ', ') || ': ' "
	  "|| reason FROM (SELECT * FROM diff_latency WHERE reason IS NOT NULL "
	  "ORDER BY reason, rowid) GROUP BY reason "
	  "UNION ALL SELECT 'no difference is found' WHERE EXISTS "
	  "(SELECT 1 FROM diff_latency WHERE p IS NOT NULL) AND NOT EXISTS "
	  "(SELECT 1 FROM diff_latency WHERE " CHANGED ") "
	  "UNION ALL SELECT printf('run %s is %s: its figures cover what was committed', "
	  "iif(run_id = 1, 'before', 'after'), status) FROM run WHERE status <> 'done'" },
};

enum ar_status diff_write(const struct diff *x, struct document *d, struct ar_err *err)
{
	enum ar_status st = AR_OK;

	for (size_t i = 0; i < sizeof sections / sizeof *sections && !st; i++) {
		sqlite3_stmt *q = NULL;

		d->name = sections[i].name;
		d->title = sections[i].title;
		st = sqlite3_prepare_v2(x->db, sections[i].sql, -1, &q, NULL) ?
			     writer_fail(x->db, err) :
			     writer_query(d, q, err);
		if (st)
			ar_err_prefix(err, "%s", d->name);
		sqlite3_finalize(q);
	}
	writer_finish(d);
	return st;
}
