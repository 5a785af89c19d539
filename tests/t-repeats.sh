#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --repeats: methods in turn, their baselines, the report's spread, and --resume.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	for i in 1 2 3; do echo "2023-11-16 18:00:0$i.0,200,3"; done
} >trace.csv
cp "$ATTNREPLAY_DATA/model/presets/niah-llama-14m.json" model.json
run() { "$ATTNREPLAY" -q run "$@"; }
cpu() { run --backend cpu --trace trace.csv --model model.json --sample-layers 1 --accuracy 0 \
	--capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" "$@"; }
query() { # query DB SELECT
	"$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n +2
}

cpu --method compact-fp,dense --repeats 3 --db a.db --json a.json >out 2>err
is 'three repeats of two methods run' $? 0
is '... in turn, each against the same repeat of dense, though that comes later' "$(query a.db \
	'SELECT run_id, method, repeat_no, baseline_run_id FROM v_run')" '1,compact-fp,0,2
2,dense,0,
3,compact-fp,1,4
4,dense,1,
5,compact-fp,2,6
6,dense,2,'
is '... as runs of one command' "$(query a.db \
	'SELECT count(DISTINCT command_utc_ns), count(DISTINCT setup), max(method_no) FROM run')" 1,1,1
is '... with keys of their own' "$(query a.db 'SELECT count(DISTINCT run_key) FROM run')" 6
is '... with a title each' "$(grep -o '^.*, repeat . of 3: 3 requests ok' out)" \
	'compact-fp, repeat 1 of 3: 3 requests ok
dense, repeat 1 of 3: 3 requests ok
compact-fp, repeat 2 of 3: 3 requests ok
dense, repeat 2 of 3: 3 requests ok
compact-fp, repeat 3 of 3: 3 requests ok
dense, repeat 3 of 3: 3 requests ok'
is '... and so in JSON' "$(grep -o '"repeat":[0-9]*' a.json | tr '\n' ' ')" \
	'"repeat":0 "repeat":0 "repeat":1 "repeat":1 "repeat":2 "repeat":2 '

cpu --method dense --repeats 2 --db two.db >out
# spread DB METHOD METRIC P: the repeats, sorted here: median, smallest, largest
spread() {
	query "$1" "SELECT $4 FROM v_latency WHERE method = '$2' AND metric = '$3' ORDER BY $4" |
		awk '{ x[NR] = $1 } END { printf "%.6g %.6g %.6g\n",
			(x[int((NR + 1) / 2)] + x[int((NR + 2) / 2)]) / 2, x[1], x[NR] }'
}
# told DB METHOD METRIC P: the same from the report
told() {
	"$ATTNREPLAY" report --format csv "$1" | awk -F, -v method="$2" -v metric="$3" -v p="$4" '
		$2 == "method" && $4 == "repeats" { for (i = 1; i <= NF; i++) at[$i] = i; next }
		NF < 5 { delete at }
		"repeats" in at && $2 == method && $3 == metric {
			printf "%.6g %.6g %.6g\n", $at[p], $at[p "_min"], $at[p "_max"] }'
}
for i in 'a.db dense ttft p50' 'a.db compact-fp e2e p99' 'a.db compact-fp tpot p90' \
	'two.db dense e2e p90'; do
	is "the report has the spread of $i" "$(told $i)" "$(spread $i)"
done
is '... which begins with the first run of a method' "$("$ATTNREPLAY" report a.db |
	awk '/repeats of a method/ { on = 1 } on && / ttft / { print $1, $2, $4 }' | head -2)" \
	'1 compact-fp 3
2 dense 3'
is '... but not of a single run' \
	"$("$ATTNREPLAY" report --run 1 a.db | grep -c 'repeats of a method')" 0

# ---- a sweep knows that a point has its repeats ----

printf '%s\n' 'backend = cpu' 'trace = trace.csv' 'model = model.json' 'sample-layers = 1' \
	'accuracy = 0' "capture = $ATTNREPLAY_DATA/traces/samples/niah-2k.arc" \
	'method = dense,compact-fp' 'repeats = 2' >point.sweep
