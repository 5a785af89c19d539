#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay calibrate on the sample, and runs with the files that it wrote.
. "$srcdir/tests/tap.sh"

sample=$srcdir/traces/samples/niah-2k.arc
calibrate() { "$ATTNREPLAY" calibrate "$@"; }
made() { calibrate xattention --capture "$sample" --tokens 1000 -o "$tmp/$1" --stride "$2"; }
row() { sed -n 's/^ *\[\(.*\)\].*/\1/p' "$1" | tr -d ' ' | tr , '\n'; }

# density METHOD: the selected share, and the recall
density() {
	printf '{"timestamp": 0, "input_length": 640, "output_length": 1, "hash_ids": [1, 2]}\n' \
		>"$tmp/trace.jsonl"
	rm -f "$tmp/run.db"
	"$ATTNREPLAY" -q run --trace "$tmp/trace.jsonl" --model niah-llama-14m --capture "$sample" \
		--backend cpu --sample-layers 1 --max-num-batched-tokens 512 --accuracy 1 \
		--method "$1" --db "$tmp/run.db" >"$tmp/.run" 2>&1 || { cat "$tmp/.run"; return 1; }
	"$ATTNREPLAY" sql "$tmp/run.db" \
		'SELECT sum(exec_sel) * 100 / sum(exec_total) FROM selection_stat' | tail -n 1 |
		tr -d ' '
}

is 'without a selector it says which there are' "$(calibrate 2>&1)" \
	'attnreplay: nothing to calibrate given; want one of duo, host, minference, plan, roofline, seer, skip, xattention'
ok 'an unknown one is wrong usage' \
	fails 2 "cannot calibrate 'nope'; want one of duo, host" calibrate nope
ok 'a capture is needed'   fails 2 'add --capture FILE' calibrate xattention -o "$tmp/x"
ok 'a file to write too'   fails 2 'add --output FILE' calibrate xattention --capture "$sample"
ok 'operands are refused' \
	fails 2 "unexpected operand 'x'" calibrate xattention x --capture "$sample" -o x
ok 'options of none are wrong usage' fails 2 "unknown option '--x'" calibrate xattention --x
ok 'a capture that is none is bad data' \
	fails 3 'neither an .arc file' calibrate xattention --capture "$0" -o "$tmp/x"
ok 'so is a second one' fails 3 'No such file' \
	calibrate xattention --capture "$sample" --capture "$tmp/none" -o "$tmp/x"

ok 'the sample is calibrated' made a.json 8
is 'to a threshold for each head' "$(row "$tmp/a.json" | wc -l | tr -d ' ')" 8
is 'each a share' "$(row "$tmp/a.json" | awk '!($1 > 0 && $1 <= 1)')" ''
ok 'for another stride' made b.json 16
is 'it differs' "$(cmp -s "$tmp/a.json" "$tmp/b.json"; echo $?)" 1
ok 'again' made c.json 8
ok 'it is the same, byte for byte' cmp "$tmp/a.json" "$tmp/c.json"

ok 'a table for another stride is refused' \
	fails 3 "b.json: not made for stride=8; use the table's stride" \
	"$ATTNREPLAY" run --trace traces/samples/azure-2023-code-200.csv --model niah-llama-14m \
	--extend tile \
	--capture "$sample" --backend cpu --method "xattention:table=$tmp/b.json" \
	--db "$tmp/refused.db"
sparse=$(density xattention:threshold=0.2)
table=$(density "xattention:table=$tmp/a.json")
is 'a run takes the thresholds of the table' \
	"$(awk "BEGIN { print $sparse < $table && $table < 100 }" </dev/null)" 1
is 'threshold 1 is dense' "$(density xattention:threshold=1 | sed 's/\..*//')" 100
patterns() { name=$1; shift; calibrate minference --capture "$sample" --from 1900 \
	-o "$tmp/$name" "$@"; }
is 'patterns want rows to be judged by' \
	"$(calibrate minference --capture "$sample" -o "$tmp/x" 2>&1)" \
	'attnreplay: niah-2k.arc: no row to score: of 2112 tokens none is at 2500 or later; '\
'lower --from'
ok 'patterns are found'            patterns p.json --layers 8
ok 'and again'                     patterns q.json --layers 8
ok 'they are the same'             cmp "$tmp/p.json" "$tmp/q.json"
is 'one for each head of a layer' \
	"$(grep -c '"[0-7]": \[".*", [0-9]*, [0-9]*, [01]\.[0-9]*\]' "$tmp/p.json")" 64
ok 'as published they are of one kind' patterns r.json --as-published
is 'of columns and distances'      "$(grep -c 'vertical_and_slash' "$tmp/r.json")" 48
ok 'a run takes the patterns'      density "minference:pattern=$tmp/p.json"
is 'a model with more layers does not' \
	"$(density "minference:pattern=$tmp/r.json" | sed 's/^.*json: //')" \
	"want an array with an object for each of 8 layers; 'calibrate minference --layers 8' writes one"
