#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A database that version 5 of the tables wrote: read as it is, migrated by the next run.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

gzip -dc "$srcdir/tests/data/version-5.db.gz" >old.db || exit 99
trace=trace.csv # a copy that user nobody can read, wherever the tree is
cp "$srcdir/traces/samples/azure-2023-code-200.csv" $trace && chmod 644 $trace || exit 99
before=$(cksum <old.db)
query() { # query DB SELECT: the rows; the header is the query itself, so it stands in one line
	"$ATTNREPLAY" sql --format csv "$1" "$(printf %s "$2" | tr "\n" " ")" | tail -n +2
}
latencies='SELECT run_id, metric, n, round(p50, 3) FROM v_latency WHERE run_id < 4
	ORDER BY run_id, metric'

# ---- reading ----

is 'sql finds the runs' "$(query old.db 'SELECT run_id, method, backend, status FROM v_run')" \
	'1,dense,cpu,done
2,compact-fp,cpu,done
3,,cost,done'
is '... with accuracy' "$(query old.db 'SELECT run_id, n > 0 FROM v_accuracy ORDER BY 1')" '1,1
2,1'
is '... with their entries' \
	"$(query old.db 'SELECT count(*) FROM iteration_request WHERE run_id = 3')" 71
"$ATTNREPLAY" report old.db >report.txt
ok 'report shows them' grep -q '^ *2 *compact-fp' report.txt
ok '... and compares them with dense' grep -q '^ *2 *compact-fp .* cpu *1 *ttft' report.txt
ok '... and says that it made no replicates' \
	grep -q 'runs 1 to 3: attnreplay 0-g95a065d made no replicates, so there are no intervals' report.txt
"$ATTNREPLAY" run --backend cost --trace "$trace" --requests 3 --max-prompt-tokens 2048 \
	--max-output-tokens 4 --costs old.db:1 --costs-extrapolate >costs.txt
is 'costs come from it' "$(grep '^costs: ' costs.txt)" \
	'costs: 2 iterations measured, 3 interpolated, 1 extrapolated'
is '... with the longest decodes, from its entries' "$(grep -c 'longest decode' costs.txt)" 0
is 'the file is as before' "$(cksum <old.db)" "$before"
is '... and alone' "$(ls old.db*)" old.db
if command -v sqlite3 >/dev/null; then
	cp old.db own.db
	sqlite3 own.db "DROP VIEW v_pair; CREATE VIEW v_pair AS SELECT 7 AS run_id, 7 AS base_id"
	is 'views are those of the program, not of the file' \
		"$(query own.db 'SELECT run_id, base_id FROM v_pair')" 2,1
else
	skip 'views are those of the program, not of the file' 'no sqlite3'
fi

mkdir media && cp old.db media/ && chmod 444 media/old.db && chmod 555 media && chmod 755 "$tmp"
if as_nobody "$ATTNREPLAY" --help >/dev/null 2>&1; then
	is 'it is read from media that cannot be written' \
		"$(as_nobody "$ATTNREPLAY" sql --format csv media/old.db \
		'SELECT count(*) AS n FROM v_run')" 'n
3'
	ok '... by report, too' as_nobody "$ATTNREPLAY" report media/old.db
	ok '... where no run can be added' fails 1 'media/old.db: attempt to write a readonly database' \
		as_nobody "$ATTNREPLAY" run --backend cost --trace "$trace" --requests 3 \
		--db media/old.db
	is '... and nothing changes' "$(cksum <media/old.db)" "$before"
else
	skip 'it is read from media that cannot be written' 'root writes everywhere, no setpriv'
fi
chmod 755 media

# ---- writing ----

query old.db "$latencies" >latencies
ok 'a run is appended' "$ATTNREPLAY" run $plain --backend cost --trace "$trace" --requests 5 --db old.db
is '... beside the others' "$(query old.db 'SELECT run_id, status FROM run')" '1,done
2,done
3,done
4,done'
is '... whose figures are as before' "$(query old.db "$latencies")" "$(cat latencies)"
is '... in a file of version 22' "$(query old.db 'PRAGMA user_version')" 22
is '... that says so' "$(query old.db 'SELECT version FROM schema_log')" '5
6
7
8
9
10
11
12
13
14
15
16
17
18
19
20
21
22'
is '... and has the views of this program' "$(query old.db "SELECT count(*) FROM sqlite_schema
	WHERE type = 'view'")" "$("$ATTNREPLAY" sql --views | grep -c '^CREATE TEMP VIEW ')"
is 'equal runs of both versions have equal figures' "$(query old.db 'SELECT count(*) FROM (
	SELECT iter_no, start_ns, end_ns, composition FROM iteration WHERE run_id = 3
	EXCEPT SELECT iter_no, start_ns, end_ns, composition FROM iteration WHERE run_id = 4)')" 0
ok 'report shows all of them' "$ATTNREPLAY" report old.db
finish
