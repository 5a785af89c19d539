-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, round(n_params / 1e9, 2) AS B_params, round(weight_bytes / 1e9, 2) AS weights_GB,
  round(block_bytes / 1e6, 3) AS block_MB, num_blocks AS blocks, pool_tokens AS tokens,
  round(gpu_bytes / 1e9, 2) AS gpu_GB, gpu_share AS share
FROM run
WHERE n_params NOT NULL AND (:run IS NULL OR run_id = :run)
ORDER BY run_id
