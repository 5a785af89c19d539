-- SPDX-License-Identifier: Apache-2.0
-- The options in which runs differ, among those that shape results; setup has them but for names.
-- An imported log has no setup.  A list of files tells nothing here, of a path the last part does.
CREATE TEMP TABLE run_option AS
WITH
  reported AS (
    SELECT * FROM run WHERE setup <> '{}' AND (:run IS NULL OR run_id = :run)),
  given AS (
    SELECT run_id, key, value FROM reported, json_each(setup)
    WHERE value NOT LIKE '[%'
    UNION ALL
    SELECT run_id, 'trace', name FROM reported JOIN trace USING(trace_id)
    UNION ALL
    SELECT run_id, 'model', name FROM reported JOIN model USING(model_id)
    UNION ALL
    SELECT run_id, 'policy', policy FROM reported
    UNION ALL
    SELECT run_id, 'backend', backend FROM reported)
SELECT run_id, key, iif(typeof(value) = 'text' AND value LIKE '%/%',
    replace(value, rtrim(value, replace(value, '/', '')), ''), value) AS value
FROM given
WHERE key IN (
  SELECT key FROM given
  GROUP BY key
  HAVING count(DISTINCT value) > 1 OR count(*) < (SELECT count(*) FROM reported))
