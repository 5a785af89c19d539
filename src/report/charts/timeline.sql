-- SPDX-License-Identifier: Apache-2.0
-- Iterations of one run; of more than 400, bins of equal time, each with its mean and its highest value.
-- With many runs the bins are 200.  Lines break where nothing ran.
WITH span AS (
  SELECT count(*) AS n, min(start_ns) AS t0, max(end_ns) - min(start_ns) + 1 AS ns,
    iif((SELECT count(*) FROM run_label) > 4, 200, 400) AS most, count(*) > 400 AS in_bins
  FROM iteration WHERE run_id = :each),
part AS MATERIALIZED (
  SELECT i.*, iif(in_bins, (start_ns - t0) * most / ns, iter_no) AS part
  FROM iteration i JOIN span
  WHERE run_id = :each),
step AS MATERIALIZED (
  SELECT min(start_ns) / 1e9 AS x, max(end_ns) / 1e9 AS x_hi, count(*) AS n,
    avg(prefill_tokens) AS prefill, avg(decode_tokens) AS decode,
    max(prefill_tokens + decode_tokens) AS tokens, sum(preempted) AS preempted,
    max(running) AS running, max(waiting) AS waiting, max(blocks_used) AS blocks,
    avg(running) AS running_mean, avg(waiting) AS waiting_mean, avg(blocks_used) AS blocks_mean
  FROM part
  GROUP BY part),
at AS MATERIALIZED (
  SELECT x, tokens, running, waiting, blocks, running_mean, waiting_mean, blocks_mean FROM step
  UNION ALL
  SELECT x_hi, NULL, NULL, NULL, NULL, NULL, NULL, NULL
  FROM (SELECT x_hi, lead(x) OVER (ORDER BY x) - x_hi AS idle FROM step)
  WHERE idle > (SELECT ns / 2e11 FROM span)
  ORDER BY x),
line AS (
  SELECT 1 AS place, 'requests' AS panel, 'running' AS series, 16 AS style, NULL AS y_lo, x,
    running AS y_most, running_mean AS y_mean FROM at
  UNION ALL
  SELECT 2, 'requests', 'waiting', 31, NULL, x, waiting, waiting_mean FROM at
  UNION ALL
  SELECT 3, 'KV blocks in use', 'KV blocks', 16, 0, x, blocks, blocks_mean FROM at),
word AS (
  SELECT in_bins, iif(in_bins, ', most of a bin', '') AS most, ', mean of a bin' AS mean,
    iif(in_bins, printf(', in bins of %.3g s', ns / 1e9 / most), '') AS bins
  FROM span)
SELECT 'tokens of an iteration' || bins AS panel, series || iif(in_bins, mean, '') AS series,
  'span' AS geom, style, style = 18 AS hatch, x AS x_lo, x_hi, y_lo, y_hi, NULL AS x, NULL AS y,
  printf('%.4f to %.4f s: %.0f prompt + %.0f decode tokens', x, x_hi, prefill, decode)
    || iif(n > 1, printf(', mean of %d; most %.0f', n, tokens), '') AS title
FROM (
  SELECT *, 'prompts' AS series, 18 AS style, 0 AS y_lo, prefill AS y_hi FROM step WHERE prefill > 0
  UNION ALL
  SELECT *, 'decodes', 19, prefill, prefill + decode FROM step WHERE decode > 0)
  JOIN word
UNION ALL
SELECT 'tokens of an iteration' || bins, 'both' || word.most, 'line', 16, 0, NULL, NULL, NULL, NULL, x, tokens,
  NULL
FROM at JOIN word WHERE in_bins
UNION ALL
SELECT * FROM (
  SELECT panel || bins, series || iif(of_bin, mean, word.most), 'line', style + 96 * of_bin, 0, NULL, NULL,
    y_lo, NULL, x, iif(of_bin, y_mean, y_most), NULL
  FROM line JOIN word JOIN (SELECT 0 AS of_bin UNION ALL SELECT 1)
  WHERE in_bins OR NOT of_bin
  ORDER BY place, of_bin, x)
UNION ALL
SELECT 'preempted requests', 'preempted', 'span', 31, 0, x, x_hi, 0, preempted, NULL, NULL,
  printf('%d preempted', preempted)
FROM step WHERE preempted > 0
UNION ALL
SELECT * FROM (
  SELECT 'share of the attention executed', iif(half = 'decode', 'of decodes', 'executed'), 'span',
    (SELECT style FROM run_label WHERE run_id = :each), half = 'decode', min(start_ns) / 1e9,
    max(end_ns) / 1e9, 0, sum(exec_sel) * 1.0 / nullif(sum(exec_total), 0), NULL, NULL,
    iif(min(p.iter_no) = max(p.iter_no), printf('iteration %d', p.iter_no),
      printf('%d sampled iterations, mean', count(DISTINCT p.iter_no)))
    || printf(': %.3g executed', sum(exec_sel) * 1.0 / sum(exec_total))
  FROM selection_stat s JOIN part p ON p.iter_no = s.iter_no
  WHERE s.run_id = :each GROUP BY half, part)
