-- SPDX-License-Identifier: Apache-2.0
-- The views of the database, which attnreplay-db(5) describes.  Each connection that reads makes
-- them anew.  So a new view works on an older file, if its tables have the columns.
CREATE TEMP VIEW v_run AS
  SELECT r.run_id, t.name AS trace, mo.name AS model, me.name AS method, me.params, r.policy,
    r.backend, g.name AS gpu, r.clock, r.status, r.seed, t.n_requests AS requests,
    (SELECT count(*) FROM request_outcome o
      WHERE o.run_id = r.run_id AND outcome = 'ok') AS ok,
    (SELECT count(*) FROM request_outcome o
      WHERE o.run_id = r.run_id AND outcome = 'rejected') AS rejected,
    (SELECT count(*) FROM request_outcome o
      WHERE o.run_id = r.run_id AND outcome = 'unfinished') AS unfinished,
    (SELECT sum(cached_tokens) FROM request_outcome o
      WHERE o.run_id = r.run_id) AS cached_tokens,
    iif(EXISTS (SELECT 1 FROM run_param p WHERE p.run_id = r.run_id AND key = 'keep-tables'
        AND value = 'requests'), NULL,
      (SELECT count(*) FROM iteration i WHERE i.run_id = r.run_id)) AS iterations,
    (SELECT (max(end_ns) - min(start_ns)) / 1e9 FROM iteration i
      WHERE i.run_id = r.run_id) AS duration_s,
    r.layers_run, mo.n_layers, r.num_blocks, r.block_tokens,
    (SELECT value FROM run_param p
      WHERE p.run_id = r.run_id AND key = 'host-overhead') AS host_overhead_ns,
    (SELECT value FROM run_param p WHERE p.run_id = r.run_id
      AND key = 'host-overhead-per-request') AS host_overhead_per_request_ns,
    (SELECT value FROM run_param p WHERE p.run_id = r.run_id
      AND key = 'host-overhead-per-token') AS host_overhead_per_token_ns,
    (SELECT value FROM run_param p
      WHERE p.run_id = r.run_id AND key = 'extend') AS extend,
    r.dropped + r.zero_ts + r.unattributed + r.late AS lost_records, r.baseline_run_id,
    strftime('%Y-%m-%dT%H:%M:%SZ', r.started_utc_ns / 1000000000, 'unixepoch') AS started_utc,
    r.version, r.cmdline,
    coalesce((SELECT group_concat(text, '; ')
      FROM (SELECT CASE origin WHEN 'same' THEN '' WHEN 'random' THEN c.name || ', '
          WHEN 'unknown' THEN 'unknown model, ' ELSE c.model || ', ' END
          || printf('%d tokens', n_tokens)
          || iif(sha256 = '', '', ', ' || substr(sha256, 1, 8)) AS text
        FROM run_capture rc JOIN capture c USING(capture_id)
        WHERE rc.run_id = r.run_id GROUP BY capture_id ORDER BY min(capture_no))),
      (SELECT 'weights of ' || mo.name || iif(mo.tp = 1 OR r.nccl NOT NULL, '',
          printf(', rank 0 of %d alone: partial sums', mo.tp)) FROM run_param p
        WHERE p.run_id = r.run_id AND key = 'weights' AND value IS NOT NULL)) AS capture,
    r.repeat_no,
    iif(EXISTS (SELECT 1 FROM run_capture rc WHERE rc.run_id = r.run_id),
      (SELECT 'no-drift' FROM iteration_drop d WHERE d.run_id = r.run_id
        GROUP BY run_id HAVING sum(n_kept) < sum(n_rows)), NULL) AS fidelity,
    r.kv_refilled, r.evict_waits
  FROM run r JOIN trace t USING(trace_id) LEFT JOIN model mo USING(model_id)
    LEFT JOIN method me USING(method_id) LEFT JOIN gpu g USING(gpu_id);

-- The entries of each batch, if the run kept them.  The last condition follows from the others.
-- With it, a known n becomes a range of the key of request_span.
CREATE TEMP VIEW iteration_request AS
  SELECT run_id, n AS iter_no, req_no, chunk_no + n - iter_no AS chunk_no,
    start + (n - iter_no) * n_tokens AS start, n_tokens, decode, emit, recompute
  FROM request_span JOIN iteration_number ON n BETWEEN iter_no AND iter_no + iterations - 1
    AND iter_no > n - 256;

-- Time between two tokens of a request; the first token has none.  Within a span it is the time
-- between the ends of two iterations, so only spans have to be sorted by request.
CREATE TEMP VIEW v_itl AS
  WITH s AS (
    SELECT s.run_id, req_no, s.iter_no, iterations,
      lag(end_ns) OVER (PARTITION BY s.run_id, req_no ORDER BY end_ns) AS before_ns
    FROM request_span s CROSS JOIN iteration i ON i.run_id = s.run_id
      AND i.iter_no = s.iter_no + iterations - 1
    WHERE emit),
  e AS (
    SELECT run_id, iter_no, end_ns,
      end_ns - lag(end_ns) OVER (PARTITION BY run_id ORDER BY iter_no) AS step_ns
    FROM iteration)
  SELECT s.run_id, req_no, n AS iter_no,
    CASE n WHEN s.iter_no THEN end_ns - before_ns ELSE step_ns END AS itl_ns
  FROM s CROSS JOIN iteration_number ON n BETWEEN s.iter_no AND s.iter_no + iterations - 1
    CROSS JOIN e ON e.run_id = s.run_id AND e.iter_no = n
  WHERE n > s.iter_no OR before_ns IS NOT NULL;

