#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Under the formula clock a schedule depends only on the trace and the options, not on the backend.
# All unmeasured results are the same in each run, on every backend.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
# The load has chunks that end inside blocks, decodes between them, preemptions and a rejection.
cat >trace.csv <<EOT
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,120,3
2023-11-16 18:00:00.0000000,60,12
2023-11-16 18:00:00.0100000,200,2
2023-11-16 18:00:00.0200000,20,1
2023-11-16 18:00:00.0200000,129,10
2023-11-16 18:00:00.0200000,640,2
2023-11-16 18:00:00.9000000,128,2
2023-11-16 18:00:00.9000000,1200,2
EOT
run() { # run DB BACKEND OPTION...
	db=$1 backend=$2
	shift 2
	"$ATTNREPLAY" run $plain --db "$db" --trace trace.csv --backend "$backend" --clock formula \
		--cost-fixed 2ms --cost-per-token 30us --host-overhead 100us --block-size 16 \
		--max-num-batched-tokens 150 --num-gpu-blocks 44 "$@" 2>err ||
		{ status=$?; cat err; return $status; }
}
attend() { # attend DB BACKEND METHODS: all samples are compared with dense attention
	run "$1" "$2" --model niah-llama-14m --capture "$arc" --sample-layers 1 --attention-only \
		--method "$3" --accuracy 1
}
rows() { # rows DB RUN TABLE COLUMNS: in the order of its key
	"$ATTNREPLAY" sql --format csv "$1" "SELECT $4 FROM $3 WHERE run_id = $2" || : >no_answer
}
schedule() { # schedule DB RUN
	rows "$1" "$2" iteration 'iter_no, start_ns, end_ns, host_ns, prefill_tokens, decode_tokens,
		batch_size, blocks_used, waiting, running, preempted, stop'
	rows "$1" "$2" iteration_request 'iter_no, req_no, chunk_no, start, n_tokens, decode, emit,
		recompute'
	rows "$1" "$2" request_outcome 'req_no, outcome, reason, arrival_ns, first_sched_ns,
		first_token_ns, finish_ns, prompt_tokens, output_tokens, n_chunks, n_preempt,
		recomputed_tokens'
	rows "$1" "$2" v_latency 'metric, n, mean, p50, p90, p99, max'
}
selection() { # selection DB RUN
	rows "$1" "$2" selection_stat 'req_no, chunk_no, layer, kv_head, iter_no, tiles_total,
		tiles_sel, chunk_total, chunk_sel, chunk_full, chunk_open, qunion_total, qunion_sel,
		sub_total, sub_sel, kv_total, kv_sel, group_total, group_sel, exec_total, exec_sel,
		empty_rows'
}
unmeasured() { # unmeasured DB RUN: all of a run that does not say when or by which process
	schedule "$1" "$2"
	selection "$1" "$2"
	rows "$1" "$2" accuracy_sample '*'
	rows "$1" "$2" iteration_phase 'iter_no, phase_id, kernels'
	rows "$1" "$2" "(SELECT * FROM run_param WHERE key NOT IN ('db', 'method'))" 'key, value'
	rows "$1" "$2" v_density '*'
	rows "$1" "$2" v_accuracy '*'
	rows "$1" "$2" run 'trace_id, model_id, method_id, baseline_run_id, policy, backend, seed,
		status, clock, layers_run, num_blocks, block_tokens, version, setup'
}
same() { cmp "$1" "$2" && [ "$(wc -l <"$1")" -gt 10 ]; }

ok 'cost: the trace is replayed' run cost.db cost
schedule cost.db 1 >cost.csv
is 'it preempts, rejects and decodes beside prefills' "$("$ATTNREPLAY" sql --format csv cost.db \
	"SELECT sum(preempted) > 0 AS a, max(prefill_tokens > 0 AND decode_tokens > 0) AS b, (SELECT
	count(*) FROM request_outcome WHERE outcome = 'rejected') AS c
	FROM iteration" | tail -1)" 1,1,1
run cost2.db cost >/dev/null
unmeasured cost.db 1 >a.csv
unmeasured cost2.db 1 >b.csv
ok 'cost: a second run is the same to the byte' same a.csv b.csv

methods=compact-fp:alpha=0.3,sink=1,window=1
methods=$methods,flashprefill:alpha=0.3,sink=1,window=1
ok 'cpu: two methods replay it' attend cpu.db cpu $methods
for m in 1 2; do
	schedule cpu.db $m >cpu.csv
	ok "cpu: run $m has the schedule of the cost backend, row for row" same cpu.csv cost.csv
	selection cpu.db $m >want$m
done
is 'cpu: the methods leave some tiles out and keep some' "$("$ATTNREPLAY" sql --format csv cpu.db \
	'SELECT min(s) > 0 AND max(s) < 1 AS x FROM (SELECT sum(tiles_sel) * 1.0 / sum(tiles_total)
	AS s FROM selection_stat GROUP BY run_id)' | tail -1)" 1
for how in --async-scheduling --policy=sglang-0.5.21 --policy=sglang-mixed-0.5.21 \
	'--policy=sglang-0.5.21 --async-scheduling' --policy=trtllm-max-util-1.2; do
	# shellcheck disable=SC2086
	run how.db cost $how >/dev/null
	# shellcheck disable=SC2086
	run how.db cpu $how --model niah-llama-14m --capture "$arc" --sample-layers 1 \
		--attention-only --accuracy 0 >/dev/null
	schedule how.db 1 >want.csv
	schedule how.db 2 >cpu.csv
	ok "cpu: the schedule of the cost backend with $how" same cpu.csv want.csv
	ok '... which is another than without' sh -c '! cmp -s want.csv cost.csv'
	rm how.db
