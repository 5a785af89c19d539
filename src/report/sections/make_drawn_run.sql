-- SPDX-License-Identifier: Apache-2.0
-- Runs whose host's times are drawn, as far as options tell: a host without a spread is among them.
CREATE TEMP TABLE drawn_run AS
  SELECT run_id
  FROM run JOIN run_param h USING(run_id) JOIN run_param s USING(run_id)
  WHERE clock <> 'engine' AND h.key = 'host' AND h.value <> 'none' AND s.key = 'host-seed' AND s.value > 0
    AND EXISTS (SELECT 1 FROM iteration i WHERE i.run_id = run.run_id AND host_launch_ns > 0)
