-- SPDX-License-Identifier: Apache-2.0
-- The runs of the report with the names and styles that they have in all charts.  Dense runs are
-- grey, runs of one method have one colour; their names say in which options they differ: style is a colour, and 16 times the number of earlier
-- runs that have it.
CREATE TEMP TABLE run_label AS
  WITH named AS (
    SELECT run_id, coalesce(me.name, r.backend, 'run') AS name, coalesce(me.is_dense, 0) AS is_dense
    FROM run r LEFT JOIN method me USING(method_id)
    WHERE :run IS NULL OR run_id IN (:run, :baseline)),
  placed AS (
    SELECT run_id, name, is_dense, count(*) OVER (PARTITION BY name) AS n,
      row_number() OVER (PARTITION BY name ORDER BY run_id) - 1 AS earlier,
      dense_rank() OVER (PARTITION BY is_dense ORDER BY name) - 1 AS place
    FROM named)
  SELECT run_id, name AS method, is_dense,
    name || iif(n > 1, printf(' (run %d%s)', run_id,
      (SELECT group_concat(', ' || key || ' ' || value, '') FROM run_option o
        WHERE o.run_id = placed.run_id)), '') AS label,
    iif(is_dense, 0, 1 + place % 8) + 16 * (earlier + place / 8) AS style
  FROM placed
