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
  SELECT 1, run, 'Against ' || engine || printf(', run %d: ', engine_run)
    || group_concat(upper(metric) || printf(' %s %+.1f %%', at, error_percent)
      || iif(error_lo IS NULL, '', printf(' (%+.1f to %+.1f)', error_lo, error_hi))
      || iif(spread_percent IS NULL, '', printf(', its passes %.1f %%', spread_percent)), '; ')
    || coalesce((SELECT printf('; iterations %.1f %% in the mean, which goes with %s most', avg(abs(p_ns - e_ns) * 100.0 / e_ns),
        (SELECT quantity FROM engine_residual r WHERE r.run = e.run AND r.engine_run = e.engine_run AND no = 1))
      FROM engine_step s WHERE s.run = e.run AND s.engine_run = e.engine_run AND p_ns
      HAVING count(*) > 2), '') || '.'
  FROM (SELECT * FROM engine_error ORDER BY run, engine_run, instr('ttft tpot', metric), at) e
  GROUP BY run, engine_run

  UNION ALL
  SELECT 2, v.run_id, v.label || ': TTFT p50 '
    || printf('%.3g times that of %s', r.ratio, d.label)
    || iif(r.lo IS NULL, '', printf(' (95 %% interval %.3g to %.3g)', r.lo, r.hi))
    || iif(t.ratio > 0, printf(', TPOT p50 %.3g times', t.ratio)
      || iif(t.lo IS NULL, '', printf(' (%.3g to %.3g)', t.lo, t.hi)), '')
    || iif(v.error IS NULL, '', printf('; mean relative L2 error %.3g %%', 100 * v.error))
    || iif(v.error_lo IS NULL, '',
      printf(' (%.3g to %.3g)', 100 * v.error_lo, 100 * v.error_hi))
    || iif(v.executed IS NULL, '', printf('; %.0f %% of the attention executed', 100 * v.executed))
    || '.  ' || CASE WHEN r.lo IS NULL THEN 'One request has no interval.'
      WHEN r.hi < 1 THEN 'It is faster.' WHEN r.lo > 1 THEN 'It is slower.'
      ELSE 'It gains nothing: the interval holds 1.' END
    || iif(v.core_ms > 0 AND d.core_ms > 0, printf('  Its attention core takes %.1f ms, %.1f ms of'
      || ' that to select; that of %s takes %.1f ms, %.0f %% of its kernel time.',
      v.core_ms, coalesce(v.select_ms, 0),
      iif(d.method = v.method, 'the baseline', d.method), d.core_ms, 100 * d.core_ms / d.kernel_ms), '')
    || iif(v.host_ms > 0 OR d.host_ms > 0, printf('  The GPU waits %.1f ms for the host, with %s'
      || ' %.1f ms.', coalesce(v.host_ms, 0),
      iif(d.method = v.method, 'the baseline', d.method), coalesce(d.host_ms, 0)), '')
  FROM verdict v JOIN ratio r ON r.run_id = v.run_id AND r.metric = 'ttft'
    JOIN verdict d ON d.run_id = r.base_id
    LEFT JOIN ratio t ON t.run_id = v.run_id AND t.metric = 'tpot'
  WHERE r.ratio > 0

  UNION ALL
  SELECT 2, run_id, label || ': '
    || iif(ttft IS NULL, 'no request got a token', printf('TTFT p50 %.2f ms', ttft))
    || iif(tpot IS NULL, '', printf(', TPOT p50 %.2f ms', tpot)) || iif(is_dense OR run_id IN (SELECT base_id FROM v_pair), '.',
      '; there is no dense run with the same options to compare it with.')
  FROM verdict
  WHERE run_id NOT IN (SELECT run_id FROM ratio WHERE metric = 'ttft' AND ratio > 0))
ORDER BY place, run_id
