#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --ranks local: ranks that schedule alike over a fake NCCL, and how they end when
# one of them fails.
. "$srcdir/tests/tap.sh"

ATTNREPLAY_NCCL=$(dirname "$ATTNREPLAY")/tests/fake_nccl.so
export ATTNREPLAY_NCCL
run() { "$ATTNREPLAY" -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --host none "$@"; }
modelled() { run --backend roofline --gpu h100 --model llama-3.1-8b --requests 60 "$@"; }
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n +2; }
schedule() { query "$1" 'SELECT iter_no, start_ns, end_ns, prefill_tokens, decode_tokens
	FROM iteration'; }
left() { ls /dev/shm | grep -c fake-nccl; }

for tp in 2 4; do
	modelled --tp $tp --intervals off --db "$tmp/one$tp.db" >"$tmp/one" &&
		modelled --tp $tp --ranks local --intervals off --db "$tmp/all$tp.db" >"$tmp/all"
	is "$tp ranks end" $? 0
	schedule "$tmp/one$tp.db" >"$tmp/one.csv"
	schedule "$tmp/all$tp.db" >"$tmp/all.csv"
	ok '... after 1000 iterations and more' [ "$(wc -l <"$tmp/all.csv")" -gt 1000 ]
	ok '... that are those of one rank' cmp "$tmp/one.csv" "$tmp/all.csv"
	is '... each with the times of all ranks' "$(query "$tmp/all$tp.db" "SELECT min(rank), max(rank),
		count(*) - $tp * (SELECT count(*) FROM iteration) AS more, (SELECT count(*) FROM (SELECT 1
		FROM iteration JOIN iteration_rank USING(run_id, iter_no) GROUP BY iter_no
		HAVING max(cost_ns) <> end_ns - start_ns)) AS other FROM iteration_rank")" "0,$((tp - 1)),0,0"
	ok '... says so' grep -q "^ranks     $tp processes over NCCL 2.28.9, NVLS off; the slowest" "$tmp/all"
	is '... and print the same' "$(grep -v "^stored" "$tmp/all" | tail -n 7)" \
		"$(grep -v "^stored" "$tmp/one" | tail -n 7)"
done
ok 'each method has its ranks' modelled --tp 2 --ranks local --method dense,compact-fp \
	--density 'compact-fp=0.2' --requests 3
small() { run --backend cpu --model smollm2-135m --tp 3 --capture random:0 --accuracy 0 \
	--sample-layers 1 --requests 2 --max-prompt-tokens 64 --max-output-tokens 3 "$@"; }
ok 'ranks run on processors, too' eval 'small --ranks local --intervals off --db "$tmp/small.db" >"$tmp/out"'
ok '... which says how evenly they leave a barrier' \
	grep -Eq '; they leave a barrier within [0-9.]+ us, in 99 % within [0-9.]+ us$' "$tmp/out"
is '... and stores it' "$(query "$tmp/small.db" 'SELECT barrier_spread_ns > 0,
	barrier_p99_ns >= barrier_spread_ns FROM run')" 1,1
is '... not of ranks without kernels' "$(query "$tmp/all2.db" 'SELECT barrier_spread_ns IS NULL,
	barrier_p99_ns IS NULL FROM run')" 1,1
ok '... and a report knows that they ran' \
	eval '"$ATTNREPLAY" report "$tmp/small.db" | grep -q "the times of 3 ranks are without collectives"'

drops() { # drops DB DROPPER OPTION...
	db=$tmp/$1 method=dense+$2
	shift 2
	run --backend cpu --model niah-llama-14m --requests 3 --accuracy 0 \
		--capture "$srcdir/traces/samples/niah-2k.arc" --max-prompt-tokens 900 \
		--max-output-tokens 2 --db "$db" "$@" --intervals off --method "$method" >"$tmp/out"
}
# dropped DB OPTION...: the rows that a dropper keeps, by iteration and layer
dropped() {
	db=$1
	shift
	drops "$db" uniprefill:layers=2+5,min-tokens=0,p=0.7,last-q=32,sinks=64 --clock formula "$@" &&
		query "$db" 'SELECT iter_no, layer, n_rows, n_kept FROM iteration_drop'
}
ok 'a dropper runs' eval 'dropped whole.db >"$tmp/whole"'
is 'ranks drop the same tokens as one that has all heads' "$(dropped both.db --tp 2 --ranks local)" \
	"$(cat "$tmp/whole")"
ok '... as one of them does not' \
	eval 'dropped alone.db --tp 2 >"$tmp/alone" && ! cmp -s "$tmp/alone" "$tmp/whole"'

for dropper in lazyllm:layers=2:0.3+4:0.5 lazyllm:layers=2:0.5,aux-revival=1 \
	sliminfer:layers=2:0.3,sinks=64,block=32; do
	ok "ranks agree on the rows that $dropper keeps" drops agree.db $dropper --tp 2 --ranks local
	is '... by messages, which take time' "$(query "$tmp/agree.db" "SELECT count(*) > 0,
		min(kernels IS NULL OR kernels = 0), min(gpu_ns) > 0, max(name) FROM iteration_phase
		JOIN phase USING(phase_id) WHERE phase_id = 17")" '1,1,1,comm_select'
	rm "$tmp/agree.db"
done

# ---- messages of a model with its weights ----

mkdir "$tmp/model"
"$(dirname "$ATTNREPLAY")/tests/make-tasks" "$tmp/model" || { echo 'Bail out! no model'; exit 1; }
cat >"$tmp/two.csv" <<END
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:17:03.0,100,3
2023-11-16 18:17:03.0,90,2
END
awk 'BEGIN { for (; r < 2; r++) for (i = 0; i < 100; i++)
	printf "%s%d%s", i ? "," : "[", (7 * i + r) % 70, i < 99 ? "" : "]\n" }' >"$tmp/prompts.jsonl"
