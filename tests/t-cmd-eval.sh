#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay eval: a tiny random model on prompts whose answers are known.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

mkdir model
"$(dirname "$ATTNREPLAY")/tests/make-tasks" model || { echo 'Bail out! no model'; exit 1; }
mv model/tasks.jsonl .
# The formula moves the clock, so that chunks do not depend on how fast this machine is.
# With as many blocks as an H100 holds of this model, the sanitizer would write 100 MB at each replay.
blocks='--num-gpu-blocks 1000'
eval_plain() { "$ATTNREPLAY" eval --backend cpu --clock formula --max-num-batched-tokens 128 $blocks "$@"; }
tiny() { eval_plain --weights model --tasks tasks.jsonl "$@"; }
query() { # query DB SELECT: the rows; the header is the query itself, so it stands in one line
	"$ATTNREPLAY" sql --format csv "$1" "$(printf %s "$2" | tr "\n" " ")" | tail -n +2
}
bad() { message=$1; shift; says 3 "$message" "$@"; }
wrong() { message=$1; shift; says 2 "$message" "$@"; }

# ---- what runs ----

ok 'parts for decodes are evaluated' tiny --method dense --decode dense,streaming,sink=4,recent=16 \
	--accuracy 1 --db parts.db
is '... and compared with dense decodes' \
	"$(query parts.db 'SELECT run_id, half, max(rel_l2) > 0 AS x FROM accuracy_sample GROUP BY 1, 2')" \
	"1,prefill,0
2,decode,1
2,prefill,0"
is '... as their answers are' "$(query parts.db 'SELECT kl > 0 AS x FROM eval_prompt GROUP BY 1')" \
	"0
1"

# alpha 0 selects all, 1 what is as good as the best block; without sink, window and dense blocks.
all=compact-fp:alpha=0 few=compact-fp:alpha=1,sink=1,window=1,dense-first=0
ok 'methods are evaluated, dense first' tiny --method "$few,$all" --accuracy 1 --db a.db --json a.json
tiny --method "$few,$all" --accuracy 1 --loop users >out 2>err
is '... without a word' "$(cat err)" ''
is 'the runs are three' "$(query a.db 'SELECT run_id, method, status FROM v_run')" \
	"1,dense,done
2,\"$few\",done
3,$all,done"
is 'dense attention gives the answers that the forward pass gave' \
	"$(query a.db "SELECT task, sum(exact), sum(expected), count(*) FROM eval_prompt
		WHERE run_id = 1 GROUP BY task" | tr '\n' ' ')" 'right,3,2,3 wrong,0,0,3 '
is '... and so does a method that selects all, token by token' \
	"$(query a.db "SELECT count(*), sum(a.logprob = b.logprob AND a.kl = 0 AND a.rank = b.rank
		AND a.best = b.best) FROM eval_token a JOIN eval_token b USING(req_no, out_no)
		WHERE a.run_id = 3 AND b.run_id = 1")" 24,24
is 'one that selects few is another model' \
	"$(query a.db 'SELECT count(*) FROM eval_token a JOIN eval_token b USING(req_no, out_no)
		WHERE a.run_id = 2 AND b.run_id = 1 AND (a.logprob = b.logprob OR NOT a.kl > 0)
		AND req_no IN (0, 2, 3)')" 0
is '... but for a prompt of one chunk' \
	"$(query a.db 'SELECT count(*) FROM eval_token WHERE run_id = 2 AND req_no IN (4, 5)
		AND kl <> 0')" 0
is 'KL of a prompt is the sum over its tokens, as is the rest' \
	"$(query a.db 'SELECT count(*) FROM eval_prompt p JOIN (SELECT run_id, req_no,
		sum(kl) AS kl, sum(logprob) AS logprob, sum(rank = 0) AS n_best FROM eval_token
		GROUP BY run_id, req_no) t USING(run_id, req_no) WHERE abs(p.kl - t.kl) < 1e-12
		AND abs(p.logprob - t.logprob) < 1e-9 AND p.n_best = t.n_best')" 18
is 'the answers are the gold tokens, whatever the model chose' \
	"$(query a.db 'SELECT count(*) FROM eval_token t JOIN eval_token d USING(req_no, out_no)
		WHERE d.run_id = 1 AND t.gold <> d.gold')" 0
