-- SPDX-License-Identifier: Apache-2.0
-- Runs with sessions that ended.  Ringed: no other run ends as many an hour and each as soon.
WITH point AS (
  SELECT run_id, percentile(iif(finished, end_ms - start_ms, NULL), 50) / 1e3 AS x,
    3600e3 * sum(finished) / (max(end_ms) - min(start_ms)) AS y
  FROM v_session
  WHERE :run IS NULL OR run_id IN (:run, :baseline)
  GROUP BY run_id
  HAVING sum(finished) > 0 AND max(end_ms) > min(start_ms))
SELECT l.label AS series, l.style, x, y,
  NOT EXISTS (SELECT 1 FROM point q WHERE q.x <= p.x AND q.y >= p.y
    AND (q.x < p.x OR q.y > p.y)) AS ring,
  printf('%s: %.4g sessions an hour, half of them end within %.4g s', l.label, y, x) AS title
FROM point p JOIN run_label l USING(run_id)
WHERE (SELECT count(*) FROM point) > 1
ORDER BY l.place
