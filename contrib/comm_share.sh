#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/comm_share.sh [RUN_OPTION...], for example contrib/comm_share.sh --comm h200-nccl
#
# Print how much of an iteration collectives take, by model and tensor-parallel size, for README: of
# decodes of 8 and of 64 rows behind 2,048 tokens, and of prompts of 8,192 tokens.  A GPU is modelled
# (--gpu, h200); --comm says what the collectives are of.  It needs no GPU and takes some seconds.
# MODELS names the models.
set -u
. "$(dirname "$0")/common.sh"
tmp=$(mktemp -d) || exit 1
trap 'rm -rf "$tmp"' EXIT

trace() { # trace REQUESTS PROMPT OUTPUT: requests that arrive together
	echo 'TIMESTAMP,ContextTokens,GeneratedTokens'
	i=0
	while [ $i -lt "$1" ]; do echo "2026-01-01 00:00:00,$2,$3"; i=$((i + 1)); done
}
trace 8 2048 65 >"$tmp/8.csv"
trace 64 2048 65 >"$tmp/64.csv"

# share TRACE WHICH MODEL TP OPTION...: milliseconds of an iteration, and the percentage of collectives
share() {
	trace=$1 which=$2 model=$3 tp=$4
	shift 4
	rm -f "$tmp/db"
	attnreplay -q run --backend roofline --trace "$tmp/$trace.csv" --model "$model" --tp "$tp" \
		--policy vllm-0.33 --max-num-batched-tokens 8192 --host none --intervals off \
		--num-gpu-blocks 20000 --db "$tmp/db" "$@" >"$tmp/out" 2>"$tmp/err" ||
		{ cat "$tmp/err" >&2; exit 1; }
	attnreplay sql --format csv "$tmp/db" "SELECT printf('%.2f ms, %.0f %%',
		avg(end_ns - start_ns) / 1e6, 100.0 * sum(gpu_ns) / sum(end_ns - start_ns))
		FROM iteration JOIN iteration_phase USING(run_id, iter_no) JOIN phase USING(phase_id)
		WHERE name = 'comm' AND $which" | tail -n 1 | tr -d '"'
}

echo '| model | ranks | 8 decodes | 64 decodes | prompts of 8,192 tokens | collectives |'
echo '|---|---|---|---|---|---|'
for model in ${MODELS-llama-3.1-8b llama-3.1-70b qwen3-30b-a3b}; do
	for tp in 2 4 8; do
		few=$(share 8 'prefill_tokens = 0' $model $tp "$@") || exit 1
		many=$(share 64 'prefill_tokens = 0 AND decode_tokens = 64' $model $tp "$@") || exit 1
		prompt=$(share 64 'prefill_tokens = 8192' $model $tp "$@") || exit 1
		echo "| $model | $tp | $few | $many | $prompt | $(sed -n 's/^comm *//p' "$tmp/out") |"
	done
done
