#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/check_configs.sh TRACE CONFIG...
#
# Say of each config.json whether 'attnreplay run --backend roofline' runs it, or why it is refused;
# its parameters, bytes of KV of a token in all layers, layers with keys and layers, and keys that
# were not read.  Columns are separated by bars.
#
#   BUILD  the folder of the build (default: build)
#   GPU    the GPU of the roofline (default: h200)
#   TP     tensor-parallel ranks; a model that they do not divide is tried with half of them, and
#          so on (default: 8)
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 1 ] || wrong_usage
build=${BUILD:-build}
trace=$1
shift
[ -f "$build/Makefile" ] || {
	echo "check_configs.sh: no build in '$build', which knows the sizes; name its folder as BUILD" >&2
	exit 1
}
make -C "$build" tests/model-sizes >/dev/null

attempt() { # RANKS CONFIG
	"$build/attnreplay" run --backend roofline --gpu "${GPU:-h200}" --tp "$1" --model "$2" \
		--trace "$trace" 2>&1
}

printf 'config | run | parameters | KV bytes | layers | not read\n'
for config; do
	ranks=${TP:-8}
	until out=$(attempt "$ranks" "$config") || [ "$ranks" -eq 1 ]; do
		case $out in
		*'cannot split'* | *'change --tp'* | *'take --tp'*) ranks=$((ranks / 2)) ;;
		*) break ;;
		esac
	done
	name=$(basename "$config" .json)
	case $out in
	*TTFT*) how="runs, --tp $ranks" ;;
	*) how="refused: $(printf '%s\n' "$out" | tail -n 1 | sed "s|^attnreplay: ||; s|$config: ||")" ;;
	esac
	"$build/tests/model-sizes" "$config" | sed -n "s/.*: parameters \([0-9]*\), weights \([0-9]*\), KV \([0-9]*\), layers \([0-9/]*\)/\1 | \3 | \4 | /p; s/.*: refused: .*/- | - | - | /p" |
		sed "s/| , unread /| /; s#^#$name | $how | #"
done
