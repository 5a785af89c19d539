-- SPDX-License-Identifier: Apache-2.0
-- Iterations of each pass of an engine, each beside the one of each repeat of the replay (draw) that is
-- most like it; p_ns: its time, NULL if none is like it.  Alike are those of as many prompt tokens and
-- decodes, whose keys differ by 5 % at most, and where iterations are planned ahead also the next.  Where
-- a log does not tell requests, and so no keys, the nearest in time is taken.
CREATE TEMP TABLE engine_step_draw AS
WITH side AS (
    SELECT first_id, first_engine, draw, i.*, i.run_id = draw AS is_run,
      iif(is_keyed, prefill_pairs + decode_context, start_ns) AS at
    FROM (
      SELECT first_id, first_engine, p.run_id AS draw, sum(prefill_pairs) > 0 AS is_keyed
      FROM (SELECT DISTINCT first_id, first_engine, run_id FROM engine_pair) p
        JOIN engine_iteration i ON i.run_id = first_engine
      GROUP BY first_id, first_engine, draw) d
      JOIN engine_iteration i ON i.run_id = draw OR i.run_id IN (SELECT engine_id FROM engine_pair e
        WHERE e.run_id = draw AND e.first_engine = d.first_engine)),
  placed AS MATERIALIZED (
    SELECT *, sum(is_run) OVER (PARTITION BY draw, first_engine, prefill_tokens, decode_tokens, next
      ORDER BY at, is_run DESC ROWS UNBOUNDED PRECEDING) AS place
    FROM side),
  near AS (
    SELECT e.*, iif(a.at IS NULL OR e.at - b.at <= a.at - e.at, b.at, a.at) AS near_at,
      iif(a.at IS NULL OR e.at - b.at <= a.at - e.at, b.ns, a.ns) AS near_ns
    FROM placed e
      LEFT JOIN placed b ON b.is_run AND b.is_late = e.is_late AND b.draw = e.draw AND b.first_engine = e.first_engine
        AND b.prefill_tokens = e.prefill_tokens AND b.decode_tokens = e.decode_tokens
        AND b.next = e.next AND b.place = e.place
      LEFT JOIN placed a ON a.is_run AND a.is_late = e.is_late AND a.draw = e.draw AND a.first_engine = e.first_engine
        AND a.prefill_tokens = e.prefill_tokens AND a.decode_tokens = e.decode_tokens
        AND a.next = e.next AND a.place = e.place + 1
    WHERE NOT e.is_run)
SELECT first_id AS run, first_engine AS engine_run, draw, n.run_id AS pass, n.iter_no,
  CASE WHEN prefill_tokens = 0 THEN 'decodes'
    WHEN decode_tokens = 0 THEN CASE WHEN prefill_tokens <= 512 THEN 'prompts, to 512 tokens'
      WHEN prefill_tokens <= 2048 THEN 'prompts, to 2048 tokens' ELSE 'prompts, more tokens' END
    WHEN decode_context = 0 THEN 'mixed, keys not known'
    WHEN longest_decode <= 4096 THEN 'mixed, decodes to 4096 keys'
    WHEN longest_decode <= 16384 THEN 'mixed, decodes to 16384 keys'
    ELSE 'mixed, longer decodes' END AS kind,
  ns AS e_ns, iif(prefill_pairs + decode_context = 0
    OR abs(near_at - at) <= 0.05 * (prefill_pairs + decode_context), near_ns, NULL) AS p_ns,
  prefill_tokens + decode_tokens AS tokens,
  nullif(prefill_pairs + decode_context, 0) AS pairs,
  iif(decode_tokens > 0 AND decode_context = 0, NULL, longest_decode) AS longest,
  batch_size AS requests,
  iif(prefill_pairs + decode_context = 0, NULL, coalesce(joins, 0)) AS joins
FROM near n
  LEFT JOIN (SELECT run_id, first_sched_ns, count(*) AS joins FROM request_outcome GROUP BY run_id,
    first_sched_ns) j ON j.run_id = n.run_id AND j.first_sched_ns = start_ns
