#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay search: rates and chunk sizes that are known by hand, and what it refuses.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

search() { "$ATTNREPLAY" search "$@"; }
value() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n 1; }
# rates SEARCH: "RATE FAILED" of its verdict
rates() { sed -n 's/^.*: \(.*\) requests a second keep the limits, \(.*\) do not$/\1 \2/p' "$1"; }
# within LEAST MOST RATE FAILED: the limit lies between them, and they are within 2 %
between() { awk -v x="$1" -v r="$2" -v f="$3" 'BEGIN { exit !(r <= x && x < f && f <= 1.02 * r) }'; }

# 30 requests, one every 20 ms.  An iteration takes 10 ms and runs one request whole, so requests wait
# as soon as they come faster than that: 30 in 29 gaps of 10 ms are 103.448 a second.
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	awk 'BEGIN { for (i = 0; i < 30; i++) printf "2023-11-16 18:00:00.%03d0000,40,1\n", 20 * i }'
} >trace.csv
one="$plain --trace trace.csv --max-num-seqs 1"
flat="$one --backend cost --cost-fixed 10ms --cost-per-token 0"
limit="--slo ttft:p99:10ms"

# ---- the rate ----

ok 'a rate is found without a database' sh -c '"$ATTNREPLAY" search rate '"$limit $flat"' >out'
ok '... that is the capacity, within the precision' between 103.448 $(rates out)
is '... after the rate of the trace, its double and one more' "$(awk 'NF == 4 && /yes$|no$/ {
	if ($1 > 60 && n++ == 0) exit; print $1, $3, $4 }' out)" '51.72 10.000 yes'
is '... with a curve by rate' "$(awk '/yes$|no$/ { print $1 }' out)" \
	"$(awk '/yes$|no$/ { print $1 }' out | sort -n)"
ok '... which names the first point' grep -q \
	'^search    rate 51.72 is the first point, others differ in that$' out
ok '... and the limits' grep -q '^limits    ttft:p99:10ms$' out
ok 'a percentile of few requests is called that' grep -q '^TTFT p99 is of 30 requests, 0.3 of them '\
'beyond it; with fewer than 10 it moves with single requests' out
ok '... and one of many is not' sh -c '! "$ATTNREPLAY" search rate --slo ttft:p50:10ms '"$flat"' |
	grep "beyond it"'
search rate $limit $flat --db points.db >stored
is 'the database does not change the search' "$(cat stored)" "$(cat out)"
is '... and gets a run for each point' \
	"$(value points.db "SELECT count(*) AS n FROM run WHERE status = 'done'")" \
	"$(grep -c 'yes$\|no$' out)"
