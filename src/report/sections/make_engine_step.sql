-- SPDX-License-Identifier: Apache-2.0
-- Iterations of the engine's passes beside those that are like them; p_ns: their mean over the draws of
-- the host, NULL if none is like them.
CREATE TEMP TABLE engine_step AS
  SELECT run, engine_run, pass, iter_no, kind, e_ns, avg(p_ns) AS p_ns, tokens, pairs, longest, requests,
    joins
  FROM engine_step_draw
  GROUP BY run, engine_run, pass, iter_no
