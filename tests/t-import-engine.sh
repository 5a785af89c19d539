#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay import-engine, and the report of an engine's run beside replays of the same requests.
. "$srcdir/tests/tap.sh"

db=$tmp/a.db
import() { "$ATTNREPLAY" import-engine "$@"; }
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n +2; }
says() { grep -Eq "$1" "$tmp/report" || { cat "$tmp/report"; return 1; }; }
not() { ! says "$1"; }

# Two requests, served in steps of known times: TTFT 40 and 20 ms, TPOT 10 and 30 ms.
cat >"$tmp/trace.csv" <<'E'
TIMESTAMP,ContextTokens,GeneratedTokens
2024-01-01 00:00:00,600,3
2024-01-01 00:00:00.1,20,2
E
cat >"$tmp/log.jsonl" <<'E'
{"engine":"vllm","version":"0.24.0","gpu":"NVIDIA H200","async":false,"max_num_batched_tokens":8192}
{"begin":0.001,"end":0.040,"tokens":[600],"requests":[0]}
{"begin":0.040,"end":0.050,"tokens":[1],"requests":[0]}
{"begin":0.050,"end":0.060,"tokens":[1],"requests":[0]}
{"begin":0.100,"end":0.120,"tokens":[20],"requests":[1]}
{"begin":0.120,"end":0.150,"tokens":[1],"requests":[1]}
{"request":0,"arrival":0,"prompt_tokens":600,"output_tokens":3,"first_token":0.04,"last_token":0.06}
{"request":1,"arrival":0.1,"prompt_tokens":20,"output_tokens":2,"first_token":0.12,"last_token":0.15}
E
is 'a log becomes a run' "$(import "$tmp/log.jsonl" --db "$db" 2>&1)" \
	"run 1: 5 steps and 2 requests of log.jsonl in $db"
is '... of that engine' "$(query "$db" 'SELECT backend, policy, clock, status, trace FROM v_run')" \
	'vllm-0.24.0,vllm,engine,done,log.jsonl'
is '... with its command line' "$(query "$db" 'SELECT cmdline FROM run')" \
	"attnreplay import-engine $tmp/log.jsonl --db $db"
gzip -c "$tmp/log.jsonl" >"$tmp/log.gz"
is 'a compressed log, a name and a trace' \
	"$(import --name mine-1 --trace "$tmp/trace.csv" --db "$db" "$tmp/log.gz")" \
	"run 2: 5 steps and 2 requests of log.gz in $db"
is '... are stored' "$(query "$db" 'SELECT backend, t.name, length(sha256), format
	FROM run JOIN trace t USING(trace_id) WHERE run_id = 2')" 'mine-1,trace.csv,64,azure'
printf '{"metadata":{"benchmark_phase":"%s","request_start_ns":%s},"metrics":{"input_sequence_length":{"value":9,"unit":"tokens"},"output_sequence_length":{"value":1,"unit":"tokens"},"%s":{"value":%s,"unit":"ms"}}}\n' \
	warmup 5 time_to_first_token 600 profiling 7 time_to_first_token 340.5 \
	profiling 8 time_to_first_output_token 1340.5 >"$tmp/p.jsonl"
import "$tmp/p.jsonl" --db "$tmp/p.db" >"$tmp/out" 2>"$tmp/err"
is 'warm-up is left out' "$(query "$tmp/p.db" 'SELECT count(*), max(ttft_ns) FROM request_outcome')" \
	2,340500000
is '... and said, as is a time that is not stored' "$(sed "s,$tmp/,,; s/ is not.*//" "$tmp/err")" \
	'attnreplay: warning: p.jsonl: 1 records of the warm-up left out
attnreplay: warning: p.jsonl: time_to_first_output_token'
is 'the first steps of a run of vLLM' \
	"$(import "$srcdir/tests/data/vllm-steps-40.json" --db "$tmp/v.db" --requests 8 --trace \
	"$srcdir/traces/samples/azure-2023-code-200.csv")" \
	"run 1: 40 steps and 8 requests of vllm-steps-40.json in $tmp/v.db"

# ---- what clients saw, joined with the engine's steps ----

