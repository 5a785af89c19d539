#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# contrib/capture_hf.py on small random models, if Python has the needed packages.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export HF_HUB_OFFLINE=1 TRANSFORMERS_VERBOSITY=error
if ! "$python" -c 'import torch, transformers, safetensors' 2>/dev/null; then
	echo '1..0 # SKIP no torch, transformers and safetensors'
	exit 0
fi

"$python" - "$tmp" >"$tmp/.log" 2>&1 <<'EOF' ||
import json, sys, torch
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig
tmp = sys.argv[1]
torch.manual_seed(0)
size = dict(hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
            num_key_value_heads=2, vocab_size=100, max_position_embeddings=131072)
llama3 = dict(rope_type="llama3", rope_theta=500000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=8192)
yarn = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0,
            original_max_position_embeddings=32768)
for name, config in (("llama3", LlamaConfig(**size, head_dim=32, rope_parameters=llama3)),
                     ("yarn", LlamaConfig(**size, rope_parameters=yarn)),
                     ("sliding", MistralConfig(**size, sliding_window=64))):
    AutoModelForCausalLM.from_config(config).to(torch.bfloat16).save_pretrained(f"{tmp}/{name}")
json.dump([i * 7 % 100 for i in range(600)], open(f"{tmp}/list.json", "w"))
with open(f"{tmp}/lines.jsonl", "w") as f:
    for n in (3, 40):
        f.write(json.dumps({"task": "x", "prompt": list(range(1, n + 1))}) + "\n")
EOF
	{ cat "$tmp/.log" >&2; echo 'Bail out! no models'; exit 1; }
gzip -k "$tmp/lines.jsonl"

hf() { # hf MODEL PROMPTS OPTION...: writes $tmp/x
	model=$1 prompts=$2
	shift 2
	"$python" "$srcdir/contrib/capture_hf.py" --model "$tmp/$model" --prompts "$tmp/$prompts" \
		--device cpu --out "$tmp/x" "$@"
}
refuses() { # refuses PATTERN ARGUMENT OF hf...
	pattern=$1
	shift
	! hf "$@" >"$tmp/.out" 2>&1 && grep -q -e "$pattern" "$tmp/.out"
}
info() { "$ATTNREPLAY" capture info "$tmp/x" | tr -s ' ' | grep -E '^(layer|tokens|prompt|rope)' |
	tr '\n' ';'; }

ok 'a model is captured and the capture checked' hf llama3 list.json --check
is 'after RoPE, with what is known of it' "$(info)" \
	'layer numbers 0-1;tokens 600;prompt 600;rope applied, theta 500000, llama3 factor 8;'
ok 'the same before RoPE' hf llama3 list.json --rope pre --layers 1 --tokens 500 --check
is 'some layers and tokens of it' "$(info)" \
	'layer numbers 1;tokens 500;prompt 500;rope not applied, theta 500000, llama3 factor 8;'
ok 'a prompt of a compressed file, and decoding' \
	hf llama3 lines.jsonl.gz --index 1 --tokens 50 --generate
is 'the decoded tokens are not prompt' "$(info)" \
	'layer numbers 0-1;tokens 50;prompt 40;rope applied, theta 500000, llama3 factor 8;'
ok 'a RoPE that is not known is left out' hf yarn list.json --check
is 'after RoPE only' "$(info)" 'layer numbers 0-1;tokens 600;prompt 600;rope applied;'
ok 'before it that is refused' refuses "RoPE is not known" yarn list.json --rope pre
ok 'attention with a window does not pass as dense' \
	refuses 'not what the model computed' sliding list.json --check
ok 'more tokens than the prompt has' refuses 'has 600 tokens, not 601' llama3 list.json --tokens 601
ok 'a prompt that is not there' refuses 'has 2 prompts, no number 2' llama3 lines.jsonl --index 2
ok 'a layer that is not there' refuses 'no attention layer 2' llama3 list.json --layers 1-2
finish
