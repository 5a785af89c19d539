-- SPDX-License-Identifier: Apache-2.0
SELECT s.run_id AS run, me.name AS method, half, count(*) AS n,
  sum(tiles_sel) * 1.0 / nullif(sum(tiles_total), 0) AS selected,
  sum(qunion_sel) * 1.0 / nullif(sum(qunion_total), 0) AS q_union,
  sum(sub_sel) * 1.0 / nullif(sum(sub_total), 0) AS sub_union,
  sum(kv_sel) * 1.0 / nullif(sum(kv_total), 0) AS kv_union,
  sum(group_sel) * 1.0 / nullif(sum(group_total), 0) AS group_union,
  sum(exec_sel) * 1.0 / nullif(sum(exec_total), 0) AS executed,
  sum(skip_sel) * 1.0 / nullif(sum(skip_total), 0) AS skipped
FROM selection_stat s JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
WHERE :run IS NULL OR run_id = :run
GROUP BY run_id, half
ORDER BY run_id, half DESC