# A server: a request that warms it up, then two of clients, whose second came first.  Its clock is
# 99.99 s behind theirs: the fastest request takes no time.
cat >"$tmp/steps.jsonl" <<'E'
{"engine":"vllm","version":"0.24.0","async":false,"zero":7}
{"begin":0.001,"end":0.010,"tokens":[20],"requests":[0]}
{"begin":0.100,"end":0.120,"tokens":[20],"requests":[1],"seen":[0.121,1]}
{"begin":0.120,"end":0.150,"tokens":[1,600],"requests":[1,2]}
{"begin":0.150,"end":0.160,"tokens":[1],"requests":[2]}
{"request":0,"id":"warm","arrival":0,"received":0,"prompt_tokens":20,"output_tokens":2,"first_token":0.01,"last_token":0.02}
{"request":1,"id":"b","arrival":0.1,"received":0.1,"prompt_tokens":20,"output_tokens":2,"first_token":0.12,"last_token":0.15}
{"request":2,"id":"a","arrival":0.101,"received":0.101,"prompt_tokens":600,"output_tokens":2,"first_token":0.15,"last_token":0.16}
E
cat >"$tmp/bench.json" <<'E'
{"input_lens":[600,20,9],"output_lens":[2,2,0],"ttfts":[0.071,0.04,0.0],"itls":[[0.011],[0.031],[]],"start_times":[100.09,100.09,100.2]}
E
joined() { import "$tmp/bench.json" --db "$tmp/j.db" --steps "$@" 2>&1; }
is 'clients joined with steps are a run' "$(joined "$tmp/steps.jsonl")" \
	"run 1: 3 steps and 3 requests of bench.json in $tmp/j.db"
is '... of what the clients saw' "$(query "$tmp/j.db" 'SELECT req_no, arrival_ns / 1000,
	first_token_ns / 1000, finish_ns / 1000, outcome FROM request_outcome' | tr '\n' ' ')" \
	'0,0,71000,82000,ok 1,0,40000,71000,ok 2,110000,,,unfinished '
is '... and of the steps on their clock, without the warm-up' "$(query "$tmp/j.db" 'SELECT
	start_ns / 1000, end_ns / 1000, batch_size FROM iteration' | tr '\n' ' ')" \
	'0,20000,1 20000,50000,2 50000,60000,1 '
is '... with entries of their requests' "$(query "$tmp/j.db" 'SELECT iter_no, req_no, start, n_tokens
	FROM iteration_request' | tr '\n' ' ')" '0,1,0,20 1,0,0,600 1,1,20,1 2,0,600,1 '
sed 's/"start_times.*/"x":0}/' "$tmp/bench.json" >"$tmp/old.json"
sed 's/"prompt_tokens":600/"prompt_tokens":599/' "$tmp/steps.jsonl" >"$tmp/less.jsonl"
unjoined() { # unjoined MESSAGE CLIENTS STEPS
	fails 3 "$1" import "$tmp/$2" --db "$tmp/j.db" --steps "$tmp/$3"
}
ok 'a request that the engine did not run is named' unjoined \
	'bench.json: 1 requests have 600 prompt and 2 output tokens, but in less.jsonl 0 have; give' \
	bench.json less.jsonl
ok '... as are requests without a start' unjoined 'old.json: request 0 has no prompt length or no time' \
	old.json steps.jsonl
ok '... and clients with steps' unjoined 'log.jsonl: the log has steps of its own; leave --steps out' \
	log.jsonl steps.jsonl
echo '{"input_lens":[9],"output_lens":[0],"ttfts":[0],"start_times":[1]}' >"$tmp/none.json"
ok '... or without any output' unjoined 'none.json: no request has an output' none.json steps.jsonl
ok '... and a missing log' unjoined 'nothing: No such file' bench.json nothing

# ---- the report ----

replay() { # replay TRACE COST OPTION...: an iteration takes COST
	trace=$1 cost=$2
	shift 2
	"$ATTNREPLAY" -q run --backend cost --trace "$trace" --cost-fixed "$cost" \
		--cost-per-token 0 --db "$db" --max-num-batched-tokens 8192 "$@" >"$tmp/.run"
}
"$ATTNREPLAY" report "$db" >"$tmp/report"
ok 'without a replay there is nothing to compare' not '^Error against an engine'
replay "$tmp/trace.csv" 20ms
"$ATTNREPLAY" report "$db" >"$tmp/report"
ok 'it says of which run the load is not known' says '^The load: not known whether it is sustained with '
ok 'a replay of the same requests stands beside the engine' \
	says '^ +3 +1  vllm-0.24.0  ttft    p50 +-33.333 .* 30.000 +20.000 +20.000 +20.000$'
