-- SPDX-License-Identifier: Apache-2.0
-- The kinds are those that engines run in different ways: vLLM has a CUDA graph of whole decodes,
-- graphs between the attention calls of small batches, and launches the kernels of others one by one.
-- Of repeats and passes the first stands for all.
WITH step AS MATERIALIZED (
  SELECT run_id, CASE WHEN prefill_tokens = 0 THEN 'decodes'
      WHEN prefill_tokens + decode_tokens <= 512 THEN 'prompts, at most 512 tokens'
      ELSE 'prompts, more tokens' END AS kind,
    count(*) AS n, sum(prefill_tokens + decode_tokens) AS tokens,
    avg(end_ns - start_ns) / 1e6 AS mean, median((end_ns - start_ns) / 1e6) AS p50,
    percentile((end_ns - start_ns) / 1e6, 90) AS p90
  FROM iteration
  WHERE batch_size > 0
    AND run_id IN (SELECT first_id FROM engine_pair UNION SELECT engine_id FROM engine_pair)
  GROUP BY run_id, kind)
SELECT x.run_id AS run, engine_id AS engine_run, column1 AS iterations_of, e.n AS engine_n, p.n,
  e.tokens AS engine_tokens, p.tokens, e.mean AS engine_mean, p.mean, e.p50 AS engine_p50, p.p50,
  e.p90 AS engine_p90, p.p90
FROM engine_pair x
  JOIN (VALUES ('decodes'), ('prompts, at most 512 tokens'), ('prompts, more tokens'))
  LEFT JOIN step e ON e.run_id = engine_id AND e.kind = column1
  LEFT JOIN step p ON p.run_id = x.run_id AND p.kind = column1
WHERE e.n IS NOT NULL AND x.run_id = x.first_id AND engine_id = first_engine
ORDER BY run, engine_run, column1
