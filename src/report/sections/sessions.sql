-- SPDX-License-Identifier: Apache-2.0
-- busy: the sessions' own time, without that of the sessions that they start.
SELECT s.run_id AS run, s.method, count(*) AS sessions, sum(finished) AS finished,
  3600e3 * sum(finished) / nullif(max(end_ms) - min(start_ms), 0) AS per_hour,
  percentile(iif(finished, end_ms - start_ms, NULL), 50) / 1e3 AS time_p50,
  percentile(iif(finished, end_ms - start_ms, NULL), 90) / 1e3 AS time_p90,
  100.0 * (1 - sum(busy_ms) / nullif(sum(end_ms - start_ms), 0)) AS think_percent,
  100.0 * sum(cached_tokens) / sum(prompt_tokens) AS hit_percent,
  100.0 * sum(seen_tokens) / sum(prompt_tokens) AS ideal_percent
FROM v_session s
WHERE :run IS NULL OR s.run_id = :run
GROUP BY s.run_id
ORDER BY s.run_id
