-- SPDX-License-Identifier: Apache-2.0
-- The verdicts of v_steady, which two sections read.
CREATE TEMP TABLE steady AS
  SELECT * FROM v_steady WHERE :run IS NULL OR run_id = :run
