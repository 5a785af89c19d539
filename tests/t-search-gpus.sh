#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay search gpus: numbers that are known by hand, and what it refuses.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

search() { "$ATTNREPLAY" search gpus --intervals off "$@"; }
points() { awk '/yes$|no$|fails$/ { print $1, $2, $3, $NF }' "$1"; } # GPUs TP REPLICAS KEPT
refused() { pattern=$1; shift; fails 2 "$pattern" search $limit "$@"; }

# A request every ms, which takes 10 ms alone: ten engines serve each at once, in turn.
{
	echo arrived_at,num_prefill_tokens,num_decode_tokens
	awk 'BEGIN { for (i = 0; i < 60; i++) printf "0.%03d,40,1\n", i }'
} >t.csv
limit='--slo ttft:p99:10ms'
flat="$plain --trace t.csv --backend cost --cost-fixed 10ms --cost-per-token 0 --max-num-seqs 1"
turn="$flat --router round-robin"
# shellcheck disable=SC2086
search $limit $turn --intervals on --intervals-time 1h --json out.json >out
is 'the fewest engines are found' "$(grep keep out)" \
	'cost: 10 GPUs keep the limits, as 10 replicas of TP 1; fewer do not'
is '... by doubling, then halving' "$(points out)" '1 1 1 no
2 1 2 no
4 1 4 no
8 1 8 no
9 1 9 no
10 1 10 yes
12 1 12 yes
16 1 16 yes'
is '... as JSON, too' "$(grep -o '"best":[0-9]*' out.json; grep -o '"gpus":16,"tp":1,.*"kept":true' out.json |
	cut -d, -f 1-5)" '"best":10
"gpus":16,"tp":1,"prefill_replicas":0,"decode_replicas":0,"kept":true'
is '... of which all resamples take as many, as they arrive alike' "$(grep interval out)" \
	'interval of 95 %: 10 to 10 GPUs, by 40 resamples of 60 requests in blocks of 1'
is '... as JSON, too' "$(grep -o '"share":1,.*"best_hi":10' out.json)" \
	'"share":1,"share_lo":null,"share_hi":null,"best_lo":10,"best_hi":10'
# shellcheck disable=SC2086
search $limit $turn >out
is '... and which can be left out' "$(grep -c interval out)" 0
# shellcheck disable=SC2086
search $limit $turn --highest 9 >out
is 'no number may be enough' "$(grep keep out)" \
	'cost: up to 9 GPUs none keep the limits; raise --highest, or the limits'
is '... which the last one tried shows' "$(points out | tail -n 1)" '9 1 9 no'
# A prompt that no pool holds: the engine serves others, but that is not the trace.
# shellcheck disable=SC2086
{ cat t.csv; echo 0.061,60,1; } >long.csv
# shellcheck disable=SC2086
search $limit $turn --trace long.csv --num-gpu-blocks 4 --highest 16 >out 2>err
is 'an engine that rejects a request keeps nothing' "$(points out | tail -n 1)" '16 1 16 no'
# shellcheck disable=SC2086
search $limit $turn --trace long.csv --max-model-len 50 >out 2>err
is '... unless it is too long for the model' "$(points out | tail -n 1)" '16 1 16 yes'

# Measured costs are those of their tensor parallel size.
"$ATTNREPLAY" -q run $plain --trace t.csv --requests 6 --backend cpu --model niah-llama-14m --tp 2 --capture random:1 \
	--attention-only --sample-layers 1 --db costs.db --intervals off >out 2>&1 || cat out
# shellcheck disable=SC2086
search --slo ttft:p99:10s --trace t.csv $plain --backend cost --costs costs.db:1 --costs-extrapolate >out
is 'measured costs have their size' "$(points out)" '2 2 1 yes'

