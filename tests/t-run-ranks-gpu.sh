#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --ranks local on two GPUs over NCCL: the messages of a model, and how ranks end when
# one is killed.  A library that lets ranks share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1) needs one.
. "$srcdir/tests/tap.sh"

devices=0,1
[ "$NCCL_MULTI_RANK_GPU_ENABLE" = 1 ] && devices=0,0
model='--model llama-3.1-8b --sample-layers 4'
arguments="-q run --trace $srcdir/traces/samples/azure-2023-code-200.csv --host none --tp 2 \
	--capture random:0 --accuracy 0 --num-gpu-blocks 4000 --ranks local \
	--devices $devices --comm-timeout 5s --backend cuda"
ranks() { "$ATTNREPLAY" $arguments $model "$@"; }
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n +2; }
some='--requests 6 --max-prompt-tokens 3000 --max-output-tokens 8 --max-num-batched-tokens 2048'

ranks --requests 1 --max-prompt-tokens 64 --max-output-tokens 2 >"$tmp/out" 2>"$tmp/err"
status=$?
if [ $status = 4 ]; then
	skip 'ranks run on GPUs' "$(head -n 1 "$tmp/err")"
	finish
fi
[ $status = 0 ] || sed 's/^/# /' "$tmp/err"
is 'two ranks run' $status 0

# messages DB N: each iteration has so many sums, and one message of logits if it emits tokens
messages() {
	is '... with the messages of the model' "$(query "$1" "SELECT count(*) > 0,
		min(kernels IN ($2, $2 + 1)), min(decode_tokens = 0 OR kernels = $2 + 1)
		FROM iteration_phase JOIN iteration USING (run_id, iter_no) WHERE phase_id = 16")" 1,1,1
	is '... one after another, in each rank' "$(query "$1" 'SELECT count(DISTINCT rank),
		max(comm_overlap_ns), min(comm_exposed_ns) > 0, min(span_ns >= comm_exposed_ns)
		FROM iteration_rank')" 2,0,1,1
	is '... and the slowest is the clock' "$(query "$1" 'SELECT count(*) FROM iteration i
		WHERE end_ns - start_ns != (SELECT max(cost_ns) FROM iteration_rank r
			WHERE r.run_id = i.run_id AND r.iter_no = i.iter_no)')" 0
}
for how in '' --enforce-eager; do
	db="$tmp/some$how.db"
	ok "they add up and gather $how" ranks $some $how --keep-kernels 100000 --intervals off --db "$db"
	messages "$db" 9
done
ok '... also where kernels are not traced' ranks $some --prof events
is 'none is multicast' "$(query "$tmp/some.db" "SELECT count(*) > 0, sum(value GLOB
	'*LLMC*' OR value GLOB '*LDMC*' OR value GLOB '*STMC*' OR value GLOB '*NVLS*') AS n
	FROM string_id WHERE value GLOB '*nccl*'")" 1,0
model='--model qwen3-30b-a3b --sample-layers 2'
ok 'experts are added up before' ranks $some --intervals off --db "$tmp/moe.db"
messages "$tmp/moe.db" 5
model='--model llama-3.1-8b --sample-layers 4'

# ---- a model with its weights ----

# error DB ARG...: of a sparse method in the last layer, by the heads of rank 0, in parts of 100000
error() {
	db=$tmp/weights-$1.db
	shift
	"$ATTNREPLAY" -q run --trace "$tmp/weights.csv" --host none --weights "$tmp/weights" \
		--prompts "$tmp/prompts.jsonl" --method compact-fp:alpha=1,sink=1,window=1,dense-first=0 \
		--accuracy 1 --num-gpu-blocks 400 --backend cuda \
		--max-num-batched-tokens 512 --intervals off --db "$db" "$@" >"$tmp/out" 2>"$tmp/err" &&
		query "$db" 'SELECT CAST(round(100000 * avg(rel_l2)) AS INTEGER) AS n
			FROM accuracy_sample WHERE layer = 2 AND head < 2'
}
cat >"$tmp/config.json" <<END
{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
"intermediate_size": 512, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 128,
"num_hidden_layers": 3, "vocab_size": 100, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
"max_position_embeddings": 4096}
END
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.0,2000,9\n' >"$tmp/weights.csv"
awk 'BEGIN { for (x = 7; i < 2000; i++) { x = (x * 1103 + 12345) % 65536
	printf "%s%d", i ? "," : "[", int(x / 100) % 100 } print "]" }' >"$tmp/prompts.jsonl"
if "${PYTHON:-python3}" "$srcdir/contrib/random_weights.py" "$tmp/config.json" "$tmp/weights" 2>"$tmp/err"
then
	whole=$(error whole)
	alone=$(error alone --tp 2)
	both=$(error both --tp 2 --ranks local --devices $devices --comm-timeout 5s)
	echo "# errors of a method: $whole of the whole model, $both by two ranks, $alone by one of them"
	sed 's/^/# /' "$tmp/err"
	ok 'ranks run a model with its weights' eval '[ "$both" -gt 0 ]'
	near() { [ $((100 * $1)) -gt $((95 * whole)) ] && [ $((100 * $1)) -lt $((105 * whole)) ]; }
	ok '... which is the whole model' near "$both"
	ok '... not a part of it' eval '! near "$alone"'
	messages "$tmp/weights-both.db" 7
