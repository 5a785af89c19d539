#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with models of latent attention: every preset under several policies, phases of the
# database, and what refuses them.
. "$srcdir/tests/tap.sh"

printf 'arrived_at,num_prefill_tokens,num_decode_tokens\n0,1000,10\n0.5,5000,20\n' >"$tmp/t.csv"
run() { "$ATTNREPLAY" run --trace "$tmp/t.csv" "$@"; }
model() { run --backend roofline --gpu h200 --policy vllm-0.33 --model "$@"; }
phases() { # DB: phases of latent attention that took time
	"$ATTNREPLAY" sql --format csv "$1" "SELECT group_concat(name, '+') FROM (SELECT DISTINCT name
	FROM iteration_phase JOIN phase USING(phase_id) WHERE gpu_ns > 0 AND core ORDER BY phase_id)" |
		tail -1
}
done_by() { # COMMAND...: both requests are done
	"$@" >"$tmp/out" 2>&1
	grep -q '2 requests ok' "$tmp/out" || { cat "$tmp/out"; return 1; }
}

while read -r name tp header; do
	ok "$name runs" done_by model "$name" --tp "$tp" --db "$tmp/$name.db"
	is '... and the header describes it' \
		"$(sed -n 's/^model     [^ ]* //p' "$tmp/out" | sed 's/, weights.*//')" "$header"
	for policy in vllm-0.24 sglang trtllm-no-evict sarathi; do
		ok "... under $policy, too" done_by run --backend roofline --gpu h200 --model "$name" \
			--tp "$tp" --policy "$policy"
	done
done <<-LIST
	deepseek-v2-lite 1 27 layers, 16 heads of 192 over latents of 576
	deepseek-v3 16 61 layers, 8 heads of 192 over latents of 576 on each of 16 ranks
	deepseek-v3.2 16 61 layers, 8 heads of 192 over latents of 576, lists of 2048 keys on each of 16 ranks
	glm-4.7-flash 4 47 layers, 5 heads of 256 over latents of 576 on each of 4 ranks
	glm-5 32 78 layers, 2 heads of 256 over latents of 576, lists of 2048 keys on each of 32 ranks
	kimi-k2 16 61 layers, 4 heads of 192 over latents of 576 on each of 16 ranks
LIST
blocks() { "$@" 2>&1 | sed -n '/^defaults/p; s/^blocks *[0-9]* of \([0-9]* tokens\).*/\1/p'; }
is 'with an indexer KV blocks have 64 tokens by default' \
	"$(blocks model deepseek-v3.2 --tp 16)" 'defaults  of vllm-0.33 on h200 (--gpu)
64 tokens'
is '... under sglang, too' "$(blocks model deepseek-v3.2 --tp 16 --policy sglang | tail -1)" '64 tokens'
is '... without one they have 16' "$(blocks model deepseek-v3 --tp 16 | tail -1)" '16 tokens'
while read -r gpu policy dtype want; do
	is "KV blocks of $dtype under $policy on a $gpu" "$(blocks run --backend roofline --gpu $gpu \
		--policy "$policy" --model deepseek-v2-lite --kv-cache-dtype "$dtype" | tail -1)" \
		"$want tokens"
done <<-LIST
	h100 vllm-0.33 fp8 64
	h200 vllm-0.24 fp8_ds_mla 64
	h200 vllm-0.16 fp8 64
	h200 vllm-0.33 bfloat16 16
	a100 vllm-0.33 fp8 16
	l40s vllm-0.24 fp8 16
	h200 sglang fp8 1
	h100 sglang bfloat16 1
	a100 sglang bfloat16 1
LIST
is 'phases without an indexer' "$(phases "$tmp/deepseek-v3.db")" 'attend+decode+latent'
is 'phases with one' "$(phases "$tmp/deepseek-v3.2.db")" 'select+metadata+attend+decode+latent'
is 'a cache in fp8' "$(model deepseek-v3.2 --tp 16 --kv-cache-dtype fp8 | grep -o 'KV cache .*')" \
	'KV cache latent-index-fp8'
ok '... which is not of keys and values' fails 2 'KV cache latent-fp8 is of latents' \
	model llama-3.1-8b --kv-cache-dtype fp8_ds_mla
ok '... not in another format' fails 2 'no KV cache kv-e5m2 of latents of 512 . 64 is known' \
	model deepseek-v3.2 --tp 16 --kv-cache-dtype fp8_e5m2

form() { # FORM: what attention and its products take
	model deepseek-v2-lite --latent "$1" --db "$tmp/$1.db" >/dev/null 2>&1
	"$ATTNREPLAY" sql --format csv "$tmp/$1.db" "SELECT sum(gpu_ns) FROM iteration_phase
	JOIN phase USING(phase_id) WHERE name IN ('attend', 'latent')" | tail -1
}
least=$(form auto)
is 'a prompt alone is expanded by default' "$(form expand)" "$least"
ok '... and takes longer absorbed' [ "$(form absorb)" -gt "$least" ]
forms() { # DB: the report's note
	"$ATTNREPLAY" report "$tmp/$1.db" | grep -o 'decodes attend to latents absorbed; chunks.*'
}
is 'the report says which form ran' "$(forms expand)" \
	'decodes attend to latents absorbed; chunks of prompts: 2 expanded'
is '... absorbed' "$(forms absorb)" 'decodes attend to latents absorbed; chunks of prompts: 2 absorbed'
is '... over lists, too, where a prompt is longer than these' "$(forms deepseek-v3.2)" \
	'decodes attend to latents absorbed; chunks of prompts: 1 absorbed, 1 expanded'
model deepseek-v2-lite --max-num-batched-tokens 64 --db "$tmp/short.db" >/dev/null 2>&1
ok '... and both of auto, where a chunk is short beside its context' grep -q \
	'chunks of prompts: [1-9][0-9]* absorbed, [1-9][0-9]* expanded' - <<EOT
$(forms short)
EOT
is '... in runs with latents alone' "$(model llama-3.1-8b --db "$tmp/llama.db" >/dev/null 2>&1
	forms llama)" ''
ok 'models without latents have no form' fails 2 \
	'latent has no effect: llama-3.1-8b has no latent attention; leave it out' \
	model llama-3.1-8b --latent absorb
ok '... other backends, too' fails 2 'latent has no effect with backend cost' \
	run --backend cost --latent absorb

gap='model deepseek-v2-lite, layer 0: latent attention: there are no kernels for it'
ok 'backend cpu refuses it' fails 2 "$gap" \
	run --backend cpu --capture random:0 --model deepseek-v2-lite
ok '... so do captures' fails 2 "$gap" model deepseek-v2-lite --capture random:0
mkdir "$tmp/deepseek-v2-lite"
cp "$ATTNREPLAY_DATA/model/presets/deepseek-v2-lite.json" "$tmp/deepseek-v2-lite/config.json"
ok '... and weights' fails 2 "$gap" run --backend cpu --weights "$tmp/deepseek-v2-lite"
ok '... and select' fails 2 "$gap" "$ATTNREPLAY" select --method flashprefill \
	--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --model deepseek-v2-lite
ok 'a sparse method is named' fails 2 "method 'flashprefill': layer 0 of model deepseek-v2-lite has latent attention" \
	model deepseek-v2-lite --method flashprefill --density flashprefill=0.1
finish
