-- SPDX-License-Identifier: Apache-2.0
-- The rule makes the axis reach to 100 %.  All limits have intervals, of the replicates.
WITH bar AS (
  SELECT iif(metric = 'all', 'all limits', printf('%s within %g ms', upper(metric), ns / 1e6)) AS row,
    l.label, l.style, 100.0 * g.good / n AS percent, iif(metric = 'all', good_lo, NULL) AS lo,
    iif(metric = 'all', good_hi, NULL) AS hi
  FROM goodput g JOIN run_label l USING(run_id) JOIN verdict USING(run_id)
  ORDER BY metric = 'all', row, l.place)
SELECT '' AS panel, row, label AS series, style, 'group' AS geom, percent AS x,
  lo AS x_lo, hi AS x_hi, printf('%s, %s: %.4g %% of the requests', label, row, percent)
    || iif(lo IS NULL, '', printf(' [%.4g, %.4g]', lo, hi)) AS title
FROM bar
UNION ALL
SELECT * FROM (SELECT '', row, 'all requests', 0, 'rule', 100, NULL, NULL, 'all requests' FROM bar LIMIT 1)
