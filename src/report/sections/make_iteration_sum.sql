-- SPDX-License-Identifier: Apache-2.0
-- Sums over the iterations of a run that have the same source of their cost, in one pass for all
-- sections and charts.
CREATE TEMP TABLE iteration_sum AS
  SELECT run_id, cost_source, count(*) AS iterations, min(start_ns) AS start_ns,
    max(end_ns) AS end_ns, sum(end_ns - start_ns - host_ns) AS cost_ns, sum(host_ns) AS host_ns,
    sum(host_ns) FILTER (WHERE batch_size) AS batch_host_ns,
    count(host_ns) FILTER (WHERE batch_size) AS batches
  FROM iteration
  WHERE :run IS NULL OR run_id IN (:run, :baseline)
  GROUP BY run_id, cost_source
