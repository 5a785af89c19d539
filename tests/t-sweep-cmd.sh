#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay sweep: plan, points with the cost backend, failures, signals, launchers.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99
mkdir local
export TMPDIR=$tmp/local USER=tester
unset SLURM_TMPDIR SLURM_ARRAY_TASK_ID SLURM_ARRAY_TASK_STEP PBS_ARRAY_INDEX LSB_JOBINDEX SGE_TASK_ID

cp "$srcdir/traces/samples/azure-2023-code-200.csv" t.csv
sweep() { "$ATTNREPLAY" sweep "$@"; }
value() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n 1; }
key() { sweep "$1" --plan --index "$2" | cut -f 2; }
states() { sweep "$@" --plan | cut -f 3 | sort | uniq -c | sed 's/^ *//'; }

cat >four.sweep <<'EOT'
# four points
trace = t.csv
requests = 10
backend = cost
max-num-batched-tokens = [512, 2k]
num-gpu-blocks = [4k, 8k]
EOT

# ---- plan ----

sweep four.sweep --plan >plan
is 'a plan has a line for each point' "$(cut -f 1,3,4 plan | tr '\t' ' ')" \
'0 todo attnreplay run --trace t.csv --requests 10 --backend cost --max-num-batched-tokens 512 --num-gpu-blocks 4k
1 todo attnreplay run --trace t.csv --requests 10 --backend cost --max-num-batched-tokens 512 --num-gpu-blocks 8k
2 todo attnreplay run --trace t.csv --requests 10 --backend cost --max-num-batched-tokens 2k --num-gpu-blocks 4k
3 todo attnreplay run --trace t.csv --requests 10 --backend cost --max-num-batched-tokens 2k --num-gpu-blocks 8k'
is '... with a key of its own' "$(cut -f 2 plan | grep -c '^[0-9a-f]\{32\}$')/$(cut -f 2 plan |
	sort -u | wc -l)" 4/4
is 'the number of points is printed' "$(sweep four.sweep --count)" 4
is 'a plan may be of some points' "$(sweep four.sweep --plan --index 1-2 | cut -f 1)" '1
2'
sed 's/^requests.*//; $a requests = 10' four.sweep >other.sweep
is 'keys do not depend on the order of lines' "$(sweep other.sweep --plan | cut -f 2)" \
	"$(cut -f 2 plan)"
printf '%s\n' "trace = it's.csv" 'backend = cost' 'ignore-eos' 'policy = sglang-0.5.21' \
	>quoted.sweep
cp t.csv "it's.csv"
is 'a plan quotes for the shell' "$(sweep quoted.sweep --plan | cut -f 4)" \
	"attnreplay run --trace 'it'\\''s.csv' --backend cost --ignore-eos --policy sglang-0.5.21"
odd=$(printf 'e\033[2J\342\200\256.csv')
cp t.csv "$odd"
printf '%s\n' "trace = $odd" 'backend = cost' >odd.sweep
command=$(sweep odd.sweep --plan | cut -f 4)
is '... what a terminal would obey, too' "$command" \
	"attnreplay run --trace 'e'\"\$(printf '\\033')\"'[2J'\"\$(printf '\\342\\200\\256')\"'.csv' --backend cost"
eval "set -- $command"
is '... as the shell reads it' "$4" "$odd"

# ---- points ----

ok 'one point runs' sweep four.sweep --out out --index 0
is '... into its database' "$(ls out | sort)" "$(key four.sweep 0).db
$(key four.sweep 0).log"
is '... which holds its run' "$(value "out/$(key four.sweep 0).db" \
	'SELECT status, length(run_key), num_blocks FROM run')" done,32,4000
ok '... with the output of the run beside it' grep -q '^policy    vllm-0.33, 512 tokens' \
	"out/$(key four.sweep 0).log"
is '... and is done in the plan' "$(states four.sweep --out out)" '1 done
3 todo'
SLURM_ARRAY_TASK_ID=1 sweep four.sweep --out out >log
is 'a task of an array runs its point' "$(cat log)" "1: $(key four.sweep 1) done"
is 'all points run' "$(sweep four.sweep --out out --all --jobs 2 | sort)" \
	"0: $(key four.sweep 0) is there
