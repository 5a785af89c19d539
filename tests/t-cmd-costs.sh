#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --costs: runs with the costs of earlier runs, through the program.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
cat >trace.csv <<EOT
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,120,3
2023-11-16 18:00:00.0000000,60,12
2023-11-16 18:00:00.0010000,200,2
2023-11-16 18:00:00.0020000,20,1
2023-11-16 18:00:00.0020000,129,10
2023-11-16 18:00:00.0200000,640,2
2023-11-16 18:00:00.9000000,128,2
2023-11-16 18:00:00.9000000,2200,2
EOT
cat >prefix.jsonl <<'EOT'
{"format":"reqtrace","version":1,"block_size":16,"epoch":null,"context":"cumulative","requests":4,"sources":[],"transforms":[]}
{"id":0,"arrival_ns":0,"prompt_tokens":40,"output_tokens":6,"blocks":[0,1,2]}
{"id":1,"arrival_ns":1000,"prompt_tokens":60,"output_tokens":9,"blocks":[0,1,3,4]}
{"id":2,"arrival_ns":50000000,"prompt_tokens":60,"output_tokens":9,"blocks":[0,1,3,5]}
{"id":3,"arrival_ns":50000000,"prompt_tokens":33,"output_tokens":9,"blocks":[0,1,6]}
EOT
sched='--max-num-batched-tokens 150 --num-gpu-blocks 44 --block-size 16 --host-overhead 100us
	--host-overhead-per-request 10us'
small='--model niah-llama-14m --sample-layers 1 --attention-only'
cpu() { # cpu DB OPTION...: one timed run for each method
	to=$1
	shift
	"$ATTNREPLAY" -q run --db "$to" --backend cpu $small --capture "$arc" --accuracy 0 "$@"
}
costs() { # costs FROM OPTION...
	from=$1
	shift
	"$ATTNREPLAY" run --backend cost --costs "$from" "$@"
}
value() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n 1; }
# Rows of database $1 that only one of the runs $2 and $3 has.
differ() {
	it='iter_no, start_ns, end_ns, host_ns, prefill_tokens, decode_tokens, batch_size,
		blocks_used,
		waiting, running, preempted, stop, composition'
	out='req_no, outcome, reason, arrival_ns, first_sched_ns, first_token_ns,
		finish_ns, n_chunks'
	set -- "$1" "SELECT $it FROM iteration WHERE run_id = $2" \
		"SELECT $it FROM iteration WHERE run_id = $3" \
		"SELECT $out FROM request_outcome WHERE run_id = $2" \
		"SELECT $out FROM request_outcome WHERE run_id = $3"
	value "$1" "SELECT (SELECT count(*) FROM ($2 EXCEPT $3))
		+ (SELECT count(*) FROM ($3 EXCEPT $2))
		+ (SELECT count(*) FROM ($4 EXCEPT $5))
		+ (SELECT count(*) FROM ($5 EXCEPT $4)) AS n"
}

# ---- a run with its own costs ----

cpu runs.db --trace trace.csv $sched --method dense,compact-fp >out 2>err
is 'two methods are timed' $? 0
for run in 1 2; do
	costs runs.db:$run --db runs.db --trace trace.csv $sched >out$run 2>>err
	is "run $run is repeated from its costs" $? 0
	is '... row for row' "$(differ runs.db $run $((run + 2)))" 0
done
ok 'the header says whose costs they are' grep -Eq \
	'^clock     cost, from [0-9]+ iterations of runs.db:2, compact-fp on niah-llama-14m$' out2
ok 'the result has the name of the method' grep -q '^compact-fp: 7 requests ok, 1 rejected' out2
ok '... and says where the costs come from' grep -Eq \
	'^costs: [0-9]+ iterations measured, 0 interpolated, 0 extrapolated$' out2
is 'model, method and layers are recorded' "$(value runs.db "SELECT a.model_id = b.model_id AND
	a.method_id = b.method_id AND a.layers_run = b.layers_run AND b.backend = 'cost' AND
	b.clock = 'cost' AS x FROM run a, run b WHERE a.run_id = 2 AND b.run_id = 4")" 1
is '... and their options, and which run it was' "$(value runs.db "SELECT group_concat(value) AS x
	FROM (SELECT value FROM run_param WHERE run_id = 4 AND key IN ('model', 'method',
	'sample-layers', 'attention-only', 'costs') ORDER BY key)")" \
	'"1,runs.db:2,compact-fp,niah-llama-14m,1"'
is 'its dense run is the one from the costs of the dense run' "$(value runs.db \
	'SELECT baseline_run_id FROM run WHERE run_id = 4')" 3
