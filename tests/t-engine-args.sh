#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# run --engine-args: command lines of vLLM and SGLang as people have them.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00.0,300,3' >t.csv
run() { "$ATTNREPLAY" run --backend roofline --gpu h100 --trace t.csv --engine-args "$@"; }
# took COMMAND OPTION...: what the header says
took() {
	run "$@" >out 2>err || { cat err; return 1; }
	sed -n 's/^policy    \(.*\) an iteration\(.*\)/\1\2/p; s/^left out  of --engine-args: /left out /p
		s/^blocks    [0-9]* of \([0-9]*\) tokens (auto), one reserved/blocks \1/p
		s/^model     \([^,]*\),.* on each of \([0-9]*\) ranks/\1 tp \2/p
		s/^model     \([^,]*\),.*/\1/p' out
}
refused() { pattern=$1; shift; fails 2 "$pattern" "$ATTNREPLAY" run --backend roofline --gpu h100 \
	--trace t.csv --engine-args "$@"; }

# ---- vLLM ----

is 'a command of vLLM' "$(took 'vllm serve meta-llama/Llama-3.1-8B-Instruct')" \
	'llama-3.1-8b
vllm-0.33, 8192 tokens and 1024 requests, planned ahead
blocks 16, prefix cache'
is '... with flags in all their forms' "$(took 'VLLM_USE_V1=1 CUDA_VISIBLE_DEVICES=0,1 vllm serve \
	Qwen/Qwen3-8B -tp 2 --max_num_seqs=64 \
	--max-num-batched-tokens 4k --no-enable-prefix-caching --block-size "32" --no-async-scheduling')" \
	'qwen3-8b tp 2
vllm-0.33, 4000 tokens and 64 requests
blocks 32'
is '... as the server of its module' \
	"$(took "python3 -m vllm.entrypoints.openai.api_server --model 'mistralai/Mistral-7B-v0.3' -tp=4")" \
	'mistral-7b-v0.3 tp 4
vllm-0.33, 8192 tokens and 1024 requests, planned ahead
blocks 16, prefix cache'
is '... in a container' "$(took 'docker run --gpus all -v ~/.cache/huggingface:/root/.cache/huggingface \
	-p 8000:8000 --ipc=host vllm/vllm-openai:latest --model Qwen/Qwen3-8B --max-num-seqs 64' |
	sed -n 2p)" 'vllm-0.33, 8192 tokens and 64 requests, planned ahead'
is '... that names the program' "$(took 'docker run --entrypoint vllm vllm/vllm-openai:v0.33.0 \
	vllm serve Qwen/Qwen3-8B --max-num-seqs 64' | sed -n 2p)" \
	'vllm-0.33, 8192 tokens and 64 requests, planned ahead'
for name in mistralai/Mistral-7B-Instruct-v0.3:mistral-7b-v0.3 openai/gpt-oss-20b:gpt-oss-20b \
	meta-llama/Meta-Llama-3.1-8B:llama-3.1-8b google/gemma-3-12b-it:gemma-3-12b \
	Qwen/Qwen3-30B-A3B-Instruct-2507:qwen3-30b-a3b; do
	is "the preset of ${name%:*}" "$(took "vllm serve ${name%:*}" | head -n 1)" "${name#*:}"
done
is 'what is not modelled is named' "$(took 'vllm serve Qwen/Qwen3-8B --port 8000 --trust-remote-code \
	--served-model-name a b --enable-auto-tool-choice --tool-call-parser=hermes' | sed -n '/left/p')" \
	'left out --port 8000, --trust-remote-code, --served-model-name a b, '\
'--enable-auto-tool-choice, --tool-call-parser hermes'
is '... scales and backends as well' "$(took 'vllm serve Qwen/Qwen3-8B --kv-scale 1.5 \
	--calculate-kv-scales' | sed -n '/left/p')" 'left out --kv-scale 1.5, --calculate-kv-scales'
is '... and those of SGLang' "$(took 'sglang serve --model-path Qwen/Qwen3-8B --attention-backend \
	flashmla' | sed -n '/left/p')" 'left out --attention-backend flashmla'
experts() { run "$@" >out 2>&1 && sed -n 's/^experts *//p; s/^replicas *//p; s/^left out  of --engine-args: /left out /p' out; }
is 'experts are spread over ranks' "$(experts 'vllm serve Qwen/Qwen3-30B-A3B -tp 4 --enable-expert-parallel')" \
	'on 4 ranks; rows go to them by even'
is '... over engines' "$(experts 'vllm serve Qwen/Qwen3-30B-A3B --data-parallel-size 2 -ep' | tail -n 1)" \
	'on 2 engines, which wait for each other; rows go to them by even'
is '... as SGLang does' "$(experts 'sglang serve --model-path Qwen/Qwen3-30B-A3B --tp 2 --ep-size 2')" \
	'on 2 ranks; rows go to them by even'