unstated() { # [OPTION]...: a capture that does not state its RoPE
	calibrate seer --capture "$srcdir/tests/data/corpus/capture/two.arc" -o "$tmp/no.gate" "$@"
}
with() { # NAME TEXT: the model, with TEXT in it
	sed "s/\"rope_theta\"/$2, &/" "$ATTNREPLAY_DATA/model/presets/niah-llama-14m.json" \
		>"$tmp/$1.json"
}
with long '"rope_scaling": {"type": "longrope"}'
with half '"partial_rotary_factor": 0.5'
ok 'keys before RoPE need its base' \
	fails 2 'two.arc: does not state its RoPE; add --model NAME' unstated
ok '... a model that there is' fails 3 'nope: no such file' unstated --model nope
ok '... and angles that are known' fails 3 "model long: a gate needs keys before RoPE, but the "\
"angles of rope type 'longrope' are not known" unstated --model "$tmp/long.json"
ok '... and nothing but angles' fails 3 "half: a gate needs keys before RoPE, but cannot undo "\
"partial rotary embeddings; take another model" unstated --model "$tmp/half.json"
gate() { calibrate seer --capture "$sample" --tokens 512 --steps 12 -o "$tmp/$1" "$2" "$3"; }
ok 'a gate is distilled' gate a.gate --seed 1
ok 'again' gate b.gate --seed 1
ok 'it is the same, byte for byte' cmp "$tmp/a.gate" "$tmp/b.gate"
ok 'from another seed' gate b.gate --seed 2
is 'it differs' "$(cmp -s "$tmp/a.gate" "$tmp/b.gate"; echo $?)" 1
few=$(density "seer:gate=$tmp/a.gate,nz-ratio=0.3")
more=$(density "seer:gate=$tmp/a.gate,nz-ratio=0.8")
is 'a run takes the gate' \
	"$(awk "BEGIN { print 10 < $few && $few < $more && $more < 100 }" </dev/null)" 1
is 'its tables for KV heads hold no less' \
	"$(awk "BEGIN { print ($(density \
	"compact-sa:gate=$tmp/a.gate,nz-ratio=0.3") >= $few) }" </dev/null)" 1
warned() { # once, by a method that is looked at before the one in front of it runs
	"$ATTNREPLAY" "$@" --capture "$sample" --method "dense,seer:gate=$tmp/a.gate" 2>&1 >/dev/null |
		grep -c "a.gate: gates of 1 layers stand for the"
}
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,300,1' >"$tmp/t.csv"
is 'run says once that its layer stands for all' "$(warned run --trace "$tmp/t.csv" \
	--model niah-llama-14m --backend cpu --sample-layers 1 --accuracy 0)" 1
is '... and so does select' "$(warned select --context 0 --chunk 64)" 1
ok 'a method without a gate says how to get one' fails 2 "add gate=FILE" \
	"$ATTNREPLAY" run --trace traces/samples/azure-2023-code-200.csv --model niah-llama-14m \
	--extend tile \
	--capture "$sample" --backend cpu --method compact-sa --db "$tmp/refused.db"
scores() { calibrate duo --capture "$sample" --sink 16 --recent 64 --rows 9 -o "$tmp/$1" "$2" "$3"; }
ok 'heads are scored' scores a.duo --layers 8
is 'a score for each layer and KV head' "$(awk -F '\t' '{ print NF, ($1 > 0), ($1 <= 1) }' "$tmp/a.duo")" \
	"$(printf '2 1 1\n2 1 1\n2 1 1\n2 1 1\n2 1 1\n2 1 1\n2 1 1\n2 1 1')"
ok 'a run takes the scores' density "duo:file=$tmp/a.duo"
ok 'without the number of layers' scores b.duo --rows 8
is 'there are fewer, which a run refuses' "$(density "duo:file=$tmp/b.duo" | sed 's/^.*b.duo: //')" \
	"6 lines of 2 numbers; want one for each of 8 layers and 2 KV heads; 'calibrate duo --layers 8' writes one"
# ---- plan ----

plan() { # plan NAME METHOD RECALL: to NAME.plan, and what is printed to NAME
	calibrate plan --capture "$sample" --tokens 700 --chunk 128 --chunks 1 \
		--method "$2" --recall "$3" -o "$tmp/$1.plan" >"$tmp/$1"
}
ok 'a plan wants methods' fails 2 'add --method LIST' \
	calibrate plan --capture "$sample" -o "$tmp/x"
few=flashprefill:alpha=0.9,sink=1,window=1,dense-first=0
ok 'one setting is measured' plan one $few 0
"$ATTNREPLAY" -q select --capture "$sample" --context 572 --chunk 128 --prompt-tokens 700 \
	--method $few --csv "$tmp/select.csv" >"$tmp/.select" 2>&1
