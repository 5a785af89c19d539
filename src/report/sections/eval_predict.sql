-- SPDX-License-Identifier: Apache-2.0
-- Over the sparse runs, one pair of figures each.  Runs that are compared have the same prompts.
-- What a dropper loses is in no figure of a layer, so runs with droppers are left out.
WITH loss AS (
  SELECT run_id, avg(diff) AS logprob, avg(kl) AS kl, avg(exact - dense_exact) AS flips
  FROM v_eval_paired
  GROUP BY run_id),
layer AS (
  SELECT run_id, avg(mass_recall) AS recall, min(mass_recall) AS recall_min,
    avg(rel_l2) AS rel_l2, max(rel_l2) AS rel_l2_max, avg(cosine) AS cosine
  FROM accuracy_sample
  WHERE half = 'prefill'
  GROUP BY run_id),
figure AS (
  SELECT column1 AS pos, column2 AS name, logprob, kl, flips,
    CASE column1 WHEN 1 THEN recall WHEN 2 THEN recall_min WHEN 3 THEN rel_l2
      WHEN 4 THEN rel_l2_max WHEN 5 THEN cosine ELSE executed END AS x
  FROM loss JOIN layer USING(run_id) LEFT JOIN v_executed USING(run_id)
    JOIN (VALUES (1, 'mean recall'), (2, 'least recall'), (3, 'mean relative L2'),
      (4, 'largest relative L2'), (5, 'mean cosine'), (6, 'executed share'))
  WHERE :run IS NULL AND run_id NOT IN (SELECT run_id FROM iteration_drop))
SELECT name AS figure, count(*) AS runs, spearman(x, logprob) AS logprob, spearman(x, kl) AS kl,
  spearman(x, flips) AS answers
FROM figure
WHERE x IS NOT NULL
GROUP BY pos
HAVING count(*) > 2
ORDER BY abs(spearman(x, logprob)) DESC, pos
