#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Number formats of weights and KV caches: attnreplay run with backend roofline, and refusals.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

trace=$ATTNREPLAY_DATA/traces/samples/azure-2023-code-200.csv
run() { # run OPTION...
	"$ATTNREPLAY" run --trace "$trace" --requests 4 --max-prompt-tokens 500 \
		--max-output-tokens 4 "$@"
}
roofline() { run --backend roofline "$@"; }
model() { roofline "$@" 2>&1 | sed -n 's/^model *//p'; }
value() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n 1; }
config() { # config MORE: of a model of two layers
	cat <<-END
	{"model_type": "llama", "hidden_size": 512, "intermediate_size": 1024,
	"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2,
	"vocab_size": 1024$1}
	END
}

# ---- what the config says ----

config '' >plain.json
config ', "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}' >fp8.json
config ', "quantization_config": {"quant_method": "quip"}' >quip.json
mkdir nvfp4
config '' >nvfp4/config.json
echo '{"quantization": {"quant_algo": "NVFP4", "kv_cache_quant_algo": "FP8",
	"exclude_modules": ["lm_head"]}}' >nvfp4/hf_quant_config.json

is 'a config without formats is bf16' "$(model --model plain.json)" \
	'plain, 2 layers, 4/2 heads of 128'
is 'the header names the format of weights' "$(model --model fp8.json)" \
	'fp8, 2 layers, 4/2 heads of 128, weights fp8-block'
is '... and of the KV cache, also of a file beside the config' "$(model --model nvfp4)" \
	'nvfp4, 2 layers, 4/2 heads of 128, weights nvfp4, KV cache kv-e4m3'
is 'none replays the shape in bf16' "$(model --model nvfp4 --quantization none)" \
	'nvfp4, 2 layers, 4/2 heads of 128'
is 'an option comes before the config' "$(model --model nvfp4 --kv-cache-dtype fp8_e5m2)" \
	'nvfp4, 2 layers, 4/2 heads of 128, weights nvfp4, KV cache kv-e5m2'
is 'a config without formats takes those of options' "$(model --model plain.json \
	--quantization w4a16 --kv-cache-dtype fp8_per_token_head)" \
	'plain, 2 layers, 4/2 heads of 128, weights int4-group, KV cache kv-e4m3-th'
is 'layers may keep theirs in bf16' "$(model --model nvfp4 --kv-cache-dtype-skip-layers 1)" \
	'nvfp4, 2 layers, 4/2 heads of 128, weights nvfp4, KV cache kv-bf16+kv-e4m3'
pool() { sed -n 's/.* KV \(.*\) a token.*/\1/p; s/^blocks *[0-9]* of \([0-9]* tokens\).*/\1/p'; }
is '... which takes more bytes, and blocks of 32 tokens' \
	"$(roofline --model plain.json --kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 0 | pool)" \
	'32 tokens
1.5 KiB'
is '... or of 16 by older rules' "$(roofline --model plain.json --kv-cache-dtype fp8 --policy vllm-0.24 \
	--kv-cache-dtype-skip-layers 0 | pool | head -n 1)" '16 tokens'
