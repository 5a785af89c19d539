#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/random_weights.py: the program runs a model of each architecture that it makes.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1
if ! "$python" -c 'import random; random.randbytes' 2>/dev/null; then
	echo '1..0 # SKIP no python3 of version 3.9'
	exit 0
fi
make() { "$python" "$srcdir/contrib/random_weights.py" "$@"; }
config() { # config ARCHITECTURE TYPE MEMBERS
	printf '%s\n' "{\"architectures\": [\"$1\"], \"model_type\": \"$2\", \"hidden_size\": 32,
	\"intermediate_size\": 64, \"num_attention_heads\": 4, \"num_key_value_heads\": 2,
	\"head_dim\": 8, \"num_hidden_layers\": 2, \"vocab_size\": 100, \"rms_norm_eps\": 1e-5,
	\"rope_theta\": 10000.0, \"max_position_embeddings\": 512 $3}" >config.json
}
cd "$tmp" || exit 1
echo '[1, 2, 3, 5, 8, 13, 21, 34, 55, 89]' >prompts.jsonl
printf 'TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:00:00.0,40,3\n' >t.csv
runs() {
	rm -rf m
	config "$@" && make config.json m &&
		"$ATTNREPLAY" run $plain --backend cpu --trace t.csv --weights m --prompts prompts.jsonl |
		grep -q ': 1 requests ok'
}

bias='"attention_bias": true, "mlp_bias": true'
ok 'Llama, its head apart' runs LlamaForCausalLM llama ', "tie_word_embeddings": false'
ok '... tied, with biases' runs LlamaForCausalLM llama ", \"tie_word_embeddings\": true, $bias"
ok 'Mistral' runs MistralForCausalLM mistral ', "sliding_window": null'
ok 'Qwen2' runs Qwen2ForCausalLM qwen2 ''
ok 'Qwen3' runs Qwen3ForCausalLM qwen3 ''
ok 'Gemma 3' runs Gemma3ForCausalLM gemma3_text ', "sliding_window": 16,
	"layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 8,
	"rope_local_base_freq": 10000.0, "hidden_activation": "gelu_pytorch_tanh"'

config LlamaForCausalLM llama ''
make config.json a && make config.json b && make --seed 1 config.json c
ok 'a seed makes the same file again' cmp a/model.safetensors b/model.safetensors
ok '... and another seed another' eval '! cmp -s a/model.safetensors c/model.safetensors'
config MixtralForCausalLM mixtral ''
ok 'others are refused' fails 1 \
	'config.json: architectures: want one of Gemma3ForCausalLM, Llama' make config.json d
echo '{"architectures": ["LlamaForCausalLM"], "hidden_size": 8}' >config.json
ok '... and files without a size' fails 1 "config.json: no 'intermediate_size'" make config.json d
config LlamaForCausalLM llama ''
ok '... and a folder that is a file' fails 1 't.csv' make config.json t.csv
ok 'nothing is left of what was refused' test ! -e d
finish
