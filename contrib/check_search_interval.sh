#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/check_search_interval.sh REQUESTS SEEDS [OPTION...]
#
# Check how often the interval of 'attnreplay search rate' holds the rate that it is of.  Requests
# arrive by a Poisson process, and an iteration runs one of them in 100 ms: an M/D/1 queue, whose
# TTFT has a p99 of at most 1 s.  The true rate is the one at which half of 400 such experiments keep
# the limit: the median of 400 searches, with seeds of their own.  OPTION... are further options of
# the searches with intervals, such as --intervals-time 1min.
#
#   contrib/check_search_interval.sh 1000 200
#
# The exit status is 1 if fewer than LEAST percent (default 85) of the intervals hold it; a search
# without an interval does not.  EXPERIMENTS (default 400) is the number of experiments.  ATTNREPLAY
# is the program (default: from the build, or from an unpacked attnreplay-gpu).
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || wrong_usage
n=$1 seeds=$2
shift 2
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

# search SEED OPTION...: best, its interval, and its width
search() {
	attnreplay trace synth --count "$n" --arrivals poisson:rate=8 \
		--lengths lognormal:prompt=64,output=1 --trace-seed "$1" -o "$tmp/trace.jsonl"
	shift
	attnreplay search rate --slo ttft:p99:1s --trace "$tmp/trace.jsonl" --backend cost \
		--cost-fixed 100ms --cost-per-token 0 --max-num-seqs 1 --engine-defaults none \
		--precision 0.01 --json - "$@" | tr ',' '\n' | awk -F : '
		{ gsub(/[ \t"{}]/, "") }
		$1 == "best" || $1 == "failed" || $1 == "best_lo" || $1 == "best_hi" { x[$1] = $2 }
		END { print sqrt(x["best"] * x["failed"]), x["best_lo"], x["best_hi"] }'
}

i=0
while [ $((i += 1)) -le "${EXPERIMENTS:-400}" ]; do
	search $((1000000 + i)) --intervals off
done | cut -d ' ' -f 1 | sort -n >"$tmp/true"
true=$(awk '{ x[NR] = $1 } END { print x[int((NR + 1) / 2)] }' "$tmp/true")
i=0
while [ $((i += 1)) -le "$seeds" ]; do
	search $i "$@"
done | awk -v true="$true" -v least="${LEAST:-85}" '
	{ found[NR] = $1; none += $2 == "null" }
	$2 != "null" { held += $2 <= true && true <= $3; width += $3 - $2 }
	END {
		printf "true rate %.4g; %d of %d intervals hold it (%.1f %%), %d searches have ", \
			true, held, NR, 100 * held / NR, none
		printf "none; mean width %.3g\n", (NR > none) ? width / (NR - none) : 0
		exit 100 * held < least * NR
	}'
