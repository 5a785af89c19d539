#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Intervals, comparisons and verdicts against known truth: one server, whose requests come by a Poisson
# process.  contrib/check_intervals.py makes tables of more processes.
. "$srcdir/tests/tap.sh"

cd "$tmp" || exit 99
trace() { # trace COUNT RATE SEED FILE: requests that take 100 ms in the mean
	"$ATTNREPLAY" -q trace synth --count "$1" --trace-seed "$3" --arrivals "poisson:rate=$2" \
		--lengths "${lengths:-lognormal:prompt=100,output=1,prompt-cv=1,output-cv=0}" -o "$4"
}
run() { # run TRACE DB [OPTION]...
	trace=$1 db=$2
	shift 2
	"$ATTNREPLAY" -q run --backend cost --cost-fixed 0 --cost-per-token "${token:-1ms}" --trace "$trace" \
		--max-num-seqs 1 --max-num-batched-tokens 100000 --engine-defaults none --host none \
		--no-enable-prefix-caching --no-async-scheduling --keep-tables requests \
		--intervals-time 1h --db "$db" "$@" >run.out || exit 99
}
changed() { "$ATTNREPLAY" diff "$@" | sed -n '/^Percentiles that changed/,/^$/p'; }
answer() { "$ATTNREPLAY" sql --format csv "$@" | tail -n +2 | tr -d '"'; }

# Figures are the same with sanitizers, which see all accesses when each command runs once.
if sanitized; then
	trace 100 8 1 t.csv
	run t.csv runs.db
	token=1.0227ms run t.csv runs.db
	ok 'two runs are compared' "$ATTNREPLAY" diff runs.db:1 runs.db:2
	ok '... and have intervals' [ "$(answer runs.db 'SELECT count(*) FROM v_interval')" -gt 0 ]
	ok '... and verdicts' [ "$(answer runs.db 'SELECT count(*) FROM v_steady')" -gt 0 ]
	finish
fi

# The truth is the median of many runs.
i=0
while [ $i -lt 60 ]; do
	trace 100 8 $((1000 + i)) t.csv
	run t.csv truth.db --intervals off
	i=$((i + 1))
done
for p in 50 90 99; do
	answer truth.db "SELECT $p, median(p$p) FROM v_latency WHERE metric = 'ttft'"
done >truth
i=0
while [ $i -lt 40 ]; do
	trace 100 8 $i t.csv
	run t.csv runs.db
	i=$((i + 1))
done
answer runs.db "SELECT percentile, coalesce(lo, ''), coalesce(hi, '') FROM v_interval
	WHERE metric = 'ttft'" >intervals
covered=$(awk -F, 'FNR == NR { truth[$1] = $2; next }
	$2 != "" { n[$1]++; hit[$1] += $2 <= truth[$1] && truth[$1] <= $3 }
	END { for (p in n) if (n[p] < 34 || hit[p] < 0.9 * n[p]) print p ": " hit[p] " of " n[p] }' truth intervals)
is 'intervals at a load of 0.8 hold the truth in 9 of 10 runs, and most runs have them' "$covered" ''

changed=0
i=1
while [ $i -lt 40 ]; do
	[ -z "$(changed "runs.db:$i" "runs.db:$((i + 1))")" ] || changed=$((changed + 1))
	i=$((i + 2))
done
ok "samples of one process differ in at most 2 of 20 pairs: $changed" [ $changed -le 2 ]

found=0
for i in 1 2 3 4 5 6 7 8 9 10; do
	trace 300 8 $i t.csv
	run t.csv fast.db
	token=1.0227ms run t.csv slow.db
	! changed "fast.db:$i" "slow.db:$i" | grep -q '^ttft *p50' || found=$((found + 1))
done
ok "a median that is about 12.5 % longer is found in 9 of 10 pairs: $found" [ $found -ge 9 ]

verdicts() { # verdicts RATE: of ten runs of requests of 100 ms
	rm -f steady.db
	for i in 1 2 3 4 5 6 7 8 9 10; do
		lengths=lognormal:prompt=100,output=1,prompt-cv=0,output-cv=0 trace 300 "$1" $i t.csv
		run t.csv steady.db
	done
	answer steady.db "SELECT sum(verdict = 'steady'), sum(verdict = 'backlogged') FROM v_steady"
}
known=$(verdicts 9)
ok "a load of 0.9 is not called backlogged: $known" [ "${known#*,}" -eq 0 ] && [ "${known%,*}" -ge 6 ]
known=$(verdicts 11)
ok "... nor one of 1.1 steady: $known" [ "${known%,*}" -le 1 ] && [ "${known#*,}" -ge 3 ]
finish