best=$(rates out | cut -d' ' -f1)
"$ATTNREPLAY" run --rate "$best" $flat --db points.db >plain 2>/dev/null
of_rate="run JOIN run_param USING (run_id) WHERE key = 'rate' AND value = $best"
outcome() { value points.db "SELECT group_concat(first_token_ns || ' ' || finish_ns) AS x FROM
	request_outcome WHERE run_id = (SELECT $1(run_id) FROM $of_rate)"; }
is 'a plain run at the rate found is the same' "$(outcome max)" "$(outcome min)"
is '... also for comparisons' \
	"$(value points.db "SELECT count(*) || ' ' || count(DISTINCT setup) AS x FROM $of_rate")" '2 1'
is '... and in its summary' "$(awk '$1 == "TTFT" { print $6 }' plain)" \
	"$(awk -v r="$best" '$1 == r { print $3 }' out)"
search rate $limit $flat --shift 7s --lowest 90 --highest 300 --precision 0.2 >out
is 'the ends are tried, other arrivals do not matter, and the precision ends the search' \
	"$(awk '/yes$|no$/ { print $1, $4 }' out | tr '\n' ',')" '90 yes,107 no,127.3 no,180 no,300 no,'
search rate --slo ttft:p99:9ms $flat --lowest 1 >out
ok 'limits that no rate keeps are called that' \
	grep -q '^cost: no rate keeps the limits; the lowest one tried is 1 /s$' out
search rate --slo ttft:p99:10s,e2e:p50:10s $flat --highest 900 >out
ok 'so are limits that every rate keeps' grep -q '^cost: 900 requests a second, the highest rate '\
'tried, keep the limits; raise --highest$' out
ok '... where the trace hides a queue' \
	grep -q '^at this rate requests finish at 100 a second: the trace ends before' out
search rate --slo ttft:p99:10s $flat >out
ok '... without an end, too' grep -q \
	'^cost: 5.296e+04 requests a second, the highest rate tried, keep the limits; set a higher' out
sample="$plain --trace $ATTNREPLAY_DATA/traces/samples/azure-2023-code-200.csv --backend cost"
search rate --slo tpot:p50:18ms $sample --lowest 1.234 --highest 1.248 >out
ok 'a rate that keeps the limits where a lower one did not is named' grep -q '^1.248 /s kept the '\
'limits, but the lower rate 1.234 /s did not: there is no sharp limit$' out
sed 's/,40,/,50000,/;4,$s/,50000,/,40,/' trace.csv >rejects.csv
search rate $limit --trace rejects.csv --max-num-seqs 1 --backend cost --cost-fixed 10ms \
	--cost-per-token 0 --max-model-len 4096 >out 2>err
is 'requests that every point rejects are named once' "$(cat err)" \
	"$(printf 'attnreplay: warning: %s\n' 'rejects.csv:2: request rejected: prompt of 50000 '\
'tokens, maximum length 4096' '2 requests rejected in all')"
cat trace.csv | search rate $limit --trace - --max-num-seqs 1 --backend cost --cost-fixed 10ms \
	--cost-per-token 0 >out
ok 'the trace is read once' between 103.448 $(rates out)

# ---- methods ----

cpu="$one --backend cpu --model niah-llama-14m --sample-layers 1 --attention-only --accuracy 0
	--capture $ATTNREPLAY_DATA/traces/samples/niah-2k.arc"
small="$cpu --clock formula --cost-per-token 0"
"$ATTNREPLAY" run $small --cost-fixed 10ms --method dense --db costs.db >out 2>&1
"$ATTNREPLAY" run $small --cost-fixed 5ms --method compact-fp --db costs.db >>out 2>&1
search rate --slo ttft:p99:5ms $one --backend cost --costs costs.db:2 >out
ok 'the costs of a run give its rate' between 206.897 $(rates out)
what='... and are not read again for each point'
if strace -o calls true 2>/dev/null; then
	env "$no_leak_check" strace -f -e trace=openat -o calls "$ATTNREPLAY" search rate \
		--slo ttft:p99:5ms $one --backend cost --costs costs.db:2 >out
	opened=$(grep -c '/costs.db"' calls)
	ok "$what" test "$opened" -gt 0 -a "$opened" -lt "$(grep -c 'yes$\|no$' out)"
else
	skip "$what" 'no strace'
fi
search rate $limit $one --backend cost --costs costs.db:1-2 --intervals-time 1h >out
grep -A 2 ' method$' out >summary
is 'the costs of several runs are a line each' "$(awk 'NR > 1 { print $(NF - 2), $(NF - 1), $NF }' summary)" \
	'dense of costs.db:1
compact-fp of costs.db:2'
ok '... with its speed-up over the first' awk 'NR == 2 && $4 != "1.000x" { exit 1 }
	NR == 3 && $4 + 0 < 2 { exit 1 }' summary
search rate $limit $one --backend cost --costs costs.db:2,1 --intervals off --json other.json >other
is '... which JSON has unrounded' "$(grep -o '"speedup":[[:space:]]*[0-9.]*' other.json |
	sed 's/.*:[[:space:]]*//' | cut -c 1-6 | tr '\n' ' ')" "1 $(awk 'NR == 2 { c = $1 } NR == 3 { print substr(c / $1, 1, 6) }' summary) "
rate_of() { sed -n "s/^$1 of costs.db:.: //p" "$2"; }
is '... whatever their order' "$(rate_of dense other; rate_of compact-fp other)" \
	"$(rate_of dense out; rate_of compact-fp out)"
search rate $limit $small --requests 4 --cost-fixed 10ms --precision 1 --lowest 60 --highest 240 \
	--method dense,compact-fp --intervals off >out 2>&1
is 'methods run on a backend, too' "$(grep -A 3 ' method$' out | tail -n +2)" \
	"$(printf '%12s%10s  %s\n' 120 1.000x dense 120 1.000x compact-fp)"
