-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, metric, n, mean, p50, p50_lo, p50_hi, p90, p90_lo,
  p90_hi, p99, p99_lo, p99_hi, max
FROM latency
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id, instr('ttft tpot itl e2e queue', metric)
