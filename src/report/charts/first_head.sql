-- SPDX-License-Identifier: Apache-2.0
-- What ran, in a few words each.
SELECT text
FROM (
  SELECT 1 AS place, group_concat(text, '; ') AS text
  FROM (SELECT DISTINCT trace || printf(', %d requests', requests) AS text
    FROM v_run JOIN run_label USING(run_id))
  UNION ALL
  SELECT 2, iif(min(value + 0.0) = max(value + 0.0), printf('%g a second', max(value + 0.0)),
    printf('%g to %g a second', min(value + 0.0), max(value + 0.0)))
  FROM run_param JOIN run_label USING(run_id) WHERE key = 'rate' AND value + 0.0 > 0
  GROUP BY key
  UNION ALL
  SELECT 3, group_concat(text, '; ')
  FROM (SELECT DISTINCT name || iif(tp > 1, printf(', 1 rank of %d', tp), '') AS text
    FROM run JOIN run_label USING(run_id) JOIN model USING(model_id))
  UNION ALL
  SELECT 4, group_concat(policy, ', ') FROM (SELECT DISTINCT policy FROM run JOIN run_label USING(run_id))
  UNION ALL
  SELECT 5, group_concat(text, '; ')
  FROM (SELECT DISTINCT CASE clock WHEN 'modelled' THEN coalesce((SELECT value FROM run_param p
      WHERE p.run_id = run.run_id AND key = 'gpu'), '') || ', modelled'
    WHEN 'cpu' THEN 'a CPU' WHEN 'cost' THEN 'costs' WHEN 'engine' THEN coalesce(g.name || ', ', '') || backend
    ELSE coalesce(g.name || ', ', '') || 'measured' END AS text
    FROM run JOIN run_label USING(run_id) LEFT JOIN gpu g USING(gpu_id))
  UNION ALL
  SELECT 6, strftime('%Y-%m-%d', min(started_utc_ns) / 1000000000, 'unixepoch')
  FROM run JOIN run_label USING(run_id))
WHERE text IS NOT NULL
ORDER BY place
