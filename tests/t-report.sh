#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay report: the figures of a database, computed by hand.
. "$srcdir/tests/tap.sh"

db=$tmp/sample.db
"$(dirname "$ATTNREPLAY")/tests/make-db" "$db" || { echo 'Bail out! no sample database'; exit 1; }
report() { "$ATTNREPLAY" report "$@"; }
report "$db" >"$tmp/all" 2>"$tmp/err"
is 'it succeeds' "$?" 0
is 'it says nothing on standard error' "$(cat "$tmp/err")" ''
says() { grep -Eq "$1" "$tmp/all" || { cat "$tmp/all"; return 1; }; }

ok 'what a run is stands in one line' \
	says '^ +1  dense +s4.csv  llama-3.1-8b  vllm-0.16  NVIDIA H200  cuda *$'
ok 'what came of it in another' \
	says '^ +1  dense +done +2 +0 +0 +8 +0.0310  32 of 32  cupti +0.0000 +0$'
ok 'a failed run says so' \
	says '^ +3 .* failed +0 +1 +1 +2 .* +4 of 32 +cupti . host +1.0000 +0$'
ok 'TTFT is as worked by hand' \
	says '^ +1  dense +ttft +2 +10.300 +10.300 +1.957 +16.140 +3.067 +17.454 +3.316 +17.600$'
ok 'TPOT is as worked by hand' \
	says '^ +1  dense +tpot +2 +3.500 +3.500 +0.665 +3.900 +0.741 +3.990 +0.758 +4.000$'
ok 'ITL is as worked by hand' \
	says '^ +1  dense +itl +8 +3.875 +3.000 +0.570 +6.000 +1.140 +6.000 +1.140 +6.000$'
ok 'phases have time and share, the core is marked' \
	says '^ +2  compact-fp  select  \* +8 +1.550 +10.000$'
ok '... apart in iterations with prompts' says '^ +2  compact-fp  prefill  select +4 +1.025 +20.000$'
ok '... and in those of decodes alone' says '^ +2  compact-fp  decode   select +4 +0.525 +20.000$'
ok 'a phase outside the core is not' says '^ +2  compact-fp  head +8 +7.750 +50.000$'
ok 'the speed-up is against the dense run' says '^ +2  compact-fp +1  ttft +2 +2( +2.0000){4}$'
ok 'accuracy is there' \
	says '^ +2  compact-fp  prefill  16 +0.0250 +0.0400 +0.9970 +0.5000 +0.9150 +0.9000$'
ok 'densities are there' \
	says '^ +2  compact-fp  prefill  4 +0.2500 +0.3000 +0.3750 +0.5000 +0.5000 +0.5500 *$'
ok 'answers are there, by task and length' \
	says '^ +2  compact-fp  multikey +10 +1 +0.000 +100.000 +-0.7500 +-0.2500 +0.5000 +0.5500 +1.500'
ok '... and against dense, prompt by prompt' \
	says '^ +2  compact-fp +1  all +2 +1 +0 +1.0000 +-0.5000 +0.5000 +-0.5000 -0.5000$'
ok '... and those of dense against what the tasks file says' says '^ +1  dense +all +1 +1 +0 +0$'
ok 'that tasks are not RULER is stated' says 'RULER-like tasks are not RULER'
ok 'the percentile rule is stated'   says 'interpolate linearly'
ok 'what accuracy means is stated'   says 'single layers on replayed activations'
ok 'empty rows are stated'           says 'run 2: 12 rows .* are empty'
ok 'sampled layers are stated'       says 'layers +3 +4 of 32 layers were executed'
ok 'what is no steady service is stated' \
	says '^g +load +1 to 3 +closed batch: all requests arrive before the first iteration ends$'
