-- SPDX-License-Identifier: Apache-2.0
SELECT h.run_id AS run, me.name AS method, buffer_tok, sum(n_rows) AS rows,
  CAST(round(1.0 * sum(listed_tok) / sum(n_rows)) AS INTEGER) AS listed_tok,
  100.0 - 100.0 * sum(missed_tok) / nullif(sum(listed_tok), 0) AS hit_percent,
  4.0 * mo.head_dim * sum(missed_tok) / sum(n_rows) / 1e3 AS fetched_kb
FROM hot_buffer h JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  LEFT JOIN model mo USING(model_id)
WHERE :run IS NULL OR run_id = :run
GROUP BY run_id, buffer_tok
ORDER BY run_id, buffer_tok