ok '... with percentiles' says '^ +3 +1  vllm-0.24.0  ttft    p99 +-49.749 .* 39.800 +20.000 +20.000 +20.000$'
ok '... of both latencies' says '^ +3 +1  vllm-0.24.0  tpot    p90 +-28.571 .* 28.000 +20.000 +20.000 +20.000$'
ok '... for each engine' says '^ +3 +2  mine-1 +ttft    p50 +-33.333 .* 30.000 +20.000 +20.000 +20.000$'
ok 'iterations are told apart by what the engine does with them' \
	says '^ +3 +1  decodes +3 +3 +3 +3 +16.667 +20.000 +10.000 +20.000 +26.000 +20.000$'
ok '... small ones with prompts' \
	says '^ +3 +1  prompts, at most 512 tokens +1 +1 +20 +20 +20.000 +20.000 '
ok '... and others' \
	says '^ +3 +1  prompts, more tokens +1 +1 +600 +600 +39.000 +20.000 +39.000 '
ok 'an engine has no queue that its log does not show' not '^ +1 +queue .* -'

"$(dirname "$ATTNREPLAY")/tests/make-db" "$tmp/sample.db" || exit 99
for run in 1 2; do
	"$ATTNREPLAY" -q run --backend cost --costs "$tmp/sample.db:$run" --costs-extrapolate \
		--trace "$tmp/trace.csv" --db "$tmp/methods.db" >"$tmp/.run"
done
import "$tmp/log.jsonl" --db "$tmp/methods.db" >"$tmp/.out"
"$ATTNREPLAY" report "$tmp/methods.db" >"$tmp/report"
ok 'a dense run is compared' says '^ +1 +3  vllm-0.24.0  ttft '
ok '... a sparse one is not' not '^ +2 +3  vllm'

replay "$tmp/trace.csv" 20ms --prompt-scale 2
replay "$tmp/trace.csv" 20ms --requests 1
"$ATTNREPLAY" report "$db" >"$tmp/report"
ok 'a replay of other lengths is not compared' not '^ +4 +[12]  vllm'
ok '... nor one of fewer requests' not '^ +5 +[12]  vllm'
"$ATTNREPLAY" report --run 3 "$db" >"$tmp/report"
ok '--run of the replay has both engines' says '^ +3 +2  mine-1 +ttft    p50 +-33.333 '
"$ATTNREPLAY" report --run 1 "$db" >"$tmp/report"
ok '--run of the engine has its replays' says '^ +3 +1  vllm-0.24.0  ttft    p50 +-33.333 '
ok '... and no other engine' not 'mine-1'
"$ATTNREPLAY" report --run 4 "$db" >"$tmp/report"
ok '--run of another run has none' not '^Error against an engine'
"$ATTNREPLAY" report --format csv "$db" >"$tmp/report"
ok 'as CSV' says '^3,1,vllm-0.24.0,ttft,p50,-33.3333[0-9]*,,,1,-33.3[0-9]*,-33.3[0-9]*,1,,30,20,20,20$'
"$ATTNREPLAY" report --format json "$db" >"$tmp/report"
ok 'as JSON' says '"error_percent": -33.3333[0-9]*, .*"passes": 1, "spread_percent": null, "engine_ms": 30, "run_ms": 20, "run_min": 20, "run_max": 20'

# ---- repeats ----

list=$(seq -s ', ' 500 100 3600)
sed "/_spread/d; s/\(\"update_request_ns\": [0-9]*\),*/\1, \"graph_spread\": [$list], \"pieces_spread\": [$list]/" \
	"$ATTNREPLAY_DATA/replay/host/presets/vllm-0.24.json" >"$tmp/spread.json"
db=$tmp/repeats.db
import "$tmp/log.jsonl" --db "$db" >"$tmp/.out"
replay "$tmp/trace.csv" 20ms --host "$tmp/spread.json" --repeats 3 --no-async-scheduling
"$ATTNREPLAY" report --format csv "$db" >"$tmp/report"
want=$("$ATTNREPLAY" sql --format csv "$db" "SELECT median(p50), min(p50), max(p50) FROM v_latency
	WHERE run_id > 1 AND metric = 'ttft'" | tail -n 1)
is 'repeats are one row: median, smallest and largest' \
	"$(sed -n 's/^2,1,vllm-0.24.0,ttft,p50,.*,3,.*,1,,30,//p' "$tmp/report")" "$want"
is '... with the error of each of these' "$(sed -n 's/^2,1,vllm-0.24.0,ttft,p50,.*,3,//p' "$tmp/report" |
	awk -F , '{ printf "%.3f,%.3f", $1, $2 }')" \
	"$(echo "$want" | awk -F , '{ printf "%.3f,%.3f", 100 * ($2 / 30 - 1), 100 * ($3 / 30 - 1) }')"
