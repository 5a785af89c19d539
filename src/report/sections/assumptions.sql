-- SPDX-License-Identifier: Apache-2.0
SELECT mark, kind, ltrim(runs(run_id), 'runs ') AS runs, text
FROM assumption
GROUP BY mark, text
ORDER BY mark, min(run_id)
