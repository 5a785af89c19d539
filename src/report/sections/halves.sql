-- SPDX-License-Identifier: Apache-2.0
-- The attention core in iterations with prompt tokens, whose decodes count as well, and in those of
-- decodes alone.
SELECT run_id AS run, me.name AS method, iif(prefill_tokens, 'prefill', 'decode') AS half,
  p.name AS phase, sum(kernels) AS kernels, sum(gpu_ns) / 1e6 AS ms,
  100.0 * sum(gpu_ns) / sum(sum(gpu_ns)) OVER (PARTITION BY run_id, prefill_tokens > 0) AS percent
FROM iteration_phase JOIN iteration USING(run_id, iter_no) JOIN phase p USING(phase_id)
  JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
WHERE p.core AND (:run IS NULL OR run_id = :run)
GROUP BY run_id, prefill_tokens > 0, phase_id
ORDER BY run_id, half DESC, phase_id
