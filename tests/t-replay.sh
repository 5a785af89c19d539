#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with the cost backend: exact figures, refusals, job files, interrupts.
. "$srcdir/tests/tap.sh"

# trace FILE SECONDS,PROMPT,OUTPUT...: a trace in the Azure form
trace() {
	file=$1
	shift
	{
		echo TIMESTAMP,ContextTokens,GeneratedTokens
		for row; do echo "2023-11-16 18:00:0$row"; done
	} >"$file"
}

run() { "$ATTNREPLAY" run --backend cost $plain "$@"; }
table() { sed -n '/^ms /,$p' "$tmp/out"; }
refused() { pattern=$1; shift; fails 2 "$pattern" "$ATTNREPLAY" run "$@"; }

trace "$tmp/basic.csv" 0.0000000,10,3 0.0000000,5,2 0.0015000,3,2
trace "$tmp/chunk.csv" 0.0000000,2,8 0.0029000,20,2
trace "$tmp/tight.csv" 0.0000000,8,6 0.0000000,7,6 0.0015000,4,2
basic="--trace $tmp/basic.csv"
s1="$basic --max-num-batched-tokens 8 --block-size 4 --cost-fixed 1ms --cost-per-token 0"

# ---- figures ----

run $s1 >"$tmp/out" 2>"$tmp/err"
beside="defaults  none; beside vllm-0.16 on h100 (no GPU is named): 8 tokens, the engine's own 8192; 8 \
requests, the engine's own 1024; 4 tokens a block, the engine's own 16; no asynchronous scheduling, the \
engine's own is on; no prefix cache, the engine's own is on"
is 'a replay prints a header, then the latencies' "$(cat "$tmp/out")" \
"trace     basic.csv (azure), 3 requests
policy    vllm-0.16, 8 tokens and 8 requests an iteration
$beside
blocks    7 of 4 tokens (auto), one reserved
backend   cost
clock     cost, 1.00 ms + 0.00 ns a token
host      none (host time is not modelled)

cost: 3 requests ok, 0 rejected, 0 unfinished in 0.004000 s
4 iterations, 8 entries, 18 prefill and 4 decode tokens, 0 preemptions, 0 tokens recomputed
ms           count          mean           p50           p90           p99
TTFT             3         1.833         2.000         2.000         2.000
TPOT             3         1.000         1.000         1.000         1.000
ITL              4         1.000         1.000         1.000         1.000
E2E              3         3.167         3.000         3.800         3.980
queue            3         0.500         0.500         0.900         0.990"
is 'nothing is said on standard error' "$(cat "$tmp/err")" ''

run --trace "$tmp/chunk.csv" --max-num-batched-tokens 8 --cost-fixed 2ms --cost-per-token 500us \
	>"$tmp/out"
is 'the cost of a token moves the clock' "$(table)" \
"ms           count          mean           p50           p90           p99
TTFT             2        10.300        10.300        16.140        17.454
TPOT             2         3.500         3.500         3.900         3.990
ITL              8         3.875         3.000         6.000         6.000
E2E              2        25.800        25.800        29.960        30.896
queue            2         0.050         0.050         0.090         0.099"

run $s1 --host-overhead 500us >"$tmp/out"
ok 'host overhead is printed' grep -q '^host      none + 500 us an iteration$' "$tmp/out"
ok 'host overhead moves the clock' grep -q 'unfinished in 0.006000 s$' "$tmp/out"
run $s1 --host-overhead-per-request 100us --host-overhead-per-token 10us >"$tmp/out"
ok '... and is printed with its terms' grep -q \
	'^host      none + 100 us a request + 10.0 us a token$' "$tmp/out"
ok '... which move the clock too' grep -q 'unfinished in 0.005020 s$' "$tmp/out"

tight="--trace $tmp/tight.csv --max-num-batched-tokens 16 --block-size 4 --num-gpu-blocks 7
	--cost-fixed 1ms --cost-per-token 0"
run $tight >"$tmp/out"
ok 'a short pool preempts' grep -q '1 preemptions, 11 tokens recomputed$' "$tmp/out"
ok 'a given pool is not called auto' grep -q '^blocks    7 of 4 tokens, one reserved$' "$tmp/out"

run $s1 --num-gpu-blocks 3 >"$tmp/out" 2>"$tmp/err"
ok 'a request that cannot fit is rejected' grep -q '2 requests ok, 1 rejected' "$tmp/out"
is '... with its line and the reason' "$(cat "$tmp/err")" \
'attnreplay: warning: basic.csv:2: request rejected: needs 3 KV blocks, 2 are usable'
run $s1 --max-model-len 5 >"$tmp/out" 2>"$tmp/err"
is '... and several are counted' "$(cat "$tmp/err")" \
'attnreplay: warning: basic.csv:2: request rejected: prompt of 10 tokens, maximum length 5
attnreplay: warning: 2 requests rejected in all'

