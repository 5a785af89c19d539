-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, trace, model, policy, gpu, backend,
  iif(fidelity IS NULL, capture, capture || '; fidelity ' || fidelity) AS capture
FROM v_run
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id
