-- SPDX-License-Identifier: Apache-2.0
-- Where dense attention itself gives fewer than 60 % of the answers, there is little to lose: the
-- rows say so, and the page shows them in grey.
SELECT e.run_id AS run, e.method, e.task, e.length, e.n, 100.0 * e.exact / e.n AS percent,
  100.0 * d.exact / d.n AS dense_percent, e.logprob, d.logprob AS dense_logprob, e.kl, e.executed,
  e.ttft_ms, iif(d.exact < 0.6 * d.n, 'dense below 60 %', NULL) AS weak
FROM v_eval e LEFT JOIN v_pair p USING(run_id)
  LEFT JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  LEFT JOIN v_eval d ON d.run_id = coalesce(p.base_id, iif(me.is_dense, e.run_id, NULL))
    AND d.task = e.task AND d.length = e.length
WHERE :run IS NULL OR e.run_id = :run
ORDER BY e.run_id, e.task, e.length
