-- SPDX-License-Identifier: Apache-2.0
-- The kinds are those that engines run in different ways: vLLM has a CUDA graph of whole decodes,
-- graphs between the attention calls of small batches, and launches the kernels of others one by one.
-- Numbers and tokens are means over the passes and over the repeats; times are of all of theirs.
WITH side AS (
    SELECT DISTINCT first_id, first_engine, 0 AS engine, run_id FROM engine_pair
    UNION ALL
    SELECT DISTINCT first_id, first_engine, 1, engine_id FROM engine_pair),
  step AS MATERIALIZED (
    SELECT first_id, first_engine, engine, CASE WHEN prefill_tokens = 0 THEN 'decodes'
        WHEN prefill_tokens + decode_tokens <= 512 THEN 'prompts, at most 512 tokens'
        ELSE 'prompts, more tokens' END AS kind,
      count(*) AS n, sum(prefill_tokens + decode_tokens) AS tokens,
      avg(end_ns - start_ns) / 1e6 AS mean, median((end_ns - start_ns) / 1e6) AS p50,
      percentile((end_ns - start_ns) / 1e6, 90) AS p90
    FROM side JOIN iteration USING(run_id)
    WHERE batch_size > 0
    GROUP BY first_id, first_engine, engine, kind),
  runs AS (
    SELECT first_id, first_engine, count(*) FILTER (WHERE engine) AS passes,
      count(*) FILTER (WHERE NOT engine) AS draws
    FROM side
    GROUP BY first_id, first_engine)
SELECT runs.first_id AS run, runs.first_engine AS engine_run, column1 AS iterations_of,
  CAST(round(1.0 * e.n / passes) AS INTEGER) AS engine_n, CAST(round(1.0 * p.n / draws) AS INTEGER) AS n,
  CAST(round(1.0 * e.tokens / passes) AS INTEGER) AS engine_tokens,
  CAST(round(1.0 * p.tokens / draws) AS INTEGER) AS tokens, e.mean AS engine_mean, p.mean,
  e.p50 AS engine_p50, p.p50, e.p90 AS engine_p90, p.p90
FROM runs
  JOIN (VALUES ('decodes'), ('prompts, at most 512 tokens'), ('prompts, more tokens'))
  JOIN step e ON e.first_id = runs.first_id AND e.first_engine = runs.first_engine AND e.engine
    AND e.kind = column1
  LEFT JOIN step p ON p.first_id = runs.first_id AND p.first_engine = runs.first_engine AND NOT p.engine
    AND p.kind = column1
ORDER BY run, engine_run, column1