ok '... which differ' test "${want#*,}" != "${want##*,},${want##*,}"
ok '... and no other row' not '^[34],1,vllm'
ok 'iterations are those of all repeats, in two tables' test "$(grep -c '^2,1,decodes' "$tmp/report")" = 2
ok '... not of each' not '^[34],1,decodes'
differ() { sed -n 's/^2,1,decodes,3,.*,3,\(.*,.*\),.*,.*,1,$/\1/p' "$tmp/report" | awk -F , '{ exit !($1 < $2) }'; }
ok '... whose means are compared, and each by itself' differ
"$ATTNREPLAY" report --format markdown "$db" >"$tmp/report"
ok 'the verdict says so' says '^- Against vllm-0.24.0, run 1: .*; medians of 3 repeats\.$'
for first in 50 56; do
	sed "s/\"first_token\":0.04,/\"first_token\":0.0$first,/" "$tmp/log.jsonl" >"$tmp/pass.jsonl"
	import "$tmp/pass.jsonl" --db "$db" >"$tmp/.out"
done
replay "$tmp/trace.csv" 20ms --host "$tmp/spread.json"
"$ATTNREPLAY" report --format csv "$db" >"$tmp/report"
ok 'three passes and three draws give an interval' \
	says '^2,1,vllm-0.24.0,ttft,p50,[-.0-9]+,[-.0-9]+,[-.0-9]+,3,'
ok '... three passes and one draw of a host none' says '^7,1,vllm-0.24.0,ttft,p50,[-.0-9]+,,,1,'
"$ATTNREPLAY" report --format markdown "$db" >"$tmp/report"
ok '... as the verdict says' says '; of one draw of its host: --repeats shows others\.$'

# ---- errors of iterations, and what they go with ----

db=$tmp/steps.db
import "$tmp/log.jsonl" --db "$db" >"$tmp/.out"
replay "$tmp/trace.csv" 20ms --no-async-scheduling
is 'the report begins with the error' "$("$ATTNREPLAY" report "$db" | sed -n 2p)" \
	'Run 2 predicts TTFT p50 33 % below and TPOT p50 0 % above that of vllm-0.24.0 (run 1).'
"$ATTNREPLAY" report --format csv "$db" >"$tmp/report"
ok 'iterations that are alike are compared by kind' says '^2,1,decodes,3,3,16.66[0-9]*,20,55.555'
ok '... with mean, median and 95 % of the error' says '^2,1,decodes,3,3,[^a-z]*,77.77[0-9]*,100,100,1,77.77[0-9]*,77.77[0-9]*,55.55[0-9]*,55.55[0-9]*,1,$'
ok '... from their start after a pause' says '^2,1,"prompts, to 512 tokens",1,1,20,20,0,0,0,0,1,0,0,0,0,1,$'
ok '... prompts by tokens' says '^2,1,"prompts, to 2048 tokens",1,1,39,20,-48.7'
is 'what the error goes with comes first' \
	"$(sed -n 's/^2,1,\([a-z ]*\),5,\([-.0-9e]*\),.*/\1/p' "$tmp/report" | tr '\n' ' ')" \
	'longest decode tokens pairs joins '
ok '... with its line' says '^2,1,longest decode,5,33.0415[0-9]*,71.8592[0-9]*,$'
ok '... and what another adds to it' says '^2,1,tokens,5,-36.3133[0-9]*,57.8299[0-9]*,18.8201[0-9]*$'
sed 's/"first_token":0.04,/"first_token":0.05,/' "$tmp/log.jsonl" >"$tmp/pass.jsonl"
import "$tmp/pass.jsonl" --db "$db" >"$tmp/.out"
sed 's/"async":false/"async":true/' "$tmp/log.jsonl" >"$tmp/async.jsonl"
import "$tmp/async.jsonl" --db "$db" >"$tmp/.out"
"$ATTNREPLAY" report --format csv "$db" >"$tmp/report"
ok 'passes of an engine are one row, with their spread' \
	says '^2,1,vllm-0.24.0,ttft,p50,-38.46[0-9]*,,,1,-38.4[0-9]*,-38.4[0-9]*,2,15.38[0-9]*,32.5,20,20,20$'