search rate $limit $small --requests 4 --cost-fixed 10ms --precision 1 --lowest 60 --highest 240 \
	--decode dense,streaming --intervals off >out 2>&1
is '... with their parts' "$(grep -A 3 ' method$' out | tail -n +2)" \
	"$(printf '%12s%10s  %s\n' 120 1.000x dense/decode=dense 120 1.000x dense/decode=streaming)"
"$ATTNREPLAY" run $cpu --db again.db >out 2>&1
repeat="$one --backend cost --costs again.db:1 --db again.db"
search rate --slo ttft:p99:10s $repeat --lowest 50 --highest 100 --precision 1 >out
"$ATTNREPLAY" run --rate 100 $repeat >out
ends() { value again.db "SELECT group_concat(finish_ns) AS x FROM request_outcome WHERE run_id = $1"; }
is 'a batch that was measured several times has the same costs in every point' "$(ends 3)" "$(ends 4)"
with_cuda() { "$ATTNREPLAY" --version | grep -q '^cuda yes$'; }
if with_cuda; then
	skip 'each point runs on the backend that the first found' 'built with CUDA'
else
	search rate $limit $small --backend auto --requests 4 --cost-fixed 10ms --precision 1 \
		--lowest 60 --highest 120 >out 2>err
	is 'each point runs on the backend that the first found' "$(cat err)" \
		'attnreplay: this program was built without CUDA; using backend cpu'
fi

# ---- intervals ----

# Gaps of a Poisson process by quantiles, in an order without pattern.
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	awk 'BEGIN { for (i = 0; i < 120; i++) { printf "2023-11-16 18:00:%010.7f,40,1\n", t
		t -= 0.02 * log(((i * 37 + 11) % 120 + 0.5) / 120) } }'
} >poisson.csv
# A loaded machine takes long for resamples, so no limit of the clock leaves them out.
queue="$plain --trace poisson.csv --max-num-seqs 1 --intervals-time 1h"
fixed="$queue --backend cost --cost-fixed 10ms --cost-per-token 0"
search rate --slo ttft:p90:40ms $fixed --json poisson.json >out
range() { sed -n 's/^interval of 95 %: \([0-9.]*\) to \([0-9.]*\) .*/\1 \2/p' "$1"; }
ok 'a rate has an interval' grep -q '^interval of 95 %: [0-9.]* to [0-9.]* /s, by 40 resamples of 120 '\
'requests in blocks of [0-9]*$' out
is '... around it' "$(echo $(range out) $(rates out) | awk '{ print ($1 < $3 && $4 < $2) }')" 1
is '... which JSON has, too' "$(grep -o '"best_..":[[:space:]]*[0-9.]*' poisson.json |
	sed 's/.*:[[:space:]]*//' | xargs printf '%.4g ')" "$(range out) "
search rate --slo ttft:p90:40ms $fixed --json poisson2.json --db one.db >other
is '... the same each time, whatever is stored' "$(cat other poisson2.json)" "$(cat out poisson.json)"
is '... of points alone' "$(value one.db 'SELECT count(*) AS n FROM run')" "$(grep -c 'yes$\|no$' out)"
"$ATTNREPLAY" run $queue --rate 50 --backend cpu --model niah-llama-14m --sample-layers 1 --attention-only \
	--accuracy 0 --capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --clock formula --cost-fixed 10ms \
	--cost-per-token 0 --method dense --db q.db >/dev/null 2>&1
"$ATTNREPLAY" run $queue --rate 50 --backend cpu --model niah-llama-14m --sample-layers 1 --attention-only \
	--accuracy 0 --capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" --clock formula --cost-fixed 8ms \
	--cost-per-token 0 --method compact-fp --db q.db >/dev/null 2>&1
search rate --slo ttft:p90:40ms $queue --backend cost --costs q.db:1,2 >out
is 'methods have the same resamples: their ratio is surer than their rates' "$(awk '
	/ compact-fp of q.db:2$/ && gsub(/[],[x]/, " ") {
	print ($5 > 1.1 && $5 < $4 && $4 < $6 && $6 / $5 < $3 / $2) }' out)" 1
