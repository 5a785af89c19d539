#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --keep-tables: what each level stores, and which commands still work.
. "$srcdir/tests/tap.sh"

"$ATTNREPLAY" -q trace synth --count 60 --arrivals poisson --rate 40 --lengths sample \
	-o "$tmp/t.csv" "$srcdir/traces/samples/azure-2023-code-200.csv" || exit 99
cd "$tmp" || exit 99
modelled() { # modelled LEVEL: with phases, into LEVEL.db
	"$ATTNREPLAY" -q run --trace t.csv --backend roofline --model llama-3.1-8b --host none \
		--method dense,ashape --density ashape=0.5 --keep-tables "$1" --db "$1.db" >"$1.out"
}
formula() { # formula LEVEL: a run that costs can be taken from, into LEVEL-cost.db
	"$ATTNREPLAY" -q run --trace t.csv --backend cost --cost-fixed 5ms --cost-per-token 10us \
		--keep-tables "$1" --db "$1-cost.db" >/dev/null
}
answer() { "$ATTNREPLAY" sql --format csv "$@" | tail -n +2 | tr -d '"'; }
rows() { # rows LEVEL: which tables have rows, in this order
	for table in request_outcome token_gap iteration iteration_phase request_span; do
		printf %s "$(answer "$1.db" "SELECT count(*) > 0 AS x FROM $table")"
	done
}
for level in requests iterations phases entries; do
	modelled $level && formula $level || exit 99
done
is 'requests: latencies'           "$(rows requests)" 11000
is 'iterations: and iterations'    "$(rows iterations)" 11100
is 'phases: and times of phases'   "$(rows phases)" 11110
is 'entries: and what each request ran' "$(rows entries)" 11111
printed() { grep '^[A-Z]\|^[0-9]' "$1.out"; }
is 'the runs are the same' "$(printed requests)" "$(printed entries)"
latency() { answer "$1.db" 'SELECT * FROM v_latency' | cut -d, -f2-; }
is '... and so are their latencies' "$(latency requests)" "$(latency entries)"
diffs() { "$ATTNREPLAY" diff "$1.db:1" "$1.db:2" | grep '^[ti][a-z]*  *p'; }
is 'diff needs requests alone' "$(diffs requests)" "$(diffs entries)"
is 'without iterations their number is not known' \
	"$(answer requests.db 'SELECT iterations FROM v_run WHERE run_id = 1')" ''
is '... but whether its load can be sustained' \
	"$(answer requests.db 'SELECT verdict, waiting IS NULL FROM v_steady WHERE run_id = 1')" \
	"$(answer entries.db 'SELECT verdict, waiting IS NOT NULL FROM v_steady WHERE run_id = 1')"
ok 'a report can be made' "$ATTNREPLAY" report requests.db
ok '... and a page' "$ATTNREPLAY" report --html page.html requests.db

costs() { "$ATTNREPLAY" -q run --trace t.csv --backend cost --costs "$1-cost.db" | grep '^[A-Z]'; }
is 'costs need iterations alone' "$(costs iterations)" "$(costs entries)"
ok 'without them costs are refused' fails 3 \
	'run 1 has no iteration with a batch; name a run without --keep-tables requests' \
	"$ATTNREPLAY" run --trace t.csv --backend cost --costs requests-cost.db

# The table of attnreplay-run(1): what works, in this order.
cell() { "$@" >/dev/null 2>&1 && printf 1 || printf 0; }
works() { # works LEVEL
	"$ATTNREPLAY" report "$1.db" >report.txt && "$ATTNREPLAY" report --perfetto time.json "$1.db"
	cell "$ATTNREPLAY" diff "$1.db:1" "$1.db:2"
	cell "$ATTNREPLAY" merge -o merged.db "$1.db"
	cell grep '^  1  dense   ttft  *60\(  *[0-9][0-9.]*\)\{8\}$' report.txt # with intervals
	cell grep '^  1  dense   backlogged  *[34][0-9]  *[34][0-9] ' report.txt
	cell grep '"name":"request ' time.json
	cell costs "$1"
	cell grep '^  1  dense   backlogged\(  *[0-9][0-9.]*\)\{5\}$' report.txt # with means
	cell grep '"name":"decode B' time.json
	cell grep '^Time by phase' report.txt
	cell grep '"args":{"iteration":[0-9]*,"chunk"' time.json
	rm -f merged.db
}
is 'what works with requests'       "$(works requests)"   1111100000
is '... with iterations'            "$(works iterations)" 1111111100
is '... with phases'                "$(works phases)"     1111111110
is '... with entries'               "$(works entries)"    1111111111
if command -v python3 >/dev/null; then
	python3 - requests.db <<-'EOT'
	import sqlite3, sys
	db = sqlite3.connect(sys.argv[1])
	db.execute("UPDATE run SET status = 'aborted', pid = 999999 WHERE run_id = 2")
	db.commit()
	EOT
	ok 'a command with requests alone is resumed' "$ATTNREPLAY" -q run --resume requests.db
	is '... and goes on with them' "$(rows requests)" 11000
fi
ok 'of two options the one that keeps less holds' "$ATTNREPLAY" -q run --trace t.csv \
	--backend cost --keep-tables requests --keep-entries yes --db two.db
is '... whichever it is' "$(rows two)" 11000
finish
