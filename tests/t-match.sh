#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --match: methods tuned before they run, in the database, keys, sweeps and searches.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99
export TMPDIR=$tmp USER=tester

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:01.0,700,1\n' >trace.csv
common="--trace trace.csv --model niah-llama-14m --capture $arc --sample-layers 1"
cpu() { "$ATTNREPLAY" -q run --backend cpu $common --max-num-batched-tokens 256 --clock formula \
	--cost-fixed 1ms "$@"; }
value() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n 1; }

methods() { awk '/^match/ { on = 1 } /^backend/ { on = 0 } on && NF == 6 && $1 + 0 > 0' "$1"; }
setting() { methods out | awk -v m="$1" 'index($6, m) == 1 { print $6 }'; }

ok 'methods are tuned before they run' sh -c '"$@" >out' - \
	"$ATTNREPLAY" -q run --backend cpu $common --max-num-batched-tokens 256 --clock formula \
	--cost-fixed 1ms --match recall=0.9 --accuracy 1 --db r.db --json r.json \
	--method "dense,quoka,xattention,proxyattn:mass=0.7,0-:compact-fp"
ok '... to what the header says' grep -q '^match     recall 0.9 within 0.002, on 3 of the 3 chunks of the '\
'prompts, of up to 256 tokens after contexts of 0 to 512, of 1 capture, layers 5$' out
is '... on chunks like those of the run, which reaches it' "$(awk '/^match/ { on = 1 }
	/^backend/ { on = 0 } on && / (quoka|xattention|proxyattn):/ { print $1 }' out)" \
	"$(sed -n 's/^match: recall \([0-9.]*\) in 3 samples of the run, 0.9 was asked for.*/\1/p' out |
	sed 1d)"
is '... or says that it does not' "$(grep -c '^match: .*: it is off by more than 1 %$' out)" 2
is '... others run as they are' "$(sed -n 's/: 1 requests ok.*//p' out)" "dense
$(setting quoka)
$(setting xattention)
proxyattn:mass=0.7
0-:compact-fp"
is '... and are said not to be tuned' "$(grep ': not tuned' out)" \
'0-:compact-fp: not tuned, as it is a plan of layers or has a dropper'
is 'the database has the settings' "$(value r.db \
	"SELECT group_concat(name, ' ') AS x FROM (SELECT m.name FROM run JOIN method m
	USING (method_id) WHERE run_id IN (2, 3) ORDER BY run_id)" 2>&1)" \
	"$(setting quoka) $(setting xattention)"
is '... and what they were tuned to' "$(value r.db \
	"SELECT count(*) AS n FROM run_param WHERE key = 'match' AND value = 'recall=0.9'")" 5
if command -v python3 >/dev/null; then
	ok 'so has the JSON' python3 -c 'import json
runs = json.load(open("r.json"))["runs"]
assert [r["match"] and r["match"]["result"] for r in runs] == ["fixed", "reached", "reached",
	"given", None], runs
assert runs[1]["match"]["method"] == "quoka" and runs[1]["method"] == runs[1]["match"]["setting"]
assert abs(runs[1]["match"]["recall"] - 0.9) <= 0.002
assert abs(runs[1]["match"]["reached"] - runs[1]["match"]["recall"]) < 1e-6'
else
	skip 'so has the JSON' 'no python3'
fi
is 'the report has target and reached value, by layer too' "$("$ATTNREPLAY" report r.db |
	awk '/^What --match asked/ { p = 1 } p && $1 ~ /^[0-9]+$/ { print $1, $3, $4, $5 == $6 && $6 == $7, $8 }
	p && !NF { exit }')" "2 recall 0.9000 1 
3 recall 0.9000 1 
4 recall 0.9000 1 off
5 recall 0.9000 1 off"
cpu --match recall=0.9 --accuracy 1 --db again.db --method quoka >again
is 'a method alone has the same setting' "$(sed -n 's/: 1 requests ok.*//p' again)" \
	"$(setting quoka)"
keys() { "$ATTNREPLAY" sql --format csv "$1" 'SELECT run_key FROM run' | tail -n +2; }
is '... and the same key' "$(keys again.db)" "$(keys r.db | sed -n 2p)"
cpu --accuracy 1 --db plain.db --method "$(setting quoka)" >/dev/null
ok '... which is not that of its setting' [ "$(keys plain.db)" != "$(keys again.db)" ]

