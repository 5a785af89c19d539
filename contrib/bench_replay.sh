#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/bench_replay.sh [COUNT...]
#
# Measure how the program scales with the number of requests.  Replays synthetic traces of COUNT
# requests (default: 10000 100000 1000000) with backend cost into a database, and reports on it.
# Prints time, peak memory and size, in total and for each request.  The figures for each request
# should not grow with COUNT.  Needs GNU time, and space in $TMPDIR.
#
#   ATTNREPLAY    the program (default: see contrib/program)
#   KEEP          what --keep-tables stores: requests, iterations, phases or entries (default:
#                 requests)
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || set -- 10000 100000 1000000
export LC_ALL=C
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

measure() { # measure FILE COMMAND...: write seconds and KiB to FILE
	file=$1
	shift
	command time -o "$file" -f '%e %M' "$@"
}

format='%9s %10s %10s %8s %8s %8s %8s %9s %9s %9s\n'
printf "$format" requests iterations entries 'run, s' 'rep., s' 'run, MiB' 'db, MB' 'us/req.' \
	'KiB/req.' 'db B/req.'
for n; do
	rm -f "$tmp"/*
	attnreplay -q trace synth --count "$n" --arrivals poisson --lengths sample --rate 5 \
		-o "$tmp/trace.jsonl" "$top/traces/samples/azure-2023-code-200.csv"
	measure "$tmp/run" "$top/contrib/program" -q run --trace "$tmp/trace.jsonl" --backend cost \
		--cost-fixed 6ms --cost-per-token 20us --max-num-batched-tokens 2048 \
		--policy vllm-0.16 --engine-defaults none \
		--num-gpu-blocks 1000000 --db "$tmp/db" \
		--keep-tables "${KEEP:-requests}" >"$tmp/out"
	measure "$tmp/report" "$top/contrib/program" report "$tmp/db" >/dev/null
	bytes=$(wc -c <"$tmp/db")
	counts=$(sed -n 's/^\([0-9]*\) iterations, \([0-9]*\) entries.*/\1 \2/p' "$tmp/out")
	echo "$n $counts $(cat "$tmp/run" "$tmp/report" | tr '\n' ' ') $bytes" |
		awk -v format="$format" '{ printf format, $1, $2, $3, $4, $6,
			sprintf("%.1f", $5 / 1024), sprintf("%.1f", $8 / 1e6),
			sprintf("%.1f", $4 * 1e6 / $1),
			sprintf("%.2f", $5 / $1), sprintf("%.0f", $8 / $1) }'
done