is 'latency is that of the same run' \
	"$(query a.db 'SELECT count(*) FROM v_eval WHERE ttft_ms > 0 AND executed > 0')" 18
is 'each method has its dense run' "$(query a.db 'SELECT run_id, baseline_run_id FROM run
	WHERE baseline_run_id IS NOT NULL')" '2,1
3,1'

# ---- ranks ----

ranks() {
	ATTNREPLAY_NCCL=$(dirname "$ATTNREPLAY")/tests/fake_nccl.so "$ATTNREPLAY" eval --backend cpu \
		--clock formula --max-num-batched-tokens 128 $blocks --weights model --tasks tasks.jsonl --tp 2 "$@"
}
ok 'all ranks of a model are evaluated' ranks --ranks local --method "$few" --db ranks.db
is '... in runs of their own' "$(query ranks.db 'SELECT run_id, method, status FROM v_run')" \
	"1,dense,done
2,\"$few\",done"
likely() { # likely DB: the mean log-probability of a token in hundredths, of dense attention and the method
	query "$1" "SELECT CAST(round(100 * avg(logprob)) AS INTEGER) AS n FROM eval_token
		JOIN v_run USING(run_id) WHERE method IN ('dense', '$few') GROUP BY run_id" | tr '\n' ' '
}
near() { awk -v a="$1" -v b="$2" 'BEGIN { n = split(a, x); m = split(b, y); bad = n != 2 || m != 2
	for (i in x) bad += (x[i] - y[i]) ^ 2 > 4; exit bad > 0 }'; }
ok '... whose tokens are about as likely as with one rank' near "$(likely a.db)" "$(likely ranks.db)"
ok 'ranks of a launcher have no answers' wrong 'ranks env: answers are those of ranks of this host; give --ranks local' \
	ranks --ranks env

# ---- what is printed ----

line() { sed -n '/^Answers, those lost/,$p' out | grep "^$1 "; }
ok 'the table has dense attention' grep -Eq '^dense +6 +3 +- +- +- +-[0-9.]+ +- +- +1.000 +1.0000 +[0-9.]+$' out
ok '... and methods against it' \
	grep -Eq "^$few +6 +[0-9] +[0-9] +[0-9] +[01].[0-9]+ +-[0-9.]+ +-?[0-9.]+ +0.[0-9]*[1-9]" out
is '... one that selects all loses nothing' "$(line "$all" | awk '{ print $4, $5, $6, $8, $9 }')" \
	'0 0 1.0000 0.0000 0.0000'
is 'what the file says of dense attention is compared' "$(tail -n 1 out)" \
	'dense attention agrees with "ok" in 4 of 4 answers; it alone has 0, the file alone 0'
ok 'where dense attention has few answers itself, that is said' \
	grep -qx 'weak: dense attention itself gives 3 of 6 answers, less than 60 %, so methods have little to lose' out