ok '... with the iterations of all' says '^2,1,decodes,6,6,.*,2,0$'
ok '... of each figure' says '^2,1,vllm-0.24.0,tpot,p50,.*,2,[.0-9]*,[.0-9]*,20,20,20$'
ok '... an engine of other options is another' says '^2,4,vllm-0.24.0,ttft,p50,-33.33'
ok '... whose iterations are planned in another way' says '^2,4,decodes,[0-9]*,0,,,,,,,1,,,,,1,$'
"$ATTNREPLAY" report --format markdown "$db" >"$tmp/report"
ok 'the verdict has it in a sentence' says '^- Against vllm-0.24.0, run 1: TTFT p50 -38.5 %, its passes 15.4 %; .* iterations [0-9.]* % in the mean, of which longest decode explains [0-9]+ %\.$'

"$ATTNREPLAY" report --html "$tmp/report" "$db"
ok '... the page, too' says '<li>Against vllm-0.24.0, run 1: TTFT p50 -38.5 %, '
ok '... with a chart of iterations' \
	says '<title>iteration 0 of the engine: 600 tokens of 1 requests, 39.000 ms; alike 20.000 ms'

# Medians of 30, 35 and 38 ms; their logarithms have the mean 3.53138 and the deviation 0.12000.  So
# the mean error is 20 / 34.17100, and 4.303 standard errors of three passes are 0.29813.
sed 's/"first_token":0.04,/"first_token":0.056,/' "$tmp/log.jsonl" >"$tmp/third.jsonl"
import "$tmp/third.jsonl" --db "$db" >"$tmp/.out"
"$ATTNREPLAY" report --format csv "$db" >"$tmp/report"
ok 'three passes are a sample: t interval' \
	says '^2,1,vllm-0.24.0,ttft,p50,-42.857[0-9]*,-56.559[0-9]*,-21.141[0-9]*,1,-42.8[0-9]*,-42.8[0-9]*,3,22.857[0-9]*,35,20,20,20$'

# Rounds of 10, 20, 10 and 10 ms, the last without a batch: iterations of 30, 10 and 10 ms.
cat >"$tmp/ahead.jsonl" <<'E'
{"engine":"vllm","version":"0.24.0","async":true,"max_num_batched_tokens":8192}
{"begin":0.0,"end":0.010,"tokens":[600],"requests":[0]}
{"begin":0.010,"end":0.030,"tokens":[1],"requests":[0]}
{"begin":0.030,"end":0.040,"tokens":[1],"requests":[0]}
{"begin":0.040,"end":0.050,"tokens":[],"requests":[]}
{"request":0,"arrival":0,"prompt_tokens":600,"output_tokens":3,"first_token":0.03,"last_token":0.05}
E
sed 3d "$tmp/trace.csv" >"$tmp/one.csv"
db=$tmp/ahead.db
import "$tmp/ahead.jsonl" --db "$db" >"$tmp/.out"
replay "$tmp/one.csv" 20ms --policy vllm-0.24
"$ATTNREPLAY" report --format csv "$db" >"$tmp/report"
ok 'planned ahead, an iteration ends with the next round' \
	says '^2,1,"prompts, to 2048 tokens",1,1,30,20,-33.3'
ok '... the last with one of no batch' says '^2,1,decodes,2,2,10,20,100,100,100,100,1,'
"$ATTNREPLAY" -q run --backend roofline --gpu h200 --model llama-3.1-8b --trace "$tmp/one.csv" \
	--policy vllm-0.24 --host vllm-0.24 --host-seed 0 --db "$db" >"$tmp/.run"
