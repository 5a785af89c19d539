-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, metric, n, mean, p50, p90, p99, max
FROM latency
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id, instr('ttft tpot itl e2e queue', metric)
