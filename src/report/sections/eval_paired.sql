-- SPDX-License-Identifier: Apache-2.0
-- Of all prompts, of those of each length, and of each task.  Too few for an interval are shown one by
-- one.
SELECT run_id AS run, me.name AS method, base_id AS dense_run, prompts, n, lost, won,
  mcnemar(lost, won) AS p, json_extract(diff, '$[0]') AS logprob_diff,
  json_extract(diff, '$[1]') AS logprob_diff_lo, json_extract(diff, '$[2]') AS logprob_diff_hi, kl,
  iif(json_extract(diff, '$[1]') IS NULL, diffs, NULL) AS logprob_diffs
FROM (
  SELECT run_id, base_id, column1 AS kind, CASE column1 WHEN 0 THEN 'all'
      WHEN 1 THEN printf('of length %d', length) ELSE task END AS prompts, min(length) AS length,
    count(*) AS n, sum(dense_exact > exact) AS lost, sum(exact > dense_exact) AS won,
    mean_interval(req_no, diff) AS diff, avg(kl) AS kl,
    group_concat(printf('%.4f', diff), ' ') AS diffs
  FROM (SELECT * FROM v_eval_paired ORDER BY req_no) JOIN (VALUES (0), (1), (2))
  WHERE :run IS NULL OR run_id = :run
  GROUP BY 1, 2, 3, 4)
  JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
ORDER BY run_id, kind, iif(kind = 1, length, 0), prompts