"$ATTNREPLAY" report --run 3 --format csv "$db" >"$tmp/report"
is 'a replay has the rounds of its host, which add up to the time of a request alone' \
	"$(sed -n 's/"[^"]*"/prompts/; s/^3,1,\(prompts\|decodes\),/,/p' "$tmp/report" |
		awk -F , 'NF == 16 { ms += $3 * $5 } END { printf "%.3f", ms }')" \
	"$(query "$db" "SELECT printf('%.3f', (finish_ns - min(start_ns)) / 1e6) FROM request_outcome
		JOIN iteration USING(run_id) WHERE run_id = 3")"
"$ATTNREPLAY" -q run --backend roofline --gpu h200 --model llama-3.1-8b --requests 8 --trace \
	"$srcdir/traces/samples/azure-2023-code-200.csv" --policy vllm-0.24 --db "$tmp/v.db" >"$tmp/.run"
"$ATTNREPLAY" report "$tmp/v.db" >"$tmp/report"
ok 'a log of vLLM without requests: iterations of as many tokens are alike' \
	says '^ +2 +1  decodes +[0-9]+ +[1-9][0-9]* '
ok '... of unknown keys' says '^ +2 +1  mixed, keys not known +[0-9]'
ok '... and the error goes with what is known' says '^ +2 +1  (tokens|requests) +[0-9]'
ok '... alone' not '^ +2 +1  (pairs|joins|longest decode) '

# ---- costs ----

cost() { "$ATTNREPLAY" -q run --backend cost --trace "$tmp/trace.csv" --costs "$@"; }
import "$tmp/log.jsonl" --db "$tmp/only.db" >"$tmp/.out"
ok 'an engine gives no costs' fails 2 \
	'only.db: run 1 is one of an engine; costs need a finished run' cost "$tmp/only.db:1"
ok '... nor is it taken for a run that does' fails 2 'only.db: no run is done' cost "$tmp/only.db"

# ---- refusals ----

refuses() { # refuses STATUS MESSAGE ARGUMENT...: and stores nothing
	rm -f "$tmp/none.db"
	want=$1 message=$2
	shift 2
	says_only "$want" "$message" "$ATTNREPLAY" import-engine "$@" || return
	[ ! -e "$tmp/none.db" ]
}
says_only() {
	want=$1 message=$2
	shift 2
	"$@" >"$tmp/.out" 2>&1
	[ $? = "$want" ] && [ "$(cat "$tmp/.out")" = "attnreplay: $message" ] ||
		{ cat "$tmp/.out"; return 1; }
}
ok 'no log' refuses 2 'no log given; name the log of an engine' --db "$tmp/none.db"
ok 'two logs' refuses 2 "unexpected operand 'b'; import one log at a time" a b --db "$tmp/none.db"
ok 'no database' refuses 2 'no database given; add --db FILE' "$tmp/log.jsonl"
ok 'an unknown option' refuses 2 "unknown option '--x'; see --help" --x
ok 'a missing log' refuses 3 "$tmp/none: No such file or directory" "$tmp/none" --db "$tmp/none.db"
ok 'a missing trace' refuses 3 "$tmp/none: No such file or directory" "$tmp/log.jsonl" \
	--trace "$tmp/none" --db "$tmp/none.db"
echo '{"begin":1}' >"$tmp/bad"
ok 'a bad log' refuses 3 "$tmp/bad:1: end: want seconds from 0 to 2e9" "$tmp/bad" \
	--db "$tmp/none.db"
ok 'a trace of fewer requests' refuses 3 \
	'log.jsonl: 2 requests, but trace.csv has 1; give --trace the trace that the engine ran' \
	"$tmp/log.jsonl" --trace "$tmp/trace.csv" --requests 1 --db "$tmp/none.db"
ok 'a trace of other prompts' refuses 3 \
	'log.jsonl: request 0 has 600 prompt tokens, in trace.csv 1200; give --trace the trace that the engine ran' \
	"$tmp/log.jsonl" --trace "$tmp/trace.csv" --prompt-scale 2 --db "$tmp/none.db"
ok 'a log without lengths' refuses 2 \
	'vllm-steps-40.json: the log does not say the lengths of request 0; name its trace with --trace' \
	"$srcdir/tests/data/vllm-steps-40.json" --db "$tmp/none.db"
ok 'a file that is no database' refuses 3 "$tmp/bad: file is not a database; name another file" \
	"$tmp/log.jsonl" --db "$tmp/bad"
ok 'a database in no folder' refuses 1 \
	"$tmp/no/a.db: unable to open database file; check folder and permissions" \
	"$tmp/log.jsonl" --db "$tmp/no/a.db"
if [ -w /dev/full ]; then
	full() { import "$tmp/log.jsonl" --db "$tmp/full.db" >/dev/full; }
	ok 'a full standard output' fails 1 'cannot write standard output' full
else
	skip 'a full standard output' 'no /dev/full'
fi
cat >"$tmp/odd.jsonl" <<'E'
{"engine":"vllm","model":{"architectures":["OddForCausalLM"]}}
{"request":0,"arrival":0,"prompt_tokens":1,"output_tokens":1,"first_token":1}
E
import "$tmp/odd.jsonl" --db "$tmp/odd.db" >"$tmp/.out" 2>&1
ok 'a model that cannot be read is named' grep -q \
	'odd.jsonl: OddForCausalLM: .*; the run has no model' "$tmp/.out"
is '... and left out' "$(query "$tmp/odd.db" 'SELECT model_id FROM run')" ''
finish
