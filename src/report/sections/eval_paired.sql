-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, me.name AS method, base_id AS dense_run, task, n, lost, won,
  mcnemar(lost, won) AS p, json_extract(diff, '$[0]') AS logprob,
  json_extract(diff, '$[1]') AS logprob_lo, json_extract(diff, '$[2]') AS logprob_hi, kl
FROM (
  SELECT run_id, base_id, column1 AS every, iif(column1, 'all', task) AS task, count(*) AS n,
    sum(dense_exact > exact) AS lost, sum(exact > dense_exact) AS won,
    mean_interval(req_no, diff) AS diff, avg(kl) AS kl
  FROM v_eval_paired JOIN (VALUES (0), (1))
  WHERE :run IS NULL OR run_id = :run
  GROUP BY 1, 2, 3, 4)
  JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
ORDER BY run_id, every DESC, task
