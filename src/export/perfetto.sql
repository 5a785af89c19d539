-- SPDX-License-Identifier: Apache-2.0
-- The events of run :run, a row each: phase letter, name, process, thread, start and duration in ns
-- of virtual time, and arguments as JSON.  A viewer nests the slices of a thread, so what holds
-- others comes before them.

-- ---- tables to look up ----

CREATE TEMP TABLE IF NOT EXISTS step(iter_no INTEGER PRIMARY KEY, start_ns, end_ns);
DELETE FROM temp.step;
INSERT INTO temp.step SELECT iter_no, start_ns, end_ns FROM iteration WHERE run_id = :run;

CREATE TEMP TABLE IF NOT EXISTS arrival(no INTEGER PRIMARY KEY, req_no, arrival_ns, sched_ns, end_ns);
DELETE FROM temp.arrival;
INSERT INTO temp.arrival(req_no, arrival_ns, sched_ns, end_ns)
  SELECT req_no, arrival_ns, first_sched_ns, max(arrival_ns, coalesce(finish_ns,
    (SELECT max(end_ns) FROM temp.step), arrival_ns))
  FROM request_outcome WHERE run_id = :run AND outcome <> 'rejected' ORDER BY arrival_ns, req_no;

CREATE TEMP TABLE IF NOT EXISTS request_lane(req_no INTEGER PRIMARY KEY, lane, arrival_ns,
  sched_ns, end_ns);
DELETE FROM temp.request_lane;
INSERT INTO temp.request_lane
  SELECT req_no, lane(arrival_ns, end_ns), arrival_ns, coalesce(sched_ns, end_ns), end_ns
  FROM temp.arrival ORDER BY no;

CREATE TEMP TABLE IF NOT EXISTS kernel_track(phase_id, stream);
DELETE FROM temp.kernel_track;
INSERT INTO temp.kernel_track
  SELECT DISTINCT phase_id, stream
  FROM iteration i JOIN kernel_event e ON e.id BETWEEN i.kernel_lo AND i.kernel_hi
  WHERE i.run_id = :run;

-- ---- names of processes and threads ----

WITH part(no, name) AS (VALUES (0, 'iterations'), (1, 'requests'), (2, 'kernels')),
  key(name) AS (VALUES ('process_name'), ('process_sort_index'))
SELECT 'M', k.name, :pid + no, 0, NULL, NULL, CASE k.name WHEN 'process_name'
    THEN json_object('name', 'run ' || run_id || coalesce(' ' || me.name, '') || ': ' || part.name)
    ELSE json_object('sort_index', :pid + no) END
FROM run LEFT JOIN method me USING(method_id), part, key k
WHERE run_id = :run AND (no < 2 OR EXISTS (SELECT 1 FROM temp.kernel_track));

SELECT 'M', 'thread_name', :pid, 1 + coalesce(replica, 0), NULL, NULL,
  json_object('name', coalesce('replica ' || replica, 'iterations'))
FROM (SELECT DISTINCT replica FROM iteration WHERE run_id = :run) ORDER BY replica;

SELECT 'M', 'thread_name', :pid + 1, lane, NULL, NULL, json_object('name', 'lane ' || lane)
FROM (SELECT DISTINCT lane FROM temp.request_lane) ORDER BY lane;

SELECT 'M', 'thread_name', :pid + 2, 1 + phase_id * 65536 + stream, NULL, NULL,
  json_object('name', coalesce(name, 'no phase') || ', stream ' || stream)
FROM temp.kernel_track LEFT JOIN phase USING(phase_id) ORDER BY phase_id, stream;

-- ---- iterations and counters ----

SELECT 'X', name, :pid, 1 + coalesce(replica, 0), start_ns, end_ns - start_ns, json_object('iteration', iter_no,
  'prefill tokens', prefill_tokens, 'decode tokens', decode_tokens, 'prefill pairs', prefill_pairs,
  'decode context', decode_context, 'preempted', preempted, 'wait for the host, us', host_ns / 1e3,
  'cost', cost_source, 'stop', stop)
FROM v_step WHERE run_id = :run;

SELECT 'C', 'requests' || coalesce(' of replica ' || replica, ''), :pid, 1, start_ns, NULL,
  json_object('running', running, 'waiting', waiting)
FROM iteration WHERE run_id = :run;

SELECT 'C', 'KV blocks' || coalesce(' of replica ' || replica, ''), :pid, 1, start_ns, NULL,
  json_object('used', blocks_used)
FROM iteration WHERE run_id = :run;

