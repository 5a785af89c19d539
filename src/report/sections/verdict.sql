-- SPDX-License-Identifier: Apache-2.0
SELECT verdict FROM (
  SELECT 0 AS place, min(run_id) AS run_id,
    printf('Trace %s, %d requests; %s; %s; policy %s', trace, requests,
      coalesce('model ' || model, 'no model'), coalesce(gpu, 'backend ' || backend), policy)
    || iif(max(rate) > 0, iif(min(rate) = max(rate), printf('; rate %g a second', max(rate)),
      printf('; rates %g to %g a second', min(rate), max(rate))), '') || '.' AS verdict
  FROM v_run JOIN run_label USING(run_id) LEFT JOIN (
    SELECT run_id, value + 0.0 AS rate FROM run_param WHERE key = 'rate') USING(run_id)
  GROUP BY trace, requests, model, gpu, backend, policy

  UNION ALL
  SELECT 1, v.run_id, v.label || ': TTFT p50 '
    || printf('%.3g times that of %s', v.ttft / d.ttft, d.label)
    || iif(v.tpot > 0 AND d.tpot > 0, printf(', TPOT p50 %.3g times', v.tpot / d.tpot), '')
    || iif(v.error IS NULL, '', printf('; mean relative L2 error %.3g %%', 100 * v.error))
    || iif(v.executed IS NULL, '', printf('; %.0f %% of the attention executed', 100 * v.executed))
    || '.  ' || CASE WHEN v.ttft < 0.98 * d.ttft THEN 'It is faster'
      WHEN v.ttft > 1.02 * d.ttft THEN 'It is slower' ELSE 'It gains nothing' END
    || iif(v.core_ms > 0 AND d.kernel_ms > 0, printf(': its attention core takes %.1f ms, %.1f ms of'
      || ' that to select, where dense attention takes %.1f ms, which is %.0f %% of all kernel time.',
      v.core_ms, coalesce(v.select_ms, 0), d.core_ms, 100 * d.core_ms / d.kernel_ms), '.')
  FROM verdict v JOIN v_pair p USING(run_id) JOIN verdict d ON d.run_id = p.base_id
  WHERE v.ttft > 0 AND d.ttft > 0

  UNION ALL
  SELECT 1, run_id, label || ': '
    || iif(ttft IS NULL, 'no request got a token', printf('TTFT p50 %.2f ms', ttft))
    || iif(tpot IS NULL, '', printf(', TPOT p50 %.2f ms', tpot)) || iif(is_dense, '.',
      '; there is no dense run with the same options to compare it with.')
  FROM verdict
  WHERE run_id NOT IN (SELECT p.run_id FROM v_pair p JOIN verdict d ON d.run_id = base_id
    WHERE d.ttft > 0) OR coalesce(ttft, 0) <= 0)
ORDER BY place, run_id
