-- SPDX-License-Identifier: Apache-2.0
-- slowest_percent: of the iterations, those in which the rank took longer than every other.  wait_ms: how
-- much longer the slowest took, on average.
WITH step AS (
  SELECT *, max(cost_ns) OVER (PARTITION BY run_id, iter_no ROWS BETWEEN UNBOUNDED PRECEDING
    AND UNBOUNDED FOLLOWING EXCLUDE CURRENT ROW) AS others_ns
  FROM iteration_rank
  WHERE :run IS NULL OR run_id = :run)
SELECT run_id AS run, rank, r.host, gpu, count(*) AS iterations, avg(cost_ns) / 1e6 AS mean_ms,
  100.0 * avg(cost_ns > others_ns) AS slowest_percent, avg(max(others_ns - cost_ns, 0)) / 1e6 AS wait_ms,
  avg(comm_exposed_ns) / 1e6 AS exposed_ms, avg(comm_overlap_ns) / 1e6 AS overlap_ms
FROM step JOIN run_rank r USING(run_id, rank)
GROUP BY run_id, rank
ORDER BY run_id, rank
