-- SPDX-License-Identifier: Apache-2.0
SELECT 'percentiles interpolate linearly between the two nearest values; requests without an end'
  || ' are left out' AS note

-- Percentiles without an interval, by the reason.
UNION ALL
SELECT runs(run_id) || ': no interval of ' || which || ': ' || reason
FROM (
  SELECT run_id, reason, iif(count(*) = (SELECT 3 * count(*) FROM latency l
      WHERE l.run_id = v.run_id), 'latencies', group_concat(metric || ' p' || percentile, ', ')) AS which
  FROM v_interval v
  WHERE (:run IS NULL OR run_id = :run) AND reason IS NOT NULL
  GROUP BY run_id, reason)
GROUP BY which, reason

UNION ALL
SELECT runs(run_id) || ': no interval of goodput: ' || good_reason
FROM verdict
WHERE (:run IS NULL OR run_id = :run) AND run_id IN (SELECT run_id FROM resampling WHERE reason IS NULL)
  AND good_reason IS NOT NULL
GROUP BY good_reason

-- Replicates are stored, so those of another program are by its rules; before there were any, runs have
-- no option that says so.
UNION ALL
SELECT runs(run_id) || ': intervals are of replicates that attnreplay ' || version || ' made, by its rules;'
  || ' a new run has those of ' || program()
FROM run JOIN resampling USING(run_id)
WHERE (:run IS NULL OR run_id = :run) AND version <> program() AND reason IS NULL
GROUP BY version
UNION ALL
SELECT runs(run_id) || ': attnreplay ' || version || ' made no replicates, so there are no intervals; a new'
  || ' run has them'
FROM run
WHERE (:run IS NULL OR run_id = :run) AND version <> program() AND clock <> 'engine'
  AND json_type(options, '$.intervals') IS NULL
GROUP BY version

-- What differs from the engine's own defaults, behind the colon.
UNION ALL
SELECT runs(run_id) || ': ' || value
FROM run JOIN json_each('[' || replace(json_quote(
    substr(engine_defaults, instr(engine_defaults, '): ') + 3)), '; ', '","') || ']')
WHERE (:run IS NULL OR run_id = :run) AND engine_defaults LIKE 'of %): %'
GROUP BY value

UNION ALL
SELECT runs(run_id) || ': defaults of the engine are left out'
FROM run
WHERE (:run IS NULL OR run_id = :run) AND engine_defaults LIKE 'none; %'
GROUP BY NULL

