-- SPDX-License-Identifier: Apache-2.0
WITH sums AS (
  SELECT run_id, half, iif(half = 'decode', ', decodes', '') AS of,
    sum(tiles_sel) * 1.0 / nullif(sum(tiles_total), 0) AS selected,
    sum(qunion_sel) * 1.0 / nullif(sum(qunion_total), 0) AS q_union,
    sum(sub_sel) * 1.0 / nullif(sum(sub_total), 0) AS sub_union,
    sum(kv_sel) * 1.0 / nullif(sum(kv_total), 0) AS kv_union,
    sum(group_sel) * 1.0 / nullif(sum(group_total), 0) AS group_union,
    sum(exec_sel) * 1.0 / nullif(sum(exec_total), 0) AS executed,
    sum(skip_sel) * 1.0 / nullif(sum(skip_total), 0) AS skipped
  FROM selection_stat GROUP BY run_id, half)
SELECT '' AS panel, label || of AS row, column2 AS series, 16 + column1 AS style, 'point' AS geom,
  CASE column1 WHEN 1 THEN selected WHEN 2 THEN q_union WHEN 3 THEN sub_union WHEN 4 THEN kv_union
    WHEN 5 THEN group_union WHEN 6 THEN executed ELSE skipped END AS x,
  printf('%s%s, %s', label, of, column2) AS title
FROM sums JOIN run_label USING(run_id) JOIN (VALUES (1, 'selected'), (2, 'union of query blocks'),
  (3, 'union of four heads'), (4, 'union of a KV head'), (5, 'union of the method'), (6, 'executed'),
  (7, 'skipped tiles'))
WHERE x IS NOT NULL
ORDER BY place, half DESC, column1