ok 'lost records are stated'         says 'run 3: 3 kernel records were lost'
ok 'tiling is stated'                says 'tiled +3 +requests longer than the capture'
ok 'notes are lines without a header' says '^Notes$'
not() { ! says "$1"; }
ok '... and nothing else'            not '^note$'
ok 'unfinished requests are stated'  says 'requests +3 +1 requests were rejected, 1 did not finish'
ok 'tokens without a page are stated' \
	says '^run 1: 3 tokens of the prefix cache were on no page, and were filled again outside of the'
ok '... and events that waited' says '^run 1: events of the evictor waited 5 times for KV blocks$'

what='a database of version 6 has the same report'
if command -v sqlite3 >/dev/null; then
	cp "$db" "$tmp/old.db"
	sqlite3 "$tmp/old.db" 'DROP TABLE eval_prompt; DROP TABLE eval_token;
		PRAGMA user_version = 11'
	report "$tmp/old.db" | tail -n +2 >"$tmp/no-answers"
	sqlite3 "$tmp/old.db" 'ALTER TABLE selection_stat RENAME COLUMN empty_rows TO blind;
		PRAGMA user_version = 6'
	is "$what" "$(report "$tmp/old.db" | tail -n +2)" "$(cat "$tmp/no-answers")"
	is '... without tasks' "$(grep -c '^Accuracy on tasks' "$tmp/no-answers")" 0
else
	skip "$what" 'no sqlite3'
fi

report --run 2 "$db" >"$tmp/all"
ok '--run reports that run'          says '^ +2  compact-fp  s4.csv'
ok '... with its dense run beside it' says '^ +2  compact-fp +1  ttft +2 +2( +2.0000){4}$'
ok '... and no other'                not '^ +3  '
ok '... nor their notes'             not 'run 3'

report --format json "$db" >"$tmp/all"
ok 'json has a member per table'     says '^"speedup": \[$'
list=$srcdir/src/report/section_list.h
if [ -e "$list" ] && command -v python3 >/dev/null; then
	shown=$(sed -n 's/^\(SECTION\|COMMON\)(\([a-z_]*\), ".*/\2/p' "$list")
	json() { python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
assert list(r) == sys.argv[2:] and len(r) > 9, list(r)
assert r["latency"][0]["p99"] == 17.454, r["latency"][0]
assert list(r["notes"][0]) == ["note"], r["notes"]' "$tmp/all" $shown; }
	ok 'json is well formed'     json
else
	skip 'json is well formed' 'no python3'
fi
report --format csv "$db" >"$tmp/all"
ok 'csv has a header per table'      says '^run,method,metric,n,mean,p50,p50_lo,p50_hi,p90,p90_lo,p90_hi,p99,p99_lo,p99_hi,max$'

report --format markdown "$db" >"$tmp/all"
ok 'markdown begins with sentences' says '^- Faster, at a cost: compact-fp is 2\.00x faster \\\[2\.00, 2\.00\\\] at TTFT p50, but gives'
ok '... under a heading' says '^### In short$'
ok '... and has tables, numbers to the right' \
	says '^\|---:\|---\|---\|---:\|---:\|---:\|---:\|---:\|---:\|---:\|---:\|---:\|$'
ok '... of the same figures' \
	says '^\| 1 \| dense \| ttft \| 2 \| 10.300 \| 10.300 \| 1.957 \| 16.140 \| 3.067 \| 17.454 \| 3.316 \| 17.600 \|$'
ok '... and notes as a list' says '^- run 2: 12 rows .* are empty'
ok '... in which nothing is markup' says 'rows \(query head, query block\) of|run 3: 3 kernel'
is 'foreign text is no markup of Markdown' "$("$ATTNREPLAY" sql --format markdown "$db" \
	"SELECT 'a|b*<i>' || char(10) || char(27) AS \"x_y\", 1 AS n")" '| x\_y | n |
|---|---:|
| a\|b\*\<i\> \x1b | 1 |'
is 'a query without rows has its head' \
	"$("$ATTNREPLAY" sql --format markdown "$db" 'SELECT 1 AS a WHERE 0')" '| a |
|---|'

