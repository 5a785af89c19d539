-- SPDX-License-Identifier: Apache-2.0
-- The cells of the first screen's table: a row a run, in the order of the options in which runs differ.
-- text is a speed-up, of a run without a baseline the figure itself; small stands below it.  A mark that
-- all runs but baselines have stands at the head of the column, others in the cells.
WITH
  marked AS MATERIALIZED (
    SELECT run_id, mark, figures, column1 AS of,
      count(*) FILTER (WHERE run_id NOT IN (SELECT base_id FROM v_pair))
        OVER (PARTITION BY mark, column1)
        = (SELECT count(*) FROM run_label WHERE run_id NOT IN (SELECT base_id FROM v_pair)) AS in_head
    FROM (SELECT DISTINCT run_id, mark, figures FROM assumption)
      JOIN (VALUES ('time'), ('error'), ('executed'))
    WHERE figures = 'all' OR instr(figures, column1)),
  figure AS (
    SELECT v.*, d.label AS base_label, d.good_per_s AS base_good, d.answers AS base_answers,
      clock = 'cpu' AS is_cpu, clock = 'engine' AS is_engine, d.ttft AS base_ttft, d.ttft99 AS base_ttft99,
      d.tpot AS base_tpot
    FROM verdict v JOIN run ON run.run_id = v.run_id LEFT JOIN verdict d ON d.run_id = v.base_id),
  latency_cell AS (
    SELECT *, CASE col WHEN 1 THEN ttft_x WHEN 2 THEN ttft99_x ELSE tpot_x END AS x,
      CASE col WHEN 1 THEN ttft_x_lo WHEN 2 THEN ttft99_x_lo ELSE tpot_x_lo END AS lo,
      CASE col WHEN 1 THEN ttft_x_hi WHEN 2 THEN ttft99_x_hi ELSE tpot_x_hi END AS hi,
      CASE col WHEN 1 THEN ttft_reason WHEN 2 THEN ttft99_reason ELSE tpot_reason END AS reason,
      CASE col WHEN 1 THEN ttft WHEN 2 THEN ttft99 ELSE tpot END AS ms,
      CASE col WHEN 1 THEN base_ttft WHEN 2 THEN base_ttft99 ELSE base_tpot END AS base_ms
    FROM figure JOIN (SELECT column1 AS col, column2 AS head
      FROM (VALUES (1, 'TTFT p50'), (2, 'TTFT p99'), (3, 'TPOT p50')))),
  cell AS (
    SELECT run_id, col, head, 'time' AS of, coalesce(times(x), printf(iif(ms < 9999.5, '%.4g', '%.0f') || '%sms', ms, char(160))) AS text,
      replace(replace(CASE WHEN lo IS NOT NULL THEN printf('%.2f to %.2f', lo, hi)
        WHEN x IS NULL THEN coalesce((SELECT group_concat(printf('%+.0f %% of run %d', error_percent, engine_run), ', ')
          FROM engine_error e WHERE e.run = latency_cell.run_id
          AND upper(metric) || ' ' || at = head), '') ELSE 'no interval' END, ' ', char(160)), ',' || char(160), ', ')
        AS small,
      CASE WHEN x IS NULL OR is_cpu OR lo IS NULL THEN '' WHEN lo > 1 THEN 'good' WHEN hi < 1 THEN 'bad' END
        AS class,
      printf('%s: %s %.4g ms', label, head, ms) || iif(base_ms IS NULL, '', printf('; %.4g ms with %s', base_ms, base_label))
        || iif(x IS NOT NULL AND lo IS NULL, '; no interval: ' || coalesce(reason, ''), '') AS title
    FROM latency_cell WHERE ms IS NOT NULL

    UNION ALL
    SELECT run_id, 4, 'goodput', 'time',
      coalesce(times(good_per_s / nullif(base_good, 0)), printf('%.3g/s', good_per_s)),
      replace(iif(good_lo IS NULL, printf('%.3g %%', 100.0 * good / requests), printf('%.3g to %.3g %%', good_lo,
        good_hi)), ' ', char(160)), '',
      printf('%s: %d of %d requests keep the limits, %.4g a second', label, good, requests, good_per_s)
        || coalesce('; no interval: ' || good_reason, '')
    FROM figure WHERE good_per_s IS NOT NULL

    UNION ALL
    SELECT run_id, 5, iif((SELECT sum(prompts) FROM verdict) > 0, 'answers', 'error'), 'error',
      CASE WHEN prompts > 0 THEN printf('%.0f%s%%', 100.0 * answers / prompts, char(160))
        WHEN is_dense AND coalesce(error, 0) = 0 THEN '0'
        WHEN error IS NOT NULL THEN printf('%.3g%s%%', 100 * error, char(160)) ELSE 'not measured' END,
      CASE WHEN prompts > 0 THEN printf('%d of %d', answers, prompts)
        WHEN error > 0 AND error_lo IS NOT NULL THEN replace(printf('%.3g to %.3g', 100 * error_lo, 100 * error_hi), ' ', char(160))
        WHEN dropped IS NOT NULL THEN printf('drops %.0f %%', 100 * dropped) ELSE '' END,
      iif(prompts > 0 OR error IS NOT NULL OR is_dense, '', 'none'),
      label || iif(error IS NULL, '', printf(': mean relative L2 error%s %.3g %%',
        iif(error_half = 'decode', ' of decodes', ''), 100 * error))
        || iif(recall IS NULL, '', printf('; keeps %.3g %% of the attention', 100 * recall))
        || iif(prompts IS NULL, '', printf('; %d of %d answers', answers, prompts))
        || iif(dropped IS NULL, '', printf('; drops %.3g %% of the prompt rows', 100 * dropped))
    FROM figure
    WHERE NOT is_engine AND EXISTS (SELECT 1 FROM figure WHERE NOT is_dense AND NOT is_engine)

    UNION ALL
    SELECT run_id, 6, 'executed', 'executed',
      printf('%.0f%s%%', 100 * coalesce(executed, 1), char(160)), iif(is_given, 'given',
        CASE WHEN executed_decode < 1 THEN replace(printf('decodes %.0f %%', 100 * executed_decode), ' ', char(160))
          WHEN half = 'decode' AND executed_decode IS NULL THEN 'decodes unknown' ELSE '' END), '',
      label || printf(': %.3g %% of the attention ', 100 * coalesce(executed, 1))
        || iif(is_given, 'by --density', 'executed')
        || iif(executed_decode < 1, printf('; decodes read %.3g %% of their keys', 100 * executed_decode), '')
    FROM figure
    WHERE executed IS NOT NULL OR executed_decode IS NOT NULL
      OR is_dense AND EXISTS (SELECT 1 FROM verdict WHERE executed < 1 OR executed_decode < 1))
SELECT l.run_id, label, style, h.head, text, small, class, title,
  (SELECT group_concat(mark, '') FROM (SELECT DISTINCT mark FROM marked m
    WHERE m.of = h.of AND in_head ORDER BY mark)) AS head_marks,
  (SELECT group_concat(mark, '') FROM (SELECT mark FROM marked m
    WHERE m.of = h.of AND NOT in_head AND m.run_id = l.run_id ORDER BY mark)) AS marks
FROM (SELECT DISTINCT col, head, of FROM cell) h JOIN run_label l
  LEFT JOIN cell c ON c.run_id = l.run_id AND c.col = h.col
ORDER BY l.place, h.col
