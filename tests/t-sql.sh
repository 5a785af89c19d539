#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay sql: formats, several statements, and refusals.
. "$srcdir/tests/tap.sh"

db=$tmp/sample.db
"$(dirname "$ATTNREPLAY")/tests/make-db" "$db" || { echo 'Bail out! no sample database'; exit 1; }
sql() { "$ATTNREPLAY" sql "$@"; }
want() { # want DESCRIPTION TEXT ARGUMENTS...
	what=$1 text=$2
	shift 2
	is "$what" "$(sql "$db" "$@" 2>&1)" "$text"
}

want 'text stands left, numbers right, reals share their decimals' 'a          b        c
dense      1   2.5000
x\x0aü y  10  -0.1250' "SELECT 'dense' AS a, 1 AS b, 2.5 AS c UNION ALL SELECT 'x
ü y', 10, -0.125"
want 'csv quotes what needs it and leaves NULL empty' 'a,"b ""q""",c
"x,y",0.1,
"",3,"l
m"' --format csv "SELECT 'x,y' AS a, 0.1 AS \"b \"\"q\"\"\", NULL AS c UNION ALL SELECT '', 3, 'l
m'"
want 'json keeps types' '[
{"i": 1, "r": 0.5, "t": "a\"\\\n", "n": null, "b": "00ff"},
{"i": 9007199254740993, "r": 0.30000000000000004, "t": "ü", "n": null, "b": ""}
]' --format=json "SELECT 1 AS i, 0.5 AS r, 'a\"\\
' AS t, NULL AS n, x'00ff' AS b UNION ALL SELECT 9007199254740993, 0.1 + 0.2, 'ü', NULL, x''"
want 'json of no rows is an empty array' '[]' --format json 'SELECT 1 WHERE 0'
want 'infinity is null in json' '[
{"x": null}
]' --format json 'SELECT 9e999 AS x'
want 'several statements are several results' 'a
1

b
2' --format csv 'SELECT 1 AS a; SELECT 2 AS b; -- the end'
want 'a column of small numbers shows three digits of the smallest' '      x
0.00250
0.04000' 'SELECT * FROM (SELECT 0.0025 AS x UNION ALL SELECT 0.04)'
want 'very small numbers have exponents, all of a column' '       x
1.00e-06
1.23e-03' 'SELECT * FROM (SELECT 1e-6 AS x UNION ALL SELECT 0.00123)'
is 'the query may come from standard input' \
	"$(echo 'SELECT count(*) AS n FROM run' | sql "$db" - --format csv)" 'n
3'
want 'median and percentile are there' 'm,p
3,7.6' --format csv 'SELECT median(column1) AS m, round(percentile(column1, 90), 9) AS p
FROM (VALUES (1), (2), (3), (4), (10))'

itl() { sql "$db" --format csv "SELECT * FROM v_latency$1" | grep '^2,.*,itl,'; }
is 'a condition on v_latency changes no figure' \
	"$(itl " WHERE run_id = 2 AND metric = 'itl'")" "$(itl)"
ok '... and there are figures' itl

if command -v sqlite3 >/dev/null; then
	sql --views >"$tmp/views.sql"
	is 'sqlite3 makes the views of what --views prints' \
		"$(sqlite3 -cmd ".read $tmp/views.sql" "$db" 'SELECT run_id, n FROM v_latency
		WHERE metric = "itl" ORDER BY run_id')" "$(sql "$db" --format csv \
		"SELECT run_id, n FROM v_latency WHERE metric = 'itl' ORDER BY run_id" |
		tail -n +2 | tr , '|')"
else
	skip 'sqlite3 makes the views of what --views prints' 'no sqlite3'
fi
views_of() { fails 2 'want a database and a query, or --views alone' sql --views "$@"; }
ok '--views needs no database'       views_of "$db" 'SELECT 1'

writes() { fails 2 'sql runs queries only' "$ATTNREPLAY" sql "$db" "$1"; }
unchanged() { [ "$(cksum <"$db")" = "$before" ] && [ ! -e "$tmp/copy.db" ]; }
before=$(cksum <"$db")
ok 'INSERT is refused'      writes "INSERT INTO string_id(value) VALUES('x')"
ok 'DELETE is refused'      writes 'DELETE FROM run'
ok 'DROP is refused'        writes 'DROP TABLE run'
ok 'a pragma that writes is refused' writes 'PRAGMA user_version = 3'
ok 'VACUUM INTO is refused' writes "VACUUM INTO '$tmp/copy.db'"
ok 'ATTACH is refused'      writes "ATTACH '$tmp/copy.db' AS c"
ok '... so is a BEGIN'      writes BEGIN
ok '... and a pragma that returns nothing' writes 'PRAGMA cache_size = 10'
ok 'the file is as before'  unchanged

no_db() { fails 3 "$1" "$ATTNREPLAY" sql "$2" 'SELECT 1'; }
printf 'neither a database nor anything else that is known here, and long enough' >"$tmp/text"
: >"$tmp/empty"
sqlite_file() { command -v sqlite3 >/dev/null && sqlite3 "$tmp/foreign.db" 'CREATE TABLE t(x)'; }
ok 'a missing file is bad data'      no_db "$tmp/none: No such file" "$tmp/none"
ok 'a text file is bad data'         no_db "$tmp/text: " "$tmp/text"
ok 'an empty file is bad data'       no_db "$tmp/empty: empty" "$tmp/empty"
ok 'a folder is bad data'            no_db "$tmp: " "$tmp"
if sqlite_file; then
	ok "another program's database is bad data" \
		no_db 'not a database of attnreplay' "$tmp/foreign.db"
