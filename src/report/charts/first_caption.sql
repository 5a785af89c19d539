-- SPDX-License-Identifier: Apache-2.0
-- What the figures of the table are.
SELECT CASE WHEN max(clock = 'cpu') THEN 'Mechanics, by the clock of a CPU: baseline / this, and 95 % intervals'
  WHEN count(base_id) > 0 THEN 'Times faster than the baseline, and 95 % intervals'
  ELSE 'Figures; there is no baseline' END || iif(count(good_per_s) > 0, '; goodput is within '
  || (SELECT limits FROM limits), '') AS text
FROM verdict JOIN run USING(run_id)
