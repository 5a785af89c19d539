#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/check_roofline.sh DB N MEASURE OPTION...
#
# Check how well backend roofline predicts a GPU, method by method.  On a host with the GPU, the
# script measures the first N requests of a trace and the next N.  It fits the roofline to the first
# window (DB.json), and takes the densities of sparse methods from there.  It then models the second
# window, and compares it with its measurement.  MEASURE, one word, holds the options that only
# measuring needs.  OPTION... are the options of all runs:
#
#   contrib/check_roofline.sh roofline.db 100 '--capture a.arc --extend tile --accuracy 0.02' \
#       --trace traces/azure.csv --model llama-3.1-8b --method dense,flashprefill,compact-fp
#
# DB must be a new file.  The exit status is 1 when the GPU's time of a method differs by more than
# LIMIT percent (default 20).  GPU has the peaks: a name or file for --gpu (default h200).
# ATTNREPLAY is the program (default: from the build, or from an unpacked attnreplay-gpu).
set -eu
[ $# -gt 3 ] || { sed -n 's/^# \(usage:\)/\1/p' "$0" >&2; exit 2; }
top=$(cd "$(dirname "$0")/.." && pwd)
db=$1 n=$2 measure=$3
shift 3
[ ! -e "$db" ] || { echo "check_roofline.sh: $db: exists; name a new file" >&2; exit 2; }

attnreplay() {
	if [ -n "${ATTNREPLAY:-}" ]; then "$ATTNREPLAY" "$@"
	elif [ -x "$top/run" ]; then "$top/run" "$top/attnreplay" "$@"
	else "$top/build/attnreplay" "$@"
	fi
}
replay() { attnreplay run --db "$db" --requests "$n" "$@"; }
values() { attnreplay sql --format csv "$db" "$1" | tail -n +2; }

echo "== 1: window A, measured"
replay "$@" $measure
runs=$(values 'SELECT count(*) AS n FROM run')
echo "== 2: window B, measured"
replay --skip-requests "$n" "$@" $measure

echo "== 3: the roofline, fitted to window A"
fit=
for run in $(seq "$runs"); do fit="$fit $db:$run"; done
attnreplay calibrate roofline --gpu "${GPU:-h200}" -o "$db.json" $fit

echo "== 4: window B, modelled"
density=
for share in $(values "SELECT name || printf('=%.6f', sum(exec_sel) * 1.0 / sum(exec_total)) AS share
	FROM selection_stat JOIN run USING(run_id) JOIN method USING(method_id)
	WHERE run_id <= $runs AND NOT is_dense GROUP BY run_id" | tr -d '"'); do
	density="$density --density $share"
done
replay --skip-requests "$n" --backend roofline --gpu "$db.json" \
	--num-gpu-blocks "$(values "SELECT min(num_blocks) AS n FROM run")" $density "$@"

pairs="SELECT m.run_id AS measured_run, r.run_id AS modelled_run, me.name AS method
	FROM run m JOIN run r ON r.run_id = m.run_id + $runs JOIN method me ON me.method_id = m.method_id
	WHERE m.run_id > $runs AND m.run_id <= 2 * $runs"
gpu="WITH g AS (SELECT run_id, sum(end_ns - start_ns - host_ns) / 1e6 AS ms FROM iteration
		GROUP BY run_id)
	SELECT method, round(a.ms, 3) AS measured_ms, round(b.ms, 3) AS modelled_ms,
		round(100 * (b.ms / a.ms - 1), 2) AS error_percent
	FROM ($pairs) JOIN g a ON a.run_id = measured_run JOIN g b ON b.run_id = modelled_run"
echo "== window B: the GPU's time of all iterations"
attnreplay sql "$db" "$gpu"
echo "== window B: latencies, ms"
attnreplay sql "$db" "WITH l AS (SELECT run_id, metric, p50, p99 FROM v_latency
		WHERE metric IN ('ttft', 'tpot')),
	v AS (SELECT run_id, metric, 'p50' AS p, p50 AS x FROM l
		UNION ALL SELECT run_id, metric, 'p99', p99 FROM l)
	SELECT method, a.metric, a.p, round(a.x, 3) AS measured_ms, round(b.x, 3) AS modelled_ms,
		round(100 * (b.x / a.x - 1), 2) AS error_percent
	FROM ($pairs) JOIN v a ON a.run_id = measured_run
		JOIN v b ON b.run_id = modelled_run AND b.metric = a.metric AND b.p = a.p
	ORDER BY measured_run, a.metric DESC, a.p"

worst=$(values "SELECT max(abs(error_percent)) AS worst FROM ($gpu)")
echo "worst: $worst % of the GPU's time (limit ${LIMIT:-20})"
awk "BEGIN { exit !($worst <= ${LIMIT:-20}) }"