record() {
	FAKE_NCCL_RECORD="$tmp/record" "$ATTNREPLAY" -q run --backend cpu --clock formula --accuracy 0 \
		--weights "$tmp/model" --prompts "$tmp/prompts.jsonl" --trace "$tmp/two.csv" --tp 2 --ranks local \
		--max-num-batched-tokens 32 --db "$tmp/record.db" --intervals off >"$tmp/out"
}
ok 'chunks of prompts and decodes of a model run over ranks' record
# 3 layers; 70 logits of 4 bytes, half of them of a rank; type 1 is bytes, and 9 bf16
is '... each iteration with a sum of embeddings, and two in each layer' \
	"$(grep -c 'allreduce 9' "$tmp/record")" \
	"$(query "$tmp/record.db" 'SELECT (2 * 3 + 1) * count(*) AS n FROM iteration')"
is '... and the logits of the five tokens that come out' "$(awk '$1 == "allgather" && $3 % 140 == 0 {
	n += $3 / 140 } END { print n }' "$tmp/record")" 5
ok '... without a message where none does' [ "$(grep -c 'allgather 1 [12][48]0$' "$tmp/record")" -lt \
	"$(query "$tmp/record.db" 'SELECT count(*) FROM iteration')" ]
is '... and one of 256 bytes behind each' "$(grep -c 'allgather 1 256$' "$tmp/record")" \
	"$(query "$tmp/record.db" 'SELECT count(*) FROM iteration')"
ok 'a model is timed with its messages' run --backend cpu --accuracy 0 --weights "$tmp/model" \
	--prompts "$tmp/prompts.jsonl" --trace "$tmp/two.csv" --tp 2 --ranks local --db "$tmp/timed.db" \
	--intervals off
ok '... and a report says so' eval '"$ATTNREPLAY" report "$tmp/timed.db" |
	grep -q "collectives of 2 ranks ran, with NCCL; ranks leave the barrier where their times begin"'

# ---- heads of all ranks ----