-- The samples of each metric, with the definitions, names and units of each tool.  n: how often the
-- value occurred; pos: the order of the metrics.  Those of attnreplay are in ms.
CREATE TEMP VIEW v_sample AS
  SELECT run_id, 'attnreplay' AS tool, 1 AS pos, 'ttft' AS metric, ttft_ns / 1e6 AS x, 1 AS n
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'attnreplay', 2, 'tpot', tpot_ns / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok' AND tpot_ns IS NOT NULL
  UNION ALL
  SELECT run_id, 'attnreplay', 3, 'itl', itl_ns / 1e6, n FROM token_gap
  UNION ALL
  SELECT run_id, 'attnreplay', 4, 'e2e', e2e_ns / 1e6, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'attnreplay', 5, 'queue', queue_ns / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok' AND queue_ns IS NOT NULL
  UNION ALL
  SELECT run_id, 'vllm', 1, 'TTFT', ttft_ns / 1e6, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vllm', 2, 'TPOT', tpot_ns / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok' AND tpot_ns IS NOT NULL
  UNION ALL
  SELECT run_id, 'vllm', 3, 'ITL', itl_ns / 1e6, n FROM token_gap
  UNION ALL
  SELECT run_id, 'vllm', 4, 'E2EL', e2e_ns / 1e6, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'aiperf', 1, 'Time to First Token (ms)', ttft_ns / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'aiperf', 2, 'Request Latency (ms)', e2e_ns / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'aiperf', 3, 'Inter Token Latency (ms)', tpot_ns / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok' AND tpot_ns IS NOT NULL
  UNION ALL
  SELECT run_id, 'aiperf', 4, 'Output Token Throughput Per User (tokens/sec/user)',
    1e9 / tpot_ns, 1 FROM request_outcome WHERE outcome = 'ok' AND tpot_ns > 0
  UNION ALL
  SELECT run_id, 'aiperf', 5, 'Prefill Throughput (tokens/sec)', prompt_tokens * 1e9 / ttft_ns, 1
    FROM request_outcome WHERE outcome = 'ok' AND ttft_ns > 0
  UNION ALL
  SELECT run_id, 'aiperf', 6, 'Output Sequence Length (tokens)', output_tokens, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'aiperf', 7, 'Input Sequence Length (tokens)', prompt_tokens, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 1, 'request_e2e_time', e2e_ns / 1e9, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 2, 'request_e2e_time_normalized', e2e_ns / 1e9 / output_tokens, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 3, 'request_execution_plus_preemption_time',
    (e2e_ns - queue_ns) / 1e9, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 4, 'request_execution_plus_preemption_time_normalized',
    (e2e_ns - queue_ns) / 1e9 / output_tokens, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 5, 'request_scheduling_delay', queue_ns / 1e9, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 6, 'prefill_e2e_time', ttft_ns / 1e9, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 7, 'prefill_time_execution_plus_preemption',
    (ttft_ns - queue_ns) / 1e9, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 8, 'prefill_time_execution_plus_preemption_normalized',
    (ttft_ns - queue_ns) / 1e9 / prompt_tokens, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 9, 'decode_time_execution_plus_preemption_normalized',
    (e2e_ns - ttft_ns) / 1e9 / output_tokens, 1 FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 10, 'decode_token_execution_plus_preemption_time', itl_ns / 1e9, n
    FROM token_gap
  UNION ALL
  SELECT run_id, 'vidur', 11, 'request_num_prefill_tokens', prompt_tokens, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 12, 'request_num_decode_tokens', output_tokens, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'vidur', 13, 'request_num_restarts', n_preempt, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'llmservingsim', 1, 'TTFT', ttft_ns / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'llmservingsim', 2, 'TPOT',
    (finish_ns - first_token_ns) / max(output_tokens - 1, 1) / 1e6, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'llmservingsim', 3, 'ITL', itl_ns / 1e6, n FROM token_gap
  UNION ALL
  SELECT run_id, 'splitwise', 1, 'response_times', e2e_ns / 1e9, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'splitwise', 2, 'queue_times', queue_ns / 1e9, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'splitwise', 3, 'ttft_times', ttft_ns / 1e9, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'splitwise', 4, 'tbt_times', (e2e_ns - ttft_ns) / 1e9 / output_tokens, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'splitwise', 5, 'prompt_sizes', prompt_tokens, 1
    FROM request_outcome WHERE outcome = 'ok'
  UNION ALL
  SELECT run_id, 'splitwise', 6, 'token_sizes', output_tokens, 1
    FROM request_outcome WHERE outcome = 'ok';

