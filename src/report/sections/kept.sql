-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, me.name AS method, layer, count(*) AS n,
  100.0 * sum(n_kept) / sum(n_tokens) AS kept_percent, avg(mass) AS mass_mean, min(mass) AS mass_min,
  avg(top_recall) AS top_recall_mean, min(top_recall) AS top_recall_min
FROM drop_sample JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
WHERE :run IS NULL OR run_id = :run
GROUP BY run_id, layer
ORDER BY run_id, layer
