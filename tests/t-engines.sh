#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Schedules that the schedulers of SGLang and vLLM made, and a model of TensorRT-LLM's: one small
# workload for each of their rules.
. "$srcdir/tests/tap.sh"

# schedule NAME: the entries of the engine and of a replay, one line each: iteration, request, first
# token, tokens.
entries() {
	awk '/^[0-9]/ {
		for (i = 0; i < $5; i++) print $1 + i "," $2 "," $3 + i * $4 "," $4
	}' "$1" | sort -t, -n -k1,1 -k2,2
}
replayed() { # replayed NAME OPTION...
	name=$1
	shift
	trace=$name.csv
	[ -e "$trace" ] || trace=$name.jsonl
	# shellcheck disable=SC2046
	"$ATTNREPLAY" run --trace "$trace" --backend cost --cost-fixed 6ms --cost-per-token 20us \
		--engine-defaults none $(sed -n 's/^options //p' "$name.schedule") "$@" --db db >/dev/null &&
	"$ATTNREPLAY" sql --format csv db 'SELECT iter_no, req_no, start, n_tokens
		FROM iteration_request ORDER BY 1, 2' | sed 1d
}
same() {
	rm -f db
	entries "$1.schedule" >want && replayed "$@" >got && cmp want got
}
other() { # other NAME OPTION...: the options give another schedule
	! same "$@" >/dev/null && [ -s got ]
}

cd "$tmp" || exit 1
for file in "$srcdir"/tests/data/*/*.schedule; do
	name=${file%.schedule}
	policy=$(sed -n 's/^options --policy \([^ ]*\).*/\1/p' "$file")
	older=$(sed -n 's/^unlike //p' "$file")
	ok "$policy: $(sed -n '1s/^# //p' "$file")" same "$name"
	[ -z "$older" ] || ok "... unlike $older" other "$name" --policy "$older"
done
is 'the name without a version is the newest' "$("$ATTNREPLAY" run --backend cost --policy sglang \
	--trace "$srcdir/tests/data/sglang/overlap.csv" --db named >/dev/null &&
	"$ATTNREPLAY" sql --format csv named "SELECT policy, value FROM run JOIN run_param
		USING (run_id) WHERE key = 'policy'" | sed 1d)" sglang-0.5.23,sglang-0.5.23
finish
