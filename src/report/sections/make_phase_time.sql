-- SPDX-License-Identifier: Apache-2.0
-- Times of phases, as v_phase_time has them, for all sections and charts.  One pass makes them,
-- without the sort of that view's GROUP BY.
CREATE TEMP TABLE phase_time AS
  SELECT run_id, me.name AS method, p.name AS phase, p.phase_id AS place, p.core,
    json_extract(j.value, '$[1]') AS kernels, json_extract(j.value, '$[2]') / 1e6 AS ms
  FROM (
    SELECT run_id, sums(phase_id, kernels, gpu_ns) AS of_phase
    FROM iteration_phase
    WHERE :run IS NULL OR run_id IN (:run, :baseline)
    GROUP BY run_id)
    JOIN json_each(of_phase) j JOIN phase p ON p.phase_id = json_extract(j.value, '$[0]')
    JOIN run USING(run_id) LEFT JOIN method me USING(method_id)
  ORDER BY run_id, place
