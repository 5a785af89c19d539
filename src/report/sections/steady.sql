-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, verdict AS steady, waiting, waiting_trend AS waiting_per_s,
  waiting_lo AS waiting_per_s_lo, waiting_hi AS waiting_per_s_hi, blocks,
  blocks_trend AS blocks_per_s, blocks_lo AS blocks_per_s_lo, blocks_hi AS blocks_per_s_hi
FROM steady
ORDER BY run_id
