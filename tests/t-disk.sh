#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Databases in a folder that cannot be written, and on network file systems.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

"$(dirname "$ATTNREPLAY")/tests/make-db" a.db || { echo 'Bail out! no sample database'; exit 1; }
head -n 4 "$srcdir/traces/samples/azure-2023-code-200.csv" >trace.csv
chmod 644 trace.csv

# ---- a folder that cannot be written ----

mkdir locked free
cp a.db locked/whole.db
for name in alone log; do
	cp a.db locked/$name.db
	printf '\002\002' | dd of=locked/$name.db bs=1 seek=18 conv=notrunc 2>err
done
: >locked/log.db-wal
chmod 444 locked/*
chmod 777 . free
chmod 555 locked
if as_nobody "$ATTNREPLAY" --help >help 2>&1; then
	merge() { as_nobody "$ATTNREPLAY" merge --no-key "$@"; }
	before=$(cksum locked/*)
	as_nobody "$ATTNREPLAY" sql --format csv locked/alone.db 'SELECT count(*) AS n FROM v_run' >out 2>err
	is 'a copy without its log is read in a folder that cannot be written' "$(cat out)" 'n
3'
	is '... with a warning' "$(cat err)" 'attnreplay: warning: locked/alone.db: its log locked/alone.db-wal is '\
'missing, as in a copy of a file that a run still writes; its last rows may be missing, too'
	ok '... not one with a log, which must be written' says 3 \
		'locked/log.db: unable to open database file; if a run did not end, its folder must be writable' \
		as_nobody "$ATTNREPLAY" report locked/log.db
	is 'a merge reads in a folder that cannot be written' "$(merge free/out.db locked/whole.db)" \
		'locked/whole.db: 2 new, 0 there already, 1 not finished'
	ok '... not a copy without its log' fails 3 \
		'alone.db: its log locked/alone.db-wal is missing' merge free/none.db locked/alone.db
	ok '... nor one with a log, which must be written' says 3 \
		'locked/log.db: unable to open database file; if a run did not end, its folder must be writable' \
		merge free/none.db locked/log.db
	ok '... and makes no output then' [ ! -e free/none.db ]
	ok 'it makes none there' says 1 \
		'locked/new.db: unable to open database file; check folder and permissions' \
		merge locked/new.db a.db
	ok '... and adds to none' says 1 \
		'locked/whole.db: attempt to write a readonly database; check folder and permissions' \
		merge locked/whole.db a.db
	ok 'a run makes none there' says 1 \
		'locked/new.db: unable to open database file; check folder and permissions' \
		as_nobody "$ATTNREPLAY" run -q $plain --backend cost --trace trace.csv --db locked/new.db
	is 'all is as before' "$(cksum locked/*)" "$before"
else
	skip 'a merge reads in a folder that cannot be written' 'root writes everywhere, no setpriv'
fi
chmod 755 locked
ok 'a file is no folder' says 1 'a.db/new.db: unable to open database file; check folder and permissions' \
	"$ATTNREPLAY" merge a.db/new.db locked/whole.db

# ---- network file systems ----

if sanitized; then
	skip 'a network file system has a warning' 'sanitizers come before any other library'
	finish
fi
# on KIND COMMAND...: as if all files were there
on() {
	kind=$1
	shift
	FAKE_DISK=$kind LD_PRELOAD=$(dirname "$ATTNREPLAY")/tests/fake_disk.so "$@"
}
nfs=0x6969 ext4=0xef53
run() { # run KIND DB
	on "$1" "$ATTNREPLAY" run $plain --backend cpu --model niah-llama-14m --capture random:0 \
		--trace trace.csv --max-prompt-tokens 64 --max-output-tokens 2 --num-gpu-blocks 100 \
		--method ashape,dense --db "$2" >out 2>err
}
ok 'a run writes to a network file system' run $nfs net.db
is '... and warns once' "$(grep network err)" "attnreplay: warning: net.db: on a network file system (NFS), \
whose locks may fail: let no other program use it, or write to a local disk and copy the file, as sweep does"
is '... after which all is there' "$("$ATTNREPLAY" sql --format csv net.db 'SELECT status FROM run')" 'status
done
done'
ok 'a disk has no warning' run $ext4 disk.db
is '... indeed' "$(grep -c 'network file system' err)" 0
on $nfs "$ATTNREPLAY" merge net.db disk.db >out 2>err
is 'a merge warns of its output' "$(grep -c 'net.db: on a network file system' err)" 1
on $nfs "$ATTNREPLAY" report net.db >out 2>err
is '... and a report of nothing' "$(cat err)" ''
finish