run $s1 --clock formula >"$tmp/a" && run $s1 >"$tmp/b"
ok 'the same options give the same bytes' cmp "$tmp/a" "$tmp/b"
run $s1 --trace - <"$tmp/basic.csv" >"$tmp/out"
ok 'a trace can come from standard input' grep -q '3 requests ok' "$tmp/out"

run $s1 --async-scheduling >"$tmp/out"
ok 'planning ahead is printed' grep -q ' 8 requests an iteration, planned ahead$' "$tmp/out"
ok '... and a request that arrives meanwhile waits' grep -q 'unfinished in 0.005000 s$' "$tmp/out"
run $s1 --async-scheduling --host-overhead 500us >"$tmp/out"
ok '... and the host works beside the iteration before' \
	grep -q 'unfinished in 0.004500 s$' "$tmp/out"

goodput() { run $s1 --slo "$1" | sed -n 's/^goodput: //p'; }
is 'the summary has the goodput' "$(goodput ttft:1.5ms)" \
	'1 of 3 requests (33.3 %) within ttft:1.5ms, 250 a second'
is '... a time that equals its limit keeps it' "$(goodput ttft:2ms,e2e:3ms)" \
	'2 of 3 requests (66.7 %) within ttft:2ms,e2e:3ms, 500 a second'
is '... and rejected requests keep none' \
	"$(run $s1 --num-gpu-blocks 3 --slo e2e:1s 2>/dev/null | sed -n 's/^goodput: \(.*)\).*/\1/p')" \
	'2 of 3 requests (66.7 %)'

# Two requests of 1024 and 1030 tokens that share their first 512, 1 s apart.
cat >"$tmp/prefix.jsonl" <<EOF
{"timestamp": 0, "input_length": 1024, "output_length": 1, "hash_ids": [1, 2]}
{"timestamp": 1000, "input_length": 1030, "output_length": 1, "hash_ids": [1, 3, 4]}
EOF
prefix="--trace $tmp/prefix.jsonl --max-num-batched-tokens 2048"
run $prefix --enable-prefix-caching >"$tmp/out"
ok 'a shared prefix is found in the cache' \
	grep -q '^512 tokens found in the prefix cache$' "$tmp/out"
ok '... and not computed' grep -q ' 1542 prefill and 0 decode tokens' "$tmp/out"
ok '... and the header says so' grep -q '(auto), one reserved, prefix cache$' "$tmp/out"
run $prefix >"$tmp/out"
ok 'without a cache it is computed twice' grep -q ' 2054 prefill and 0 decode tokens' "$tmp/out"

# ---- refusals ----

ok 'no trace is wrong usage'           refused 'no trace given' --backend cost
ok 'an operand is wrong usage'         refused "operand 'x.csv'" --backend cost $basic x.csv
ok 'an unknown policy is named'        refused "'vlm': want one of vllm-0.16" $basic --policy vlm
ok 'a setting the policy lacks is refused' refused 'watermark has no effect with policy vllm-0.16' \
	$basic --policy vllm-0.16 --watermark 0.1
ok 'a policy without asynchronous scheduling refuses it' \
	refused 'async-scheduling has no effect with policy sarathi' $basic --policy sarathi \
	--async-scheduling
ok 'a budget below a block is refused where chunks are whole blocks' \
	refused 'max-num-batched-tokens 8 is less than a block of 16 tokens' $basic \
	--policy trtllm-no-evict-1.2 --max-num-batched-tokens 8 --block-size 16
ok '... or a unit' \
	refused 'max-num-batched-tokens 16 is less than a unit of 17 tokens' $basic \
	--policy trtllm-no-evict-1.2 --max-num-batched-tokens 16 --chunk-unit-size 17
ok 'a unit of chunks is refused without chunks' \
	refused 'chunk-unit-size has no effect with --chunk-policy none' $basic \
	--policy trtllm-no-evict-1.2 --chunk-policy none --chunk-unit-size 17
for o in max-prefill-tokens=99 ignore-eos chunk-unit-size=8 survive-out-of-memory; do
	ok "vllm-0.16 has no $o" refused "${o%%=*} has no effect with policy vllm-0.16" $basic \
		--policy vllm-0.16 --"$o"
done
trace "$tmp/short.csv" 0.0000000,1,23 0.0005000,20,1
short="--trace $tmp/short.csv --backend cost --cost-fixed 1ms --cost-per-token 0 --block-size 1
	--policy sglang-mixed-0.5.21 --max-num-batched-tokens 2 --max-num-seqs 2 --num-gpu-blocks 41"
