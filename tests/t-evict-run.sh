#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with an evictor: what it stores, refuses and schedules.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,100,6' \
	'2023-11-16 18:00:01,20,3' >t.csv
run() {
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m \
		--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --accuracy 1 --db r.db "$@" >out
}
query() { "$ATTNREPLAY" sql --format csv r.db "$1" | tail -n +2; }

for async in async-scheduling no-async-scheduling; do
	ok "methods with and without an evictor run, $async" \
		run --$async --method dense,dense/evict=snapkv,budget=40,window=8,dense/evict=h2o,heavy=9,recent=9
done
is 'the method is not dense' "$(query 'SELECT is_dense FROM method ORDER BY method_id LIMIT 3')" '1
0
0'
is '... and has its parameters' "$(query "SELECT json_extract(params, '$.evict') FROM method
	WHERE name LIKE '%h2o%'" | tr -d '"')" '{heavy:9,name:h2o,norm:false,recent:9}'
is 'events have a phase' "$(query "SELECT run_id, sum(gpu_ns) > 0 FROM iteration_phase
	JOIN phase USING(phase_id) WHERE phase.name = 'evict' GROUP BY run_id")" '2,1
3,1
5,1
6,1'
is 'decodes of a dense method are not compared, and a chunk behind which tokens leave is not' \
	"$(query "SELECT run_id, half, count(DISTINCT req_no), max(rel_l2) > 0 FROM accuracy_sample
		WHERE run_id < 4 GROUP BY run_id, half")" '1,prefill,2,0
2,decode,2,1
2,prefill,1,0
3,decode,2,1'
is 'what has left counts as not read' "$(query "SELECT min(exec_total) / 4, max(exec_total) / 4,
	max(exec_sel) / 4 FROM selection_stat WHERE run_id = 3 AND half = 'decode' AND req_no = 0")" \
	101,105,19
