-- SPDX-License-Identifier: Apache-2.0
-- The attention core is hatched.  Gaps: time in which no kernel ran, between the first and the last of
-- an iteration.  Host: the GPU waited for it; not for sampled layers, see sections/phases.sql.
WITH part AS (
  SELECT run_id, phase, place AS phase_no, core, ms
  FROM phase_time
  UNION ALL
  SELECT run_id, 'gaps between kernels', 1000, 0, sum(span_ns - busy_ns) / 1e6
  FROM iteration WHERE span_ns IS NOT NULL AND busy_ns IS NOT NULL
  GROUP BY run_id
  UNION ALL
  SELECT run_id, 'wait for the host', 1001, 0, sum(host_ns) / 1e6
  FROM iteration_sum JOIN run USING(run_id) JOIN model USING(model_id)
  WHERE layers_run = n_layers AND run_id IN (SELECT run_id FROM phase_time)
  GROUP BY run_id)
SELECT panel, label AS row, phase AS series, 'bar' AS geom, core AS hatch,
  CASE phase WHEN 'linear' THEN 17 WHEN 'attend' THEN 18 WHEN 'decode' THEN 19 WHEN 'metadata' THEN 20
    WHEN 'select' THEN 21 WHEN 'norm' THEN 22 WHEN 'rope' THEN 23 WHEN 'cache' THEN 24
    WHEN 'head' THEN 25 WHEN 'copy' THEN 26 WHEN 'mix' THEN 27 WHEN 'drop' THEN 28
    WHEN 'walk' THEN 29 WHEN 'wait for the host' THEN 30 WHEN 'comm' THEN 32 WHEN 'latent' THEN 33
    WHEN 'share' THEN 34 WHEN 'meta' THEN 35 WHEN 'evict' THEN 36
    WHEN 'comm_select' THEN 45 ELSE -1 END AS style,
  iif(panel = 'ms', ms, percent) AS x,
  printf('%s, %s: %.4g ms, %.3g %%', label, phase, ms, percent) AS title
FROM (
  SELECT column1 AS panel, part.*, 100 * ms / sum(ms) OVER (PARTITION BY run_id, column1) AS percent
  FROM part JOIN (VALUES ('ms'), ('percent')))
  JOIN run_label USING(run_id)
WHERE ms > 0
ORDER BY panel, phase_no, place