1: $(key four.sweep 1) is there
2: $(key four.sweep 2) done
3: $(key four.sweep 3) done
4 points: 2 done, 2 there already, 0 failed, 0 to do"
mkdir empty
cp "out/$(key four.sweep 0).db" empty/a.failed.db
touch empty/.db empty/.x.db empty/a.log
ok 'a folder without databases is named' says 3 'empty: no database NAME.db in this folder; name a '\
'database, or the folder of a sweep' "$ATTNREPLAY" report empty
cp empty/a.failed.db out
"$ATTNREPLAY" report out/ >folder
is 'the folder of a sweep is reported as its databases' "$(cat folder)" \
	"$(rm out/a.failed.db; "$ATTNREPLAY" report out/*.db)"
is '... beside others' "$("$ATTNREPLAY" report out "out/$(key four.sweep 0).db:1" --format json |
	grep -c '"latency"')" 1
ok '... and has several, for options of one' fails 2 '^attnreplay: --run is for one database' \
	"$ATTNREPLAY" report out --run 1
sum() { cat "$1"/*.db | sha256sum; }
before=$(sum out)
is 'a second call does nothing' "$(sweep four.sweep --out out --all | tail -1)" \
	'4 points: 0 done, 4 there already, 0 failed, 0 to do'
is '... and changes nothing' "$(sum out)" "$before"
is '... but may be forced' "$(sweep four.sweep --out out --index 2 --force)" \
	"2: $(key four.sweep 2) done"
is 'nothing is left where points ran' "$(ls local)" ''
is 'equal points have equal rows, whatever started them' "$(
	"$ATTNREPLAY" run --max-num-batched-tokens 2k --num-gpu-blocks 8k --backend cost \
		--requests 10 --trace t.csv --db alone.db >/dev/null 2>&1
	for db in alone.db "out/$(key four.sweep 3).db"; do
		"$ATTNREPLAY" sql --format csv $db 'SELECT * FROM iteration'
		"$ATTNREPLAY" sql --format csv $db 'SELECT * FROM request_outcome'
		"$ATTNREPLAY" sql --format csv $db 'SELECT run_key FROM run'
	done | sort | uniq -c | awk '$1 % 2' | wc -l)" 0
echo >>t.csv
is 'a changed input makes all points new' "$(states four.sweep --out out)" '4 todo'
cp "$srcdir/traces/samples/azure-2023-code-200.csv" t.csv
cp "out/$(key four.sweep 0).db" "out/$(key four.sweep 1).db"
is 'a database of other runs is not that of the point' "$(states four.sweep --out out)" '3 done
1 todo'
echo 'not a database' >"out/$(key four.sweep 1).db"
is '... nor is another file' "$(states four.sweep --out out)" '3 done
1 todo'
is '... it is replaced' "$(sweep four.sweep --out out --index 0-1 | tail -1)" \
	'2 points: 1 done, 1 there already, 0 failed, 0 to do'

# Several methods are runs of one database.
cat >cpu.sweep <<EOT
trace = cpu.csv
backend = cpu
model = niah-llama-14m
capture = $ATTNREPLAY_DATA/traces/samples/niah-2k.arc
sample-layers = 1
attention-only
accuracy = 0
method = dense,trishape:recent=256
EOT
head -n 2 t.csv | sed '2s/,.*/,300,1/' >cpu.csv
sweep cpu.sweep --out cpu --all >/dev/null
is 'a point of two methods has two runs, each with its key' "$(value cpu/*.db \
	"SELECT count(*), count(DISTINCT run_key) FROM run WHERE status = 'done'")" 2,2
is '... and is done' "$(states cpu.sweep --out cpu)" '1 done'
sed -i 's/recent=256/recent=512/' cpu.sweep
is '... until a parameter changes' "$(states cpu.sweep --out cpu)" '1 todo'

# Parts for methods are written out in their keys and names.
sed 's/^method.*/method = dense\ndecode = dense,streaming,recent=64/' cpu.sweep >parts.sweep
sweep parts.sweep --out parts --all >/dev/null
is 'a point of two parts has two runs' "$(value parts/*.db "SELECT group_concat(name, ' ') AS x
	FROM run JOIN method USING(method_id) WHERE status = 'done'")" \
	'"dense/decode=dense dense/decode=streaming,recent=64"'
is '... and is done' "$(states parts.sweep --out parts)" '1 done'

# Costs of a run stand for what it measured.
cat >costs.sweep <<EOT
trace = cpu.csv
backend = cost
costs = $(ls cpu/*.db):1
EOT
sweep costs.sweep --out costs --all >/dev/null
is 'a point with the costs of a run is done' "$(states costs.sweep --out costs)" '1 done'
echo 'attention-only' >>costs.sweep
is '... also if it says what these hold for' "$(states costs.sweep --out costs)" '1 done'
sed -i 's/:1$/:2/' costs.sweep
is '... but not with those of another run' "$(states costs.sweep --out costs)" '1 todo'

# Another file system: copied, then renamed.
fails_far() {
	TMPDIR=/dev/shm sweep four.sweep --out far --index 2 >log 2>err
	[ $? = 1 ] && grep -q 'cannot write: Is a directory; the database is /dev/shm/attn' err &&
		rm -r /dev/shm/attnreplay-tester-* && rmdir "far/$(key four.sweep 2).db" &&
		rm "far/$(key four.sweep 2).log"
}
if [ -w /dev/shm ] && [ "$(stat -c %d /dev/shm)" != "$(stat -c %d .)" ]; then
	is 'a database moves to another file system' \
		"$(TMPDIR=/dev/shm sweep four.sweep --out far --index 3)" "3: $(key four.sweep 3) done"
	is '... whole' "$(value "far/$(key four.sweep 3).db" 'SELECT count(*) FROM request_outcome')" 10
	mkdir -p "far/$(key four.sweep 2).db"
	ok '... a database that cannot be put there stays' fails_far
	is '... and alone' "$(ls far | wc -l; ls /dev/shm | grep -c attnreplay-tester)" '2
0'
else
	skip 'a database moves to another file system' 'there is one file system'
fi

# ---- indexes ----

there() { # there INDEX VARIABLE=VALUE...: the point that a launcher's variables choose
	want=$1
	shift
	[ "$(env "$@" "$ATTNREPLAY" sweep four.sweep --out out)" = "$want: $(key four.sweep $want) is there" ]
}
ok 'the index is that of Slurm'   there 3 SLURM_ARRAY_TASK_ID=3 PBS_ARRAY_INDEX=1
ok '... of PBS'                   there 0 PBS_ARRAY_INDEX=0
ok '... of LSF, from 1'           there 2 LSB_JOBINDEX=3
ok '... of SGE, from 1'           there 1 LSB_JOBINDEX=0 SGE_TASK_ID=2
is 'the offset is added' "$(SLURM_ARRAY_TASK_ID=1 sweep four.sweep --out out --offset 2)" \
	"3: $(key four.sweep 3) is there"
is 'an index above the last point is no error' "$(sweep four.sweep --out out --index 4; echo $?)" \
	'the points of four.sweep are 0 to 3; nothing to do
0'
is 'a range ends with the last point' "$(sweep four.sweep --out out --index 3-9)" \
	"3: $(key four.sweep 3) is there"
ok 'no index is an error' says 2 'give --index, --all or start it as a Slurm array' \
	sweep four.sweep --out out
ok '... outside of an array of SGE, too' says 2 \
	'give --index, --all or start it as a Slurm array' \
	env SGE_TASK_ID=undefined "$ATTNREPLAY" sweep four.sweep --out out
ok 'a negative index is an error' says 2 "index '-1': want a number from 0, or A-B" \
	sweep four.sweep --out out --index -1
ok '... and one that is no number' says 2 "SLURM_ARRAY_TASK_ID 'x': want a number; give --index" \
	env SLURM_ARRAY_TASK_ID=x "$ATTNREPLAY" sweep four.sweep --out out

# ---- wrong usage ----

while IFS='|' read -r message args; do
	ok "sweep $args is refused" says 2 "$message" sweep $args
done <<'END'
no file given; name the file of the sweep|--plan
unexpected operand 'x'; sweep takes one file|four.sweep x
no folder for the databases; name one with --out|four.sweep --all
--plan and --count both print; give one of them|four.sweep --plan --count
--index and --all both choose; give one of them|four.sweep --out out --index 1 --all
offset has no effect with --all; leave it out|four.sweep --out out --all --offset 1
jobs has no effect with --plan; leave it out|four.sweep --plan --jobs 2
force has no effect with --count; leave it out|four.sweep --count --force
out has no effect with --count; leave it out|four.sweep --count --out out
END
point_fails() { # point_fails STATUS MESSAGE LINE...: the plan of a file with these lines
	want=$1 message=$2
	shift 2
	printf '%s\n' 'trace = t.csv' "$@" >bad.sweep
	says "$want" "bad.sweep: point 0: $message" sweep bad.sweep --plan
}
ok 'options of a point must go together' point_fails 2 \
	'max-num-seqs 64 exceeds max-num-batched-tokens 32: some running requests would get no token; lower it' \
	'backend = cost' 'max-num-seqs = 64' 'max-num-batched-tokens = 32'
ok '... and have an effect' point_fails 2 'model has no effect with backend cost; leave it out' \
	'backend = cost' 'model = llama-3.1-8b'
ok '... and name a backend' point_fails 2 \
	"backend 'auto': points may run on several machines; add 'backend = cuda', cpu or cost"
ok 'inputs of a point are needed for its key' point_fails 3 'no.arc: No such file or directory' \
	'backend = cpu' 'model = niah-llama-14m' 'capture = no.arc'
ok 'a method must exist' point_fails 2 "method 'nosuch': unknown name: want one that 'attnreplay methods' lists, or select=NAME/union=NAME/exec=NAME" \
	'backend = cpu' 'model = niah-llama-14m' 'method = nosuch'
echo x >file
ok 'the folder must be one' fails 1 'file/.*: cannot write: Not a directory' \
	sweep four.sweep --out file --index 0
ok '... that can be made' says 1 'no/out: cannot make the folder: No such file or directory' \
	sweep four.sweep --out no/out --index 0
mkdir -p full/$(key four.sweep 0).db
taken() { sweep four.sweep --out full --index 0 >log 2>err
	[ $? = 1 ] && grep -q "^attnreplay: full/$(key four.sweep 0).db: cannot write: Is a directory; the database is $TMPDIR/attnreplay-tester-" err &&
		rm -r local/attnreplay-tester-*; }
ok 'a database that cannot be put there is named' taken
no_local() { TMPDIR=$tmp/none fails 1 "none/attnreplay-tester-.*: cannot make this folder" \
	sweep four.sweep --out full --index 1; }
ok 'a folder for databases that is not there is named' no_local

# ---- failures ----

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,x,1' >broken.csv
sed 's/^trace.*/trace = [broken.csv, t.csv, no.csv]/; /^num/d' four.sweep >six.sweep
failing() { # failing WANT OPTION...: the last line of a sweep with a point that cannot run
	want=$1
	shift
	sweep six.sweep --out bad --all "$@" >log 2>err
	[ $? = 3 ] || { cat log err; return 1; }
	[ "$(tail -1 log)" = "$want" ] || { tail -1 log; return 1; }
}
ok 'a point that fails ends the sweep' failing '6 points: 0 done, 0 there already, 1 failed, 5 to do'
bad=$(sed -n 's/.*; bad\/\(.*\).log says why$/\1/p' err)
is '... with a message' "$(cat err)" \
	"attnreplay: six.sweep: point 0 ended with exit status 3; bad/$bad.log says why"
ok '... and the reason beside its place' grep -q "^attnreplay: broken.csv:2: " "bad/$bad.log"
ok 'the others run where that is wanted' failing \
	'6 points: 2 done, 0 there already, 4 failed, 0 to do' --keep-going
is '... and each failure is told' "$(sort err)" \
	"attnreplay: six.sweep: point 0 ended with exit status 3; bad/$bad.log says why
$(sort err | sed -n 2p | grep 'point 1 ended')
attnreplay: six.sweep: point 4: no.csv: No such file or directory
attnreplay: six.sweep: point 5: no.csv: No such file or directory"
is '... of all that failed nothing is left' "$(ls local; ls bad | grep -c 'db$')" 2

# ---- signals ----

awk 'BEGIN { print "TIMESTAMP,ContextTokens,GeneratedTokens"
	for (i = 0; i < 256; i++) print "2023-11-16 18:00:00,500,1000000" }' >endless.csv
sed 's/^trace.*/trace = endless.csv/; /^requests/d; s/^num-gpu.*/block-size = 256K/' \
	four.sweep >long.sweep
stored() { # stored PATTERN: an iteration of a run that goes on
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		[ "$(value $1 'SELECT count(*) > 0 FROM iteration' 2>/dev/null)" = 1 ] && return
		sleep 0.3
	done
	return 1
}
started() { # a sweep of two points in the background, each with iterations in its database
	$catchable "$ATTNREPLAY" sweep long.sweep --out long --all --jobs 2 >log 2>err &
	pid=$!
	stored "local/attnreplay-tester-*/$(key long.sweep 0).db" &&
		stored "local/attnreplay-tester-*/$(key long.sweep 1).db"
}
for s in INT TERM; do
	ok "$s: two points run" started
	is '... in folders that are their own' "$(stat -c %a local/attnreplay-tester-*/ | sort -u)" 700
	kill -s $s $pid
	wait $pid
	is '... and end with the sweep' "$? $(cat err log)" \
		'1 attnreplay: interrupted; the same command runs the missing points
2 points: 0 done, 0 there already, 0 failed, 2 to do'
	is '... their iterations are kept' "$(for k in 0 1; do
		value "long/$(key long.sweep $k).failed.db" 'SELECT status, (SELECT count(*) > 0
			FROM iteration) AS n FROM run'; done)" 'aborted,1
