#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/bench_replay.sh [COUNT...]
#
# Measure how the program scales with the number of requests.  Replays COUNT requests (default:
# 10000 100000 1000000) without storing them, then into a database, and reports on it.  Prints
# seconds of the processor, peak memory and the size of the database, in total and for each request,
# and what most of the last database is.  The figures for each request should not grow with COUNT.
# Needs GNU time, and space in $TMPDIR.
#
#   ATTNREPLAY    the program (default: see contrib/program)
#   KEEP          what to store, by words of --keep-tables, and none (default: none requests)
#   TRACE, RATE   requests, which are repeated, and requests a second (default: a synthetic trace
#                 with lengths of azure-2023-code, 5)
#   RUN           backend and its options (default: roofline of an h100, model llama-3.1-8b)
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 0 ] || set -- 10000 100000 1000000
export LC_ALL=C
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
RATE=${RATE:-5}

measure() { # measure FILE COMMAND...: write seconds and KiB to FILE
	file=$1
	shift
	command time -o "$file" -f '%U %M' "$@"
}

requests() { # requests COUNT: set $trace, and $repeat to how often it is replayed for so many
	trace=${TRACE:-$tmp/trace.jsonl} repeat=1
	if [ -z "${TRACE-}" ]; then
		attnreplay -q trace synth --count "$1" --arrivals poisson --lengths sample \
			--rate "$RATE" -o "$trace" "$top/traces/samples/azure-2023-code-200.csv"
		return
	fi
	n=$(attnreplay trace info --json - "$trace" | sed -n 's/.*"requests":\([0-9]*\).*/\1/p')
	repeat=$((($1 + n - 1) / n))
}

format='%8s %9s %10s %10s %7s %7s %8s %8s %8s %9s %9s\n'
printf "$format" requests stored iterations entries 'run, s' 'rep., s' 'run, MB' 'db, MB' \
	'us/req.' 'B/req.' 'db B/req.'
for n; do
	requests "$n"
	for keep in ${KEEP:-none requests}; do
		rm -f "$tmp"/db*
		echo 0 0 >"$tmp/report"
		stored="--db $tmp/db --intervals off --keep-tables $keep"
		[ "$keep" = none ] && stored=
		# shellcheck disable=SC2086 # lists of options
		measure "$tmp/run" "$top/contrib/program" -q run --trace "$trace" --repeat "$repeat" \
			--rate "$RATE" ${RUN:---backend roofline --gpu h100 --model llama-3.1-8b} $stored \
			>"$tmp/out"
		[ "$keep" = none ] ||
			measure "$tmp/report" "$top/contrib/program" report "$tmp/db" >/dev/null
		bytes=$(cat "$tmp"/db* 2>/dev/null | wc -c)
		counts=$(sed -n 's/^\([0-9]*\) iterations, \([0-9]*\) entries.*/\1 \2/p' "$tmp/out")
		ok=$(sed -n 's/^[^ ]*: \([0-9]*\) requests ok.*/\1/p' "$tmp/out")
		echo "$ok $keep $counts $(cat "$tmp/run" "$tmp/report" | tr '\n' ' ') $bytes" |
			awk -v format="$format" '{ printf format, $1, $2, $3, $4, $5, $7,
				sprintf("%.1f", $6 * 1024 / 1e6), sprintf("%.1f", $9 / 1e6),
				sprintf("%.1f", $5 * 1e6 / $1), sprintf("%.0f", $6 * 1024 / $1),
				sprintf("%.0f", $9 / $1) }'
	done
done
[ ! -e "$tmp/db" ] || attnreplay sql "$tmp/db" "SELECT name AS part, sum(pgsize) / 1e6 AS MB
	FROM dbstat GROUP BY 1 ORDER BY 2 DESC LIMIT 4" 2>/dev/null || :