-- Percentile p of the sorted x_0 ... x_(n-1), linear rule: h = (n-1) p / 100, k = floor(h),
-- x_k + (h - k) (x_(k+1) - x_k), with k and h - k from integer arithmetic.  A row of v_sample is
-- x_lo ... x_hi; m is n - 1.  Windows instead of GROUP BY: only through windows do conditions on
-- run, tool and metric reach the tables.  There is no sqrt() in it, which some builds of SQLite lack.
CREATE TEMP VIEW v_quantile AS
  WITH o AS (
    SELECT run_id, tool, pos, metric, x, lead(x, 1, x) OVER w - x AS step, sum(n) OVER w - n AS lo,
      sum(n) OVER w - 1 AS hi, sum(n) OVER whole - 1 AS m,
      sum(n * x) OVER whole AS total, sum(n * x * x) OVER whole AS squares
    FROM v_sample WINDOW w AS (PARTITION BY run_id, tool, pos, metric ORDER BY x
        ROWS UNBOUNDED PRECEDING),
      whole AS (PARTITION BY run_id, tool, pos, metric ORDER BY x
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING)),
  l AS (
    SELECT run_id, tool, pos, metric, hi, m, total / (m + 1.0) AS mean,
      squares / (m + 1.0) AS square, max(CASE lo WHEN 0 THEN x END) OVER w AS min, x AS max,
      max(CASE WHEN m * 250 / 1000 BETWEEN lo AND hi
        THEN x + (hi = m * 250 / 1000) * (m * 250 % 1000 / 1000.0) * step END) OVER w AS p25,
      max(CASE WHEN m * 500 / 1000 BETWEEN lo AND hi
        THEN x + (hi = m * 500 / 1000) * (m * 500 % 1000 / 1000.0) * step END) OVER w AS p50,
      max(CASE WHEN m * 750 / 1000 BETWEEN lo AND hi
        THEN x + (hi = m * 750 / 1000) * (m * 750 % 1000 / 1000.0) * step END) OVER w AS p75,
      max(CASE WHEN m * 900 / 1000 BETWEEN lo AND hi
        THEN x + (hi = m * 900 / 1000) * (m * 900 % 1000 / 1000.0) * step END) OVER w AS p90,
      max(CASE WHEN m * 950 / 1000 BETWEEN lo AND hi
        THEN x + (hi = m * 950 / 1000) * (m * 950 % 1000 / 1000.0) * step END) OVER w AS p95,
      max(CASE WHEN m * 990 / 1000 BETWEEN lo AND hi
        THEN x + (hi = m * 990 / 1000) * (m * 990 % 1000 / 1000.0) * step END) OVER w AS p99,
      max(CASE WHEN m * 999 / 1000 BETWEEN lo AND hi
        THEN x + (hi = m * 999 / 1000) * (m * 999 % 1000 / 1000.0) * step END) OVER w AS p999
    FROM o WHERE lo = 0 OR hi = m
      OR m * 250 / 1000 BETWEEN lo AND hi OR m * 500 / 1000 BETWEEN lo AND hi
      OR m * 750 / 1000 BETWEEN lo AND hi OR m * 900 / 1000 BETWEEN lo AND hi
      OR m * 950 / 1000 BETWEEN lo AND hi OR m * 990 / 1000 BETWEEN lo AND hi
      OR m * 999 / 1000 BETWEEN lo AND hi
    WINDOW w AS (PARTITION BY run_id, tool, pos, metric ORDER BY hi))
  SELECT run_id, tool, pos, metric, m + 1 AS n, mean,
    max(0.0, square - mean * mean) AS variance, min, p25, p50, p75, p90, p95, p99, p999, max
  FROM l WHERE hi = m;
CREATE TEMP VIEW v_dist AS
  SELECT run_id, tool, pos, metric, n, mean, sqrt(variance) AS std, min, p25, p50, p75, p90, p95,
    p99, p999, max
  FROM v_quantile;
CREATE TEMP VIEW v_latency AS
  SELECT run_id, me.name AS method, metric, n, mean, p50, p90, p95, p99, max
  FROM v_quantile JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  WHERE tool = 'attnreplay';

-- Requests and tokens served, and their rates from the first arrival to the last token.
CREATE TEMP VIEW v_load AS
  SELECT run_id, ok, others, prompt_tokens, output_tokens, cached_tokens, duration_s,
    ok / duration_s AS request_rate, prompt_tokens / duration_s AS prompt_rate,
    output_tokens / duration_s AS output_rate
  FROM (SELECT run_id, sum(outcome = 'ok') AS ok, sum(outcome <> 'ok') AS others,
      sum(prompt_tokens) FILTER (WHERE outcome = 'ok') AS prompt_tokens,
      sum(output_tokens) FILTER (WHERE outcome = 'ok') AS output_tokens,
      sum(cached_tokens) FILTER (WHERE outcome = 'ok') AS cached_tokens,
      nullif(max(finish_ns) - min(arrival_ns), 0) / 1e9 AS duration_s
    FROM request_outcome GROUP BY run_id);

-- Metrics that other tools print of such a run, under their names.
CREATE TEMP VIEW v_metrics_vllm AS
  SELECT run_id, figure, value FROM (
    SELECT run_id, column1 AS pos, column2 AS figure, CASE column1 WHEN 0 THEN ok WHEN 1 THEN others
      WHEN 2 THEN duration_s WHEN 3 THEN prompt_tokens WHEN 4 THEN output_tokens
      WHEN 5 THEN request_rate WHEN 6 THEN output_rate ELSE prompt_rate + output_rate END AS value
    FROM v_load JOIN (VALUES (0, 'Successful requests'), (1, 'Failed requests'),
      (2, 'Benchmark duration (s)'), (3, 'Total input tokens'), (4, 'Total generated tokens'),
      (5, 'Request throughput (req/s)'), (6, 'Output token throughput (tok/s)'),
      (7, 'Total Token throughput (tok/s)'))
    UNION ALL
    SELECT run_id, 10 * pos + column1, column2 || ' ' || metric || ' (ms)',
      CASE column1 WHEN 0 THEN mean WHEN 1 THEN p50 ELSE p99 END
    FROM v_dist JOIN (VALUES (0, 'Mean'), (1, 'Median'), (2, 'P99')) WHERE tool = 'vllm')
  ORDER BY run_id, pos;
