#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Files of report for other programs: queries over the time line and over the kernels, and the ways
# to write them.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

"$(dirname "$ATTNREPLAY")/tests/make-db" a.db || { echo 'Bail out! no sample database'; exit 1; }
trace=$ATTNREPLAY_DATA/traces/samples/azure-2023-code-200.csv
report() { "$ATTNREPLAY" report "$@"; }
sqlite=
command -v sqlite3 >/dev/null && sqlite=sqlite3
python=
command -v python3 >/dev/null && python=python3

# ---- the time line ----

# The events as tables of Perfetto's trace processor.  It reads us of up to three decimals, names a
# counter after event and argument, and nests the slices of a thread.
cat >load.py <<'END'
import json, sqlite3, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
db = sqlite3.connect(sys.argv[2])
db.executescript("""CREATE TABLE process(pid PRIMARY KEY, name);
CREATE TABLE thread(pid, tid, name, PRIMARY KEY(pid, tid));
CREATE TABLE slice(pid, tid, ts, dur, name, depth, args);
CREATE TABLE counter(pid, name, ts, value)""")
ns = lambda us: round(us * 1000)
open_slices = {}
events = [e for e in d["traceEvents"] if e["ph"] != "M"]
for e in d["traceEvents"]:
    if e["ph"] == "M" and e["name"] == "process_name":
        db.execute("INSERT INTO process VALUES(?, ?)", (e["pid"], e["args"]["name"]))
    elif e["ph"] == "M" and e["name"] == "thread_name":
        db.execute("INSERT INTO thread VALUES(?, ?, ?)", (e["pid"], e["tid"], e["args"]["name"]))
for e in sorted(events, key=lambda e: e["ts"]):
    if e["ph"] == "C":
        for k, v in e["args"].items():
            db.execute("INSERT INTO counter VALUES(?, ?, ?, ?)",
                       (e["pid"], e["name"] + " " + k, ns(e["ts"]), v))
        continue
    assert e["ph"] == "X" or e["ph"] == "i" and e["s"] == "t", e
    stack = open_slices.setdefault((e["pid"], e["tid"]), [])
    start, dur = ns(e["ts"]), ns(e.get("dur", 0))
    while stack and stack[-1] <= start:
        stack.pop()
    assert not stack or start + dur <= stack[-1], ("it crosses another slice", e)
    db.execute("INSERT INTO slice VALUES(?, ?, ?, ?, ?, ?, ?)",
               (e["pid"], e["tid"], start, dur, e["name"], len(stack), json.dumps(e.get("args"))))
    if dur:
        stack.append(start + dur)
db.commit()
END
load() { rm -f "$2" && python3 load.py "$1" "$2"; }
rows() { # DESCRIPTION FILE QUERY ROWS
	if [ "$sqlite" ] && [ "$python" ]; then
		is "$1" "$(sqlite3 "$2" "$3")" "$4"
	else
		skip "$1" 'no sqlite3 or no python3'
	fi
}

ok 'a time line is written' silent 0 "$ATTNREPLAY" report --perfetto all.json a.db
report --perfetto one.json --run 1 a.db
if [ "$python" ] && [ "$sqlite" ]; then
	ok '... as JSON whose slices nest' load all.json all
	ok '... of one run' load one.json one
else
	skip '... as JSON whose slices nest' 'no sqlite3 or no python3'
	skip '... of one run' 'no sqlite3 or no python3'
fi
rows 'a run has processes' all 'SELECT pid, name FROM process ORDER BY 1' \
'1|run 1 dense: iterations
2|run 1 dense: requests
3|run 1 dense: kernels
4|run 2 compact-fp: iterations
5|run 2 compact-fp: requests
6|run 2 compact-fp: kernels
7|run 3 tri-shape: iterations
8|run 3 tri-shape: requests'
rows '... and --run takes one' one 'SELECT pid, name FROM process ORDER BY 1' \
'1|run 1 dense: iterations
2|run 1 dense: requests
3|run 1 dense: kernels'
rows 'iterations stand in virtual time' one 'SELECT ts, dur, name FROM slice WHERE pid = 1' \
'0|3000000|prefill B1 (+1r 2t)
3000000|6000000|prefill+decode B2 (+1r 7t)
9000000|6000000|prefill+decode B2 (+1r 7t)
15000000|5500000|prefill+decode B2 (+1r 6t)
20500000|3000000|decode B2
23500000|2500000|decode B1
26000000|2500000|decode B1
28500000|2500000|decode B1'
rows 'a request has its queue, chunks and decodes' one \
	'SELECT tid, depth, ts, dur, name FROM slice WHERE pid = 2 ORDER BY tid, ts, depth' \