for policy in 'vllm-0.16 --async-scheduling' vllm-0.19 'vllm-0.33 --async-scheduling' sarathi \
	vidur-sarathi trtllm-no-evict-1.2 trtllm-max-util-1.2 sglang-0.5.21 \
	'sglang-mixed-0.5.21 --async-scheduling' sglang-0.5.23 \
	'sglang-mixed-0.5.23 --async-scheduling'; do
	rm -f policy.db
	cpu policy.db --trace trace.csv $sched --policy $policy >/dev/null 2>&1
	costs policy.db --db policy.db --trace trace.csv $sched --policy $policy >/dev/null 2>&1
	is "$policy comes out again" "$(differ policy.db 1 2)" 0
done
prefix="--trace prefix.jsonl --block-size 16 --max-num-batched-tokens 64 --num-gpu-blocks 12
	--enable-prefix-caching"
for policy in vllm-0.16 sglang-0.5.23 'sglang-mixed-0.5.23 --async-scheduling'; do
	rm -f prefix.db
	cpu prefix.db $prefix --policy $policy >out 2>&1
	costs prefix.db --db prefix.db $prefix --policy $policy >>out 2>&1
	is "$policy: hits in the prefix cache come out again" \
		"$(grep -c '[1-9].* tokens found in the prefix cache' out)" 2
	is '... row for row' "$(differ prefix.db 1 2)" 0
done
cpu as.db --trace trace.csv $sched --dense-as-engine 2,3 >out 2>&1
costs as.db --db as.db --trace trace.csv $sched >out 2>&1
is 'dense attention at the cost of an engine comes out again' "$(differ as.db 1 2)" 0
is '... and is named' "$(sed -n 's/^dense     //p' out)" \
	"as the engine's: 2,3 in the run with the costs (--dense-as-engine)"

# ---- measured dense attention at the cost of an engine's ----

# Requests that are all there make the same batches, whatever these cost.
sed 's/ 18:00:00.[0-9]*/ 18:00:00.0/' trace.csv >once.csv
cpu once.db --trace once.csv $sched --method dense,compact-fp >out 2>&1
cat >mixed.json <<'EOT'
{"attention": "of a test", "prefill": [[1, 1]], "decode": [[1, 1]],
 "mixed": {"prefill": 0, "decode": 0, "walk_us": 100, "fill_rows": 200}}
EOT
cost_of() { value once.db "SELECT sum(end_ns - start_ns - host_ns) $2 FROM iteration i WHERE run_id = $1"; }
phase() {
	echo "coalesce((SELECT gpu_ns FROM iteration_phase p JOIN phase USING(phase_id) WHERE name = '$1'
		AND p.run_id = i.run_id AND p.iter_no = i.iter_no), 0)"
}
layers=$(value once.db 'SELECT n_layers AS n FROM model')
costs once.db:1 --db once.db --trace once.csv $sched --dense-as-engine 2,3 >out 2>&1
is 'factors multiply the stored times of phases' "$(cost_of 3)" \
	"$(cost_of 1 "+ sum($(phase attend) + 2 * $(phase decode)) * $layers")"
is '... as the header says' "$(sed -n 's/^dense     //p' out)" \
	"as the engine's: attention x 2, decode x 3 (--dense-as-engine)"
costs once.db:1 --db once.db --trace once.csv $sched --dense-as-engine mixed.json >out 2>&1
is '... and a launch takes as long as its longest decode walks' "$(cost_of 4)" \
	"$(cost_of 1 "+ sum(iif(prefill_tokens AND decode_tokens, 100 * longest_decode / (SELECT
		max(200 / max(n_tokens), 1) FROM iteration_request e WHERE e.run_id = i.run_id AND
		e.iter_no = i.iter_no AND NOT decode) - $(phase attend) - $(phase decode), 0)) * $layers")"
