#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --resume: the methods that a command did not finish.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	for i in 1 2 3; do echo "2023-11-16 18:00:0$i.0,300,9"; done
} >trace.csv
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	echo 2023-11-16 18:00:01.0,100,100000000
} >endless.csv
cp "$ATTNREPLAY_DATA/model/presets/niah-llama-14m.json" model.json
plan='0-3:dense;4-:flashprefill:alpha=0.3' # the layer that runs is 4
echo '0- compact-fp' >layers
sed "/_spread\"/d; s/\": [1-9][0-9]*,\{0,1\}$/\": 0,/; s/\"update_request_ns.*/\"update_request_ns\": 5/" \
	"$ATTNREPLAY_DATA/replay/host/presets/vllm-0.24.json" >host.json
cp "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" sample.arc
methods="dense,plan=layers,$plan"
exec=
run() { $exec "$ATTNREPLAY" run "$@"; }
cpu() { run --backend cpu --trace trace.csv --model model.json --sample-layers 1 \
	--capture sample.arc --host host.json --clock formula --cost-fixed 1.5ms \
	--policy sarathi --watermark 0 --max-num-batched-tokens 64 --page-size 128 \
	--accuracy 0.2 --seed 3 "$@"; }
query() { # query DB SELECT: the rows; the header is the query itself, so it stands in one line
	"$ATTNREPLAY" sql --format csv "$1" "$(printf %s "$2" | tr '\n' ' ')" | tail -n +2
}
copy() { # copy FROM TO: a database and its log
	cp "$1.db" "$2.db"
	[ ! -e "$1.db-wal" ] || cp "$1.db-wal" "$2.db-wal"
}

# ---- a command that is killed while its second method runs ----

ok 'three methods run undisturbed' cpu --method "$methods" --db whole.db
is '... which belong to one process' "$(query whole.db 'SELECT count(DISTINCT pid) FROM run')" 1
killed() {
	{ exec=exec; cpu --method "$methods" --db killed.db --json killed.json --slo ttft:1s >out 2>&1; } &
	pid=$!
	until [ "$(query killed.db 'SELECT count(*) FROM run' 2>/dev/null)" = 2 ]; do
		kill -s 0 $pid || return
		sleep 0.02
	done
	kill -s KILL $pid
	wait $pid
	[ $? = 137 ] && [ "$(query killed.db 'SELECT max(run_id) FROM run')" = 2 ]
}
ok 'three methods are killed in the second' killed
is '... after the first' "$(query killed.db 'SELECT run_id, status FROM run')" '1,done
2,running'
copy killed older
first='SELECT * FROM run WHERE run_id = 1'
before=$(query killed.db "$first")
resumed() {
	"$ATTNREPLAY" -q run --resume killed.db --json resumed.json >out 2>err || return
	cat out err
	head -n 1 out | grep -q '^resumed   run 1 of killed.db: dense is done, plan=layers will run, '\
"$plan will run$" && [ ! -s err ]
}
ok 'the others run when the command is resumed' resumed
is '... and are stored beside the one that was cut' \
	"$(query killed.db 'SELECT run_id, status, method, baseline_run_id FROM v_run')" \
	"1,done,dense,
2,aborted,plan=layers,1
3,done,plan=layers,1
4,done,$plan,1"
is '... which leaves the first as it was' "$(query killed.db "$first")" "$before"
is '... with the options of the command' "$(query killed.db "SELECT count(DISTINCT setup),
	count(DISTINCT command_utc_ns), max(json_extract(options, '$.slo')) FROM run")" 1,1,ttft:1s
is '... but a file of its own for --json' "$(ls ./*.json | tr '\n' ' ')" './host.json ./model.json ./resumed.json '
is '... which has the methods that ran' "$(grep -c '^{.*"run_id":[34],' resumed.json)" 2
same() { # same TABLE COLUMNS: of the methods, whether or not there was an interruption
	query whole.db "SELECT run_id, $2 FROM $1 ORDER BY 1, 2, 3" >want
	query killed.db "SELECT CASE run_id WHEN 1 THEN 1 ELSE run_id - 1 END, $2 FROM $1
		WHERE run_id <> 2 ORDER BY 1, 2, 3" >got
	[ "$(wc -l <want)" -gt 2 ] && cmp want got
}
ok '... iterations are those of an undisturbed command' same iteration \
	'iter_no, start_ns, end_ns, batch_size, blocks_used, waiting, running, composition'
ok '... so are outcomes' same request_outcome \
	'req_no, outcome, first_sched_ns, first_token_ns, finish_ns, n_chunks, n_preempt'
ok '... and what was compared with dense attention' same accuracy_sample \
	'iter_no, layer, req_no, head, rel_l2'
ok '... and the pools' same run 'num_blocks, layers_run, policy, seed'

# ---- which command ----

resume() { run --resume "$@"; }
ok 'with all methods done nothing is left' says 2 \
	'killed.db: every method of every command is done; there is nothing to resume' \
	resume killed.db