"$ATTNREPLAY" -q sweep point.sweep --out points --all >out.txt 2>&1
is 'a point with repeats is done' "$("$ATTNREPLAY" sweep point.sweep --out points --plan | cut -f 3)" done
is '... with all of them' "$(query points/*.db 'SELECT method, repeat_no FROM v_run')" 'dense,0
compact-fp,0
dense,1
compact-fp,1'
"$ATTNREPLAY" merge merged.db points/*.db >out.txt 2>&1
is '... and merged with all of them' "$(query merged.db 'SELECT count(*) FROM run')" 4

# ---- resume: run 3 did not end, so those after it never began ----

cpu --method compact-fp,dense --repeats 1 --db one.db >out
is 'a single run has no spread' "$("$ATTNREPLAY" report one.db | grep -c 'repeats of a method')" 0
ok 'repeats are refused without kernels' says 2 \
	'repeats has no effect with backend cost; leave it out' \
	run --backend cost --trace trace.csv --repeats 2
ok '... and with the clock of the formula, where they are equal' says 2 \
	'repeats has no effect with --clock formula; leave it out' \
	cpu --clock formula --repeats 2
# ---- a host whose times are spread ----

list=$(seq -s ', ' 500 100 3600)
preset=$ATTNREPLAY_DATA/replay/host/presets/vllm-0.24.json
grep -v '_spread' "$preset" | sed 's/\("update_request_ns": [0-9]*\),*/\1/' >plain.json
sed "s/^}/, \"graph_spread\": [$list], \"pieces_spread\": [$list]\n}/" plain.json >spread.json
cost() { run --backend cost --trace trace.csv --db "$@"; }
ends() { query "$1" 'SELECT sum(finish_ns) FROM request_outcome GROUP BY run_id'; }
cost spread.db --host spread.json --repeats 3 >out
is 'repeats draw other times of the host' "$(ends spread.db | sort -u | wc -l)" 3
cost again.db --host spread.json >out
is '... the first of them the same again' "$(ends again.db)" "$(ends spread.db | head -1)"
sed 1,/^ms/d out >spread.out
ok '... with about three digits' grep -Eqx 'TTFT( +[0-9.]+){5}' spread.out
is '... and no fourth' "$(grep -c '[1-9][0-9]*\.[0-9][0-9][0-9]' spread.out)" 0
ok 'a few requests have no range, as the run says' grep -q '^the host is one draw .*; the report says' out
ok '... which needs a database' eval 'run --backend cost --trace trace.csv --host spread.json |
	grep -q "^the host is one draw of its spread (--host-seed 1); with --db there is a range over"'
"$ATTNREPLAY" -q trace synth --count 100 --rate 4 --arrivals poisson --lengths sample -o long.csv \
	"$srcdir/traces/samples/azure-2023-code-200.csv"
run --backend cost --trace long.csv --host spread.json --db long.db >long.out
is 'a trace of some length has a range of each latency' \
	"$(sed -n '/^... 95 % range/,$p' long.out | grep -cE '^[A-Za-z0-9]+( +[0-9.]+-[0-9.]+){3}$')" 5
ok '... which the report does without a word' eval '! "$ATTNREPLAY" report long.db | grep -q "one draw"'
ok '... unlike that of one draw' eval '"$ATTNREPLAY" report again.db | grep -q "they are one draw of it"'
ok '... nor are repeats one draw' eval '! "$ATTNREPLAY" report spread.db | grep -q "one draw"'
cost other.db --host spread.json --host-seed 2 >out
ok '... and others with another seed' [ "$(ends other.db)" != "$(ends again.db)" ]
cost none.db --host spread.json --host-seed 0 >out
cost plain.db --host plain.json >out
is 'without a seed there is no spread' "$(ends none.db)" "$(ends plain.db)"
cost slow.db --host plain.json --host-speed 0.5 >out
ok 'a slower host takes longer' [ "$(ends slow.db)" -gt "$(ends plain.db)" ]
ok '... as the header says' grep -q '^host .*; its times are those of the preset by 2\.00$' out
cost same.db --host plain.json --host-speed preset >out
is 'the speed of the preset is its own' "$(ends same.db)" "$(ends plain.db)"
sed 's/^}/, "probe": {"loop_ns": 1}\n}/' plain.json >probed.json
cost probe.db --host probed.json --host-speed probe >out
ok 'a probe of this host scales it' [ "$(ends probe.db)" -gt "$(ends plain.db)" ]
ok '... as the header says' \
	grep -q '^host .*; host of the preset: probe 1\.00; this host: [0-9.]*$' out
