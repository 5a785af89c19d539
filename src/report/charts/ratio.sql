-- SPDX-License-Identifier: Apache-2.0
-- Each request of a run against the same request of its baseline; at most 4000 a run.  The line joins
-- medians of at most twenty groups of equal size, by length.
WITH pair AS MATERIALIZED (
  SELECT *, ntile(max(1, min(20, n / 5))) OVER (PARTITION BY run_id ORDER BY prompt_tokens) AS part
  FROM (
    SELECT run_id, base_id, req_no, prompt_tokens, ttft_speedup, count(*) OVER (PARTITION BY run_id) AS n
    FROM v_paired JOIN run_label USING(run_id)
    WHERE ttft_speedup > 0 AND prompt_tokens > 0))
SELECT * FROM (
SELECT '' AS panel, label AS series, style, geom, x, y, title
FROM (
  SELECT run_id, 'point' AS geom, prompt_tokens AS x, ttft_speedup AS y,
    printf('request %d: %d tokens, %s / this %.3f', req_no, prompt_tokens, b.label, ttft_speedup)
      AS title
  FROM pair JOIN (SELECT run_id AS base_id, label FROM run_label) b USING(base_id)
  WHERE req_no % (n / 4000 + 1) = 0
  UNION ALL
  SELECT * FROM (
    SELECT run_id, 'line', median(prompt_tokens), median(ttft_speedup), NULL
    FROM pair GROUP BY run_id, part ORDER BY run_id, part))
  JOIN run_label USING(run_id)
ORDER BY run_id)
UNION ALL
SELECT '', 'as fast as ' || name, 0, 'rule', NULL, 1, 'as fast as ' || name
FROM baseline_name
WHERE EXISTS (SELECT 1 FROM pair)
