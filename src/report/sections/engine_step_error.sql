-- SPDX-License-Identifier: Apache-2.0
-- n: iterations of the engine that have one like them in the run, out of engine_n.
SELECT run, engine_run, kind AS iterations_of, count(*) AS engine_n, count(p_ns) AS n,
  avg(e_ns) FILTER (WHERE p_ns) / 1e6 AS engine_mean, avg(p_ns) / 1e6 AS mean,
  avg(error) AS bias_percent, avg(abs(error)) AS mape, median(abs(error)) AS p50,
  percentile(abs(error), 95) AS p95
FROM (SELECT *, 100.0 * (p_ns - e_ns) / e_ns AS error FROM engine_step)
GROUP BY run, engine_run, kind
ORDER BY run, engine_run, kind
