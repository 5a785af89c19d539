#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay tune on the sample: the settings that it finds, and what select and calibrate plan measure
# of them; and on the answers of a tiny random model, where eval measures the same.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
tune() { "$ATTNREPLAY" -q tune "$@"; }
one() { tune --capture "$arc" --target recall=0.9 "$@"; }
# rows FILE: "METHOD FIGURE..." of the table
rows() { awk '/ method$/ { on = 1; next } on && NF < 5 { exit } on && /^ / { print }' "$1"; }
figure() { awk -v m="$2" -v k="$3" 'index($0, m) { print $k; exit }' "$1"; } # FILE METHOD COLUMN
close() { # close A B LIMIT: two numbers
	awk -v a="$1" -v b="$2" -v d="$3" 'BEGIN { exit !(a != "" && b != "" && a - b <= d && b - a <= d) }'
}

# ---- wrong usage ----

ok 'methods are needed' fails 2 'add --method LIST' tune --target recall=0.9 --capture "$arc"
ok '... a target' fails 2 'such as --target recall=0.95' tune --method dense --capture "$arc"
ok '... and a capture' fails 2 'add --capture FILE' tune --method dense --target recall=0.9
ok 'operands are refused' fails 2 "'x' is one operand too many" one --method dense x
ok 'a target that is none is named' says 2 \
	"target 'recal=0.9': want one of recall=X, rel-l2=X, density=X, logprob=X, exact=X" \
	one --method dense --target recal=0.9
for bad in recall recall= recall=x recall=1.5 recall=-1 recall=nan rel-l2=3; do
	ok "... so is $bad" fails 2 "^attnreplay: target '$bad': want " \
		one --method dense --target "$bad"
done
ok 'an unknown method is wrong usage' fails 2 "method 'nope': unknown name" one --method nope
ok 'a plan of layers as well' fails 2 'a plan of layers; give one method for all' \
	one --method '0:dense;1-:compact-fp'
ok 'a capture that is none is bad data' fails 3 'neither an .arc file' \
	tune --method dense --target recall=0.9 --capture "$0"
ok 'a file of a method that is missing too' fails 3 'none.safetensors' \
	one --method seer:gate=none.safetensors

# ---- settings ----

fp=flashprefill:sink=0,window=1
list=$fp,compact-sa:gate=mean,xattention,quoka,dense,proxyattn:mass=0.7
small='--tokens 1024 --chunk 64 --chunks 2 --tolerance 0.01'
one --method $list $small --json out.json >out
is 'each method has a row, in the order given' \
	"$(rows out | awk '{ m = NF > 6 ? $5 : $6; sub(/:.*/, "", m); print m }' | tr '\n' ' ')" \
	'flashprefill compact-sa xattention quoka dense proxyattn '
ok '... for the contexts of the sample' grep -q '^holds     after contexts of 480 to 960 tokens$' out
is '... those with a threshold have the recall, within the tolerance' \
	"$(rows out | awk 'NF == 6 && !($1 >= 0.89 && $1 <= 0.91)')" ''
is '... and there are four' "$(rows out | awk 'NF == 6' | wc -l | tr -d ' ')" 4
ok 'a method without one is said to have none' grep -q \
	'^    1.0000    0.0000    1.0000    1.0000         dense (no threshold)$' out
ok '... and a stated one is left' grep -q ' proxyattn:mass=0.7 (as given)$' out
one --method $list $small >again
ok 'the same a second time' cmp out again
one --method quoka $small >alone
is 'a method alone has the same setting' "$(rows alone)" "$(rows out | grep quoka)"

setting() { sed -n "s/.* \($1[^ ]*\)\$/\1/p" out; }
plan() { "$ATTNREPLAY" -q calibrate plan --capture "$arc" --tokens 1024 --chunk 64 --recall 0 \
	--method "$1" -o x.plan; }