'1|0|0|31000000|request 0
1|1|0|3000000|prefill
1|1|3000000|28000000|decode
2|0|2900000|20600000|request 1
2|1|2900000|100000|queue
2|1|3000000|6000000|prefill
2|1|9000000|6000000|prefill
2|1|15000000|5500000|prefill
2|1|20500000|3000000|decode'
rows '... with its figures' one "SELECT args ->> '\$.\"ttft, ms\"', args ->> '\$.chunks' FROM slice
	WHERE name = 'request 1'" '17.6|3'
rows 'a rejected request is an instant' all "SELECT name, dur, args ->> '\$.reason' FROM slice
	WHERE pid = 8 AND tid = 0" 'rejected: request 1|0|longer than --max-model-len'
rows '... and one that did not finish ends with the run' all \
	"SELECT ts, dur FROM slice WHERE pid = 8 AND name = 'request 0'" '0|13500000'
rows 'there are counters' one 'SELECT name, count(*), min(value), max(value) FROM counter
	GROUP BY 1' \
'KV blocks used|8|3|3
requests running|8|2|2
requests waiting|8|0|0
selected share|4|0.25|0.25'
rows 'kernels stand in threads of phases' all 'SELECT t.name, s.name, count(*), sum(dur)
	FROM slice s JOIN thread t USING(pid, tid) WHERE pid = 6 GROUP BY 1, 2' \
'attend, stream 7|attend_kernel|8|6200000
head, stream 7|gemm_kernel|8|7750000
select, stream 7|select_kernel|8|1550000'
rows '... within their iterations' all 'SELECT count(*) FROM slice k JOIN slice i ON i.pid = 4
	AND k.ts >= i.ts AND k.ts + k.dur <= i.ts + i.dur WHERE k.pid = 6' 24

if [ "$python" ] && python3 -c '
from perfetto.trace_processor import TraceProcessor
TraceProcessor(trace="one.json").close()' >/dev/null 2>&1; then
	is 'the trace processor of Perfetto finds the same' "$(python3 -c '
from perfetto.trace_processor import TraceProcessor
t = TraceProcessor(trace="one.json")
for r in t.query("SELECT count(*) AS n, sum(dur) AS ns, max(depth) AS d FROM slice"):
    print(r.n, r.ns, r.d)
for r in t.query("SELECT t.name, count(*) AS n FROM counter c JOIN counter_track t ON"
                 " t.id = c.track_id GROUP BY 1 ORDER BY 1"):
    print(r.name, r.n)')" "$(sqlite3 one 'SELECT count(*) || " " || sum(dur) || " " || max(depth)
		FROM slice; SELECT name || " " || count(*) FROM counter GROUP BY name ORDER BY 1')"
else
	skip 'the trace processor of Perfetto finds the same' 'no trace processor of Perfetto'
fi

# Runs of the program: many requests, of entries or without.
"$ATTNREPLAY" -q run --backend cost --trace "$trace" --cost-per-token 20123ns --db run.db >out
"$ATTNREPLAY" -q run --backend cost --trace "$trace" --keep-entries no --db run.db >out
report --perfetto run.json run.db
[ ! "$python" ] || [ ! "$sqlite" ] || load run.json run
rows 'a replay has all of its requests' run "SELECT pid, count(*) FROM slice
	WHERE name LIKE 'request %' GROUP BY 1" '2|200
5|200'
same() { "$ATTNREPLAY" sql --format csv run.db "$1" | tail -1; }
rows '... its tokens' run "SELECT sum(args ->> '\$.tokens') FROM slice
	WHERE pid = 2 AND name = 'prefill'" \
	"$(same 'SELECT sum(prefill_tokens) FROM iteration WHERE run_id = 1')"
rows '... its iterations' run 'SELECT count(*), sum(dur) FROM slice WHERE pid = 1' \
	"$(same 'SELECT count(*), sum(end_ns - start_ns) FROM iteration WHERE run_id = 1' | tr , '|')"