share=$(query "SELECT printf('%.4f', sum(exec_sel) * 1.0 / sum(exec_total)) FROM selection_stat
	WHERE run_id = 3 AND half = 'decode'" | tr -d '"')
is '... in the report, too' "$("$ATTNREPLAY" report --table density r.db | awk '/h2o.* decode / { x = $NF }
	END { print x }')" "$share"
ok '... and in the first table' eval \
	'"$ATTNREPLAY" report --table faster r.db | grep "h2o" | head -n 1 | grep -q " $share "'

model() { # model METHOD [OPTION...]: on a modelled GPU
	method=$1
	shift
	"$ATTNREPLAY" run --backend roofline --model llama-3.1-8b --trace t.csv --method "$method" "$@"
}
refuse() { # refuse DESCRIPTION MESSAGE METHOD [OPTION...]
	what=$1 message=$2
	shift 2
	model "$@" >out 2>&1
	is "$what" "$(tail -n 1 out)" "attnreplay: $message"
}
refuse 'requests that share blocks are refused' "method 'dense/evict=h2o': its evictor takes tokens "\
"out of the blocks that requests share; say by --evict-cache whether it shall keep what is cached or "\
"drop it, or leave out --enable-prefix-caching" dense/evict=h2o --enable-prefix-caching
refuse '... and dropped blocks of a radix tree' "evict-cache=drop: the prefix cache of policy sglang-0.5.23 "\
"is a tree, from which no request takes blocks; take keep" dense/evict=h2o --policy sglang-0.5.23 \
	--enable-prefix-caching --evict-cache drop
refuse '... and what becomes of a cache where nothing is evicted' "evict-cache has no effect without an "\
"evictor; give a method one, as in --evict streaming, or leave it out" dense \
	--enable-prefix-caching --evict-cache keep
"$ATTNREPLAY" run --backend cost --trace t.csv --enable-prefix-caching --evict-cache keep >out 2>&1
is '... with backend cost, too' "$(tail -n 1 out | cut -d';' -f1)" \
	'attnreplay: evict-cache has no effect without an evictor'
ok '... but with one evictor of two methods' model dense,dense/evict=streaming --enable-prefix-caching \
	--evict-cache keep
refuse 'so are plans of layers' "method '0-1:dense;2-:dense/evict=h2o': a plan of layers has no "\
"evict part, as all layers store the same tokens; give one method for all layers" \
	'0-1:dense;2-:dense/evict=h2o'
refuse '... and droppers' "method 'dense/evict=h2o+lazyllm': a dropper and an evict part do not go "\
"together; leave one out" dense/evict=h2o+lazyllm
"$ATTNREPLAY" run --backend roofline --model gemma-3-12b --trace t.csv --method dense/evict=h2o >out 2>&1
is '... and models with windows' "$(tail -n 1 out)" "attnreplay: evictor 'h2o': layer 0 of model "\
"'gemma-3-12b' is not of full attention; take a model whose layers all are"
model dense/evict=h2o --kv-cache-dtype fp8 >out 2>&1
is '... and KV caches in other formats' "$(tail -n 1 out)" "attnreplay: evictor 'h2o': layer 0 of "\
"model 'llama-3.1-8b' has a KV cache in another format than bf16; leave out --kv-cache-dtype"
model dense/evict=h2o >out
ok 'without a word of the user there is no prefix cache' \
	grep -q "no prefix cache ('dense/evict=h2o' evicts tokens)" out

# Two prompts of 24 and 16 tokens in ten blocks of four: budget 8 leaves two blocks of each.
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,24,8' \
	'2023-11-16 18:00:00,16,8' >two.csv
small='--trace two.csv --policy vllm-0.16 --engine-defaults none --max-num-batched-tokens 16
	--block-size 4 --num-gpu-blocks 11'
model dense,dense/evict=snapkv,budget=8,window=4 $small --db s.db >out
is 'a schedule on a modelled GPU has events' "$("$ATTNREPLAY" sql --format csv s.db \
	'SELECT run_id, count(*), sum(preempted) FROM iteration GROUP BY run_id' | tail -n +2)" '1,17,1
2,10,0'

# Three prompts with the first 512 tokens in common.  The second one begins in the iteration that ends
# the first one, so it finds blocks before they are dropped.
printf '{"timestamp": %s, "input_length": %s, "output_length": %s, "hash_ids": [1, %s]}\n' \
	0 650 4 2 20 570 6 3 300 600 5 2 >same.jsonl
shared() { # shared FILE EVICTOR OPTION...: the samples of a run
	file=$1 evictor=$2
	shift 2
	run --sample-layers 2 --clock formula --cost-fixed 50ms --trace same.jsonl --format mooncake \
		--method "dense/evict=$evictor/decode=rocket,budget=64" --accuracy 0 --accuracy-decode 1 \
		--max-num-batched-tokens 300 --enable-prefix-caching --num-gpu-blocks "$@"
	query 'SELECT req_no, chunk_no, layer, head, rel_l2 FROM accuracy_sample
		WHERE run_id = (SELECT max(run_id) FROM run) ORDER BY 1, 2, 3, 4' >$file
}
while read -r evictor how; do
	shared pages $evictor $how
	ok "$evictor, $how: tokens are found" grep -q '^[1-9][0-9]* tokens found' out
	shared private $evictor $how --no-share-kv
	ok '... and shared pages give the bits of private ones' \
		eval 'test $(wc -l <pages) -gt 30 && cmp pages private'
done <<-'EOF'
	snapkv,budget=200,window=8 99 --block-size 16 --policy vllm-0.16 --evict-cache keep
	h2o,heavy=90,recent=90 99 --block-size 16 --policy vllm-0.33 --async-scheduling --evict-cache keep
	streaming,sink=4,recent=99 1600 --policy sglang-0.5.23 --evict-cache keep
	snapkv,budget=200,window=8 33 --block-size 48 --policy vllm-0.33 --evict-cache drop
	streaming,sink=4,recent=99 99 --block-size 16 --policy vllm-0.16 --async-scheduling --evict-cache drop
	snapkv,budget=200,window=8 60 --block-size 16 --policy vllm-0.16 --evict-cache keep
EOF
is 'events that waited are stored' "$(query 'SELECT evict_waits FROM v_run ORDER BY run_id DESC LIMIT 1')" \
	"$(sed -n 's/^events of the evictor waited \([1-9][0-9]*\) times .*/\1/p' out)"
finish
