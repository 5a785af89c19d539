#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --replicas, from the options to the report.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

trace=$srcdir/traces/samples/azure-2023-code-200.csv
run() { "$ATTNREPLAY" run $plain "$@"; }
cost() { run --backend cost --cost-fixed 10ms --cost-per-token 0 "$@"; }
ask() { "$ATTNREPLAY" sql --format csv "$1" "$2" | sed 1d; }
refused() { pattern=$1; shift; fails 2 "$pattern" run --trace "$trace" "$@"; }

# Requests of 3, 1, 1 and 1 iterations; the last one is for replica 0.
printf '%s\n' t,in,out,r 0,8,3, 0,8,1, 0.015,8,1, 0.016,8,1,0 >hand.csv
hand="--trace hand.csv --columns arrival=t,prompt=in,output=out,replica=r"
# shellcheck disable=SC2086
cost $hand --replicas 2 --router least --db hand.db --intervals off >out
is 'the header names the replicas and their router' "$(grep '^replicas' out)" \
	'replicas  2, router least; each has what is said below, and none waits for another'
is 'requests go to the replica with the fewest, or to that of the trace' \
	"$(ask hand.db 'SELECT req_no, replica, finish_ns / 1000000 FROM request_outcome')" '0,0,30
1,1,10
2,1,25
3,0,30'
is 'iterations have the number of their replica' "$(ask hand.db 'SELECT replica, count(*),
	max(end_ns) / 1000000 FROM iteration GROUP BY replica')" '0,3,30
1,2,25'
"$ATTNREPLAY" report hand.db >report
is 'the report has a row for each' "$(sed -n '/^Replicas/,/^$/p' report | tail -n +3 |
	awk 'NF { print $2, $3, $6, $8 }')" '0 2 4 100.000
1 2 2 66.667'
ok '... and says what is modelled' grep -q \
	'2 replicas behind router least are modelled: none waits for another' report
ok 'the page has it, too' sh -c '"$ATTNREPLAY" report --html page.html hand.db && grep -q ">Replicas" page.html'
"$ATTNREPLAY" report --perfetto trace.json hand.db
is 'a time line has a thread for each' "$(grep -o '"name":"replica [0-9]"' trace.json | sort | tr '\n' ' ')" \
	'"name":"replica 0" "name":"replica 1" '
# shellcheck disable=SC2086
ok 'a replica that the run has not is an error' fails 3 \
	'hand.csv:2: the request is for replica 8, but the run has replicas 0 to 1; give more' \
	run --backend cost --trace hand.csv --columns arrival=t,prompt=in,output=out,replica=in --replicas 2

cost --trace "$trace" --db none.db --intervals off >/dev/null
cost --trace "$trace" --replicas 1 --db one.db --intervals off --json one.json >/dev/null
ok 'JSON has no engines where there is one' grep -q '"replicas":null' one.json
rows() { for t in iteration request_outcome request_span token_gap; do ask "$1" "SELECT * FROM $t"; done; }
rows none.db >none
rows one.db >one
ok 'one replica is as without the option, to the byte' cmp none one
is '... and has no number' "$(ask one.db 'SELECT count(replica) FROM request_outcome')" 0

for router in round-robin least random vllm vllm-4w prefix; do
	cost --trace "$trace" --replicas 3 --router $router --db $router.db --intervals off >/dev/null
	is "$router: all requests are served, by all replicas" "$(ask $router.db "SELECT sum(outcome = 'ok'),
		count(DISTINCT replica), (SELECT count(DISTINCT replica) FROM iteration) FROM request_outcome")" \
		200,3,3
done
gaps() { ask "$1" 'SELECT count(*) = (SELECT sum(n) FROM token_gap WHERE run_id = 1) AND
	sum(itl_ns) = (SELECT sum(n * itl_ns) FROM token_gap WHERE run_id = 1) AS x FROM v_itl WHERE run_id = 1'; }
is 'times between tokens follow from the entries' "$(gaps least.db)" 1
is '... which are stored together' "$(ask least.db 'SELECT count(*) < (SELECT count(*) FROM iteration_request) / 4
	AS x FROM request_span')" 1
cost --trace "$trace" --replicas 3 --router random --router-seed 2 --db random.db --intervals off >/dev/null
ok 'another seed is another draw' test "$(ask random.db 'SELECT count(*) FROM request_outcome a
	JOIN request_outcome b USING(req_no, replica) WHERE a.run_id = 1 AND b.run_id = 2')" -lt 120
cost --trace "$trace" --replicas 3 --router vllm --router-stats 2s >out
ok 'the header says how old loads are' grep -q 'router vllm with the loads of every 2.00 s' out
ok 'the roofline has replicas' run --backend roofline --model llama-3.1-8b --trace "$trace" --requests 20 \
	--replicas 3

# ---- prefill and decodes apart ----

roof() { run --backend roofline --model llama-3.1-8b --trace "$trace" --requests 60 "$@"; }
roof --prefill-replicas 2 --decode-replicas 1 --router least --kv-link 10GB:3ms --host none \
	--db apart.db --intervals off --json apart.json >out
is 'JSON has the engines' "$(grep -o '"replicas":{[^}]*}' apart.json)" \
	'"replicas":{"n":3,"router":"least","prefill":2,"decode":1,"kv_link":"10GB:3ms"}'
is 'the header names both kinds, and the link' "$(sed -n '/^replicas/p; /^KV link/p' out)" \
	'replicas  2 for prefill, 1 for decodes, router least; each has what is said below
KV link   10GB:3ms: 10 GB/s and 3.00 ms, modelled; a KV block of all ranks has 2.097 MB'
is 'requests go from one to the other, if they have a second token' "$(ask apart.db "SELECT count(*),
	sum(prefill_replica IN (0, 1) AND replica = 2 AND kv_end_ns > first_token_ns) - sum(output_tokens > 1)
	FROM request_outcome WHERE outcome = 'ok'")" 60,0
is '... whose blocks take their time' "$(ask apart.db 'SELECT min(kv_end_ns - first_token_ns
	- 3000000 - (prompt_tokens + 15) / 16 * 209715) BETWEEN 0 AND 1000 AS x FROM request_outcome')" 1
