-- SPDX-License-Identifier: Apache-2.0
-- Layers of one kind with equal work are one row.
SELECT run_id AS run, method, kind, iif(min(layer) = max(layer), min(layer) || '',
    min(layer) || '-' || max(layer)) AS within, count(*) AS layers, n_rows AS rows,
  sum(product_flops) / 1e12 AS products_tflop, sum(mixer_flops) / 1e12 AS mixer_tflop,
  sum(kv_bytes) / 1e6 AS kv_mb
FROM run_layer JOIN v_run USING(run_id)
WHERE (:run IS NULL OR run_id = :run)
  AND EXISTS (SELECT 1 FROM run_layer x WHERE x.run_id = run_layer.run_id
    AND (x.kind <> 'full' OR EXISTS (SELECT 1 FROM iteration_drop d WHERE d.run_id = x.run_id)))
GROUP BY run_id, kind, n_rows
ORDER BY run_id, min(layer), kind
