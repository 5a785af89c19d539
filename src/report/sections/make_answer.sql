-- SPDX-License-Identifier: Apache-2.0
-- The answer of the first screen: a headline (place 0), and the sentences below it.  Of the runs that
-- are compared with one baseline the best is named: one that is faster, its interval above 1, and that keeps
-- 90 % of the attention, or of the answers of its baseline; then one that is faster; then the fastest.
-- Of those that are not told from the fastest, by their intervals, it is the most exact.
CREATE TEMP TABLE answer AS
WITH
  -- x: the speed-up of the half that the method changes, y: of the other one.
  gain AS MATERIALIZED (
    SELECT *, 'TTFT' AS metric, 'TPOT' AS other, ttft_x AS x, ttft_x_lo AS x_lo, ttft_x_hi AS x_hi,
      ttft_reason AS x_reason, tpot_x AS y, tpot_x_lo AS y_lo, tpot_x_hi AS y_hi
    FROM verdict WHERE half = 'prefill'
    UNION ALL
    SELECT *, 'TPOT', 'TTFT', tpot_x, tpot_x_lo, tpot_x_hi, tpot_reason, ttft_x, ttft_x_lo, ttft_x_hi
    FROM verdict WHERE half = 'decode'),
  compared AS MATERIALIZED (
    SELECT v.*, d.label AS base_label, d.answers AS base_answers, clock = 'cpu' AS is_cpu,
      coalesce(x_lo > 1, 0) AS wins, coalesce(x_hi < 1, 0) AS loses,
      coalesce(v.answers >= 0.9 * d.answers, v.recall >= 0.9, 1) AS keeps,
      (SELECT text FROM assumption a WHERE a.run_id = v.run_id AND kind = 'whole') AS whole,
      (SELECT ' (' || group_concat(brief, '; ') || ')' FROM assumption a WHERE a.run_id = v.run_id
        AND kind IN ('modelled', 'formula', 'costs', 'density')) AS given
    FROM gain v JOIN verdict d ON d.run_id = v.base_id JOIN run ON run.run_id = v.run_id
    WHERE x IS NOT NULL),
  near AS (
    SELECT *, wins AND error IS NOT NULL AND x_hi >= max(x) OVER (PARTITION BY wins, keeps) AS is_near
    FROM compared),
  ranked AS MATERIALIZED (
    SELECT *, row_number() OVER (ORDER BY wins AND keeps DESC, wins DESC, is_near DESC,
        iif(is_near, error, 0), x DESC) AS no,
      (SELECT count(DISTINCT base_id) FROM compared) AS baselines
    FROM near),
  -- The least length from which on each group of requests is faster; pays: the lengths do not end there.
  reach AS (
    SELECT run_id, min(least) AS shortest, max(most) AS longest,
      coalesce(max(most) FILTER (WHERE speedup <= 1), 0) AS until,
      coalesce(min(least) FILTER (WHERE speedup > 1), 0) AS earliest
    FROM length_gain WHERE run_id IN (SELECT run_id FROM gain WHERE metric = 'TTFT') GROUP BY run_id),
  cost AS (
    SELECT run_id, CASE
      WHEN prompts > 0 AND base_answers IS NOT NULL THEN printf('gives %.0f %% of the answers, where %s'
        || ' gives %.0f %%', 100.0 * answers / prompts, base_label, 100.0 * base_answers / prompts)
      WHEN recall IS NOT NULL THEN printf('keeps %.0f %% of the attention, error%s %.3g %%',
        100 * recall, iif(error_half = 'decode', ' of decodes', ''), 100 * error)
      WHEN error IS NOT NULL THEN printf('has an error of %.3g %%', 100 * error)
      WHEN dropped IS NOT NULL THEN printf('drops %.0f %% of the prompt rows', 100 * dropped)
      ELSE 'has no measured accuracy' END AS text
    FROM compared),
  lengths AS (
    SELECT run_id, CASE
      WHEN until = 0 THEN printf('it is faster at all prompt lengths, %s to %s tokens',
        thousands(shortest), thousands(longest))
      WHEN until >= longest AND earliest = 0 THEN printf('at no prompt length, up to %s tokens, does'
        || ' selection save what it costs', thousands(longest))
      WHEN until >= longest THEN printf('from no prompt length on is it faster, up to %s tokens',
        thousands(longest))
      ELSE printf('below %s tokens selection costs more than it saves', thousands(until)) END AS text
    FROM reach),
  load_rate AS (
    SELECT load, label, place, run_id, value + 0.0 AS rate
    FROM verdict JOIN run USING(run_id) LEFT JOIN run_param p USING(run_id)
    WHERE load IS NOT NULL AND p.key = 'rate' AND clock <> 'cpu'
    ORDER BY place),
  load AS (
    SELECT load AS verdict, CASE
        WHEN (SELECT count(DISTINCT rate) > 1 AND count(DISTINCT rate)
          = (SELECT count(*) FROM (SELECT DISTINCT rate, load FROM load_rate)) FROM load_rate)
        THEN printf('at %s a second', (SELECT group_concat(rate, ', ') FROM (
          SELECT DISTINCT printf('%g', rate) AS rate FROM load_rate q WHERE q.load = l.load)))
        WHEN count(*) > 4 THEN 'in ' || runs(run_id) ELSE 'with ' || group_concat(label, ', ') END AS which,
      min(place) AS place, count(*) AS n, (SELECT count(*) FROM verdict) AS all_n
    FROM load_rate l
    GROUP BY load),
  sentence AS (
    -- One baseline.
    SELECT 0 AS place, CASE
      WHEN is_cpu AND half = 'decode' THEN printf('Mechanics only, by the clock of a CPU: decodes of %s read'
        || ' %s of their keys; it %s.', label, iif(executed_decode IS NULL, 'an unknown share',
          printf('%.0f %%', 100 * executed_decode)), cost.text)
      WHEN is_cpu THEN printf('Mechanics only, by the clock of a CPU: %s executes %s of the attention;'
        || ' it %s.', label, iif(executed IS NULL, 'an unknown share', printf('%.0f %%', 100 * executed)), cost.text)
      WHEN wins AND keeps THEN 'Yes' || coalesce(given, '') || ': ' || label || ' is '
        || faster(x, x_lo, x_hi) || ' at ' || metric || ' p50; it ' || cost.text || '.'
      WHEN wins THEN 'Faster, at a cost' || coalesce(given, '') || ': ' || label || ' is '
        || faster(x, x_lo, x_hi) || ' at ' || metric || ' p50, but ' || cost.text || '.'
      WHEN x_lo IS NULL THEN 'Not known: ' || label || ' is ' || faster(x, NULL, NULL)
        || ' at ' || metric || ' p50, without an interval' || coalesce(': ' || x_reason, '') || '.'
      ELSE iif(whole IS NULL AND faster(x, x_lo, x_hi) LIKE '%slower to%', 'Not shown', 'No') || coalesce(given, '') || ': ' || iif(loses AND whole IS NULL, coalesce(lengths.text || '; ', ''), '')
        || label || ' is ' || faster(x, x_lo, x_hi) || ' at ' || metric || ' p50'
        || coalesce('; it ' || whole, '') || '.' END AS text
    FROM ranked LEFT JOIN cost USING(run_id) LEFT JOIN lengths USING(run_id)
    WHERE no = 1 AND baselines = 1

    UNION ALL
    SELECT 1, iif(loses OR is_cpu, NULL, 'By length: ' || lengths.text || '.')
    FROM ranked JOIN lengths USING(run_id)
    WHERE no = 1 AND baselines = 1

    UNION ALL
    SELECT 2, group_concat(r.label || ' is ' || iif(r.keeps, times(r.x) || ' faster', 'faster still, ' || times(r.x))
      || ', but ' || cost.text, '; ') || '.'
    FROM ranked r JOIN ranked b ON b.no = 1 JOIN cost ON cost.run_id = r.run_id
    WHERE r.baselines = 1 AND NOT r.is_cpu AND r.wins AND r.x > b.x
    GROUP BY NULL

    UNION ALL
    SELECT 3, other || ' p50: ' || label || ' is ' || faster(y, y_lo, y_hi)
      || iif(y_lo IS NULL, ', without an interval', '') || '.'
    FROM ranked
    WHERE no = 1 AND baselines = 1 AND NOT is_cpu AND y IS NOT NULL

    -- Several baselines, such as those of a sweep.
    UNION ALL
    SELECT 0, CASE WHEN max(is_cpu) THEN 'Mechanics only, by the clock of a CPU: nothing is known of the'
        || ' speed of a GPU.'
      ELSE CASE WHEN sum(wins) = 0 THEN 'No' WHEN sum(wins) < count(*) THEN 'In part'
        WHEN min(keeps) THEN 'Yes' ELSE 'Faster, at a cost' END
      || coalesce(max(given), '') || ': ' || method
      || ' is ' || CASE WHEN min(times(x)) = max(times(x)) THEN faster(max(x), NULL, NULL)
        WHEN max(x) < 1 THEN times(1 / max(x)) || ' to ' || times(1 / min(x)) || ' slower'
        WHEN min(x) > 1 THEN times(min(x)) || ' to ' || times(max(x)) || ' faster'
        ELSE times(1 / min(x)) || ' slower to ' || times(max(x)) || ' faster' END
      || ' at ' || max(metric) || ' p50' || iif(count(*) = 1, ', at the one setting that has it',
        printf('; its interval is above 1 at %d of %d settings, below 1 at %d', sum(wins), count(*), sum(loses)))
      || '.' END
    FROM ranked
    WHERE baselines > 1 AND method = (SELECT method FROM ranked GROUP BY method
      ORDER BY sum(wins) DESC, max(x) DESC LIMIT 1)
    GROUP BY method

    -- From which prompt length on, of the settings with that method.
    UNION ALL
    SELECT 1, 'By length: ' || CASE
        WHEN max(until) = 0 THEN printf('it is faster at all prompt lengths, %s to %s tokens',
          thousands(min(shortest)), thousands(max(longest)))
        WHEN count(least) = 0 THEN printf('at no prompt length, up to %s tokens, does selection'
          || ' save what it costs', thousands(max(longest)))
        ELSE printf('below %s selection costs more than it saves', iif(min(least) = max(least),
          thousands(min(least)) || ' tokens', printf('%s to %s tokens, by setting,', thousands(min(least)),
          thousands(max(least)))))
          || iif(count(least) = count(*), '', printf('; at %d of %d settings it does up to %s tokens',
            count(*) - count(least), count(*), thousands(max(longest)))) END || '.'
    FROM (
      SELECT method, shortest, longest, until, iif(until < longest, max(until, shortest), NULL) AS least
      FROM ranked JOIN reach USING(run_id)
      WHERE baselines > 1 AND NOT is_cpu AND method = (SELECT method FROM ranked GROUP BY method
        ORDER BY sum(wins) DESC, max(x) DESC LIMIT 1))
    GROUP BY method

    -- No baseline: an engine, or figures alone.
    UNION ALL
    SELECT 0, group_concat(text, ' ') FROM (
      SELECT printf('Run %d predicts ', run) || group_concat(
          printf('%s p50 %.0f %% %s', upper(metric), abs(error_percent),
            iif(error_percent < 0, 'below', 'above')) || iif(error_lo IS NULL, '',
            printf(' [%+.0f, %+.0f]', error_lo, error_hi)), ' and ')
          || printf(' that of %s (run %d).', engine, engine_run) AS text
      FROM (SELECT * FROM engine_error WHERE at = 'p50' ORDER BY run, engine_run,
        instr('ttft tpot', metric))
      GROUP BY run, engine_run)
    WHERE NOT EXISTS (SELECT 1 FROM ranked)
    GROUP BY NULL

    UNION ALL
    SELECT 0, 'No comparison: no run has a dense run with the same options.'
    WHERE NOT EXISTS (SELECT 1 FROM ranked) AND NOT EXISTS (SELECT 1 FROM engine_error)

    UNION ALL
    SELECT 4, printf('The highest rate at which 99 %% of the requests keep %s: ',
        (SELECT limits FROM limits))
      || group_concat(method || iif(most IS NULL, ' none', printf(' %g a second', most)), ', ') || '.'
    FROM (
      SELECT method, max(value + 0.0) FILTER (WHERE good >= 0.99 * requests) AS most
      FROM verdict JOIN run_param USING(run_id)
      WHERE key = 'rate' AND good IS NOT NULL
      GROUP BY method)
    WHERE (SELECT count(DISTINCT value) FROM run_param JOIN run_label USING(run_id)
      WHERE key = 'rate') > 1
    GROUP BY NULL

    UNION ALL
    SELECT 5, 'The load: ' || group_concat(CASE verdict WHEN 'steady' THEN 'sustained'
        WHEN 'backlogged' THEN 'not sustained' WHEN 'closed batch' THEN 'one batch, no load'
        ELSE 'not known whether it is sustained' END
      || iif(n = all_n, '', ' ' || which), '; ') || '.'
    FROM (SELECT * FROM load ORDER BY place)
    GROUP BY NULL)
SELECT place, text FROM sentence WHERE text IS NOT NULL ORDER BY place
