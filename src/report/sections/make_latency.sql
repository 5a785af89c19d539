-- SPDX-License-Identifier: Apache-2.0
-- The view sorts the times of all tokens, so several sections read this copy of it.
CREATE TEMP TABLE latency AS
  SELECT * FROM v_latency WHERE :run IS NULL OR run_id IN (:run, :baseline)
