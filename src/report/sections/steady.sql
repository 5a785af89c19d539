-- SPDX-License-Identifier: Apache-2.0
SELECT run_id AS run, method, verdict AS steady, replays, unsteady, running, waiting, blocks
FROM steady
ORDER BY run_id
