-- SPDX-License-Identifier: Apache-2.0
-- A run against its dense run, which is at 1 and 0; of prompts, or of the decodes that it changes alone.
WITH diff AS (
  SELECT run_id, base_id, mean_interval(req_no, diff) AS d, sum(dense_exact > exact) AS lost,
    sum(exact > dense_exact) AS won, count(*) AS n
  FROM v_eval_paired JOIN run_label USING(run_id)
  GROUP BY run_id, base_id),
point AS (
  SELECT run_id, iif(half = 'decode', executed_decode, executed) AS x, json_extract(d, '$[0]') AS y, json_extract(d, '$[1]') AS y_lo,
    json_extract(d, '$[2]') AS y_hi, printf('; %d prompts: %d answers lost, %d won', n, lost, won)
      AS more
  FROM diff JOIN v_executed USING(run_id) JOIN v_half USING(run_id)
  UNION ALL
  SELECT DISTINCT base_id, 1, 0, NULL, NULL, '' FROM diff)
SELECT * FROM (
SELECT '' AS panel, label AS series, style, 'point' AS geom, x, y, y_lo, y_hi,
  printf('%s: %.1f %% executed, %.4f nats a token%s%s', label, 100 * x, y,
    iif(y_lo IS NULL, '', printf(' (%.4f to %.4f)', y_lo, y_hi)), more) AS title
FROM point JOIN run_label USING(run_id)
WHERE x IS NOT NULL
ORDER BY place)
UNION ALL
SELECT '', 'as ' || name, 0, 'rule', NULL, 0, NULL, NULL, 'as ' || name
FROM baseline_name
WHERE EXISTS (SELECT 1 FROM point WHERE y_lo IS NOT NULL)
