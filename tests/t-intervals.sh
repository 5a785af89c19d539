#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Replicates of runs: which are made and stored, with which costs, and why there are none.
. "$srcdir/tests/tap.sh"

cd "$tmp" || exit 99
synth() { # synth COUNT RATE FILE
	"$ATTNREPLAY" -q trace synth --count "$1" --arrivals poisson --rate "$2" --lengths sample \
		-o "$3" "$srcdir/traces/samples/azure-2023-code-200.csv" || exit 99
}
synth 100 4 t.csv
synth 1000 2 long.csv
run() { "$ATTNREPLAY" -q run --trace t.csv --intervals-time 100s "$@"; }
formula() { run --backend cost --cost-fixed 6ms --cost-per-token 40us "$@"; }
answer() { "$ATTNREPLAY" sql --format csv "$@" | tail -n +2 | tr -d '"'; }
reason() { answer "$1" 'SELECT reason FROM resampling'; }
inside='SELECT count(*) FROM v_interval WHERE x BETWEEN lo AND hi'

formula --db a.db >a.out
is 'a run has 200 replicates, and longer replays until they tell' "$(answer a.db "SELECT replicates,
	unit, units, cost_error, extrapolated, run_cached, cached,
	steady_replays BETWEEN 20 AND 40 AS tell FROM resampling")" \
	'200,request,100,0,0,0,0,1'
is '... each of as many requests' "$(answer a.db 'SELECT count(*), min(ok), max(ok), good IS NULL
	FROM replicate')" 200,100,100,1
is '... with percentiles of all latencies' \
	"$(answer a.db 'SELECT count(*) FROM replicate_latency')" 1000
ok '... and intervals hold what the run measured' [ "$(answer a.db "$inside")" -ge 12 ]
formula --db b.db | { read -r line && echo "$line" >b.out; }
is 'it is stored also if the reader of its output has gone' "$(reason b.db)" ''
rows='SELECT replicate_no, metric, p50, p90, p99 FROM replicate_latency ORDER BY 1, 2'
is 'a second run has the same' "$(answer a.db "$rows")" "$(answer b.db "$rows")"
longer='SELECT steady_replays, unsteady FROM resampling'
is '... and the same longer replays' "$(answer a.db "$longer")" "$(answer b.db "$longer")"
formula --intervals off --db c.db >c.out
is '--intervals off makes none' "$(answer c.db 'SELECT count(*) FROM resampling')" 0
is '... and the run is the same' "$(sed '/stored as/d' a.out)" "$(sed '/stored as/d' c.out)"
formula --slo e2e:2s --db d.db >/dev/null
ok 'with limits they have the requests that keep them' [ "$(answer d.db \
	'SELECT min(good) BETWEEN 1 AND 99 FROM replicate')" = 1 ]

# ---- costs ----

run --backend roofline --model llama-3.1-8b --method dense,ashape --density ashape=0.3 --db r.db \
	>/dev/null
is 'backend roofline computes its costs again, and the host is drawn anew' "$(answer r.db "SELECT
	replicates, cost_error, extrapolated FROM resampling")" '200,0,0
200,0,0'
is '... methods have the same resamples' \
	"$(answer r.db 'SELECT count(DISTINCT draw_key) FROM resampling')" 1
ok '... so that their speed-up is narrower than either of their own intervals' [ "$(answer r.db "
	SELECT s.hi / s.lo < i.hi / i.lo FROM v_speedup s JOIN v_interval i USING(run_id, metric, percentile)
	WHERE metric = 'ttft' AND percentile = 50")" = 1 ]
run --backend cost --costs a.db:1 --db t.db >/dev/null
is 'a run with costs takes them, beyond what they measured' "$(answer t.db "SELECT replicates,
	cost_error, extrapolated < 0.05 FROM resampling")" 200,0,1
# The true costs of the replicates are known where a model of a GPU made what was measured.
same="--skip-requests 50 --rate 20 --engine-defaults none --host none --num-gpu-blocks 20000
	--max-num-batched-tokens 2048 --model llama-3.1-8b --method dense"
