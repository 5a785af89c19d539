-- SPDX-License-Identifier: Apache-2.0
-- Repeats of a replay are one row: their median, smallest and largest.
SELECT first_id AS run, engine_id AS engine_run, backend AS engine, metric, at, e AS engine_ms,
  median(p) AS run_ms, min(p) AS run_min, max(p) AS run_max,
  100.0 * (median(p) - e) / nullif(e, 0) AS error_percent
FROM (
  SELECT first_id, engine_id, r.backend, a.metric, column1 AS at,
    CASE column1 WHEN 'p50' THEN b.p50 WHEN 'p90' THEN b.p90 ELSE b.p99 END AS e,
    CASE column1 WHEN 'p50' THEN a.p50 WHEN 'p90' THEN a.p90 ELSE a.p99 END AS p
  FROM engine_pair x JOIN run r ON r.run_id = engine_id JOIN latency a ON a.run_id = x.run_id
    JOIN latency b ON b.run_id = engine_id AND b.metric = a.metric
    JOIN (VALUES ('p50'), ('p90'), ('p99'))
  WHERE a.metric IN ('ttft', 'tpot'))
GROUP BY run, engine_run, metric, at
ORDER BY run, engine_run, instr('ttft tpot', metric), at
