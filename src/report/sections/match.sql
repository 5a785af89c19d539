-- SPDX-License-Identifier: Apache-2.0
-- Runs with --match: the figure that was asked for, and that of the run's samples of prompts, with the
-- least and the most of a layer.
WITH
  wanted AS (
    SELECT run_id, substr(value, 1, instr(value, '=') - 1) AS figure,
      CAST(substr(value, instr(value, '=') + 1) AS REAL) AS want
    FROM run_param WHERE key = 'match' AND (:run IS NULL OR run_id = :run)),
  layer AS (
    SELECT run_id, 'recall' AS figure, n, recall_mean AS x FROM v_accuracy WHERE half = 'prefill'
    UNION ALL
    SELECT run_id, 'rel-l2', n, rel_l2_mean FROM v_accuracy WHERE half = 'prefill'
    UNION ALL
    SELECT run_id, 'density', exec_total, exec_sel * 1.0 / nullif(exec_total, 0) FROM (
      SELECT run_id, sum(exec_sel) AS exec_sel, sum(exec_total) AS exec_total
      FROM selection_stat WHERE half = 'prefill' GROUP BY run_id, layer))
SELECT run_id AS run, me.name AS method, figure, want, sum(n * x) / sum(n) AS reached,
  min(x) AS least_layer, max(x) AS most_layer,
  iif(abs(sum(n * x) / sum(n) - want) > 0.01, 'off by more than 1 %', '') AS note
FROM wanted JOIN layer USING(run_id, figure) JOIN run USING(run_id) JOIN method me USING(method_id)
WHERE NOT is_dense
GROUP BY run_id
ORDER BY run_id
