-- SPDX-License-Identifier: Apache-2.0
-- The table of the first screen; its cells are in charts/first.sql.
SELECT run_id AS run, method, ttft_x AS ttft_p50, ttft_x_lo AS ttft_p50_lo, ttft_x_hi AS ttft_p50_hi,
  ttft99_x AS ttft_p99, ttft99_x_lo AS ttft_p99_lo, ttft99_x_hi AS ttft_p99_hi,
  tpot_x AS tpot_p50, tpot_x_lo AS tpot_p50_lo, tpot_x_hi AS tpot_p50_hi,
  good_per_s AS goodput, 100 * error AS error, 100 * error_lo AS error_lo, 100 * error_hi AS error_hi,
  100.0 * answers / prompts AS answers,
  iif(half = 'decode', executed_decode, executed) AS executed,
  (SELECT group_concat(mark, '') FROM (SELECT DISTINCT mark FROM assumption a
    WHERE a.run_id = verdict.run_id ORDER BY mark)) AS marks
FROM verdict
ORDER BY place
