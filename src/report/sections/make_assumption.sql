-- SPDX-License-Identifier: Apache-2.0
-- What the figures of a run rest on, a row each: kind, the figures that rest on it ('time', 'error',
-- 'executed' or 'all'), a few words, and a sentence.  Kinds that a report has are marked by letters, in
-- the order of place.
CREATE TEMP TABLE assumption AS
WITH
  param AS (
    SELECT run_id, key, value FROM run_param JOIN run_label USING(run_id) WHERE value IS NOT NULL),
  dropper AS (
    SELECT run_id, sum(n_rows) AS n_rows, sum(n_kept) AS n_kept
    FROM iteration_drop GROUP BY run_id),
  found AS (
    SELECT run_id, 10 AS place, 'cpu' AS kind, 'time' AS figures, 'the clock of a CPU' AS brief,
      'times of a CPU show mechanics, not the speed of a GPU' AS text
    FROM run WHERE clock = 'cpu'

    UNION ALL
    SELECT run_id, 11, 'formula', 'time', 'times by a formula', 'iterations take the times of'
      || ' --cost-fixed and --cost-per-token'
    FROM run WHERE clock = 'cost' AND run_id NOT IN (SELECT run_id FROM param WHERE key = 'costs')

    UNION ALL
    SELECT run_id, 12, 'costs', 'time', 'times of an earlier run', 'iterations have the costs of '
      || value
    FROM param WHERE key = 'costs'

    UNION ALL
    SELECT run_id, 13, 'modelled', 'time', 'a modelled ' || value,
      'times are modelled, not measured: the roofline of ' || value || coalesce(', rates ' || rates, '')
    FROM run JOIN param USING(run_id) WHERE clock = 'modelled' AND key = 'gpu'

    UNION ALL
    SELECT run_id, 14, 'layers', 'time', printf('%d of %d layers', layers_run, n_layers),
      printf('%d of %d layers were executed, their time stands for all', layers_run, n_layers)
    FROM v_run WHERE layers_run < n_layers

    UNION ALL
    SELECT run_id, 15, 'attention', 'time', 'attention alone', 'attention ran alone, without'
      || ' projections, MLP and head (--attention-only)'
    FROM param WHERE key = 'attention-only' AND value

    UNION ALL
    SELECT run_id, 20, 'host', 'time', 'the host of a preset', 'host times are those of a preset, of'
      || ' another machine (--host ' || value || ')' || coalesce(': ' || host, '')
      || iif(EXISTS (SELECT 1 FROM replicate p WHERE p.run_id = run.run_id) OR EXISTS (
        SELECT 1 FROM v_repeat p WHERE p.run_id = run.run_id AND repeat_id <> p.run_id) OR EXISTS (
        SELECT 1 FROM param p WHERE p.run_id = run.run_id AND key = 'host-seed' AND p.value = 0), '',
        '; where it has a spread they are one draw of it, and no interval holds that')
    FROM run JOIN param USING(run_id)
    WHERE key = 'host' AND value <> 'none' AND clock IN ('cupti', 'events', 'modelled', 'cost')
      AND EXISTS (SELECT 1 FROM iteration_sum s WHERE s.run_id = run.run_id AND host_ns > 0)

    UNION ALL
    SELECT run_id, 20, 'host', 'time', 'no time of the host', 'the host is taken to need no time'
    FROM run
    WHERE clock IN ('cupti', 'events', 'modelled')
      AND NOT EXISTS (SELECT 1 FROM iteration_sum s WHERE s.run_id = run.run_id AND host_ns > 0)

    UNION ALL
    SELECT run_id, 21, 'collectives', 'time',
      CASE comm WHEN 'none' THEN printf('no collectives of the other %d ranks', tp - 1)
        WHEN 'model' THEN 'modelled collectives' WHEN 'costs' THEN 'collectives of the costs'
        WHEN 'nccl' THEN 'collectives of these ranks'
        ELSE 'collectives of another machine' END,
      CASE comm WHEN 'none' THEN printf(iif(nccl IS NULL, 'one rank of %d ran alone: its times are',
            'the times of %d ranks are') || ' without collectives', tp)
        WHEN 'model' THEN printf('collectives of %d ranks are those of a ring over the link of the GPU,'
          || ' modelled, not measured, and no rank is late', tp)
        WHEN 'costs' THEN printf('collectives of %d ranks are in the costs, or those of --comm', tp)
        WHEN 'nccl' THEN printf('collectives of %d ranks ran, with NCCL', tp)
          || iif(barrier_spread_ns IS NULL, '', printf('; ranks leave the barrier where their times begin'
            || ' within %.2f us, in 99 %% within %.2f us', barrier_spread_ns / 1e3, barrier_p99_ns / 1e3))
        ELSE printf('collectives of %d ranks are from %s, and no rank is late', tp, comm) END
    FROM (
      SELECT run.run_id, tp, nccl, barrier_spread_ns, barrier_p99_ns, coalesce(run.comm, CASE
        WHEN clock = 'cpu' AND nccl IS NOT NULL
          AND run.run_id IN (SELECT run_id FROM param WHERE key = 'weights') THEN 'nccl'
        WHEN p.value IS NULL OR p.value = 'none' OR gpu_id IS NULL AND clock <> 'modelled'
          OR run.run_id IN (SELECT run_id FROM param WHERE key = 'attention-only' AND value) THEN 'none'
        WHEN clock = 'cost' THEN 'costs' WHEN p.value = 'auto' THEN 'model' ELSE p.value END) AS comm
      FROM run JOIN run_label USING(run_id) JOIN model USING(model_id)
        LEFT JOIN param p ON p.run_id = run.run_id AND p.key = 'comm'
      WHERE tp > 1)

    UNION ALL
    SELECT n.run_id, 23, 'replicas', 'time', printf('%d replicas that do not wait for each other', n.value),
      printf('%d replicas behind router %s are modelled: none waits for another, and routing takes no time',
        n.value, r.value)
    FROM param n JOIN param r USING(run_id)
    WHERE n.key = 'replicas' AND n.value > 1 AND r.key = 'router' AND n.run_id NOT IN (
      SELECT run_id FROM param JOIN run USING(run_id) JOIN model USING(model_id)
      WHERE key = 'ep' AND value > tp)

    UNION ALL
    SELECT e.run_id, 25, 'experts', 'time', printf('experts on %d modelled %s', e.value,
        iif(tp > 1, 'ranks', 'engines')),
      iif(e.value = tp, printf('%d ranks share the experts', e.value),
        printf('%d engines share their experts: each waits for the slowest, and routing takes no time',
          e.value / tp)) || coalesce('; rows go to experts by ' || r.value, '') || iif(e.value = tp, '',
        printf('; collectives of %d %s are ', e.value, iif(tp > 1, 'ranks', 'engines'))
        || CASE coalesce(run.comm, 'none')
          WHEN 'none' THEN 'left out' WHEN 'model' THEN 'those of a ring, modelled'
          ELSE 'from ' || run.comm END)
    FROM param e JOIN run USING(run_id) JOIN model USING(model_id)
      LEFT JOIN param r ON r.run_id = e.run_id AND r.key = 'routing'
    WHERE e.key = 'ep' AND e.value > 1

    UNION ALL
    SELECT p.run_id, 26, 'stages', 'time', printf('%d modelled stages', p.value),
      printf('%d pipeline stages are modelled: they share the time of an iteration by their layers, and what'
        || ' they send is ', p.value) || CASE coalesce(run.comm, 'none') WHEN 'none' THEN 'left out'
          WHEN 'model' THEN 'modelled by the link of the GPU' ELSE 'from ' || run.comm END
    FROM param p JOIN run USING(run_id)
    WHERE p.key = 'pp' AND p.value > 1

    UNION ALL
    SELECT n.run_id, 24, 'apart', 'time', 'KV over a modelled link',
      printf('prefill runs on %d engines and decodes on %d: routing takes no time, and KV travels over a'
        || ' modelled link (%s)', n.value, d.value, k.value)
    FROM param n JOIN param d USING(run_id) JOIN param k USING(run_id)
    WHERE n.key = 'prefill-replicas' AND n.value > 0 AND d.key = 'decode-replicas' AND k.key = 'kv-link'

    UNION ALL
    SELECT run_id, 22, 'quantization', 'time', 'quantization ignored', 'the config has quantized'
      || ' weights, the run has them in bf16 (--quantization none)'
    FROM run JOIN param USING(run_id) JOIN model USING(model_id)
    WHERE key = 'quantization' AND value = 'none' AND coalesce(
      json_extract(config, '$.quantization_config'),
      json_extract(config, '$.text_config.quantization_config')) IS NOT NULL

    UNION ALL
    SELECT run_id, 30, 'density', 'all', 'densities given, not measured', 'the share of the attention'
      || ' was given with --density, not measured'
    FROM verdict WHERE is_given

    UNION ALL
    SELECT run_id, 31, 'whole', 'all', 'nothing left out', 'left nothing out: '
      || iif(has_context, 'selector and union kept every block of the sampled chunks',
        'each chunk began its prompt; lower --max-num-batched-tokens')
    FROM (
      SELECT run_id, params,
        EXISTS (SELECT 1 FROM request_outcome o
          WHERE o.run_id = r.run_id AND (n_chunks > n_preempt + 1 OR cached_tokens > 0))
          AS has_context,
        (SELECT sum(exec_sel) = sum(exec_total) AND NOT total(skip_sel)
          FROM selection_stat s WHERE s.run_id = r.run_id) AS whole
      FROM run r JOIN method USING(method_id)
      WHERE NOT is_dense AND params NOT GLOB '*"evict":{*'
        AND run_id NOT IN (SELECT run_id FROM dropper))
    WHERE coalesce(whole, NOT has_context AND json_extract(params, '$."dense-first"'))

    UNION ALL
    SELECT run_id, 40, 'accuracy', 'error', 'accuracy not measured', 'accuracy was not measured'
    FROM verdict WHERE NOT is_dense AND error IS NULL AND answers IS NULL AND run_id IN (
      SELECT run_id FROM run JOIN method USING(method_id))

    UNION ALL
    SELECT DISTINCT run_id, 41, 'capture', 'error executed',
      iif(origin = 'random', 'random activations', 'activations of another model'),
      c.name || CASE origin
      WHEN 'random' THEN ' are random values; accuracy and selections are of no model'
      WHEN 'other' THEN printf(' was captured from %s, not from %s; accuracy and selections are'
        || ' those of %s', c.model, m.name, c.model)
      ELSE ' does not say what model it was captured from; accuracy and selections are those of that'
        || ' model' END
    FROM run_capture JOIN capture c USING(capture_id) JOIN run USING(run_id)
      JOIN model m USING(model_id)
    WHERE origin <> 'same'

    UNION ALL
    SELECT run_id, 42, 'tiled', 'error executed', 'a tiled capture',
      'requests longer than the capture replay it tiled'
    FROM v_run WHERE extend = 'tile'

    UNION ALL
    SELECT run_id, 43, 'rank', 'error executed', 'the weights of one rank', printf('rank 0 of %d ran'
      || ' alone with its slices of the weights: activations after the first attention are partial'
      || ' sums, so tokens, selections and accuracy are of no model', tp)
    FROM param JOIN run USING(run_id) JOIN model USING(model_id)
    WHERE key = 'weights' AND tp > 1 AND nccl IS NULL

    UNION ALL
    SELECT run_id, 44, 'dropped', 'error', printf('%.0f %% of the prompt rows dropped',
        100.0 * (n_rows - n_kept) / n_rows), printf('a dropper left out %.1f %% of the prompt rows at'
        || ' its layers: what that loses is in no error of a layer',
        100.0 * (n_rows - n_kept) / n_rows)
    FROM dropper WHERE n_kept < n_rows

    UNION ALL
    SELECT run_id, 50, 'status', 'all', status, status || '; the figures cover what was committed'
    FROM run WHERE status <> 'done'

    UNION ALL
    SELECT run_id, 51, 'requests', 'time', printf('%d requests not served', rejected + unfinished),
      printf('%d requests were rejected, %d did not finish', rejected, unfinished)
    FROM v_run WHERE rejected + unfinished > 0

    UNION ALL
    SELECT run_id, 52, 'load', 'time', CASE verdict WHEN 'closed batch' THEN 'one batch of requests'
        WHEN 'backlogged' THEN 'a load that is not sustained' ELSE 'a load not known to be sustained' END,
      verdict || ': ' || iif((SELECT count(DISTINCT reason) > 4 FROM steady b
        WHERE b.verdict = a.verdict), 'the table of loads has their replays',
        replace(reason, ': latencies are of one batch', ''))
    FROM steady a WHERE verdict <> 'steady')
SELECT run_id, kind, char(96 + dense_rank() OVER (ORDER BY f.place)) AS mark, figures, brief, text
FROM found f JOIN run_label USING(run_id)
