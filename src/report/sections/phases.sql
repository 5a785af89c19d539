-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, v.method, v.phase, iif(v.core, '*', '') AS core, kernels, ms,
  100 * share AS percent
FROM v_phase_time v JOIN phase p ON p.name = v.phase
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id, p.phase_id
