-- SPDX-License-Identifier: Apache-2.0
-- The rows of v_latency, which several sections read, with intervals.  The view sorts the times of
-- all tokens by window functions.  This takes one pass over each table.
CREATE TEMP TABLE latency AS
  SELECT run_id, me.name AS method, metric, json_extract(d, '$[0]') AS n,
    json_extract(d, '$[1]') AS mean, json_extract(d, '$[2]') AS p50, json_extract(d, '$[3]') AS p90,
    json_extract(d, '$[4]') AS p95, json_extract(d, '$[5]') AS p99, json_extract(d, '$[6]') AS max,
    json_extract(d, '$[7]') AS p50_lo, json_extract(d, '$[8]') AS p50_hi,
    json_extract(d, '$[9]') AS p90_lo, json_extract(d, '$[10]') AS p90_hi,
    json_extract(d, '$[11]') AS p99_lo, json_extract(d, '$[12]') AS p99_hi
  FROM (
    SELECT run_id, column1 AS metric, CASE column1 WHEN 'ttft' THEN ttft WHEN 'tpot' THEN tpot
      WHEN 'e2e' THEN e2e ELSE queue END AS d
    FROM (
      SELECT run_id, distribution(ttft_ns / 1e6) AS ttft,
        distribution(tpot_ns / 1e6) AS tpot,
        distribution(e2e_ns / 1e6) AS e2e,
        distribution(queue_ns / 1e6) AS queue
      FROM request_outcome
      WHERE outcome = 'ok' AND (:run IS NULL OR run_id IN (:run, :baseline)
        OR run_id IN (SELECT run_id FROM engine_pair UNION SELECT engine_id FROM engine_pair))
      GROUP BY run_id)
      JOIN (VALUES ('ttft'), ('tpot'), ('e2e'), ('queue'))
    UNION ALL
    SELECT run_id, 'itl', distribution(itl_ns / 1e6, n)
    FROM token_gap
    WHERE :run IS NULL OR run_id IN (:run, :baseline)
    GROUP BY run_id)
    JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  WHERE d IS NOT NULL