run $same --backend roofline --db true.db >/dev/null
sqlite3 true.db "UPDATE run SET clock = 'events'; UPDATE iteration SET cost_source = 'measured'"
run $same --backend cost --costs true.db:1 --costs-extrapolate --db held.db >/dev/null
sqlite3 true.db "ATTACH 'held.db' AS b; SELECT max(abs(y.p50 / x.p50 - 1)),
	max(abs(y.p90 / x.p90 - 1)), max(abs(y.p99 / x.p99 - 1)), (SELECT extrapolated FROM b.resampling)
	FROM main.replicate_latency x JOIN b.replicate_latency y USING(replicate_no, metric)
	WHERE metric = 'ttft'" | tr '|' ' ' >far
ok 'replicates beyond what was measured are near the truth' awk '{
	exit !($1 < 0.2 && $2 < 0.1 && $3 < 0.1 && $4 > 0) }' far
# A pool of the default size would be cleared for each replicate.
few='--requests 12 --max-prompt-tokens 64 --max-output-tokens 2 --num-gpu-blocks 500'
run --backend cpu --model niah-llama-14m $few \
	--capture "$srcdir/traces/samples/niah-2k.arc" --sample-layers 1 --accuracy 0 --db m.db >/dev/null
is 'a run that measures takes what it measured' "$(answer m.db "SELECT cost_error,
	coalesce(reason, '') NOT LIKE '%failed%' FROM resampling")" 0,1
run --backend roofline --model smollm2-135m --tp 3 $few \
	--capture random:0 --method dense --db tp.db >/dev/null
is '... which has its collectives' "$(answer tp.db 'SELECT cost_error FROM resampling')" 0

# ---- can it be sustained? ----

steady() { # steady RATE
	"$ATTNREPLAY" -q run --trace long.csv --requests 300 --rate "$1" --backend cost \
		--cost-fixed 6ms --cost-per-token 40us --intervals-time 100s --db "steady$1.db" >/dev/null
	answer "steady$1.db" 'SELECT 100 * unsteady / steady_replays FROM resampling'
}
ok 'a load beyond the capacity has a later quarter that waits longer' [ "$(steady 20)" -ge 95 ]
ok '... one that can be served has not' [ "$(steady 2)" -le 60 ]

# ---- no intervals, and why ----

formula --requests 9 --db few.db >/dev/null
is 'few requests' "$(reason few.db)" \
	'the trace has 9 requests, want 10'
is '... have no replicates' "$(answer few.db 'SELECT count(*) FROM replicate')" 0
# Exponential gaps of 0.5 s, and of 5 s in the second half.
awk 'BEGIN {
	print "t,p,o"
	x = 7
	for (i = 0; i < 200; i++) {
		x = x * 16807 % 2147483647
		printf "%.6f,100,2\n", t -= log(x / 2147483647) * (i < 100 ? 0.5 : 5)
	}
}' >drift.csv
run --trace drift.csv --columns arrival=t,prompt=p,output=o --backend cost --db drift.db >/dev/null
is 'a rate that changes half-way' "$(reason drift.db)" 'the trace is too short for its bursts: '\
'its rate or its lengths change more in the course of it than in resamples'
formula --requests 11 --loop users --users 2 --db users.db >/dev/null
is 'few of a closed loop' "$(reason users.db)" 'the users have 11 requests, want 12'
formula --loop users --users 2 --db users100.db >/dev/null
is '... which makes no longer replays' "$(answer users100.db 'SELECT replicates, steady_replays FROM
	resampling')" 200,0
formula --intervals-time 1ns --db time.db >/dev/null
is 'no time' "$(reason time.db | sed 's/take .* s,/take S,/')" \
	'40 replicates would take S, longer than --intervals-time'
run --backend cost --costs few.db:1 --costs-extrapolate --db extra.db >/dev/null
is 'costs of other iterations' "$(reason extra.db | sed 's/^[0-9]* //')" \
	'% of the iterations of its replicates lie far outside of what was measured'
ok 'an interval without a database is refused' fails 2 'intervals has no effect without --db' "$ATTNREPLAY" run --trace t.csv --backend cost \
	--intervals off
finish