CREATE TEMP VIEW v_metrics_aiperf AS
  SELECT run_id, metric, avg, min, max, p99, p90, p75, p50, std FROM (
    SELECT run_id, pos, metric, mean AS avg, min, max, p99, p90, p75, p50, std
    FROM v_dist WHERE tool = 'aiperf'
    UNION ALL
    SELECT run_id, 10 + column1, column2, CASE column1 WHEN 0 THEN output_rate
      WHEN 1 THEN request_rate ELSE ok END, NULL, NULL, NULL, NULL, NULL, NULL, NULL
    FROM v_load JOIN (VALUES (0, 'Output Token Throughput (tokens/sec)'),
      (1, 'Request Throughput (requests/sec)'), (2, 'Request Count (requests)')))
  ORDER BY run_id, pos;
CREATE TEMP VIEW v_metrics_vidur AS
  SELECT run_id, metric, min, max, mean, p25 AS "25th", p50 AS "50th", p75 AS "75th", p95 AS "95th",
    p99 AS "99th", p999 AS "99.9th"
  FROM v_dist WHERE tool = 'vidur' ORDER BY run_id, pos;
CREATE TEMP VIEW v_metrics_llmservingsim AS
  SELECT run_id, figure, value FROM (
    SELECT run_id, column1 AS pos, column2 AS figure, CASE column1 WHEN 0 THEN ok
      WHEN 1 THEN duration_s WHEN 2 THEN prompt_tokens WHEN 3 THEN output_tokens
      WHEN 4 THEN request_rate WHEN 5 THEN prompt_rate WHEN 6 THEN output_rate
      ELSE prompt_rate + output_rate END AS value
    FROM v_load JOIN (VALUES (0, 'Total requests'), (1, 'Total latency (s)'),
      (2, 'Total input tokens'), (3, 'Total generated tokens'), (4, 'Request throughput (req/s)'),
      (5, 'Average prompt throughput (tok/s)'), (6, 'Average generation throughput (tok/s)'),
      (7, 'Total token throughput (tok/s)'))
    UNION ALL
    SELECT run_id, 10 * pos + column1, column2 || ' ' || metric || ' (ms)',
      CASE column1 WHEN 0 THEN mean WHEN 1 THEN p50 ELSE p99 END
    FROM v_dist JOIN (VALUES (0, 'Mean'), (1, 'Median'), (2, 'P99')) WHERE tool = 'llmservingsim')
  ORDER BY run_id, pos;
CREATE TEMP VIEW v_metrics_splitwise AS
  SELECT run_id, metric, mean, std, min, max, p50 AS median, p50, p90, p95, p99, p999
  FROM v_dist WHERE tool = 'splitwise' ORDER BY run_id, pos;

-- Energy of runs that measured it.  served_j: what the GPU would take in the virtual time of the
-- run: the energy above idle, and idle power for the whole of it.  With sampled layers it is NULL,
-- because the energy of the others is not known.
CREATE TEMP VIEW v_energy AS
  SELECT run_id, method, measured_j, wall_s, idle_w, above_idle_j, virtual_s, served_j,
    served_j / nullif(prompt_tokens + output_tokens, 0) AS j_per_token,
    served_j / nullif(output_tokens, 0) AS j_per_output_token
  FROM (SELECT run_id, method, measured_j, wall_s, idle_w, measured_j - idle_w * wall_s
      AS above_idle_j, duration_s AS virtual_s,
      iif(layers_run = n_layers, measured_j - idle_w * wall_s + idle_w * duration_s, NULL)
        AS served_j
    FROM (SELECT run_id, energy_mj / 1e3 AS measured_j, energy_ns / 1e9 AS wall_s,
        energy_idle_mw / 1e3 AS idle_w FROM run WHERE energy_ns > 0) JOIN v_run USING(run_id))
  LEFT JOIN v_load USING(run_id);

CREATE TEMP VIEW v_phase_time AS
  SELECT run_id, me.name AS method, p.name AS phase, p.core, sum(kernels) AS kernels,
    sum(gpu_ns) / 1e6 AS ms,
    sum(gpu_ns) * 1.0 / nullif(sum(sum(gpu_ns)) OVER (PARTITION BY run_id), 0) AS share
  FROM iteration_phase JOIN phase p USING(phase_id) JOIN run USING(run_id)
    LEFT JOIN method me USING(method_id)
  GROUP BY run_id, phase_id;

-- By what layers attend to: 'full', 'window', 'linear', 'ssm' or 'none'.
CREATE TEMP VIEW v_layer_time AS
  SELECT run_id, me.name AS method, kind, count(DISTINCT layer) AS layers, p.name AS phase,
    sum(kernels) AS kernels, sum(gpu_ns) / 1e6 AS ms
  FROM layer_phase JOIN run_layer USING(run_id, layer) JOIN phase p USING(phase_id)
    JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  GROUP BY run_id, kind, phase_id;

-- Iterations by the source of their cost.  An iteration without entries has no cost.
CREATE TEMP VIEW v_cost_source AS
  SELECT run_id, cost_source, count(*) AS iterations,
    sum(end_ns - start_ns - host_ns) / 1e6 AS ms,
    count(*) * 1.0 / sum(count(*)) OVER (PARTITION BY run_id) AS share
  FROM iteration WHERE cost_source IS NOT NULL GROUP BY run_id, cost_source;

