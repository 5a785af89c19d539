-- SPDX-License-Identifier: Apache-2.0
-- All values up to 256, else 256 quantiles.  Markers are at p50, p90 and p99.
SELECT * FROM (
SELECT upper(metric) AS panel, label AS series, style, geom, x, y, title
FROM (
  SELECT metric, run_id, 'steps' AS geom, json_extract(value, '$[0]') AS x,
    json_extract(value, '$[1]') AS y, NULL AS title
  FROM (
    SELECT run_id, column1 AS metric, CASE column1 WHEN 'ttft' THEN ttft WHEN 'tpot' THEN tpot
      ELSE e2e END AS d
    FROM (
      SELECT run_id, ecdf(ttft_ns / 1e6, 1) AS ttft,
        ecdf(tpot_ns / 1e6, 1) FILTER (WHERE tpot_ns IS NOT NULL) AS tpot,
        ecdf(e2e_ns / 1e6, 1) AS e2e
      FROM request_outcome JOIN run_label USING(run_id) WHERE outcome = 'ok' GROUP BY run_id)
      JOIN (VALUES ('ttft'), ('tpot'), ('e2e'))
    UNION ALL
    SELECT run_id, 'itl', ecdf(itl_ns / 1e6, n)
    FROM token_gap JOIN run_label USING(run_id) GROUP BY run_id) t
    JOIN json_each(d)
  UNION ALL
  SELECT metric, run_id, 'point', CASE column1 WHEN 50 THEN p50 WHEN 90 THEN p90 ELSE p99 END,
    column1 / 100.0, printf('%s p%d: %.4g ms', metric, column1,
      CASE column1 WHEN 50 THEN p50 WHEN 90 THEN p90 ELSE p99 END)
  FROM latency JOIN (VALUES (50), (90), (99)))
  JOIN run_label USING(run_id)
WHERE metric IN ('ttft', 'tpot', 'itl', 'e2e')
ORDER BY instr('ttft tpot itl e2e', metric), place, y)
UNION ALL
SELECT DISTINCT upper(metric), 'limit', 0, 'rule', ns / 1e6, NULL,
  printf('limit of %s: %g ms', metric, ns / 1e6)
FROM slo JOIN run_label USING(run_id)
