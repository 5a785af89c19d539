#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/bench.sh [FOLDER]
#
# Compare the attention kernels with those of others on the same shapes.  The programs take turns on
# one GPU.  Writes ours.jsonl, theirs.jsonl, report.txt and table.md to FOLDER (default:
# bench-results).  Without PyTorch only the comparisons within our own rows are made.  The exit
# status is 1 when a result is wrong, a target is missed or time runs out.
#
#   ATTNREPLAY  the program (default: see contrib/program)
#   BEFORE      another attnreplay, such as that of an older commit; it takes turns, and the report has
#               it as one more implementation (default: none)
#   PYTHON      the Python program (default: python3)
#   CASES       file of cases to measure (default: contrib/bench.cases); of several files, which
#               blanks separate, each has a GPU of its own, from GPU 0 on, at the same time.  The
#               names of several have no blanks
#   ROUNDS      turns of each program (default: 4)
#   REPEAT      timed launches in a turn (default: 20)
#   LIMIT       seconds after which no new shape begins (default: 400)
#   IMPL        kernels to compare with (default: cudnn,flash,flex of PyTorch, and those whose
#               package is installed: fa3 of fa3-fwd, fa4 of flash-attn-4, flashinfer of
#               flashinfer-python); flex compiles for each shape
set -eu
. "$(dirname "$0")/common.sh"
out=${1:-bench-results}
python=${PYTHON:-python3}
cases=${CASES:-$top/contrib/bench.cases}
repeat=${REPEAT:-20}
several=
[ -e "$cases" ] || several=$cases
for file in $several; do
	[ -e "$file" ] && continue
	echo "bench.sh: no file of cases '$file'; where there are several, no name has blanks" >&2
	exit 1
done
command -v "$python" >/dev/null || {
	echo "bench.sh: no program '$python', which compares the results; name one as PYTHON" >&2
	exit 1
}

measure() { # measure CASES [PART]: write rows to ours PART.jsonl and theirs PART.jsonl
	"$python" "$top/contrib/bench_torch.py" --cases "$1" --ours "$out/ours${2:-}.jsonl" \
		--theirs "$out/theirs${2:-}.jsonl" --rounds "${ROUNDS:-4}" --repeat "$repeat" \
		--limit "${LIMIT:-400}" ${IMPL:+--impl "$IMPL"} ${BEFORE:+--before "$BEFORE"} \
		-- "$top/contrib/program"
}

measure_each() { # measure_each CASES...: each on a GPU of its own
	gpu=0 pids=
	rm -f "$out"/ours.[0-9]*.jsonl "$out"/theirs.[0-9]*.jsonl # of a call that was killed
	for file; do
		(export CUDA_VISIBLE_DEVICES=$gpu && measure "$file" ".$gpu") &
		pids="$pids $!" gpu=$((gpu + 1))
	done
	for pid in $pids; do
		one=0
		wait "$pid" || one=$?
		[ $one -le $status ] || status=$one
	done
	for rows in ours theirs; do
		cat "$out/$rows".[0-9]*.jsonl >"$out/$rows.jsonl"
		rm "$out/$rows".[0-9]*.jsonl
	done
}

mkdir -p "$out"
status=0
: >"$out/ours.jsonl"
: >"$out/theirs.jsonl"
if "$python" -c "import importlib.util, sys; sys.exit(not importlib.util.find_spec('torch'))"; then
	if [ -n "$several" ]; then
		# shellcheck disable=SC2086
		measure_each $several
	else
		measure "$cases" || status=$?
	fi
else
	echo 'bench.sh: no PyTorch, nothing to compare with' >&2
	if [ -n "$several" ]; then
		# shellcheck disable=SC2086
		cat $several >"$out/cases"
	else
		cat "$cases" >"$out/cases"
	fi
	attnreplay bench attention --cases "$out/cases" --repeat "$repeat" \
		--json "$out/ours.jsonl" || status=$?
	rm "$out/cases"
fi
[ $status -le 1 ] || exit $status
"$python" "$top/contrib/bench_compare.py" "$out/ours.jsonl" "$out/theirs.jsonl" \
	--table "$out/table.md" >"$out/report.txt" || status=1
cat "$out/report.txt"
exit $status
