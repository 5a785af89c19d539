-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, name AS gpu, driver, sm_mhz, mem_mhz
FROM run JOIN gpu USING(gpu_id)
WHERE driver NOT NULL AND (:run IS NULL OR run_id = :run)
ORDER BY run_id
