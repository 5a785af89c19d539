-- SPDX-License-Identifier: Apache-2.0
-- Runs whose decodes are not dense against dense runs that differ in nothing but the kernels of attention:
-- split, decodes whose keys thread blocks share, as here; or those of an engine, where a launch with chunks
-- in it lasts until its longest decode has walked its keys alone.
WITH
  phase_ms AS (
    SELECT run_id, sum(ms) FILTER (WHERE phase = 'decode') AS decode_ms,
      sum(ms) FILTER (WHERE phase = 'walk') AS walk_ms
    FROM phase_time GROUP BY run_id),
  half AS (
    SELECT r.*, me.name AS method, is_dense, ttft.p50 AS ttft, tpot.p50 AS tpot, tpot.p99 AS tpot99,
      coalesce(decode_ms, 0) AS decode_ms, coalesce(walk_ms, 0.0) AS walk_ms,
      json_remove(setup, '$."dense-as-engine"') AS others
    FROM run r JOIN method me USING(method_id) LEFT JOIN phase_ms USING(run_id)
      JOIN latency ttft ON ttft.run_id = r.run_id AND ttft.metric = 'ttft'
      JOIN latency tpot ON tpot.run_id = r.run_id AND tpot.metric = 'tpot'
    WHERE status = 'done' AND (is_dense OR params GLOB '*"decode":{*' OR params GLOB '*"evict":{*'))
SELECT s.run_id AS run, s.method, d.run_id AS baseline, 
  iif(d.walk_ms > 0 OR json_extract(d.setup, '$."dense-as-engine"') IS NOT NULL, 'engine', 'split') AS kernels,
  d.ttft / s.ttft AS ttft_p50, d.tpot / s.tpot AS tpot_p50, d.tpot99 / s.tpot99 AS tpot_p99, s.decode_ms,
  d.decode_ms AS base_ms, d.walk_ms AS base_walk_ms
FROM half s JOIN half d USING(trace_id, policy, backend, clock, others)
WHERE NOT s.is_dense AND d.is_dense AND s.model_id IS d.model_id AND s.gpu_id IS d.gpu_id
  AND coalesce(s.repeat_no, 0) = coalesce(d.repeat_no, 0)
ORDER BY s.run_id, d.run_id