# shellcheck disable=SC2086
"$ATTNREPLAY" run $plain $short --db "$tmp/short.db" >"$tmp/out" 2>"$tmp/err"
is 'where its engine fails, a run fails' "$?$(sed -n 's/.*\(here the engine fails.*\); give.*/ \1/p' \
	"$tmp/err")" '3 here the engine fails, out of memory for a prompt or for decodes beside it'
is '... and keeps what it has' "$("$ATTNREPLAY" sql --format csv "$tmp/short.db" \
	'SELECT status, COUNT(*) FROM run JOIN iteration USING (run_id)' | sed 1d)" failed,20
# shellcheck disable=SC2086
"$ATTNREPLAY" run $plain $short --survive-out-of-memory --json "$tmp/short.json" >"$tmp/out"
ok '... or survives that' grep -q '^in 2 iterations the engine would fail, out of memory$' "$tmp/out"
ok '... and counts it in JSON' grep -q '"engine_failures":[[:space:]]*2' "$tmp/short.json"
ok 'an unknown backend is named'       refused "backend 'tpu'; this program has auto, " \
	$basic --backend tpu
ok 'kernels need a model'              refused 'no model given' $basic
ok 'a bad pool is refused'             refused "num-gpu-blocks '1'" $basic --num-gpu-blocks 1
ok 'a pool must be a number'           refused "num-gpu-blocks 'all'" $basic --num-gpu-blocks all
ok 'more requests than tokens starve'  refused 'max-num-seqs 9 exceeds' $basic --backend cost \
	--max-num-batched-tokens 8 --max-num-seqs 9
ok 'a bad clock is refused'            refused 'want one of measured, formula' $basic --clock sun
for o in model=m tp=2 capture=c method=dense decode=dense layers=0 sample-layers=1 extend=tile accuracy=0.1 \
	attention-only seed=1 prof=events keep-kernels=2 share-kv-across-methods \
	dense-as-engine=2; do
	ok "cost: --$o has no effect and is refused" refused \
		"^attnreplay: ${o%%=*} has no effect with backend cost; leave it out$" \
		$basic --backend cost --"$o"
done
ok 'cost: measuring is refused' refused "clock has no effect as 'measured' with backend cost" \
	$basic --backend cost --clock measured
ok 'extrapolation is of costs, whatever the clock' refused \
	'^attnreplay: costs-extrapolate has no effect without --costs; leave it out$' \
	$basic --backend cpu --clock formula --costs-extrapolate
ok 'options of another backend are refused' refused \
	'^attnreplay: cost-fixed has no effect with --clock measured; leave it out$' \
	$basic --backend cpu --cost-fixed 1ms
ok '--keep-entries without a database has no effect and is refused' refused \
	'^attnreplay: keep-entries has no effect without --db; leave it out$' \
	$basic --backend cost --keep-entries no
ok 'limits that are none are wrong usage' refused "slo 'fast'" $basic --backend cost --slo fast
ok 'a missing trace is bad data' fails 3 none.csv "$ATTNREPLAY" run --backend cost \
	--trace "$tmp/none.csv"

# ---- job files ----

cat >"$tmp/job" <<EOF
# the same as above
trace = $tmp/basic.csv
backend = cost
max-num-batched-tokens = 8
block-size = 4
cost-fixed = 1ms
cost-per-token = 0
policy = vllm-0.16
engine-defaults = none
EOF
"$ATTNREPLAY" run --job "$tmp/job" >"$tmp/a"
ok 'a job file gives the same as options' cmp "$tmp/a" "$tmp/b"
"$ATTNREPLAY" run --job "$tmp/job" --cost-fixed 2ms >"$tmp/out"
ok 'the command line wins over the job file' grep -q 'unfinished in 0.008000 s' "$tmp/out"
echo 'sede = 1' >>"$tmp/job"
ok 'a misspelt name in a job file is an error with its line' \
	refused "job:10: unknown option 'sede'; did you mean 'seed'?" --job "$tmp/job"

# ---- closed loops ----

run $s1 --loop users --think-time 1ms >"$tmp/out"
is 'a user sends one request after another' \
	"$(sed -n '2p; /unfinished/s/.* in //p; /^queue/p' "$tmp/out")" \
"arrivals  of 1 users, think time 1.00 ms where the trace has none; its times are not used
0.010000 s
queue            3         0.000         0.000         0.000         0.000"
run $s1 --loop users --users 3 >"$tmp/out"
ok 'three users send three at once' grep -q 'unfinished in 0.004000 s$' "$tmp/out"
ok 'a session to wait for is needed' \
	fails 2 'basic.csv: the trace has no sessions; replay it' run $s1 --loop sessions
