-- SPDX-License-Identifier: Apache-2.0
-- The first 80 requests of one run.
WITH request AS MATERIALIZED (
  SELECT *, (SELECT count(*) FROM request_outcome WHERE run_id = :each) AS n
  FROM request_outcome WHERE run_id = :each AND req_no < 80)
SELECT printf('the first %d of %d requests', min(n, 80), n) AS panel,
  printf('%09d', req_no) AS row, series, 'span' AS geom, style, hatch, x_lo, x_hi,
  printf('request %d: %s %.4g ms, %d prompt and %d output tokens', req_no, series,
    1000 * (x_hi - x_lo), prompt_tokens, output_tokens) AS title
FROM (
  SELECT req_no, n, prompt_tokens, output_tokens, column1 AS series, column2 AS style,
    column2 = 18 AS hatch,
    CASE column2 WHEN -1 THEN arrival_ns WHEN 18 THEN first_sched_ns ELSE first_token_ns END / 1e9
      AS x_lo,
    CASE column2 WHEN -1 THEN first_sched_ns WHEN 18 THEN first_token_ns ELSE finish_ns END / 1e9
      AS x_hi
  FROM request JOIN (VALUES ('queue', -1), ('prefill', 18), ('decode', 19)))
WHERE x_lo IS NOT NULL AND x_hi IS NOT NULL
ORDER BY req_no, x_lo