bytes() { roofline --model gpt-oss-20b "$@" | sed -n 's/.*KV \(.*\) a token: .* blocks of \(.*\), .* tokens.*/\1 \2/p
	s/.*a block has//p'; }
is '... windows alone, too, which then have blocks of 16 beside 32' \
	"$(bytes --kv-cache-dtype fp8 --kv-cache-dtype-skip-layers sliding_window | tr '\n' ' ')" \
	' 0.3932 MB 36 KiB 16 '
for dtype in auto bfloat16 float16 half; do
	ok "dtype $dtype changes nothing" roofline --model plain.json --dtype $dtype
done

# ---- refusals ----

ok 'an unknown method is named' fails 3 'quip: quantization_config: quant_method is "quip"; want fp8' \
	roofline --model quip.json
ok '... none takes the shape' roofline --model quip.json --quantization none
ok 'an unknown format is named' fails 2 "quantization 'fp6' is not known; known are auto, none" \
	roofline --model plain.json --quantization fp6
ok 'two formats are refused' fails 2 'the config of fp8 has weights in a format of its own' \
	roofline --model fp8.json --quantization w4a16
ok 'an unknown KV cache is named' fails 2 "kv-cache-dtype 'int8_per_token_head' is not known" \
	roofline --model plain.json --kv-cache-dtype int8_per_token_head
while read -r list why; do
	ok "... and layers $list" fails 2 "kv-cache-dtype-skip-layers '.*$why" \
		roofline --model plain.json --kv-cache-dtype fp8 --kv-cache-dtype-skip-layers "$list"
done <<-LIST
	2 want layers from 0 to 1
	-1 want layers from 0 to 1
	0,full want layers from 0 to 1
	0, want layers from 0 to 1
	sliding_window has no effect: the KV cache of these layers is in bf16
LIST
ok '... without a format there is nothing to skip' fails 2 'has no effect: the KV cache' \
	roofline --model plain.json --kv-cache-dtype-skip-layers 0
ok 'an unknown dtype is named' fails 2 "dtype 'float32' is not known; known are auto" \
	roofline --model plain.json --dtype float32
ok 'ranks that cut a group are refused, and those that do not are named' fails 2 \
	"cannot split model 'gpt-oss-20b' into 4 parts; take --tp 1, 2: experts of a rank" \
	roofline --model gpt-oss-20b --tp 4 --disable-hybrid-kv-cache-manager
ok '... a shape in bf16 has none' roofline --model gpt-oss-20b --tp 4 --quantization none \
	--disable-hybrid-kv-cache-manager
ok 'backend cpu has no kernels for weights' fails 2 'no kernels for weights in fp8-block' \
	run --backend cpu --capture random:0 --model fp8.json
ok '... nor for KV caches' fails 2 'no kernels for KV cache kv-e4m3; --kv-cache-dtype bfloat16' \
	run --backend cpu --capture random:0 --model plain.json --kv-cache-dtype fp8
ok '... but for the shape' run --backend cpu --capture random:0 --model fp8.json \
	--quantization none --accuracy 0
ok 'a capture has none either' fails 2 'no kernels for weights in nvfp4' \
	roofline --capture random:0 --model nvfp4
mkdir weights
cp fp8.json weights/config.json
echo '[1, 2, 3]' >prompts
ok 'weights in other formats are refused' fails 2 'no kernels for weights in fp8-block' \
	run --backend cpu --weights weights --prompts prompts
ok '... and their formats are those of the files' fails 2 'quantization has no effect with --weights' \
	run --backend cpu --weights weights --prompts prompts --quantization none
ok 'the formula knows no formats' fails 2 'kv-cache-dtype has no effect with backend cost' \
	run --backend cost --kv-cache-dtype fp8

# ---- records ----

ok 'a run without formats' roofline --model plain.json --db r.db
ok '... and one with' roofline --model plain.json --quantization fp8_per_tensor \
	--kv-cache-dtype fp8 --db r.db
is 'the record of bf16 names no format' "$(value r.db "SELECT params LIKE '%weights%' OR
	options LIKE '%quantization%' OR options LIKE '%kv-cache-dtype%' AS named FROM run
	JOIN method USING(method_id) WHERE run_id = 1")" 0
is '... the other one does' "$(value r.db "SELECT params ->> 'weights' || ' ' ||
	(params ->> 'kv_cache') || ' ' || (options ->> 'quantization') FROM run JOIN method
	USING(method_id) WHERE run_id = 2")" 'fp8-tensor kv-e4m3 fp8_per_tensor'
is 'runs in different formats can be compared' \
	"$(value r.db 'SELECT count(DISTINCT setup) FROM run')" 1
is 'the summary for programs names them, too' "$(roofline --model fp8.json --json - 2>&1 |
	grep -c '"parameters":{.*"weights":"fp8-block"')" 1
ok 'a run with measured costs' run --backend cpu --capture random:0 --model plain.json --accuracy 0 \
	--db c.db
ok '... gives costs of bf16' run --backend cost --costs c.db
ok '... and of nothing else' fails 2 "kv-cache-dtype 'fp8' contradicts c.db:1" \
	run --backend cost --costs c.db --kv-cache-dtype fp8
run --backend cpu --capture random:0 --model fp8.json --quantization none --accuracy 0 --db q.db \
	>out 2>&1 || cat out
bytes() { run --backend cost --costs q.db 2>&1 | sed -n 's/^memory .* \([0-9.]* [GM]B\) a rank, KV .*/\1/p'; }
want=$(bytes)
ok '... of a shape in bf16 they have its bytes' [ "$want" ]
if command -v sqlite3 >/dev/null; then
	sqlite3 q.db "UPDATE run SET options = json_remove(options, '\$.quantization', '\$.\"kv-cache-dtype\"')"
	is '... also of a version that read no formats' "$(bytes)" "$want"
	sqlite3 q.db "UPDATE method SET params = json_set(params, '\$.weights', 'nvfp4')"
	ok '... others than those of the model are refused' fails 3 \
		'q.db:1: its costs are of weights in nvfp4 and a KV cache in bf16, but its model has fp8-block and bf16' \
		run --backend cost --costs q.db
else
	skip '... also of a version that read no formats' 'no sqlite3'
	skip '... others than those of the model are refused' 'no sqlite3'
fi
ok '... also of weights' fails 2 "quantization 'w4a16' contradicts c.db:1" \
	run --backend cost --costs c.db --quantization w4a16

finish