else
	skip "another program's database is bad data" 'no sqlite3'
fi
ok 'bad SQL is wrong usage'          fails 2 'query:1: near "SELEC": syntax error' \
	"$ATTNREPLAY" sql "$db" 'SELEC 1'
ok 'the line of the failing statement is named' fails 2 'query:3: no such table: nope' \
	"$ATTNREPLAY" sql "$db" '

SELECT * FROM nope'
ok 'an error while running is wrong usage' fails 2 'from 0 to 100' \
	"$ATTNREPLAY" sql "$db" 'SELECT percentile(1, 200)'
ok 'a missing query is wrong usage'  fails 2 'want a database and a query' "$ATTNREPLAY" sql "$db"
ok 'an unknown format is named'      fails 2 'want one of table, csv, json' \
	"$ATTNREPLAY" sql --format xml "$db" 'SELECT 1'
no_query() { fails 2 '<stdin>: no query' "$ATTNREPLAY" sql "$db" - </dev/null; }
ok 'empty standard input is wrong usage' no_query
cut_query() { printf 'SELECT 1;\0SELECT 2' >"$tmp/cut.sql"
	fails 3 '<stdin>: byte 10 is NUL; want text' "$ATTNREPLAY" sql "$db" - <"$tmp/cut.sql"; }
ok 'a NUL in standard input is bad data' cut_query
full() { "$ATTNREPLAY" sql "$db" 'SELECT 1' >/dev/full 2>"$tmp/err"; [ $? = 1 ] &&
	grep -q 'cannot write' "$tmp/err"; }
ok 'a full disk is an error'         full

# interrupted N: N signals at once end a query without end
interrupted() {
	$catchable "$ATTNREPLAY" sql "$db" 'WITH RECURSIVE n(i) AS (
		SELECT 1 UNION ALL SELECT i + 1 FROM n)
		SELECT count(*) FROM n' >"$tmp/out" 2>"$tmp/err" &
	pid=$!
	catches $pid || kill -s KILL $pid
	for i in $(seq "$1"); do kill -s INT $pid; done
	wait $pid
	[ $? = 1 ] && [ ! -s "$tmp/out" ] &&
		[ "$(cat "$tmp/err")" = 'attnreplay: query:1: interrupted' ]
}
ok 'an interrupt ends a query'       interrupted 1
ok 'one that arrives several times, to the process and to its group, is one' interrupted 5

nul="SELECT 'a' || char(0) || 'b' AS x"
is 'a NUL ends no cell of JSON' "$("$ATTNREPLAY" sql --format json "$db" "$nul")" '[
{"x": "a\u0000b"}
]'
is '... nor of CSV' "$("$ATTNREPLAY" sql --format csv "$db" "$nul")" 'x
a\x00b'
folder() { fails 3 "$tmp: a folder; name a database in it" "$ATTNREPLAY" "$@"; }
ok 'a folder is no database' folder sql "$tmp" 'SELECT 1'

# No function of SQLite runs for long: an interrupt waits for its end.
too_big() { fails 2 'string or blob too big' "$ATTNREPLAY" sql "$db" "$1"; }
ok 'a value of more than 1 MiB is refused' too_big 'SELECT length(hex(zeroblob(600000)))'
ok '... as the result of replace' too_big "SELECT length(replace(hex(zeroblob(10000)), '0',
	hex(zeroblob(1000))))"
ok 'a long pattern is refused' fails 2 'LIKE or GLOB pattern too complex' \
	"$ATTNREPLAY" sql "$db" "SELECT 'a' LIKE replace(hex(zeroblob(600)), '0', '%a')"
slow() { # slow EXPRESSION: an interrupt ends a query of many long functions at once
	$catchable "$ATTNREPLAY" sql "$db" "WITH RECURSIVE s(x) AS (SELECT hex(zeroblob(500000))),
		n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 40000)
		SELECT sum($1) FROM n, s" >"$tmp/out" 2>"$tmp/err" &
	pid=$!
	catches $pid || kill -s KILL $pid
	sleep 0.3
	kill -s INT $pid
	before=$(date +%s)
	wait $pid
	[ $? = 1 ] && [ $(($(date +%s) - before)) -le 20 ]
}
ok 'an interrupt ends a query of replace' slow "length(replace(x, '00', i % 100))"

# Every question of the manual has an answer.
page=$srcdir/man/attnreplay-db.5.in
asked=0
if [ -r "$page" ]; then
	awk -v dir="$tmp" '/^\.Sh QUESTIONS/ { on = 1 } /^\.Sh/ && !/QUESTIONS/ { on = 0 }
		/^\.Bd/ && on { n++; block = 1; next } /^\.Ed/ { block = 0 }
		on && block { print >(dir "/q" n ".sql") }' "$page"
	answers() { sql "$db" --format csv - <"$1" >"$tmp/answer" &&
		[ "$(wc -l <"$tmp/answer")" -gt 1 ]; }
	for q in "$tmp"/q*.sql; do
		asked=$((asked + 1))
		ok "question $asked of attnreplay-db(5) is answered" answers "$q"
	done
	is 'the manual asks fourteen questions' "$asked" 14
else
	skip 'the questions of attnreplay-db(5) are answered' 'no manual here'
fi
finish
