-- SPDX-License-Identifier: Apache-2.0
-- What the error of iterations goes with: a line of least squares through the error by each quantity;
-- the error that one more of it adds, us, and the share of the error's variance that the line explains.
-- adds_percent: what a plane by it and the quantity that explains most explains beyond that one's line.
CREATE TEMP TABLE engine_residual AS
WITH point AS MATERIALIZED (
    SELECT run, engine_run, pass, iter_no, place, quantity, y - avg(y) OVER same AS y, x - avg(x) OVER same AS x
    FROM (
      SELECT run, engine_run, pass, iter_no, column1 AS place, column2 AS quantity, p_ns - e_ns AS y,
        CASE column2 WHEN 'tokens' THEN tokens WHEN 'pairs' THEN pairs WHEN 'longest decode' THEN longest
          WHEN 'requests' THEN requests ELSE joins END AS x
      FROM engine_step
        JOIN (VALUES (1, 'tokens'), (2, 'pairs'), (3, 'longest decode'), (4, 'requests'), (5, 'joins'))
      WHERE p_ns IS NOT NULL)
    WHERE x IS NOT NULL
    WINDOW same AS (PARTITION BY run, engine_run, place)),
  line AS MATERIALIZED (
    SELECT *, xy * xy / (xx * yy) AS r2,
      row_number() OVER (PARTITION BY run, engine_run ORDER BY xy * xy / (xx * yy) DESC, place) AS no
    FROM (
      SELECT run, engine_run, place, quantity, count(*) AS n, sum(x * y) AS xy, sum(x * x) AS xx,
        sum(y * y) AS yy
      FROM point
      GROUP BY run, engine_run, place)
    WHERE xx > 0 AND yy > 0),
  first AS (SELECT * FROM line WHERE no = 1),
  both AS (
    SELECT p.run, p.engine_run, p.place, sum(p.x * t.x) AS xx_both
    FROM first f JOIN point t USING(run, engine_run, place)
      JOIN point p ON p.run = t.run AND p.engine_run = t.engine_run AND p.pass = t.pass AND p.iter_no = t.iter_no
    GROUP BY p.run, p.engine_run, p.place),
  -- correlations of the quantity and the first with the error, and with each other
  pair AS (
    SELECT l.*, f.r2 AS best, l.xy / sqrt(l.xx * l.yy) AS c, f.xy / sqrt(f.xx * f.yy) AS c_best,
      xx_both / sqrt(l.xx * f.xx) AS c_pair
    FROM line l JOIN first f USING(run, engine_run) JOIN both o ON o.run = l.run
      AND o.engine_run = l.engine_run AND o.place = l.place)
SELECT run, engine_run, no, quantity, n, xy / xx / 1e3 AS us_each, 100 * r2 AS explains_percent,
  iif(no = 1, NULL, iif(c_pair * c_pair > 0.999, 0, 100 * ((c * c + c_best * c_best
    - 2 * c * c_best * c_pair) / (1 - c_pair * c_pair) - best))) AS adds_percent
FROM pair
