#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay merge: its lines, its options, and what it refuses.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

"$(dirname "$ATTNREPLAY")/tests/make-db" a.db || { echo 'Bail out! no sample database'; exit 1; }
merge() { "$ATTNREPLAY" merge "$@"; }
runs() { "$ATTNREPLAY" sql --format csv "$1" 'SELECT run_id, status FROM run' | tail -n +2; }

is 'runs without a key stay behind' "$(merge out.db a.db)" \
	'a.db: 0 new, 0 there already, 1 not finished, 2 without a key: add them with --no-key'
is 'they are added if asked for' "$(merge --no-key out.db a.db)" \
	'a.db: 2 new, 0 there already, 1 not finished'
is '... with those that failed' "$(merge --no-key --failed failed.db a.db && runs failed.db)" \
	'a.db: 3 new, 0 there already, 0 not finished
1,done
2,done
3,failed'
if command -v sqlite3 >/dev/null; then
	for name in b c; do
		cp a.db $name.db
		sqlite3 $name.db "UPDATE run SET run_key = '$name' || run_id"
	done
	before=$(cksum b.db c.db)
	is 'each input has a line' "$(merge keyed.db b.db c.db)" \
		'b.db: 2 new, 0 there already, 1 not finished
c.db: 2 new, 0 there already, 1 not finished'
	"$ATTNREPLAY" report keyed.db >first
	is 'the same call again adds nothing' "$(merge --verify keyed.db b.db c.db)" \
		'b.db: 0 new, 2 there already, 1 not finished
c.db: 0 new, 2 there already, 1 not finished'
	is '... and the report is the same' "$("$ATTNREPLAY" report keyed.db)" "$(cat first)"
	is 'inputs stay as they are' "$(cksum b.db c.db)" "$before"
	sqlite3 c.db 'UPDATE request_outcome SET finish_ns = finish_ns + 1'
	ok 'runs that differ are named with --verify' \
		fails 3 'c.db: the requests of run 1 differ from those' merge --verify keyed.db c.db
	full() {
		silent 1 sh -c 'ulimit -f 100; exec "$ATTNREPLAY" merge full.db b.db' &&
			grep -q 'full.db: cannot write: .*free some space: the database keeps what was committed$' .err
	}
	ok 'a full disk ends it' full
	is '... and the next call completes it' "$(merge full.db b.db)" \
		'b.db: 2 new, 0 there already, 1 not finished'
	# limits in steps of half a page, up to the size of the whole
	filled() {
		size=$(($(wc -c <full.db) / 512))
		least=$((size - 160))
		while [ $((size -= 16)) -gt $least ]; do
			rm full.db
			sh -c "ulimit -f $size; exec \"\$ATTNREPLAY\" merge full.db b.db" >out 2>&1 && return 1
			merge full.db b.db >>out 2>&1 || { sed "s/^/# limit $size: /" out && return 1; }
		done
	}
	ok '... whatever was written' filled
	ln -s b.db other.db
	ok 'the output is no input' says 2 \
		'b.db: given as output and as input; name another file' merge b.db c.db other.db
	ln b.db hard.db
	ok '... under another name neither' says 2 \
		'b.db: given as output and as input; name another file' merge b.db hard.db
	rm hard.db
	ok 'an input that is no database ends it' fails 3 'first: file is not a database' \
		merge keyed.db first
else
	skip 'keys make a merge repeatable' 'no sqlite3'
fi
no_output() { fails 3 'a.file: file is not a database' merge none.db a.db a.file && [ ! -e none.db ]; }
echo x >a.file
ok 'a call that is refused makes no output' no_output
ok 'an output that cannot be made is named' fails 1 'none/x.db: unable to open' merge none/x.db a.db
ok 'one database is wrong usage' fails 2 'want a database to write' merge a.db
ok '... so is an output alone' fails 2 'want a database to write' merge -o x.db
ok '... and no database' fails 2 'want a database to write' merge
is 'the output may be an option' "$(merge a.db --no-key --output o.db && runs o.db)" \
	"$(merge --no-key out2.db a.db && runs out2.db)"
ok '... which is no input' fails 2 '^attnreplay: o.db: given as output and as input' merge -o o.db a.db o.db

# ---- a copy of a file that a run still writes: its last rows are in the log ----

copy() { # of a.db, in which SQLite's header tells of a log
	rm -f copy.db*
	cp a.db copy.db
	printf '\002\002' | dd of=copy.db bs=1 seek=18 conv=notrunc 2>err
}
copy
ok 'a copy without its log is refused' fails 3 \
	'copy.db: its log copy.db-wal is missing, as in a copy of a file that a run still writes' \
	merge --no-key live.db copy.db
before=$(cksum copy.db)
ok '... and nothing is added to it' fails 3 \
	'copy.db: its log copy.db-wal is missing, as in a copy of a file that a run still writes' \
	merge --no-key copy.db a.db
is '... so it stays as it is' "$(cksum copy.db)" "$before"
"$ATTNREPLAY" report copy.db >out 2>err
warned() { grep -c 'warning: copy.db: its log copy.db-wal is missing' err; }
is '... and reports have a warning' "$(warned)" 1
add() {
	"$ATTNREPLAY" run --backend cost --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
		--requests 3 --intervals off --db copy.db >out 2>err
}
copy
add
is '... as a run has that adds to it' "$(warned)" 1
add
is '... after which its log is in it' "$(warned)" 0
copy
: >copy.db-wal
is 'one that has its log is taken' "$(merge --no-key live.db copy.db)" \
	'copy.db: 2 new, 0 there already, 1 not finished'
is '... or added to' "$(merge --no-key copy.db a.db)" 'a.db: 2 new, 0 there already, 1 not finished'
finish
