-- SPDX-License-Identifier: Apache-2.0
-- A run with accuracy samples against its baseline, which is at 1.  Ringed: no other run is both as fast
-- and as exact.
WITH point AS (
  SELECT metric, run_id, base_id, ratio AS x, lo, hi, 100 * error AS y
  FROM ratio JOIN verdict USING(run_id)
  WHERE error IS NOT NULL AND ratio > 0
  UNION
  SELECT metric, base_id, base_id, 1, NULL, NULL, coalesce(100 * b.error, 0)
  FROM ratio r JOIN verdict v USING(run_id) JOIN verdict b ON b.run_id = base_id
  WHERE v.error IS NOT NULL AND ratio > 0)
SELECT upper(metric) || ' p50' AS panel, l.label AS series, l.style, x, lo AS x_lo, hi AS x_hi, y,
  NOT EXISTS (SELECT 1 FROM point q WHERE q.metric = p.metric AND q.x <= p.x AND q.y <= p.y
    AND (q.x < p.x OR q.y < p.y)) AS ring,
  printf('%s: %.3f times the %s p50 of %s%s, error %.3g %%', l.label, x, upper(metric), b.label,
    iif(lo IS NULL, '', printf(' (%.3f to %.3f)', lo, hi)), y) AS title
FROM point p JOIN run_label l USING(run_id) JOIN run_label b ON b.run_id = base_id
ORDER BY metric DESC, p.run_id
