-- SPDX-License-Identifier: Apache-2.0
-- A run with accuracy samples against its dense run; dense is at (1, 0).  Ringed: no other run is both
-- as fast and as exact.
WITH pair AS (
  SELECT p.run_id, p.base_id, v.error
  FROM v_pair p JOIN verdict v USING(run_id)
  WHERE v.error IS NOT NULL AND NOT v.is_dense),
  point AS (
  SELECT a.metric, p.run_id, a.p50 / b.p50 AS x, 100 * p.error AS y
  FROM pair p JOIN latency a USING(run_id)
    JOIN latency b ON b.run_id = p.base_id AND b.metric = a.metric
  WHERE a.metric IN ('ttft', 'tpot') AND a.p50 > 0 AND b.p50 > 0
  UNION
  SELECT b.metric, p.base_id, 1, 0
  FROM pair p JOIN latency b ON b.run_id = p.base_id
  WHERE b.metric IN ('ttft', 'tpot'))
SELECT upper(metric) || ' p50' AS panel, label AS series, style, x, y,
  NOT EXISTS (SELECT 1 FROM point q WHERE q.metric = p.metric AND q.x <= p.x AND q.y <= p.y
    AND (q.x < p.x OR q.y < p.y)) AS ring,
  printf('%s: %.3f times the %s p50 of dense, error %.3g %%', label, x, upper(metric), y) AS title
FROM point p JOIN run_label USING(run_id)
ORDER BY metric DESC, run_id
