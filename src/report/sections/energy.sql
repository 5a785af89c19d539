-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, measured_j, wall_s, idle_w, above_idle_j, virtual_s, served_j,
  j_per_token, j_per_output_token
FROM v_energy
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id
