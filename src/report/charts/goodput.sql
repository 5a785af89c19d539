-- SPDX-License-Identifier: Apache-2.0
-- A line for each method, over --rate.  Ringed: the highest rate at which 99 % of the requests keep all
-- limits.
WITH point AS (
  SELECT run_id, method, style % 16 AS style, rate, 100 * avg(good) AS percent
  FROM (
    SELECT run_id, req_no, min(outcome = 'ok' AND coalesce(CASE metric WHEN 'ttft' THEN ttft_ns
      WHEN 'tpot' THEN tpot_ns ELSE e2e_ns END <= ns, 1)) AS good
    FROM request_outcome JOIN slo USING(run_id) GROUP BY run_id, req_no)
    JOIN run_label USING(run_id)
    JOIN (SELECT run_id, value + 0.0 AS rate FROM run_param WHERE key = 'rate') USING(run_id)
  WHERE rate > 0
  GROUP BY run_id)
SELECT 'limits: ' || (SELECT group_concat(DISTINCT printf('%s %g ms', upper(metric), ns / 1e6))
    FROM slo) AS panel,
  method AS series, style, geom, rate AS x, percent AS y,
  geom = 'point' AND rate = max(rate) FILTER (WHERE percent >= 99) OVER (PARTITION BY method, geom)
    AS ring,
  printf('%s at %g a second: %.4g %% keep all limits', method, rate, percent) AS title
FROM point JOIN (SELECT 'point' AS geom UNION ALL SELECT 'line')
WHERE (SELECT count(DISTINCT rate) FROM point) > 1
ORDER BY method, rate
