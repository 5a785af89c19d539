-- SPDX-License-Identifier: Apache-2.0
WITH point AS (
  SELECT run_id, l.method, l.style % 32 AS style, value + 0 AS tokens, ttft, tpot, 100 * error AS error
  FROM run_label l JOIN run_param USING(run_id) JOIN verdict USING(run_id)
  WHERE key = 'max-num-batched-tokens')
SELECT column1 AS panel, method AS series, style, 'line' AS geom, tokens AS x,
  CASE column1 WHEN 'TTFT p50, ms' THEN ttft WHEN 'TPOT p50, ms' THEN tpot ELSE error END AS y
FROM point JOIN (VALUES ('TTFT p50, ms'), ('TPOT p50, ms'), ('mean relative L2 error, %'))
WHERE (SELECT count(DISTINCT tokens) FROM point) > 1 AND y IS NOT NULL
ORDER BY panel DESC, method, tokens
