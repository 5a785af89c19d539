#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with config.json files as people have them: types that are not known, keys that are
# not read, numbers that are no JSON.
. "$srcdir/tests/tap.sh"

printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,1000,10\n0.5,3000,20\n' >"$tmp/t.csv"
config() { # TYPE and more keys
	printf '{"model_type": "%s", "vocab_size": 1000, "hidden_size": 4096, "num_hidden_layers": 4,
 "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
 "max_position_embeddings": 8192%s}\n' "$1" "$2" \
		>"$tmp/m.json"
}
run() { "$ATTNREPLAY" run --trace "$tmp/t.csv" --backend roofline --gpu h200 --model "$tmp/m.json" "$@"; }
last() { run "$@" 2>/dev/null | grep '^TTFT'; }

config llama
llama=$(last)
ok 'a Llama runs' test "$llama"
is '... without a warning' "$(run 2>&1 >"$tmp/out")" ''
config llama ', "time_step_limit": [0.0, Infinity], "_x": NaN'
is 'numbers that are no JSON change nothing' "$(last)" "$llama"
is '... and need no warning where keys change no layer' "$(run 2>&1 >"$tmp/out")" ''
config llama ', "limits": [0.0, -Infinity], "lanes": 3'
is 'keys that were not read are named in a line' "$(run 2>&1 >"$tmp/out")" \
	"attnreplay: warning: model m: keys of config.json that were not read: limits, lanes; if they change layers, another model runs"
config llama ', "rope_theta": Infinity'
ok 'a key that is read names the number' fails 3 "m.json: want a number .* 'rope_theta'" run

config llama
sed 's/"model_type": "llama", //; s/"max_position_embeddings": 8192/"head_dim": 128/' "$tmp/m.json" >"$tmp/bare.json"
mv "$tmp/bare.json" "$tmp/m.json"
is 'a file without a type is read as that of a Llama, and one without a length has no limit' \
	"$(last)" "$llama"
is '... which a warning says' "$(run 2>&1 >"$tmp/out")" \
	'attnreplay: warning: model m: config.json has no model_type and is read as that of a Llama; --as-model llama confirms it'
is '... unless it was asked for' "$(run --as-model llama 2>&1 >"$tmp/out")" ''
config qwen4_exp
ok 'a type that is not known is refused' fails 3 \
	"m.json: model_type 'qwen4_exp' is not known; the nearest name that is known is 'qwen3" run
config step3p5
ok '... as Step-3.5, whose keys are not those of Step-3.7' fails 3 \
	"m.json: model_type 'step3p5' is not known; the nearest name that is known is 'step3p7'" run
config qwen4_exp
is '--as-model reads it as another' "$(last --as-model llama)" "$llama"
ok '... of a known type' fails 2 "as-model 'qwen4': not a type of models that is known" \
	run --as-model qwen4
ok '... and only where there is a model' fails 2 'as-model has no effect with backend cost' \
	"$ATTNREPLAY" run --trace "$tmp/t.csv" --backend cost --as-model llama
run --as-model llama --db "$tmp/db" >"$tmp/out" 2>&1
is '... which the database has' \
	"$("$ATTNREPLAY" sql --format csv "$tmp/db" "SELECT substr(config, 1, 20) c FROM model")" \
	"c
\"{\"\"as_model\"\":\"\"llama\"\",\""

list=$(awk 'BEGIN { for (i = 0; i < 40000; i++) printf ", \"model.layers.%d.mlp.down\"", i }')
config llama ", \"ignored\": [0$list]"
is 'a file of a megabyte runs' "$(last)" "$llama"
ok '... but no database holds it' fails 2 "config.json has 1.[0-9] MiB" run --db "$tmp/db"
# Layers of chunks keep the blocks of their chunk alone; a prompt of 20000 tokens has 1250 blocks.
printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,20000,10\n' >"$tmp/long.csv"
scout() { "$ATTNREPLAY" -q run --trace "$tmp/long.csv" --model llama-4-scout --tp 8 "$@"; }
is 'chunks are KV cache groups' \
	"$(scout --backend roofline --gpu h200 --policy vllm-0.16 --max-num-batched-tokens 2048 |
		grep -E '^(groups|KV blocks)')" \
"groups    3 of chunks of 8192 with 12 layers each, 1 of full attention with 12 layers; a block has 0.0983 MB
KV blocks used at most: chunks of 8192 512 in each group, 151.0 MB; full attention 1251, 123.0 MB"
ok 'kernels refuse them' fails 2 'llama-4-scout, layer 0: attention within chunks: there are no kernels' \
	scout --backend cpu --capture random:0
ok '... and values of another size' \
	fails 2 'mimo-v2-flash, layer 0: values of another size than keys' \
	"$ATTNREPLAY" run --trace "$tmp/t.csv" --backend cpu --model mimo-v2-flash --capture random:0
ok '... captures, too' fails 2 'gemma-4-31b, layer 5: values from the product of keys' \
	"$ATTNREPLAY" run --trace "$tmp/t.csv" --backend roofline --model gemma-4-31b --capture random:0
finish