SELECT 'C', 'selected', :pid, 1, start_ns, NULL, json_object('share', share)
FROM (SELECT iter_no, sum(tiles_sel) * 1.0 / nullif(sum(tiles_total), 0) AS share
    FROM selection_stat WHERE run_id = :run AND half = 'prefill' GROUP BY iter_no) CROSS JOIN temp.step USING(iter_no)
WHERE share IS NOT NULL;

-- ---- requests ----

SELECT 'X', 'request ' || req_no, :pid + 1, lane, l.arrival_ns, end_ns - l.arrival_ns,
  json_object('prompt tokens', prompt_tokens, 'output tokens', output_tokens, 'cached tokens',
    cached_tokens, 'chunks', n_chunks, 'preemptions', n_preempt, 'outcome', outcome,
    'ttft, ms', ttft_ns / 1e6, 'tpot, ms', tpot_ns / 1e6)
FROM temp.request_lane l CROSS JOIN request_outcome USING(req_no) WHERE run_id = :run;

SELECT 'X', 'queue', :pid + 1, lane, arrival_ns, sched_ns - arrival_ns, NULL
FROM temp.request_lane WHERE sched_ns > arrival_ns;

SELECT 'i', 'rejected: request ' || req_no, :pid + 1, 0, arrival_ns, NULL,
  json_object('prompt tokens', prompt_tokens, 'output tokens', output_tokens, 'reason', reason)
FROM request_outcome WHERE run_id = :run AND outcome = 'rejected';

-- Chunks have a slice each, decodes one for each row of request_span.
SELECT 'X', CASE WHEN recompute THEN 'recompute' ELSE 'prefill' END, :pid + 1, lane,
  max(i.start_ns, l.sched_ns), min(i.end_ns, l.end_ns) - max(i.start_ns, l.sched_ns),
  json_object('iteration', n, 'chunk', chunk_no + n - s.iter_no,
    'start', start + (n - s.iter_no) * n_tokens, 'tokens', n_tokens)
FROM request_span s CROSS JOIN temp.request_lane l USING(req_no)
  CROSS JOIN iteration_number ON n BETWEEN s.iter_no AND s.iter_no + iterations - 1
  CROSS JOIN temp.step i ON i.iter_no = n
WHERE s.run_id = :run AND NOT decode
  AND min(i.end_ns, l.end_ns) >= max(i.start_ns, l.sched_ns);

SELECT 'X', 'decode', :pid + 1, lane, max(i.start_ns, l.sched_ns),
  min(j.end_ns, l.end_ns) - max(i.start_ns, l.sched_ns),
  json_object('iteration', s.iter_no, 'iterations', iterations, 'start', start)
FROM request_span s CROSS JOIN temp.request_lane l USING(req_no)
  CROSS JOIN temp.step i ON i.iter_no = s.iter_no
  CROSS JOIN temp.step j ON j.iter_no = s.iter_no + iterations - 1
WHERE s.run_id = :run AND decode AND min(j.end_ns, l.end_ns) >= max(i.start_ns, l.sched_ns);

-- A run without entries has the times of its requests.
WITH part(name) AS (VALUES ('prefill'), ('decode'))
SELECT 'X', name, :pid + 1, lane,
  CASE name WHEN 'prefill' THEN l.sched_ns ELSE first_token_ns END,
  CASE name WHEN 'prefill' THEN coalesce(first_token_ns, l.end_ns) - l.sched_ns
    ELSE l.end_ns - first_token_ns END, NULL
FROM temp.request_lane l CROSS JOIN request_outcome o USING(req_no), part
WHERE o.run_id = :run AND NOT EXISTS (SELECT 1 FROM request_span WHERE run_id = :run)
  AND CASE name WHEN 'prefill' THEN first_sched_ns ELSE first_token_ns END IS NOT NULL;

-- ---- kernels ----

-- The first kernel of an iteration begins with it: where else the GPU waited is not known.
SELECT 'X', n.short, :pid + 2, 1 + e.phase_id * 65536 + e.stream,
  i.start_ns + e.t_ns - first.t_ns, e.dur_ns,
  json_object('iteration', i.iter_no, 'layer', e.layer, 'name', n.full,
    'grid', json_array(grid_x, grid_y, grid_z), 'block', json_array(block_x, block_y, block_z),
    'registers', regs, 'shared memory', smem_static + smem_dynamic, 'correlation', e.corr)
FROM iteration i CROSS JOIN kernel_event first ON first.id = i.kernel_lo
  CROSS JOIN kernel_event e ON e.id BETWEEN i.kernel_lo AND i.kernel_hi
  CROSS JOIN kernel_shape s ON s.shape_id = e.shape_id
  CROSS JOIN temp.kernel_name n ON n.name_id = s.name_id
WHERE i.run_id = :run;