cat >"$tmp/chat.jsonl" <<'EOF'
{"format":"reqtrace","version":1,"block_size":0,"requests":4}
{"id":0,"arrival_ns":0,"prompt_tokens":4,"output_tokens":3,"session":"a","turn":0}
{"id":1,"arrival_ns":1000,"prompt_tokens":900,"output_tokens":1,"session":"a","turn":1}
{"id":2,"arrival_ns":2000,"prompt_tokens":4,"output_tokens":1,"session":"a","turn":2,"think_ns":500000}
{"id":3,"arrival_ns":9000000,"prompt_tokens":4,"output_tokens":1}
EOF
chat="--trace $tmp/chat.jsonl --cost-fixed 1ms --cost-per-token 0 --max-model-len 100"
run $chat --loop sessions --think-time 2ms >"$tmp/out" 2>/dev/null
is 'a session goes on after the answer, the pause and what was rejected' \
	"$(sed -n '2p; /unfinished/s/.* in //p; /^E2E/p' "$tmp/out")" \
"arrivals  follow answers in a session, think time 2.00 ms where the trace has none
0.010000 s
E2E              3         1.667         1.000         2.600         2.960"
ok 'users are for the loop of users' refused 'users has no effect without --loop users' \
	$basic --backend cost --users 3
ok 'who thinks waits for an answer'  refused 'think-time has no effect with --loop open' \
	$basic --backend cost --think-time 1s
ends() { run $chat --loop sessions --think-time 2ms "$@" 2>/dev/null |
	sed -n '/unfinished/s/.* in //p'; }
is 'think times can be scaled'        "$(ends --think-scale 20)" '0.016000 s'
is '... after they were cut'          "$(ends --think-scale 20 --think-cap 450us)" '0.015000 s'
is 'idle times can be cut'            "$(ends --idle-cap 100us)" '0.005300 s'
ok 'and the header says so'           grep -q '^          idle at most 1.00 s before all' <<-EOF
	$(run $s1 --idle-cap 1s)
EOF
ok 'a trace without think times has none to change' \
	fails 2 'think-cap has no effect: basic.csv has no think times; leave it out' \
	run $s1 --loop users --think-cap 1s
ok 'users begin at once' \
	fails 2 'session-starts has no effect with --loop users, which start at once; leave it' \
	run $s1 --loop users --session-starts poisson:2
ok '... in any order'                 run $s1 --loop users --session-starts zero \
	--session-order shuffle
ok '... or to scale'                  fails 2 'think-scale has no effect: basic.csv has no think' \
	run $s1 --loop users --think-scale 2
run --trace "$srcdir/tests/data/weka-2.jsonl" --cost-fixed 1ms --cost-per-token 0 \
	--max-num-batched-tokens 8192 --num-gpu-blocks 20000 --loop sessions --think-cap 1s \
	--db "$tmp/weka.db" >/dev/null 2>&1
# Request 0 ends at 0.246 s, its sub-agent (3 and 5) at 2.82 s.  Then comes request 6.
is 'a session waits for what it started' "$("$ATTNREPLAY" sql --format csv "$tmp/weka.db" \
	"SELECT group_concat(arrival_ns / 1000000, ' ') AS ms FROM (SELECT arrival_ns
	FROM request_outcome ORDER BY req_no)")" "$(printf 'ms\n%s' \
	'0 0 1254 1188 2535 2552 3820')"

run --trace "$srcdir/tests/data/weka-2.jsonl" --cost-fixed 1ms --cost-per-token 0 --enable-prefix-caching \
	--max-num-batched-tokens 8192 --num-gpu-blocks 20000 --loop sessions --session-starts zero \
	--start-within 0.25:0.75 --db "$tmp/middle.db" >"$tmp/out" 2>&1
is 'sessions can begin in their middle, after a prompt that is counted in nothing' \
	"$(grep -c '^cost: 2 requests ok, 0 rejected, 0 unfinished' "$tmp/out") $("$ATTNREPLAY" sql --format csv \
	"$tmp/middle.db" "SELECT req_no, cached_tokens FROM request_outcome" | tail -n +2 | tr '\n' ' ')" \
	'1 2,11392 3,16512 '
run --trace "$srcdir/tests/data/weka-2.jsonl" --cost-fixed 1ms --cost-per-token 0 --loop users --users 1 \
	--max-num-batched-tokens 8192 --num-gpu-blocks 20000 --session-starts zero \
	--start-within 0.25:0.75 >"$tmp/out" 2>&1
ok '... but for those that users take later' grep -q '^cost: 4 requests ok, 0 rejected' "$tmp/out"