listed() { # a file that is not listed is in no report
	for sql in "$srcdir"/src/report/sections/*.sql; do
		grep -q "($(basename "$sql" .sql), " "$list" ||
			{ echo "$sql"; return 1; }
	done
}
if [ -e "$list" ]; then
	ok 'every file of sections/ is a section' listed
else
	skip 'every file of sections/ is a section' 'no sources here'
fi

# Goodput, and the figures of other tools.
report --slo ttft:10ms,tpot:3.5ms "$db" >"$tmp/all"
ok 'requests that keep a limit are counted' says '^ +1  dense +ttft +10.000 +2 +1 +50.000 +32.258$'
ok '... a time that equals it keeps it' says '^ +1  dense +tpot +3.500 +2 +1 +50.000 +32.258$'
ok '... and those that keep all limits' says '^ +1  dense +all +2 +0 +0.000 +0.000$'
ok '... request by request, per second of the run' \
	says '^ +2  compact-fp  all +2 +2 +100.000 +129.032$'
ok 'requests without an end keep none' says '^ +3  tri-shape +all +2 +0 +0.000 *$'
report --run 2 --slo e2e:15.5ms "$db" >"$tmp/all"
ok 'the limits of one run are those asked for' says '^ +2  compact-fp  all +2 +2 '
ok '... and of no other' not '^ +1 .* all '
report "$db" >"$tmp/all"
ok 'without limits there is no goodput' not '^Goodput'
report --dialect vllm "$db" >"$tmp/all"
ok 'vllm: one figure in a line, under its name' says '^ +1  Mean TPOT \(ms\) +3.500$'
ok 'vllm: rates are of the time from arrival to end' \
	says '^ +1  Total Token throughput \(tok/s\) +1032.258$'
ok 'vllm: requests without an end failed' says '^ +3  Failed requests +2$'
ok 'another dialect replaces the tables' not '^(Runs|Latency|Notes)'
report --dialect aiperf --run 1 "$db" >"$tmp/all"
ok 'aiperf: percentiles from high to low, then the deviation' \
	says \
	'^ +1  Inter Token Latency \(ms\) +3.500 +3.000 +4.000 +3.990 +3.900 +3.750 +3.500 +0.500$'
ok 'aiperf: rates have an average only' says '^ +1  Request Throughput \(requests/sec\) +64.516 *$'
ok 'aiperf: one run alone' not '^ +2  '
report --dialect vidur --format csv "$db" >"$tmp/all"
ok 'vidur: decode time is divided by all outputs' \
	says '^1,decode_time_execution_plus_preemption_normalized,0.0015,0.0035,0.0025,'
report --dialect llmservingsim "$db" >"$tmp/all"
ok 'llmservingsim: the gaps of all requests together' says '^ +1  P99 ITL \(ms\) +6.000$'
report --dialect splitwise --format csv "$db" >"$tmp/all"
ok 'splitwise: time between tokens counts the first' says '^1,tbt_times,0.0025,'
report --dialect aiperf --slo tpot:1s --format json "$db" >"$tmp/all"
ok 'a dialect has goodput too' says '^"goodput": \[$'
for limit in ttft ttft: ttft:0 ttft:fast itl:1ms e2e:1s,; do
	ok "slo $limit is wrong usage" fails 2 "slo '" "$ATTNREPLAY" report --slo $limit "$db"
done
ok 'a limit given twice is wrong usage' fails 2 'slo names e2e twice' \
	"$ATTNREPLAY" report --slo e2e:1s,e2e:2s "$db"
single="^attnreplay: slo 'ttft:p99:1s': a percentile is one of many requests, but the goodput counts \
single ones; leave it out, or use 'attnreplay search'$"
ok 'a limit of a percentile is refused' fails 2 "$single" \
	"$ATTNREPLAY" report --slo ttft:p99:1s "$db"
ok '... also by run' fails 2 "$single" \
	"$ATTNREPLAY" run --trace x --backend cost --slo ttft:p99:1s
ok 'an unknown dialect is named' fails 2 'want one of attnreplay, vllm, aiperf, ' \
	"$ATTNREPLAY" report --dialect ab "$db"

# Requests of one token have no TPOT: in vLLM they keep its limit, in aiperf they do not.
cat >"$tmp/one.csv" <<EOF
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,10,1
2023-11-16 18:00:00.0000000,10,3
EOF
"$ATTNREPLAY" -q run --trace "$tmp/one.csv" --backend cost --cost-fixed 1ms --cost-per-token 0 \
	--slo tpot:1ms,ttft:5ms --db "$tmp/slo.db" >/dev/null
report "$tmp/slo.db" >"$tmp/all"
ok "a run's own limits are reported" says '^ +1 +all +2 +2 +100.000 +666.667$'
report --dialect aiperf "$tmp/slo.db" >"$tmp/all"
ok 'aiperf: a request without TPOT misses its limit' \
	says '^ +1 +tpot +1.0000 +2 +1 +50.000 +333.333$'
report --slo ttft:1us "$tmp/slo.db" >"$tmp/all"
ok 'limits given to the report come before' says '^ +1 +all +2 +0 +0.0000 +0.0000$'
ok '... and replace them' not ' tpot +1.0000 '
report --dialect llmservingsim "$tmp/slo.db" >"$tmp/all"
ok 'llmservingsim: a request of one token counts as TPOT 0' says '^ +1  Mean TPOT \(ms\) +0.500$'
report --dialect vllm "$tmp/slo.db" >"$tmp/all"
ok 'vllm: it does not count' says '^ +1  Mean TPOT \(ms\) +1.000$'

# Real runs on the C references: each prompt in one chunk, then in several chunks.
replay() { # replay DB CHUNK OPTION...
	to=$1 chunk=$2
	shift 2
	"$ATTNREPLAY" -q run $plain --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --requests 2 \
		--max-prompt-tokens 400 --max-output-tokens 2 --model niah-llama-14m --backend cpu \
		--capture "$srcdir/traces/samples/niah-2k.arc" --sample-layers 1 --block-size 128 \
		--max-num-batched-tokens "$chunk" --db "$to" "$@" >/dev/null &&
		"$ATTNREPLAY" report "$to" >"$tmp/all"
}
ok 'a replay of whole prompts is reported' replay "$tmp/one.db" 1024 --accuracy 1 \
	--method dense,flashprefill
ok '... and that its method left nothing out' says \
	'^[a-z] +whole +2 +left nothing out: .* lower --max-num-batched-tokens$'
ok '... of the sparse one only'      not ' 1 +left nothing'
is 'no line is wider than 110 columns' "$(sed 's/±/+/g' "$tmp/all" | awk 'length > 110')" ''
ok 'a replay without samples is reported' replay "$tmp/none.db" 1024 --accuracy 0 \
	--method flashprefill,flashprefill:dense-first=0
ok '... and that its chunks were the first' \
	says ' whole +1 +left nothing out: each chunk began its prompt'
ok '... unless the method may be sparse there' not ' 2 +left nothing out'
ok 'a replay in small chunks is reported' replay "$tmp/keep.db" 128 --accuracy 1 \
	--method flashprefill:alpha=0,flashprefill:alpha=0.9,sink=0,window=1
ok '... and that parameters kept everything' says ' whole +1 +left nothing out: selector and union'
ok '... but not of a method that left something out' not ' 2 +left nothing out'

ok 'decodes have lines of their own' replay "$tmp/half.db" 128 --accuracy 1 --accuracy-decode 1 \
	--method dense,quoka
ok '... of their error' says '^ +2  quoka +decode +16( +0.0000){2} +1.0000 +0.0000( +1.0000){2}$'
ok '... beside that of prompts' says '^ +2  quoka +prefill +[0-9]+ +0.0*[1-9]'
ok '... and of what they read' says '^ +2  quoka +decode +4 .* 1.0000 *$'
is '... in lines that are not wide' "$(sed 's/±/+/g' "$tmp/all" | awk 'length > 110')" ''
is '... which the view has, too' "$("$ATTNREPLAY" sql --format csv "$tmp/half.db" 'SELECT executed < 1,
	executed_decode FROM v_executed ORDER BY run_id' | tail -n +2 | tr '\n' ' ')" '0,1 1,1 '

echo '{"prefill": [[1, 1]], "decode": [[1, 1]], "mixed": {"prefill": 1, "decode": 1, "walk_us": 100,
	"fill_rows": 0}}' >"$tmp/as.json"
replay "$tmp/walk.db" 128 --accuracy 0 --method dense,streaming
ok 'sparse decodes are compared' replay "$tmp/walk.db" 128 --accuracy 0 --method dense \
	--dense-as-engine "$tmp/as.json"
ok '... with dense ones whose keys are split' says '^ +2  streaming +1  split '
ok '... and with those of an engine' says '^ +2  streaming +3  engine '
ok '... with what their text is' says '^run 2: decodes follow the text of the capture; after what'
ok '... and no others' not '^ +[13] .* (split|engine) '
ok '... by TPOT' says '^Mechanics only, .* decodes of streaming read an unknown share of their keys'

# A decode of 60,000 keys beside the chunks of another prompt.
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2024-01-01 00:00:00,60000,30' \
	'2024-01-01 00:00:00,4000,12' >"$tmp/mixed.csv"
"$ATTNREPLAY" -q run --trace "$tmp/mixed.csv" --backend roofline --gpu h100 --model llama-3.1-8b --host none \
	--max-num-batched-tokens 2048 --method dense,streaming --db "$tmp/mixed.db" >/dev/null 2>&1
is 'a chunk waits for the walk of a decode, but not of a sparse one' "$("$ATTNREPLAY" report --format csv \
	--table decodes "$tmp/mixed.db" | sed 1d | awk -F, '{ print $4, ($8 < $9 / 5), ($10 > 0 && $10 < $9), ($6 > 1.3) }')
$("$ATTNREPLAY" sql "$tmp/mixed.db" "SELECT count(*) FROM v_phase_time WHERE phase = 'walk' AND run_id = 2" |
	tail -n 1 | tr -d ' ')" 'engine 1 1 1
0'

ok 'an unknown run is wrong usage'   fails 2 "no run 9" "$ATTNREPLAY" report --run 9 "$db"
ok 'run 0 is wrong usage'            fails 2 "run '0': want" "$ATTNREPLAY" report --run 0 "$db"
ok 'a missing file is bad data' \
	fails 3 "$tmp/none: No such file" "$ATTNREPLAY" report "$tmp/none"
# The report computes v_latency by one pass over each table, the view by window functions.
"$ATTNREPLAY" run $plain --backend cost --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
	--repeat 100 --time-scale 0.01 --cost-per-token 20123ns --keep-entries no \
	--intervals off --db "$tmp/many.db" >"$tmp/out"
by_view() { "$ATTNREPLAY" sql --format csv "$1" 'SELECT run_id AS run, method, metric, n, mean, p50,
	p90, p99, max FROM v_latency ORDER BY run_id, instr("ttft tpot itl e2e queue", metric)'; }
by_report() { report --format csv "$1" | sed -n '/^run,method,metric,n,mean/,/^$/p' | sed '/^$/d' |
	cut -d, -f1-6,9,12,15; }
is 'the latency of 20,000 requests is that of v_latency' "$(by_report "$tmp/many.db")" \
	"$(by_view "$tmp/many.db")"
is '... so it is for the sample' "$(by_report "$db")" "$(by_view "$db")"

# Load below and above what the engine serves, a few requests, and a batch.
served() { # served RATE COUNT
	"$ATTNREPLAY" trace synth --arrivals poisson:rate=$1 --count $2 \
		--lengths lognormal:prompt=200,output=20 -o "$tmp/load.jsonl" &&
		"$ATTNREPLAY" -q run $plain --backend cost --max-num-seqs 4 --trace "$tmp/load.jsonl" \
			--keep-entries no --db "$tmp/load.db" >/dev/null
}
for load in '10 600' '40 600' '10 9' '1e6 600'; do
	served $load || echo "# no run of $load"
done
report "$tmp/load.db" >"$tmp/all"
ok 'a load that is served is steady' says '^ +1 +steady +[0-9]'
ok '... of which no note tells'      not '^runs? 1[^:]*: [^d]'
ok 'a higher load is a backlog'      says '^ +2 +backlogged +38 +38 +[0-9.]+ +[0-9.]+ +[0-9.]+$'
ok '... as a note says'              says \
	' load +2 +backlogged: in 38 of 38 replays of four times as many requests, the last quarter'
ok 'of a few requests it is not known' says '^ +3 +not known +[0-9]'
ok 'requests that arrive at once are no load' says '^ +4 +closed batch '
ok 'latencies have half an interval' says \
	'^ +1 .* ttft +600( +[0-9]+\.[0-9]{3}){8}$'
ok '... which the table heads so'    says '^run .* p50 +± +p90 +± +p99 +± +max$'
ok '... where there are enough values' says '^ +3 .* ttft +9( +[0-9]+\.[0-9]{3}){5}$'
ok '... else a note gives the reason' \
	says '^run 3: no interval of latencies: the trace has 9 requests, want 10$'
report --format csv "$tmp/load.db" | sed -n '/^run,method,metric,n,mean/,/^$/p' >"$tmp/all"
is 'csv has both ends'               "$(head -1 "$tmp/all")" "$(by_report "$tmp/load.db" | head -1 |
	sed 's/p50\|p90\|p99/&,&_lo,&_hi/g')"
report "$tmp/load.db" >"$tmp/all"
report "$tmp/load.db" >"$tmp/again"
ok 'they are the same in each report' cmp "$tmp/all" "$tmp/again"

ok 'no database is wrong usage'      fails 2 'no database given' "$ATTNREPLAY" report

# Several databases, whose runs differ in the chunk size and in nothing else.
cd "$tmp" || exit 99
for chunk in 512 1024; do
	for to in $chunk all; do
		"$ATTNREPLAY" -q run $plain --backend cost --max-num-batched-tokens $chunk --requests 9 \
			--trace "$srcdir/traces/samples/azure-2023-code-200.csv" --db $to.db >/dev/null
	done
done
report 512.db 1024.db >all
ok 'options in which runs differ are columns beside the method' \
	says '^run  method  max-num-batched-tokens  metric '
ok '... of every row'                says '^ +2 +1024  ttft +9 '
ok '... that none names twice' \
	says '^run  method  max-num-batched-tokens  trace +model  policy +gpu  backend  capture$'
ok 'the notes say where runs come from' says '^run 2: run 1 of 1024.db$'
is 'two files have the report of one that holds both' "$(grep -v '^run .: run 1 of' all)" \
	"$(report all.db)"
report --format json all.db >all
ok 'json has these options, too'     says '"method": null, "max-num-batched-tokens": 512,'
report all.db:2 >all
ok 'a run may be named behind its database' says '^ +2 +azure'
ok '... alone, without such columns' not 'max-num-batched'
report all.db:2 512.db >all
ok '... or with others, in this order' says '^ +1 +1024  ttft +9 '
ok '... of which the notes tell'     says '^run 1: run 2 of all.db$'
cp 512.db odd:3
ok 'a file of such a name is that file' report odd:3
ok 'a run that is not there is named' fails 2 'all.db: no run 3;' \
	"$ATTNREPLAY" report 512.db all.db:3
ok '--run goes with one database' fails 2 '--run is for one database; write 512.db:RUN' \
	"$ATTNREPLAY" report --run 1 512.db 1024.db
ok 'each database must be one' fails 3 'missing.db: No such file' \
	"$ATTNREPLAY" report 512.db missing.db

# Any run may be the baseline.
report --baseline 1 all.db >all
ok 'a baseline need not be dense' says '^ +2 +1024 +1  ttft +9 +9 +[0-9.]'
ok '... and is not compared with itself' not '^ +1 +512 +1  ttft +9 +9 +[0-9.]'
report --baseline all.db:1 all.db:2 >one
ok '... beside one run'              grep -Eq '^ +2 +1  ttft +9 +9 +[0-9.]' one
report --baseline 512.db:1 1024.db >two
ok '... from another database, which is reported, too' \
	grep -Eq '^ +1 +1024 +2  ttft +9 +9 +[0-9.]' two
report --baseline 512.db:1 512.db 1024.db >both
is '... or from one of several'      "$(grep -v '^run .: run 1 of' both)" "$(cat all)"
"$ATTNREPLAY" -q run --backend cost --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
	--requests 8 --db all.db >/dev/null
ok 'a baseline of other requests is refused' \
	fails 2 'run 1 had other requests than the baseline, run 3' \
	"$ATTNREPLAY" report --baseline 3 all.db
ok '... but not where only its own are reported' report --baseline 2 all.db:1
ok 'a baseline did end'              fails 2 'baseline run 3 did not end' \
	"$ATTNREPLAY" report --baseline 3 "$db"
ok '... and is there'                fails 2 'all.db: no run 9;' \
	"$ATTNREPLAY" report --baseline 9 all.db
ok '... among several'               fails 2 '512.db: no run 9;' \
	"$ATTNREPLAY" report --baseline 512.db:9 512.db 1024.db
ok '... and is named in full there'  fails 2 "baseline '1': want DB:RUN" \
	"$ATTNREPLAY" report --baseline 1 512.db 1024.db

if command -v sqlite3 >/dev/null; then
	cp "$db" "$tmp/cut.db"
	sqlite3 "$tmp/cut.db" 'DROP TABLE token_gap'
	ok 'a database without a table is an error' fails 1 'make_latency: no such table' \
		"$ATTNREPLAY" report "$tmp/cut.db"
	ok '... in every format' fails 1 'make_latency: no such table' \
		"$ATTNREPLAY" report --format json "$tmp/cut.db"
else
	skip 'a database without a table is an error' 'no sqlite3'
	skip '... in every format' 'no sqlite3'
fi
# ---- one table ----

report --format csv "$db" >"$tmp/all"
names=$(sed -n 's/^# //p' "$tmp/all")
ok 'CSV names each table' [ "$(echo "$names" | grep -cx 'latency\|runs\|speedup')" = 3 ]
for name in $names; do
	report --format csv --table "$name" "$db"
	echo
done >"$tmp/each"
ok '--table writes one of them, without its name' [ "$(sed '/^# /d' "$tmp/all")" = "$(cat "$tmp/each")" ]
is '... also of another dialect' "$(report --table vllm "$db" | head -1)" \
	'What vllm bench serve prints'
is '... or of long lines' "$(report --table verdict --format csv "$db" | head -1)" verdict
ok 'a table that is not there is named, with those that are' fails 2 \
	"no table 'x'; want one of .*latency, .*notes" "$ATTNREPLAY" report --table x "$db"
ok 'the page has all' fails 2 '.-table has no effect with --html; leave it out' "$ATTNREPLAY" report \
	--html "$tmp/x.html" --table latency "$db"
if command -v duckdb >/dev/null; then
	report --format csv --table latency "$db" >"$tmp/latency.csv"
	(cd "$tmp" && duckdb -c "COPY (FROM 'latency.csv') TO 'latency.parquet'")
	is 'DuckDB makes Parquet of one' "$(cd "$tmp" && duckdb -csv -noheader \
		-c "SELECT count(*) FROM 'latency.parquet'")" "$(($(wc -l <"$tmp/latency.csv") - 1))"
else
	skip 'DuckDB makes Parquet of one' 'no duckdb'
fi
finish
