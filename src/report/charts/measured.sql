-- SPDX-License-Identifier: Apache-2.0
SELECT ltrim(runs(run_id), 'runs ') AS run, what, value
FROM (
  SELECT run_id, column1 AS place, column2 AS what, CASE column1
    WHEN -1 THEN (SELECT printf('run %d of %s', run, path) FROM source_run s
      WHERE s.run_id = r.run_id)
    WHEN 0 THEN cmdline
    WHEN 1 THEN t.name || iif(t.sha256 = '', '', ', SHA-256 ' || t.sha256) || ', format ' || t.format
    WHEN 2 THEN (SELECT value FROM run_param p WHERE p.run_id = r.run_id AND key = 'capture')
    WHEN 3 THEN m.params
    WHEN 4 THEN g.name || iif(sm_count > 0, printf(', compute capability %d.%d, %d multiprocessors,'
      || ' %.1f GB', cc_major, cc_minor, sm_count, mem_bytes / 1e9), '')
    WHEN 5 THEN clock || iif(r.cupti_api IS NULL, '', ', CUPTI ' || r.cupti_api)
    WHEN 6 THEN r.version || ', database version '
      || (SELECT max(version) FROM schema_log)
    WHEN 7 THEN strftime('%Y-%m-%dT%H:%M:%SZ', started_utc_ns / 1000000000, 'unixepoch')
    END AS value
  FROM run r JOIN run_label USING(run_id) JOIN trace t USING(trace_id)
    LEFT JOIN method m USING(method_id) LEFT JOIN gpu g USING(gpu_id)
    JOIN (VALUES (-1, 'from'), (0, 'command'), (1, 'trace'), (2, 'capture'), (3, 'parameters of the method'),
      (4, 'device'), (5, 'clock'), (6, 'version'), (7, 'started')))
WHERE value IS NOT NULL
GROUP BY place, what, value
ORDER BY place, min(run_id)
