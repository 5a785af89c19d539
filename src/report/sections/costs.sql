-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, c.costs, cost_source AS source, iterations, 100 * share AS percent, ms
FROM v_cost_source
  JOIN (SELECT run_id, value AS costs FROM run_param
    WHERE key = 'costs' AND value IS NOT NULL) c USING(run_id)
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id, instr('measured interpolated extrapolated', cost_source)
