-- SPDX-License-Identifier: Apache-2.0
-- Iterations of replays and engines of engine_pair, with their times from end to end, ns: since the one
-- before has ended, or since their start after a pause of a millisecond or more.
--
-- With asynchronous scheduling (is_late) an iteration ends with the next round of the host, which
-- launches that and then waits for this.  A log has these rounds.  Those of a replay follow from the
-- host's times, as in host_run(): round = max(round before + own, end of the GPU before) + update.  So a
-- round less the sum of all times of the host to it is a running maximum.  The time to admit requests is
-- not stored, and left out.  next: how the next is launched.
CREATE TEMP TABLE engine_iteration AS
WITH timed AS (
    SELECT run_id, replica, iter_no, start_ns, end_ns, clock = 'engine' AS is_engine,
      coalesce(json_extract(options, '$."async-scheduling"'), 0) AS is_late,
      coalesce(host_schedule_ns + host_prepare_ns + host_launch_ns, 0) AS own_ns,
      coalesce(host_update_ns, 0) AS update_ns, batch_size, prefill_tokens, decode_tokens, prefill_pairs,
      decode_context, longest_decode,
      start_ns - lag(end_ns) OVER run < 1000000 AS follows, lag(end_ns) OVER run AS end_before,
      lag(coalesce(host_update_ns, 0)) OVER run AS update_before
    FROM iteration JOIN run USING(run_id)
    WHERE run_id IN (SELECT run_id FROM engine_pair UNION SELECT engine_id FROM engine_pair)
    WINDOW run AS (PARTITION BY run_id, replica ORDER BY iter_no)),
  summed AS (
    SELECT *, sum(own_ns + iif(follows, update_before, 0)) OVER (PARTITION BY run_id, replica
        ORDER BY iter_no) AS all_ns
    FROM timed),
  rounds AS (
    SELECT *, iif(is_engine, end_ns, all_ns + max(iif(follows, end_before + update_before,
        start_ns + own_ns) - all_ns) OVER (PARTITION BY run_id, replica ORDER BY iter_no)) AS round_ns
    FROM summed),
  ended AS (
    SELECT *, iif(is_late, iif(lead(follows) OVER run, lead(round_ns) OVER run,
        iif(is_engine, NULL, end_ns + update_ns)), end_ns) AS done_ns,
      iif(NOT is_late OR NOT lead(follows) OVER run, 0, CASE WHEN lead(prefill_tokens) OVER run = 0 THEN 1
        WHEN lead(prefill_tokens + decode_tokens) OVER run <= 512 THEN 2 ELSE 3 END) AS next
    FROM rounds
    WINDOW run AS (PARTITION BY run_id, replica ORDER BY iter_no)),
  counted AS (
    SELECT *, lag(done_ns) OVER (PARTITION BY run_id, replica ORDER BY iter_no) AS before_ns
    FROM ended
    WHERE batch_size > 0)
SELECT run_id, iter_no, is_late, start_ns, next, batch_size, prefill_tokens, decode_tokens, prefill_pairs,
  decode_context, longest_decode, done_ns - iif(start_ns - before_ns < 1000000, before_ns, start_ns) AS ns
FROM counted
WHERE done_ns IS NOT NULL
