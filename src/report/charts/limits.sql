-- SPDX-License-Identifier: Apache-2.0
-- The rule makes the axis reach to 100 %.
WITH judged AS (
  SELECT run_id, req_no, metric, ns,
    outcome = 'ok' AND coalesce(CASE metric WHEN 'ttft' THEN ttft_ns WHEN 'tpot' THEN tpot_ns
      ELSE e2e_ns END <= ns, 1) AS good
  FROM request_outcome JOIN slo USING(run_id) JOIN run_label USING(run_id)),
bar AS (
  SELECT *
  FROM (
    SELECT run_id, printf('%s within %g ms', upper(metric), ns / 1e6) AS row, avg(good) * 100 AS percent
    FROM judged GROUP BY run_id, metric, ns
    UNION ALL
    SELECT run_id, 'all limits', 100 * avg(good)
    FROM (SELECT run_id, min(good) AS good FROM judged GROUP BY run_id, req_no) GROUP BY run_id)
    JOIN run_label USING(run_id)
  ORDER BY row = 'all limits', row, run_id)
SELECT '' AS panel, row, label AS series, style, 'group' AS geom, percent AS x,
  printf('%s, %s: %.4g %% of the requests', label, row, percent) AS title
FROM bar
UNION ALL
SELECT * FROM (SELECT '', row, label, style, 'rule', 100, 'all requests' FROM bar LIMIT 1)