cat >"$tmp/warm.jsonl" <<'EOF'
{"format":"reqtrace","version":1,"block_size":0,"requests":2}
{"id":0,"arrival_ns":0,"prompt_tokens":300,"output_tokens":4,"x_warmup":true}
{"id":1,"arrival_ns":0,"prompt_tokens":200,"output_tokens":4}
EOF
"$ATTNREPLAY" run --backend cpu --trace "$tmp/warm.jsonl" --model niah-llama-14m --accuracy 1 \
	--capture "$srcdir/traces/samples/niah-2k.arc" --method dense/decode=oracle,budget=20 \
	--db "$tmp/warm.db" >/dev/null 2>&1
is '... nor in samples of accuracy and hot buffers' \
	"$("$ATTNREPLAY" sql --format csv "$tmp/warm.db" "SELECT half, req_no, count(DISTINCT chunk_start),
	(SELECT max(n_rows) FROM hot_buffer) FROM accuracy_sample GROUP BY half, req_no" | tail -n +2)" \
	"$(printf 'decode,1,3,3\nprefill,1,1,3')"

figure() { "$ATTNREPLAY" report --format csv "$tmp/turns.db" --table "$1" | sed 1d; }
run --trace "$srcdir/tests/data/weka-2.jsonl" --cost-fixed 1ms --cost-per-token 10us \
	--max-num-batched-tokens 8192 --num-gpu-blocks 20000 --enable-prefix-caching \
	--loop sessions --db "$tmp/turns.db" >/dev/null 2>&1
# A session runs 23.6 s with its sub-agent, the other 8.9 s: 2 in 25.4 s are 283 an hour.  Of 93,653
# prompt tokens 47,616 were seen before, and are cached.
is 'the report has sessions' "$(figure sessions | sed 's/\.[0-9]*//g')" 1,,2,2,283,16,23,90,50,50
is '... and TTFT by new and cached tokens' "$(figure turns | cut -d, -f 3-5 | tr '\n' ' ')" "new,1024 to 4095,3 \
new,4096 to 16383,3 new,16384 to 65535,1 cached,0 to 255,3 cached,4096 to 16383,3 \
cached,16384 to 65535,1 "

# ---- the end of the clock ----

cat >"$tmp/late.jsonl" <<'EOF'
{"format":"reqtrace","version":1,"block_size":0,"requests":2}
{"id":0,"arrival_ns":0,"prompt_tokens":4,"output_tokens":3}
{"id":1,"arrival_ns":9223372036854000000,"prompt_tokens":4,"output_tokens":1}
EOF
passes_end() {
	run --trace "$tmp/late.jsonl" --db "$tmp/late.db" >"$tmp/out" 2>"$tmp/err"
	[ $? = 3 ] && grep -q '^attnreplay: iteration 3: the clock passed 292 years$' "$tmp/err"
}
ok 'a clock that passes its end fails the run' passes_end
is '... which keeps the iterations before' "$("$ATTNREPLAY" sql --format csv "$tmp/late.db" \
	'SELECT status, count(*), min(end_ns) > 0 FROM run JOIN iteration USING(run_id)' |
	tail -n +2)" failed,3,1
ok '... and can be reported' "$ATTNREPLAY" report "$tmp/late.db"
ok 'a trace longer than half of the clock is not repeated' fails 2 \
	'late.jsonl: --repeat: the trace takes 292 years, more than half of the 292 of the clock$' \
	run --trace "$tmp/late.jsonl" --repeat 2

# ---- the database ----

