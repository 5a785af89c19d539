#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with models whose layers differ: KV cache groups, their memory, refusals.
. "$srcdir/tests/tap.sh"

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00.0,300,3' \
	'2023-11-16 18:00:00.0,200,2' >"$tmp/t.csv"
cat >"$tmp/tiny.json" <<'END'
{ "architectures": ["Qwen2ForCausalLM"], "model_type": "qwen2", "hidden_size": 64,
  "intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 2,
  "num_key_value_heads": 1, "head_dim": 32, "vocab_size": 128, "max_position_embeddings": 4096,
  "rope_theta": 10000, "sliding_window": 64, "rms_norm_eps": 1e-05, "hidden_act": "silu",
  "layer_types": ["sliding_attention", "sliding_attention", "full_attention",
    "sliding_attention", "sliding_attention", "full_attention"] }
END
run() { "$ATTNREPLAY" -q run $plain --trace "$tmp/t.csv" "$@"; }
modelled() { run --backend roofline --gpu h200 "$@"; }
groups() { grep -E '^(blocks|groups|KV blocks) '; }
refused() { pattern=$1; shift; fails 2 "$pattern" "$ATTNREPLAY" -q run $plain --trace "$tmp/t.csv" \
	--backend roofline --gpu h200 "$@"; }

# In the fifth iteration A has computed 301 tokens and drops 10 blocks of 19; B has 13 blocks.
is 'window layers give back blocks before the window' \
	"$(modelled --model gpt-oss-20b --max-num-batched-tokens 100 --num-gpu-blocks 62 | groups)" \
"blocks    62 of 16 tokens, one reserved
groups    1 of window 128 with 12 layers, 1 of full attention with 12 layers; a block has 0.3932 MB
KV blocks used at most: window 128 22, 8.7 MB; full attention 32, 12.6 MB"
is 'states of linear layers are a block each' \
	"$(modelled --model qwen3-next-80b-a3b --num-gpu-blocks 9 2>/dev/null | groups)" \
"blocks    9 of 544 tokens, one reserved
groups    3 of linear attention with 12 layers each, 1 of full attention with 12 layers; a block has 13.37 MB
KV blocks used at most: linear attention 2 in each group, 80.2 MB; full attention 2, 26.7 MB"
is 'without the hybrid manager there are no groups' \
	"$(modelled --model gemma-3-12b --policy sglang --disable-hybrid-kv-cache-manager | groups |
		sed 's/[0-9]* of 16/N of 16/')" 'blocks    N of 16 tokens (auto), one reserved'
ok 'a policy of another engine is refused' \
	refused "gemma-3-12b: policy 'sglang-0.5.23' has no rules here" --model gemma-3-12b --policy sglang
ok 'an older policy refuses a prefix cache of states' \
	refused "policy 'vllm-0.19' no prefix cache of linear layers is modelled" \
	--model qwen3-next-80b-a3b --policy vllm-0.19 --enable-prefix-caching
ok '... also of Mamba-2, which a newer one than 0.24 has' \
	refused "'vllm-0.24' no prefix cache of state-space layers is modelled; take a newer policy of vLLM" \
	--model nemotron-3-nano-30b-a3b --policy vllm-0.24 --enable-prefix-caching
ok '... and one that cuts prompts at blocks needs a whole one' \
	refused 'a chunk of 543 tokens is shorter than a block, which has 544' \
	--model qwen3-next-80b-a3b --policy vllm-0.24 --enable-prefix-caching \
	--max-num-batched-tokens 543
for json in "$srcdir"/model/presets/*.json; do
	preset=${json##*/}
	ok "$preset runs under the newest policy" modelled --model "${preset%.json}" --policy vllm \
		--enable-prefix-caching --async-scheduling --max-num-batched-tokens 2048
done
is 'groups of a type may differ by a layer' \
	"$(modelled --model nemotron-3-nano-30b-a3b 2>/dev/null | sed -n 's/^groups  *\(.*\);.*/\1/p')" \
	'4 of state space with 5 to 6 layers each, 1 of full attention with 6 layers'
ok 'so are states without the hybrid manager' \
	refused 'linear layers, which have no other KV cache' --model qwen3-next-80b-a3b \
	--disable-hybrid-kv-cache-manager
ok 'the option needs layers that differ' \
	refused 'has no effect with llama-3.1-8b' --model llama-3.1-8b --disable-hybrid-kv-cache-manager

run --backend cpu --model "$tmp/tiny.json" --capture random:0 --attention-only --accuracy 0 \
	--max-num-batched-tokens 128 --num-gpu-blocks 100 --db "$tmp/db" >"$tmp/measured"
is 'groups on a backend with kernels' "$(groups <"$tmp/measured")" \
"blocks    100 of 16 tokens, one reserved
groups    2 of window 64 with 2 layers each, 1 of full attention with 2 layers; a block has 0.004096 MB
KV blocks used at most: window 64 17 in each group, 0.1 MB; full attention 32, 0.1 MB"
is '... which the database has' "$("$ATTNREPLAY" sql --format csv "$tmp/db" 'SELECT * FROM kv_group')" \
"run_id,group_no,kind,window,n_layers,block_tokens,block_bytes,peak_blocks
1,0,window,64,2,16,4096,17
1,1,window,64,2,16,4096,17
1,2,full,,2,16,4096,32"
"$ATTNREPLAY" report "$tmp/db" >"$tmp/report"
ok '... and the report shows' grep -qE '^ *1 +dense +2 +full +2 +16 +4096 +32 +0.131[0-9]*$' "$tmp/report"
modelled --model qwen3-next-80b-a3b --num-gpu-blocks 9 --json "$tmp/j" >"$tmp/out" 2>&1
is '... as JSON does' "$(grep -o '"kv_groups":.*' "$tmp/j" | grep -o '{[^}]*}' | sed -n '1p;4p')" \
'{"kind":"linear","window":null,"layers":12,"block_tokens":null,"block_bytes":13369344,"peak_blocks":2}
{"kind":"full","window":null,"layers":12,"block_tokens":544,"block_bytes":13369344,"peak_blocks":2}'
is 'costs of such a run keep its groups' \
	"$(run --backend cost --costs "$tmp/db" --max-num-batched-tokens 128 \
		--num-gpu-blocks 100 | groups)" "$(groups <"$tmp/measured")"
finish
