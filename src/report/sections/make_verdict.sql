-- SPDX-License-Identifier: Apache-2.0
-- What the verdict says of each run, a row each: latencies, error, share executed, and the time of
-- all kernels, of the attention core, and in it of selecting, and of waiting for the host.  What a
-- dropper loses is in no figure of a layer, so its runs have no error.
CREATE TEMP TABLE verdict AS
  SELECT l.run_id, l.label, l.method, l.is_dense,
    (SELECT p50 FROM latency t WHERE t.run_id = l.run_id AND metric = 'ttft') AS ttft,
    (SELECT p50 FROM latency t WHERE t.run_id = l.run_id AND metric = 'tpot') AS tpot,
    e.mean AS error, e.lo AS error_lo, e.hi AS error_hi, executed, kernel_ms, core_ms, select_ms, host_ms
  FROM run_label l
    LEFT JOIN error e ON e.run_id = l.run_id AND NOT EXISTS (SELECT 1 FROM iteration_drop d
      WHERE d.run_id = l.run_id GROUP BY run_id HAVING sum(n_kept) < sum(n_rows))
    LEFT JOIN v_executed USING(run_id)
    LEFT JOIN (SELECT run_id, sum(ms) AS kernel_ms, sum(ms * core) AS core_ms,
        sum(ms) FILTER (WHERE phase IN ('select', 'metadata', 'copy')) AS select_ms
      FROM v_phase_time GROUP BY run_id) USING(run_id)
    LEFT JOIN (SELECT run_id, sum(host_ns) / 1e6 AS host_ms
      FROM iteration_sum JOIN run USING(run_id) JOIN model USING(model_id)
      WHERE layers_run = n_layers GROUP BY run_id) USING(run_id)
