-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, status, ok, rejected, unfinished, coalesce(n, iterations) AS iterations,
  seconds, layers_run || ' of ' || n_layers AS layers,
  iif(host_ms > 0, clock || ' + host', clock) AS clock, host_ms, cached_tokens AS cached
FROM v_run LEFT JOIN (
  SELECT run_id, sum(iterations) AS n, (max(end_ns) - min(start_ns)) / 1e9 AS seconds,
    sum(batch_host_ns) * 1.0 / nullif(sum(batches), 0) / 1e6 AS host_ms
  FROM iteration_sum
  GROUP BY run_id) USING(run_id)
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id
