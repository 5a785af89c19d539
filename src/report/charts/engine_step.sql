-- SPDX-License-Identifier: Apache-2.0
-- Iterations of an engine's first pass and those of a run that are alike, by kind.
SELECT 'run ' || run || ' against run ' || engine_run AS panel, kind AS series,
  16 + dense_rank() OVER (ORDER BY kind) AS style, 'point' AS geom, e_ns / 1e6 AS x, 1.0 * e_ns / p_ns AS y,
  printf('iteration %d of the engine: %d tokens of %d requests, %.3f ms; alike %.3f ms', iter_no, tokens,
    requests, e_ns / 1e6, p_ns / 1e6) AS title
FROM engine_step
WHERE p_ns > 0 AND e_ns > 0 AND pass = engine_run
UNION ALL
SELECT 'run ' || run || ' against run ' || engine_run, 'as fast as the engine', 15, 'rule', NULL, 1,
  'as fast as the engine'
FROM engine_step
WHERE p_ns > 0
GROUP BY run, engine_run
