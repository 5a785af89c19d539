-- SPDX-License-Identifier: Apache-2.0
-- A request of one token has no tpot.  vLLM says that it keeps that limit, aiperf that it does not.
WITH
  judged AS (
    SELECT run_id, req_no, metric, ns,
      outcome = 'ok' AND coalesce(
        CASE metric WHEN 'ttft' THEN ttft_ns WHEN 'tpot' THEN tpot_ns ELSE e2e_ns END <= ns,
        :dialect <> 'aiperf') AS good
    FROM request_outcome JOIN slo USING(run_id)
    WHERE :run IS NULL OR run_id = :run),
  counted AS (
    SELECT run_id, metric, ns, count(*) AS n, sum(good) AS good
    FROM judged
    GROUP BY run_id, metric
    UNION ALL
    SELECT run_id, 'all', NULL, count(*), sum(good)
    FROM (SELECT run_id, min(good) AS good FROM judged GROUP BY run_id, req_no)
    GROUP BY run_id)
SELECT run_id AS run, me.name AS method, metric, ns / 1e6 AS limit_ms, n, good,
  100.0 * good / n AS percent, good / duration_s AS per_second
FROM counted JOIN v_load USING(run_id) JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
ORDER BY run_id, instr('ttft tpot e2e all', metric)
