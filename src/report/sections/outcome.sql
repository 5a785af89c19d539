-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, status, ok, rejected, unfinished, iterations,
  duration_s AS seconds, layers_run || ' of ' || n_layers AS layers, clock,
  (SELECT avg(host_ns) FROM iteration i WHERE i.run_id = v.run_id AND batch_size) / 1e6
    AS host_ms,
  cached_tokens AS cached
FROM v_run v
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id
