#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Faults around the database: full disks, locks, interrupts, kills, and other files in its place.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	for i in 1 2 3; do echo "2023-11-16 18:00:0$i.0,10,3"; done
} >short.csv
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	for i in 1 2 3; do echo "2023-11-16 18:00:0$i.0,100,100000000"; done
} >endless.csv
run()   { "$ATTNREPLAY" run --backend cost "$@"; }
query() { # query DB SELECT: the rows; the header is the query itself, so it stands in one line
	"$ATTNREPLAY" sql --format csv "$1" "$(printf %s "$2" | tr '\n' ' ')" | tail -n +2
}
broken="SELECT count(*) FROM (SELECT batch_size, count(req_no) AS n FROM iteration
	LEFT JOIN iteration_request USING(run_id, iter_no) GROUP BY run_id, iter_no)
	WHERE n <> batch_size"
whole() { # whole DB: it is sound, holds iterations, all with all of their entries
	[ "$(query "$1" 'PRAGMA integrity_check')" = ok ] &&
		[ "$(query "$1" 'SELECT count(*) > 9 AND min(iter_no) = 0 AND
			max(iter_no) = count(*) - 1 FROM iteration WHERE run_id = 1')" = 1 ] &&
		[ "$(query "$1" "$broken")" = 0 ]
}
noted() { # noted DB STATUS: the report says how the run ended
	"$ATTNREPLAY" report "$1" | grep -q "^[a-z]  *status  *1  *$2; the figures cover what was committed *$"
}
under_way() { # under_way DB: wait until a run has committed iterations
	for i in $(seq 200); do
		[ "$(query "$1" 'SELECT count(*) > 9 FROM iteration' 2>/dev/null)" = 1 ] && return
		sleep 0.05
	done
	return 1
}

# ---- locked by another writer; this takes ten seconds, so other tests run meanwhile ----

run --trace short.csv --db locked.db >/dev/null 2>err
if grep -q 'on a network file system' err; then
	skip 'faults around the database' 'a network file system has no log'
	finish
fi
if command -v sqlite3 >/dev/null; then
	mkfifo hold
	sqlite3 locked.db <hold >held &
	locker=$!
	exec 9>hold
	echo 'BEGIN IMMEDIATE; SELECT 1;' >&9
	until [ -s held ]; do sleep 0.1; done
	(
		run --trace short.csv --db locked.db >locked.out 2>locked.err
		echo $? >locked.status
	) &
	waiter=$!
fi

# ---- files that are not databases ----

ok 'a folder that is not there' says 1 \
	'none/x.db: unable to open database file; check folder and permissions' \
	run --trace short.csv --db none/x.db
ok 'a folder in place of the file' says 1 \
	'.: unable to open database file; check folder and permissions' run --trace short.csv --db .
ok 'a name that SQLite keeps for memory is no file' says 2 \
	"database ':memory:': want the name of a file; put ./ before a name that begins with a \
colon" \
	run --trace short.csv --db :memory:
ok 'a name of the form of a URI is a name' run --trace short.csv --db file::memory:
is '... of a file' "$(query file::memory: 'SELECT count(*) FROM run' && ls -d file*)" '1
file::memory:'
ok '... a path with options, too' run --trace short.csv --db 'file:a.db?mode=memory'
is '... which is its name' "$(ls -d file:a*)" 'file:a.db?mode=memory'
mkdir folder.db-wal
ok 'an I/O error names its cause' says 1 \
	"folder.db: cannot remove the log of the file: Is a directory (SQLite's code 2570)" \
	run --trace short.csv --db folder.db
cp short.csv text.db
ok 'a text is no database' says 3 'text.db: file is not a database; name another file' \
	run --trace short.csv --db text.db
ok '... and stays as it was' cmp short.csv text.db
run --trace short.csv --db good.db >/dev/null
head -c 70000 good.db >cut.db
head -c 49152 good.db >hole.db
head -c 500000 /dev/zero | tr '\0' X >>hole.db
tail -c +549153 good.db >>hole.db
for c in 'run --backend cost --trace short.csv --db' report; do
	ok "${c%% *}: a truncated database is damaged" says 3 \
		'cut.db: database disk image is malformed; name another file' \
		"$ATTNREPLAY" $c cut.db
done
cp cut.db logged.db
: >logged.db-wal
ok '... for which the log of another database beside it may be the reason' says 3 \
	'logged.db: database disk image is malformed; if logged.db-wal is left from another '\
'database, remove both' run --trace short.csv --db logged.db
ok 'report: a database with a hole is damaged' says 3 \
	'hole.db: make_options: database disk image is malformed; the file is damaged, go back to a copy' \
	"$ATTNREPLAY" report hole.db
ok 'sql: so it is for a query that comes there' says 3 \
	'hole.db: query:2: database disk image is malformed; the file is damaged, go back to a '\
'copy' \
	"$ATTNREPLAY" sql hole.db '
SELECT count(*) FROM run_param, iteration, iteration_request, request_outcome'
if command -v sqlite3 >/dev/null; then
	ours=$(query good.db 'PRAGMA user_version')
	for v in 0 4 $((ours + 1)); do
		cp good.db v$v.db && sqlite3 v$v.db "PRAGMA user_version = $v"
	done
	sqlite3 foreign.db 'CREATE TABLE t(x)'
	for c in 'run --backend cost --trace short.csv --db' report; do
		for v in 0 4 $((ours + 1)); do
			ok "${c%% *}: a database of version $v is left alone" \
				says 3 "v$v.db: schema version \
$v, this program has version $ours; use the attnreplay that made the file, or name another file" \
				"$ATTNREPLAY" $c v$v.db
		done
		ok "${c%% *}: so is another program's database" says 3 \
			'foreign.db: not a database of attnreplay; name another file' \
			"$ATTNREPLAY" $c foreign.db
	done
	is '... in which nothing was made' "$(sqlite3 foreign.db .schema)" 'CREATE TABLE t(x);'
else
	skip 'databases of other versions and other programs are left alone' 'no sqlite3'
fi

# ---- full disks ----

limited() { # limited BLOCKS OPTION...: files may not grow past this many blocks
	(
		ulimit -f "$1"
		shift
		run "$@" >out 2>err
		echo $? >status
	)
	read -r status <status
	cat err
	[ "$status" = 1 ]
}
ok 'a disk that is full at once ends the run' limited 40 --trace short.csv --db tiny.db
ok '... with the reason' grep -Eq '^attnreplay: tiny.db: cannot write: (File too large|disk I/O '\
'error); free some space: the database keeps what was committed$' err
ok 'a disk that fills in the middle ends the run' limited 6000 --trace endless.csv --db full.db
ok '... with the iteration and the reason' grep -q '^attnreplay: iteration [0-9]*: full.db: '\
'cannot write: .*; free some space: the database keeps what was committed$' err
ok '... which is true' whole full.db
is '... nor is the run called done' "$(query full.db 'SELECT status FROM run')" running
ok '... by the report' noted full.db running
ok 'with room again the next run is stored' run --trace short.csv --db full.db
is '... and the one before is known to be lost' \
	"$(query full.db 'SELECT run_id, status FROM run')" '1,aborted
2,done'
stdout_full() { "$@" >/dev/full 2>err; [ $? = 1 ] && cat err; }
no_space() { # no_space COMMAND...: its output meets a full disk
	[ "$(stdout_full "$@")" = \
		'attnreplay: cannot write standard output: No space left on device' ]
}
two_limited() { # two_limited BLOCKS: two methods on a disk that has this much room per file
	rm -f two.db*
	limited "$1" --backend cpu --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
		--requests 1 --max-prompt-tokens 64 --max-output-tokens 1 \
		--model niah-llama-14m --sample-layers 1 \
		--capture "$srcdir/traces/samples/niah-2k.arc" --method dense,compact-fp --db two.db
	query two.db 'SELECT status FROM run' | grep -q done
}
stored_in_least() { # the least room in which a run is done: closing the database needs more
	low=584 high=4008
	two_limited $high || return
	while [ $((high - low)) -gt 16 ]; do
		middle=$((low + (high - low) / 32 * 16))
		if two_limited $middle; then high=$middle; else low=$middle; fi
	done
	two_limited $high
}
closes_full() {
	cat status err
	[ "$(cat status)" = 0 ] && grep -q '^attnreplay: warning: two.db: cannot write: ' err
}
if stored_in_least >/dev/null 2>&1; then
	ok 'a run is done although there is no room to close the database' closes_full
	is '... and the next method runs' \
		"$(query two.db 'SELECT count(*), min(status) FROM run')" 2,done
else
	skip 'a run is done although there is no room to close the database' 'no such room here'
	skip '... and the next method runs' 'no such room here'
fi
ok 'run finds a full standard output'    no_space run --trace short.csv
ok '... at its first lines, before it stores anything' no_space run --trace short.csv --db none.db
is '... so that no run is there' "$(query none.db 'SELECT count(*) FROM run')" 0
read_first() { # read_first LIST: run these methods for one who reads the first line alone
	{
		"$ATTNREPLAY" -q run --backend cpu --requests 8 --max-prompt-tokens 512 \
			--trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
			--max-output-tokens 32 --model niah-llama-14m --sample-layers 1 \
			--capture "$srcdir/traces/samples/niah-2k.arc" --method "$1" \
			--db left.db 2>err
		echo $? >status
	} | head -n 1 >/dev/null
	cat err
	[ "$(cat status)" = 1 ] &&
		[ "$(cat err)" = 'attnreplay: cannot write standard output: Broken pipe' ]
}
ok 'a run whose reader leaves says so' read_first dense
ok '... so do the runs of several methods' read_first dense,compact-fp
is '... and what was measured is stored' \
	"$(query left.db 'SELECT count(*), min(status), max(status) FROM run')" 2,done,done
ok 'report finds a full standard output' no_space "$ATTNREPLAY" report good.db
ok 'so does the list of methods'         no_space "$ATTNREPLAY" methods
ok 'so does help'                        no_space "$ATTNREPLAY" run --help

# ---- two writers ----

for i in 1 2 3; do
	run --trace short.csv --cost-fixed ${i}ms --db both.db >out$i 2>err$i &
	eval "w$i=\$!"
done
wait $w1 $w2 $w3
is 'programs that make a database at the same time wait for each other' "$(cat err1 err2 err3)" ''
is 'runs that write at the same time are all stored' \
	"$(query both.db 'SELECT status, count(*) FROM run GROUP BY status')" done,3

# ---- interrupts and kills ----

start() { # start DB: an endless run
	$catchable "$ATTNREPLAY" run --backend cost --trace endless.csv --db "$1" >out 2>err &
	pid=$!
	under_way "$1"
}
stopped() { # stopped SIGNAL: the run that was started ends with status 1 and says how far it came
	kill -s "$1" $pid
	wait $pid
	status=$?
	cat err
	[ $status = 1 ] && grep -q '^attnreplay: interrupted after [0-9]* iterations; 0 of 3 '\
'requests finished$' err
}
for s in HUP INT TERM; do
	ok "$s: a run has committed iterations while it goes on" start $s.db
	ok '... and ends with status 1'         stopped $s
	is '... marked as aborted'              "$(query $s.db 'SELECT status FROM run')" aborted
	ok '... with all that was committed'    whole $s.db
	is '... and every request as it stood' \
		"$(query $s.db "SELECT count(*), sum(output_tokens) =
		(SELECT sum(emit) FROM iteration_request) FROM request_outcome
		WHERE outcome = 'unfinished'")" 3,1
	ok '... which the report says'          noted $s.db aborted
	is '... in one file'                    "$(ls $s.db*)" $s.db
done
ok 'a database is removed while a run adds to it' start gone.db
rm gone.db
ok '... the next run names its log' says 1 'gone.db: gone.db-wal is left from a removed database; '\
'end the run that uses it, then remove both files' run --trace short.csv --db gone.db
ok '... the first one goes on' stopped INT
rm -f gone.db gone.db-wal
ok '... without its log the next run is stored' run --trace short.csv --db gone.db
by_timeout() { # by_timeout: the signal comes twice, to the process and to its group
	env "$no_leak_check" timeout --preserve-status 1 "$ATTNREPLAY" run --backend cost \
		--trace endless.csv --db timeout.db >out 2>err
	[ $? = 1 ] && [ "$(query timeout.db 'SELECT status FROM run')" = aborted ]
}
ok 'a run that timeout(1) ends is marked as well' by_timeout
mkfifo pipe
from_pipe() { # from_pipe TEXT TRACE: a run whose pipe holds TEXT and stays open is stopped
	exec 8<>pipe
	printf %s "$1" >&8
	env "$no_leak_check" timeout --preserve-status -k 30 1 \
		"$ATTNREPLAY" run --backend cost --trace "$2" <&8 2>err
	status=$?
	exec 8>&-
	cat err
	[ $status = 1 ] && [ "$(cat err)" = 'attnreplay: interrupted' ]
}
ok 'a run that reads a trace from standard input is stopped' from_pipe \
	'TIMESTAMP,ContextTokens,Gen' -
ok '... so is one that reads a pipe by name' from_pipe '' pipe
unwritten() {
	env "$no_leak_check" timeout --preserve-status -k 30 1 \
		"$ATTNREPLAY" run --backend cost --trace pipe 2>err
	[ $? = 1 ] && [ "$(cat err)" = 'attnreplay: interrupted' ]
}
ok '... and one that nobody writes to' unwritten
read_pipe() { # a pipe by name, opened before it has a writer
	run --trace pipe >out 2>err &
	sleep 0.3
	cat short.csv >pipe
	wait $! && grep -q '3 requests ok' out
}
ok 'a pipe is read to its end, whoever opens it first' read_pipe

both() { # TERM at the process that waits for the run of the first of two methods
	$catchable "$ATTNREPLAY" run --backend cpu \
		--trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
		--requests 60 --max-prompt-tokens 512 --max-output-tokens 32 \
		--model niah-llama-14m --capture "$srcdir/traces/samples/niah-2k.arc" \
		--method dense,compact-fp --db apart.db >both.out 2>both.err &
	catches $! || return
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		[ -s both.out ] && break
		sleep 0.3
	done
	kill -s TERM $!
	wait $!
	[ $? = 1 ] && grep -q '^attnreplay: interrupted after' both.err &&
		[ "$(query apart.db 'SELECT status FROM run')" = aborted ]
}
ok 'of several methods the one that runs is stopped, the others do not begin' both

start KILL.db
kill -s KILL $pid
wait $pid 2>/dev/null
is 'KILL: a run that is killed'            "$?" 137
ok '... leaves all committed iterations'   whole KILL.db
ok '... for the report, too'               noted KILL.db running
mkdir locked
cp KILL.db KILL.db-wal locked
chmod 555 locked
chmod 755 "$tmp"
if as_nobody "$ATTNREPLAY" --help >help 2>&1; then
	ok '... and where nothing may be written, the reason' says 3 \
		'locked/KILL.db: unable to open database file; if a run did not end, its '\
'folder must be writable' \
		as_nobody "$ATTNREPLAY" report locked/KILL.db
else
	skip '... and where nothing may be written, the reason' 'root writes everywhere'
fi
chmod 755 locked
ok '... and room for the next run'         run --trace short.csv --db KILL.db
is '... after which its end is known' "$(query KILL.db 'SELECT run_id, status FROM run')" \
	'1,aborted
2,done'
ok '... with all that was there'           whole KILL.db
ok '... and the report says so'            noted KILL.db aborted

# ---- the lock at the start of a run ----

if command -v sqlite3 >/dev/null; then
	wait $waiter
	is 'a database that another process writes is waited for, then given up' \
		"$(cat locked.status locked.err)" '1
attnreplay: locked.db: database is locked by another process; wait for its end or name another file'
	ok '... while it can be read' test "$(query locked.db 'SELECT count(*) FROM run')" = 1
	exec 9>&-
	wait $locker
	ok '... and written once it is free' run --trace short.csv --db locked.db
else
	skip 'a database that another process writes is waited for, then given up' 'no sqlite3'
fi
finish