query() { sqlite3 "$tmp/db" "$1" 2>&1; }
with_views() { sqlite3 -cmd ".read $tmp/views.sql" "$@"; }
"$ATTNREPLAY" sql --views >"$tmp/views.sql"
if command -v sqlite3 >/dev/null; then
	run $s1 --db "$tmp/db" >/dev/null
	is 'the run is stored' "$(query 'SELECT status, clock, backend, num_blocks FROM run')" \
		'done|cost|cost|7'
	is 'its iterations are stored' "$(query 'SELECT start_ns / 1000000, prefill_tokens,
		decode_tokens, waiting, running, blocks_used, stop
		FROM iteration ORDER BY iter_no')" \
'0|8|0|1|1|2|budget
1|7|0|0|2|5|empty
2|3|2|0|3|6|empty
3|0|2|0|2|4|empty'
	is 'its requests are stored' "$(query 'SELECT outcome, ttft_ns, e2e_ns, output_tokens
		FROM request_outcome ORDER BY req_no')" \
'ok|2000000|4000000|3
ok|2000000|3000000|2
ok|1500000|2500000|2'
	run $prefix --enable-prefix-caching --db "$tmp/prefix.db" >/dev/null
	is 'a request that finds its prefix starts behind it' "$(with_views "$tmp/prefix.db" 'SELECT
		req_no, min(start), sum(n_tokens), cached_tokens FROM iteration_request
		JOIN request_outcome USING(run_id, req_no) GROUP BY req_no')" \
'0|0|1024|0
1|512|518|512'
	run $tight --db "$tmp/tight.db" >/dev/null
	is 'what is computed again after a preemption is marked' "$(with_views "$tmp/tight.db" 'SELECT
		req_no, min(start), sum(n_tokens) >= recomputed_tokens, recomputed_tokens, n_preempt
		FROM iteration_request JOIN request_outcome USING(run_id, req_no)
		WHERE recompute GROUP BY req_no')" '1|0|1|11|1'
	is '... and nothing else is' "$(with_views "$tmp/tight.db" 'SELECT sum(n_tokens) -
		(SELECT sum(prompt_tokens + output_tokens - 1 + recomputed_tokens)
		FROM request_outcome)
		FROM iteration_request')" 0
	run $tight --keep-entries no --db "$tmp/lean.db" >/dev/null
	is 'a run need not keep its entries' "$(with_views "$tmp/lean.db" \
		'SELECT count(*) FROM iteration_request')" 0
	is '... and all else is the same' "$(with_views "$tmp/lean.db" \
		'SELECT * FROM iteration; SELECT * FROM request_outcome;
		SELECT * FROM v_latency')" \
		"$(with_views "$tmp/tight.db" \
		'SELECT * FROM iteration; SELECT * FROM request_outcome;
		SELECT * FROM v_latency')"
	is 'the limits of a run are stored with it' "$(run $s1 --slo ttft:2ms --db "$tmp/lean.db" \
		>/dev/null
		sqlite3 "$tmp/lean.db" "SELECT value FROM run_param WHERE key = 'slo'")" ttft:2ms
	run $s1 --num-gpu-blocks 3 --db "$tmp/db" >/dev/null 2>&1
	is 'a rejection is stored with its reason' "$(query "SELECT reason FROM request_outcome
		WHERE outcome = 'rejected'")" 'needs 3 KV blocks, 2 are usable'
	run $s1 --loop users --think-time 1ms --db "$tmp/db" >/dev/null
	is 'arrivals are stored as they came in a closed loop' "$(query 'SELECT arrival_ns
		FROM request_outcome WHERE run_id = 3 ORDER BY req_no')" '0
5000000
8000000'
else
	skip 'the run is stored in the database' 'no sqlite3'
fi

rm -f "$tmp/ids.db"
run $s1 --db "$tmp/ids.db" >"$tmp/out"
is 'the number of a stored run is printed' "$(tail -1 "$tmp/out")" "stored as run 1 in $tmp/ids.db"
run $s1 --db "$tmp/ids.db" >"$tmp/out"
is '... of each' "$(tail -1 "$tmp/out")" "stored as run 2 in $tmp/ids.db"

