#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Droppers whose ranks run on two GPUs: they keep the same rows, which each iteration checks, by
# messages that have a phase.  A library that lets ranks share a GPU (NCCL_MULTI_RANK_GPU_ENABLE=1)
# needs one.
. "$srcdir/tests/tap.sh"

devices=0,1
[ "$NCCL_MULTI_RANK_GPU_ENABLE" = 1 ] && devices=0,0
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n +2 | tr -d '"'; }
# rows DB DROPPER OPTION...: run it; what it keeps in each iteration and layer is in DB.csv
rows() {
	db=$tmp/$1 method=dense+$2
	shift 2
	"$ATTNREPLAY" -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --host none \
		--backend cuda --model niah-llama-14m --capture "$srcdir/traces/samples/niah-2k.arc" \
		--requests 6 --max-prompt-tokens 1900 --max-output-tokens 4 --num-gpu-blocks 4000 \
		--max-num-batched-tokens 4096 --intervals off --accuracy 0 --db "$db" --method "$method" \
		"$@" >"$tmp/out" 2>"$tmp/err" || return
	query "$db" 'SELECT iter_no, layer, n_rows, n_kept FROM iteration_drop' >"$db.csv"
}
ranks='--tp 2 --ranks local --comm-timeout 10s --devices '$devices
uniprefill=uniprefill:layers=2+5,min-tokens=0,p=0.7,last-q=32,sinks=64

rows both $uniprefill $ranks
status=$?
if [ $status = 4 ]; then
	skip 'ranks drop rows on GPUs' "$(head -n 1 "$tmp/err")"
	finish
fi
[ $status = 0 ] || sed 's/^/# /' "$tmp/err"
is 'ranks drop rows on GPUs' $status 0

# agree DB DROPPER: both ranks keep the same rows, nearly as many as one with all heads.  Sums of
# parts that are rounded to bf16 change a few blocks near the threshold.
agree() {
	ok "$2: ranks keep the same rows" rows "$1" "$2" --clock formula $ranks
	ok '... and not all' awk -F , '$4 < $3 { n++ } END { exit !n }' "$tmp/$1.csv"
	is '... by messages in a phase of their own' "$(query "$tmp/$1" "SELECT count(*) > 0,
		min(kernels > 0), min(gpu_ns > 1000) FROM iteration_phase WHERE phase_id = 17")" 1,1,1
	is '... which count as collectives' "$(query "$tmp/$1" "SELECT count(*) FROM iteration_rank
		WHERE comm_exposed_ns < 1000 OR comm_overlap_ns > 0 OR comm_exposed_ns > span_ns")" 0
	rows "one$1" "$2" --clock formula
	awk -F , -v what="$2" 'NR == FNR { one[$1, $2] = $4; next }
		{ d = $4 - one[$1, $2]; off += d < 0 ? -d : d; rows += $3 }
		END { printf "# %s: %d of %d rows more or fewer than by one rank, %.2f %%\n", what, off, rows,
			100 * off / rows; exit off > rows / 20 }' "$tmp/one$1.csv" "$tmp/$1.csv"
	ok '... about those of one rank' [ $? = 0 ]
	query "$tmp/$1" "SELECT printf('# %d messages in %d iterations, %.1f us each', sum(kernels),
		count(*), sum(gpu_ns) / 1e3 / sum(kernels)) AS line FROM iteration_phase WHERE phase_id = 17"
}
agree uniprefill $uniprefill
agree reconstitute $uniprefill,reconstitute=1
agree lazyllm lazyllm:layers=2:0.3+4:0.5
agree sliminfer sliminfer:layers=2:0.3,sinks=64,block=32
agree revival lazyllm:layers=2:0.5,aux-revival=1
messages() { query "$tmp/$1" 'SELECT sum(kernels) FROM iteration_phase WHERE phase_id = 17'; }
took() { query "$tmp/$1" 'SELECT sum(gpu_ns) FROM iteration_phase WHERE phase_id = 16'; }
rows modelled $uniprefill --tp 2 --comm h200-nccl
is 'one rank alone has modelled messages of the dropper' "$(messages modelled)" "$(messages both)"
rows nodrop uniprefill:layers=2+5,min-tokens=1000000 --tp 2 --comm h200-nccl
ok '... and adds up the rows that stay' [ "$(took modelled)" -lt "$(took nodrop)" ]
rows alone $uniprefill --clock formula --tp 2
ok 'one rank alone keeps others' eval '! cmp -s "$tmp/alone.csv" "$tmp/uniprefill.csv"'

# ---- the clock ----

is 'no span is longer than the iteration' "$(query "$tmp/both" 'SELECT count(*) > 0,
	sum(r.span_ns > end_ns - start_ns) AS n FROM iteration_rank r
	JOIN iteration USING (run_id, iter_no)')" 1,0
is 'phases take no longer than the span' "$(query "$tmp/both" 'SELECT count(*) > 0,
	sum(phases > span) AS n FROM (SELECT sum(gpu_ns) AS phases, max(span_ns) AS span FROM iteration_phase
	JOIN iteration USING (run_id, iter_no) GROUP BY run_id, iter_no)')" 1,0
is 'the spread of a barrier is stored' "$(query "$tmp/both" 'SELECT
	barrier_spread_ns BETWEEN 0 AND 100000, barrier_p99_ns >= barrier_spread_ns FROM run')" 1,1
query "$tmp/both" "SELECT printf('# ranks leave a barrier within %d ns, 99 %% within %d ns',
	barrier_spread_ns, barrier_p99_ns) AS line FROM run"

# ---- a long prompt ----

db=$tmp/long
ok 'a long prompt drops blocks' "$ATTNREPLAY" -q run --host none --backend cuda --model llama-3.1-8b \
	--capture random:0 --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --requests 3 \
	--num-gpu-blocks 4000 --max-num-batched-tokens 8192 --max-output-tokens 2 --intervals off \
	--accuracy 0 --db "$db" --method dense+uniprefill:p=0.6,mode=append $ranks
query "$db" "SELECT printf('# llama-3.1-8b: %d messages, %.1f us each; an iteration of %.1f ms has %.3f ms of them',
	sum(kernels), sum(gpu_ns) / 1e3 / sum(kernels), avg(span_ns) / 1e6, avg(gpu_ns) / 1e6) AS line
	FROM iteration_phase JOIN iteration USING (run_id, iter_no) WHERE phase_id = 17 AND prefill_tokens > 0"
finish