-- Can the load be sustained?  Replays of four times as many requests tell: a median of TTFT that is
-- higher in the last quarter than in the second, as the first starts with an empty engine.  Chance
-- alone makes that so in about half of them.  The limits stand in src/run/replicates.c as well.
CREATE TEMP VIEW v_steady AS
  WITH figure AS (
    SELECT r.run_id, me.name AS method, replays, unsteady, running, waiting, blocks,
      CASE WHEN requests > 1 AND last_ns < first_end_ns THEN 'closed batch'
        WHEN coalesce(replays, 0) < 20 THEN 'no replays'
        WHEN unsteady >= 0.95 * replays THEN 'backlogged'
        WHEN 3 * unsteady <= 2 * replays THEN 'steady' ELSE 'not known' END AS why, p.reason,
      printf('in %d of %d replays of four times as many requests, the last quarter waits longer'
        || ' than the second', unsteady, replays) AS found
    FROM (SELECT run_id, count(*) AS requests, max(arrival_ns) AS last_ns
        FROM request_outcome GROUP BY run_id) o
      JOIN run r USING(run_id) LEFT JOIN method me USING(method_id)
      LEFT JOIN (SELECT run_id, steady_replays AS replays, unsteady, reason FROM resampling) p
        USING(run_id)
      LEFT JOIN (SELECT run_id, max(iif(iter_no = 0, end_ns, NULL)) AS first_end_ns,
          sum(running * ns) / sum(ns) AS running, sum(waiting * ns) / sum(ns) AS waiting,
          sum(blocks_used * ns) / sum(ns) AS blocks
        FROM (SELECT *, max(end_ns - start_ns, 1) * 1.0 AS ns FROM iteration)
        GROUP BY run_id) USING(run_id))
  SELECT run_id, method, iif(why = 'no replays', 'not known', why) AS verdict,
    CASE why
      WHEN 'closed batch' THEN 'all requests arrive before the first iteration ends: latencies are'
        || ' of one batch'
      WHEN 'no replays' THEN coalesce(reason, iif(replays IS NULL, 'the run has no replicates',
        'too few longer replays were made: a closed loop has none, others take time'))
      WHEN 'backlogged' THEN found || ': latencies are of the backlog'
      WHEN 'not known' THEN found || '; it is known from 95 % on, or up to two thirds of them'
      ELSE found END AS reason,
    replays, unsteady, running, waiting, blocks
  FROM figure;

-- Passes of an engine: runs of one engine with the same options over the same requests.
CREATE TEMP VIEW v_pass AS
  SELECT run_id, min(run_id) OVER same AS first_id, count(*) OVER same AS passes
  FROM (SELECT run_id, backend, json_remove(options, '$.log') AS options, count(*) AS requests,
      total((req_no + 1) * prompt_tokens) AS prompts, total((req_no + 1) * output_tokens) AS outputs
    FROM run JOIN request_outcome USING(run_id) WHERE clock = 'engine' AND status = 'done'
    GROUP BY run_id)
  WINDOW same AS (PARTITION BY backend, options, requests, prompts, outputs);

-- The t value that leaves 2.5 % beyond it, by degrees of freedom; of more it is that of 30.
CREATE TEMP VIEW t_value AS
  SELECT column1 AS freedom, column2 AS t FROM (VALUES (1, 12.706), (2, 4.303), (3, 3.182),
    (4, 2.776), (5, 2.571), (6, 2.447), (7, 2.365), (8, 2.306), (9, 2.262), (10, 2.228),
    (11, 2.201), (12, 2.179), (13, 2.160), (14, 2.145), (15, 2.131), (16, 2.120), (17, 2.110),
    (18, 2.101), (19, 2.093), (20, 2.086), (21, 2.080), (22, 2.074), (23, 2.069), (24, 2.064),
    (25, 2.060), (26, 2.056), (27, 2.052), (28, 2.048), (29, 2.045), (30, 2.042));

-- The repeats of a run, itself among them.
CREATE TEMP VIEW v_repeat AS
  SELECT r.run_id, q.run_id AS repeat_id
  FROM run r JOIN run q ON q.run_id = r.run_id OR (q.command_utc_ns = r.command_utc_ns
    AND q.method_no = r.method_no AND q.repeat_no <> r.repeat_no AND q.trace_id = r.trace_id
    AND q.model_id IS r.model_id AND q.method_id IS r.method_id AND q.setup = r.setup
    AND q.status = 'done');

