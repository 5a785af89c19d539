-- SPDX-License-Identifier: Apache-2.0
SELECT p.run_id AS run, a.method, base_id AS dense_run, a.metric, a.n, b.n AS dense_n,
  b.mean / nullif(a.mean, 0) AS mean, b.p50 / nullif(a.p50, 0) AS p50,
  b.p90 / nullif(a.p90, 0) AS p90, b.p99 / nullif(a.p99, 0) AS p99
FROM (SELECT * FROM v_pair WHERE :run IS NULL OR run_id = :run) p
  JOIN latency a USING(run_id)
  JOIN latency b ON b.run_id = base_id AND b.metric = a.metric
ORDER BY p.run_id, instr('ttft tpot itl e2e queue', a.metric)
