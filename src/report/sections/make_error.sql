-- SPDX-License-Identifier: Apache-2.0
-- The mean relative L2 error of each run and half, with an interval of 95 % by a bootstrap of the requests:
-- samples of one request are alike.
CREATE TEMP TABLE error AS
  SELECT run_id, half, json_extract(mean, '$[0]') AS mean, json_extract(mean, '$[1]') AS lo,
    json_extract(mean, '$[2]') AS hi
  FROM (
    SELECT run_id, half, mean_interval(req_no, total, n) AS mean
    FROM (
      SELECT run_id, half, req_no, sum(rel_l2) AS total, count(rel_l2) AS n
      FROM accuracy_sample
      WHERE :run IS NULL OR run_id IN (:run, :baseline)
      GROUP BY run_id, half, req_no)
    GROUP BY run_id, half)
  WHERE mean IS NOT NULL