is 'stages hold some of the layers' "$("$ATTNREPLAY" run --backend roofline --gpu h100 --trace t.csv \
	--engine-args 'vllm serve Qwen/Qwen3-8B -pp 4' 2>&1 | sed -n 's/^stages *//p')" \
	'4, of 9, 9, 9, 9 layers; as many batches are in flight'
is '... or engines are replicas' "$(experts 'vllm serve Qwen/Qwen3-8B -dp 2 --api-key x' --router least)" \
	'2, router least; each has what is said below, and none waits for another
left out --api-key x'
ok '... whose experts are not cut into slices' refused 'without --enable-expert-parallel the engines of' \
	'vllm serve Qwen/Qwen3-30B-A3B -dp 2'
is '... but spread over the ranks of all' "$(experts 'vllm serve Qwen/Qwen3-30B-A3B -dp 2 -tp 2 -ep')" \
	'2, router vllm with the loads of every 100 ms; each has what is said below
on 4 ranks of 2 engines, which wait for each other; rows go to them by even'
is '... and kernels run one rank of one engine' "$("$ATTNREPLAY" run --backend cpu --model niah-llama-14m \
	--capture "$srcdir/traces/samples/niah-2k.arc" --sample-layers 1 --trace t.csv --engine-args \
	'vllm serve Qwen/Qwen3-8B -dp 2 -ep' 2>&1 | sed -n '/^left/p')" 'left out  of --engine-args: -dp 2, -ep'
ok 'words may be missing' refused 'kv-cache-dtype-skip-layers: its value is missing' \
	'vllm serve Qwen/Qwen3-8B --kv-cache-dtype-skip-layers'
is 'the model may come last' "$(took 'vllm serve --max-num-seqs 7 --trust-remote-code Qwen/Qwen3-8B' |
	head -n 2)" 'qwen3-8b
vllm-0.33, 8192 tokens and 7 requests, planned ahead'
is 'the shell ends the command' "$(took 'nohup /opt/venv/bin/vllm serve Qwen/Qwen3-8B --max-num-seqs 9 \
	> vllm.log 2>&1 &' | sed -n 2p)" 'vllm-0.33, 8192 tokens and 9 requests, planned ahead'
run 'vllm serve Qwen/Qwen3-8B -q fp8 --kv-cache-dtype fp8' --db quant.db >out 2>err
is 'so are number formats' "$("$ATTNREPLAY" sql --format csv quant.db "SELECT value FROM run_param
	WHERE key IN ('quantization', 'kv-cache-dtype') ORDER BY key" | sed 1d | tr '\n' ' ')" 'fp8 fp8_per_tensor '
is '... of layers, too' "$(run 'vllm serve Qwen/Qwen3-8B --kv-cache-dtype fp8
	--kv-cache-dtype-skip-layers 0 35 --max-num-seqs 9' 2>&1 | grep -o 'KV cache.*')" \
	'KV cache kv-bf16+kv-e4m3'
sed 's/"vocab_size"/"quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128}, &/' \
	"$ATTNREPLAY_DATA/model/presets/qwen3-8b.json" >awq.json
weights() { run "$@" 2>&1 | sed -n 's/^model .*, weights //p'; }
is 'weights with a format of their own keep it' "$(weights 'vllm serve awq.json --quantization awq_marlin')" \
	int4-group
is '... also under a name that has another meaning elsewhere' \
	"$(weights 'sglang serve --model-path deepseek-ai/DeepSeek-V3 --tp 16 --quantization fp8')" fp8-block
is '... which it has for weights in bf16' \
	"$(weights 'sglang serve --model-path Qwen/Qwen3-8B --quantization fp8')" fp8-channel
ok '... and another format is refused' \
	refused "engine-args: --quantization gptq: the weights of awq.json are of quant_method 'awq'" \
	'vllm serve awq.json --quantization gptq'
ok '... as is one that is not known' refused "quantization 'awq' is not known" \
	'vllm serve Qwen/Qwen3-8B --quantization awq'
run 'vllm serve Qwen/Qwen3-8B --max-model-len 32K' --db len.db >out 2>err
run 'vllm serve Qwen/Qwen3-8B --max-model-len 32k' --db len.db >out 2>err
run 'vllm serve Qwen/Qwen3-8B --max-model-len 25.6k' --db len.db >out 2>err
run 'vllm serve Qwen/Qwen3-8B --max-model-len auto' --db len.db >out 2>err
is 'lengths are read as vLLM reads them' "$("$ATTNREPLAY" sql --format csv len.db "SELECT value FROM
	run_param WHERE key = 'max-model-len' ORDER BY run_id" | sed 1d | tr '\n' ' ')" '32768 32000 25600 0 '

# ---- SGLang ----

