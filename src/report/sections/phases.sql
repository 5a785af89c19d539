-- SPDX-License-Identifier: Apache-2.0
-- Phase 'host' is the time that the GPU waited for the host.  With sampled layers it has no place
-- beside the kernels of these layers.
WITH part AS (
  SELECT run_id, v.method, v.phase, iif(v.core, '*', '') AS core, kernels, ms, p.phase_id AS place
  FROM v_phase_time v JOIN phase p ON p.name = v.phase
  WHERE :run IS NULL OR run_id = :run
  UNION ALL
  SELECT run_id, me.name, 'host', '', NULL, sum(host_ns) / 1e6, 1000
  FROM iteration_sum JOIN run r USING(run_id) JOIN model mo USING(model_id)
    LEFT JOIN method me USING(method_id)
  WHERE (:run IS NULL OR run_id = :run) AND layers_run = n_layers
  GROUP BY run_id
  HAVING sum(host_ns) > 0 AND EXISTS (SELECT 1 FROM iteration_phase p WHERE p.run_id = r.run_id)
)
SELECT run_id AS run, method, phase, core, kernels, ms,
  100 * ms / sum(ms) OVER (PARTITION BY run_id) AS percent
FROM part
ORDER BY run_id, place
