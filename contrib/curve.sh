#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/curve.sh FOLDER --capture FILE [OPTION]...
#
# Draw accuracy-density curves: the error against dense attention over the density of each method,
# as its parameter varies.  OPTION... are options of 'attnreplay select', such as more captures,
# --context, --chunk, --layer and --backend.  Writes to FOLDER:
#
#   curve.csv    a line for each capture, method and layer
#   curve.txt    the output of select
#   curve.svg    the drawing
#   points.csv   the points of the drawing
#   curve.bound  each line against the oracle, the upper bound
#
# The exit status is 1 when a line is above its bound.
#
#   ATTNREPLAY  the program (default: see contrib/program)
#   PYTHON      the Python program (default: python3)
#   METHODS     the list of methods (default: sweeps over the thresholds and densities below, and
#               for each further selector the first method that 'attnreplay methods' lists)
#   GATE        a gate for seer; without a gate seer is left out
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || wrong_usage
out=$1
shift
python=${PYTHON:-python3}
command -v "$python" >/dev/null || {
	echo "curve.sh: no program '$python', which compares with the bound; name one as PYTHON" >&2
	exit 1
}

sweep() { # sweep BEFORE VALUE... AFTER: print BEFORE, the value, AFTER and a comma for each value
	before=$1
	shift
	while [ $# -gt 1 ]; do
		value=$1
		shift
		eval "after=\${$#}"
		printf '%s%s%s,' "$before" "$value" "$after"
	done
}
thresholds='0.002 0.01 0.03 0.06 0.12 0.25 0.5'
shares='0.02 0.05 0.1 0.2 0.4 0.7'
masses='0.5 0.7 0.8 0.9 0.95 0.99'
tokens='256 512 1024 2048 4096 8192'
bound='0.01 0.02 0.05 0.1 0.15 0.2 0.25 0.3 0.35 0.4 0.45 0.5'
bound="$bound 0.55 0.6 0.65 0.7 0.75 0.8 0.85 0.9 0.95"
plain=/union=none/exec=blocksparse
# shellcheck disable=SC2086
all=$(sweep flashprefill:alpha= $thresholds ''
	sweep compact-fp:alpha= $thresholds ''
	sweep xattention:threshold= $masses ''
	sweep flexprefill:min-budget=128,gamma= $masses ''
	sweep proxyattn:mass= $masses ''
	sweep quoka:kv-ratio= $shares ''
	sweep bfla:local= $tokens ''
	sweep minference:vertical=64,slash= $tokens ''
	sweep trishape:last-dense=0,recent= $tokens ''
	sweep ashape:local= $tokens ''
	[ -z "${GATE:-}" ] || {
		sweep "seer:gate=$GATE,threshold=" 0.0001 0.0003 0.001 0.003 0.01 0.03 ''
		sweep select=oracle,block=64,density= $bound $plain
	}
	sweep select=oracle,density= $bound $plain
	sweep select=density,density= $shares $plain)
# The first method of each selector that has no sweep, with a comma after each.
others() {
	attnreplay methods --json - | "$python" -c '
import json, re, sys
selector = {m["name"]: re.match("select=([^,/]*)", m["is"]).group(1)
            for m in json.load(sys.stdin)["methods"]}
swept = {"none"} | set(re.findall("select=([^,/]*)", sys.argv[1])) | set(sys.argv[2:])
swept |= {s for m, s in selector.items() if re.search("(^|,)%s:" % re.escape(m), sys.argv[1])}
for m, s in selector.items():
    if s not in swept:
        swept.add(s)
        print(m, end=",")' "$@"
}
# shellcheck disable=SC2086
[ -n "${METHODS:-}" ] || all=$all$(others "$all" ${GATE:-seer})

mkdir -p "$out"
attnreplay select --picture none --csv "$out/curve.csv" --method "${METHODS:-${all%,}}" "$@" \
	>"$out/curve.txt"
attnreplay curve --svg "$out/curve.svg" --points "$out/points.csv" "$out/curve.csv"
"$python" "$top/contrib/curve_bound.py" "$out/curve.csv" >"$out/curve.bound"