is 'a command of SGLang' "$(took 'python -m sglang.launch_server --model-path Qwen/Qwen3-8B --tp 2 \
	--chunked-prefill-size 4096 --max-running-requests 100 --page-size 16 --disable-radix-cache \
	--disable-overlap-schedule --mem-fraction-static 0.8 --host 0.0.0.0' |
	sed 's/--mem-fraction-static 0.8, //')" \
	"qwen3-8b tp 2
$("$ATTNREPLAY" run --backend cost --trace t.csv --policy sglang | sed -n 's/^policy    \([^,]*\),.*/\1/p'), \
4096 tokens and 100 requests
left out --host 0.0.0.0
blocks 16"
is '... in a container of its own' "$(took 'docker run --gpus all --shm-size 32g lmsysorg/sglang:latest \
	python3 -m sglang.launch_server --model-path Qwen/Qwen3-8B --max-running-requests 64' |
	sed -n '2s/.*tokens and //p')" '64 requests, planned ahead'
ok '... with mixed chunks' sh -c 'case $1 in *sglang-mixed-*) ;; *) false; esac' sh \
	"$(took 'sglang serve --model-path Qwen/Qwen3-8B --enable-mixed-chunk')"
ok '... without chunks, which is left out' grep -q 'left out  of --engine-args: --chunked-prefill-size -1' - <<EOT
$(run 'python -m sglang.launch_server --model-path Qwen/Qwen3-8B --chunked-prefill-size -1' 2>err)
EOT

# ---- beside our own options ----

is 'options that are typed win' "$(took 'vllm serve Qwen/Qwen3-8B --max-num-seqs 64 -tp 2' \
	--max-num-seqs 8 --model llama-3.1-8b --policy vllm-0.19)" \
	'llama-3.1-8b tp 2
vllm-0.19, 8192 tokens and 8 requests, planned ahead
blocks 16, prefix cache'
printf '%s\n' 'trace = t.csv' 'backend = roofline' 'max-num-seqs = 5' \
	'engine-args = vllm serve Qwen/Qwen3-8B --max-num-seqs 64' >job
"$ATTNREPLAY" run --job job >out 2>err
ok 'so do those of a job file' grep -q ' and 5 requests an iteration' out
ok 'flags without an effect here are no fault' "$ATTNREPLAY" run --backend cost --trace t.csv \
	--engine-args 'vllm serve Qwen/Qwen3-8B -tp 2 --max-num-seqs 4'
key() { "$ATTNREPLAY" run --backend roofline --trace t.csv --db "$@" >/dev/null 2>&1 &&
	"$ATTNREPLAY" sql --format csv "$1" 'SELECT run_key FROM run' | sed 1d; }
is 'a run has the key of its values' "$(key a.db --engine-args 'vllm serve Qwen/Qwen3-8B --max-num-seqs 64')" \
	"$(key b.db --model qwen3-8b --max-num-seqs 64)"

# ---- refusals ----

ok 'another program is refused' refused "engine-args: 'docker': want a command line of" 'docker run x'
ok '... and none' refused "engine-args: '': want a command line of" ' '
ok '... and another command' refused "engine-args: 'vllm': want" 'vllm bench serve'
ok 'a model without a preset is refused' refused 'foo/bar: no file of this name, and no preset' \
	'vllm serve foo/bar'
ok '... and one in another format' refused 'Qwen3-8B-FP8: no file' 'vllm serve Qwen/Qwen3-8B-FP8'
ok '... but not if it is named' run 'vllm serve foo/bar' --model llama-3.1-8b
ok 'a second model is refused' refused "'b': the model is 'Qwen/Qwen3-8B' already" \
	'vllm serve Qwen/Qwen3-8B b'
ok 'a malformed number is refused' refused "engine-args: --max-num-seqs '1k': want an integer" \
	'vllm serve Qwen/Qwen3-8B --max-num-seqs 1k'
ok '... and a length' refused "engine-args: --max-model-len '32q': want an integer, such as" \
	'vllm serve Qwen/Qwen3-8B --max-model-len 32q'
ok 'a value out of range is refused' refused 'engine-args: --max-num-seqs: max-num-seqs .0.: want' \
	'vllm serve Qwen/Qwen3-8B --max-num-seqs 0'
ok 'a value that is missing is refused' refused 'engine-args: -tp: its value is missing' \
	'vllm serve Qwen/Qwen3-8B -tp'
ok 'a flag with a value is refused' refused 'engine-args: --async-scheduling=1: the flag takes no value' \
	'vllm serve Qwen/Qwen3-8B --async-scheduling=1'
ok 'a quote without an end is refused' refused 'engine-args: .Qwen: a quote without its end' \
	"vllm serve 'Qwen"
ok 'limits that the engine refuses are refused' refused 'some running requests would get no token' \
	'vllm serve Qwen/Qwen3-8B --max-num-seqs 64 --max-num-batched-tokens 32'
finish
