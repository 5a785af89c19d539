-- SPDX-License-Identifier: Apache-2.0
-- From which prompt length a method pays: at most twenty groups of requests of one length each, as many
-- requests in each, with the medians of their lengths and of their speed-ups at TTFT.
CREATE TEMP TABLE length_gain AS
  SELECT run_id, base_id, part, count(*) AS n, min(prompt_tokens) AS least,
    max(prompt_tokens) AS most, median(prompt_tokens) AS tokens, median(ttft_speedup) AS speedup
  FROM (
    SELECT run_id, base_id, prompt_tokens, ttft_speedup,
      ntile(max(1, min(20, n / 5))) OVER (PARTITION BY run_id ORDER BY prompt_tokens) AS part
    FROM (
      SELECT run_id, base_id, prompt_tokens, ttft_speedup,
        count(*) OVER (PARTITION BY run_id) AS n
      FROM v_paired JOIN run_label USING(run_id)
      WHERE ttft_speedup > 0 AND prompt_tokens > 0))
  GROUP BY run_id, base_id, part
