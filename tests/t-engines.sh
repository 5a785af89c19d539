#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Schedules that SGLang's own scheduler made, and a model of TensorRT-LLM's: one small workload for
# each of their rules.
. "$srcdir/tests/tap.sh"

# schedule NAME: the entries of the engine and of a replay, one line each: iteration, request, first
# token, tokens.
entries() {
	awk '/^[0-9]/ {
		for (i = 0; i < $5; i++) print $1 + i "," $2 "," $3 + i * $4 "," $4
	}' "$1" | sort -t, -n -k1,1 -k2,2
}
replayed() {
	# shellcheck disable=SC2046
	"$ATTNREPLAY" run --trace "$1.csv" --backend cost --cost-fixed 6ms --cost-per-token 20us \
		$(sed -n 's/^options //p' "$1.schedule") --db db >/dev/null &&
	"$ATTNREPLAY" sql --format csv db 'SELECT iter_no, req_no, start, n_tokens
		FROM iteration_request ORDER BY 1, 2' | sed 1d
}
same() {
	rm -f db
	entries "$1.schedule" >want && replayed "$1" >got && cmp want got
}

cd "$tmp" || exit 1
for file in "$srcdir"/tests/data/sglang/*.schedule "$srcdir"/tests/data/trtllm/*.schedule; do
	ok "$(sed -n '1s/^# //p' "$file")" same "${file%.schedule}"
done
is 'the name without a version is the newest' "$("$ATTNREPLAY" run --backend cost --policy sglang \
	--trace "$srcdir/tests/data/sglang/overlap.csv" --db named >/dev/null &&
	"$ATTNREPLAY" sql --format csv named "SELECT policy, value FROM run JOIN run_param
		USING (run_id) WHERE key = 'policy'" | sed 1d)" sglang-0.5.21,sglang-0.5.21
finish
