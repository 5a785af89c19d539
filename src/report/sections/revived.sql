-- SPDX-License-Identifier: Apache-2.0
-- The next layer has the rows that went on, those of decodes, and those that decodes revived.
WITH decode(run_id, n) AS (SELECT run_id, sum(decode_tokens) FROM iteration GROUP BY run_id),
  kept(run_id, layer, n) AS (SELECT run_id, layer, sum(n_kept) FROM iteration_drop
    GROUP BY run_id, layer)
SELECT k.run_id AS run, me.name AS method, k.layer, l.n_rows - k.n - d.n AS dropped,
  next.n_rows - k.n - d.n AS revived, 1.0 * (next.n_rows - k.n - d.n) / nullif(d.n, 0) AS per_decode,
  (l.n_rows - k.n - d.n) * 2.0 * mo.hidden / 1e6 AS aux_mb
FROM kept k JOIN run USING(run_id) JOIN method me USING(method_id) JOIN model mo USING(model_id)
  JOIN decode d USING(run_id)
  JOIN run_layer l ON l.run_id = k.run_id AND l.layer = k.layer
  JOIN run_layer next ON next.run_id = k.run_id AND next.layer = k.layer + 1
WHERE (:run IS NULL OR k.run_id = :run) AND json_extract(me.params, '$.drop."aux-revival"')
ORDER BY k.run_id, k.layer
