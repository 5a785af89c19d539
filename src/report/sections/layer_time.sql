-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, kind, layers, phase, kernels, ms, ms / layers AS ms_of_a_layer
FROM v_layer_time JOIN v_run USING(run_id, method)
WHERE (:run IS NULL OR run_id = :run)
  AND EXISTS (SELECT 1 FROM run_layer x WHERE x.run_id = v_layer_time.run_id AND x.kind <> 'full')
ORDER BY run_id, kind, ms DESC
