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
	run --sample-layers 2 --method dense --skip softmax,prefill=0,decode=0,softmax,prefill=500,softmax,decode=500,parts=2
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

# scales OPTION...: calibrate, and keep what is printed in cal, without the names of columns
scales() {
	"$ATTNREPLAY" calibrate skip --capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" \
		-o scales "$@" >cal 2>err && sed -i 1d cal
}
# reached RUN HALF: share of the tiles that were skipped, and the attention that was left
reached() {
	"$ATTNREPLAY" sql --format csv c.db "SELECT printf('%.4f', (SELECT 1.0 * sum(skip_sel) /
		sum(skip_total) FROM selection_stat WHERE run_id = $1 AND half = '$2')) || ' ' ||
		printf('%.4f', (SELECT avg(mass_recall) FROM accuracy_sample WHERE run_id = $1 AND
		half = '$2'))" | tail -n 1 | tr -d '"'
}
for part in softmax,prefill=1 softmax,decode=1 softmax,threshold=0.1; do
	ok "calibrate finds the scale of $part" \
		fails 2 "skip part '$part' has a scale or a threshold, which calibrate finds" \
		"$ATTNREPLAY" calibrate skip --skip "$part" --capture \
		"$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" -o x
done
ok 'a part that is none is wrong usage' fails 2 "soft" \
	"$ATTNREPLAY" calibrate skip --skip soft --capture \
	"$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" -o x
ok 'scales are found for shares of the tiles' scales --tokens 1024
is '... for each that a half can skip, and the most' \
	"$(awk '{ print $1, ($3 >= $1 || $6 >= $1) }' cal | tail -n 2 | cut -d' ' -f2 | tr '\n' ' ')" \
	'1 0 '
cp scales twice
ok 'scales are found again' scales --tokens 1024
ok '... the same, byte for byte' cmp scales twice
ok 'scales of chunks are found for a recall' scales --tokens 512 --recall 0.99 --skip softmax,tile=32x128
chunks=$(cut -d, -f1-3 scales) && cp cal cal-chunks
ok '... and of decodes' scales --tokens 544 --decodes 32 --recall 0.99 --skip softmax,parts=4
printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,512,33' >c.csv
ok 'a run takes the scales' \
	"$ATTNREPLAY" -q run --backend cpu --trace c.csv --model niah-llama-14m --accuracy 1 \
	--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --db c.db \
	--max-num-batched-tokens 1024 --method dense --skip "$chunks,$(cat scales)"
is '... chunks skip the share, and keep the attention, that were printed' \
	"$(reached 1 prefill)" "$(awk '{ print $3, $4 }' cal-chunks)"
is '... so do decodes' "$(reached 2 decode)" "$(awk '{ print $6, $7 }' cal)"
finish