ok '... which may be left out' sh -c '! "$ATTNREPLAY" search rate --slo ttft:p90:40ms '"$fixed"' --intervals off |
	grep interval'
none() { message=$1; shift; search rate "$@" >out 2>err && grep -q "^no interval: $message" out; }
ok 'an end of the search has none' none 'the rate is that of an end of the search$' \
	--slo ttft:p90:10s $fixed --highest 90
ok '... nor a short trace' none 'the trace has 5 requests, want 10' \
	--slo ttft:p90:40ms $fixed --requests 5
ok '... nor one that takes longer than it may' none \
	'searches on 40 resamples would take [0-9.e-]* s or more, longer than --intervals-time$' --slo ttft:p90:40ms $fixed --intervals-time 1ns
ok '... nor points that run kernels' none 'each point runs its kernels; search with the --costs of' \
	--slo ttft:p50:100ms $small --cost-fixed 20ms --requests 12 --lowest 10 --highest 1000 --precision 1
out=$(EXPERIMENTS=60 ATTNREPLAY=$ATTNREPLAY "$srcdir/contrib/check_search_interval.sh" 300 10)
status=$?
is "intervals hold the true rate of M/D/1: $out" $status 0

# ---- the chunk size ----

# The first request decodes four tokens while the prompt of the second runs.  Chunks of 512 make its
# tokens too slow; with chunks of 128 the prompt takes too many iterations.
cat >two.csv <<'EOT'
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,10,5
2023-11-16 18:00:00.0010000,2000,1
EOT
two="$plain --trace two.csv --backend cost --cost-fixed 1ms --cost-per-token 10us"
search chunk --slo ttft:32ms,tpot:4ms $two --lowest 64 --highest 1000 >out
is 'the curve of chunk sizes doubles up to the highest' \
	"$(awk '/^limits/ { p = 1 } p && NF == 4 && $1 > 0 { print $1, $2, $3 }' out | tr '\n' ,)" \
	'64 1 50.0,128 1 50.0,256 2 100.0,512 1 50.0,1000 1 50.0,'
ok '... and the best has most requests within the limits' grep -q '^cost: best with chunks of 256 '\
'tokens: 2 of 2 requests (100.0 %) within the times of ttft:32ms,tpot:4ms$' out
search chunk --slo e2e:10s $two --lowest 64 --highest 1024 >out
ok 'of equal ones it has the lowest p99 of TTFT' grep -q '^cost: best with chunks of 1024 tokens' out
search chunk --slo ttft:p50:1s,tpot:p99:2.6ms $two --lowest 64 --highest 512 --db chunk.db >out
is 'limits with a percentile come first' \
	"$(awk '/yes$|no$/ { print $1, $7 }' out | tr '\n' ,)" '64 yes,128 yes,256 no,512 no,'
ok '... before requests within the limits' grep -q '^cost: best with chunks of 128 tokens' out
search chunk --slo ttft:p99:1ms $two --lowest 512 --highest 512 >out
ok 'if no size keeps them, that is said' grep -q '; no size keeps the percentiles$' out
"$ATTNREPLAY" run --max-num-batched-tokens 64 $two --db chunk.db >out
is 'a plain run at a chunk size is the same' "$(value chunk.db "SELECT count(*) || ' ' ||
	count(DISTINCT setup) || ' ' || count(DISTINCT tpot) AS x FROM run JOIN (SELECT run_id,
	max(finish_ns) AS tpot FROM request_outcome GROUP BY run_id) USING (run_id) WHERE run_id IN
	(SELECT run_id FROM run_param WHERE key = 'max-num-batched-tokens' AND value = 64)")" '2 1 1'
search chunk --slo ttft:32ms $two --costs costs.db:1,2 --costs-extrapolate --cost-fixed 1ms >out 2>err
is 'options without effect are found as in a run' "$(cat err)" \
	'attnreplay: cost-fixed has no effect with --costs; leave it out'
search chunk --slo ttft:32s $one --backend cost --costs costs.db:1,2 --lowest 64 --highest 64 >out
is 'several runs are a line each' "$(awk '/ method$/ { p = 1 } p { print $1, $2, $3, $5 }' out)" \
	'chunk within % p99
64 30 100.0 dense
64 30 100.0 compact-fp'

