-- SPDX-License-Identifier: Apache-2.0
-- Requests that kept each limit of their run, and all of them, in one pass.  A request of one token has
-- no tpot.  vLLM says that it keeps that limit, aiperf that it does not.
CREATE TEMP TABLE goodput AS
  WITH
    bound AS MATERIALIZED (
      SELECT run_id, max(ns) FILTER (WHERE metric = 'ttft') AS ttft,
        max(ns) FILTER (WHERE metric = 'tpot') AS tpot, max(ns) FILTER (WHERE metric = 'e2e') AS e2e
      FROM slo
      WHERE :run IS NULL OR run_id = :run
      GROUP BY run_id),
    judged AS (
      SELECT run_id, count(*) AS n,
        sum(ok AND in_ttft) AS ttft, sum(ok AND in_tpot) AS tpot, sum(ok AND in_e2e) AS e2e,
        sum(ok AND in_ttft AND in_tpot AND in_e2e) AS together
      FROM (
        SELECT run_id, outcome = 'ok' AS ok,
          b.ttft IS NULL OR coalesce(ttft_ns <= b.ttft, :dialect <> 'aiperf') AS in_ttft,
          b.tpot IS NULL OR coalesce(tpot_ns <= b.tpot, :dialect <> 'aiperf') AS in_tpot,
          b.e2e IS NULL OR coalesce(e2e_ns <= b.e2e, :dialect <> 'aiperf') AS in_e2e
        FROM request_outcome JOIN bound b USING(run_id))
      GROUP BY run_id)
  SELECT run_id, column1 AS metric,
    CASE column1 WHEN 'ttft' THEN b.ttft WHEN 'tpot' THEN b.tpot WHEN 'e2e' THEN b.e2e END AS ns, n,
    CASE column1 WHEN 'ttft' THEN j.ttft WHEN 'tpot' THEN j.tpot WHEN 'e2e' THEN j.e2e
      ELSE together END AS good
  FROM judged j JOIN bound b USING(run_id) JOIN (VALUES ('ttft'), ('tpot'), ('e2e'), ('all'))
  WHERE column1 = 'all' OR CASE column1 WHEN 'ttft' THEN b.ttft WHEN 'tpot' THEN b.tpot
    ELSE b.e2e END IS NOT NULL
