-- SPDX-License-Identifier: Apache-2.0
-- The limits of the runs, as sentences and heads name them; NULL: there are none.
CREATE TEMP TABLE limits AS
  SELECT group_concat(text, ', ') AS limits
  FROM (SELECT DISTINCT upper(metric) || iif(ns < 1e9, printf(' %g ms', ns / 1e6), printf(' %g s', ns / 1e9))
    AS text FROM slo ORDER BY instr('ttft tpot e2e', metric))