# Two methods and three sizes of a modelled GPU.
roof="--trace $srcdir/traces/samples/azure-2023-code-200.csv --backend roofline --model llama-3.1-70b"
limit='--slo ttft:p90:1s,tpot:p90:40ms'
# shellcheck disable=SC2086
search $limit $roof --tps 1,2,4 --rate 6 --method dense,flashprefill --density flashprefill=0.2 \
	--db points.db >out 2>err
ok 'a size that has too little memory is left out' grep -q 'warning: tp 1 is left out: .*GB' err
is 'points are of the other sizes' "$(points out | awk '{ print $2 }' | sort -u | tr '\n' ' ')" '2 4 '
ok 'each has as many GPUs as its replicas' sh -c \
	'! awk "/yes\$|no\$/ && \$1 != \$2 * \$3" out | grep .'
best() { awk -v m="$1" '$NF == m && /%/ { print $1 }' out; }
ok 'the line of a method has its fewest GPUs' test "$(best dense)" = \
	"$(awk '/^dense$/, /^$/' out | awk '/yes$/ { print $1 }' | sort -n | head -n 1)"
ok '... of which a sparse one takes no more' test "$(best flashprefill)" -le "$(best dense)"
is 'points are stored with their options' "$("$ATTNREPLAY" sql --format csv points.db "SELECT count(*)
	FROM run_param WHERE key = 'replicas' AND value > 0" | tail -n 1)" "$(points out | wc -l)"

# Prompts are long, and an engine that serves both makes decodes wait for them.
apart="--trace $srcdir/traces/samples/azure-2023-code-200.csv --backend roofline --gpu h100 --host none"
apart="$apart --model llama-3.1-8b --rate 3 --slo ttft:p90:1s,tpot:p90:12ms"
# shellcheck disable=SC2086
search $apart --method dense,flashprefill --density flashprefill=0.2 --json out.json >together
# shellcheck disable=SC2086
search $apart --method dense,flashprefill --density flashprefill=0.2 --json apart.json --apart \
	--kv-link pcie5 --db apart.db >out 2>err
is 'prefill apart can take fewer GPUs' \
	"$(grep -o '"best":[0-9]*' apart.json out.json | cut -d: -f 3 | tr '\n' ' ')" '3 3 6 6 '
is '... as the verdict says' "$(grep '^dense:' out)" 'dense: 3 GPUs keep the limits, '\
'as 2 replicas for prefill and 1 for decodes, each of TP 1; fewer do not'
is '... and the last lines' "$(awk '/^ *3 .*%/ { print $1, $2, $3, $NF }' out)" '3 1 2+1 dense
3 1 2+1 flashprefill'
is '... which begin with those of the method before' "$(awk '/^flashprefill$/, /^$/' out | points /dev/stdin)" \
	'2 1 2 no
2 2 1 no
2 1 1+1 no
3 1 2+1 yes'
ok '... in each number of GPUs' sh -c 'awk "/yes\$|no\$/" out | sed "s/+/ /" |
	awk "NF > 7 && \$1 != \$2 * (\$3 + \$4)" | grep . && exit 1; exit 0'
is '... as JSON, too' "$(grep -o '"gpus":3,"tp":1,"prefill_replicas":2,"decode_replicas":1,"kept":true' apart.json |
	wc -l)" 2
is '... and with their options' "$("$ATTNREPLAY" sql --format csv apart.db "SELECT count(*) FROM run_param
	WHERE key = 'prefill-replicas' AND value > 0" | tail -n 1)" "$(points out | grep -c +)"
# shellcheck disable=SC2086
search $apart --method dense,flashprefill --density flashprefill=0.2 --requests 40 --tps 1 --intervals on \
	--intervals-time 1h >out 2>err
ok 'shares of GPUs have intervals' grep -q '^ *4 *1 *4  \[2, 5\] *100%  \[[0-9.]*, [0-9.]*\] *flashprefill$' out

# An engine's command line brings a size and a first number of replicas.
# shellcheck disable=SC2086
search --slo ttft:p90:1s,tpot:p90:40ms $roof --rate 3 --gpu h100 --host none \
	--engine-args 'vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4 --data-parallel-size 2' >out
