#!/bin/sh
# usage: contrib/bench.sh [FOLDER]
#
# Measure the attention kernels and PyTorch's on the same shapes, one after the other on one GPU, and
# compare.  Leaves ours.jsonl, theirs.jsonl and report.txt in FOLDER (default: bench-results).  Without
# PyTorch only what needs none is compared.  The exit status is 1 when a result is wrong or a target
# is missed.
#
#   ATTNREPLAY  the program (default: that of the build, or of an unpacked attnreplay-gpu)
#   PYTHON      python3
#   REPEAT      timed launches of each case (default: 30)
#   FLEX        seconds for flex_attention, which compiles for each shape (default: 180; 0: none)
set -eu
top=$(cd "$(dirname "$0")/.." && pwd)
out=${1:-bench-results}
python=${PYTHON:-python3}
repeat=${REPEAT:-30}

attnreplay() {
	if [ -n "${ATTNREPLAY:-}" ]; then "$ATTNREPLAY" "$@"
	elif [ -x "$top/run" ]; then "$top/run" "$top/attnreplay" "$@"
	else "$top/build/attnreplay" "$@"
	fi
}

mkdir -p "$out"
status=0
attnreplay bench attention --repeat "$repeat" --json "$out/ours.jsonl" || status=$?
[ $status -le 1 ] || exit $status
: >"$out/theirs.jsonl"
if "$python" -c 'import torch' 2>/dev/null; then
	"$python" "$top/contrib/bench_torch.py" --rows "$out/ours.jsonl" --json "$out/theirs.jsonl" \
		--repeat "$repeat" --flex "${FLEX:-180}" || status=1
else
	echo 'bench.sh: no PyTorch, nothing to compare with' >&2
fi
"$python" "$top/contrib/bench_compare.py" "$out/ours.jsonl" "$out/theirs.jsonl" \
	>"$out/report.txt" || status=1
cat "$out/report.txt"
exit $status
