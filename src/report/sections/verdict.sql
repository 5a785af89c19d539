-- SPDX-License-Identifier: Apache-2.0
SELECT verdict FROM (
  SELECT 0 AS kind, min(run_id) AS place,
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
    || coalesce((SELECT printf('; iterations %.1f %% in the mean', avg(abs(p_ns - e_ns) * 100.0 / e_ns))
        || coalesce((SELECT printf(', of which %s explains %.0f %%', quantity, explains_percent)
          FROM engine_residual r WHERE r.run = e.run AND r.engine_run = e.engine_run AND no = 1), '')
      FROM engine_step s WHERE s.run = e.run AND s.engine_run = e.engine_run AND p_ns
      GROUP BY s.run HAVING count(*) > 2), '')
    || CASE WHEN draws > 1 THEN printf('; medians of %d repeats', draws)
      WHEN run IN (SELECT run_id FROM drawn_run) THEN '; of one draw of its host: --repeats shows others'
      ELSE '' END || '.'
  FROM (SELECT * FROM engine_error ORDER BY run, engine_run, instr('ttft tpot', metric), at) e
  GROUP BY run, engine_run

  UNION ALL
  SELECT 2, v.place, v.label || ', against ' || d.label || ': '
    || iif(clock = 'cpu', 'mechanics by the clock of a CPU, TTFT p50 ' || times(v.ttft_x),
      'TTFT p50 ' || faster(v.ttft_x, v.ttft_x_lo, v.ttft_x_hi)
      || coalesce(', p99 ' || faster(v.ttft99_x, v.ttft99_x_lo, v.ttft99_x_hi), '')
      || coalesce(', TPOT p50 ' || faster(v.tpot_x, v.tpot_x_lo, v.tpot_x_hi), ''))
    || iif(v.error IS NULL, '', printf('; mean relative L2 error%s %.3g %%',
      iif(v.error_half = 'decode', ' of decodes', ''), 100 * v.error))
    || iif(v.error_lo IS NULL, '', printf(' [%.3g, %.3g]', 100 * v.error_lo, 100 * v.error_hi))
    || iif(v.executed IS NULL, '', printf('; %.0f %% of the attention ', 100 * v.executed)
      || iif(v.is_given, 'as given', 'executed'))
    || iif(v.executed_decode < 1, printf('; decodes read %.0f %% of their keys', 100 * v.executed_decode), '')
    || iif(v.dropped IS NULL, '', printf('; %.0f %% of the prompt rows dropped', 100 * v.dropped)) || '.'
    || iif(v.core_ms > 0 AND d.core_ms > 0, printf('  Its attention core takes %.1f ms, %.1f ms of'
      || ' that to select; that of %s takes %.1f ms, %.0f %% of its kernel time.',
      v.core_ms, coalesce(v.select_ms, 0),
      iif(d.method = v.method, 'the baseline', d.method), d.core_ms, 100 * d.core_ms / d.kernel_ms), '')
    || iif(v.host_ms > 0 OR d.host_ms > 0, printf('  The GPU waits %.1f ms for the host, with %s'
      || ' %.1f ms.', coalesce(v.host_ms, 0),
      iif(d.method = v.method, 'the baseline', d.method), coalesce(d.host_ms, 0)), '')
  FROM verdict v JOIN verdict d ON d.run_id = v.base_id JOIN run ON run.run_id = v.run_id
  WHERE v.ttft_x IS NOT NULL

  UNION ALL
  SELECT 2, place, label || ': '
    || iif(ttft IS NULL, 'no request got a token', printf('TTFT p50 %.2f ms', ttft))
    || iif(tpot IS NULL, '', printf(', TPOT p50 %.2f ms', tpot)) || iif(is_dense OR run_id IN (SELECT base_id FROM v_pair), '.',
      '; there is no dense run with the same options to compare it with.')
  FROM verdict
  WHERE ttft_x IS NULL)
ORDER BY kind, place