# ---- an engine that fails ----

# The first request decodes with chunks of two tokens, while the prompt of the second takes the blocks
# that these decodes need: the engine fails, unless the second comes later or its chunk is larger.
cat >short.csv <<'EOT'
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,1,23
2023-11-16 18:00:00.0005000,20,1
EOT
pool="$plain --trace short.csv --backend cost --block-size 1 --max-num-seqs 2 --num-gpu-blocks 41
	--policy sglang-mixed-0.5.21"
short="$pool --cost-fixed 1ms --cost-per-token 0"
fails_at() { printf 'attnreplay: warning: %s: iteration %s: policy sglang-mixed-0.5.21: here the '\
'engine fails, out of memory for a prompt or for decodes beside it; give it more KV blocks, or go on '\
'with --survive-out-of-memory\n' "$@"; }
rate_short() { # LOWEST HIGHEST [OPTION]...
	lowest=$1 highest=$2
	shift 2
	search rate --slo ttft:p99:1s $short --max-num-batched-tokens 2 --precision 1 \
		--lowest "$lowest" --highest "$highest" "$@" >out 2>err
}
curve() { awk '/^limits/ { p = 1 } p && /(yes|no|fails)$/ { print $1, $2, $3, $4 }' out | tr '\n' ,; }
ok 'a rate at which the engine fails does not end the search' \
	rate_short 500 2000 --json short.json --db short.db
is '... it has no figures and keeps no limits' "$(curve)" \
	'500 60.61 28.720 yes,1000 - - fails,2000 - - fails,'
is '... and a warning says so' "$(cat err)" "$(fails_at 'rate 1000' 21 'rate 2000' 20)"
is '... the verdict counts it as one that does not keep them' "$(rates out)" '500 1000'
is '... its run is stored as failed' \
	"$(value short.db "SELECT count(*) AS n FROM run WHERE status = 'failed'")" 2
is '... and its figures are null in JSON' "$(sed 's/[[:space:]]//g' short.json | tr -d '\n' |
	sed 's/.*"rate":2000,//; s/}.*//')" '"kept":false,"engine_fails":true,"requests":null,'\
'"ok":null,"within_limits":null,"done_per_s":null,"ttft_p99_ms":null,"latency_ms":[null]'
rate_short 4000 4000
is 'without a rate at which the engine runs no rate keeps the limits' "$(tail -n 1 out)" \
	'cost: no rate keeps the limits; the lowest one tried is 4000 /s'
ok 'an engine that survives this runs at every rate' rate_short 4000 4000 --survive-out-of-memory
is '... with figures' "$(curve | sed 's/.* //')" 'yes,'
chunk_short() { search chunk --slo "$1" $short --lowest 2 --highest "$2" >out 2>err; }
ok 'a chunk size with which the engine fails does not end the search' chunk_short ttft:p50:1s 4
is '... and is not the best' "$(awk '/(yes|no|fails)$/ { print $1, $2, $3, $6 }' out | tr '\n' ,
	grep -o 'best with chunks of . tokens' out)" '2 - - fails,4 2 100.0 yes,best with chunks of 4 tokens'
ok '... a percentile is of the requests of the first size that ran' grep -q '^TTFT p50 is of 2 requests' out
chunk_short ttft:1s 4
is '... also without a limit for all' "$(awk '/fails$/ { print $1, $2, $3, $4 }' out | tr '\n' ,
	grep -o 'best with chunks of . tokens' out)" '2 - - -,best with chunks of 4 tokens'
chunk_short ttft:1s 2
is 'if no size lets it run, that is said' "$(tail -n 1 out)" 'cost: the engine fails with every size'
"$ATTNREPLAY" run $short --max-num-batched-tokens 2 --survive-out-of-memory --db two.db >out
search chunk --slo ttft:p99:1s $pool --costs two.db:1,1 --lowest 2 --highest 2 >out 2>err
is '... in the line of each subject, too' "$(tail -n 1 out)" \
	"$(printf '%12s%12s%10s%16s  cost of two.db:1' none - - -)"

# ---- what is refused ----

