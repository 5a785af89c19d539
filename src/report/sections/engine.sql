-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, engine_id AS engine_run, backend AS engine, metric, at, e AS engine_ms,
  p AS run_ms, 100.0 * (p - e) / nullif(e, 0) AS error_percent
FROM (
  SELECT x.run_id, engine_id, r.backend, a.metric, column1 AS at,
    CASE column1 WHEN 'p50' THEN b.p50 WHEN 'p90' THEN b.p90 ELSE b.p99 END AS e,
    CASE column1 WHEN 'p50' THEN a.p50 WHEN 'p90' THEN a.p90 ELSE a.p99 END AS p
  FROM engine_pair x JOIN run r ON r.run_id = engine_id JOIN latency a ON a.run_id = x.run_id
    JOIN latency b ON b.run_id = engine_id AND b.metric = a.metric
    JOIN (VALUES ('p50'), ('p90'), ('p99'))
  WHERE a.metric IN ('ttft', 'tpot'))
ORDER BY run, engine_run, instr('ttft tpot', metric), at
