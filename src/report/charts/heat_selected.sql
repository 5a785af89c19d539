-- SPDX-License-Identifier: Apache-2.0
SELECT label || iif(half = 'decode', ', decodes', '') AS panel, '' AS series, 'cell' AS geom, kv_head AS x, layer AS y,
  sum(tiles_sel) * 1.0 / sum(tiles_total) AS value
FROM selection_stat JOIN run_label USING(run_id)
WHERE NOT is_dense
GROUP BY run_id, half, layer, kv_head
HAVING sum(tiles_total) > 0
ORDER BY place, half DESC
