#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/check_costs.sh DB N MEASURE OPTION...
#
# Check how well the measured costs of one window of a trace predict another window.  The script
# replays the first N requests and the next N requests.  It then replays the second window with the
# costs of the first, and compares TTFT and TPOT.  It also replays the first window with its own
# costs, which must reproduce it.  MEASURE, one word, holds the options that only measuring needs.
# OPTION... are the options of all runs:
#
#   contrib/check_costs.sh costs.db 200 '--capture a.arc --extend tile --accuracy 0' \
#       --trace traces/azure.csv --model llama-3.1-8b --method compact-fp --sample-layers 4
#
# No window can predict idle times of the GPU in another window, for instance while a library loads
# code.  If they are milliseconds, look for their cause in the measured run.
#
# DB must be a new file.  The exit status is 1 when a figure differs by more than LIMIT percent
# (default 5), or when the first window is not reproduced.  ATTNREPLAY is the program (default: from
# the build, or from an unpacked attnreplay-gpu).
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 3 ] || wrong_usage
db=$1 n=$2 measure=$3
shift 3
[ ! -e "$db" ] || { echo "check_costs.sh: $db: exists; name a new file" >&2; exit 2; }

# Nothing here is asked of resamples, which take seconds a run.
replay() { attnreplay run --db "$db" --requests "$n" --intervals off "$@"; }

echo "== 1: window A, measured"
replay "$@" $measure
echo "== 2: window B, measured"
replay --skip-requests "$n" "$@" $measure
echo "== 3: window B, with the costs of window A"
replay --skip-requests "$n" "$@" --backend cost --costs "$db:1" --costs-extrapolate
echo "== 4: window A, with its own costs"
replay "$@" --backend cost --costs "$db:1"

echo "== measured windows: time within iterations in which no kernel ran"
attnreplay sql "$db" "SELECT run_id, count(*) AS iterations,
	round(100.0 * sum(span_ns - busy_ns) / sum(span_ns), 2) AS idle_percent,
	round(max(span_ns - busy_ns) / 1e6, 3) AS worst_ms
	FROM iteration WHERE run_id < 3 AND span_ns IS NOT NULL GROUP BY run_id"
echo "== costs of run 3"
attnreplay sql "$db" "SELECT cost_source, iterations, round(100 * share, 2) AS percent,
	round(ms, 3) AS ms FROM v_cost_source WHERE run_id = 3"
off="WITH l AS (SELECT run_id, metric, p50, p99 FROM v_latency
		WHERE run_id IN (2, 3) AND metric IN ('ttft', 'tpot')),
	v AS (SELECT run_id, metric, 'p50' AS p, p50 AS x FROM l
		UNION ALL SELECT run_id, metric, 'p99', p99 FROM l)
	SELECT a.metric, a.p, round(a.x, 3) AS measured_ms, round(b.x, 3) AS predicted_ms,
		round(100 * (b.x / a.x - 1), 2) AS off_percent
	FROM v a JOIN v b USING(metric, p) WHERE a.run_id = 2 AND b.run_id = 3"
echo "== window B: measured, and predicted from window A"
attnreplay sql "$db" "$off ORDER BY metric DESC, p"

value() { attnreplay sql --format csv "$db" "$1" | tail -n 1; }
same="SELECT iter_no, start_ns, end_ns, composition FROM iteration WHERE run_id"
differ=$(value "SELECT (SELECT count(*) FROM ($same = 1 EXCEPT $same = 4)) +
	(SELECT count(*) FROM ($same = 4 EXCEPT $same = 1)) AS n")
worst=$(value "SELECT max(abs(off_percent)) AS worst FROM ($off)")
echo "worst: $worst % (limit ${LIMIT:-5}); iterations of window A that came out otherwise: $differ"
[ "$differ" = 0 ] && awk "BEGIN { exit !($worst <= ${LIMIT:-5}) }"
