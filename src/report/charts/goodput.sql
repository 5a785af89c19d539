-- SPDX-License-Identifier: Apache-2.0
-- A line for each method, over --rate.  Ringed: the highest rate at which 99 % of the requests keep all
-- limits.
WITH point AS (
  SELECT run_id, method, style % 32 AS style, value + 0.0 AS rate, 100.0 * good / n AS percent
  FROM goodput JOIN run_label USING(run_id) JOIN run_param USING(run_id)
  WHERE metric = 'all' AND key = 'rate' AND value + 0.0 > 0)
SELECT 'limits: ' || (SELECT group_concat(DISTINCT printf('%s %g ms', upper(metric), ns / 1e6))
    FROM slo) AS panel,
  method AS series, style, geom, rate AS x, percent AS y,
  geom = 'point' AND rate = max(rate) FILTER (WHERE percent >= 99) OVER (PARTITION BY method, geom)
    AS ring,
  printf('%s at %g a second: %.4g %% keep all limits', method, rate, percent) AS title
FROM point JOIN (SELECT 'point' AS geom UNION ALL SELECT 'line')
WHERE (SELECT count(DISTINCT rate) FROM point) > 1
ORDER BY method, rate