is '... as select shows it' "$(awk '$1 == 5 { print $2, $3 }' "$tmp/one")" \
	"$(awk -F, 'NR == 2 { printf "%.4f %.4f\n", $(NF - 7), $(NF - 2) }' "$tmp/select.csv")"
ok '... and leaves something out' awk '$1 == 5 && $2 < 1 { found = 1 } END { exit !found }' "$tmp/one"
is '... and is the plan' "$(grep -v '^#' "$tmp/one.plan")" "0- $few"
ok 'a run takes the plan' density "plan=$tmp/one.plan"
ok 'without loss it is dense' plan all $few 1
is '... in all layers' "$(grep -v '^#' "$tmp/all.plan")" '0- dense'
is 'the curve has one setting for all layers beside the plan' \
	"$(sed -n '/^The least/,$p' "$tmp/one" | awk '$1 ~ /^[01]/ { n += $2 == $4 && $3 == $5 } END { print n }')" 2

# ---- host ----

log=$srcdir/tests/data/vllm-steps-40.json
host() { calibrate host "$@" -o "$tmp/host.json"; }

ok 'a step log is needed' fails 2 'no step log to calibrate on; name one' host
ok '... a capture is none' fails 2 'capture has no effect with step logs' host "$log" --capture x
ok '... nor are tokens of one' fails 2 'tokens has no effect with step logs' host "$log" --tokens 5
ok '... and a file to write' fails 2 'add --output FILE' calibrate host "$log"
ok 'a log without its model is refused' \
	fails 2 'the log has no model; give the model that the engine ran with --model' host "$log"
ok 'a model that is none as well' fails 3 'no such file' host "$log" --model nope
ok 'a log that is none as well' fails 3 'No such file' host nope --model niah-llama-14m
ok 'costs that are none as well' fails 3 'nope' host "$log" --model llama-3.1-8b --costs nope
printf '{"engine": "vllm", "version": "1"}\n{"begin": 0, "end": 1, "tokens": [1]}\n' \
	>"$tmp/kind.jsonl"
ok 'a log must say how it was scheduled' fails 3 'add "async": true or false to its header' \
	host "$tmp/kind.jsonl" --model llama-3.1-8b
printf '{"engine": "vllm", "version": "1"}\n{"request": 0, "arrival": 0, "first_token": 1}\n' \
	>"$tmp/none.jsonl"
ok 'a log must have steps' fails 3 'no steps' host "$tmp/none.jsonl" --model llama-3.1-8b

host "$log" --model llama-3.1-8b --about 'an engine' >"$tmp/fit"
ok 'a log is fitted' grep -q '^40 steps and 0 times of requests and outputs of an engine, GPU times fitted' \
	"$tmp/fit"
ok '... with what it does not tell' \
	grep -q '^admit_ns  *0  adding a request to the engine; not identifiable' "$tmp/fit"
ok '... and errors by kind' grep -Eq '^eager  *[1-9][0-9]*( +-?[0-9.]+){6}$' "$tmp/fit"
ok '... a log without parts has no spread' grep -Eq '^eager( +-){3}$' "$tmp/fit"
# 40 steps, whose launches take from 10 to 20 ms
awk 'BEGIN {
	print "{\"engine\": \"vllm\", \"version\": \"1\", \"async\": false}"
	for (i = 0; i < 40; i++) {
		e = 0.01 * (1 + i / 39)
		printf "{\"begin\": %.6f, \"end\": %.6f, \"tokens\": [600], \"schedule\": 0.0001, " \
			"\"execute\": %.6f, \"wait\": 0, \"update\": 0.0001}\n",
			i, i + e + 0.0002, e
	}
}' >"$tmp/parts.jsonl"
host "$tmp/parts.jsonl" --model llama-3.1-8b >"$tmp/fit2"
ok '... one with parts has' awk '$1 == "eager" && NF == 4 && $3 > 0.9 && $3 < 1.1 && $4 / $2 > 1.7 \
	{ found = 1 } END { exit !found }' "$tmp/fit2"
ok '... in the file' grep -q '"eager_spread": \[[0-9, ]*\]' "$tmp/host.json"
host "$log" --model llama-3.1-8b --about 'an engine' >"$tmp/fit"
replay() {
	"$ATTNREPLAY" run --backend cost --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
		--requests 20 "$@"
}
replay --host "$tmp/host.json" >"$tmp/with"
replay >"$tmp/without"
ok 'a run takes the file' grep -q '^host      .*host.json: an engine$' "$tmp/with"
ok '... a formula has no host of itself' grep -q '^host      none (host time' "$tmp/without"
ttft() { awk '$1 == "TTFT" { print $4 }' "$1"; }
ok '... which takes time' test "$(ttft "$tmp/with" | tr -d .)" -gt "$(ttft "$tmp/without" | tr -d .)"
ok 'a host that is none is refused' fails 3 'no host preset of this name' replay --host nope
finish