UNION ALL
SELECT note
FROM (
  SELECT runs(run_id) || ': ' || runs(run) || ' of ' || path AS note
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
SELECT runs(run_id) || ': with weights, accuracy is the error of single layers on what the method left'
  || ' of the layers below'
FROM run_param r
WHERE (:run IS NULL OR run_id = :run) AND key = 'weights' AND value IS NOT NULL
  AND EXISTS (SELECT 1 FROM accuracy_sample a WHERE a.run_id = r.run_id)
GROUP BY NULL

UNION ALL
SELECT runs(run_id) || ': decodes follow the text of the capture; after what eviction or lists lose, a model'
  || ' would have written another one'
FROM run JOIN method USING(method_id)
WHERE (:run IS NULL OR run_id = :run) AND (params GLOB '*"decode":{*' OR params GLOB '*"evict":{*')
  AND EXISTS (SELECT 1 FROM run_capture c WHERE c.run_id = run.run_id)
  AND run_id NOT IN (SELECT run_id FROM run_param WHERE key = 'weights' AND value IS NOT NULL)
GROUP BY NULL

UNION ALL
SELECT printf('run %d: %d rows (query head, query block) of the sampled chunks are empty: their'
  || ' output is 0', run_id, empty_rows)
FROM (SELECT run_id, sum(empty_rows) AS empty_rows
  FROM selection_stat
  WHERE (:run IS NULL OR run_id = :run) AND half = 'prefill'
  GROUP BY run_id)
WHERE empty_rows > 0

UNION ALL
SELECT printf('%s: decodes attend to latents absorbed; chunks of prompts: %s', runs(run_id), forms)
FROM (
  SELECT run_id, group_concat(n_chunks || iif(form = 'absorb', ' absorbed', ' expanded'), ', ') AS forms
  FROM (SELECT * FROM latent_form WHERE :run IS NULL OR run_id = :run ORDER BY run_id, form)
  GROUP BY run_id)
GROUP BY forms

UNION ALL
SELECT printf('run %d: %d tokens of the prefix cache were on no page, and were filled again outside of'
  || ' the measured time', run_id, kv_refilled)
FROM run
WHERE (:run IS NULL OR run_id = :run) AND kv_refilled > 0

UNION ALL
SELECT printf('run %d: events of the evictor waited %d times for KV blocks', run_id, evict_waits)
FROM run
WHERE (:run IS NULL OR run_id = :run) AND evict_waits > 0

-- Tasks.
UNION ALL
SELECT 'tasks: their names are those of the tasks file; RULER-like tasks are not RULER: haystacks,'
  || ' lengths and scores differ'
WHERE EXISTS (SELECT 1 FROM eval_prompt WHERE :run IS NULL OR run_id = :run)

UNION ALL
SELECT printf('tasks: prompts are prefilled with the method in chunks of at most %s tokens, answers are'
  || ' decoded with %s, and the answer''s own tokens are fed', group_concat(DISTINCT value),
  iif(max(params GLOB '*"decode":{*'), 'its part for decodes, else with dense attention', 'dense attention'))
FROM eval_prompt JOIN run_param USING(run_id) JOIN run USING(run_id) JOIN method USING(method_id)
WHERE key = 'max-num-batched-tokens' AND (:run IS NULL OR run_id = :run)
GROUP BY NULL

-- Droppers.
UNION ALL
SELECT runs(run_id) || ': tokens were dropped (no drift): queries, keys and values after the first drop'
  || ' are of a run that dropped none, and accuracy is that of the rows left'
FROM (SELECT run_id FROM iteration_drop GROUP BY run_id HAVING sum(n_kept) < sum(n_rows))
WHERE (:run IS NULL OR run_id = :run)
  AND run_id NOT IN (SELECT run_id FROM run_param
    WHERE key = 'weights' AND value IS NOT NULL)
GROUP BY NULL

UNION ALL
SELECT runs(run_id) || ': densities and selections are shares of what the dropper left'
FROM (SELECT run_id FROM iteration_drop GROUP BY run_id HAVING sum(n_kept) < sum(n_rows)) d
WHERE (:run IS NULL OR run_id = :run)
  AND EXISTS (SELECT 1 FROM selection_stat s WHERE s.run_id = d.run_id)
GROUP BY NULL

UNION ALL
SELECT printf('%s: %d prompts ran in several chunks: a dropper judges each by its own last queries,'
  || ' or keeps it whole with mode=official', runs(run_id), n)
FROM (
  SELECT run_id, count(*) AS n
  FROM request_outcome o
  WHERE (:run IS NULL OR run_id = :run) AND n_chunks > 1
    AND EXISTS (SELECT 1 FROM iteration_drop d WHERE d.run_id = o.run_id)
  GROUP BY run_id)
GROUP BY n

UNION ALL
SELECT runs(run_id) || ': the dropper kept every row'
FROM (SELECT run_id FROM iteration_drop GROUP BY run_id HAVING sum(n_kept) = sum(n_rows))
WHERE :run IS NULL OR run_id = :run
GROUP BY NULL

-- What energy covers beside the run, or does not.
UNION ALL
SELECT 'energy is that of one GPU in the wall time of the run, the host''s pauses in it; served_j is'
  || ' what it takes above idle power, and idle power for the virtual time'
WHERE EXISTS (SELECT 1 FROM v_energy WHERE :run IS NULL OR run_id = :run)

UNION ALL
SELECT runs(run_id) || ': energy covers accuracy samples as well; --accuracy 0 leaves them out'
FROM v_energy e
WHERE (:run IS NULL OR run_id = :run)
  AND EXISTS (SELECT 1 FROM accuracy_sample a WHERE a.run_id = e.run_id)
GROUP BY NULL

UNION ALL
SELECT printf('run %d: %d kernel records were lost; its time by phase is incomplete', run_id,
  lost_records)
FROM v_run
WHERE (:run IS NULL OR run_id = :run) AND lost_records > 0