# ---- kernels in C under the same clock ----

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
cpu() {
	"$ATTNREPLAY" run $plain --backend cpu $basic --max-num-batched-tokens 8 --block-size 4 \
		--model niah-llama-14m --capture "$arc" --sample-layers 1 "$@"
}
trace "$tmp/toolong.csv" 0.0000000,3000,1
if "$ATTNREPLAY" run --trace x --backend none 2>&1 | grep -q ', cpu' && [ -f "$arc" ]; then
	cpu --clock formula --cost-fixed 1ms --cost-per-token 0 --method dense,compact-fp \
		--accuracy 1 >"$tmp/out"
	run $s1 | sed -n '/ iterations, /,$p' >"$tmp/want"
	for m in dense compact-fp; do
		sed -n "/^$m: /,/^queue/p" "$tmp/out" | sed 1d >"$tmp/got"
		ok "cpu: the formula gives $m the schedule of the cost backend" \
			cmp "$tmp/got" "$tmp/want"
	done
	is 'cpu: a program without CUDA says so when none was named, even with -q' \
		"$("$ATTNREPLAY" -q run $basic --max-num-batched-tokens 8 --block-size 4 \
		--model niah-llama-14m --capture "$arc" --sample-layers 1 --accuracy 0 2>&1 \
		>"$tmp/auto" | grep -c '^attnreplay: .*; using backend cpu$')" \
		"$(grep -c '^backend   cpu' "$tmp/auto")"
	is 'cpu: ... and nothing when it was named' "$(cpu --accuracy 0 2>&1 >/dev/null)" ''
	ok 'cpu: samples are compared with dense' grep -q '^against dense, 4 samples' "$tmp/out"
	ok 'cpu: layers that are left out are told' \
		grep -q '^model .* 1 layers executed and scaled to 8$' "$tmp/out"
	cat >"$tmp/short.jsonl" <<EOF
{"format":"reqtrace","version":1,"block_size":16,"epoch":null,"context":"cumulative","requests":2,"sources":[],"transforms":[]}
{"id":0,"arrival_ns":0,"prompt_tokens":40,"output_tokens":2,"blocks":[0,1,2]}
{"id":1,"arrival_ns":0,"prompt_tokens":40,"output_tokens":2,"blocks":[0,1,3]}
EOF
	cpu --trace "$tmp/short.jsonl" --block-size 16 --max-num-batched-tokens 64 \
		--num-gpu-blocks 8 --enable-prefix-caching --method dense,compact-fp --accuracy 1 \
		>"$tmp/out" 2>&1
	is 'cpu: requests share a prefix within an iteration' \
		"$(grep -c '^32 tokens found in the prefix cache$' "$tmp/out")" 2
	ok 'cpu: ... and read it' grep -q '^against dense, 2 samples: relative L2 mean 0 max 0' \
		"$tmp/out"
	cpu --trace "$tmp/short.jsonl" --block-size 16 --max-num-batched-tokens 64 \
		--num-gpu-blocks 8 --enable-prefix-caching --method dense,compact-fp --accuracy 1 \
		--no-share-kv >"$tmp/private" 2>&1
	is 'cpu: ... or a copy of their own' "$(grep '^against' "$tmp/private")" \
		"$(grep '^against' "$tmp/out")"
	{
		sed -n '1s/"requests":2/"requests":6/; 1s/_size":16/_size":4/p' "$tmp/short.jsonl"
		for i in 0 1 2 3 4 5; do
			printf '{"id":%d,"arrival_ns":0,"prompt_tokens":40,"output_tokens":2,"blocks":[%s]}\n' \
				$i "$(seq -s, $((i % 5 * 10)) $((i % 5 * 10 + 9)))"
		done
	} >"$tmp/again.jsonl"
	cpu --trace "$tmp/again.jsonl" --block-size 4 --max-num-seqs 1 --num-gpu-blocks 65 \
		--enable-prefix-caching --accuracy 1 >"$tmp/out" 2>&1
	is 'cpu: a page is given up, and its tokens are filled again' \
		"$(sed -n '/tokens found/p; /on no page/p' "$tmp/out")" \
		'36 tokens found in the prefix cache
36 of them were on no page, and filled outside of the measured time'
	ok 'cpu: shared pages without a cache are refused' \
		fails 2 'share-kv has no effect without --enable-prefix-caching' cpu --share-kv
	cpu --trace "$tmp/short.jsonl" --policy sglang --block-size 1 --max-num-batched-tokens 40 \
		--num-gpu-blocks 129 --enable-prefix-caching --accuracy 1 >"$tmp/out" 2>&1
	is 'cpu: blocks of a token share a prefix, one plan later' \
		"$(sed -n '/tokens found/p; s/^\(against.*max 0\),.*/\1/p' "$tmp/out")" \
		'32 tokens found in the prefix cache
against dense, 2 samples: relative L2 mean 0 max 0'
	cpu --trace "$tmp/short.jsonl" --block-size 16 --max-num-batched-tokens 64 \
		--num-gpu-blocks 8 --enable-prefix-caching --share-kv-across-methods --accuracy 0 \
		>"$tmp/out" 2>&1
	ok 'cpu: methods may share the names of blocks' \
		grep -q '^blocks    8 of 16 tokens, one reserved, prefix cache across methods$' \
		"$tmp/out"
	ok 'cpu: ... and find them as before' \
		grep -q '^32 tokens found in the prefix cache$' "$tmp/out"
	ok 'cpu: sharing without a cache is refused' \
		fails 2 'share-kv-across-methods has no effect without --enable-prefix-caching' \
		cpu --share-kv-across-methods
	ok 'cpu: a cost without formula has no effect' \
		fails 2 'cost-fixed has no effect with --clock measured' cpu --cost-fixed 1ms
	ok 'cpu: kernels are not traced' fails 2 'prof has no effect with backend cpu' \
		cpu --prof events
	echo '{"about": "an engine", "prefill": [[1, 3]], "decode": [[1, 5]]}' >"$tmp/as.json"
	trace "$tmp/once.csv" 0.0000000,10,3 0.0000000,5,2 0.0000000,3,2
	for as in 3,5 "$tmp/as.json"; do
		cpu --trace "$tmp/once.csv" --accuracy 0 --dense-as-engine "$as" \
			--method dense,compact-fp,dense/decode=streaming \
			--db "$tmp/as.db" >>"$tmp/as" 2>&1
	done
	is 'cpu: dense attention at the cost of an engine is named' \
		"$(sed -n 's/^dense     //p' "$tmp/as")" \
