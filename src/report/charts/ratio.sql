-- SPDX-License-Identifier: Apache-2.0
-- Each request of a run against the same request of its baseline; at most 4000 a run.  The line joins
-- medians of groups of equal size, by length.
SELECT * FROM (
SELECT '' AS panel, label AS series, style, geom, x, y, title
FROM (
  SELECT run_id, 'point' AS geom, prompt_tokens AS x, ttft_speedup AS y,
    printf('request %d: %d tokens, %s than %s', req_no, prompt_tokens, faster(ttft_speedup, NULL, NULL),
      b.label) AS title
  FROM (
    SELECT *, count(*) OVER (PARTITION BY run_id) AS n
    FROM v_paired
    WHERE ttft_speedup > 0 AND prompt_tokens > 0)
    JOIN (SELECT run_id AS base_id, label FROM run_label) b USING(base_id)
  WHERE req_no % (n / 4000 + 1) = 0
  UNION ALL
  SELECT * FROM (
    SELECT run_id, 'line', tokens, speedup, NULL
    FROM length_gain ORDER BY run_id, part))
  JOIN run_label USING(run_id)
ORDER BY place)
UNION ALL
SELECT '', 'as fast as ' || name, 0, 'rule', NULL, 1, 'as fast as ' || name
FROM baseline_name
WHERE EXISTS (SELECT 1 FROM length_gain)
