-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, trace, model, policy, gpu, backend, capture
FROM v_run
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id
