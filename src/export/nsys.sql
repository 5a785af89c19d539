-- SPDX-License-Identifier: Apache-2.0
-- The rows of the tables in nsys_tables.sql, for run :run or all.  Column 1 has the table's name,
-- the other columns have its columns' names.  Times are those of the GPU, in ns since the first
-- kernel.

CREATE TEMP TABLE nsys_run(run_id INTEGER PRIMARY KEY, ns, pid, device);
INSERT INTO temp.nsys_run
  SELECT r.run_id, ts_base_ns, pid, device FROM (
      SELECT run_id, min(kernel_lo) AS id FROM iteration
      WHERE (:run IS NULL OR run_id = :run) AND kernel_lo IS NOT NULL GROUP BY run_id) i
    JOIN kernel_event e USING(id) JOIN run r ON r.run_id = i.run_id;
UPDATE temp.nsys_run SET ns = ns - (SELECT min(ns) FROM temp.nsys_run);

CREATE TEMP TABLE nsys_string(id INTEGER PRIMARY KEY, value UNIQUE);
INSERT OR IGNORE INTO temp.nsys_string(value) SELECT full FROM temp.kernel_name ORDER BY name_id;
INSERT OR IGNORE INTO temp.nsys_string(value) SELECT short FROM temp.kernel_name ORDER BY name_id;
INSERT OR IGNORE INTO temp.nsys_string(value) SELECT value FROM string_id ORDER BY id;

CREATE TEMP TABLE nsys_name(name_id INTEGER PRIMARY KEY, full, short, mangled);
INSERT INTO temp.nsys_name SELECT name_id, f.id, s.id, m.id
FROM temp.kernel_name k JOIN string_id i ON i.id = name_id JOIN temp.nsys_string f ON f.value = full
  JOIN temp.nsys_string s ON s.value = short JOIN temp.nsys_string m ON m.value = i.value;

SELECT 'META_DATA_CAPTURE', name, value FROM (
  SELECT 'CAPTURE_TOOL' AS name, 'attnreplay' AS value UNION ALL
  SELECT 'CAPTURE_NOTE', 'kernels that attnreplay kept, not a capture of Nsight Systems'
  UNION ALL SELECT 'CAPTURE_COMMAND run ' || run_id, cmdline FROM temp.nsys_run JOIN run USING(run_id));
SELECT 'META_DATA_EXPORT', column1 AS name, column2 AS value FROM (VALUES
  ('EXPORT_SCHEMA_VERSION', '3.28.1'), ('EXPORT_SCHEMA_VERSION_MAJOR', '3'),
  ('EXPORT_SCHEMA_VERSION_MINOR', '28'), ('EXPORT_SCHEMA_VERSION_MICRO', '1'));
SELECT 'ENUM_CUDA_MEMCPY_OPER', column1 AS id, column2 AS name, column2 AS label FROM (VALUES
  (0, 'Unknown'), (1, 'Host-to-Device'), (2, 'Device-to-Host'), (3, 'Host-to-Array'),
  (4, 'Array-to-Host'), (5, 'Array-to-Array'), (6, 'Array-to-Device'), (7, 'Device-to-Array'),
  (8, 'Device-to-Device'), (9, 'Host-to-Host'), (10, 'Peer-to-Peer'));
SELECT 'ENUM_CUDA_MEM_KIND', column1 AS id, column2 AS name, column2 AS label FROM (VALUES
  (0, 'Pageable'), (1, 'Pinned'), (2, 'Device'), (3, 'Array'), (4, 'Managed'), (5, 'Device Static'),
  (6, 'Managed Static'));
SELECT 'ENUM_NSYS_EVENT_TYPE', 59 AS id, 'NvtxPushPopRange' AS name, 'NvtxPushPopRange' AS label;

SELECT 'StringIds', id, value FROM temp.nsys_string;

SELECT 'TARGET_INFO_SESSION_START_TIME', ts_base_ns AS utcEpochNs,
  strftime('%Y-%m-%dT%H:%M:%S', ts_base_ns / 1000000000, 'unixepoch') AS utcTime,
  strftime('%Y-%m-%dT%H:%M:%S', ts_base_ns / 1000000000, 'unixepoch', 'localtime') AS localTime
FROM temp.nsys_run JOIN run USING(run_id) WHERE ns = 0 LIMIT 1;

-- A device has one row: its number is the same in all runs.
SELECT 'TARGET_INFO_GPU', 0 AS vmId, device AS id, g.name, 1 AS isDiscrete,
  l2_bytes AS l2CacheSize, mem_bytes AS totalMemory, sm_count AS smCount, uuid,
  device AS cuDevice, cc_major AS computeMajor, cc_minor AS computeMinor, cc_major AS smMajor,
  cc_minor AS smMinor
FROM (SELECT device, min(run_id) AS run_id FROM temp.nsys_run GROUP BY device)
  JOIN run USING(run_id) JOIN gpu g USING(gpu_id);
SELECT 'TARGET_INFO_CUDA_DEVICE', device AS gpuId, device AS cudaId, n.pid AS pid, uuid,
  sm_count AS numMultiprocessors
FROM temp.nsys_run n JOIN run USING(run_id) JOIN gpu g USING(gpu_id) GROUP BY device, n.pid;