# ---- repeats, resumed ----

"$ATTNREPLAY" -q run --backend cpu $common --max-num-batched-tokens 256 --match recall=0.9 \
	--db repeat.db --method dense,quoka --repeats 2 >out
is 'repeats have one setting' "$(sed -n 's/, repeat.*requests ok.*//p' out)" "dense
$(setting quoka)
dense
$(setting quoka)"
if python3 -c 'import sqlite3' 2>/dev/null; then
	python3 -c 'import sqlite3
db = sqlite3.connect("repeat.db")
db.execute("UPDATE run SET status = \"failed\" WHERE run_id = 4")
db.commit()'
	"$ATTNREPLAY" -q run --resume repeat.db >out 2>&1
	is 'a resumed command runs what is left with its setting' \
		"$(sed -n 's/, repeat 2 of 2.*requests ok.*//p' out)" "$(setting quoka)"
	is '... and tunes that alone' "$(awk '/^match/ { on = 1 } /^backend/ { on = 0 }
		on && $NF ~ /^quoka:/ { n++ } on && / dense / { n += 9 } END { print n }' out)" 1
	is '... as before' "$(keys repeat.db | sed -n 5p)" "$(keys repeat.db | sed -n 4p)"
else
	skip 'a resumed command runs what is left with its setting' 'no sqlite3 in python3'
fi

# ---- sweeps and searches ----

cat >m.sweep <<EOT
trace = trace.csv
backend = cpu
model = niah-llama-14m
capture = $arc
sample-layers = 1
max-num-batched-tokens = 256
method = quoka
match = [recall=0.9, recall=0.95]
EOT
"$ATTNREPLAY" -q sweep m.sweep --out swept --all >log 2>&1
is 'a sweep may go over targets' "$(grep -c ' done$' log)" 2
is '... whose points are known again' \
	"$("$ATTNREPLAY" sweep m.sweep --out swept --plan | cut -f 3 | sort -u)" 'done'
"$ATTNREPLAY" -q search chunk --slo ttft:1s --lowest 128 --highest 256 --backend cpu $common \
	--clock formula --cost-fixed 1ms --method quoka --match recall=0.9 >out 2>&1
is 'a search tunes once' "$(sed -n 's/: best with.*//p' out | sed 's/=.*//')" 'quoka:kv-ratio'

# ---- refused ----

ok 'a target that is none is named' says 2 "target 'recal=1': want one of recall=X, rel-l2=X, density=X" \
	cpu --match recal=1
ok '... so is one of prompts' says 2 "target 'exact=1': want one of recall=X, rel-l2=X, density=X" \
	cpu --match exact=1
ok 'a backend without kernels has nothing to measure on' says 2 \
	'match has no effect with backend cost; leave it out' \
	"$ATTNREPLAY" run --trace trace.csv --backend cost --match recall=0.9
ok '... nor has a model of a GPU without a capture' says 2 \
	'match has no effect without --capture; leave it out' \
	"$ATTNREPLAY" run --trace trace.csv --backend roofline --gpu h200 --model niah-llama-14m \
	--match recall=0.9
ok '... nor has a run with weights' says 2 'match has no effect with --weights; leave it out' \
	"$ATTNREPLAY" run --trace trace.csv --backend cpu --weights none --prompts none \
	--match recall=0.9
"$ATTNREPLAY" -q run $common --backend roofline --gpu h200 --max-num-batched-tokens 256 \
	--method quoka --match recall=0.9 >out
is '... with a capture it has' "$(sed -n 's/: 1 requests ok.*//p' out)" "$(setting quoka)"
cpu --match density=0.01 --method xattention >out
ok 'a target that cannot be reached is told in the header' grep -q \
	'^xattention: no threshold has density 0.01; the nearest, ' out
"$ATTNREPLAY" run --backend cpu $common --match density=0.01 --method xattention --json - >alone 2>err
ok '... or without one as a warning' grep -q \
	"^attnreplay: warning: method 'xattention': no threshold has density 0.01; the nearest, " err
finish
