-- SPDX-License-Identifier: Apache-2.0
-- The error of each percentile, of medians over the replay's repeats and the engine's passes.  Its
-- interval is of the ratio of percentiles over the requests of all of them, by a paired bootstrap.  The
-- spread is what lies between the engine's own passes.
CREATE TEMP TABLE engine_error AS
WITH served AS MATERIALIZED (
  SELECT first_id, first_engine, a.req_no, column1 AS metric,
    iif(column1 = 'ttft', a.ttft_ns, a.tpot_ns) AS p, iif(column1 = 'ttft', b.ttft_ns, b.tpot_ns) AS e
  FROM engine_pair x JOIN request_outcome a ON a.run_id = x.run_id AND a.outcome = 'ok'
    JOIN request_outcome b ON b.run_id = engine_id AND b.req_no = a.req_no AND b.outcome = 'ok'
    JOIN (VALUES ('ttft'), ('tpot'))),
  bounds AS (
    SELECT first_id, first_engine, metric, ratio_interval(req_no, p, e) AS p50,
      ratio_interval(req_no, p, e, 90) AS p90, ratio_interval(req_no, p, e, 99) AS p99
    FROM served
    GROUP BY first_id, first_engine, metric),
  each AS (
    SELECT first_id, first_engine, engine_id, x.run_id, b.metric, column1 AS at,
      CASE column1 WHEN 'p50' THEN b.p50 WHEN 'p90' THEN b.p90 ELSE b.p99 END AS e,
      CASE column1 WHEN 'p50' THEN a.p50 WHEN 'p90' THEN a.p90 ELSE a.p99 END AS p
    FROM engine_pair x JOIN latency a ON a.run_id = x.run_id
      JOIN latency b ON b.run_id = engine_id AND b.metric = a.metric
      JOIN (VALUES ('p50'), ('p90'), ('p99'))
    WHERE a.metric IN ('ttft', 'tpot')),
  errors AS (
    SELECT first_id, first_engine, metric, at, median(e) AS e, min(e) AS e_min, max(e) AS e_max,
      count(DISTINCT engine_id) AS passes, median(p) AS p, min(p) AS p_min, max(p) AS p_max
    FROM each
    GROUP BY first_id, first_engine, metric, at)
SELECT first_id AS run, first_engine AS engine_run, backend AS engine, metric, at,
  100.0 * (p - e) / nullif(e, 0) AS error_percent,
  100 * (json_extract(ratio, '$[1]') - 1) AS error_lo,
  100 * (json_extract(ratio, '$[2]') - 1) AS error_hi,
  passes, iif(passes > 1, 100.0 * (e_max - e_min) / nullif(e, 0), NULL) AS spread_percent,
  e AS engine_ms, p AS run_ms, p_min AS run_min, p_max AS run_max
FROM (
  SELECT *, CASE at WHEN 'p50' THEN p50 WHEN 'p90' THEN p90 ELSE p99 END AS ratio
  FROM errors LEFT JOIN bounds USING(first_id, first_engine, metric))
  JOIN run ON run_id = first_engine