"$ATTNREPLAY" report apart.db >report
is 'the report has all engines' "$(sed -n '/^Replicas/,/^$/p' report | awk '$1 == 1 { n += $3; print $2 }
	END { print n }' | tr '\n' ' ')" "0 1 2 $(ask apart.db 'SELECT 60 + count(kv_end_ns) FROM request_outcome') "
ok '... and says what is modelled' grep -q \
	'prefill runs on 2 engines and decodes on 1: .*over a modelled link (10GB:3ms)' report
is 'times between tokens are those of both' "$(gaps apart.db)" 1
roof --prefill-replicas 2 --decode-replicas 1 --kv-link nvlink4 --tp 2 >out
ok 'links have names, and blocks all ranks' grep -q \
	'^KV link   nvlink4: 450 GB/s and 5.00 us, modelled; a KV block of all ranks has 2.097 MB' out
apart='--prefill-replicas 1 --decode-replicas 1'
run --backend cpu --model niah-llama-14m --capture random:1 --attention-only --sample-layers 1 --trace hand.csv \
	--columns arrival=t,prompt=in,output=out --db costs.db --intervals off >/dev/null
# shellcheck disable=SC2086
"$ATTNREPLAY" run --backend cost --costs costs.db:1 --costs-extrapolate --trace hand.csv \
	--columns arrival=t,prompt=in,output=out $apart >out
ok 'costs have the blocks of their model' grep -q '^KV link .* a KV block of all ranks has 0.1311 MB' out
rejects() { pattern=$1; shift; fails 2 "$pattern" roof "$@"; }
# shellcheck disable=SC2086
{
	ok 'one kind alone is an error' rejects 'prefill-replicas 0, decode-replicas 2: give both, or none' \
		--decode-replicas 2
	ok 'a link is for both' rejects 'kv-link has no effect without --prefill-replicas' --kv-link ndr400
	ok 'they take the place of others' rejects 'replicas has no effect with --prefill-replicas' $apart \
		--replicas 2
	for link in fast 50GB 999kB:1us 50GB:x 50GB:2h; do
		ok "a link is not '$link'" rejects "kv-link '$link': want hdr200, .*RATE:LATENCY" $apart \
			--kv-link $link
	done
	ok 'queues are in order of arrival' rejects 'there is no order by priority' $apart \
		--scheduling-policy priority
	ok 'engines have rules for it' rejects 'prefill-replicas has no effect with policy sarathi' $apart \
		--policy sarathi
	ok 'a block has bytes' refused 'without a model the bytes of a KV block are not known' $apart \
		--backend cost
	ok 'all layers are of a kind' refused 'gemma-3-.* has layers of several kinds' $apart --backend roofline \
		--model gemma-3-12b
	ok 'no token leaves' rejects 'an evictor takes tokens out of the KV that travels' $apart \
		--method dense/evict=streaming
}

for o in 'router least' 'router-stats 1s' 'router-seed 3'; do
	# shellcheck disable=SC2086
	ok "--${o% *} is for several replicas" refused "${o% *} has no effect without --replicas; leave it out" \
		--backend cost --$o
done
ok 'loads are for routers that read them' refused \
	'router-stats has no effect with --router least; leave it out' --backend cost --replicas 2 \
	--router least --router-stats 1s
ok 'a seed is for a router that draws' refused \
	'router-seed has no effect with --router vllm; leave it out' --backend cost --replicas 2 --router-seed 3
ok 'kernels run in one engine' refused 'replicas 2: backend cpu runs the kernels of one engine; take' \
	--backend cpu --model niah-llama-14m --capture random:1 --replicas 2
ok '... also below a roofline' refused \
	'replicas 2: backend roofline with --capture runs the kernels of one engine' --backend roofline \
	--model niah-llama-14m --capture random:1 --replicas 2
ok 'an unknown router is named' refused "router 'best': want one of round-robin, least" --backend cost \
	--replicas 2 --router best
finish