chosen() { "$ATTNREPLAY" -q select --capture "$arc" --chunk 64 --prompt-tokens 1024 --method "$1" \
	--context "$2" --picture none --csv select.csv >/dev/null && tail -n 1 select.csv; }
for m in flashprefill compact-sa xattention quoka; do
	s=$(setting $m)
	plan "$s" >plan.out
	is "calibrate plan measures the recall and density of $s" \
		"$(awk '$1 == 5 { print $3, $2 }' plan.out)" \
		"$(rows out | awk -v s="$s" '$6 == s { print $1, $4 }')"
done
s=$(setting xattention)
recall() { chosen "$s" $1 | awk -F, '{ print $(NF - 2) }'; }
ok 'and select measures the same recall' close \
	"$(awk -v a="$(recall 480)" -v b="$(recall 960)" 'BEGIN { print (a + b) / 2 }')" \
	"$(figure out "$s" 1)" 0.0001

one --method xattention,$fp $small --target rel-l2=0.2 >out
is 'another figure may be the target' \
	"$(rows out | awk '!($2 >= 0.19 && $2 <= 0.21)')$(rows out | wc -l | tr -d ' ')" 2
one --method xattention,$fp $small --target density=0.7 >out
is '... such as the density' \
	"$(rows out | awk '!($4 >= 0.69 && $4 <= 0.71)')$(rows out | wc -l | tr -d ' ')" 2

# ---- targets that cannot be reached ----

one --method flashprefill:window=64 $small --target recall=0.5 >out
ok 'a target beyond all values is told, with the nearest' grep -q \
	'^flashprefill:window=64: no alpha has recall 0.5; the nearest, [01], has [01]\..*, at an end' out
one --method $fp --tokens 1024 --chunk 64 --chunks 1 --tolerance 0.0000001 >out
ok '... so is one that the figure jumps over' grep -q \
	"^$fp: no alpha has recall 0.9; .*, and the next one is on the other side\$" out
has() { python3 -c 'import json, math, sys
d = json.load(open("out.json"))
by = {m["method"]: m for m in d["methods"]}
assert eval("(" + sys.argv[1] + ")"), json.dumps(d)' "$1"; }
if command -v python3 >/dev/null; then
	ok 'the JSON has the goal and the sample' has "d['target'] == 'recall' and d['want'] == 0.9 and
		d['tolerance'] == 0.01 and d['tokens'] == 1024 and d['chunk'] == 64 and
		d['chunks'] == 2 and d['captures'] == ['$arc']"
	ok '... what was searched' has "by['quoka']['threshold'] == 'kv-ratio' and
		by['quoka']['result'] == 'reached' and by['quoka']['monotone'] and
		by['quoka']['steps'] > 2 and
		by['quoka']['setting'] == 'quoka:kv-ratio=%.8g' % by['quoka']['value']"
	ok '... what was not' has "by['dense']['result'] == 'fixed' and
		by['proxyattn:mass=0.7']['result'] == 'given' and 'steps' not in by['dense']"
	ok '... and the figures' has "all(0 < m['density_executed'] <= 1 and m['rel_l2'] >= 0 and
		0 < m['density_selected'] <= 1 and 0 < m['recall'] <= 1 for m in d['methods'])"
else
	skip 'the JSON' 'no python3'
fi

# ---- the answers of a model ----

mkdir model
"$(dirname "$ATTNREPLAY")/tests/make-tasks" model || { echo 'Bail out! no model'; exit 1; }
mv model/tasks.jsonl .
# With as many blocks as an H100 holds of this model, the sanitizer would write 100 MB at each replay.
answers='--backend cpu --clock formula --max-num-batched-tokens 128 --weights model --tasks tasks.jsonl
	--num-gpu-blocks 1000'
