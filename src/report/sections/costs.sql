-- SPDX-License-Identifier: Apache-2.0
-- The rows of v_cost_source.
SELECT run_id AS run, p.value AS costs, cost_source AS source, iterations,
  100 * (iterations * 1.0 / sum(iterations) OVER (PARTITION BY run_id)) AS percent,
  cost_ns / 1e6 AS ms
FROM iteration_sum JOIN run_param p USING(run_id)
WHERE cost_source IS NOT NULL AND p.key = 'costs' AND p.value IS NOT NULL
  AND (:run IS NULL OR run_id = :run)
ORDER BY run_id, instr('measured interpolated extrapolated', cost_source)
