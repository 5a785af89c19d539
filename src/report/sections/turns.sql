-- SPDX-License-Identifier: Apache-2.0
-- A request has two rows: one by the new tokens of its prompt, one by the cached ones.
SELECT run_id AS run, method, part, least || iif(most, ' to ' || most, ' and more') AS tokens,
  count(*) AS n, percentile(ttft_ms, 50) AS ttft_p50, percentile(ttft_ms, 90) AS ttft_p90,
  percentile(ttft_ms, 99) AS ttft_p99, percentile(turn_ms, 50) AS turn_p50,
  percentile(turn_ms, 90) AS turn_p90
FROM (
    SELECT run_id, method, 'new' AS part, prompt_tokens - cached_tokens AS x, ttft_ms, turn_ms
    FROM v_turn
    UNION ALL
    SELECT run_id, method, 'cached', cached_tokens, ttft_ms, turn_ms FROM v_turn)
  JOIN (SELECT column1 AS least, column2 AS most FROM (VALUES (0, 255), (256, 1023),
    (1024, 4095), (4096, 16383), (16384, 65535), (65536, 0))) ON x >= least AND (x <= most OR NOT most)
WHERE :run IS NULL OR run_id = :run
GROUP BY run_id, part, least
ORDER BY run_id, part DESC, least