-- Intervals of 95 % from the replicates of a run and of its repeats, in ms.  Percentiles of n sorted
-- values by the linear rule: a value at place i has the weight max(0, 1 - |i - h|), h = (n - 1) p.
-- An engine has passes: the interval is where a further one lies, if logarithms are normal.
CREATE TEMP VIEW v_replicate_interval AS
  SELECT run_id, metric, percentile, lo / (1 + e) / 1e6 AS lo, hi * (1 + e) / 1e6 AS hi
  FROM (SELECT run_id, metric, percentile, max(e) + 1e-12 AS e,
      sum(x * max(0.0, 1 - abs(i - 0.025 * (n - 1)))) AS lo,
      sum(x * max(0.0, 1 - abs(i - 0.975 * (n - 1)))) AS hi
    FROM (SELECT run_id, metric, percentile, x, e,
        row_number() OVER (PARTITION BY run_id, metric, percentile ORDER BY x) - 1 AS i,
        count(*) OVER (PARTITION BY run_id, metric, percentile) AS n
      FROM (SELECT r.run_id, metric, column1 AS percentile, coalesce(cost_error, 0) AS e,
          CASE column1 WHEN 50 THEN p50 WHEN 90 THEN p90 ELSE p99 END AS x
        FROM v_repeat r JOIN resampling s ON s.run_id = repeat_id AND reason IS NULL
          JOIN replicate_latency l ON l.run_id = repeat_id
          JOIN (VALUES (50), (90), (99))))
    GROUP BY run_id, metric, percentile)
  UNION ALL
  SELECT run_id, metric, percentile, exp(mean - t * sqrt(square * (n + 1.0) / n / (n - 1))),
    exp(mean + t * sqrt(square * (n + 1.0) / n / (n - 1)))
  FROM (SELECT first_id, metric, percentile, count(x) AS n, avg(x) AS mean,
      max(sum(x * x) - sum(x) * avg(x), 0.0) AS square
    FROM (SELECT first_id, m.column1 AS metric, p.column1 AS percentile,
        (SELECT ln(CASE p.column1 WHEN 50 THEN p50 WHEN 90 THEN p90 ELSE p99 END)
          FROM v_latency l WHERE l.run_id = v_pass.run_id AND l.metric = m.column1) AS x
      FROM v_pass JOIN (VALUES ('ttft'), ('tpot'), ('itl'), ('e2e'), ('queue')) m
        JOIN (VALUES (50), (90), (99)) p WHERE passes > 2)
    GROUP BY first_id, metric, percentile HAVING n > 2)
    JOIN t_value ON freedom = min(n - 1, 30) JOIN v_pass USING(first_id);

-- Percentiles of latency in ms with their intervals.  A figure outside of its own interval has none.
CREATE TEMP VIEW v_interval AS
  SELECT f.run_id, f.metric, f.percentile, x, iif(x BETWEEN lo AND hi, lo, NULL) AS lo,
    iif(x BETWEEN lo AND hi, hi, NULL) AS hi,
    CASE WHEN x BETWEEN lo AND hi THEN NULL
      WHEN s.reason IS NOT NULL THEN s.reason
      WHEN s.run_id IS NULL THEN coalesce((SELECT 'the engine has fewer than 3 passes' FROM v_pass p
        WHERE p.run_id = f.run_id AND passes < 3), 'the run has no replicates')
      ELSE 'it lies outside of what resamples of the requests give: their bursts are longer than'
        || ' the trace can tell' END AS reason
  FROM (SELECT run_id, metric, column1 AS percentile,
      CASE column1 WHEN 50 THEN p50 WHEN 90 THEN p90 ELSE p99 END AS x
    FROM v_latency JOIN (VALUES (50), (90), (99))) f
    LEFT JOIN v_replicate_interval i USING(run_id, metric, percentile)
    LEFT JOIN resampling s ON s.run_id = f.run_id;

-- A run and its dense baseline, if both are done.
CREATE TEMP VIEW v_pair AS
  SELECT r.run_id, b.run_id AS base_id FROM run r JOIN run b ON b.run_id = r.baseline_run_id
  WHERE r.status = 'done' AND b.status = 'done';
CREATE TEMP VIEW v_vs_dense AS
  WITH l AS MATERIALIZED (SELECT * FROM v_latency)
  SELECT p.run_id, p.base_id, a.method, a.metric, a.n, b.n AS dense_n,
    a.mean, b.mean AS dense_mean, b.mean / nullif(a.mean, 0) AS speedup_mean,
    a.p50, b.p50 AS dense_p50, b.p50 / nullif(a.p50, 0) AS speedup_p50,
    a.p90, b.p90 AS dense_p90, b.p90 / nullif(a.p90, 0) AS speedup_p90,
    a.p99, b.p99 AS dense_p99, b.p99 / nullif(a.p99, 0) AS speedup_p99
  FROM v_pair p JOIN l a ON a.run_id = p.run_id
    JOIN l b ON b.run_id = p.base_id AND b.metric = a.metric;
-- Speed-ups of percentiles over the baseline's, baseline / this, replicate by replicate.  Runs of the
-- same requests have the same resamples; those of others are independent.  e: the relative error.
CREATE TEMP VIEW v_replicate_ratio AS
  SELECT * FROM (SELECT p.run_id, p.base_id, a.metric, column1 AS percentile,
      CASE column1 WHEN 50 THEN b.p50 / nullif(a.p50, 0) WHEN 90 THEN b.p90 / nullif(a.p90, 0)
        ELSE b.p99 / nullif(a.p99, 0) END AS x,
      (1 + coalesce(s.cost_error, 0)) * (1 + coalesce(t.cost_error, 0)) - 1 AS e
    FROM v_pair p JOIN v_repeat r ON r.run_id = p.run_id JOIN v_repeat q ON q.run_id = p.base_id
      JOIN run x ON x.run_id = r.repeat_id
      JOIN run y ON y.run_id = q.repeat_id AND (y.repeat_no IS x.repeat_no
        OR (r.repeat_id = p.run_id AND q.repeat_id = p.base_id))
      JOIN resampling s ON s.run_id = r.repeat_id AND s.reason IS NULL
      JOIN resampling t ON t.run_id = q.repeat_id AND t.reason IS NULL
      JOIN replicate_latency a ON a.run_id = r.repeat_id
      JOIN replicate_latency b ON b.run_id = q.repeat_id AND b.metric = a.metric
        AND b.replicate_no = a.replicate_no
      JOIN (VALUES (50), (90), (99)))
  WHERE x IS NOT NULL;