"as the engine's: attention x 3, decode x 5 (--dense-as-engine)
as the engine's: $tmp/as.json: an engine (--dense-as-engine)"
	is 'cpu: ... its iterations cost that, and of those of other methods the dense half' \
		"$("$ATTNREPLAY" sql --format csv "$tmp/as.db" "SELECT run_id, count(*),
		sum(end_ns - start_ns - host_ns = 8 * CASE run_id % 3 WHEN 1 THEN 3 * attend + 5 * decode
		WHEN 2 THEN total + 4 * decode ELSE total + 2 * attend END) AS equal FROM iteration JOIN (SELECT run_id, iter_no,
		sum(gpu_ns) AS total, sum(gpu_ns * (name = 'attend')) AS attend,
		sum(gpu_ns * (name = 'decode')) AS decode FROM iteration_phase
		JOIN phase USING(phase_id) GROUP BY run_id, iter_no) USING(run_id, iter_no)
		GROUP BY run_id" | tail -n +2)" '1,4,4
2,4,4
3,4,4
4,4,4
5,4,4
6,4,4'
	ok 'cpu: ... not when the formula moves the clock' \
		fails 2 'dense-as-engine has no effect with --clock formula; leave it out' \
		cpu --clock formula --dense-as-engine 2
	ok 'cpu: a bad factor is refused' \
		fails 2 "dense-as-engine '0': no such file; want a file of" cpu --dense-as-engine 0
	echo '{"prefill": [[1, 3]]}' >"$tmp/as.json"
	ok 'cpu: ... and a bad file' fails 3 "as.json: 'decode': want an array of 1 to 64 pairs" \
		cpu --dense-as-engine "$tmp/as.json"
	ok 'cpu: a layer that was not captured is refused' fails 2 'does not hold layer 77' \
		cpu --layers 77
	ok 'cpu: a request longer than the capture is refused' \
		fails 2 'toolong.csv:2: request runs 3000 tokens, the longest capture has 2112' \
		cpu --trace "$tmp/toolong.csv"
	ok 'cpu: ... also by the token that a policy runs past its end' \
		fails 2 'toolong.csv:2: request runs 3001 tokens, the longest capture has 2112' \
		cpu --trace "$tmp/toolong.csv" --policy sglang-0.5.21 --async-scheduling
else
	skip 'cpu: the formula gives the schedule of the cost backend' \
		'no backend cpu or no capture'
fi

# ---- interrupts ----

awk 'BEGIN { print "TIMESTAMP,ContextTokens,GeneratedTokens"
	for (i = 0; i < 4000; i++) print "2023-11-16 18:00:00.0000000,100,1000000" }' \
	>"$tmp/long.csv"
db=
command -v sqlite3 >/dev/null && db="--db $tmp/long.db"

interrupt() { # interrupt SIGNAL OPTION...: started, then stopped by the signal
	signal=$1
	shift
	rm -f "$tmp/out"
	$catchable "$ATTNREPLAY" run --backend cost --trace "$tmp/long.csv" "$@" \
		>"$tmp/out" 2>"$tmp/err" &
	pid=$!
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		[ -s "$tmp/out" ] && break
		sleep 0.5
	done
	kill -s "$signal" "$pid"
	wait "$pid"
	status=$?
	cat "$tmp/err"
	[ $status = 1 ] &&
		grep -q '^attnreplay: interrupted after [0-9]* iterations; 0 of 4000' "$tmp/err"
}
ok 'an interrupt ends the run with status 1'   interrupt INT
ok '... and prints what there is' \
	grep -q '0 requests ok, 0 rejected, 4000 unfinished' \
	"$tmp/out"
ok 'termination ends it as well'               interrupt TERM $db
if [ "$db" ]; then
	is '... and the run is marked' "$(sqlite3 "$tmp/long.db" 'SELECT status FROM run')" aborted
	is '... with whole iterations' "$(with_views "$tmp/long.db" 'SELECT count(*) FROM iteration
		LEFT JOIN (SELECT run_id, iter_no, count(*) AS n FROM iteration_request
			GROUP BY run_id, iter_no) USING(run_id, iter_no)
		WHERE n IS NOT batch_size')" 0
fi

# The process of the second method exists when the replay of the first is over.
if [ "$db" ] && "$ATTNREPLAY" run --trace x --backend none 2>&1 | grep -q ', cpu' && [ -f "$arc" ]; then
	"$ATTNREPLAY" run $plain --backend cpu --trace "$tmp/short.jsonl" --model niah-llama-14m \
		--capture "$arc" --accuracy 0 --method dense,xattention --db "$tmp/two.db" \
		--json - >/dev/full 2>"$tmp/err"
	is 'a method has no turn when the results of one before cannot be written' "$?$(
		sqlite3 "$tmp/two.db" "SELECT '-' || count(*) FROM run")" 1-1
fi
finish
