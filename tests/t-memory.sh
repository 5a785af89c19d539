#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run on a modelled GPU: the pool that its engine would have, and models that do not fit.
. "$srcdir/tests/tap.sh"

trace=$srcdir/traces/samples/azure-2023-code-200.csv
run() { "$ATTNREPLAY" run --trace "$trace" --requests 2 --policy vllm-0.33 \
	--max-num-batched-tokens 8192 --max-num-seqs 1024 "$@"; }
modelled() { run --backend roofline "$@"; }
memory() { grep '^memory ' | cut -c 11-; }
refused() { pattern=$1; shift; fails 2 "$pattern" run --backend roofline "$@"; }

is 'the pool of a modelled GPU' "$(modelled --gpu h100 --model llama-3.1-8b | memory)" \
	'8.03 B parameters, 16.06 GB a rank, KV 128 KiB a token: 26708 blocks of 16, 427328 tokens (h100, 0.92 of 85.0 GB)'
is '... of a rank' "$(modelled --gpu h100 --model llama-3.1-70b --tp 4 2>/dev/null | memory)" \
	'70.55 B parameters, 35.28 GB a rank, KV 80 KiB a token: 27613 blocks of 16, 441808 tokens (h100, 0.92 of 85.0 GB)'
is '... of more ranks than KV heads' \
	"$(modelled --gpu h100 --model qwen3-30b-a3b --tp 8 | memory | cut -d: -f1)" \
	'30.53 B parameters, 7.681 GB a rank, KV 24 KiB a token'
is '... with a share' "$(modelled --gpu h100 --model llama-3.1-8b --gpu-memory-utilization 0.5 |
	memory | sed 's/.*: //')" '9679 blocks of 16, 154864 tokens (h100, 0.5 of 85.0 GB)'
is '... of layers that differ, in tokens of the longest requests' \
	"$(modelled --gpu h100 --model gemma-3-12b --policy vllm-0.16 2>/dev/null | memory |
		sed 's/.*: //')" '40423 blocks of 16, 478317 tokens (h100, 0.9 of 85.0 GB)'

# Blocks that weights, activations and graphs leave; SGLang's share has weights and blocks alone.
blocks() { modelled --gpu h100 --model llama-3.1-8b --block-size 16 \
	--gpu-memory-utilization 0.9 "$@" --json "$tmp/j" >/dev/null &&
	grep -o '"blocks":[0-9]*' "$tmp/j" | cut -d: -f2; }
ok 'an engine without graphs in its share has more' test "$(blocks --policy vllm-0.16)" -gt \
	"$(blocks --policy vllm-0.33)"
ok '... and one without activations in it more still' test "$(blocks --policy sglang)" -gt \
	"$(blocks --policy vllm-0.16)"
ok '... and another takes its share of the rest' test "$(blocks --policy trtllm-max-util)" -lt \
	"$(blocks --policy sglang)"

ok 'a model that does not fit is refused, with what would fit' refused \
	'^attnreplay: llama-3.1-70b needs 141.1 GB of weights a rank and 6.2 GB beside them, h100 has 85.0 GB (79.2 GiB), of which 0.92 may be used; --tp 2 fits$' \
	--gpu h100 --model llama-3.1-70b
ok '... the sum of all layers, though few are run' refused \
	'needs 141.1 GB of weights a rank' --gpu h100 --model llama-3.1-70b --capture random:0 \
	--layers 0
ok '... on a smaller one' refused 'l40s has 47.8 GB (44.5 GiB).*; --tp 4 fits$' --gpu l40s \
	--model llama-3.1-70b
sed 's/"num_hidden_layers": 80/"num_hidden_layers": 126/; s/8192,/16384,/; s/28672/53248/;
	s/"num_attention_heads": 64/"num_attention_heads": 128/' \
	"$srcdir/model/presets/llama-3.1-70b.json" >"$tmp/405b.json"
ok '... a model of 405 B parameters' refused \
	'^attnreplay: 405b needs 811.7 GB of weights a rank and .*h200 has 150.1 GB.*; --tp 8 fits$' \
	--gpu h200 --model "$tmp/405b.json"