aborted,1'
	is '... in one file each' "$(ls local; ls long | grep -c '[.]db')" 2
	rm -r long
done
started || echo 'Bail out! no sweep'
for child in $(cat "/proc/$pid/task/$pid/children"); do
	if tr '\0' ' ' <"/proc/$child/cmdline" | grep -q "$(key long.sweep 0)"; then
		kill -s KILL "$child"
	else
		other=$child
	fi
done
for i in 1 2 3 4 5 6 7 8 9 10; do [ -e "long/$(key long.sweep 0).failed.db" ] && break; sleep 0.3; done
is 'a run that is killed leaves what it stored' "$(value "long/$(key long.sweep 0).failed.db" \
	'SELECT status, (SELECT count(*) > 0 FROM iteration) AS n FROM run')" aborted,1
kill -s TERM $other
wait $pid
is '... and ends the sweep, as its message says' "$? $(sort err)" \
	"1 attnreplay: long.sweep: point 0 ended by signal 9; long/$(key long.sweep 0).log says why
attnreplay: long.sweep: point 1 ended with exit status 1; long/$(key long.sweep 1).log says why"
is '... and nothing else' "$(ls local)" ''
sed 's/^trace.*/trace = none.csv/' long.sweep >none.sweep
if command -v sqlite3 >/dev/null; then
	ok 'two points run while somebody reads a database' started
	db=$(ls local/*/"$(key long.sweep 0).db")
	mkfifo hold
	sqlite3 "$db" <hold >held &
	exec 9>hold
	echo 'BEGIN; SELECT count(*) > 0 FROM iteration;' >&9
	for i in 1 2 3 4 5 6 7 8 9 10; do [ -s held ] && break; sleep 0.3; done
	kill -s TERM $pid
	wait $pid
	is '... its log cannot be taken in, and it stays' "$(sort err; ls local/*/*.db)" \
		"attnreplay: $tmp/$db: in use by another program; end it, and copy the file
