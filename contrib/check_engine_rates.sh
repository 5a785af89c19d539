#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/check_engine_rates.sh STEPS.csv
#
# Compare backend roofline, with an engine's rates, with the times of single steps: one prompt, or
# one decode of each of some requests.  STEPS.csv is what 'engine_rates.py steps' prints.  Prints
# the mean error of each GPU and model, and of each GPU, in percent.
#
#   ATTNREPLAY  the program (default: see contrib/program)
set -eu
. "$(dirname "$0")/common.sh"
[ $# -eq 1 ] || wrong_usage
steps=$1
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

field() { tail -n +2 "$steps" | cut -d, -f"$1" | sort -u; }

# Requests of a step arrive together, long after those of the step before.
awk -F, 'NR > 1 && !($3 "," $4 in seen) {
	seen[$3 "," $4]
	t += 100
	for (i = 0; i < ($4 ? $4 : 1); i++)
		printf "%d,%d,%d\n", t, $4 ? $5 : $3, $4 ? 3 : 1
}' "$steps" | sed '1i t,p,o' >"$tmp/trace.csv"
for gpu in $(field 1); do
	for model in $(field 2); do
		attnreplay -q run --trace "$tmp/trace.csv" \
			--columns arrival=t,prompt=p,output=o \
			--backend roofline --gpu "$gpu" --model "$model" --host none \
			--max-num-batched-tokens 200000 --max-num-seqs 64 --num-gpu-blocks 100000 \
			--no-async-scheduling --no-enable-prefix-caching --db "$tmp/db" >"$tmp/out"
		attnreplay sql --format csv "$tmp/db" "SELECT '$gpu' AS gpu, '$model' AS model,
			prefill_tokens, iif(prefill_tokens, 0, decode_tokens) AS decodes,
			(end_ns - start_ns) / 1e6 AS ms FROM iteration
			WHERE prefill_tokens = 0 OR decode_tokens = 0 ORDER BY iter_no" |
			tail -n +2 | tr -d '"' >>"$tmp/ours"
		rm "$tmp/db"
	done
done
awk -F, '
	FNR == NR { key = $1 "," $2 "," $3 "," $4; if (!(key in ours)) ours[key] = $5; next }
	FNR > 1 {
		key = $1 "," $2 "," $3 "," $4
		if (!(key in ours)) { print key ": no such step" >"/dev/stderr"; bad = 1; next }
		error = 100 * (ours[key] / $6 - 1)
		if (error < 0) error = -error
		if (!($1 in n)) gpu[++n_gpu] = $1
		if (!($2 in known)) model[++n_model] = $2
		known[$2]; n[$1]++; sum[$1] += error; n[$1, $2]++; sum[$1, $2] += error
	}
	END {
		for (i = 1; i <= n_gpu; i++) {
			for (j = 1; j <= n_model; j++)
				printf "%s %s %.1f\n", gpu[i], model[j], sum[gpu[i], model[j]] / n[gpu[i], model[j]]
			printf "%s all %.1f\n", gpu[i], sum[gpu[i]] / n[gpu[i]]
		}
		exit bad
	}' "$tmp/ours" "$steps"
