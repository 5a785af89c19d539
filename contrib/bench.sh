#!/bin/sh
# usage: contrib/bench.sh [FOLDER]
#
# Measure the attention kernels and PyTorch's on the same shapes, taking turns on one GPU, and
# compare.  Leaves ours.jsonl, theirs.jsonl and report.txt in FOLDER (default: bench-results).
# Without PyTorch only what needs none is compared.  The exit status is 1 when a result is wrong, a
# target is missed or time ran out.
#
#   ATTNREPLAY  the program (default: that of the build, or of an unpacked attnreplay-gpu)
#   PYTHON      python3
#   CASES       what is measured (default: contrib/bench.cases)
#   ROUNDS      turns of each (default: 4)
#   REPEAT      timed launches of a turn (default: 20)
#   LIMIT       seconds after which no shape is begun (default: 240)
#   IMPL        cudnn,flash,flex: what of PyTorch is measured; flex compiles for each shape
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-bench-results}
python=${PYTHON:-python3}
cases=${CASES:-$top/contrib/bench.cases}
repeat=${REPEAT:-20}

if [ -n "${ATTNREPLAY:-}" ]; then set -- "$ATTNREPLAY"
elif [ -x "$top/run" ]; then set -- "$top/run" "$top/attnreplay"
else set -- "$top/build/attnreplay"
fi

mkdir -p "$out"
status=0
: >"$out/ours.jsonl"
: >"$out/theirs.jsonl"
if "$python" -c 'import importlib.util, sys; sys.exit(not importlib.util.find_spec("torch"))'; then
	"$python" "$top/contrib/bench_torch.py" --cases "$cases" --ours "$out/ours.jsonl" \
		--theirs "$out/theirs.jsonl" --rounds "${ROUNDS:-4}" --repeat "$repeat" \
		--limit "${LIMIT:-240}" --impl "${IMPL:-cudnn,flash,flex}" -- "$@" || status=$?
else
	echo 'bench.sh: no PyTorch, nothing to compare with' >&2
	"$@" bench attention --cases "$cases" --repeat "$repeat" --json "$out/ours.jsonl" ||
		status=$?
fi
[ $status -le 1 ] || exit $status
"$python" "$top/contrib/bench_compare.py" "$out/ours.jsonl" "$out/theirs.jsonl" \
	>"$out/report.txt" || status=1
cat "$out/report.txt"
exit $status
