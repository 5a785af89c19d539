-- SPDX-License-Identifier: Apache-2.0
-- What the error of iterations goes with: a line of least squares through the error by each quantity;
-- the error that one more of it adds, us, and the share of the error's variance that the line explains.
CREATE TEMP TABLE engine_residual AS
WITH point AS (
    SELECT run, engine_run, column1 AS place, column2 AS quantity, p_ns - e_ns AS y,
      CASE column2 WHEN 'tokens' THEN tokens WHEN 'pairs' THEN pairs WHEN 'longest decode' THEN longest
        WHEN 'requests' THEN requests ELSE joins END AS x
    FROM engine_step
      JOIN (VALUES (1, 'tokens'), (2, 'pairs'), (3, 'longest decode'), (4, 'requests'), (5, 'joins'))
    WHERE p_ns IS NOT NULL),
  middle AS (
    SELECT run, engine_run, place, avg(x) AS x0, avg(y) AS y0
    FROM point
    WHERE x IS NOT NULL
    GROUP BY run, engine_run, place),
  line AS (
    SELECT run, engine_run, place, quantity, count(*) AS n, sum((x - x0) * (y - y0)) AS xy,
      sum((x - x0) * (x - x0)) AS xx, sum((y - y0) * (y - y0)) AS yy
    FROM point JOIN middle USING(run, engine_run, place)
    WHERE x IS NOT NULL
    GROUP BY run, engine_run, place)
SELECT run, engine_run, place, quantity, n, xy / xx / 1e3 AS us_each,
  100.0 * xy * xy / (xx * yy) AS explains_percent
FROM line
WHERE xx > 0 AND yy > 0
