-- SPDX-License-Identifier: Apache-2.0
-- Views and tables that all scripts use.  A decode is one token, so the other entries of a batch are chunks.
CREATE TEMP VIEW v_step AS
  SELECT *, CASE WHEN batch_size = 0 THEN 'empty' WHEN prefill_tokens = 0 THEN 'decode'
      WHEN decode_tokens = 0 THEN 'prefill' ELSE 'prefill+decode' END || ' B' || batch_size ||
    CASE WHEN prefill_tokens > 0 THEN ' (+' || (batch_size - decode_tokens) || 'r ' ||
      prefill_tokens || 't)' ELSE '' END AS name
  FROM iteration;
CREATE TEMP TABLE kernel_name(name_id INTEGER PRIMARY KEY, short, full);
INSERT INTO temp.kernel_name SELECT id, short_name(value), full_name(value) FROM string_id;