CREATE TEMP VIEW v_replicate_speedup AS
  SELECT run_id, base_id, metric, percentile, lo / (1 + e) AS lo, hi * (1 + e) AS hi
  FROM (SELECT run_id, base_id, metric, percentile, max(e) + 1e-12 AS e,
      sum(x * max(0.0, 1 - abs(i - 0.025 * (n - 1)))) AS lo,
      sum(x * max(0.0, 1 - abs(i - 0.975 * (n - 1)))) AS hi
    FROM (SELECT run_id, base_id, metric, percentile, x, e,
        row_number() OVER (PARTITION BY run_id, base_id, metric, percentile ORDER BY x) - 1 AS i,
        count(*) OVER (PARTITION BY run_id, base_id, metric, percentile) AS n
      FROM v_replicate_ratio)
    GROUP BY run_id, base_id, metric, percentile);
CREATE TEMP VIEW v_speedup AS
  WITH l AS MATERIALIZED (SELECT * FROM v_latency)
  SELECT f.run_id, f.base_id AS baseline_run_id, f.metric, f.percentile, speedup,
    iif(speedup BETWEEN lo AND hi, lo, NULL) AS lo, iif(speedup BETWEEN lo AND hi, hi, NULL) AS hi,
    CASE WHEN speedup BETWEEN lo AND hi THEN NULL
      WHEN coalesce(s.reason, t.reason) IS NOT NULL THEN coalesce(s.reason, t.reason)
      WHEN s.run_id IS NULL OR t.run_id IS NULL THEN 'the run or its baseline has no replicates'
      ELSE 'it lies outside of what resamples of the requests give: their bursts are longer than'
        || ' the trace can tell' END AS reason
  FROM (SELECT p.run_id, p.base_id, a.metric, column1 AS percentile,
      CASE column1 WHEN 50 THEN b.p50 / nullif(a.p50, 0) WHEN 90 THEN b.p90 / nullif(a.p90, 0)
        ELSE b.p99 / nullif(a.p99, 0) END AS speedup
    FROM v_pair p JOIN l a ON a.run_id = p.run_id
      JOIN l b ON b.run_id = p.base_id AND b.metric = a.metric JOIN (VALUES (50), (90), (99))) f
    LEFT JOIN v_replicate_speedup USING(run_id, base_id, metric, percentile)
    LEFT JOIN resampling s ON s.run_id = f.run_id LEFT JOIN resampling t ON t.run_id = f.base_id
  WHERE speedup IS NOT NULL;
CREATE TEMP VIEW v_paired AS
  SELECT p.run_id, p.base_id, o.req_no, o.prompt_tokens, o.output_tokens,
    o.ttft_ns / 1e6 AS ttft_ms, d.ttft_ns / 1e6 AS dense_ttft_ms,
    d.ttft_ns * 1.0 / nullif(o.ttft_ns, 0) AS ttft_speedup,
    o.tpot_ns / 1e6 AS tpot_ms, d.tpot_ns / 1e6 AS dense_tpot_ms,
    d.tpot_ns / nullif(o.tpot_ns, 0) AS tpot_speedup
  FROM v_pair p JOIN request_outcome o ON o.run_id = p.run_id AND o.outcome = 'ok'
    JOIN request_outcome d ON d.run_id = p.base_id AND d.req_no = o.req_no AND d.outcome = 'ok';

CREATE TEMP VIEW v_accuracy AS
  SELECT run_id, me.name AS method, half, layer, count(*) AS n, avg(rel_l2) AS rel_l2_mean,
    max(rel_l2) AS rel_l2_max, avg(cosine) AS cosine_mean, min(cosine) AS cosine_min,
    max(max_abs) AS max_abs, avg(mass_recall) AS recall_mean, min(mass_recall) AS recall_min
  FROM accuracy_sample JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  GROUP BY run_id, half, layer;

-- Ratios of summed counts, so that chunks weigh by their cost.
CREATE TEMP VIEW v_density AS
  SELECT run_id, me.name AS method, half, layer, count(*) AS n,
    sum(tiles_sel) * 1.0 / nullif(sum(tiles_total), 0) AS selected,
    sum(qunion_sel) * 1.0 / nullif(sum(qunion_total), 0) AS q_union,
    sum(sub_sel) * 1.0 / nullif(sum(sub_total), 0) AS sub_union,
    sum(kv_sel) * 1.0 / nullif(sum(kv_total), 0) AS kv_union,
    sum(group_sel) * 1.0 / nullif(sum(group_total), 0) AS group_union,
    sum(exec_sel) * 1.0 / nullif(sum(exec_total), 0) AS executed,
    sum(skip_sel) * 1.0 / nullif(sum(skip_total), 0) AS skipped
  FROM selection_stat JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  GROUP BY run_id, half, layer;

-- The share of the (query, key) pairs that a dropper leaves to the layers, of prompts and decodes: the
-- layer of each kind with the most has those that no layer of the kind would lack without a dropper.
CREATE TEMP VIEW v_kept AS
  SELECT run_id, coalesce(share,
    iif(EXISTS (SELECT 1 FROM iteration_drop d WHERE d.run_id = run.run_id), NULL, 1.0)) AS pairs
  FROM run LEFT JOIN (
    SELECT run_id, sum(n_pairs) * 1.0 / nullif(sum(most), 0) AS share
    FROM (SELECT run_id, n_pairs, max(n_pairs) OVER (PARTITION BY run_id, kind) AS most
      FROM run_layer)
    GROUP BY run_id) USING(run_id);