# heads DB OPTION...: each sample of two requests, of a capture with 8 query heads and 2 KV heads
heads() {
	db=$1
	shift
	run --backend cpu --model niah-llama-14m --capture "$srcdir/traces/samples/niah-2k.arc" \
		--sample-layers 1 --requests 2 --max-prompt-tokens 300 --max-output-tokens 3 --accuracy 1 \
		--accuracy-decode 1 --intervals off --db "$db" "$@" >"$tmp/out"
}
errors() { query "$1" 'SELECT req_no, chunk_no, head, rel_l2, cosine, max_abs, mass_recall
	FROM accuracy_sample'; }
blocks() { query "$1" "SELECT req_no, chunk_no, kv_head, tiles_total, tiles_sel, exec_total, empty_rows$2
	FROM selection_stat"; }
unions=', exec_sel, sub_sel, kv_total, kv_sel, group_total, group_sel'
for method in flashprefill xattention; do
	heads "$tmp/whole-$method.db" --method $method
	errors "$tmp/whole-$method.db" >"$tmp/errors"
	for tp in 2 4; do
		ok "$method: $tp ranks have samples" heads "$tmp/$method$tp.db" --method $method --tp $tp --ranks local
		is '... of all heads, as one rank' "$(errors "$tmp/$method$tp.db")" "$(cat "$tmp/errors")"
		is '... with the same blocks' "$(blocks "$tmp/$method$tp.db")" "$(blocks "$tmp/whole-$method.db")"
	done
	is '... and unions, unless ranks share KV heads' "$(blocks "$tmp/${method}2.db" "$unions")" \
		"$(blocks "$tmp/whole-$method.db" "$unions")"
done
is 'they are all there' "$(query "$tmp/xattention4.db" 'SELECT count(DISTINCT head) FROM accuracy_sample')" 8

# ---- a rank fails ----

# failed DB STATUS LEAST: the run has ended so, with at least LEAST iterations, and all is intact
failed() {
	is '... the run is marked' "$(query "$1" 'SELECT status FROM run')" "$2"
	ok '... what ran before is stored' [ "$(query "$1" 'SELECT count(*) FROM iteration')" -ge "$3" ]
	is '... the database is whole' "$(query "$1" 'PRAGMA integrity_check')" ok
	is '... and nothing is left behind' "$(left)" 0
}
# breaks NAME=VALUE DB OPTION...: the run fails, with one line
breaks() {
	(export "$1"; db=$2; shift 2; modelled --tp 4 --ranks local --comm-timeout 1s --db "$db" "$@") \
		>"$tmp/out" 2>"$tmp/err" && return 1
	[ "$(grep -vc '^fake NCCL' "$tmp/err")" = 1 ]
}
ok 'a rank that dies ends the run' breaks FAKE_NCCL_DIE=1:300 "$tmp/die.db"
ok '... and is named' grep -q 'rank 1 of 4 (pid [0-9]*) ended by signal 6 in iteration 297' "$tmp/err"
failed "$tmp/die.db" failed 290
ok 'so does one that hangs' breaks FAKE_NCCL_HANG=2:200 "$tmp/hang.db"
ok '... which is named' grep -q 'of 4: no answer from rank 2 within ' "$tmp/err"
failed "$tmp/hang.db" failed 190
ok 'so does rank 0' breaks FAKE_NCCL_HANG=0:200 "$tmp/zero.db"
ok '... which is named' grep -q 'of 4: no answer from rank 0 within ' "$tmp/err"
failed "$tmp/zero.db" failed 190
FAKE_NCCL_SLOW=1:3000
export FAKE_NCCL_SLOW
ok 'rank 0 may die as well' breaks FAKE_NCCL_DIE=0:200 "$tmp/first.db"
unset FAKE_NCCL_SLOW
ok '... and is named' grep -q 'rank 0 of 4 (pid [0-9]*) ended by signal 6 in iteration 197' "$tmp/err"
failed "$tmp/first.db" failed 1
ok '... in one file' [ "$(echo "$tmp"/first.db*)" = "$tmp/first.db" ]
ok 'so does an error of NCCL' breaks FAKE_NCCL_ERROR=1:100:6 "$tmp/error.db"
ok '... which is named' grep -q 'rank 1 of 4: NCCL cannot gather: remote process' "$tmp/err"
failed "$tmp/error.db" failed 90

# ---- the report ----

if command -v sqlite3 >/dev/null; then
	sqlite3 "$tmp/all2.db" "DELETE FROM iteration_rank; INSERT INTO iteration_rank VALUES
		(1, 0, 0, 4000000, 4, 4, 300000, 100000), (1, 0, 1, 7000000, 7, 7, 500000, NULL),
		(1, 1, 0, 2000000, 2, 2, 100000, 300000), (1, 1, 1, 1000000, 1, 1, 100000, NULL),
		(1, 2, 0, 3000000, 3, 3, 200000, 200000), (1, 2, 1, 3000000, 3, 3, 300000, NULL)"
	"$ATTNREPLAY" report "$tmp/all2.db" | sed -n '/^Ranks/,/^$/p' | tr -s ' ' | tr ' ' , >"$tmp/report"
	ok 'the report has the ranks' grep -q '^run,rank,host,gpu,iterations,mean_ms,slowest_percent,' "$tmp/report"
	is '... their times, and waits for the slowest' "$(sed -n 's/^,1,\([01]\),[^,]*/\1/p' "$tmp/report")" \
		'0,3,3.0000,33.333,1.0000,0.2000,0.2000
1,3,3.6667,33.333,0.3333,0.3000,'
else
	skip 'the report has the ranks' 'no sqlite3'
fi

# ---- it is stopped ----

# stopped SIGNAL DB: send it to the command in the middle of a run
stopped() {
	modelled_apart "$2" &
	pid=$!
	sleep 1
	child=$(cat "/proc/$pid/task/$pid/children")
	kill -"$1" $pid
	wait $pid
	status=$?
	tries=0
	while kill -0 $child 2>/dev/null && [ $tries -lt 60 ]; do sleep 0.05; tries=$((tries + 1)); done
	[ $tries -lt 60 ] && [ $status != 0 ] && [ "$child" ]
}
modelled_apart() {
	FAKE_NCCL_SLOW=1:3000
	export FAKE_NCCL_SLOW
	exec "$ATTNREPLAY" -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --host none \
		--backend roofline --gpu h100 --model llama-3.1-8b --requests 60 --tp 4 --ranks local \
		--intervals off --db "$1" >"$tmp/out" 2>"$tmp/err"
}
ok 'a user can stop it' stopped TERM "$tmp/term.db"
ok '... with one line' grep -q 'rank [0-3] was interrupted' "$tmp/err"
failed "$tmp/term.db" aborted 1
ok 'ranks end when the command is killed' stopped KILL "$tmp/kill.db"
failed "$tmp/kill.db" aborted 1

# ---- usage ----

ok 'one rank is no group' fails 2 'ranks local has no effect with --tp 1; leave it out' \
	modelled --ranks local
ok 'a limit of ranks needs ranks' fails 2 'comm-timeout has no effect without --ranks local' \
	modelled --tp 2 --comm-timeout 1s
ok '... at the start, too' fails 2 'comm-join has no effect without --ranks local' \
	modelled --tp 2 --comm-join 1s
ok 'GPUs of ranks need ranks' fails 2 'devices has no effect without --ranks local' \
	modelled --tp 2 --devices 0,1
ok '... and a backend with GPUs' fails 2 'devices has no effect with backend roofline' \
	modelled --tp 2 --ranks local --devices 0,1
gpus() { run --backend cuda --model smollm2-135m --tp 3 --ranks local "$@"; }
if "$ATTNREPLAY" run --help | grep -q -- '--enforce-eager'; then
	for list in 0,a 1-0 0,,1; do
		ok "'$list' lists no GPUs" fails 2 "devices '$list': want numbers and ranges" \
			gpus --devices "$list"
	done
	ok 'each rank has a GPU' fails 2 "devices '0-1' names 2 GPUs, but --tp 3 has a rank on each; name as many" \
		gpus --devices 0-1
	ok 'one GPU is none for ranks' fails 2 'device has no effect with --ranks local' \
		gpus --device 1
else
	skip 'GPUs are listed' 'built without CUDA'
fi
ok 'there are not that many' fails 2 'ranks local: at most 64 ranks; lower --tp' \
	modelled --tp 128 --ranks local
ATTNREPLAY_NCCL=$tmp/none.so
ok 'NCCL itself does not reach them' fails 2 'which NCCL does not reach; name a library' \
	env -u ATTNREPLAY_NCCL "$ATTNREPLAY" run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
	--backend roofline --gpu h100 --model llama-3.1-8b --tp 2 --ranks local
ok 'ranks need NCCL' fails 4 "cannot load '$tmp/none.so', which ATTNREPLAY_NCCL names" \
	modelled --tp 2 --ranks local
finish