sed 's/"num_attention_heads": 64/"num_attention_heads": 63/; s/"num_key_value_heads": 8/"num_key_value_heads": 63/
	s/"hidden_size"/"head_dim": 128, &/' "$srcdir/model/presets/llama-3.1-70b.json" >"$tmp/odd.json"
ok '... and one that no number of ranks divides' refused '; no --tp fits$' --gpu h100 \
	--model "$tmp/odd.json"
modelled --gpu h100 --model llama-3.1-70b --num-gpu-blocks 1000 >"$tmp/out" 2>"$tmp/err"
is 'a pool that is given overrides that' "$(sed -n 's/^blocks *//p' "$tmp/out")" \
	'1000 of 16 tokens, one reserved, prefix cache'
ok '... with a warning' grep -q 'warning: llama-3.1-70b needs 141.1 GB .*--tp 2 fits$' "$tmp/err"
ok 'a larger pool than memory has is a warning' sh -c \
	'"$0" run --trace "$1" --requests 1 --backend roofline --gpu h100 --model llama-3.1-8b \
	--num-gpu-blocks 99999 2>&1 >/dev/null |
	grep -q "warning: num-gpu-blocks 99999: h100 has memory for"' "$ATTNREPLAY" "$trace"

ok 'a length that the pool does not hold is refused' refused \
	'^attnreplay: max-model-len 100000 needs 6250 KV blocks, but h100 has memory for [0-9]*; lower it' \
	--gpu h100 --model llama-3.1-70b --tp 2 --max-model-len 100000
modelled --gpu h100 --model llama-3.1-70b --tp 2 >"$tmp/out" 2>"$tmp/err"
ok "... that of the model is a warning" grep -q \
	"warning: a request of the model's 131072 tokens needs 8192 KV blocks" "$tmp/err"

# Backend cpu schedules with an H100's pool, and allocates what the trace can use.
tiny=$srcdir/model/presets/niah-llama-14m.json
cpu() { run --backend cpu --capture random:0 --attention-only --accuracy 0 \
	--max-prompt-tokens 64 "$@"; }
is 'backend cpu has the pool of an H100' "$(cpu --model "$tiny" 2>/dev/null | memory |
	sed 's/.*: //')" '587812 blocks of 16, 9404992 tokens (h100, 0.92 of 85.0 GB)'
cpu --model llama-3.1-70b --sample-layers 1 --max-num-seqs 4 >"$tmp/out" 2>"$tmp/err"
ok '... and runs a model that does not fit it, with a warning' grep -q \
	'warning: llama-3.1-70b .*; the pool is what the trace can use$' "$tmp/err"

modelled --gpu h100 --model llama-3.1-8b --db "$tmp/db" --json "$tmp/j" >"$tmp/out"
is 'the database has it' "$("$ATTNREPLAY" sql --format csv "$tmp/db" 'SELECT n_params, weight_bytes,
	block_bytes, pool_tokens, gpu_bytes, gpu_share FROM run')" \
	'n_params,weight_bytes,block_bytes,pool_tokens,gpu_bytes,gpu_share
8030261248,16060522496,2097152,427328,85027979264,0.92'
is '... and JSON' "$(grep -o '"memory":{[^}]*}' "$tmp/j")" \
	'"memory":{"parameters":8030261248,"weight_bytes":16060522496,"token_bytes":131072,"block_bytes":2097152,"pool_tokens":427328,"gpu":"h100","gpu_bytes":85027979264,"gpu_share":0.92}'
"$ATTNREPLAY" report "$tmp/db" >"$tmp/report"
ok '... and the report' grep -qE '^ *1 +8.0300 +16.060 +2.0970 +26708 +427328 +85.030 +0.9200$' "$tmp/report"

sed '/"memory_bytes"/d' "$srcdir/replay/cost/gpus/h100.json" >"$tmp/gpu.json"
is 'a GPU of unknown memory has a pool that the trace can use' \
	"$(modelled --gpu "$tmp/gpu.json" --model llama-3.1-8b | memory | sed 's/[0-9]* blocks.*/N blocks/')" \
	'8.03 B parameters, 16.06 GB a rank, KV 128 KiB a token: N blocks'
finish