prompts() { tune $answers "$@"; }
# Dense attention has 3 of 6 answers.
fp=compact-fp:sink=1,window=1,dense-first=0
drops=dense+lazyllm:layers=0:0.5+1:0.5
prompts --target exact=0.5 --accuracy 1 --method "quoka,$drops,dense,$fp,0-:compact-fp" \
	--json out.json >out
ok 'methods are tuned on answers' grep -q '^target    exact at least 0.5 within 0.0005$' out
is '... in the order given' "$(awk 'on { print $(NF - (/\)$/ ? 2 : 0)) } / method$/ { on = 1 }' out |
	sed 's/[:=].*//' | tr '\n' ' ')" 'quoka dense+lazyllm dense compact-fp 0- '
ok '... beside dense attention' grep -q '^dense     3 of 6 answers exact (0.5000), logprob -[0-9.]* a token$' out
ok '... which is a method too' grep -q \
	'^    1.0000    0.0000    1.0000    0.0000    0.5000         dense (no threshold)$' out
ok 'single layers of a dropper are not known' grep -Eq \
	'^         -         -         -   -[0-9.]+    0.[0-9]+         dense\+lazyllm.* \(as given\)$' out
ok 'a plan of layers is measured as it is' grep -q ' 0-:compact-fp (as given)$' out
is 'the threshold has at least the wanted share' \
	"$(awk 'NF == 7 && $NF ~ /^(quoka|compact)/ { n += $5 >= 0.5 } END { print n }' out)" 2
if command -v python3 >/dev/null; then
	cp out.json tuned.json
	q=$(sed -n 's/.* \(quoka:[^ ]*\)$/\1/p' out)
	"$ATTNREPLAY" -q eval $answers --accuracy 1 --method "$q" --json eval.json >/dev/null
	ok 'eval measures the same of the setting' python3 -c 'import json
e, t = json.load(open("eval.json"))["runs"], json.load(open("tuned.json"))
m = t["methods"][0]
assert t["dense"] == {"exact": e[0]["eval"]["exact"] / 6, "logprob": e[0]["eval"]["logprob"]}, t
e = e[1]["eval"]
assert (m["logprob_diff"], m["exact"], m["density_executed"]) == (
	e["logprob_diff"], e["exact"] / e["prompts"], e["executed"]), (m, e)'
	ok 'the JSON has the sample' has "(d['weights'], d['tasks'], d['prompts'],
		d['max_num_batched_tokens'], d['backend']) == ('model', 'tasks.jsonl', 6, 128, 'cpu')"
	prompts --target logprob=-0.02 --tolerance 0.01 --method $fp --json out.json >/dev/null
	ok 'another figure is the log-probability' has "by['$fp']['result'] == 'reached' and
		abs(by['$fp']['logprob_diff'] + 0.02) <= 0.01 and by['$fp']['threshold'] == 'alpha'"
else
	skip 'eval measures the same of the setting' 'no python3'
fi
# Whether figures in lines of two tables are near each other, and the method's setting is the same.
near() { awk 'FNR == NR { split($0, a); next } { for (i = 1; i <= 5; i++) bad += (a[i] - $i) ^ 2 > 1e-4
	same += a[7] == $7 } END { exit bad || same != 1 }' one.line both.line; }
prompts --target logprob=-0.02 --tolerance 0.015 --method $fp --accuracy 1 >out
sed -n 's/^  *\([01]\.\)/\1/p' out >one.line
ATTNREPLAY_NCCL=$(dirname "$ATTNREPLAY")/tests/fake_nccl.so "$ATTNREPLAY" -q tune $answers --tp 2 --ranks local \
	--target logprob=-0.02 --tolerance 0.015 --method $fp --accuracy 1 >out 2>err
is 'all ranks of a model are tuned' "$? $(cat err)" '0 '
sed -n 's/^  *\([01]\.\)/\1/p' out >both.line
ok '... to about the figures of one rank with all heads' near
prompts --target exact=0.98 --method $fp --accuracy 0 --type right --requests 2 >out
is 'prompts are chosen as for eval' "$(sed -n 's/^sample *//p' out)" \
	'2 prompts of tasks.jsonl, in chunks of at most 128 tokens, on backend cpu'
