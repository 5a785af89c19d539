-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, half, sum(n) AS n, sum(n * rel_l2_mean) / sum(n) AS rel_l2_mean,
  e.lo AS rel_l2_mean_lo, e.hi AS rel_l2_mean_hi,
  max(rel_l2_max) AS rel_l2_max, min(cosine_min) AS cosine_min, max(max_abs) AS max_abs,
  sum(n * recall_mean) / sum(n) AS recall_mean, min(recall_min) AS recall_min
FROM v_accuracy LEFT JOIN error e USING(run_id, half)
WHERE :run IS NULL OR run_id = :run
GROUP BY run_id, half
ORDER BY run_id, half DESC
