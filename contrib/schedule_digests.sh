#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/schedule_digests.sh
#
# Print a digest of the schedule of each policy under options that its rules depend on: a line has
# the trace, the policy, the options and the digest, or why they were refused.  A change that is to
# keep all schedules leaves each line as it was; compare with diff.  The traces are synthetic:
# single requests, sessions of agents, and prompts with common prefixes.  It takes some minutes.
#
#   ATTNREPLAY    the program (default: see contrib/program)
set -eu
. "$(dirname "$0")/common.sh"
[ $# -eq 0 ] || wrong_usage
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

attnreplay -q trace synth --count 150 --lengths lognormal --trace-seed 3 -o "$tmp/single"
attnreplay -q trace synth --sessions 3 --trace-seed 4 -o "$tmp/agents"
awk 'BEGIN { # half of a prompt is one of three prefixes
	srand(5)
	for (i = 0; i < 150; i++) {
		n = 2 + int(60 * rand()) ^ 1.2
		common = int(n / 2)
		prefix = int(3 * rand())
		printf "{\"timestamp\": %d, \"input_length\": %d, \"output_length\": %d, \"hash_ids\": [",
			i * 40, 16 * n - int(16 * rand()), 1 + int(80 * rand())
		for (k = 0; k < n; k++)
			printf "%s%d", k ? ", " : "", k < common ? 1000 * prefix + k : 10000 + 1000 * i + k
		print "]}"
	}
}' >"$tmp/common"

digest() { # digest NAME OPTION...
	name=$1
	shift
	rm -f "$tmp"/db*
	if attnreplay -q run --backend roofline --gpu h100 --block-size 16 --host none \
		--clock formula --cost-fixed 2ms --cost-per-token 20us --intervals off --rate 60 \
		--db "$tmp/db" "$@" >/dev/null 2>"$tmp/err"; then
		for query in 'iter_no, req_no, chunk_no, start, n_tokens, decode, emit, recompute
			FROM iteration_request ORDER BY iter_no, req_no' \
			'req_no, outcome, reason, first_sched_ns, first_token_ns, finish_ns,
			output_tokens, n_chunks, n_preempt, recomputed_tokens
			FROM request_outcome ORDER BY req_no'; do
			attnreplay sql --format csv "$tmp/db" "SELECT $query"
		done >"$tmp/rows"
		answer=$(cksum <"$tmp/rows")
	else
		answer="refused, $(sed -n "s|$tmp/||g; s/^attnreplay: //p" "$tmp/err" | head -1)"
	fi
	echo "$name: $answer"
}

policies=$(attnreplay run --help | tr -s ' \n' ' ' |
	sed 's/.*--policy NAME[^[]*\[one of \([^;]*\);.*/\1/; s/,//g')
snapkv=dense/evict=snapkv,budget=64,window=8 streaming=dense/evict=streaming,sink=4,recent=60
for trace in single agents common; do
	case $trace in
	single) from="--max-model-len 16000" small="--num-gpu-blocks 3000" ;;
	agents) from="--max-model-len 131072" small="--num-gpu-blocks 9000" ;;
	common) from="--format mooncake --hash-block 16" small="--num-gpu-blocks 300" ;;
	esac
	for policy in $policies; do
		# shellcheck disable=SC2086 # lists of options
		digest "$trace $policy gpt-oss-20b" --trace "$tmp/$trace" $from --policy "$policy" \
			--model gpt-oss-20b $small
		while read -r options; do
			# shellcheck disable=SC2086 # lists of options
			digest "$trace $policy $options" --trace "$tmp/$trace" $from --policy "$policy" \
				--model llama-3.1-8b $options
		done <<-EOT
			--num-gpu-blocks 30000
			$small
			$small --no-enable-prefix-caching
			$small --no-async-scheduling
			$small --scheduling-policy priority
			$small --method $snapkv
			$small --method $snapkv --evict-cache keep
			$small --method $streaming
			$small --method $streaming --evict-cache keep
			$small --method $streaming --evict-cache drop
		EOT
	done
done
