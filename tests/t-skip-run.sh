#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run with skip-softmax: what is recorded, and the errors of both halves.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,900,3' >t.csv
run() {
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m --accuracy 1 \
		--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --db r.db "$@" >out 2>err
}
query() { "$ATTNREPLAY" sql --format csv r.db "$1" | tail -n +2; }

ok 'methods with and without skip-softmax run' \
	run --method dense --skip softmax,prefill=0,decode=0,softmax,prefill=500,softmax,decode=500,parts=2
is 'the record has its parameters' \
	"$(query "SELECT json_extract(params, '$.skip') FROM method WHERE name LIKE '%parts=2'" |
		sed 's/""/"/g; s/^"//; s/"$//')" \
	'{"clamp":true,"decode":500,"name":"softmax","parts":2,"prefill":0,"threshold":0,"tile":"64x128"}'
is 'a method that skips is not dense, one that skips nothing is' \
	"$(query 'SELECT is_dense FROM method ORDER BY method_id')" '1
0
0'
is 'each half has errors where it skips; decodes that skip nothing are not compared' \
	"$(query 'SELECT run_id, half, max(rel_l2) > 0 FROM accuracy_sample GROUP BY run_id, half
		ORDER BY run_id, half')" \
	"$(printf '%s\n' 1,prefill,0 2,prefill,1 3,decode,1 3,prefill,0)"
is 'tiles that are walked and skipped are counted where a half skips' \
	"$(query "SELECT run_id, half, sum(skip_total) > 0, sum(skip_sel) > 0,
		sum(skip_sel) < sum(skip_total) FROM selection_stat GROUP BY run_id, half
		ORDER BY run_id, half")" \
	"$(printf '%s\n' 1,prefill,0,0,0 2,prefill,1,1,1 3,decode,1,1,1 3,prefill,0,0,0)"
is '... whose report says the share' \
	"$("$ATTNREPLAY" report --format csv --table density r.db | sed 's/.*,//; s/^0\..*/a share/')" \
	"$(printf '%s\n' skipped '' 'a share' '' 'a share')"
ok 'backend roofline counts every tile' \
	"$ATTNREPLAY" run --backend roofline --gpu h200 --trace t.csv --model llama-3.1-8b \
	--method dense,dense/skip=softmax,prefill=500 --db m.db
finish
