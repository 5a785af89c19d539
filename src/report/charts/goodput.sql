-- SPDX-License-Identifier: Apache-2.0
-- A line for each method, over --rate, with the intervals of replicates.  Ringed: the highest rate at
-- which 99 % of the requests keep all limits.
WITH point AS (
  SELECT run_id, method, style % 32 AS style, value + 0.0 AS rate, 100.0 * good / requests AS percent,
    good_lo, good_hi
  FROM verdict JOIN run_param USING(run_id)
  WHERE good IS NOT NULL AND key = 'rate' AND value + 0.0 > 0)
SELECT 'limits: ' || limits AS panel,
  method AS series, style, geom, rate AS x, percent AS y, iif(geom = 'point', good_lo, NULL) AS y_lo,
  iif(geom = 'point', good_hi, NULL) AS y_hi,
  geom = 'point' AND rate = max(rate) FILTER (WHERE percent >= 99) OVER (PARTITION BY method, geom)
    AS ring,
  printf('%s at %g a second: %.4g %% keep all limits', method, rate, percent)
    || iif(good_lo IS NULL, '', printf(' [%.4g, %.4g]', good_lo, good_hi)) AS title
FROM point JOIN (SELECT 'point' AS geom UNION ALL SELECT 'line') JOIN limits
WHERE (SELECT count(DISTINCT rate) FROM point) > 1
ORDER BY method, rate
