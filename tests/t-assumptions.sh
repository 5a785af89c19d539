#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What a verdict rests on: each assumption is in the table of the report, and marks figures of the page.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

if ! command -v sqlite3 >/dev/null; then
	echo '1..0 # SKIP no sqlite3'
	exit 0
fi
"$(dirname "$ATTNREPLAY")/tests/make-db" sample.db || { echo 'Bail out! no sample database'; exit 1; }
set_param() { echo "INSERT OR REPLACE INTO run_param VALUES(2, '$1', $2);"; }

tested=
# rests KIND BRIEF TEXT SQL: after SQL, the report says TEXT, in a row of KIND, with the mark that BRIEF has
# on the page.
rests() {
	kind=$1 brief=$2 text=$3
	tested="$tested $kind"
	cp sample.db a.db
	if ! sqlite3 a.db "$4" || ! "$ATTNREPLAY" report a.db >text || ! "$ATTNREPLAY" report --html page.html a.db; then
		ok "$kind: the report is made" false
		return
	fi
	mark=$(sed -n "s/^\([a-z]\)  *$kind .*$text.*/\1/p" text)
	ok "$kind: the table has '$text'" [ -n "$mark" ]
	ok '... with a mark and few words on the page' grep -q "\"><sup>$mark</sup>.*$brief.*</li>" page.html
	ok '... that figures have' sh -c "sed 's/<ul class=.rests.*//' page.html | grep '<t[rh]' | grep -q '<sup>[a-z]*$mark'"
}

rests cpu 'the clock of a CPU' 'mechanics, not the speed of a GPU' "UPDATE run SET clock = 'cpu'"
ok '... and the answer tells of mechanics' grep -q '^Mechanics only, by the clock of a CPU: ' text
ok '... not of a load, which a CPU is slower to serve' sh -c '! grep -q "^The load" text'
ok '... in each sentence' grep -q 'mechanics by the clock of a CPU, TTFT p50 2.00x' page.html
ok '... and calls no figure good or bad' sh -c '! grep -Eq "class=\"(good|bad)\"" page.html'
rests formula 'times by a formula' 'times of --cost-fixed' "UPDATE run SET clock = 'cost'"
rests costs 'times of an earlier run' 'have the costs of x.db' "$(set_param costs "'x.db'")"
rests modelled 'a modelled h100' "the roofline of h100, rates of vllm's kernels, off by 4.6 %" "$(set_param gpu "'h100'")
	UPDATE run SET clock = 'modelled', rates = 'of vllm''s kernels, off by 4.6 %'"
ok '... which the answer says' grep -q '^Faster, at a cost (a modelled h100): ' text
rests layers '4 of 32 layers' '4 of 32 layers were executed' ''
rests attention 'attention alone' '--attention-only' "$(set_param attention-only 1)"
rests host 'the host of a preset' 'another machine (--host auto): vLLM served' "$(set_param host "'auto'")
	UPDATE iteration SET host_ns = 1000; UPDATE run SET host = 'vLLM served'"
rests host 'no time of the host' 'the host is taken to need no time' 'UPDATE iteration SET host_ns = 0'
rests collectives 'collectives of these ranks' 'collectives of 4 ranks ran, with NCCL' "UPDATE model SET tp = 4;
	UPDATE run SET comm = 'nccl'"
rests collectives 'no collectives of the other 3 ranks' 'one rank of 4 ran alone: its times are without' \
	'UPDATE model SET tp = 4'
rests quantization 'quantization ignored' '--quantization none' "$(set_param quantization "'none'")
	UPDATE model SET config = '{\"quantization_config\":{}}'"
rests replicas '4 replicas that do not wait' '4 replicas behind router least are modelled' \
	"$(set_param replicas 4) $(set_param router "'least'")"
rests experts 'experts on 2 modelled engines' 'waits for the slowest.*; rows go to experts by zipf:1; .* are left out' \
	"$(set_param replicas 2) $(set_param router "'least'") $(set_param ep 2) $(set_param routing "'zipf:1'")"
rests experts 'experts on 2 modelled ranks' '2 ranks share the experts; rows go' \
	"$(set_param ep 2) $(set_param routing "'even'") UPDATE model SET tp = 2"
rests stages '4 modelled stages' 'share the time of an iteration by their layers, and what they send is left out' \
	"$(set_param pp 4)"
rests apart 'KV over a modelled link' 'prefill runs on 3 engines and decodes on 2: .* link (ndr400)' \
	"$(set_param prefill-replicas 3) $(set_param decode-replicas 2) $(set_param kv-link "'ndr400'")"
rests density 'densities given, not measured' 'given with --density, not measured' \
	"$(set_param density "'[\"compact-fp=0.3\"]'") DELETE FROM selection_stat"
ok '... which the answer says' grep -q '^Faster, at a cost (densities given, not measured): ' text
ok '... and the cell' grep -q '30.*%</b>.*<small>given</small>' page.html
rests whole 'nothing left out' 'selector and union kept every block' \
	'UPDATE selection_stat SET exec_sel = exec_total WHERE run_id = 2'
while read -r what sql; do
	ok "... $what" sh -c '
		cp sample.db a.db && sqlite3 a.db "UPDATE selection_stat SET exec_sel = exec_total
			WHERE run_id = 2; $1" &&
			"$ATTNREPLAY" report a.db >text && ! grep -q "left nothing out" text' sh "$sql"
done <<'END'
unless-tiles-were-skipped UPDATE selection_stat SET skip_total = 9, skip_sel = 1 WHERE run_id = 2
unless-keys-were-evicted UPDATE method SET params = json_set(params, '$.evict', json_object('keep', 1)) WHERE method_id = (SELECT method_id FROM run WHERE run_id = 2)
END
rests accuracy 'accuracy not measured' 'accuracy was not measured' \
	'DELETE FROM accuracy_sample; DELETE FROM eval_prompt'
ok '... and the cell' grep -q '>not measured</b>' page.html
for origin in 'other: was captured from m, not from' 'random: are random values' 'unknown: does not say'; do
	case $origin in random*) words='random activations' ;; *) words='activations of another model' ;; esac
	rests capture "$words" "c.arc ${origin#*: }" "INSERT INTO capture VALUES(9, 'c.arc', '', 'm', 1, 1, 1, 1, 1);
		INSERT INTO run_capture VALUES(2, 7, 9, '${origin%%:*}')"
done
rests tiled 'a tiled capture' 'longer than the capture replay it tiled' ''
rests rank 'the weights of one rank' 'rank 0 of 4 ran alone with its slices' \
	"$(set_param weights "'w'") UPDATE model SET tp = 4"
rests dropped '40 % of the prompt rows dropped' 'left out 40.0 % of the prompt rows' \
	'INSERT INTO iteration_drop VALUES(2, 0, 3, 100, 60)'
ok '... in the summary of the run, too' grep -q 'compact-fp, against dense.*; 40 % of the prompt rows dropped' page.html
rests status failed 'failed; the figures cover' ''
rests requests '2 requests not served' '1 requests were rejected, 1 did not finish' ''
rests load 'one batch of requests' 'closed batch: all requests arrive' ''

list=$srcdir/src/report/sections/make_assumption.sql
if [ -e "$list" ]; then
	is 'each kind of assumption is tested' "$(sed -n "s/^    SELECT .*run_id, [0-9]* *[AS place]*, '\([a-z]*\)'.*/\1/p" "$list" |
		sort -u | tr '\n' ' ')" "$(echo $tested | tr ' ' '\n' | sort -u | tr '\n' ' ')"
else
	skip 'each kind of assumption is tested' 'no sources here'
fi
finish