if command -v python3 >/dev/null; then
	json() { python3 -c 'import json
runs = json.load(open("a.json"))["runs"]
e = [r["eval"] for r in runs]
assert [x["prompts"] for x in e] == [6, 6, 6] and e[0]["exact"] == 3, e
assert e[0]["expected"] == {"answers": 4, "agree": 4, "only_here": 0, "only_in_file": 0}
assert e[1]["expected"] is None and e[1]["kl"] > 0 and e[1]["executed"] < 1, e[1]
assert e[2]["kl"] == 0 and e[2]["logprob_diff"] == 0 and e[2]["mcnemar_p"] == 1, e[2]'; }
	ok 'json has the same figures' json
else
	skip 'json has the same figures' 'no python3'
fi

is 'standard output has the inputs once, then the table' \
	"$(sed 's/ .*//' out | tr '\n' ' ')" "trace arrivals model weights prompts policy defaults blocks \
memory backend clock host  Answers, logprob, method dense $few $all weak: dense "

# ---- a dropper ----

half=dense+lazyllm:layers=0:0.5
tiny --method "$half" --accuracy 1 --db drop.db --json drop.json >out
is 'runs have their numbers in the database' "$(awk '/^ +[0-9]/ { print $1, $2 }' out)" "1 dense
2 $half"
is 'what a dropper leaves is what is executed' \
	"$(query drop.db "SELECT count(*), sum(abs(executed - (SELECT
		sum(n_pairs) * 1.0 / count(*) / max(n_pairs)
		FROM run_layer WHERE run_id = 2)) < 1e-12), max(executed) < 0.9
		FROM v_eval WHERE run_id = 2")" 6,6,1
is '... in the table as well' "$(awk '$1 == 2 { print $11 }' out)" \
	"$(query drop.db "SELECT printf('%.3f', pairs) FROM v_kept WHERE run_id = 2")"

# ---- decodes ----

tiny --method dense/decode=quest,budget=64,dense/evict=streaming,sink=4,recent=60 --accuracy-decode 1 \
	--db decode.db >out
is 'of a method of decodes they are what is executed' "$(awk '$1 == 2 { print ($(NF - 2) < 1) }' out)" 1
is '... but not known where keys are gone' "$(awk '$1 == 3 { print $(NF - 2), $(NF - 1) }' out)" '- -'
is '... in the view, too' "$(query decode.db 'SELECT run_id, max(executed) < 1 FROM v_eval
	GROUP BY run_id' | tr '\n' ' ')" '1,0 2,1 3, '

# ---- the report ----

"$ATTNREPLAY" report a.db >report
ok 'the report has answers by task and length' grep -Eq \
	'^ +1  dense +right +300 +1 +100.000 +100.000 +-[0-9.]+ +-[0-9.]+ ' report
ok '... says where dense attention answers little' grep -Eq '^ +2 .* wrong .* dense below 60 %$' report
ok '... has paired tests' grep -Eq '^ +3  compact-fp:alpha=0 +1  all +6 +0 +0 +1.0000 ' report
is '... and the change of each prompt, as six are too few for an interval' "$(awk '$1 == 2 && $4 == "all" {
	for (i = 11; i <= NF; i++) sum += $i
	print NF - 10, (sum / 6 - $9) ^ 2 < 1e-8 }' report)" '6 1'
ok '... says that chunks belong to the result' grep -q 'in chunks of at most 128 tokens' report
ok '... and which figure of single layers predicts the loss' test "$("$ATTNREPLAY" report a.db |
	grep -c '^Rank correlation')" = 0
ok 'the page has the curve' "$ATTNREPLAY" report --html a.html a.db
ok '... with dense attention at 100 %' grep -q 'dense: 100.0 % executed' a.html

# ---- which prompts ----