SELECT 'CUPTI_ACTIVITY_KIND_KERNEL', n.ns + e.t_ns AS start, n.ns + e.t_ns + e.dur_ns AS end,
  e.device AS deviceId, 1 AS contextId, e.stream AS streamId, e.corr AS correlationId,
  n.pid << 24 AS globalPid, s.full AS demangledName, s.short AS shortName,
  s.mangled AS mangledName, launch_type AS launchType, regs AS registersPerThread,
  grid_x AS gridX, grid_y AS gridY, grid_z AS gridZ, block_x AS blockX, block_y AS blockY,
  block_z AS blockZ, smem_static AS staticSharedMemory, smem_dynamic AS dynamicSharedMemory,
  local_per_thread AS localMemoryPerThread, 0 AS localMemoryTotal, e.id AS gridId,
  smem_executed AS sharedMemoryExecuted, cluster_x AS clusterX, cluster_y AS clusterY,
  cluster_z AS clusterZ, '' AS tensorSizeMinusOneElements
FROM temp.nsys_run n CROSS JOIN iteration i USING(run_id)
  CROSS JOIN kernel_event e ON e.id BETWEEN i.kernel_lo AND i.kernel_hi
  CROSS JOIN kernel_shape USING(shape_id) CROSS JOIN temp.nsys_name s USING(name_id);

-- Ranges: an iteration from its first kernel to its last, and the kernels in it that follow each
-- other with one layer and phase.  A range has the text itself, and no textId.
SELECT 'NVTX_EVENTS', n.ns + f.t_ns AS start, n.ns + (SELECT max(t_ns + dur_ns)
    FROM kernel_event e WHERE e.id BETWEEN i.kernel_lo AND i.kernel_hi) AS end, 59 AS eventType,
  'run ' || i.run_id || ' iteration ' || i.iter_no || ': ' || i.name AS text,
  n.pid << 24 | n.pid AS globalTid, 0 AS domainId
FROM temp.nsys_run n CROSS JOIN v_step i USING(run_id)
  CROSS JOIN kernel_event f ON f.id = i.kernel_lo;

WITH k AS (
  SELECT e.run_id, e.iter_no, e.layer, e.phase_id, e.t_ns, e.dur_ns, e.id, n.ns, n.pid,
    e.layer IS NOT lag(e.layer) OVER w OR e.phase_id IS NOT lag(e.phase_id) OVER w AS new
  FROM temp.nsys_run n CROSS JOIN iteration i USING(run_id)
    CROSS JOIN kernel_event e ON e.id BETWEEN i.kernel_lo AND i.kernel_hi
  WINDOW w AS (PARTITION BY e.run_id, e.iter_no ORDER BY e.id)),
s AS (SELECT *, sum(new) OVER (PARTITION BY run_id, iter_no ORDER BY id) AS scope FROM k)
SELECT 'NVTX_EVENTS', ns + min(t_ns) AS start, ns + max(t_ns + dur_ns) AS end, 59 AS eventType,
  coalesce('layer ' || layer || ' ', '') || coalesce(p.name, 'no phase') AS text,
  pid << 24 | pid AS globalTid, 0 AS domainId
FROM s LEFT JOIN phase p USING(phase_id) GROUP BY run_id, iter_no, scope;

-- The attention of a (query, key) pair takes 2 products of head_dim terms for each query head, so 4
-- FLOPs a term.  Decodes read keys and values once, queries and outputs too, in 2 bytes each.  Known
-- for a launch that is alone in its phase of the layer, and if no layer has a window.
WITH k AS (
  SELECT e.id, i.run_id, i.iter_no, e.layer, e.phase_id, i.prefill_pairs, i.decode_context,
    i.decode_tokens, count(*) OVER (PARTITION BY i.run_id, i.iter_no, e.layer, e.phase_id) AS n
  FROM temp.nsys_run CROSS JOIN iteration i USING(run_id)
    CROSS JOIN kernel_event e ON e.id BETWEEN i.kernel_lo AND i.kernel_hi),
d AS (
  SELECT run_id, me.name AS method, is_dense, q_heads * head_dim AS q_size,
    kv_heads * head_dim AS kv_size, config LIKE '%window%' OR config LIKE '%chunk%' AS part
  FROM temp.nsys_run JOIN run USING(run_id) LEFT JOIN model mo USING(model_id)
    LEFT JOIN method me USING(method_id))
SELECT 'ATTNREPLAY_KERNEL', id AS gridId, run_id AS runId, method, iter_no AS iteration, layer,
  p.name AS phase, core,
  CASE WHEN n > 1 OR part OR layer IS NULL THEN NULL
    WHEN p.name = 'attend' AND is_dense THEN 4 * q_size * prefill_pairs
    WHEN p.name = 'decode' THEN 4 * q_size * decode_context END AS flops,
  CASE WHEN n = 1 AND NOT part AND layer IS NOT NULL AND p.name = 'decode'
    THEN 4 * kv_size * decode_context + 4 * q_size * decode_tokens END AS bytes
FROM k JOIN d USING(run_id) LEFT JOIN phase p USING(phase_id);

SELECT 'ANALYSIS_DETAILS', 0 AS globalVid, max(stop) AS duration, 0 AS startTime,
  max(stop) AS stopTime
FROM (SELECT (SELECT max(n.ns + t_ns + dur_ns) FROM kernel_event e
      WHERE e.id BETWEEN i.kernel_lo AND i.kernel_hi) AS stop
    FROM temp.nsys_run n CROSS JOIN iteration i USING(run_id));
