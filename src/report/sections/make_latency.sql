-- SPDX-License-Identifier: Apache-2.0
-- The rows of v_latency, which several sections read, with the ends of v_interval.
CREATE TEMP TABLE latency AS
  SELECT l.*, p50_lo, p50_hi, p90_lo, p90_hi, p99_lo, p99_hi
  FROM v_latency l LEFT JOIN (
    SELECT run_id, metric, max(iif(percentile = 50, lo, NULL)) AS p50_lo,
      max(iif(percentile = 50, hi, NULL)) AS p50_hi, max(iif(percentile = 90, lo, NULL)) AS p90_lo,
      max(iif(percentile = 90, hi, NULL)) AS p90_hi, max(iif(percentile = 99, lo, NULL)) AS p99_lo,
      max(iif(percentile = 99, hi, NULL)) AS p99_hi
    FROM v_interval GROUP BY run_id, metric) USING(run_id, metric)
  WHERE :run IS NULL OR run_id IN (:run, :baseline)
    OR run_id IN (SELECT run_id FROM engine_pair UNION SELECT engine_id FROM engine_pair)
