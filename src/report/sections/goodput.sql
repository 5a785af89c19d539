-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, me.name AS method, metric, ns / 1e6 AS limit_ms, n, good,
  100.0 * good / n AS percent, good / duration_s AS per_second
FROM goodput JOIN v_load USING(run_id) JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
ORDER BY run_id, instr('ttft tpot e2e all', metric)