n_prompts() { query "$1" "SELECT count(*), min(req_no), group_concat(DISTINCT task)
	FROM eval_prompt WHERE run_id = 1"; }
tiny --type right --db type.db >out || exit 99
is '--type keeps the prompts of a task' "$(n_prompts type.db)" 3,0,right
ok '... dense attention has enough of those' test "$(grep -c '^weak' out)" = 0
is '... and they are answered as before' "$(query type.db 'SELECT sum(exact) FROM eval_prompt')" 3
tiny --longest-prompt 300 --skip-requests 1 --db short.db >out || exit 99
is '--longest-prompt and others choose prompts' "$(query short.db 'SELECT req_no, length, exact
	FROM eval_prompt')" '0,300,0
1,90,1
2,90,0'
tiny --spread even --spread-step 1ms --rate 100 --db rate.db >out 2>/dev/null || exit 99
is 'prompts can arrive at a rate' "$(query rate.db 'SELECT sum(exact), max(arrival_ns) > 0
	FROM eval_prompt JOIN request_outcome USING(run_id, req_no)')" 3,1
gzip -c tasks.jsonl >tasks.jsonl.gz
ok 'tasks may be compressed' eval_plain --weights model --tasks tasks.jsonl.gz
for policy in sglang-0.5.21 trtllm-no-evict-1.2; do
	tiny --policy $policy --db policy.db >out || exit 99
done
is 'answers do not depend on the policy' "$(query policy.db 'SELECT run_id, count(*), sum(exact)
	FROM eval_prompt GROUP BY run_id')" '1,6,3
2,6,3'
tiny --num-gpu-blocks 36 --max-num-batched-tokens 64 --db few.db >out || exit 99
is '... nor on preemptions' "$(query few.db 'SELECT count(*), sum(exact) FROM eval_prompt')" 6,3

# ---- one kept apart ----

mkdir ro && chmod 555 ro
TMPDIR=$tmp/none tiny --method $all >out 2>err
ok 'where logits cannot be kept, a warning says so' grep -q \
	"none: the logits of dense attention take 0.00672 MB, which cannot be kept: .*; KL is left out" err
is '... and KL is not known' "$(sed -n '/^Answers/,$p' out | awk '/^compact/ { print $8, $9 }')" \
	'0.0000 -'

# ---- refusals ----

ok 'tasks are needed' wrong 'no tasks given; name a file of prompts and answers with --tasks' \
	eval_plain --weights model
ok '... and weights' wrong 'no weights given; name the folder of a model with --weights' \
	eval_plain --tasks tasks.jsonl
ok 'the trace is the tasks' wrong \
	'trace has no effect: prompts and answers are those of --tasks; leave it out' tiny --trace x.csv
ok 'one rank of several answers nothing' wrong \
	'tp 2: one rank alone has partial sums, so its answers are of no model; give --ranks local, or leave --tp out' \
	tiny --tp 2
ok 'a backend without logits is refused' wrong \
	'weights has no effect with backend cost; leave it out' \
	"$ATTNREPLAY" eval --backend cost --weights model --tasks tasks.jsonl
ok 'a task that there is not' wrong \
	"tasks.jsonl: no request is of type 'qa'; the types are: right, wrong" tiny --type qa
: >empty.jsonl
ok 'a file without prompts' bad 'empty.jsonl: the file has no prompts' \
	eval_plain --weights model --tasks empty.jsonl
line_of() { printf '{"prompt":[1,2],"answer":[3]}\n%s\n' "$1" >bad.jsonl; }
odd() { bad "$1" eval_plain --weights model --tasks bad.jsonl; }
line_of '{"prompt":[1,2]}'
ok 'a prompt without an answer' odd 'bad.jsonl:2: the record lacks "answer"'
line_of '{"prompt":[1,2],"answer":[]}'
ok '... or with an empty one' odd 'bad.jsonl:2: "answer" is empty; want a token at least'
line_of '{"prompt":[1,2],"answer":[3,70]}'
ok 'an id past the vocabulary' odd "bad.jsonl:2: token 1 of the answer is 70, but the \
vocabulary has 70; encode it with the model's tokenizer"
line_of "{\"prompt\":[0$(printf ',%s' $(seq 1 69) $(seq 1 69) $(seq 1 69) $(seq 1 69) $(seq 1 69) \
	$(seq 1 69) $(seq 1 69) $(seq 1 69) $(seq 1 69) $(seq 1 69) $(seq 1 69) $(seq 1 39))],\"answer\":[1,2]}"
ok "a prompt over the model's length" odd 'bad.jsonl:2: prompt and answer have 801 tokens, but the model '\
'or --max-model-len allows 800; leave it out with --longest-prompt'
ok '... can be left out' eval_plain --weights model --tasks bad.jsonl --longest-prompt 500
ok 'a prompt that is cut is none of the file' wrong 'tasks.jsonl:1: the prompt has 300 tokens and the '\
'answer 3, but the run 100 and 3; leave out the options that change lengths' tiny --max-prompt-tokens 100
ok '--json and --db name two files' wrong 'a.db: given for two outputs; name another file' \
	tiny --db a.db --json a.db

# ---- twelve methods at three settings each ----

script=$srcdir/contrib/eval_methods.sh
[ -e "$script" ] || { finish; exit; }
methods() { ATTNREPLAY=$ATTNREPLAY LAYERS=0+1 sh "$script" ev --weights model --tasks tasks.jsonl \
	--backend cpu --max-num-batched-tokens 128 --requests 2 --accuracy 1; }
is 'a script lists 36 methods' "$(sh "$script" list | grep -c '^[a-z].*[:,=]')" 36
ok '... and evaluates them' methods
is '... dense, and 36 settings' "$(query ev/eval.db "SELECT count(*), sum(status = 'done'),
	count(DISTINCT name) FROM run JOIN method USING(method_id)")" 37,37,37
is '... of twelve methods' "$(query ev/eval.db "SELECT count(DISTINCT substr(name, 1,
	instr(name, ':'))) FROM method WHERE NOT is_dense")" 12
ok '... the figures of single layers are ranked' \
	grep -Eq '^mean recall +30 +-?[01]\.[0-9]+ +-?[01]\.[0-9]+ ' ev/report.txt
ok '... tables come with their notes' grep -q '^tasks: prompts are prefilled' ev/report.txt
ok '... and the page has the curve' grep -q 'nats a token' ev/report.html
finish
