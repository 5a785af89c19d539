-- SPDX-License-Identifier: Apache-2.0
SELECT 'percentiles interpolate linearly between the two nearest values; requests without an end'
  || ' are left out' AS note

UNION ALL
SELECT 'intervals of itl take times between tokens as independent: they are too narrow'
WHERE EXISTS (SELECT 1 FROM latency WHERE metric = 'itl' AND p50_lo IS NOT NULL)

UNION ALL
SELECT note
FROM (
  SELECT iif(count(*) > 1, 'runs ', 'run ') || group_concat(run_id, ', ') || ': '
    || group_concat(run, ', ') || ' of ' || path AS note
  FROM source_run
  GROUP BY path
  ORDER BY min(run_id))

UNION ALL
SELECT 'accuracy is the error of single layers on replayed activations; it does not add up over'
  || ' layers'
WHERE EXISTS (SELECT 1 FROM accuracy_sample WHERE (:run IS NULL OR run_id = :run)
  AND run_id NOT IN (SELECT run_id FROM run_param
    WHERE key = 'weights' AND value IS NOT NULL))

UNION ALL
SELECT printf('run %s: with weights, accuracy is the error of single layers on what the method left of'
  || ' the layers below', group_concat(run_id, ', '))
FROM (SELECT DISTINCT run_id FROM accuracy_sample WHERE (:run IS NULL OR run_id = :run)
  AND run_id IN (SELECT run_id FROM run_param
    WHERE key = 'weights' AND value IS NOT NULL)
  ORDER BY run_id)
HAVING count(*) > 0

-- Whose the accuracy is, if not the model's.
UNION ALL
SELECT printf('run%s %s: %s', iif(count(*) > 1, 's', ''), group_concat(run_id, ', '), text)
FROM (
  SELECT DISTINCT run_id, c.name || CASE origin
    WHEN 'random' THEN ' are random values; accuracy and selections are of no model'
    WHEN 'other' THEN printf(' was captured from %s, not from %s; accuracy and selections are'
      || ' those of %s', c.model, m.name, c.model)
    ELSE ' does not say what model it was captured from; accuracy and selections are those of that'
      || ' model' END AS text
  FROM run_capture JOIN capture c USING(capture_id) JOIN run USING(run_id)
    JOIN model m USING(model_id)
  WHERE origin <> 'same' AND (:run IS NULL OR run_id = :run)
  ORDER BY run_id)
GROUP BY text

UNION ALL
SELECT printf('run %d: %s; the figures cover what was committed', run_id, status)
FROM run
WHERE (:run IS NULL OR run_id = :run) AND status <> 'done'

UNION ALL
SELECT iif(count(*) > 1, 'runs ', 'run ') || group_concat(run_id, ', ')
  || ': times of a CPU show mechanics, not the speed of a GPU'
FROM (SELECT run_id FROM run WHERE clock = 'cpu' AND (:run IS NULL OR run_id = :run)
  ORDER BY run_id)
HAVING count(*) > 0

UNION ALL
SELECT iif(count(*) > 1, 'runs ', 'run ') || group_concat(run_id, ', ')
  || ': times are modelled, not measured: the roofline of ' || gpu
FROM (SELECT run_id, p.value AS gpu FROM run JOIN run_param p USING(run_id)
  WHERE clock = 'modelled' AND p.key = 'gpu' AND (:run IS NULL OR run_id = :run)
  ORDER BY run_id)
GROUP BY gpu

UNION ALL
SELECT iif(count(*) > 1, 'runs ', 'run ') || group_concat(run_id, ', ') || ': ' || verdict || ': '
  || reason
FROM (SELECT * FROM steady WHERE verdict <> 'steady' ORDER BY run_id)
GROUP BY verdict, reason

-- Runs of a sparse method that was dense: by all counts, or without counts by its parameters.
UNION ALL
SELECT printf('run %d: %s left nothing out: %s', run_id, name,
  iif(has_context, 'selector and union kept every block of the sampled chunks',
    'every chunk was the first of its prompt; lower --max-num-batched-tokens'))
