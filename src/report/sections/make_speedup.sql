-- SPDX-License-Identifier: Apache-2.0
-- Speed-ups against the baseline, baseline / this, with an interval of 95 % or the reason why there is none.
CREATE TEMP TABLE speedup AS
  SELECT run_id, baseline_run_id AS base_id, metric, percentile, speedup, lo, hi, reason
  FROM v_speedup
  WHERE metric IN ('ttft', 'tpot') AND speedup > 0 AND run_id IN (SELECT run_id FROM run_label)