ok '... beside some chunks in parts' [ "$(value once.db 'SELECT count(*) AS n FROM iteration_request JOIN
	iteration USING(run_id, iter_no) WHERE run_id = 4 AND NOT decode AND decode_tokens AND n_tokens <= 100')" -gt 0 ]
costs once.db:3 --db once.db --trace once.csv $sched >out 2>&1
is 'such costs are not multiplied again' "$(cost_of 5)" "$(cost_of 3)"
cpu small.db --trace once.csv $sched --keep-tables iterations >out 2>&1
"$ATTNREPLAY" run --backend cost --trace once.csv --db formula.db >out
for from in once.db:2 small.db:1 formula.db:1; do
	ok "$from has no times of dense attention" fails 2 "^attnreplay: $from: --dense-as-engine needs a run \
of method dense with the times of its phases and the entries of its batches$" \
		costs $from --trace once.csv --dense-as-engine 2
done

# ---- other runs ----

wide='--trace trace.csv --max-num-batched-tokens 900 --num-gpu-blocks 44'
run_fails() { # run_fails STATUS PATTERN OPTION...: fails once it is under way
	want=$1 pattern=$2
	shift 2
	"$@" >.out 2>.err
	got=$?
	cat .err
	[ $got = "$want" ] && grep -Eq "$pattern" .err
}
ok 'what no iteration measured is refused, with iteration and feature' run_fails 3 \
	'^attnreplay: iteration [0-9]+: [0-9]+ prefill tokens are outside of the 0 to 150 measured in runs.db:1; measure such iterations or take --costs-extrapolate$' \
	costs runs.db:1 --db wide.db $wide
is '... and the run is marked' "$(value wide.db 'SELECT status FROM run')" failed
ok 'it is extrapolated where that is wanted' costs runs.db:1 --db wide.db $wide --costs-extrapolate
"$ATTNREPLAY" report --run 2 wide.db >report
ok '... and the report says for how many' grep -Eq \
	'^ +2  runs.db:1  extrapolated +[0-9]+ +[0-9.]+ +[0-9.]+$' report
ok '... and how many were interpolated' grep -Eq '^ +2  runs.db:1  interpolated ' report
ok 'a host of another speed needs no new costs' costs runs.db:1 --trace trace.csv $sched \
	--host-overhead 5ms --costs-extrapolate
sed 's/,2200,/,33000,/' trace.csv >long.csv
costs runs.db:1 --trace long.csv --costs-extrapolate >out 2>err
ok "the model's longest request is that of the run" grep -q \
	'request rejected: prompt of 33000 tokens, maximum length 32768$' err

# The sample database has a GPU and a pool of 100 blocks of 16 tokens.
"$(dirname "$ATTNREPLAY")/tests/make-db" sample.db ||
	{ echo 'Bail out! no sample database'; exit 1; }
costs sample.db:2 $plain --trace trace.csv --costs-extrapolate --block-size 32 --db gpu.db >out 2>&1
ok 'the pool is that of the GPU, in tokens' grep -q '^blocks    50 of 32 tokens, one reserved$' out
costs sample.db:2 --trace trace.csv --costs-extrapolate --block-size 32 >out 2>&1
ok '... with the defaults of an engine it is what that would have there' grep -q \
	'^memory .* blocks of 32, [0-9]* tokens (NVIDIA H200, 0.92 of 150.0 GB)$' out
ok '... which the header names' \
	grep -q ' of sample.db:2, compact-fp on llama-3.1-8b, NVIDIA H200$' out
is '... and the record' "$(value gpu.db "SELECT gpu || ' ' || backend AS x FROM v_run")" \
	'NVIDIA H200 cost'

# ---- refusals ----

refused() { # refused PATTERN OPTION...: with the costs of run 1
	pattern=$1
	shift
	fails 2 "$pattern" "$ATTNREPLAY" run --trace trace.csv "$@"
}
mine='--backend cost --costs runs.db:1'
ok 'options that agree are fine' costs runs.db:1 --trace trace.csv $sched $small --tp 1 \
	--method dense
contradicts() { # contradicts OPTION VALUE THEIRS
	ok "--$1 $2 has to agree" refused \
		"^attnreplay: $1 '$2' contradicts runs.db:1, whose costs were measured with $3; leave it out$" \
		$mine "--$1=$2"
}
contradicts model llama-3.1-8b "'niah-llama-14m'"
contradicts tp 2 "'1'"
contradicts method compact-fp "'dense'"
contradicts sample-layers 2 "'1'"
contradicts layers 0 none
contradicts extend tile "'error'"
contradicts attention-only 0 "'1'"
ok '... as dense attention that had the cost of an engine' fails 2 \
	"^attnreplay: dense-as-engine '2' contradicts as.db:1, whose costs were measured with '2,3'; " \
	costs as.db:1 --trace trace.csv --dense-as-engine 2
"$ATTNREPLAY" run --backend cost --trace trace.csv --db plain.db >out
is 'a run by formula is one to take costs from' "$(costs plain.db --db plain.db --trace trace.csv |
	grep -c '^clock     cost, from [0-9]* iterations of plain.db:1$')" 1
is '... of no model' "$(differ plain.db 1 2)" 0
ok '... so that none can be given' refused "model 'm' contradicts plain.db:1, .* with none; leave" \
	--backend cost --costs plain.db:1 --model m
for o in capture=c accuracy=0.1 seed=1 prof=events keep-kernels=2; do
	ok "--$o has no effect" refused "^attnreplay: ${o%%=*} has no effect with backend cost" \
		$mine "--$o"
done
for o in cost-fixed=1ms cost-per-token=1us clock=formula; do
	ok "--$o has no effect" \
		refused "^attnreplay: ${o%%=*} has no effect with --costs" $mine "--$o"