else
	skip 'ranks run a model with its weights' "$(head -n 1 "$tmp/err")"
fi

# ---- a rank is killed ----

# killed RANK TRACE DB: in the middle of a run
killed() {
	"$ATTNREPLAY" $arguments $model --trace "$2" --intervals off --db "$3" >"$tmp/out" 2>"$tmp/err" &
	pid=$!
	tries=0
	until [ "$(query "$3" 'SELECT count(*) > 20 FROM iteration' 2>"$tmp/none")" = 1 ]; do
		sleep 0.2
		tries=$((tries + 1))
		[ $tries -lt 100 ] && kill -0 $pid || break
	done
	victim=$(cut -d ' ' -f $(($1 + 1)) "/proc/$pid/task/$pid/children")
	start=$(date +%s%N)
	kill -9 "$victim"
	wait $pid
	status=$?
	took=$((($(date +%s%N) - start) / 1000000))
	echo "exit status $status after $took ms, began after $tries tries" | tee "$tmp/took"
	cat "$tmp/err"
	[ $status != 0 ] && [ $took -lt 15000 ] && [ $tries -lt 100 ]
}
echo TIMESTAMP,ContextTokens,GeneratedTokens | tee "$tmp/decode.csv" >"$tmp/prefill.csv"
for i in 1 2 3 4; do echo "2023-11-16 18:17:03.0,64,15000"; done >>"$tmp/decode.csv"
i=0
while [ $((i += 1)) -le 4000 ]; do echo "2023-11-16 18:17:03.0,3000,1"; done >>"$tmp/prefill.csv"
arguments=$(echo "$arguments" | sed 's/--trace [^ ]*//')
for rank in 1 0; do
	for what in decode prefill; do
		db="$tmp/$what$rank.db"
		ok "rank $rank is killed in $what" killed $rank "$tmp/$what.csv" "$db"
		sed 's/^/# /' "$tmp/took"
		is '... the database is whole' "$(query "$db" 'PRAGMA integrity_check')" ok
		is '... and has what ran before' \
			"$(query "$db" 'SELECT count(*) > 20 FROM iteration')" 1
		[ $rank = 0 ] || is '... and that it failed' "$(query "$db" 'SELECT status FROM run')" failed
	done
done

# ---- a rank is late ----

again() { grep -c 'the host was late' "$tmp/err"; }
# late DB: rank 1 sleeps for longer than the GPU waits for it, until five batches ran again, and
# the run goes on
late() {
	"$ATTNREPLAY" -v $arguments $model --trace "$tmp/late.csv" --enforce-eager --intervals off \
		--db "$1" >"$tmp/out" 2>"$tmp/err" &
	pid=$!
	until [ "$(query "$1" 'SELECT count(*) > 20 FROM iteration' 2>"$tmp/none")" = 1 ]; do
		sleep 0.2
		kill -0 $pid || return 1
	done
	sleeper=$(cut -d ' ' -f 2 "/proc/$pid/task/$pid/children")
	naps=0 first=$(again)
	until [ "$(again)" -ge $((first + 5)) ]; do
		naps=$((naps + 1))
		[ $naps -le 200 ] && kill -STOP "$sleeper" || return 1
		sleep 0.06
		kill -CONT "$sleeper"
		sleep 0.06
	done
	before=$(query "$1" 'SELECT count(*) FROM iteration')
	until [ "$(query "$1" 'SELECT count(*) FROM iteration')" -gt "$before" ]; do
		sleep 0.2
		kill -0 $pid || return 1
	done
}
arguments=${arguments#-q }
head -n 5 "$tmp/decode.csv" | sed 's/15000/12000/' >"$tmp/late.csv"
if [ $devices = 0,1 ]; then
	ok 'a rank may be late: all run the batch again, and go on' late "$tmp/late.db"
	kill -TERM $pid
	wait $pid
	echo "# $(again) batches ran again, $first of them before, after $naps naps"
	# A nap that counts leaves the GPU of rank 1 without a kernel for up to 60 ms.  Where other
	# programs use the GPUs, too, collectives take longer, but as kernels that run.
	is '... which does not count' "$(query "$tmp/late.db" \
		'SELECT max(span_ns - busy_ns) < 15000000, status FROM iteration_rank JOIN run USING (run_id)')" \
		1,aborted
	query "$tmp/late.db" "SELECT printf('# iteration %d, rank %d: cost %d, span %d, busy %d, events %d ns',
		iter_no, rank, cost_ns, r.span_ns, r.busy_ns, event_ns) AS line FROM iteration_rank r
		JOIN iteration USING (run_id, iter_no) WHERE cost_ns > 20000000 LIMIT 20" | tr -d '"'
else
	skip 'a rank may be late' 'the ranks of one GPU wait for each other'
fi
ok 'the GPUs are of use again' ranks --trace "$tmp/prefill.csv" --requests 3
finish
