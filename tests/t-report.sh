#!/bin/sh
# attnreplay report: the figures of a database that is known by hand.
. "$srcdir/tests/tap.sh"

db=$tmp/sample.db
"$(dirname "$ATTNREPLAY")/tests/make-db" "$db" || { echo 'Bail out! no sample database'; exit 1; }
report() { "$ATTNREPLAY" report "$@"; }
report "$db" >"$tmp/all" 2>"$tmp/err"
is 'it succeeds' "$?" 0
is 'it says nothing on standard error' "$(cat "$tmp/err")" ''
says() { grep -Eq "$1" "$tmp/all" || { cat "$tmp/all"; return 1; }; }

ok 'what a run is stands in one line' says '^ +1  dense +s4.csv  llama-3.1-8b  vllm-0.16  NVIDIA H200  cuda$'
ok 'what came of it in another'      says '^ +1  dense +done +2 +0 +0 +8 +0.0310  32 of 32  cupti +0.0000$'
ok 'a failed run says so'            says '^ +3 .* failed +0 +1 +1 +2 .* +4 of 32 +cupti +1.0000$'
ok 'TTFT is as worked by hand'       says '^ +1  dense +ttft +2 +10.300 +10.300 +16.140 +17.454 +17.600$'
ok 'TPOT is as worked by hand'       says '^ +1  dense +tpot +2 +3.500 +3.500 +3.900 +3.990 +4.000$'
ok 'ITL is as worked by hand'        says '^ +1  dense +itl +8 +3.875 +3.000 +6.000 +6.000 +6.000$'
ok 'phases have time and share, the core is marked' says '^ +2  compact-fp  select  \* +8 +1.550 +10.000$'
ok 'a phase outside the core is not' says '^ +2  compact-fp  head +8 +7.750 +50.000$'
ok 'the speed-up is against the dense run' says '^ +2  compact-fp +1  ttft +2 +2( +2.0000){4}$'
ok 'accuracy is there'               says '^ +2  compact-fp  16 +0.0250 +0.0400 +0.9970 +0.5000 +0.9150 +0.9000$'
ok 'densities are there'             says '^ +2  compact-fp  4 +0.2500 +0.3000 +0.5000 +0.5500$'
ok 'the percentile rule is stated'   says 'interpolate linearly'
ok 'what accuracy means is stated'   says 'single layers on replayed activations'
ok 'sampled layers are stated'       says 'run 3: 4 of 32 layers were executed'
ok 'lost records are stated'         says 'run 3: 3 kernel records were lost'
ok 'tiling is stated'                says 'run 3: requests longer than the capture'
ok 'notes are lines without a header' says '^Notes$'
not() { ! says "$1"; }
ok '... and nothing else'            not '^note$'
ok 'unfinished requests are stated'  says 'run 3: 1 requests were rejected, 1 did not finish'

report --run 2 "$db" >"$tmp/all"
ok '--run reports that run'          says '^ +2  compact-fp  s4.csv'
ok '... with its dense run beside it' says '^ +2  compact-fp +1  ttft +2 +2( +2.0000){4}$'
ok '... and no other'                not '^ +[13]  '
ok '... nor their notes'             not 'run 3'

report --format json "$db" >"$tmp/all"
ok 'json has a member per table'     says '^"speedup": \[$'
if command -v python3 >/dev/null; then
	json() { python3 -c 'import json, sys
r = json.load(open(sys.argv[1]))
assert list(r) == ["runs", "outcome", "costs", "latency", "phases", "speedup", "accuracy", "density", "notes"], list(r)
assert r["latency"][0]["p99"] == 17.454, r["latency"][0]
assert list(r["notes"][0]) == ["note"], r["notes"]' "$tmp/all"; }
	ok 'json is well formed'     json
else
	skip 'json is well formed' 'no python3'
fi
report --format csv "$db" >"$tmp/all"
ok 'csv has a header per table'      says '^run,method,metric,n,mean,p50,p90,p99,max$'

# Real runs, on the references: all prompts in one chunk each, then in several.
replay() { # replay DB CHUNK OPTION...
	to=$1 chunk=$2
	shift 2
	"$ATTNREPLAY" -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --requests 2 \
		--max-prompt-tokens 400 --max-output-tokens 2 --model niah-llama-14m --backend cpu \
		--capture "$srcdir/traces/samples/niah-2k.arc" --sample-layers 1 --block-size 128 \
		--max-num-batched-tokens "$chunk" --db "$to" "$@" >/dev/null &&
		"$ATTNREPLAY" report "$to" >"$tmp/all"
}
ok 'a replay of whole prompts is reported' replay "$tmp/one.db" 1024 --accuracy 1 \
	--method dense,flashprefill
ok '... and that its method left nothing out' says \
	'^run 2: flashprefill left nothing out: .* lower --max-num-batched-tokens$'
ok '... of the sparse one only'      not '^run 1: dense left'
is 'no line is wider than 110 columns' "$(awk 'length > 110' "$tmp/all")" ''
ok 'a replay without samples is reported' replay "$tmp/none.db" 1024 --accuracy 0 \
	--method flashprefill,flashprefill:dense-first=0
ok '... and that its chunks were the first' says '^run 1: flashprefill left nothing out: every chunk'
ok '... unless the method may be sparse there' not '^run 2: .* left nothing out'
ok 'a replay in small chunks is reported' replay "$tmp/keep.db" 128 --accuracy 1 \
	--method flashprefill:alpha=0,flashprefill:alpha=0.9,sink=0,window=1
ok '... and that parameters kept everything' says '^run 1: .* left nothing out: selector and union'
ok '... but not of a method that left something out' not '^run 2: .* left nothing out'

ok 'an unknown run is wrong usage'   fails 2 "no run 9" "$ATTNREPLAY" report --run 9 "$db"
ok 'run 0 is wrong usage'            fails 2 "run '0': want" "$ATTNREPLAY" report --run 0 "$db"
ok 'a missing file is bad data'      fails 3 "$tmp/none: No such file" "$ATTNREPLAY" report "$tmp/none"
ok 'no database is wrong usage'      fails 2 'want one database' "$ATTNREPLAY" report
ok 'two are wrong usage'             fails 2 'want one database' "$ATTNREPLAY" report "$db" "$db"

if command -v sqlite3 >/dev/null; then
	cp "$db" "$tmp/cut.db" && cp "$db" "$tmp/endless.db"
	sqlite3 "$tmp/cut.db" 'DROP VIEW v_latency'
	sqlite3 "$tmp/endless.db" 'DROP VIEW v_latency; CREATE VIEW v_latency AS
		WITH RECURSIVE n(run_id) AS (SELECT 1 UNION ALL SELECT run_id + 1 FROM n)
		SELECT run_id FROM n WHERE run_id < 0'
	interrupted() {
		timeout --preserve-status -s INT 1 "$ATTNREPLAY" report "$tmp/endless.db" \
			>"$tmp/out" 2>"$tmp/err"
		[ $? = 1 ] && [ ! -s "$tmp/out" ] && grep -q 'interrupted' "$tmp/err"
	}
	ok 'a database without the view is an error' fails 1 'latency: no such table' \
		"$ATTNREPLAY" report "$tmp/cut.db"
	ok 'an interrupt ends the report' interrupted
else
	skip 'a database without the view is an error' 'no sqlite3'
	skip 'an interrupt ends the report' 'no sqlite3'
fi
finish
