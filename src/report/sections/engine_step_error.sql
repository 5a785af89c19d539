-- SPDX-License-Identifier: Apache-2.0
-- n: iterations of the engine's passes that have one like them in the run, out of engine_n.  The error is
-- that of the mean over the draws; mape_min to bias_max: of single draws.
SELECT run, engine_run, kind AS iterations_of, engine_n, n, engine_mean, mean, bias_percent, mape, p50, p95,
  draws, mape_min, mape_max, bias_min, bias_max, passes,
  iif(passes > 1, 100 * (pass_max - pass_min) / engine_mean, NULL) AS spread_percent
FROM (
  SELECT run, engine_run, kind, count(*) AS engine_n, count(p_ns) AS n,
    avg(e_ns) FILTER (WHERE p_ns) / 1e6 AS engine_mean, avg(p_ns) / 1e6 AS mean,
    avg(error) AS bias_percent, avg(abs(error)) AS mape, median(abs(error)) AS p50,
    percentile(abs(error), 95) AS p95
  FROM (SELECT *, 100.0 * (p_ns - e_ns) / e_ns AS error FROM engine_step)
  GROUP BY run, engine_run, kind)
  JOIN (
    SELECT run, engine_run, kind, count(*) AS draws, min(mape) AS mape_min, max(mape) AS mape_max,
      min(bias) AS bias_min, max(bias) AS bias_max
    FROM (
      SELECT run, engine_run, kind, draw, avg(error) AS bias, avg(abs(error)) AS mape
      FROM (SELECT *, 100.0 * (p_ns - e_ns) / e_ns AS error FROM engine_step_draw)
      GROUP BY run, engine_run, kind, draw)
    GROUP BY run, engine_run, kind) USING(run, engine_run, kind)
  JOIN (
    SELECT run, engine_run, kind, count(*) AS passes, min(ms) AS pass_min, max(ms) AS pass_max
    FROM (
      SELECT run, engine_run, kind, pass, avg(e_ns) FILTER (WHERE p_ns) / 1e6 AS ms
      FROM engine_step
      GROUP BY run, engine_run, kind, pass)
    GROUP BY run, engine_run, kind) USING(run, engine_run, kind)
ORDER BY run, engine_run, kind
