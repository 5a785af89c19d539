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
run() { "$ATTNREPLAY" run --backend cpu --trace t.csv --sample-layers 1 --accuracy 1 \
	--max-num-batched-tokens 32 "$@"; }
other() { run --model llama-3.1-8b --tp 4 --capture "$arc" "$@"; }
drawn() { run --model smollm2-135m "$@"; }
header() { sed -n 's/^capture  *//p' "$1"; }
against() { sed -n 's/^against \(.*\) samples: .*/\1/p' "$1"; }

run --model niah-llama-14m --capture "$arc" >out 2>err
is 'a capture of the model needs no word' "$(cat err)" ''
is '... nor its accuracy' "$(against out)" 'dense, 3'

other >out 2>err
is 'one of another model gets a warning' "$(cat err)" \
'attnreplay: warning: niah-2k.arc was captured from niah-llama-14m, not from llama-3.1-8b; '\
'accuracy and selections are those of niah-llama-14m'

drawn --capture random:1 >out 2>err
is 'random values are of no model' "$(header out)" \
	'random:1 (random values: accuracy and selections are of no model)'
is '... nor is the accuracy' "$(against out)" 'dense on values of no model, 3'
is '... as was asked for, so without a warning' "$(cat err)" ''
ok '... and requests as long as any are served' grep -q '^dense: 2 requests ok, 0 rejected' out
drawn --capture random:1 --capture random:2 >out
ok 'several are told apart' grep -q '^capture   random:1 random:2 (' out

finish
