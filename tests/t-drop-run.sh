#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with a dropper: what it stores and reports.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,100,2' \
	'2023-11-16 18:00:01,20,2' >t.csv
run() {
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m \
		--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --accuracy 1 --db r.db "$@" >out
}
query() { "$ATTNREPLAY" sql --format csv r.db "$1" | tail -n +2; }

ok 'methods with and without a dropper run' \
	run --method dense,dense+lazyllm:layers=1:0.5+4:0.5
is 'rows are stored for each layer that drops' \
	"$(query 'SELECT run_id, layer, sum(n_rows), sum(n_kept) FROM iteration_drop
		GROUP BY run_id, layer')" '2,1,120,60
2,4,60,30'
is 'the method is not dense' "$(query 'SELECT is_dense FROM method ORDER BY method_id')" '1
0'
is '... and has its parameters' \
	"$(query "SELECT json_extract(params, '$.drop.name') FROM method WHERE NOT is_dense")" lazyllm
"$ATTNREPLAY" report r.db >report
ok 'the report shows them' grep -q '^  2  dense+lazyllm:layers=1:0.5+4:0.5 .* 120 .* 60 .*50.000' report
ok '... and says what they are' grep -q '^run 2: tokens were dropped (no drift)' report
is 'what is kept is measured from the first drop on' \
	"$(query 'SELECT DISTINCT layer, n_kept * 2.0 / n_tokens < 1.1, mass > 0.5 AND mass <= 1,
		top_recall > 0.4 FROM drop_sample WHERE run_id = 2 AND layer < 4 AND req_no = 0')" '1,1,1,1
2,1,1,1
3,1,1,1'
is 'the work of layers is stored' \
	"$(query "SELECT layer, n_rows, n_rows * 1024 = kv_bytes, kind FROM run_layer
		WHERE run_id = 2 AND layer IN (1, 2, 5)")" '1,122,1,full
2,62,1,full
5,32,1,full'
is '... with the pairs of dense attention' \
	"$(query 'SELECT n_pairs FROM run_layer WHERE run_id = 1 AND layer = 7')" \
	$((100 * 101 / 2 + 101 + 20 * 21 / 2 + 21))
ok '... and what densities are of' grep -q '^run 2: densities and selections are shares of what' report
ok 'the report shows what is kept' grep -q '^Dense attention that kept tokens hold' report
ok '... and the work of layers' grep -q '^  2 .* full  2-4 *3 *62 ' report
is 'runs say how true their activations are' \
	"$(sed -n '/^Runs/,/^$/s/.*; fidelity no-drift$/no-drift/p' report | wc -l)" 1
# With 50 of 100 rows and 10 of 20 in 3 layers and half of them in 3; a decode sees what is kept.
is 'what it leaves of the pairs is counted' \
	"$(query 'SELECT run_id, round(pairs, 9) FROM v_kept')" "1,1
2,0.372909699" # (2 * 5382 + 3 * 1392 + 3 * 372) / (8 * 5382)
# Layer 2 runs all rows again, but the MLP of layer 1 those that stay, as the MLP of layer 2 does.
brings_back() {
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m --accuracy 0 --db b.db \
		--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" \
		--method 'uniprefill:layers=1+2,reconstitute=1,p=0.2,min-tokens=0,sinks=8,last-q=8,block=8'
}
ok 'tokens come back to a layer that drops' brings_back
is '... whose products are those of the layer before, which drops as many' \
	"$("$ATTNREPLAY" sql --format csv b.db 'SELECT min(n_rows), max(n_rows),
		count(DISTINCT product_flops) FROM run_layer WHERE layer IN (1, 2)' | tail -n +2)" 122,122,1
is '... and less than those of a layer that keeps all' \
	"$("$ATTNREPLAY" sql --format csv b.db 'SELECT a.product_flops > b.product_flops
		FROM run_layer a, run_layer b WHERE a.layer = 0 AND b.layer = 1' | tail -n +2)" 1
# After prompts of 100 and 20 tokens one decode each revives up to three at a layer.
revives() {
	"$ATTNREPLAY" run $plain --backend cpu --trace t.csv --model niah-llama-14m --accuracy 0 --db v.db \
		--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" \
		--method dense+lazyllm:layers=1:0.5+4:0.5,aux-revival=1,revive-max=3 2>log
}
ok 'decodes revive dropped tokens' revives
ok '... from an aux cache whose size is printed' grep -q 'aux cache of 2 layers, 0.0[0-9]* GiB' log
is '... which are rows of the layers after' \
	"$("$ATTNREPLAY" sql --format csv v.db 'SELECT layer, n_rows FROM run_layer
		WHERE layer IN (1, 2, 5)' | tail -n +2)" '1,122
2,66
5,37'
"$ATTNREPLAY" report v.db >report
ok 'the report shows how many at each layer' \
	grep -q '^  1  dense+lazyllm.*,revive-max=3 *1 *60 *4 *2.0* *0.0384$' report
ok '... which may be dropped again' \
	grep -q '^  1  dense+lazyllm.*,revive-max=3 *4 *34 *5 *2.50* *0.0218$' report
ok 'droppers that keep all run' run --method dense+uniprefill:layers=3
"$ATTNREPLAY" report r.db >report
ok '... and the report says so' grep -q '^run 3: the dropper kept every row' report
ok 'prompts may be longer than the token budget' \
	run --max-num-batched-tokens 64 --max-num-seqs 8 --method lazyllm:layers=1:0.5
"$ATTNREPLAY" report r.db >report
ok '... and the report says that each chunk is judged alone' \
	grep -q '^run 4: 1 prompts ran in several chunks: a dropper judges each' report
is '... as it does of no other run' "$(grep -c 'ran in several chunks' report)" 1
finish
