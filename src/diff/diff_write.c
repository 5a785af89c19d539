/* SPDX-License-Identifier: Apache-2.0 */
/* The sections of a comparison: run 1 is before, run 2 after. */
#include "config.h"
#include "src/diff/diff.h"

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
	{ "changed", "Percentiles that changed: the interval of the ratio does not hold 1",
	  "SELECT metric, at, 100 * (ratio - 1) AS percent, 100 * (ratio_lo - 1) AS lo, "
	  "100 * (ratio_hi - 1) AS hi FROM diff_latency WHERE ratio_lo > 1 OR ratio_hi < 1" },
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
	  "SELECT iif(paired, 'requests are the same: each resample takes the same requests of "
	  "both runs', 'requests differ: each run is resampled alone') AS note FROM diff_paired "
	  "UNION ALL SELECT 'times between tokens are resampled as if independent: their intervals "
	  "are too narrow' WHERE EXISTS (SELECT 1 FROM diff_latency WHERE metric = 'itl') "
	  "UNION ALL SELECT 'no difference: each interval of a ratio holds 1' WHERE EXISTS "
	  "(SELECT 1 FROM diff_latency) AND NOT EXISTS "
	  "(SELECT 1 FROM diff_latency WHERE ratio_lo > 1 OR ratio_hi < 1) "
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
