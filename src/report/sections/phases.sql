-- SPDX-License-Identifier: Apache-2.0
-- Phase 'host' is the time that the GPU waited for the host.  With sampled layers it has no place
-- beside the kernels of these layers.
WITH part AS (
  SELECT run_id, method, phase, iif(core, '*', '') AS core, kernels, ms, place
  FROM phase_time
  WHERE :run IS NULL OR run_id = :run
  UNION ALL
  SELECT run_id, me.name, 'host', '', NULL, sum(host_ns) / 1e6, 1000
  FROM iteration_sum JOIN run r USING(run_id) JOIN model mo USING(model_id)
    LEFT JOIN method me USING(method_id)
  WHERE (:run IS NULL OR run_id = :run) AND layers_run = n_layers
  GROUP BY run_id
  HAVING sum(host_ns) > 0 AND run_id IN (SELECT run_id FROM phase_time)
)
SELECT run_id AS run, method, phase, core, kernels, ms,
  100 * ms / sum(ms) OVER (PARTITION BY run_id) AS percent
FROM part
ORDER BY run_id, place
