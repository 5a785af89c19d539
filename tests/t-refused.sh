#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run and select refuse an impossible method or model before they do any work.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,300,1' >t.csv
run() {
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m --capture "$arc" \
		--accuracy 0 \
		--sample-layers 1 --db r.db "$@"
}
select_() { "$ATTNREPLAY" select --capture "$arc" --model niah-llama-14m --context 0 \
	--chunk 64 "$@"; }

# This pool fits no memory; the method is checked before the pool is made.
pool='--num-gpu-blocks 1000000000'
ok 'there is no such pool' \
	fails 2 'a KV cache of .* pages of 128 tokens is out of range' run $pool --method dense

runs() { ! [ -e r.db ] || "$ATTNREPLAY" sql --format csv r.db 'SELECT count(*) FROM run' |
	tail -1; }
refused() { # STATUS MESSAGE METHOD: by run, which stores nothing, and by select
	rm -f r.db*
	fails "$1" "$2" run $pool --method "$3" && [ "$(runs)" = "${4-}" ] &&
		fails "$1" "$2" select_ --method "$3"
}
echo '{}' >odd.json
echo '[' >cut.json
printf 'nothing like it' >odd.safetensors
while IFS='|' read -r status message method runs; do
	ok "$method is refused" refused "$status" "$message" "$method" "$runs"
done <<'END'
2|no gate: add gate=FILE|seer|0
2|no gate: add gate=FILE|compact-sa|0
3|/no/where: No such file|seer:gate=/no/where|0
3|odd.safetensors: |seer:gate=odd.safetensors|0
3|/no/where: No such file|xattention:table=/no/where|0
3|odd.json: |xattention:table=odd.json|0
3|cut.json:.*malformed JSON|xattention:table=cut.json|0
3|/no/where: No such file|minference:pattern=/no/where|0
3|odd.json: want an array|minference:pattern=odd.json|0
3|cut.json:.*malformed JSON|minference:pattern=cut.json|0
2|start=200 and recent=1920: want multiples of block=128|trishape:start=200|
2|max-budget=512 is below min-budget=1024|flexprefill:max-budget=512|
2|alpha '2': want a number from 0 to 1|compact-fp:alpha=2|
2|executor 'copy' takes a table per head group|flashprefill:exec=copy|
2|there is nothing to unite|dense:union=group|
END

ok 'select takes one method for all layers' fails 2 \
	"method '0:dense;1-:compact-fp': a plan of layers; give one method for all layers" \
	select_ --method 'dense,0:dense;1-:compact-fp'
while IFS='|' read -r message method; do
	rm -f r.db*
	ok "$method is refused" fails 2 "$message" run $pool --method "$method"
	is '... before anything runs' "$(runs)" ''
done <<'END'
no method for layer 4 of model niah-llama-14m; add one, such as 4:dense|dense,0-3:compact-fp
layers 8-, but model niah-llama-14m has the layers 0 to 7; name those|0-7:dense;8-:compact-fp
layers 0-3 and 2- overlap; give each layer one method|0-3:dense;2-:compact-fp
END
ok '... and so is a file that is not there' \
	fails 3 '/no/where: No such file' run $pool --method plan=/no/where
while IFS='|' read -r message method; do
	rm -f r.db*
	ok "$method is refused" fails 2 "$message" run $pool --method "$method"
done <<'END'
dropper 'lazyllm:layers=1:0.5': needs all layers of model 'niah-llama-14m'|dense+lazyllm:layers=1:0.5
dropper 'lazyllm:revive-max=4': revive-max: only with aux-revival=1|dense+lazyllm:revive-max=4
dropper 'uniprefil': unknown name|dense+uniprefil
END
rm -f r.db*
ok 'droppers share no prefixes' fails 2 'leave out --enable-prefix-caching' \
	run --enable-prefix-caching --method dense,dense+lazyllm:layers=1:0.5
ok 'published layers are of a model' fails 2 \
	"no layers are published for model 'niah-llama-14m': add layers=" \
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m --capture "$arc" \
	--method dense+uniprefill
ok 'select shows no droppers' fails 2 "method 'dense+lazyllm:layers=1:0.5': unknown name" \
	select_ --method dense+lazyllm:layers=1:0.5
echo '0- dense;' >odd.plan
ok 'a plan file is named with its line' \
	fails 2 "odd.plan:1: method 'dense;': a plan of layers" run $pool --method plan=odd.plan

paged() { run --page-size "$@" && [ "$(runs)" = 1 ]; }
rm -f r.db*
ok 'blocks that are not the pages of the run are refused' \
	fails 2 "method 'compact-fp': blocks of 128 tokens on pages of 64; a block must be one page" \
	run $pool --page-size 64 --method compact-fp
ok '... by name, before a method in front runs' fails 2 \
	"method 'trishape:block=64': blocks of 64 tokens on pages of 128;" \
	run $pool --page-size 128 --method dense,trishape:block=64
rm -f r.db*
ok 'dense attention takes pages of 64' paged 64 --method dense

# All methods are checked before the first one runs, which may take hours.
later() {
	rm -f r.db*
	fails "$1" "$2" run --method "dense,$3" && [ ! -e r.db ]
}
ok 'no gate is found out before the methods in front of it run' later 2 'no gate' seer
ok '... nor a table'   later 3 '/no/where: No such file' xattention:table=/no/where
ok '... nor a pattern' later 3 'odd.json: want an array' compact-fp,minference:pattern=odd.json
shown() { fails "$1" "$2" select_ --method "dense,$3" --json x.json && [ ! -e x.json ]; }
ok 'no gate is found out before anything is shown' shown 2 'no gate' seer
ok '... nor a table' shown 3 '/no/where: No such file' xattention:table=/no/where

# A model is checked before its capture is opened and before backend cuda looks for a GPU.
heads_96() { # CAPTURE [OPTION]...
	capture=$1
	shift
	"$ATTNREPLAY" run $plain --trace t.csv --model "$srcdir/tests/data/models/phi-3-mini-4k.json" \
		--capture "$capture" --sample-layers 1 --accuracy 0 --db m.db "$@"
}
no_kernel='model phi-3-mini-4k, backend cuda: decode: head size 96; supported 64, 128, 256'
refused_96() { fails 2 "$no_kernel" heads_96 "$@" && [ ! -e m.db ]; }
if "$ATTNREPLAY" --version | grep -q '^cuda yes$'; then
	ok 'heads that no kernel takes are refused by backend cuda' \
		refused_96 /no/where --backend cuda
else
	skip 'heads that no kernel takes are refused by backend cuda' 'built without CUDA'
fi
ok 'backend cpu takes them' fails 3 '/no/where: No such file' heads_96 /no/where --backend cpu

# Backend auto is checked when it is known which one it is.
by_cpu() { # whatever GPUs the machine has, CUDA sees none
	(export CUDA_VISIBLE_DEVICES= && heads_96 random:0 --backend auto) >out 2>err &&
		grep -q '; using backend cpu$' err
}
ok 'backend auto takes them where there is no GPU' by_cpu
heads_96 random:0 --backend auto 2>err >/dev/null
if grep -q 'using backend cpu$' err; then
	skip '... and refuses them where there is one' 'no usable GPU'
else
	ok '... and refuses them where there is one' \
		fails 2 "$no_kernel" heads_96 random:0 --backend auto
fi
finish
