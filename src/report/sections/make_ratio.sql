-- SPDX-License-Identifier: Apache-2.0
-- Median latencies over those of the baseline, of the requests that both served, with intervals of 95 %
-- by a paired bootstrap.
CREATE TEMP TABLE ratio AS
  SELECT run_id, base_id, column1 AS metric,
    json_extract(iif(column1 = 'ttft', ttft, tpot), '$[0]') AS ratio,
    json_extract(iif(column1 = 'ttft', ttft, tpot), '$[1]') AS lo,
    json_extract(iif(column1 = 'ttft', ttft, tpot), '$[2]') AS hi
  FROM (
    SELECT run_id, base_id, ratio_interval(req_no, ttft_ms, dense_ttft_ms) AS ttft,
      ratio_interval(req_no, tpot_ms, dense_tpot_ms) AS tpot
    FROM v_paired JOIN run_label USING(run_id)
    GROUP BY run_id, base_id)
    JOIN (VALUES ('ttft'), ('tpot'))
