-- SPDX-License-Identifier: Apache-2.0
-- The runs of the report with the names and styles that they have in all charts, in the order of the
-- options in which they differ (place).  Dense runs are grey.  A method has the same colour on every
-- page: a new one is appended here.  All others share one.  With dense prefill a method has that of its
-- first part, if a method has the name of the part.  Parameters are left out of
-- a name that tells its method without them.  A method's runs have names that say in which options they
-- differ, and the run's number if that does not tell them apart.
CREATE TEMP TABLE run_label AS
  WITH full AS (
    SELECT run_id, coalesce(me.name, r.backend, 'run') AS method, coalesce(me.is_dense, 0) AS is_dense,
      (SELECT group_concat(key || ' ' || value, ', ') FROM (SELECT key, value FROM run_option o
        WHERE o.run_id = r.run_id ORDER BY key)) AS setting,
      (SELECT group_concat(iif(typeof(value) IN ('integer', 'real'), printf('%030.6f', value), value))
        FROM (SELECT value FROM run_option o WHERE o.run_id = r.run_id ORDER BY key)) AS setting_order
    FROM run r LEFT JOIN method me USING(method_id)
    WHERE :run IS NULL OR run_id IN (:run, :baseline)),
  -- Parts after prefill's, from the first on, and the method before them.
  cut AS (
    SELECT *, substr(method, 1, at - 1) AS prefill, substr(method, at) AS parts
    FROM (SELECT *, (SELECT min(iif(instr(method, column1), instr(method, column1), length(method) + 1))
        FROM (VALUES ('/evict='), ('/decode='), ('/prune='), ('/skip='))) AS at FROM full)),
  short AS (
    SELECT *, iif(method GLOB '[a-z]*', substr(prefill, 1, instr(replace(prefill, '@', ':') || ':', ':') - 1)
      || parts, method) AS base,
      substr(first, 1, instr(replace(replace(replace(first, '@', ':'), ',', ':'), '/', ':') || ':', ':') - 1)
        AS name_of
    FROM (SELECT *, iif(prefill = 'dense' AND parts <> '', substr(parts, instr(parts, '=') + 1), prefill) AS first
      FROM cut)),
  named AS (
    SELECT *, iif((SELECT count(DISTINCT method) FROM short s WHERE s.base = short.base) = 1, base, method)
      AS name
    FROM short),
  coloured AS (
    SELECT *, CASE WHEN is_dense THEN 0 ELSE coalesce(
      (SELECT column2 FROM (VALUES ('compact-fp', 1), ('flashprefill', 2), ('xattention', 3),
        ('bfla', 4), ('quoka', 5), ('minference', 6), ('flexprefill', 7), ('compact-fp-copy', 8),
        ('union-bs', 9), ('ashape', 10), ('proxyattn', 11), ('seer', 12), ('compact-sa', 13),
        ('trishape', 14), ('quest', 37), ('streaming', 38), ('duo', 39), ('snapkv', 40),
        ('rocketkv', 41), ('skip-softmax', 42), ('twilight-quest', 43),
        ('tidal', 44)) WHERE column1 = name_of),
      15) END AS colour
    FROM named),
  counted AS (
    SELECT *, count(*) OVER (PARTITION BY name) AS n,
      count(*) OVER (PARTITION BY name, setting) AS alike,
      row_number() OVER (PARTITION BY colour ORDER BY setting_order, run_id) - 1 AS earlier,
      row_number() OVER (ORDER BY setting_order, is_dense DESC, run_id) AS place
    FROM coloured)
  SELECT run_id, method, is_dense, place,
    name || CASE WHEN n = 1 THEN '' WHEN setting IS NULL THEN printf(' (run %d)', run_id)
      WHEN alike = 1 THEN printf(' (%s)', setting) ELSE printf(' (run %d, %s)', run_id, setting) END
      AS label,
    colour + 48 * earlier AS style
  FROM counted
