#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The views in the file, for other programs: sqlite3(1) opens each of them.
. "$srcdir/tests/tap.sh"

if ! command -v sqlite3 >/dev/null; then
	skip 'the views of a file' 'no sqlite3'
	finish
fi
cd "$tmp" || exit 99
run() { # run [OPTION...]: add a run to a.db
	"$ATTNREPLAY" -q run --backend cost --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
		--requests 20 --intervals off --db a.db "$@" >/dev/null
}
run || exit 99
views="SELECT name FROM sqlite_schema WHERE type = 'view' ORDER BY name"
stored="SELECT name, sql FROM sqlite_schema WHERE type = 'view' ORDER BY name"
is 'a file has all views of the program' "$(sqlite3 a.db "$views")" "$("$ATTNREPLAY" sql --views |
	sed -n 's/^CREATE TEMP VIEW \([a-z_0-9]*\) AS.*/\1/p' | sort)"
failing=
for view in $(sqlite3 a.db "$views"); do
	sqlite3 a.db "SELECT count(*) FROM $view" >/dev/null 2>out || failing="$failing $view: $(cat out)"
done
is 'sqlite3(1) reads each of them' "$failing" ''
latency='SELECT run_id, metric, p50 FROM v_latency ORDER BY run_id, metric'
is '... with the figures that the program has' "$(sqlite3 a.db "$latency" | tr '|' ,)" \
	"$("$ATTNREPLAY" sql --format csv a.db "$latency" | tail -n +2 | tr -d '"')"

before=$(sqlite3 a.db "$stored")
sqlite3 a.db 'DROP VIEW v_itl; DROP VIEW v_pair; CREATE VIEW v_pair AS SELECT 7 AS run_id, 7 AS base_id;
	CREATE VIEW mine AS SELECT run_id FROM v_run; DROP VIEW v_clock; CREATE TABLE v_clock(x)'
is 'readers ask the views of the program, not those of the file' "$("$ATTNREPLAY" sql --format csv \
	a.db 'SELECT count(*) AS n FROM v_pair')" 'n
0'
run --host-seed 2
is 'a file that is opened for writing has them again' "$(sqlite3 a.db "$stored" | sed '/^mine|/d')" \
	"$(printf '%s\n' "$before" | awk '/^v_clock[|]/ { out = 1 } /^v_[a-z_]*[|]/ && !/^v_clock[|]/ { out = 0 } !out')"
is '... beside a view of the user' "$(sqlite3 a.db 'SELECT count(*) FROM mine')" 2
is '... and a table with the name of one' "$(sqlite3 a.db 'SELECT count(*) FROM v_clock')" 0
version=$(sqlite3 a.db 'PRAGMA schema_version')
run --host-seed 3
is 'views that are as they should be are left alone' "$(sqlite3 a.db 'PRAGMA schema_version')" "$version"

"$ATTNREPLAY" -q merge m.db a.db
is 'a merged file has them' "$(sqlite3 m.db "SELECT count(*) FROM v_run" )" 3

# Three queries of the same file in three programs.
cat >queries <<'END'
SELECT run_id, metric, CAST(round(p99 * 1000) AS INTEGER) FROM v_latency ORDER BY run_id, metric
SELECT run_id, count(*), sum(output_tokens) FROM request_outcome GROUP BY run_id ORDER BY run_id
SELECT run_id, policy, iterations FROM v_run ORDER BY run_id
END
while read -r query; do
	sqlite3 -csv m.db "$query" </dev/null | tr -d '\r"'
done <queries >by-sqlite3
is 'sqlite3(1) answers queries' "$(wc -l <by-sqlite3)" 21
what='pandas answers them alike'
if python3 -c 'import pandas' 2>/dev/null; then
	python3 -c 'import pandas, sqlite3
db = sqlite3.connect("m.db")
for query in open("queries"):
    print(pandas.read_sql(query, db).to_csv(index=False, header=False), end="")' >by-pandas
	ok "$what" cmp by-sqlite3 by-pandas
else
	skip "$what" 'no pandas'
fi
what='DuckDB answers them alike'
if duckdb -c 'LOAD sqlite' >/dev/null 2>&1; then
	while read -r query; do
		duckdb -csv -noheader -cmd "LOAD sqlite; ATTACH 'm.db' AS m (TYPE sqlite, READ_ONLY)" \
			-c "FROM sqlite_query('m', '$query')" </dev/null | tr -d '\r"'
	done <queries >by-duckdb
	ok "$what" cmp by-sqlite3 by-duckdb
else
	skip "$what" 'no duckdb with its extension sqlite'
fi

# A view without an end in place of a table.
cp m.db endless.db
sqlite3 endless.db 'DROP TABLE Request_Outcome; CREATE VIEW Request_Outcome AS WITH RECURSIVE c(x) AS
	(SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT x AS run_id FROM c'
why='endless.db: Request_Outcome is a view and no table, so the file is not as attnreplay made it'
ok 'a view in place of a table is refused by report' fails 3 "$why" "$ATTNREPLAY" report endless.db
ok '... by sql'   fails 3 "$why" "$ATTNREPLAY" sql endless.db 'SELECT count(*) FROM request_outcome'
ok '... by merge' fails 3 "$why" "$ATTNREPLAY" merge out.db endless.db
ok '... and by run' fails 3 "$why" "$ATTNREPLAY" run --backend cost --db endless.db \
	--trace "$srcdir/traces/samples/azure-2023-code-200.csv"

chmod 444 a.db
is 'a file that cannot be written is read' "$(sqlite3 "file:$tmp/a.db?mode=ro" \
	'SELECT count(*) FROM v_run')" 3
finish
