#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/check_roofline.sh DB MEASURED OPTION...
#
# Check how well backend roofline predicts a GPU, run by run.  MEASURED is a database of runs that
# were measured on the GPU, by one or more commands 'attnreplay run'.  The script copies it to DB, a
# new file, repeats each command there with backend roofline, and prints the errors.  It needs no
# GPU.  Start it where the commands find their traces.
#
# The densities of sparse methods are those that the runs measured.  OPTION... come last: --gpu, or
# --density for runs without --accuracy.  To measure, to fit, and to check with another trace:
#
#   attnreplay run --trace a.csv --model llama-3.1-8b --capture a.arc --method dense,quoka --db a.db
#   attnreplay run --trace b.csv --model llama-3.1-8b --capture a.arc --method dense,quoka --db b.db
#   attnreplay calibrate roofline a.db:1 a.db:2 -o gpu.json
#   contrib/check_roofline.sh roofline.db b.db --gpu gpu.json
#
# The exit status is 1 when the GPU's time of a run differs by more than LIMIT percent (default 20).
# ATTNREPLAY is the program (default: see contrib/program).
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || wrong_usage
db=$1 measured=$2
shift 2
[ ! -e "$db" ] || { echo "check_roofline.sh: $db: exists; name a new file" >&2; exit 2; }

values() { attnreplay sql --format csv "$db" "$1" | tail -n +2 | tr -d '"'; }

cat "$measured" >"$db"
runs=$(values 'SELECT max(run_id) AS n FROM run')

# The options of a command that backend roofline takes: not those of measuring.
options_of() {
	values "SELECT replace(cmdline, char(10), ' ') AS c FROM run WHERE run_id = $1" |
		sed -E 's/^.* run --/--/
			s/ --(no-)?(enforce-eager|share-kv-across-methods)( |$)/ /g
			s/ --(accuracy|backend|capture|cudagraph-capture-sizes|db|device|extend)[ =][^ ]*//g
			s/ --(gpu-memory-utilization|keep-kernels|prof|sample-layers|seed)[ =][^ ]*//g'
}
# Scheduler values of the run, so that defaults for another GPU do not hold.
values_of() { # values_of RUN
	values "SELECT key || '=' || value AS option FROM run_param WHERE run_id = $1 AND (key IN
		('policy', 'max-num-batched-tokens', 'max-num-seqs', 'block-size') OR key IN
		('async-scheduling', 'enable-prefix-caching') AND value)" | sed 's/^/--/'
}
density_of() { # density_of FIRST LAST
	values "SELECT name || printf('=%.6f', sum(exec_sel) * 1.0 / sum(exec_total)) AS share
		FROM selection_stat JOIN run USING(run_id) JOIN method USING(method_id)
		WHERE run_id BETWEEN $1 AND $2 AND NOT is_dense GROUP BY run_id" |
		sed 's/^/--density /'
}
values 'SELECT min(run_id) AS first, max(run_id) AS last, min(num_blocks) AS blocks FROM run
	GROUP BY command_utc_ns ORDER BY 1' | tr , ' ' >"$db.commands"
while read -r first last blocks; do
	# shellcheck disable=SC2046
	attnreplay run --engine-defaults none $(values_of "$first") $(options_of "$first") \
		--backend roofline --num-gpu-blocks "$blocks" \
		$(density_of "$first" "$last") "$@" --db "$db" >/dev/null
done <"$db.commands"
rm "$db.commands"

errors="WITH pair AS (SELECT m.run_id AS a, r.run_id AS b, me.name AS method FROM run m
		JOIN run r ON r.run_id = m.run_id + $runs JOIN method me ON me.method_id = m.method_id),
	gpu AS (SELECT run_id, prefill_tokens > 0 AS prompts, (end_ns - start_ns - host_ns) / 1e6 AS ms
		FROM iteration),
	value AS (SELECT run_id, 'gpu' AS name, sum(ms) AS x FROM gpu GROUP BY run_id
		UNION ALL SELECT run_id, 'prompts', sum(ms) FROM gpu WHERE prompts GROUP BY run_id
		UNION ALL SELECT run_id, metric || '_p50', p50 FROM v_latency
		UNION ALL SELECT run_id, metric || '_p99', p99 FROM v_latency),
	error AS (SELECT a, method, m.name, m.x AS ms, 100 * (r.x / m.x - 1) AS percent
		FROM pair JOIN value m ON m.run_id = a JOIN value r ON r.run_id = b AND r.name = m.name)"
of() { echo "printf('%+.1f', max(percent) FILTER (WHERE name = '$1')) AS $1"; }
echo "== errors in percent, by measured run: the GPU's time of all iterations, of those with prompts,"
echo "   and latencies"
attnreplay sql "$db" "$errors SELECT a AS run, method,
	printf('%.1f', max(ms) FILTER (WHERE name = 'gpu')) AS gpu_ms, $(of gpu), $(of prompts),
	$(of ttft_p50), $(of ttft_p99), $(of tpot_p50), $(of tpot_p99) FROM error GROUP BY a ORDER BY a"
worst=$(values "$errors SELECT printf('%.1f', max(abs(percent))) AS worst FROM error WHERE name = 'gpu'")
echo "worst: $worst % of the GPU's time (limit ${LIMIT:-20})"
awk "BEGIN { exit !($worst <= ${LIMIT:-20}) }"
