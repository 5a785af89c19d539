-- SPDX-License-Identifier: Apache-2.0
-- How titles name the baseline: one run by its label, runs of one method by its name.
CREATE TEMP TABLE baseline_name AS
  SELECT CASE WHEN count(DISTINCT base_id) = 1 THEN max(b.label)
    WHEN count(DISTINCT b.method) = 1 THEN max(b.method) ELSE 'the baseline' END AS name
  FROM v_pair p JOIN run_label USING(run_id) JOIN run_label b ON b.run_id = base_id