prompts --target exact=0.98 --method $fp --accuracy 0 >out
ok 'a share above that of dense attention is told' grep -q \
	'^dense .*; less than wanted, so a method may not reach it$' out
ok '... and not reached' grep -q "^$fp: no alpha has exact at least 0.98; the nearest, .*, has 0.5000" out
is '... without figures that are not known' "$(sed -n '/steps  method$/p' out)" \
	'   logprob     exact  steps  method'
evicts=dense/evict=streaming,sink=4,recent=60
prompts --target exact=0 --method $evicts --accuracy 0 --enable-prefix-caching --evict-cache keep >out
ok 'an evictor goes with a prefix cache' grep -q " ${evicts%%,*}.* (no threshold)$" out
ok '... as the option says' fails 2 'say by --evict-cache whether it shall keep' \
	prompts --target exact=0 --method $evicts --enable-prefix-caching
ok '... which goes with evictors alone' fails 2 'evict-cache has no effect without an evictor' \
	prompts --target exact=0 --method dense,$fp --enable-prefix-caching --evict-cache keep
# With CUDA the heads of the tiny model are refused, with a GPU or without.
if "$ATTNREPLAY" -V | grep -q 'cuda yes'; then
	skip 'the backend is found' 'a build with CUDA'
else
	"$ATTNREPLAY" -q tune ${answers#--backend cpu} --target exact=0 --method dense --requests 1 \
		>out 2>err
	ok 'the backend is found' grep -q '^sample .* on backend cpu$' out
fi

ok 'a target of captures takes no tasks' says 2 'tasks has no effect with target recall; leave it out' \
	one --method dense --tasks tasks.jsonl
ok '... nor another option of eval' says 2 'weights has no effect with target recall; leave it out' \
	one --method dense --weights model
for given in "capture $arc" 'tokens 100' 'chunk 64' 'chunks 2' 'layers 8'; do
	ok "a target of prompts takes no ${given%% *}" says 2 \
		"${given%% *} has no effect with target logprob; leave it out" \
		prompts --method dense --target logprob=-0.1 --$given
done
ok '... needs tasks' says 2 'no tasks given; name a file of prompts and answers with --tasks' \
	tune --method dense --target exact=1 --weights model
ok '... and weights' says 2 'no weights given; name the folder of a model with --weights' \
	tune --method dense --target exact=1 --tasks tasks.jsonl
ok '... and stores nothing' fails 2 'db has no effect: tune stores nothing' \
	prompts --method dense --target exact=1 --db a.db
ok '... and takes parts with their methods' says 2 \
	'evict has no effect: the methods to tune have their parts in --method; write /evict=NAME there' \
	prompts --method dense --target exact=1 --evict streaming
ok '... and refuses what eval refuses' says 2 \
	'trace has no effect: prompts and answers are those of --tasks; leave it out' \
	prompts --method dense --target exact=1 --trace x.csv
ok '... such as one rank of several' says 2 \
	'tp 2: one rank alone has partial sums, so its answers are of no model; give --ranks local, or leave --tp out' \
	prompts --method dense --target exact=1 --tp 2
ok '... a plan of more layers than the model has' fails 2 'layer' \
	prompts --method '0-9:dense' --target exact=1
"$ATTNREPLAY" tune $answers --target exact=1 --method nope >out 2>err
is '... an unknown method, before anything runs' "$(cat err)" \
	"attnreplay: method 'nope': unknown name: want one that 'attnreplay methods' lists, or select=NAME/union=NAME/exec=NAME"
ok 'a log-probability above that of dense attention is none' says 2 \
	"target 'logprob=0.1': want a number from -20 to 0" prompts --method dense --target logprob=0.1
finish
