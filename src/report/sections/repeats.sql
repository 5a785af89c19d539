-- SPDX-License-Identifier: Apache-2.0
SELECT min(run_id) AS run, l.method, metric, count(*) AS repeats,
  median(p50) AS p50, min(p50) AS p50_min, max(p50) AS p50_max,
  median(p90) AS p90, min(p90) AS p90_min, max(p90) AS p90_max,
  median(p99) AS p99, min(p99) AS p99_min, max(p99) AS p99_max
FROM latency l JOIN run USING(run_id)
WHERE :run IS NULL AND status = 'done' AND method_no IS NOT NULL
GROUP BY command_utc_ns, method_no, metric
HAVING count(*) > 1
ORDER BY run, instr('ttft tpot itl e2e queue', metric)