is 'the size of an engine is that of all points' "$(points out | awk '{ print $2 }' | sort -u)" 4
is '... of which the first have its replicas' "$(points out | awk '{ print $3 }' | head -n 2 | tr '\n' ' ')" '2 3 '
search --slo ttft:p90:700ms,tpot:p90:100ms --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --rate 40 \
	--backend roofline --gpu h200 --host none \
	--engine-args 'vllm serve Qwen/Qwen3-30B-A3B -tp 2 --enable-expert-parallel' >out 2>err
is 'experts are spread over all ranks' "$(points out | awk '{ print $3 }' | tr '\n' ' ')" '1 2 4 '
ok '... of which there are as many as divide them' grep -q \
	'warning: gpus 6: cannot spread model .* over 6 ranks: .*; it is left out' err
experts() { # experts ENGINE_FLAGS OPTION...: a search for spread experts
	flags=$1
	shift
	search --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --backend roofline --gpu h200 --host none \
		--engine-args "vllm serve Qwen/Qwen3-30B-A3B $flags --enable-expert-parallel" "$@"
}
spread='--slo ttft:p90:700ms,tpot:p90:100ms'
# shellcheck disable=SC2086
{
	experts '-tp 2 -dp 4' $spread --rate 3 --tps 2 >out 2>err
	is '... and others are no bound' "$(grep keep out)" \
		'dense: 2 GPUs keep the limits, as 1 replica of TP 2; fewer do not'
	experts '' $spread --rate 40 --tps 1,2 >out 2>err
	is '... also where they are tried first' "$(grep keep out)" \
		'dense: 8 GPUs keep the limits, as 8 replicas of TP 1; fewer do not'
	ok '... of a size that has fewer' sh -c 'awk "/no\$/ { print \$2, \$3 }" out | grep -q "^2 2\$"'
	ok '... which is not left out' sh -c '! grep "tp 2 is left out" err'
	experts '-dp 2' --slo ttft:p90:5s --rate 1 --tps 1,2 >out 2>err
	is 'one engine has no data-parallel ranks' "$(grep keep out)" \
		'dense: 1 GPU keeps the limits, as 1 replica of TP 1; fewer do not'
}
# shellcheck disable=SC2086
search --slo ttft:p90:1s $roof --rate 3 --gpu h100 --host none --tps 8 \
	--engine-args 'vllm serve meta-llama/Llama-3.1-70B --tensor-parallel-size 4' >out
is '... unless --tps has others' "$(points out | awk '{ print $2 }' | sort -u)" 8

# shellcheck disable=SC2086
{
	ok 'sizes are numbers' refused "tps '2,x': want up to 16 ascending numbers from 1 to 1024" $roof --tps 2,x
	ok '... that ascend' refused "tps '4,2': want" $roof --tps 4,2
	ok '... of a roofline' refused 'tps has no effect without --backend roofline' $flat --tps 2
	ok '... and are not given by --tp' refused 'the search sets tp; leave it out' $roof --tp 2
	ok 'replicas are what is searched' refused 'the search sets replicas; leave it out' $flat --replicas 2
	ok 'the search begins low' refused 'lowest has no effect on numbers of GPUs' $flat --lowest 2
	ok '... and ends at a number' refused 'highest 2.5: want a whole number of GPUs, at most 1024' $flat \
		--highest 2.5
	ok 'there is no precision' refused 'precision has no effect on numbers of GPUs' $flat --precision 0.1
	ok 'replicas apart are searched, too' refused 'the search sets decode-replicas; give --apart' $flat \
		--decode-replicas 2
	ok '... whose KV needs a model' refused 'apart has no effect without a model, whose KV travels' $flat --apart
	ok 'a model that fits no size is an error' refused 'GB' $roof --tps 1
	limit='--slo ttft:10ms'
	ok 'limits have percentiles' refused 'slo limits ttft of each request; name a percentile' $flat
}
finish
