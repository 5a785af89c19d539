-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, group_no, kind, window, k.n_layers, k.block_tokens, block_bytes,
  peak_blocks, peak_blocks * block_bytes / 1e6 AS peak_mb
FROM kv_group k JOIN v_run USING(run_id)
WHERE :run IS NULL OR run_id = :run
ORDER BY run_id, group_no
