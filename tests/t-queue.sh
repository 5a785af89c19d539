#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run where requests are rejected over queue limits, and where no prompt is cut.
. "$srcdir/tests/tap.sh"

{
	echo arrived_at,num_prefill_tokens,num_decode_tokens
	for at in 0.000 0.001 0.002 0.012 0.060; do
		echo "$at,100,4"
	done
} >"$tmp/t.csv"
run() { "$ATTNREPLAY" -q run --trace "$tmp/t.csv" --policy vllm-0.33 --backend cost \
	--cost-fixed 10ms --cost-per-token 0 "$@"; }
outcomes() { "$ATTNREPLAY" sql --format csv "$1" "SELECT req_no, outcome, reason FROM request_outcome
	WHERE outcome <> 'ok'" | sed 1d; }
refused() { pattern=$1; shift; fails 2 "$pattern" run "$@"; }

# The first one is finished at 40 ms, after tokens at 10, 20, 30 and 40; it and the second are
# unfinished when the third and fourth arrive.
run --max-num-queued-reqs 2 --slo e2e:1s --db "$tmp/reqs" >"$tmp/out"
is 'a request that arrives while two are unfinished is rejected' "$(outcomes "$tmp/reqs")" \
'2,rejected,"HTTP 503: 2 requests are unfinished, max-num-queued-reqs 2"
3,rejected,"HTTP 503: 2 requests are unfinished, max-num-queued-reqs 2"'
is '... as the summary says' "$(grep -o '[0-9]* requests ok, [0-9]* rejected' "$tmp/out")" \
	'3 requests ok, 2 rejected'
ok '... and it is not good' grep -q 'goodput.*3 of 5' "$tmp/out"
"$ATTNREPLAY" report "$tmp/reqs" >"$tmp/report"
ok '... and the report has it' grep -q '2 requests were rejected' "$tmp/report"
# At 12 ms the first one has its first token.
run --max-num-queued-tokens 101 --db "$tmp/tok" >"$tmp/out"
is 'prompts count until their first token' "$(outcomes "$tmp/tok")" \
'2,rejected,"HTTP 503: 200 prompt tokens are queued, max-num-queued-tokens 101"'
run --max-num-queued-reqs none --max-num-queued-tokens none >"$tmp/out"
is 'without limits none is rejected' "$(grep -o '[0-9]* requests ok, [0-9]* rejected' "$tmp/out")" \
	'5 requests ok, 0 rejected'
run --max-num-queued-reqs 0 --db "$tmp/none" >"$tmp/out"
is 'a limit of 0 rejects all' "$(grep -o '[0-9]* requests ok, [0-9]* rejected' "$tmp/out")" \
	'0 requests ok, 5 rejected'
for o in max-num-queued-reqs max-num-queued-tokens; do
	ok "$o is a number, or none" refused "$o '-1': want none or an integer from 0" --"$o" -1
	ok "... of vllm-0.33" refused "$o has no effect with policy vllm-0.24" --policy vllm-0.24 \
		--"$o" 1
done

whole='--no-enable-chunked-prefill --max-model-len 128'
# shellcheck disable=SC2086
run $whole --max-num-batched-tokens 150 --db "$tmp/whole" >"$tmp/out"
is 'without chunked prefill no prompt is cut' "$("$ATTNREPLAY" sql --format csv "$tmp/whole" \
	'SELECT count(*), min(n_tokens) FROM iteration_request WHERE start = 0' | sed 1d)" 5,100
# shellcheck disable=SC2086
ok 'the budget is at least the maximum length' refused \
	'max-num-batched-tokens 127: without chunked prefill it is at least .* of a request, 128' \
	$whole --max-num-batched-tokens 127
ok '... and if it is not given, it grows' grep -q ', 9000 tokens and ' <<END
$(run --no-enable-chunked-prefill --max-model-len 9000)
END
ok '... up to the longest request, where nothing limits that' refused \
	'of a request, 104' --no-enable-chunked-prefill --max-num-batched-tokens 103 --max-num-seqs 8
ok 'a prefix cache of states cuts prompts' fails 2 \
	'leave --no-enable-chunked-prefill or --enable-prefix-caching out' \
	"$ATTNREPLAY" -q run --trace "$tmp/t.csv" --policy vllm-0.33 --backend roofline --gpu h200 \
	--model qwen3-next-80b-a3b --no-enable-chunked-prefill --enable-prefix-caching
ok 'SGLang has another option for it' refused \
	'enable-chunked-prefill has no effect with policy sglang' --policy sglang \
	--no-enable-chunked-prefill
finish