ok '... nor for the run that was cut' says 2 'killed.db: every method of the command of run 2 '\
'is done; there is nothing to resume' resume killed.db:2
ok 'a run that is not there' says 2 "killed.db: no run 9; 'attnreplay report killed.db' lists the \
runs" resume killed.db:9
ok 'run 0' says 2 'killed.db:0: runs are numbered from 1' resume killed.db:0
ok 'a database that is not there' says 3 'none.db: No such file or directory' resume none.db
is '... and is not made' "$(ls none.db 2>/dev/null)" ''
ok 'a text is no database' says 3 'trace.csv: file is not a database; name another file' \
	resume trace.csv
gzip -dc "$srcdir/tests/data/version-5.db.gz" >five.db
sum=$(cksum <five.db)
ok 'an older attnreplay stored no commands' says 2 'five.db: run 1 was imported from an engine, or '\
'an older attnreplay stored it without its command; it cannot be resumed' resume five.db:1
ok '... so none is found' says 2 \
	'five.db: every method of every command is done; there is nothing to resume' resume five.db
is '... and the file is left as it is' "$(cksum <five.db)" "$sum"
copy older two
ok 'a later command that is done is no reason to stop' run --backend cost --trace trace.csv --db two.db
ok '... before one that is not' says 2 "with --resume, option 'seed' comes from run 1 of two.db; leave \
it out" resume two.db --seed 3
if command -v sqlite3 >/dev/null; then
	sqlite3 two.db "UPDATE run SET status = 'failed' WHERE run_id = 3"
	ok 'a command without methods is resumed as well' resume two.db:3
	is '... at the same times' "$(query two.db 'SELECT status, (SELECT max(end_ns) FROM iteration
		WHERE run_id = r.run_id) = (SELECT max(end_ns) FROM iteration WHERE run_id = 3)
		FROM run r WHERE run_id > 2')" 'failed,1
done,1'
else
	skip 'a command without methods is resumed as well' 'no sqlite3'
	skip '... at the same times' 'no sqlite3'
fi

# ---- the same inputs and options ----

changed() { # changed FILE WORD EDIT: FILE is another one, then as before
	cp "$1" kept
	sed "$3" kept >"$1"
	says 3 "$1: changed since run 1 of older.db, which cannot be resumed without its $2" \
		resume older.db
	status=$?
	cp kept "$1"
	return $status
}
ok 'another trace is refused' changed trace.csv trace '$s/9$/8/'
ok '... so is another model' changed model.json model 's/"bos_token_id": 0/"bos_token_id": 7/'
one() { # one FILE INPUT RUN EDIT: with another FILE the message names what may have changed
	cp "$1" kept
	sed "$4" kept >"$1"
	says 3 "older.db: an input file changed since run $3, and the command cannot be resumed \
without it; it is one of: $2" resume older.db
	status=$?
	cp kept "$1"
	return $status
}
ok '... and another file of an option'  one host.json 'host host.json' 1 s/5/6/
ok '... and another file of a method, beside those that may have changed' \
	one layers 'host host.json, method plan=layers' 2 s/compact-fp/dense/
cp sample.arc arc
cp "$srcdir/tests/data/corpus/capture/one.arc" sample.arc
ok '... and another capture' says 3 'sample.arc: changed since run 1 of older.db, which cannot be '\
'resumed without its capture' resume older.db
mv arc sample.arc
mv trace.csv gone.csv
ok '... and no trace' says 3 'trace.csv: No such file or directory' resume older.db
mv gone.csv trace.csv
echo 'seed = 4' >job
beside() { # beside NAME OPTION...: an option that shapes results is refused
	name=$1
	shift
	says 2 "with --resume, option '$name' comes from run 1 of older.db; leave it out" \
		resume older.db "$@"
}
ok 'an option that shapes results is refused' beside seed --seed 3
ok '... in a job file, too'                   beside seed --job job
ok '... so is one that names a subject'       beside method --method dense
ok '... and another database'                 beside db --db other.db
is '... and nothing has run' "$(query older.db 'SELECT count(*), max(status) FROM run')" 2,running
ok 'options of what is stored may be given' resume older.db:2 --keep-entries no --slo tpot:1s
is '... and hold from there on' "$(query older.db 'SELECT r.run_id, status, count(iter_no)
	FROM run r LEFT JOIN request_span USING(run_id) WHERE r.run_id > 2 GROUP BY 1')" '3,done,0
4,done,0'

# ---- while the command runs ----

$catchable "$ATTNREPLAY" run --backend cost --trace endless.csv --db live.db >out 2>&1 &
pid=$!
until [ "$(query live.db 'SELECT count(*) FROM run' 2>/dev/null)" = 1 ]; do sleep 0.05; done
ok 'a command that runs is not resumed' says 2 "live.db: the command of run 1 is still running, in \
process $pid; wait for its end, or end it" resume live.db
kill -s KILL $pid
wait $pid 2>/dev/null
finish