wrong() { message=$1; shift; says 2 "$message" "$ATTNREPLAY" "$@"; }
rate() { message=$1; shift; wrong "$message" search rate $flat "$@"; }
ok 'no action'      wrong 'nothing to search for; want rate, chunk or gpus' search
ok 'an unknown one' wrong "cannot search for 'users'; want rate, chunk or gpus" search users
ok 'an operand' wrong "unexpected operand 'x'; the trace is given with --trace" search rate x
ok 'no limits' rate 'no limits given; give some with --slo, such as ttft:p99:500ms,tpot:p50:30ms'
ok 'a limit without a percentile' rate \
	'slo limits ttft of each request; name a percentile, such as ttft:p99:TIME' --slo ttft:1s
for p in p p0 p101 pp 99 px; do
	ok "percentile '$p'" rate "slo 'ttft:$p:1s': want a percentile such as p50, p99 or p99.9" \
		--slo ttft:$p:1s
done
ok 'a metric that is none' rate \
	"slo 'itl:p99:1s': want a limit such as ttft:p99:500ms, of ttft, tpot or e2e" --slo itl:p99:1s
ok 'a limit without a time' rate "slo 'ttft:p99:': want a time such as 500ms after the colon" \
	--slo ttft:p99:
ok 'a limit given twice' rate 'slo names ttft twice; leave one out' --slo ttft:p9:1s,ttft:p9:2s
ok 'more limits than there is room for' rate 'slo has more than 8 limits; leave some out' \
	--slo ttft:p1:1s,ttft:p2:1s,ttft:p3:1s,ttft:p4:1s,ttft:p5:1s,ttft:p6:1s,ttft:p7:1s,ttft:p8:1s,e2e:p9:1s
ok 'a rate' rate 'the search sets rate; leave it out' $limit --rate 3
ok 'a time scale' rate 'time-scale has no effect, as the search sets the rate; leave it out' \
	$limit --time-scale 3
ok 'users' rate '--loop users does not use the times of the trace, so it has no rate to search for; '\
'replay --loop open or sessions' $limit --loop users
ok 'ends that are crossed' rate 'lowest 3 is above highest 2; swap them' $limit --lowest 3 --highest 2
ok 'a precision finer than the rates' rate "precision '0.001': want a number from 0.01 to 1" $limit \
	--precision 0.001
ok 'requests that arrive together' rate 'trace.csv: requests that arrive together have no rate; '\
'spread them with --spread' $limit --requests 1
ok 'a latency that no request has' fails 2 \
	'^attnreplay: rate 51.72: slo limits tpot, but no request has one; leave it out$' sh -c \
	'"$ATTNREPLAY" search rate --slo tpot:p50:1s '"$flat"' >/dev/null'
ok 'an option of run alone' rate "unknown option '--resume'; see --help" $limit --resume x.db
cost="search rate $limit $one --backend cost"
ok 'runs that are no numbers' wrong "costs 'costs.db:1,,2': want DB:RUN, or numbers and ranges of "\
'runs such as DB:1,4-6' $cost --costs costs.db:1,,2
ok 'a run that is not there, before the first search' fails 2 '^attnreplay: costs.db: no run 9' \
	"$ATTNREPLAY" $cost --costs costs.db:1,9
ok 'a bad method, before the first search' fails 2 "^attnreplay: method 'nope'" "$ATTNREPLAY" \
	search rate $limit $small --method dense,nope
chunk() { message=$1; shift; wrong "$message" search chunk $two "$@"; }
ok 'a chunk size' chunk 'the search sets max-num-batched-tokens; leave it out' --slo ttft:1s \
	--max-num-batched-tokens 64
ok 'a precision of chunk sizes' chunk \
	'precision has no effect on chunk sizes, which double; leave it out' --slo ttft:1s \
	--precision 0.1
ok '... or their intervals' chunk \
	'intervals has no effect on chunk sizes, which have no intervals; leave it out' --slo ttft:1s \
	--intervals off
ok 'half a token' chunk 'lowest 64.5, highest 16384: want chunk sizes, whole numbers from 1 to '\
'1073741824' --slo ttft:1s --lowest 64.5
ok 'a chunk size below the requests that run' chunk 'chunk 64: max-num-seqs 65 exceeds '\
'max-num-batched-tokens 64: some running requests would get no token; lower it' --slo ttft:1s \
	--max-num-seqs 65 --lowest 64
finish
