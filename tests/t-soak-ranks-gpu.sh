#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --ranks local on two GPUs for as long as SOAK_SECONDS says, 20 unless set: decodes
# from CUDA graphs with NCCL, whose sizes are captured in another order by each run.  Runs with
# NCCL_GRAPH_MIXING_SUPPORT 1 and 0 take turns, until the time is over and 20 requests for each
# second are replayed.  A table of both ends it.
#
# A hang is a run that a rank's deadline or that of this script ends.  A spread is by how much the
# spans of the ranks differ in an iteration.
. "$srcdir/tests/tap.sh"

seconds=${SOAK_SECONDS:-20}
gpu='--backend cuda --sample-layers 4 --capture random:0 --accuracy 0 --num-gpu-blocks 6000 --devices 0,1'
largest=64
least=$((20 * seconds))
cd "$tmp" || exit 99
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" 2>/dev/null | tail -n 1 | tr , ' '; }

# requests SEED N: bursts of requests far from each other.  The first ones use all sizes of graphs:
# from the smallest or from the largest on, or in a random order.  Then they are of any size.
requests() {
	awk -v seed="$1" -v n="$2" -v largest=$largest '
		function burst(size, prompt, output) {
			while (size-- > 0 && n-- > 0)
				print t, 1 + int(rand() * prompt), 2 + int(rand() * output)
			t += 100
		}
		BEGIN {
			srand(seed)
			t = 0
			OFS = ","
			print "t", "prompt", "output"
			for (i = 1; i <= largest; i += i < 4 ? i : i < 8 ? 4 : 8) size[m++] = i
			for (i = m - 1; i > 0 && seed % 3 == 0; i--) {
				j = int(rand() * (i + 1)); x = size[i]; size[i] = size[j]; size[j] = x
			}
			for (i = 0; i < m; i++) burst(size[seed % 3 == 1 ? i : m - 1 - i], 16, 4)
			while (n > 0) burst(1 + int(rand() * 1.5 * largest), 600, 200)
		}'
}
run() { # run SEED N MIXING
	requests "$1" "$2" >"$1.csv"
	# shellcheck disable=SC2086
	NCCL_GRAPH_MIXING_SUPPORT=$3 timeout -k 10 "$((seconds < 60 ? 60 : seconds / 2))" "$ATTNREPLAY" -v \
		run --trace "$1.csv" --columns arrival=t,prompt=prompt,output=output --time-unit s \
		--model llama-3.1-8b --tp 2 --ranks local $gpu --host none --max-num-seqs $largest \
		--max-num-batched-tokens 2048 --comm-timeout 20s --intervals off --keep-tables iterations \
		--db "$1.db" >out 2>err
}
# figures DB: requests that ended well, iterations, those from graphs, iterations that not all ranks
# told, and the spread in ns: median, 99th percentile, longest
figures() {
	query "$1" "WITH spread AS (SELECT iter_no, ifnull(max(span_ns) - min(span_ns), 0) AS ns, count(*) AS ranks
			FROM iteration_rank GROUP BY iter_no),
		ordered AS (SELECT ns, row_number() OVER (ORDER BY ns) AS i, count(*) OVER () AS n FROM spread)
		SELECT (SELECT count(*) FROM request_outcome WHERE outcome = 'ok'), count(*),
		sum(prefill_tokens = 0 AND decode_tokens <= $largest),
		count(*) - (SELECT sum(ranks = 2) FROM spread),
		(SELECT ns FROM ordered WHERE i = (n + 1) / 2), (SELECT ns FROM ordered WHERE i = (99 * n + 99) / 100),
		(SELECT max(ns) FROM spread) FROM iteration"
}

run 1 40 1
if [ $? = 4 ]; then
	skip 'two ranks run for long' "$(tail -n 1 err)"
	finish
fi
begin=$(date +%s) seed=1 done=0
: >rows
while [ $(($(date +%s) - begin)) -lt "$seconds" ] || [ "$done" -lt "$least" ]; do
	seed=$((seed + 1)) mixing=$((seed % 2)) some=$((400 + 4 * seconds))
	run $seed $some $mixing
	status=$? hang=0
	{ [ $status -ge 124 ] || grep -q 'no answer from' err; } && hang=1
	[ $status = 0 ] || sed "s/^/# run $seed: /" err
	again=$(grep -c 'the host was late' err)
	# shellcheck disable=SC2046
	set -- $(figures $seed.db)
	echo "$mixing $status $hang $again $some ${*:-0 0 0 0 0 0 0}" >>rows
	done=$((done + ${1:-0}))
	rm -f $seed.*
	[ $(($(date +%s) - begin)) -lt $((2 * seconds + 60)) ] || break
done
took=$(($(date +%s) - begin))

# is 0 for each row where the condition of awk does not hold
never() { awk "$1 { n++ } END { print n + 0 }" rows; }
ok "two ranks run for $took s" test $took -ge "$seconds"
ok "... and replay $done requests" test "$done" -ge "$least"
is '... without a hang' "$(never '$3')" 0
is '... or another failure' "$(never '$2')" 0
is '... each request' "$(never '$5 != $6')" 0
is '... with graphs' "$(never '$8 < $7 / 2')" 0
is '... and all that both ranks tell' "$(never '$9')" 0
for mixing in 1 0; do
	ok "... with NCCL_GRAPH_MIXING_SUPPORT $mixing" grep -q "^$mixing " rows
done
printf '# %-6s %5s %9s %10s %10s %6s %5s  %s\n' mixing runs requests iterations graphs again hangs \
	'spread in us: median, p99, longest'
sort -k 1,1nr -k 10,10n rows | awk '
	function line() {
		if (runs)
			printf "# %-6s %5d %9d %10d %10d %6d %5d  %.2f, %.2f, %.1f\n", mixing, runs, requests,
				iterations, graphs, again, hangs, p50[int((runs + 1) / 2)] / 1e3, p99 / 1e3, most / 1e3
		runs = requests = iterations = graphs = again = hangs = p99 = most = 0
	}
	$1 != mixing { line() }
	{
		mixing = $1; runs++; again += $4; hangs += $3; requests += $6; iterations += $7; graphs += $8
		p50[runs] = $10
		if ($11 > p99) p99 = $11
		if ($12 > most) most = $12
	}
	END { line() }'
finish
