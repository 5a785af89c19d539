#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with a dropper: what it stores and reports.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,100,2' \
	'2023-11-16 18:00:01,20,2' >t.csv
run() {
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m \
		--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --db r.db "$@" >out
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
is 'what it leaves of the pairs: all in 2 of 8 layers, a quarter in 3, a sixteenth in 3' \
	"$(query 'SELECT run_id, pairs FROM v_kept')" '1,1
2,0.3671875'
ok 'droppers that keep all run' run --method dense+uniprefill:layers=3
"$ATTNREPLAY" report r.db >report
ok '... and the report says so' grep -q '^run 3: its dropper kept every row' report
finish