rows '... and no more lanes than requests at one time' run \
	"SELECT max(tid) FROM slice WHERE pid = 2" "$(same 'SELECT max(n) FROM (SELECT sum(d)
	OVER (ORDER BY t, d) AS n FROM (SELECT arrival_ns AS t, 1 AS d FROM request_outcome WHERE
	run_id = 1 UNION ALL SELECT finish_ns, -1 FROM request_outcome WHERE run_id = 1))')"
rows 'without entries the parts of a request are those of its outcome' run \
	"SELECT name, count(*), sum(dur) FROM slice WHERE pid = 5 AND depth = 1 GROUP BY 1" \
	"$(same "SELECT 'decode', count(*), sum(finish_ns - first_token_ns) FROM request_outcome
		WHERE run_id = 2" | tr , '|')
$(same "SELECT 'prefill', count(*), sum(first_token_ns - first_sched_ns) FROM request_outcome
		WHERE run_id = 2" | tr , '|')
$(same "SELECT 'queue', count(*), sum(queue_ns) FROM request_outcome
		WHERE run_id = 2 AND queue_ns > 0" | tr , '|')"

for kind in gz:gzip zst:zstd; do
	if command -v ${kind#*:} >/dev/null; then
		report --perfetto all.json.${kind%:*} a.db
		is "${kind#*:} compresses it" "$(${kind#*:} -dc all.json.${kind%:*} | cksum)" \
			"$(cksum <all.json)"
	else
		skip "${kind#*:} compresses it" "no ${kind#*:}"
	fi
done

# ---- kernels ----

ok 'kernels are written' silent 0 "$ATTNREPLAY" report --nsys k.sqlite --run 2 a.db
query() { # DESCRIPTION QUERY ROWS
	if [ "$sqlite" ]; then
		is "$1" "$(sqlite3 k.sqlite "$2")" "$3"
	else
		skip "$1" 'no sqlite3'
	fi
}
query 'their sums by name are those of nsys stats' "SELECT
	round(100.0 * sum(end - start) / (SELECT sum(end - start) FROM CUPTI_ACTIVITY_KIND_KERNEL), 1),
	sum(end - start), count(*), avg(end - start), min(end - start), max(end - start), s.value
	FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = coalesce(k.demangledName, k.shortName)
	GROUP BY s.value ORDER BY 2 DESC" \
'50.0|7750000|8|968750.0|625000|1500000|gemm_kernel
40.0|6200000|8|775000.0|500000|1200000|attend_kernel
10.0|1550000|8|193750.0|125000|300000|select_kernel'
query '... and their trace is that of its GPU trace' "SELECT start, end - start, correlationId,
	printf('%d %d %d', gridX, gridY, gridZ), printf('%d %d %d', blockX, blockY, blockZ),
	registersPerThread, dynamicSharedMemory, gpu.name || ' (' || gpu.id || ')', contextId,
	greenContextId IS NULL, streamId, s.value, globalPid = d.pid << 24
	FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s ON s.id = k.shortName
	JOIN TARGET_INFO_GPU gpu ON gpu.id = k.deviceId
	JOIN TARGET_INFO_CUDA_DEVICE d ON d.cudaId = k.deviceId ORDER BY start LIMIT 2" \
'0|150000|0|132 1 1|128 1 1|168|200000|NVIDIA H200 (0)|1|1|7|select_kernel|1
150000|600000|150|132 1 1|128 1 1|168|200000|NVIDIA H200 (0)|1|1|7|attend_kernel|1'
query 'ranges hold their kernels' "SELECT n.text, count(*) FROM NVTX_EVENTS n
	JOIN CUPTI_ACTIVITY_KIND_KERNEL k ON k.start >= n.start AND k.end <= n.end
	WHERE n.eventType = 59 AND n.start < 1500000 AND globalTid >> 24 = globalPid >> 24
	GROUP BY n.rowid ORDER BY n.start, n.end DESC" \
'run 2 iteration 0: prefill B1 (+1r 2t)|3
layer 0 select|1
layer 0 attend|1
head|1'
query 'the start of the session is that of the first kernel' \
	'SELECT utcEpochNs, utcTime FROM TARGET_INFO_SESSION_START_TIME' \
	'1700000000000000000|2023-11-14T22:13:20'
query 'nobody takes it for a capture' "SELECT value FROM META_DATA_CAPTURE
	WHERE name = 'CAPTURE_TOOL'" attnreplay
query 'it is whole' 'PRAGMA integrity_check' ok
query 'the work of sparse attention is not known' "SELECT phase, count(*), count(flops), count(bytes)
	FROM ATTNREPLAY_KERNEL JOIN CUPTI_ACTIVITY_KIND_KERNEL USING(gridId) GROUP BY 1" \
'attend|8|0|0
head|8|0|0
select|8|0|0'
report --nsys k.sqlite --run 1 a.db
# 4 FLOPs for each of 32 heads of size 128 and each pair; 30 pairs in iteration 0, one more in each.
query 'that of dense attention is' "SELECT iteration, layer, flops, bytes IS NULL
	FROM ATTNREPLAY_KERNEL WHERE phase = 'attend' LIMIT 2" '0|0|491520|1
1|0|507904|1'
if [ "$sqlite" ]; then
	cp a.db other.db
	# Kernels of a name that C++ mangled; those of the core are decodes; 60 keys in iteration 0.
	sqlite3 other.db "UPDATE string_id SET value = '_ZN2ar6attendILi4EEEvPKf'
		WHERE value = 'attend_kernel';
		UPDATE kernel_event SET phase_id = (SELECT phase_id FROM phase WHERE name = 'decode')
		WHERE phase_id = (SELECT phase_id FROM phase WHERE name = 'attend')"
	report --nsys k.sqlite --run 2 other.db
	cp other.db window.db
	sqlite3 window.db "UPDATE model SET config = json_set(config, '\$.sliding_window', 4)"
	report --nsys window.sqlite --run 2 window.db
	is 'with a window it is not' "$(sqlite3 window.sqlite \
		'SELECT count(flops), count(bytes) FROM ATTNREPLAY_KERNEL')" '0|0'
	ATTNREPLAY_LIBSTDCXX=none report --nsys plain.sqlite --run 2 other.db 2>err
	is 'without the C++ runtime names stay as they are' "$(cat err; sqlite3 plain.sqlite \
		"SELECT s.value FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds s
		ON s.id = k.shortName WHERE s.value LIKE '%attend%' LIMIT 1")" \
		"attnreplay: warning: cannot load 'none', which ATTNREPLAY_LIBSTDCXX names; the names \
of kernels stay mangled
_ZN2ar6attendILi4EEEvPKf"
else
	skip 'with a window it is not' 'no sqlite3'
	skip 'without the C++ runtime names stay as they are' 'no sqlite3'
fi
query 'that of decodes is, with their bytes' "SELECT iteration, layer, flops, bytes
	FROM ATTNREPLAY_KERNEL WHERE phase = 'decode' LIMIT 2" '0|0|983040|245760
1|0|999424|266240'
query 'names are demangled, and cut' "SELECT DISTINCT d.value, s.value, m.value
	FROM CUPTI_ACTIVITY_KIND_KERNEL k JOIN StringIds d ON d.id = k.demangledName
	JOIN StringIds s ON s.id = k.shortName JOIN StringIds m ON m.id = k.mangledName
	WHERE m.value LIKE '%attend%'" 'void ar::attend<4>(float const*)|attend|_ZN2ar6attendILi4EEEvPKf'
ok 'a run without kernels is wrong usage' says 2 \
	'run.db: no kernels are kept; run with backend cuda and --keep-kernels' \
	"$ATTNREPLAY" report --nsys none.sqlite run.db
ok '... which leaves no file' [ ! -e none.sqlite ]

# ---- files ----

ok 'both are written at once' silent 0 "$ATTNREPLAY" report --perfetto b.json --nsys b.sqlite a.db
ok '... the same as alone' cmp b.json all.json
ok 'one file for both is wrong usage' says 2 'b.x: given for two outputs; name another file' \
	"$ATTNREPLAY" report --perfetto ./b.x --nsys b.x a.db
before=$(cksum <a.db)
for e in perfetto nsys; do
	ok "$e: the database is no output" says 2 './a.db: it is a database to report; name another file' \
		"$ATTNREPLAY" report --$e ./a.db a.db
	ok '... nor is a folder' fails 1 '^attnreplay: \.: cannot write: Is a directory' \
		"$ATTNREPLAY" report --$e . a.db
	ok '... nor a file in none' fails 1 '^attnreplay: no/x: cannot create: No such file' \
		"$ATTNREPLAY" report --$e no/x a.db
	ok '... an unknown run is named' says 2 \
		"a.db: no run 9; 'attnreplay report a.db' lists the runs" \
		"$ATTNREPLAY" report --$e x --run 9 a.db
	ok '... and leaves no file' [ ! -e x ]
	full() { # the file before stays, and nothing of the new one
		rm -rf full && mkdir full && echo before >full/x$1
		(ulimit -f "$2" && report --$e full/x$1 a.db) >/dev/null 2>err
		status=$?
		cat err
		[ $status = 1 ] && grep -q "full/x$1: cannot write: " err &&
			[ "$(cat full/x$1)" = before ] && [ "$(ls full)" = x$1 ]
	}
	ok '... a full disk leaves the file before' full '' 16
done
ok 'a full disk is found by gzip' full .gz 1
is '... the database stays as it was' "$(cksum <a.db)" "$before"
e=perfetto
for end in .gz .zst; do
	ok "a full disk leaves the file before, $end" full $end 1
done
ok 'a full device is named' fails 1 '^attnreplay: /dev/full: cannot write: No space left' \
	"$ATTNREPLAY" report --perfetto /dev/full a.db
into_stdout() { report --perfetto /dev/stdout a.db | cmp - all.json; }
ok 'a time line goes to standard output' into_stdout
ok 'SQLite needs a file' says 2 '/dev/null: not a regular file, as SQLite needs; name another' \
	"$ATTNREPLAY" report --nsys /dev/null a.db
ok 'a name of the form of a URI is a name' report --nsys 'file:u?mode=memory' a.db
ok '... of a file' test -s 'file:u?mode=memory'

# ---- databases ----

if [ "$sqlite" ]; then
	for e in perfetto nsys; do
		cp a.db cut.db && sqlite3 cut.db 'DROP TABLE kernel_shape'
		ok "$e: a database without a table is an error" fails 1 \
			'cut.db: no such table: .*kernel_shape' "$ATTNREPLAY" report --$e x cut.db
		cp a.db odd.db && sqlite3 odd.db 'PRAGMA writable_schema = ON; UPDATE sqlite_schema
			SET rootpage = 9999 WHERE name = "kernel_shape"'
		ok '... a damaged one, too' fails 3 'odd.db: .*malformed' \
			"$ATTNREPLAY" report --$e x odd.db
		cp a.db void.db && sqlite3 void.db 'PRAGMA foreign_keys = OFF; DELETE FROM run'
		ok '... and one without runs' says 3 \
			"void.db: there is no run; fill the database with 'attnreplay run --db'" \
			"$ATTNREPLAY" report --$e x void.db
		ok '... and leaves no file' [ ! -e x ]
		cp a.db old.db && sqlite3 old.db 'ALTER TABLE selection_stat
			RENAME COLUMN empty_rows TO blind; PRAGMA user_version = 6'
		ok '... an older one is read' report --$e old.$e old.db
	done
	ok '... to the same time line' cmp old.perfetto all.json
	sqlite3 a.db 'WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n LIMIT 1000000)
		INSERT INTO request_outcome(run_id, req_no, outcome, arrival_ns, first_sched_ns,
			first_token_ns, finish_ns, prompt_tokens, output_tokens, n_chunks,
			n_preempt, recomputed_tokens, cached_tokens)
		SELECT 1, 1000 + i, "ok", i, i + 1, i + 2, i + 9, 1, 2, 1, 0, 0, 0 FROM n'
	interrupted() {
		$catchable env "$no_leak_check" timeout --preserve-status -s INT 1 \
			"$ATTNREPLAY" report --perfetto x a.db \
			2>err
		[ $? = 1 ] && [ ! -e x ] && grep -q 'interrupted' err
	}
	ok 'an interrupt ends it' interrupted
else
	skip 'damaged and older databases' 'no sqlite3'
	skip 'an interrupt ends it' 'no sqlite3'
fi
finish
