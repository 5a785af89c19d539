-- SPDX-License-Identifier: Apache-2.0
-- Pairs of an engine's run and a dense replay of the same requests: as many, and no two that both
-- ended have different lengths.  first_id: the first of the replay's repeats; first_engine: the first
-- of the engine's passes.
CREATE TEMP TABLE engine_pair AS
  SELECT p.run_id, e.run_id AS engine_id,
    min(p.run_id) OVER (PARTITION BY e.run_id, coalesce(p.command_utc_ns, -p.run_id), p.method_no)
      AS first_id,
    min(e.run_id) OVER (PARTITION BY p.run_id, pass.first_id) AS first_engine
  FROM run e JOIN v_pass pass USING(run_id) JOIN run p ON p.clock <> 'engine'
    LEFT JOIN method me ON me.method_id = p.method_id
    JOIN trace te ON te.trace_id = e.trace_id JOIN trace tp ON tp.trace_id = p.trace_id
  WHERE p.status = 'done'
    AND (:run IS NULL OR :run IN (e.run_id, p.run_id))
    AND coalesce(me.is_dense, 1) AND te.n_requests = tp.n_requests
    AND coalesce((
      SELECT min(a.prompt_tokens = b.prompt_tokens AND a.output_tokens = b.output_tokens)
      FROM request_outcome a JOIN request_outcome b ON b.run_id = p.run_id AND b.req_no = a.req_no
      WHERE a.run_id = e.run_id AND a.outcome = 'ok' AND b.outcome = 'ok'), 0)
