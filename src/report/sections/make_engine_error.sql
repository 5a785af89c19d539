-- SPDX-License-Identifier: Apache-2.0
-- The error of each percentile, of medians over the replay's repeats and the engine's passes.  Its
-- interval takes the logarithms of passes and of repeats for normal: Welch's t interval of the
-- difference of their means.  Fewer than 3 passes have none.  A single replay adds no spread; if it is one
-- draw of its host, there is no interval.  error_min, error_max: of the fastest and the slowest repeat.
CREATE TEMP TABLE engine_error AS
WITH each AS MATERIALIZED (
    SELECT first_id, first_engine, metric, at, engine, id,
      CASE at WHEN 'p50' THEN p50 WHEN 'p90' THEN p90 ELSE p99 END AS x
    FROM (
      SELECT DISTINCT first_id, first_engine, 0 AS engine, run_id AS id FROM engine_pair
      UNION ALL
      SELECT DISTINCT first_id, first_engine, 1, engine_id FROM engine_pair)
      JOIN latency l ON l.run_id = id
      JOIN (SELECT column1 AS at FROM (VALUES ('p50'), ('p90'), ('p99')))
    WHERE metric IN ('ttft', 'tpot')),
  side AS (
    SELECT first_id, first_engine, metric, at, engine, n, x, x_min, x_max, mean,
      iif(n > 1, square / (n - 1) / n, 0.0) AS var
    FROM (
      SELECT first_id, first_engine, metric, at, engine, count(*) AS n, median(x) AS x,
        min(x) AS x_min, max(x) AS x_max, avg(ln(x)) AS mean,
        max(sum(ln(x) * ln(x)) - sum(ln(x)) * avg(ln(x)), 0.0) AS square
      FROM each
      GROUP BY first_id, first_engine, metric, at, engine)),
  error AS (
    SELECT first_id, first_engine, metric, at, p.x AS p, p.x_min AS p_min, p.x_max AS p_max,
      e.x AS e, e.x_min AS e_min, e.x_max AS e_max, e.n AS passes, p.n AS draws, p.mean - e.mean AS mean,
      sqrt(p.var + e.var) AS deviation, max(1, min(30, CAST((p.var + e.var) * (p.var + e.var)
        / (p.var * p.var / max(p.n - 1, 1) + e.var * e.var / max(e.n - 1, 1)) AS INTEGER)))
        AS freedom
    FROM side p JOIN side e USING(first_id, first_engine, metric, at)
    WHERE NOT p.engine AND e.engine),
  bounds AS (
    SELECT *, iif(sure, exp(mean - t * deviation), NULL) AS lo,
      iif(sure, exp(mean + t * deviation), NULL) AS hi
    FROM (SELECT *, passes > 2 AND NOT (draws = 1 AND first_id IN (SELECT run_id FROM drawn_run)) AS sure
      FROM error)
      LEFT JOIN t_value USING(freedom))
SELECT first_id AS run, first_engine AS engine_run, backend AS engine, metric, at,
  100.0 * (p - e) / nullif(e, 0) AS error_percent,
  iif(p / e BETWEEN lo AND hi, 100 * (lo - 1), NULL) AS error_lo,
  iif(p / e BETWEEN lo AND hi, 100 * (hi - 1), NULL) AS error_hi,
  draws, 100.0 * (p_min - e) / nullif(e, 0) AS error_min, 100.0 * (p_max - e) / nullif(e, 0) AS error_max,
  passes, iif(passes > 1, 100.0 * (e_max - e_min) / nullif(e, 0), NULL) AS spread_percent,
  e AS engine_ms, p AS run_ms, p_min AS run_min, p_max AS run_max
FROM bounds JOIN run ON run_id = first_engine
