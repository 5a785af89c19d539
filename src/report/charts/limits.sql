-- SPDX-License-Identifier: Apache-2.0
-- The rule makes the axis reach to 100 %.
WITH bar AS (
  SELECT iif(metric = 'all', 'all limits', printf('%s within %g ms', upper(metric), ns / 1e6)) AS row,
    label, style, 100.0 * good / n AS percent
  FROM goodput JOIN run_label USING(run_id)
  ORDER BY metric = 'all', row, place)
SELECT '' AS panel, row, label AS series, style, 'group' AS geom, percent AS x,
  printf('%s, %s: %.4g %% of the requests', label, row, percent) AS title
FROM bar
UNION ALL
SELECT * FROM (SELECT '', row, label, style, 'rule', 100, 'all requests' FROM bar LIMIT 1)
