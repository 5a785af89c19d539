-- SPDX-License-Identifier: Apache-2.0
SELECT label || iif(half = 'decode', ', decodes', '') AS panel, '' AS series, 'cell' AS geom, head AS x, layer AS y, 1 - avg(mass_recall) AS value
FROM accuracy_sample JOIN run_label USING(run_id)
WHERE NOT is_dense
GROUP BY run_id, half, layer, head
HAVING avg(mass_recall) IS NOT NULL
ORDER BY place, half DESC
