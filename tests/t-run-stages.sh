#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --pp: pipeline stages.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

trace=$srcdir/traces/samples/azure-2023-code-200.csv
run() { "$ATTNREPLAY" -q run --trace "$trace" --requests 20 --max-output-tokens 8 --backend roofline \
	--gpu h100 --model llama-3.1-8b --host none "$@"; }
header() { sed -n "s/^$1 *//p"; }
ttft() { sed -n 's/^TTFT *[0-9]* *//p' | cut -d ' ' -f 1; }
query() { "$ATTNREPLAY" sql --format csv "$1" "$(printf %s "$2" | tr '\n' ' ')" | tail -n +2; }
rows() { for t in iteration request_outcome request_span token_gap; do query "$1" "SELECT * FROM $t"; done; }
longer() { awk "BEGIN { exit !($1 > $2) }"; }
refused() { pattern=$1; shift; fails 2 "$pattern" run "$@"; }

run --db none.db --intervals off >none
run --pp 1 --db one.db --intervals off >one
rows none.db >a.csv
rows one.db >b.csv
ok 'one stage is as without the option, to the byte' cmp -s a.csv b.csv
run --pp 3 --db three.db --intervals off >three
is 'layers are split as vLLM does' "$(header stages <three)" \
	'3, of 11, 11, 10 layers; as many batches are in flight'
is '... which send over the link' "$(header comm <three)" \
	'between stages over NVLink 4, 450 GB/s a way: modelled, not measured'
ok '... and make no plan ahead' sh -c '! grep -q "planned ahead" three'
is '... and serve all' "$(query three.db "SELECT count(*) FROM request_outcome WHERE outcome = 'ok'")" 20
run --pp 3 --max-num-batched-tokens 512 --max-num-seqs 256 --db chunks.db --intervals off >out
is '... three batches at most at a time' "$(query chunks.db 'SELECT max((SELECT count(*) FROM iteration b
	WHERE b.start_ns <= a.start_ns AND b.end_ns > a.start_ns)) FROM iteration a')" 3
is '... which end in their order' "$(query chunks.db 'SELECT count(*) FROM iteration a JOIN iteration b
	ON b.iter_no = a.iter_no + 1 WHERE b.end_ns < a.end_ns OR b.start_ns < a.start_ns')" 0
ok '... with more room for KV' longer "$(sed -n 's/^memory.*: \([0-9]*\) blocks.*/\1/p' three)" \
	"$(sed -n 's/^memory.*: \([0-9]*\) blocks.*/\1/p' none)"
run --pp 3 --pp-layers 10,12,10 >list
is 'a list says the layers' "$(header stages <list)" \
	'3, of 10, 12, 10 layers; as many batches are in flight'
run --pp 3 --comm none >out
is 'sending is left out' "$(header comm <out)" 'none: stages send in no time'
ok '... which takes less time' longer "$(ttft <three)" "$(ttft <out)"
{
	echo '# attnreplay collectives 1'
	echo collective type ranks hosts mode bytes n p10_ns p50_ns p90_ns kernel
	echo sendrecv bf16 2 1 inline 1000000 9 1 900000 900000 -
} >table
run --pp 3 --comm table >out
is '... or of a table' "$(header comm <out)" 'between stages, measured: table'
ok '... whose times count' longer "$(ttft <out)" "$(ttft <three)"
run --pp 2 --tp 2 >both
is 'stages of several ranks' "$(header comm <both)" \
	'a ring of 2 ranks over NVLink 4, 450 GB/s a way: modelled, not measured'
run --pp 2 --replicas 2 >two
is '... and of several engines' "$(header stages <two)" \
	'2, of 16, 16 layers; as many batches are in flight'

ok 'a list must fit' refused "pp-layers '11,11,11': want the layers of each of 3 stages, 32 in all" \
	--pp 3 --pp-layers 11,11,11
ok '... and needs stages' refused 'pp-layers has no effect without --pp above 1' --pp-layers 16,16
ok 'each stage has a layer' refused 'pp 33: llama-3.1-8b has 32 layers' --pp 33
ok 'other engines have none' refused 'pp 2: only policies of vLLM have stages here' --pp 2 --policy sglang
ok 'plans are not made ahead' refused 'pp 2: with stages no plan is made ahead' --pp 2 --async-scheduling
ok 'prefill is not apart' refused 'pp 2: it goes neither with --prefill-replicas' --pp 2 \
	--prefill-replicas 1 --decode-replicas 1
ok 'an evictor is refused' refused 'pp 2: no evictor goes with stages' --pp 2 \
	--method dense/evict=snapkv,budget=128 --no-enable-prefix-caching
ok 'layers of several kinds are refused' refused 'pp 2: the model has layers of several kinds' --pp 2 \
	--model gemma-3-12b
ok 'kernels run all layers' fails 2 'pp 2: kernels run all layers on one GPU' "$ATTNREPLAY" run \
	--trace "$trace" --backend cpu --model llama-3.1-8b --pp 2
finish