FROM (
  SELECT run_id, name, params,
    EXISTS (SELECT 1 FROM request_outcome o
      WHERE o.run_id = r.run_id AND (n_chunks > n_preempt + 1 OR cached_tokens > 0))
      AS has_context,
    (SELECT sum(exec_sel) = sum(exec_total) FROM selection_stat s WHERE s.run_id = r.run_id)
      AS whole
  FROM run r JOIN method USING(method_id)
  WHERE (:run IS NULL OR run_id = :run) AND NOT is_dense
    AND NOT EXISTS (SELECT 1 FROM iteration_drop d WHERE d.run_id = r.run_id))
WHERE coalesce(whole, NOT has_context AND json_extract(params, '$."dense-first"'))

UNION ALL
SELECT printf('run %d: %d rows (query head, query block) of the sampled chunks are empty: their'
  || ' output is 0', run_id, empty_rows)
FROM (SELECT run_id, sum(empty_rows) AS empty_rows
  FROM selection_stat
  WHERE :run IS NULL OR run_id = :run
  GROUP BY run_id)
WHERE empty_rows > 0

-- Tasks.
UNION ALL
SELECT 'tasks: their names are those of the tasks file; RULER-like tasks are not RULER: haystacks,'
  || ' lengths and scores differ'
WHERE EXISTS (SELECT 1 FROM eval_prompt WHERE :run IS NULL OR run_id = :run)

UNION ALL
SELECT printf('tasks: prompts are prefilled with the method in chunks of at most %s tokens, answers are'
  || ' decoded with dense attention, and the answer''s own tokens are fed',
  group_concat(DISTINCT value))
FROM eval_prompt JOIN run_param USING(run_id)
WHERE key = 'max-num-batched-tokens' AND (:run IS NULL OR run_id = :run)
HAVING count(*) > 0

-- Droppers.
UNION ALL
SELECT printf('run %d: tokens were dropped (no drift): queries, keys and values after the first drop'
  || ' are of a run that dropped none, and accuracy is that of the rows left', run_id)
FROM iteration_drop
WHERE (:run IS NULL OR run_id = :run)
  AND run_id NOT IN (SELECT run_id FROM run_param
    WHERE key = 'weights' AND value IS NOT NULL)
GROUP BY run_id
HAVING sum(n_kept) < sum(n_rows)

UNION ALL
SELECT printf('run %d: %d prompts ran in several chunks: a dropper judges each by its own last queries,'
  || ' or keeps it whole with mode=official', run_id, count(*))
FROM request_outcome o
WHERE (:run IS NULL OR run_id = :run) AND n_chunks > 1
  AND EXISTS (SELECT 1 FROM iteration_drop d WHERE d.run_id = o.run_id)
GROUP BY run_id

UNION ALL
SELECT printf('run %d: its dropper kept every row', run_id)
FROM iteration_drop
WHERE :run IS NULL OR run_id = :run
GROUP BY run_id
HAVING sum(n_kept) = sum(n_rows)

UNION ALL
SELECT printf('run %d: %d of %d layers were executed, their time stands for all', run_id,
  layers_run, n_layers)
FROM v_run
WHERE (:run IS NULL OR run_id = :run) AND layers_run < n_layers

-- What energy covers beside the run, or does not.
UNION ALL
SELECT 'energy is that of one GPU in the wall time of the run, the host''s pauses in it; served_j is'
  || ' what it takes above idle power, and idle power for the virtual time'
WHERE EXISTS (SELECT 1 FROM v_energy WHERE :run IS NULL OR run_id = :run)

UNION ALL
SELECT printf('run%s %s: energy covers accuracy samples as well; --accuracy 0 leaves them out',
  iif(count(*) > 1, 's', ''), group_concat(run_id, ', '))
FROM (SELECT run_id FROM v_energy e
  WHERE (:run IS NULL OR run_id = :run)
    AND EXISTS (SELECT 1 FROM accuracy_sample a WHERE a.run_id = e.run_id)
  ORDER BY run_id)
HAVING count(*) > 0

UNION ALL
SELECT printf('run %d: %d kernel records were lost; its time by phase is incomplete', run_id,
  lost_records)
FROM v_run
WHERE (:run IS NULL OR run_id = :run) AND lost_records > 0

UNION ALL
SELECT printf('run %d: requests longer than the capture replay it tiled', run_id)
FROM v_run
WHERE (:run IS NULL OR run_id = :run) AND extend = 'tile'

UNION ALL
SELECT printf('run %d: %d requests were rejected, %d did not finish', run_id, rejected, unfinished)
FROM v_run
WHERE (:run IS NULL OR run_id = :run) AND rejected + unfinished > 0
