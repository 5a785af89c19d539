-- SPDX-License-Identifier: Apache-2.0
-- What the verdict says of each run, a row each: latencies, speed-ups against its baseline and their
-- intervals, requests that kept the limits, error, recall and answers, the share executed, and the time of
-- all kernels, of the attention core, and in it of selecting, and of waiting for the host.  Of prompts and
-- decodes, error and recall are those of the half with more error (error_half) and less recall.  half is
-- 'decode' for methods that change nothing but decodes.  What a
-- dropper loses is in no figure of a layer, so its runs have no error.  is_given: the share executed was
-- given with --density.
CREATE TEMP TABLE verdict AS
WITH
  gain AS (
    SELECT run_id, base_id,
      max(speedup) FILTER (WHERE metric = 'ttft' AND percentile = 50) AS ttft_x,
      max(lo) FILTER (WHERE metric = 'ttft' AND percentile = 50) AS ttft_x_lo,
      max(hi) FILTER (WHERE metric = 'ttft' AND percentile = 50) AS ttft_x_hi,
      max(reason) FILTER (WHERE metric = 'ttft' AND percentile = 50) AS ttft_reason,
      max(speedup) FILTER (WHERE metric = 'ttft' AND percentile = 99) AS ttft99_x,
      max(lo) FILTER (WHERE metric = 'ttft' AND percentile = 99) AS ttft99_x_lo,
      max(hi) FILTER (WHERE metric = 'ttft' AND percentile = 99) AS ttft99_x_hi,
      max(reason) FILTER (WHERE metric = 'ttft' AND percentile = 99) AS ttft99_reason,
      max(speedup) FILTER (WHERE metric = 'tpot' AND percentile = 50) AS tpot_x,
      max(lo) FILTER (WHERE metric = 'tpot' AND percentile = 50) AS tpot_x_lo,
      max(hi) FILTER (WHERE metric = 'tpot' AND percentile = 50) AS tpot_x_hi,
      max(reason) FILTER (WHERE metric = 'tpot' AND percentile = 50) AS tpot_reason
    FROM speedup GROUP BY run_id, base_id),
  given AS (
    SELECT run_id, substr(j.value, length(name) + 2) + 0.0 AS density
    FROM run JOIN method USING(method_id) JOIN run_param p USING(run_id), json_each(p.value) j
    WHERE p.key = 'density' AND json_valid(p.value) AND substr(j.value, 1, length(name) + 1) = name || '='),
  -- What replicates give of the goodput, if they were judged by the same limits; else the reason.
  goodput_range AS (
    SELECT *, CASE WHEN replicates IS NULL THEN 'the run has no replicates' WHEN reason IS NOT NULL THEN reason
        WHEN run_id NOT IN (SELECT run_id FROM slo WHERE own) THEN 'replicates keep no times of requests,'
          || ' and were judged by --slo of the run alone; give run these limits'
        WHEN share NOT BETWEEN lo AND hi THEN 'it lies outside of what replicates give' END AS why
    FROM (SELECT run_id, 100.0 * good / n AS share FROM goodput WHERE metric = 'all')
      LEFT JOIN resampling USING(run_id)
      LEFT JOIN (
        SELECT run_id, percentile(100.0 * good / ok, 2.5) AS lo, percentile(100.0 * good / ok, 97.5) AS hi
        FROM replicate WHERE good IS NOT NULL AND ok > 0 GROUP BY run_id) USING(run_id)),
  worst AS (
    SELECT *, row_number() OVER (PARTITION BY run_id ORDER BY mean DESC, half DESC) AS no FROM error),
  least AS (
    SELECT run_id, min(recall) AS recall
    FROM (SELECT run_id, avg(mass_recall) AS recall FROM accuracy_sample GROUP BY run_id, half)
    GROUP BY run_id),
  dropper AS (
    SELECT run_id, 1 - sum(n_kept) * 1.0 / sum(n_rows) AS dropped
    FROM iteration_drop GROUP BY run_id HAVING sum(n_kept) < sum(n_rows))
SELECT l.run_id, v.half,
  l.label, l.method, l.is_dense, l.place, l.style, g.base_id,
  ttft_x, ttft_x_lo, ttft_x_hi, ttft_reason, ttft99_x, ttft99_x_lo, ttft99_x_hi, ttft99_reason,
  tpot_x, tpot_x_lo, tpot_x_hi, tpot_reason,
  t.p50 AS ttft, t.p99 AS ttft99, o.p50 AS tpot, t.n AS served,
  good.n AS requests, good.good, good.good / duration_s AS good_per_s,
  iif(why IS NULL, good_range.lo, NULL) AS good_lo, iif(why IS NULL, good_range.hi, NULL) AS good_hi, why AS good_reason,
  e.mean AS error, e.lo AS error_lo, e.hi AS error_hi, e.half AS error_half, recall, answers, prompts, dropped,
  coalesce(x.executed, density) AS executed, executed_decode, x.executed IS NULL AND density IS NOT NULL AS is_given,
  kernel_ms, core_ms, select_ms, host_ms, s.verdict AS load, s.reason AS load_reason
FROM run_label l JOIN v_half v USING(run_id) LEFT JOIN gain g USING(run_id)
  LEFT JOIN latency t ON t.run_id = l.run_id AND t.metric = 'ttft'
  LEFT JOIN latency o ON o.run_id = l.run_id AND o.metric = 'tpot'
  LEFT JOIN goodput good ON good.run_id = l.run_id AND good.metric = 'all'
  LEFT JOIN goodput_range good_range ON good_range.run_id = l.run_id
  LEFT JOIN v_load ON v_load.run_id = l.run_id
  LEFT JOIN steady s ON s.run_id = l.run_id
  LEFT JOIN dropper ON dropper.run_id = l.run_id
  LEFT JOIN worst e ON e.run_id = l.run_id AND no = 1 AND dropped IS NULL
  LEFT JOIN least r ON r.run_id = l.run_id AND dropped IS NULL
  LEFT JOIN (SELECT run_id, sum(exact) AS answers, count(*) AS prompts FROM eval_prompt GROUP BY run_id) a
    ON a.run_id = l.run_id
  LEFT JOIN v_executed x ON x.run_id = l.run_id
  LEFT JOIN given ON given.run_id = l.run_id
  LEFT JOIN (SELECT run_id, sum(ms) AS kernel_ms, sum(ms * core) AS core_ms,
      sum(ms) FILTER (WHERE phase IN ('select', 'metadata', 'copy')) AS select_ms
    FROM phase_time GROUP BY run_id) p ON p.run_id = l.run_id
  LEFT JOIN (SELECT run_id, sum(host_ns) / 1e6 AS host_ms
    FROM iteration_sum JOIN run USING(run_id) JOIN model USING(model_id)
    WHERE layers_run = n_layers GROUP BY run_id) h ON h.run_id = l.run_id
