-- SPDX-License-Identifier: Apache-2.0
-- Iterations of one run; of more than 400, groups by time: means of tokens, highest values of the
-- others.  With many runs the groups are 200.  Lines break where nothing ran.
WITH span AS (
  SELECT count(*) AS n, min(start_ns) AS t0, max(end_ns) - min(start_ns) + 1 AS ns,
    iif((SELECT count(*) FROM run_label) > 4, 200, 400) AS most
  FROM iteration WHERE run_id = :each),
part AS MATERIALIZED (
  SELECT i.*, iif(n <= 400, iter_no, (start_ns - t0) * most / ns) AS part
  FROM iteration i JOIN span
  WHERE run_id = :each),
step AS MATERIALIZED (
  SELECT min(start_ns) / 1e9 AS x, max(end_ns) / 1e9 AS x_hi, count(*) AS n,
    avg(prefill_tokens) AS prefill, avg(decode_tokens) AS decode, max(running) AS running,
    max(waiting) AS waiting, max(blocks_used) AS blocks, sum(preempted) AS preempted
  FROM part
  GROUP BY part),
at AS MATERIALIZED (
  SELECT x, running, waiting, blocks FROM step
  UNION ALL
  SELECT x_hi, NULL, NULL, NULL
  FROM (SELECT x_hi, lead(x) OVER (ORDER BY x) - x_hi AS idle FROM step)
  WHERE idle > (SELECT ns / 2e11 FROM span)
  ORDER BY x)
SELECT 'tokens of an iteration' AS panel,
  CASE WHEN prefill > 0 AND decode > 0 THEN 'prompts and decodes' WHEN prefill > 0 THEN 'prompts'
    ELSE 'decodes' END AS series,
  'span' AS geom, CASE WHEN prefill > 0 AND decode > 0 THEN 1 WHEN prefill > 0 THEN 2 ELSE 3 END
    AS style,
  prefill > 0 AND decode > 0 AS hatch, x AS x_lo, x_hi, 0 AS y_lo, prefill + decode AS y_hi,
  NULL AS x, NULL AS y,
  printf('%.4f to %.4f s: %.0f prompt + %.0f decode tokens', x, x_hi, prefill, decode)
    || iif(n > 1, printf(', mean of %d', n), '') AS title
FROM step WHERE prefill + decode > 0
UNION ALL
SELECT 'requests', 'running', 'line', 3, 0, NULL, NULL, NULL, NULL, x, running, NULL FROM at
UNION ALL
SELECT 'requests', 'waiting', 'line', 2, 0, NULL, NULL, NULL, NULL, x, waiting, NULL FROM at
UNION ALL
SELECT 'KV blocks in use', 'KV blocks', 'line', 1, 0, NULL, NULL, 0, NULL, x, blocks, NULL FROM at
UNION ALL
SELECT 'preempted requests', 'preempted', 'span', 4, 0, x, x_hi, 0, preempted, NULL, NULL,
  printf('%d preempted', preempted)
FROM step WHERE preempted > 0
UNION ALL
SELECT * FROM (
  SELECT 'share of the attention executed', 'executed', 'span', 5, 0, min(start_ns) / 1e9,
    max(end_ns) / 1e9, 0, sum(exec_sel) * 1.0 / nullif(sum(exec_total), 0), NULL, NULL,
    iif(min(p.iter_no) = max(p.iter_no), printf('iteration %d', p.iter_no),
      printf('%d sampled iterations', count(DISTINCT p.iter_no)))
    || printf(': %.3g executed', sum(exec_sel) * 1.0 / sum(exec_total))
  FROM selection_stat s JOIN part p ON p.iter_no = s.iter_no
  WHERE s.run_id = :each GROUP BY part)