done
attend cpu2.db cpu ${methods%%,flash*} >/dev/null
unmeasured cpu.db 1 >a.csv
unmeasured cpu2.db 1 >b.csv
ok 'cpu: a second run is the same to the byte' same a.csv b.csv

# ---- samples of decodes ----

sampled() { rows "$1" 1 accuracy_sample 'req_no, chunk_start, layer, head, rel_l2, mass_recall, half'; }
decodes() { # decodes DB OPTION...: half of them are compared
	db=$1
	shift
	run "$db" cpu --model niah-llama-14m --capture "$arc" --sample-layers 1 --attention-only \
		--accuracy 0 --accuracy-decode 0.5 --num-gpu-blocks 400 "$@" >out
}
ok 'cpu: decodes are compared with dense attention' decodes decode.db
ok '... as the run says' grep -q '^decodes against dense, [0-9]* samples: relative L2 mean 0 max 0' out
decodes other.db --policy sglang-0.5.21 --max-num-batched-tokens 400
sampled decode.db | sort >a.csv
sampled other.db | sort >b.csv
ok '... the same ones, whatever the schedule' same a.csv b.csv
is '... some of them, all of the half decode, and dense ones have no error' "$("$ATTNREPLAY" sql \
	--format csv decode.db "SELECT count(DISTINCT req_no || ' ' || chunk_start) BETWEEN 5 AND 20
	AND min(half = 'decode' AND rel_l2 = 0 AND mass_recall = 1) AS x FROM accuracy_sample" |
	tail -1)" 1

# ---- parts of methods ----

ok 'methods get a part from an option' run parts.db cpu --model niah-llama-14m --capture "$arc" \
	--sample-layers 1 --attention-only --accuracy 0 --method dense,ashape/decode=dense \
	--decode dense
is '... as if they were written so, and have one dense part' "$("$ATTNREPLAY" sql --format csv \
	parts.db "SELECT group_concat(DISTINCT value) || ' ' || count(DISTINCT baseline_run_id) || ' '
	|| (SELECT count(*) FROM method WHERE params NOT LIKE '%decode%') || ' ' || (SELECT count(*) FROM run_param WHERE key = 'decode') AS x
	FROM run JOIN run_param USING(run_id) WHERE key = 'method'" | tail -1)" \
	'"dense/decode=dense,ashape/decode=dense 1 2 0"'
ok 'a part that no method takes is refused' fails 2 \
	'^attnreplay: decode has no effect: every method has its own /decode=NAME; leave it out$' \
	"$ATTNREPLAY" run --trace trace.csv --method ashape/decode=dense --decode dense

# ---- which runs can be compared ----

answer() { "$ATTNREPLAY" sql --format csv "$@" | tail -1; }
setups() { answer setup.db 'SELECT count(DISTINCT setup) AS n FROM run'; }
run setup.db cost --merge trace.csv --keep 0.37 >/dev/null
for db in setup.db cpu.db; do
	is "$db: the setup is as SQLite writes it, as in every database so far" "$(answer $db "SELECT
		min(setup = (SELECT json_group_object(key, value) FROM (SELECT key, value FROM
		json_each(options) WHERE key NOT IN ('method', 'trace', 'format', 'model', 'policy',
		'backend', 'db', 'accuracy', 'comm-join', 'comm-timeout', 'devices', 'ranks', 'rank', 'nccl-id', 'accuracy-decode', 'hot-buffer', 'keep-entries',
		'keep-kernels', 'keep-tables', 'costs', 'slo',
		'intervals', 'intervals-time',
		'page-size', 'repeats', 'columns', 'max-memory', 'engine-defaults', 'engine-args',
		'rates')
		ORDER BY key))) AS x FROM run")" 1
done
run setup.db cost --merge trace.csv --keep 0.37 --policy vllm-0.19 --slo ttft:1s \
	--keep-entries no >/dev/null
is 'what names a run or says what is recorded is no part of it' "$(setups)" 1
run setup.db cost --merge trace.csv --keep 0.38 >/dev/null
is '... and all else is' "$(setups)" 2

# ---- where a GPU is present, says the program ----

attend cuda.db cuda $methods >out
status=$?
if [ "$ATTNREPLAY_REQUIRE_GPU" = 1 ] && [ $status = 4 ]; then
	echo 'Bail out! no usable GPU'
	exit 1
elif [ $status = 4 ]; then
	skip 'cuda: the schedule of the cost backend, row for row' 'no usable GPU'
	skip 'cuda: selects what the cpu selects' 'no usable GPU'
	skip 'cuda: a gate that is read before all runs leaves them the GPU' 'no usable GPU'
else
	is 'cuda: both methods replay it' $status 0
	for m in 1 2; do
		schedule cuda.db $m >cuda.csv
		ok "cuda: run $m has the schedule of the cost backend, row for row" \
			same cuda.csv cost.csv
		selection cuda.db $m >got$m
		is "cuda: run $m selects what the cpu selects, rows that differ" \
			"$(diff want$m got$m | grep -c '^[<>]')" 0
	done
	ok 'cuda: a gate that is read before all runs leaves them the GPU' \
		attend gate.db cuda dense,seer:gate=mean
fi
ok 'every query had an answer' test ! -e no_answer
finish