cost probed.db --host probed.json >out
is '... but not unasked' "$(ends probed.db)" "$(ends plain.db)"
ok 'a file without a probe has nothing to compare' says 3 \
	'plain.json: the file has no probe of its host to compare with; give --host-speed a number' \
	run --backend cost --trace trace.csv --host plain.json --host-speed probe
ok 'no host has no speed' says 2 'host-speed has no effect with --host none; leave it out' \
	run --backend cost --trace trace.csv --host none --host-speed 2
ok 'a speed is a number or a word' says 2 \
	"host-speed 'fast': want probe, preset, or a number from 0.01 to 100" \
	run --backend cost --trace trace.csv --host plain.json --host-speed fast

# ---- HTTP ----

served=$ATTNREPLAY_DATA/replay/host/presets/vllm-0.24-serve.json
sed 's/\("http[a-z_]*_ns": \)[0-9]*/\10/' "$served" >without.json
http() { run --backend cost --trace trace.csv "$@" --host-seed 0; }
ttft() { sed -n 's/^TTFT *[0-9]* *//p' "$1" | cut -d ' ' -f 1; }
http --host without.json >none.out
ok 'a front end whose HTTP was not measured says so' \
	grep -q '^host .*; without HTTP and tokenization, which are not measured$' none.out
http --host "$served" >with.out
later() { awk "BEGIN { exit !($(ttft with.out) > $(ttft none.out) + 2) }"; }
ok '... one with times of HTTP has them: ms later' later
is '... and nothing is left out' "$(grep -c 'without HTTP' with.out)" 0
http --host "$served" --no-host-http >without.out
is '... unless they are left out' "$(ttft without.out)" "$(ttft none.out)"
ok '... as the header says' \
	grep -q '^host .*; without HTTP and tokenization, which are left out$' without.out
ok '... if there are any' says 2 \
	'host-http has no effect: host plain.json has no times of HTTP; leave it out' \
	run --backend cost --trace trace.csv --host plain.json --no-host-http
ok '... so repeats are refused' says 2 'repeats has no effect with backend cost; leave it out' \
	run --backend cost --trace trace.csv --host spread.json --host-seed 0 --repeats 2
ok '... and 0 of them' says 2 "repeats '0': want an integer from 1 to 1000" cpu --repeats 0
if command -v python3 >/dev/null; then
	python3 -c 'import sqlite3
db = sqlite3.connect("a.db")
db.execute("PRAGMA foreign_keys = ON")
for t in "iteration", "request_outcome", "token_gap", "iteration_phase", "request_span", "selection_stat":
	db.execute("DELETE FROM %s WHERE run_id > 3" % t)
db.execute("UPDATE run SET baseline_run_id = NULL")
db.execute("DELETE FROM run WHERE run_id > 3")
db.execute("UPDATE run SET status = \"aborted\", pid = 999999999 WHERE run_id = 3")
db.execute("UPDATE run SET pid = 999999999")
db.commit()'
	ok 'a command that was cut in a repeat is resumed' run --resume a.db
	is '... with the repeats that are left' "$(query a.db \
		'SELECT run_id, method, repeat_no, status FROM v_run')" '1,compact-fp,0,done
2,dense,0,done
3,compact-fp,1,aborted
4,compact-fp,1,done
5,dense,1,done
6,compact-fp,2,done
7,dense,2,done'
else
	skip 'a command that was cut in a repeat is resumed' 'no python3'
	skip '... with the repeats that are left' 'no python3'
fi
finish
