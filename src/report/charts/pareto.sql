-- SPDX-License-Identifier: Apache-2.0
-- A run with accuracy samples against its baseline, which is at 1.  Ringed: no other run is both as fast
-- and as exact.
WITH point AS (
  SELECT metric, run_id, s.base_id, speedup AS x, lo, hi, 100 * error AS y, 100 * error_lo AS y_lo,
    100 * error_hi AS y_hi
  FROM speedup s JOIN verdict USING(run_id)
  WHERE error IS NOT NULL AND percentile = 50
  UNION
  SELECT metric, s.base_id, s.base_id, 1, NULL, NULL, coalesce(100 * b.error, 0), 100 * b.error_lo,
    100 * b.error_hi
  FROM speedup s JOIN verdict v USING(run_id) JOIN verdict b ON b.run_id = s.base_id
  WHERE v.error IS NOT NULL AND percentile = 50)
SELECT upper(metric) || ' p50' AS panel, l.label AS series, l.style, x, lo AS x_lo, hi AS x_hi, y,
  y_lo, y_hi,
  NOT EXISTS (SELECT 1 FROM point q WHERE q.metric = p.metric AND q.x >= p.x AND q.y <= p.y
    AND (q.x > p.x OR q.y < p.y)) AS ring,
  printf('%s: %s p50 %s than %s, error %.3g %%%s', l.label, upper(metric), faster(x, lo, hi), b.label, y,
    iif(y_lo IS NULL, '', printf(' [%.3g, %.3g]', y_lo, y_hi))) AS title
FROM point p JOIN run_label l USING(run_id) JOIN run_label b ON b.run_id = base_id
ORDER BY metric DESC, l.place