done
ok 'extrapolation is of costs' refused 'costs-extrapolate has no effect without --costs' \
	--backend cost --costs-extrapolate
ok 'kernels have costs of their own' refused '--costs needs --backend cost; add it, or leave' \
	--backend cpu --costs runs.db:1
ok '... and auto runs kernels' refused '--costs needs --backend cost' --costs runs.db:1
ok 'one of several runs is named' \
	refused '^attnreplay: runs.db: 4 finished runs; name one of them' \
	--backend cost --costs runs.db
ok 'a run that is not there is wrong usage' \
	refused "runs.db: no run 9; 'attnreplay report runs.db'" \
	--backend cost --costs runs.db:9
ok 'so is one that failed' refused 'wide.db: run 1 is failed; costs need a finished run' \
	--backend cost --costs wide.db:1
ok 'a missing database is bad data' fails 3 '^attnreplay: none.db: No such file' \
	costs none.db:1 --trace trace.csv
ok 'what is no database is bad data' fails 3 '^attnreplay: trace.csv: file is not a database' \
	costs trace.csv --trace trace.csv
if command -v sqlite3 >/dev/null; then
	cp runs.db none-left.db
	sqlite3 none-left.db 'DELETE FROM iteration'
	ok 'a run without iterations is bad data' fails 3 'none-left.db: run 1 has no iteration' \
		costs none-left.db:1 --trace trace.csv
	rm -f empty.db && sqlite3 empty.db 'CREATE TABLE t(x); DROP TABLE t'
	ok 'a database without runs is bad data' fails 3 "empty.db: empty; fill it with" \
		costs empty.db --trace trace.csv
	cp runs.db cut.db
	dd if=/dev/zero of=cut.db bs=16384 seek=2 count=20 conv=notrunc 2>/dev/null
	ok 'a damaged database is bad data' fails 3 '^attnreplay: cut.db: ' \
		costs cut.db:1 --trace trace.csv
else
	skip 'damaged databases are bad data' 'no sqlite3'
fi

# ---- the comparison of a window with its prediction from another window ----

window() { # window PROGRAM: costs are linear in what they depend on
	rm -f window.db
	ATTNREPLAY=$1 sh "$srcdir/contrib/check_costs.sh" window.db 60 \
		'--backend cost --cost-fixed 4ms --cost-per-token 30us' \
		--trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
		--max-num-batched-tokens 512
}
ok 'costs that are linear are predicted' \
	eval 'window "$ATTNREPLAY" >out 2>&1 || { cat out; false; }'
is '... without resamples, which nobody reads' "$("$ATTNREPLAY" sql --format csv window.db \
	'SELECT count(*) AS n FROM resampling' | tail -n 1)" 0
ok '... without an error' grep -q \
	'^worst: 0[.0]* % (limit 5); iterations of window A that came out otherwise: 0$' out
# A machine that is slower in the second window.
cat >slower <<EOT
#!/bin/sh
case "\$*" in
*--skip-requests*cost-fixed*) exec "$ATTNREPLAY" "\$@" --cost-fixed 5ms ;;
esac
exec "$ATTNREPLAY" "\$@"
EOT
chmod +x slower
window "$tmp/slower" >out 2>&1
is 'costs that change are not, and the exit status says so' $? 1
ok '... beside by how much' grep -Eq '^tpot +p50 +[0-9.]+ +[0-9.]+ +-[0-9.]+$' out
# A GPU that waits in an iteration of the second window.
if command -v sqlite3 >/dev/null; then
	cat >waits <<EOT
#!/bin/sh
"$ATTNREPLAY" "\$@" || exit
case "\$*" in
*--skip-requests*cost-fixed*) sqlite3 window.db "UPDATE iteration SET span_ns = 1000000,
	busy_ns = iif(run_id = 2 AND iter_no = 7, 250000, 990000)" ;;
esac
EOT
	chmod +x waits
	window "$tmp/waits" >out 2>&1
	ok 'for how long the GPU stood still at most is told' \
		grep -Eq '^ +2 +[0-9]+ +[0-9.]+ +0\.7500$' out
	ok '... for each window' grep -Eq '^ +1 +[0-9]+ +1\.0000 +0\.0100$' out
else
	skip 'for how long the GPU stood still at most is told' 'no sqlite3'
	skip '... for each window' 'no sqlite3'
fi
ok 'a database that is there is not added to' fails 2 'window.db: exists' \
	sh "$srcdir/contrib/check_costs.sh" window.db 60 '' --trace trace.csv
ok 'the comparison says how it is used' fails 2 '^usage: contrib/check_costs.sh DB N' \
	sh "$srcdir/contrib/check_costs.sh" x.db
finish
