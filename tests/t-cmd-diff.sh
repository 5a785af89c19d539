#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay diff: figures of two runs, what it calls a change, and limits for CI.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

"$(dirname "$ATTNREPLAY")/tests/make-db" a.db || { echo 'Bail out! no sample database'; exit 1; }
diff() { "$ATTNREPLAY" diff "$@"; }
says() { grep -Eq "$1" all || { cat all; return 1; }; }
not() { ! says "$1"; }

# Run 2 takes half the time of run 1, each request and each phase.
diff a.db:1 a.db:2 >all 2>err
is 'it succeeds, whatever changed' "$? $(cat err)" '0 '
ok 'a ratio of pairs has no width where all are alike' \
	says '^ttft +p50 +2 +10.300( .*) 0.5000 +0.5000 +0.5000$'
ok '... of each percentile'           says '^e2e +p99 +2 +30.896( .*) 0.5000 +0.5000 +0.5000$'
ok 'times between tokens count as often as they came' says '^itl +p50 +8 +3.000 '
ok 'what changed is named'            says '^tpot +p90 +-50.000 +-50.000 +-50.000 +0.0000$'
ok 'phases stand side by side, with shares' \
	says '^select +\* +1.5500 +.* 10.000$'
ok '... the core is marked'           says '^attend +\* +15.500 +6.2000 +0.4000 +50.000 +40.000$'
ok 'kernels stand in the order of their change' says '^attend_kernel +attend +8 +8 +15.500 +6.2'
ok '... one that is new as well'      says '^select_kernel +select +0 +8 +0.000 +1.5500 +1.5500$'
ok 'the method differs'               says '^method +dense +compact-fp$'
ok 'resamples that are the same are compared one by one' says '^the runs have the same resamples '
ok 'times between tokens are not judged' not '^itl +p50 +-50'
cp all first
diff a.db:1 a.db:2 >all
is 'the same again is the same, to the bit' "$(cksum <all)" "$(cksum <first)"

diff a.db:1 a.db:1 >all
ok 'equal runs do not differ'         says '^no difference is found$'
ok '... in any percentile'            not '^Percentiles that changed'
ok '... nor kernel'                   not '^Kernels'
ok '... nor option'                   not '^Options'

limit() { diff --fail-if "$1" a.db:1 a.db:2; }
loud() { # loud STATUS MESSAGE COMMAND...: exits so, after the tables
	want=$1 message=$2
	shift 2
	"$@" >all 2>err
	[ "$? $(cat err)" = "$want attnreplay: $message" ] && grep -q '^Latency' all || {
		cat err
		return 1
	}
}
ok 'a change within limits passes'    limit 'ttft.p99>5%'
ok '... several of them'              limit 'ttft.p99>5%,tpot.p50>-49%,e2e.p50<-51%'
ok 'a change beyond a limit fails' loud 1 \
	'ttft.p99 changed by -50.00 %, limit < -10 %, 95 % interval -50.00 to -50.00 %' limit 'ttft.p99<-10%'
ok '... one of several' loud 1 \
	'e2e.p50 changed by +100.00 %, limit > 99.5 %, 95 % interval +100.00 to +100.00 %' \
	diff --fail-if 'ttft.p50>200%' --fail-if 'e2e.p50>99.5%,tpot.p90>101%' a.db:2 a.db:1
diff --fail-if 'ttft.p50>1%,itl.p99>1%' a.db:2 a.db:1 >all 2>err
is 'each limit that fails has a line' "$(cut -d' ' -f1-5 err)" \
	'attnreplay: ttft.p50 changed by +100.00
attnreplay: itl.p99 changed by +100.00'
ok 'a figure that a run lacks passes no limit' fails 3 'tpot.p50: one of the runs has no such' \
	sh -c '"$ATTNREPLAY" diff --fail-if "tpot.p50>5%" a.db:1 a.db:3 >/dev/null'
for bad in ttft 'ttft.p99' 'ttft.p99>5' 'ttft.p95>5%' 'queue.p99>5%' 'ttft.p99=5%' \
	'ttft.p99>x%' 'ttft.p99>5%,' 'ttft.p99>5%%' 'ttft.p99>00000000000000000000000000005%'; do
	ok "fail-if '$bad' is wrong usage" fails 2 "fail-if '.*': want a metric, a perc" limit "$bad"
done

# Requests that differ.
run() {
	"$ATTNREPLAY" -q run --backend cost --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
		"$@" >/dev/null
}
run --requests 30 --db x.db --max-num-batched-tokens 512
run --requests 40 --db y.db
run --requests 40 --intervals off --db off.db
diff x.db y.db >all
ok 'requests that differ have no resamples in common' says '^each run has resamples of its own$'
ok 'requests that differ have numbers of their own' says '^ttft +p50 +30 +[0-9.]+ .* 40 +[0-9.]+ '
ok 'options that differ are listed'   says '^max-num-batched-tokens +512 +8192$'
ok '... but not where they are stored' not '^db '
diff off.db y.db >all
ok 'runs without replicates have no intervals' \
	says 'e2e.p50, e2e.p90, e2e.p99: the run or its baseline has no replicates$'
ok 'a limit without an interval is not known' fails 5 \
	'e2e.p50 changed by .* %: not known, as it has no interval: the run or its baseline has no rep' \
	sh -c '"$ATTNREPLAY" diff --fail-if "e2e.p50>5%" off.db y.db >/dev/null'
ok '... and passes if wanted, with a warning' fails 0 'warning: e2e.p50 changed by .* not known' \
	sh -c '"$ATTNREPLAY" diff --unknown pass --fail-if "e2e.p50>5%" off.db y.db >/dev/null'
diff --format json x.db y.db >all
ok 'json has a member for each table' says '^"latency": \[$'
diff --format csv x.db y.db >all
ok 'csv has its lines'                says '^metric,at,n,before,lo,hi,after_n,after,after_lo,after_hi,ratio,'

ok 'a file of several runs needs a number' fails 2 'the operands hold 4 runs, want two; name' \
	diff x.db a.db
ok 'two runs are wanted'              fails 2 'want two runs, as DB:RUN' diff a.db:1
ok 'a run must be there'              fails 2 'a.db: no run 9;' diff a.db:1 a.db:9
if command -v sqlite3 >/dev/null; then
	cp a.db odd.db
	sqlite3 odd.db "UPDATE replicate_latency SET p90 = p90 * 2 WHERE metric = 'tpot' AND run_id = 2"
	for limits in 'ttft.p50<-9%,tpot.p90<-9%' 'tpot.p90<-9%,ttft.p50<-9%'; do
		diff --fail-if "$limits" odd.db:1 odd.db:2 >all 2>err
		is "a limit that is crossed decides the status: $limits" \
			"$? $(grep -c 'not known' err) $(grep -c 'limit < -9 %, 95 %' err)" '1 1 1'
	done
	cp a.db cut.db
	sqlite3 cut.db 'DROP TABLE token_gap'
	ok 'a database without a table is an error' fails 1 'no such table' diff cut.db:1 a.db:2
else
	skip 'a limit that is crossed decides the status' 'no sqlite3'
	skip 'a database without a table is an error' 'no sqlite3'
fi
finish
