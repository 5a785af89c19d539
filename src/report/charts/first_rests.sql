-- SPDX-License-Identifier: Apache-2.0
-- What figures of the table rest on, in a few words, with the whole sentences.
SELECT mark, group_concat(brief, ', ') AS brief, group_concat(sentence, char(10)) AS title
FROM (
  SELECT mark, brief, group_concat(which || ': ' || text, char(10)) AS sentence, min(first) AS first
  FROM (
    SELECT mark, brief, text, runs(run_id) AS which, min(run_id) AS first
    FROM assumption GROUP BY mark, brief, text)
  GROUP BY mark, brief
  ORDER BY first)
GROUP BY mark
ORDER BY mark
