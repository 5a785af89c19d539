-- SPDX-License-Identifier: Apache-2.0
-- Speed-ups against the baseline: its percentile over that of the run, of the requests that both served,
-- with an interval of 95 %, or the reason why there is none.
CREATE TEMP TABLE speedup AS
  SELECT run_id, base_id, metric, percentile, json_extract(r, '$[0]') AS speedup,
    iif(n * (100 - percentile) < 500, NULL, json_extract(r, '$[1]')) AS lo,
    iif(n * (100 - percentile) < 500, NULL, json_extract(r, '$[2]')) AS hi,
    iif(n * (100 - percentile) < 500, printf('%d requests are too few for an interval of p%d', n,
      percentile), NULL) AS reason
  FROM (
    SELECT run_id, base_id, column1 AS metric, column2 AS percentile,
      count(iif(column1 = 'ttft', ttft_ms, tpot_ms)) AS n,
      ratio_interval(req_no, iif(column1 = 'ttft', dense_ttft_ms, dense_tpot_ms),
        iif(column1 = 'ttft', ttft_ms, tpot_ms), column2) AS r
    FROM v_paired JOIN run_label USING(run_id)
      JOIN (VALUES ('ttft', 50), ('ttft', 99), ('tpot', 50))
    GROUP BY run_id, base_id, column1, column2)
  WHERE r IS NOT NULL AND json_extract(r, '$[0]') > 0
