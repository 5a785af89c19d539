-- SPDX-License-Identifier: Apache-2.0
SELECT d.run_id AS run, me.name AS method, layer, sum(n_rows) AS prompt_rows,
  sum(n_kept) AS kept, 100.0 * sum(n_kept) / nullif(sum(n_rows), 0) AS percent,
  sum(n_kept) * 4.0 * mo.kv_heads * mo.head_dim / 1e6 AS kv_mb_after
FROM iteration_drop d JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  LEFT JOIN model mo USING(model_id)
WHERE :run IS NULL OR run_id = :run
GROUP BY run_id, layer
ORDER BY run_id, layer
