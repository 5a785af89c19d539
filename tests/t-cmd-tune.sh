#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay tune on the sample: the settings that it finds, and what select and calibrate plan measure
# of them.
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
	"target 'recal=0.9': want one of recall=X, rel-l2=X, density=X" \
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
has() { python3 -c 'import json, sys
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
finish
