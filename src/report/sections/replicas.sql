-- SPDX-License-Identifier: Apache-2.0
-- busy_percent: of the time from the first iteration of the run to the end of the last one.  A request
-- whose prefill and decodes are apart counts in both replicas: its prompt and first token in the one, all
-- other tokens in the other.  kv: from its first token to the end of the transfer.
WITH step AS (
  SELECT run_id, replica, count(*) AS iterations, sum(end_ns - start_ns) AS busy_ns
  FROM iteration
  WHERE replica IS NOT NULL AND (:run IS NULL OR run_id = :run)
  GROUP BY run_id, replica),
span AS (
  SELECT run_id, max(end_ns) - min(start_ns) AS ns FROM iteration_sum GROUP BY run_id),
part AS (
  SELECT run_id, coalesce(prefill_replica, replica) AS replica, outcome, prompt_tokens, cached_tokens,
    iif(prefill_replica IS NULL, output_tokens, 1) AS output_tokens, ttft_ns,
    iif(prefill_replica IS NULL, tpot_ns, NULL) AS tpot_ns, NULL AS kv_ns
  FROM request_outcome
  UNION ALL
  SELECT run_id, replica, outcome, NULL, NULL, output_tokens - 1, NULL, tpot_ns, kv_end_ns - first_token_ns
  FROM request_outcome WHERE prefill_replica IS NOT NULL)
SELECT o.run_id AS run, o.replica, count(*) AS requests, sum(outcome = 'ok') AS ok,
  sum(o.prompt_tokens) AS prompt_tokens, sum(o.output_tokens) AS output_tokens, iterations,
  100.0 * busy_ns / nullif(ns, 0) AS busy_percent,
  100.0 * sum(o.cached_tokens) / sum(o.prompt_tokens) AS hit_percent,
  percentile(ttft_ns / 1e6, 50) AS ttft_p50, percentile(ttft_ns / 1e6, 99) AS ttft_p99,
  percentile(kv_ns / 1e6, 50) AS kv_p50, percentile(kv_ns / 1e6, 99) AS kv_p99,
  percentile(tpot_ns / 1e6, 50) AS tpot_p50, percentile(tpot_ns / 1e6, 99) AS tpot_p99
FROM part o LEFT JOIN step s ON s.run_id = o.run_id AND s.replica = o.replica
  LEFT JOIN span ON span.run_id = o.run_id
WHERE o.replica IS NOT NULL AND (:run IS NULL OR o.run_id = :run)
GROUP BY o.run_id, o.replica
ORDER BY o.run_id, o.replica