-- The share of the attention that was executed, of the sampled chunks, times what a dropper left in the
-- whole run; and of the sampled decodes, the share of the keys that they read.
CREATE TEMP VIEW v_executed AS
  SELECT run_id, pairs * share AS executed, executed_decode
  FROM v_kept JOIN (
    SELECT run_id, sum(exec_sel) FILTER (WHERE half = 'prefill') * 1.0
      / nullif(sum(exec_total) FILTER (WHERE half = 'prefill'), 0) AS share,
      sum(exec_sel) FILTER (WHERE half = 'decode') * 1.0
      / nullif(sum(exec_total) FILTER (WHERE half = 'decode'), 0) AS executed_decode
    FROM selection_stat GROUP BY run_id) USING(run_id);

-- Whether a method, or all methods of a plan, change nothing but decodes: dense prefill that skips nothing.
CREATE TEMP VIEW v_half AS
  SELECT run_id, iif(NOT is_dense AND json_extract(params, '$.drop') IS NULL AND prompts, 'decode', 'prefill')
    AS half
  FROM run LEFT JOIN (
    SELECT method_id, is_dense, params, min(json_extract(x, '$.select') = 'none'
      AND coalesce(json_extract(x, '$.skip.prefill'), 0) = 0
      AND coalesce(json_extract(x, '$.skip.threshold'), 0) = 0) AS prompts
    FROM (SELECT method_id, is_dense, params, coalesce(json_extract(j.value, '$.method'), params) AS x
      FROM method LEFT JOIN json_each(params, '$.plan') j)
    GROUP BY method_id) USING(method_id);

-- Requests of sessions that got all of their tokens.
CREATE TEMP VIEW v_turn AS
  SELECT run_id, me.name AS method, req_no, tree_no, session_no, turn, prompt_tokens,
    min(cached_tokens, prompt_tokens) AS cached_tokens, seen_tokens, output_tokens,
    arrival_ns / 1e6 AS arrival_ms, ttft_ns / 1e6 AS ttft_ms, e2e_ns / 1e6 AS turn_ms
  FROM request_turn JOIN request_outcome USING(run_id, req_no) JOIN run USING(run_id)
    LEFT JOIN method me USING(method_id)
  WHERE outcome = 'ok';

-- Sessions with all that they start.  busy_ms is the time of the requests of the session itself.
CREATE TEMP VIEW v_session AS
  SELECT run_id, method, tree_no, count(*) AS requests, count(*) = n AS finished,
    min(arrival_ms) AS start_ms, max(arrival_ms + turn_ms) AS end_ms,
    sum(iif(session_no = tree_no, turn_ms, 0)) AS busy_ms, sum(prompt_tokens) AS prompt_tokens,
    sum(cached_tokens) AS cached_tokens, sum(seen_tokens) AS seen_tokens
  FROM v_turn JOIN (SELECT run_id, tree_no, count(*) AS n FROM request_turn
    GROUP BY run_id, tree_no) USING(run_id, tree_no)
  GROUP BY run_id, tree_no;

-- Answers by task and length.  Log-probabilities and KL are means over a prompt's tokens, then over
-- the prompts; executed is that of v_executed, of the sampled chunks of these prompts.
CREATE TEMP VIEW v_eval AS
  SELECT run_id, me.name AS method, task, length, count(*) AS n, sum(exact) AS exact,
    avg(logprob / n_answer) AS logprob, avg(kl / n_answer) AS kl, max(rank_max) AS rank_max,
    pairs * sum(exec_sel) / nullif(sum(exec_total), 0) AS executed, avg(ttft_ns) / 1e6 AS ttft_ms
  FROM eval_prompt JOIN v_kept USING(run_id) JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
    LEFT JOIN request_outcome USING(run_id, req_no)
    LEFT JOIN (SELECT run_id, req_no, sum(exec_sel) AS exec_sel, sum(exec_total) AS exec_total
      FROM selection_stat JOIN v_half USING(run_id, half) GROUP BY run_id, req_no) USING(run_id, req_no)
  GROUP BY run_id, task, length;
CREATE TEMP VIEW v_eval_paired AS
  SELECT p.run_id, p.base_id, e.req_no, e.task, e.length, e.n_answer, e.exact,
    d.exact AS dense_exact, e.logprob / e.n_answer AS logprob,
    d.logprob / d.n_answer AS dense_logprob, (e.logprob - d.logprob) / e.n_answer AS diff,
    e.kl / e.n_answer AS kl
  FROM v_pair p JOIN eval_prompt e ON e.run_id = p.run_id
    JOIN eval_prompt d ON d.run_id = p.base_id AND d.req_no = e.req_no;

CREATE TEMP VIEW v_kernel AS
  SELECT i.run_id, i.iter_no, e.id, r.ts_base_ns + e.t_ns AS start_ns, e.dur_ns,
    n.value AS name, p.name AS phase, p.core, e.layer, e.device, e.stream, e.corr, s.*
  FROM iteration i JOIN kernel_event e ON e.id BETWEEN i.kernel_lo AND i.kernel_hi
    JOIN run r ON r.run_id = i.run_id JOIN kernel_shape s USING(shape_id)
    JOIN string_id n ON n.id = s.name_id LEFT JOIN phase p USING(phase_id);

-- CUPTI's clock against CUDA events around the same iteration.
CREATE TEMP VIEW v_clock AS
  SELECT run_id, iter_no, span_ns, busy_ns, event_ns,
    (event_ns - span_ns) * 1.0 / nullif(event_ns, 0) AS rel_diff
  FROM iteration WHERE span_ns IS NOT NULL AND event_ns IS NOT NULL;
