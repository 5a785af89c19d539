-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, task, count(*) AS n, sum(exact = expected) AS agree,
  sum(exact > expected) AS only_here, sum(exact < expected) AS only_in_file
FROM (
  SELECT run_id, me.name AS method, iif(column1, 'all', task) AS task, column1 AS every, exact,
    expected
  FROM eval_prompt JOIN run USING(run_id) JOIN method me USING(method_id)
    JOIN (VALUES (0), (1))
  WHERE me.is_dense AND expected IS NOT NULL AND (:run IS NULL OR run_id = :run))
GROUP BY run_id, every, task
ORDER BY run_id, every DESC, task