attnreplay: interrupted; the same command runs the missing points
$db"
	sweep none.sweep --all --out none >/dev/null 2>&1
	is '... through the next sweep' "$(ls local/*/*.db)" "$db"
	exec 9>&-
	rm -r local/*
else
	skip 'a database that somebody reads stays' 'no sqlite3'
fi
started || echo 'Bail out! no sweep'
dirs=$(ls -d "$tmp"/local/*)
mkdir local/attnreplay-tester-other1 local/attnreplay-tester-empty1 local/attnreplay-tester-longer1
touch local/attnreplay-tester-other1/a.db local/attnreplay-tester-other1/b.txt \
	local/attnreplay-tester-longer1/a.db
sweep none.sweep --all --out none >/dev/null 2>err
is 'folders of a sweep that runs stay' "$(ls -d $dirs 2>&1; grep -c left err)" "$dirs
0"
kill -s KILL $pid
wait $pid
for i in 1 2 3 4 5 6 7 8 9 10; do
	ps -e -o args | grep -q "[a]ttnreplay run --db $tmp/local" || break
	sleep 0.3
done
sweep none.sweep --all --out none >/dev/null 2>err
is 'those of one that was killed are removed by the next' "$(sort err | grep -v none)" \
	"$(for d in $dirs; do
		echo "attnreplay: warning: $d: left by a sweep that was killed; removed"; done)"
is '... and no other' "$(ls local)" 'attnreplay-tester-empty1
attnreplay-tester-longer1
attnreplay-tester-other1'
rm -r local/*
sed -i 's/^trace.*/trace = t.csv/; $a requests = 5' long.sweep
is 'the same points run later' "$(sweep long.sweep --out long --all | tail -1)" \
	'2 points: 2 done, 0 there already, 0 failed, 0 to do'

# ---- launchers ----

if command -v parallel >/dev/null && parallel --version 2>/dev/null | grep -q GNU; then
	seq 0 3 | parallel -j2 "$ATTNREPLAY" sweep four.sweep --out parallel --index {} >/dev/null 2>&1
	is 'GNU parallel runs the points' "$(states four.sweep --out parallel)" '4 done'
else
	skip 'GNU parallel runs the points' 'no GNU parallel'
fi
seq 0 3 | xargs -P2 -I{} "$ATTNREPLAY" sweep four.sweep --out xargs --index {} >/dev/null 2>&1
is 'xargs runs the points' "$(states four.sweep --out xargs)" '4 done'
finish
