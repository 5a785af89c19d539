#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Whose activations a run replays: those of its model, of another one, or random values of none.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
cat >t.csv <<EOF
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,40,2
2023-11-16 18:00:01.0000000,30,3
EOF
# The formula moves the clock, so that chunks do not depend on how fast this machine is.
run() { "$ATTNREPLAY" run --backend cpu --clock formula --trace t.csv --sample-layers 1 \
	--accuracy 1 --max-num-batched-tokens 32 "$@"; }
other() { run --model llama-3.1-8b --tp 4 --capture "$arc" "$@"; }
drawn() { run --model smollm2-135m "$@"; }
header() { sed -n 's/^capture  *//p' "$1"; }
against() { sed -n 's/^against \(.*\) samples: .*/\1/p' "$1"; }

run --model niah-llama-14m --capture "$arc" --db a.db >out 2>err
is 'a capture of the model needs no word' "$(cat err)" ''
is '... nor its accuracy' "$(against out)" 'dense, 3'

other --db a.db >out 2>err
is 'one of another model gets a warning' "$(cat err)" \
'attnreplay: warning: niah-2k.arc was captured from niah-llama-14m, not from llama-3.1-8b; '\
'accuracy and selections are those of niah-llama-14m'

other --method compact-fp --db a.db >out 2>&1
drawn --capture random:1 --db a.db >out 2>err
is 'random values are of no model' "$(header out)" \
	'random:1 (random values: accuracy and selections are of no model)'
is '... nor is the accuracy' "$(against out)" 'dense on values of no model, 3'
is '... as was asked for, so without a warning' "$(cat err)" ''
ok '... and requests as long as any are served' grep -q '^dense: 2 requests ok, 0 rejected' out
drawn --capture random:1 --capture random:2 --db a.db --json r.json >out
ok 'several are told apart' grep -q '^capture   random:1 random:2 (' out

# ---- what is stored ----

sum=$("$ATTNREPLAY" capture info "$arc" | sed -n 's/^checksum *//p')
short=$(printf %.8s "$sum")
"$ATTNREPLAY" capture unpack "$arc" x.safetensors || exit 99
LC_ALL=C sed 's/"model"/"xodel"/' x.safetensors >unknown.safetensors
run --model niah-llama-14m --capture unknown.safetensors --capture unknown.safetensors --db a.db \
	>out 2>err
is 'a capture of an unknown model gets no warning' "$(cat err)" ''
table() { "$ATTNREPLAY" report --format csv a.db | sed -n '/^run,method,.*trace,/,/^$/p' |
	sed -n 's/.*,cpu,//p' | tr -d '"'; }
is 'table Runs has tokens and checksum of the captures, and the model if it is another' "$(table)" \
"2112 tokens, $short
niah-llama-14m, 2112 tokens, $short
niah-llama-14m, 2112 tokens, $short
random:1, 42 tokens
random:1, 42 tokens; random:2, 42 tokens
unknown model, 2112 tokens"
assumed() { "$ATTNREPLAY" report --table assumptions --format csv "$@" a.db |
	tr -d '"' | sed -n 's/^[a-z],capture,\(.*[0-9]\),\([nru]\)/\1:\2/p'; }
is 'assumptions say whose the accuracy is' "$(assumed)" \
"2, 3:niah-2k.arc was captured from niah-llama-14m, not from llama-3.1-8b; accuracy and \
selections are those of niah-llama-14m
4, 5:random:1 are random values; accuracy and selections are of no model
5:random:2 are random values; accuracy and selections are of no model
6:unknown.safetensors does not say what model it was captured from; accuracy and selections \
are those of that model"
is '... of the run asked for' "$(assumed --run 1)" ''
query() { "$ATTNREPLAY" sql --format csv a.db "$1" | tail -n +2; }
is 'a capture is stored once' \
	"$(query "SELECT count(*), count(DISTINCT capture_id) FROM run_capture")" 8,4
is '... whole' "$(query "SELECT name, sha256, model, n_tokens, n_layers, q_heads, kv_heads, head_dim
	FROM capture WHERE capture_id = 1")" "niah-2k.arc,$sum,niah-llama-14m,2112,1,8,2,128"
if command -v python3 >/dev/null; then
	is 'the JSON has the captures' "$(python3 -c 'import json
print(json.load(open("r.json"))["runs"][0]["captures"][1])')" \
"{'name': 'random:2', 'checksum': None, 'model': None, 'tokens': 42, 'origin': 'random'}"
else
	skip 'the JSON has the captures' 'no python3'
fi

finish
