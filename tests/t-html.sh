#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay report --html: one page that is well-formed, small, of foreign names, and in a browser.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

ar() { "$ATTNREPLAY" "$@"; }
"$(dirname "$ATTNREPLAY")/tests/make-db" sample.db || { echo 'Bail out! no sample database'; exit 1; }
if command -v xmllint >/dev/null; then
	xml() { xmllint --noout "$1"; }
elif command -v python3 >/dev/null; then
	xml() { python3 -c 'import sys, xml.dom.minidom as x; x.parse(sys.argv[1])' "$1"; }
fi
well_formed() { # well_formed DESCRIPTION FILE
	if type xml >/dev/null 2>&1; then ok "$1" xml "$2"; else skip "$1" 'no xmllint and no python3'; fi
}
has() { # has FILE TEXT...: each is in it
	file=$1
	shift
	for t; do grep -qF -e "$t" "$file" || { echo "no: $t"; return 1; }; done
}
lacks() { ! has "$@"; }

# ---- the sample ----

ok 'the page is written, and nothing else' \
	silent 0 "$ATTNREPLAY" report --html page.html --slo ttft:10ms sample.db
well_formed 'it is XML' page.html
is 'it has the parts that have something to show, in order, by their names' \
	"$(sed -n 's/^<h2 id="\([a-z]*\)">.*/\1/p' page.html | tr '\n' ' ')" \
	'error tasks latency requests time goodput timeline selected density measured '
is '... of which the contents tell, and of what is folded' \
	"$(sed -n 's/^<a href="#\([a-z]*\)">.*/\1/p' page.html | tr '\n' ' ')" \
	'words error tasks latency requests time goodput timeline selected density measured '
ok 'it begins with what ran, and the answer' has page.html '<header><b>sample.db</b><span>s4.csv, 2 requests</span>' \
	'<h1>Faster, at a cost: compact-fp is 2.00x faster [2.00, 2.00] at TTFT p50, but gives 50 % of the answers'
ok '... what that rests on' has page.html '<ul class="rests">' '4 of 32 layers</li>' 'a tiled capture</li>'
ok '... a row for each run: of the baseline its figures' has page.html '</svg>dense</th><td data-h="TTFT p50 ' \
	'dense: TTFT p50 10.3 ms"><b>10.3'
ok '... of others times faster, an error, what was executed' has page.html \
	'compact-fp: TTFT p50 5.15 ms; 10.3 ms with dense"><b class="good">2.00x</b>' '<small>2.00' \
	'<b>50' '<small>1 of 2' '<b>55'
ok '... why a goodput by limits of the report has no interval, in a note, too' has page.html \
	'a second; no interval: replicates keep no times of requests, and were judged by --slo of the run alone; give run these limits"' \
	': no interval of goodput: replicates keep no times of requests, and were judged by --slo of the run alone; give run these limits'
ok '... and a mark where a figure rests on something' has page.html '<sup>'
is '... and a chart beside it' "$(grep -c '^<figure>' page.html)" 1
ok 'it says what the figures say' has page.html 'Trace s4.csv, 2 requests; model llama-3.1-8b;' \
	'compact-fp, against dense: TTFT p50 2.00x faster [2.00, 2.00], p99 2.00x faster [2.00, 2.00], TPOT p50 2.00x faster' \
	'; mean relative L2 error 2.5 %;' \
	'55 % of the attention executed.  Its attention core takes 7.8 ms, 1.6 ms of that' \
	'tri-shape: no request got a token; there is no dense run'
ok '... the notes' has page.html 'run 3: 3 kernel records were lost'
ok '... and what would bring what is not there' has page.html \
	'<li>Chunk size: it takes runs that differ in --max-num-batched-tokens.</li>'
is '... which are two parts' "$(grep -c ': it takes ' page.html)" 2
ok 'the tables are those of the report' has page.html '<td class="n" data-h="p99">17.454</td>'
ok 'errors have a chart' has page.html '<title>compact-fp: TTFT p50 2.00x faster [2.00, 2.00] than dense, error 2.5 %'
ok '... latencies, with their limits' has page.html '<title>limit of ttft: 10 ms</title>'
ok '... requests' has page.html '<title>request 1: 20 tokens, 2.00x faster than dense</title>'
ok '... phases' has page.html '<title>compact-fp, select: 1.55 ms, '
ok '... limits' has page.html '<title>compact-fp, TTFT within 10 ms: 100 % of the requests</title>'
ok '... iterations' has page.html ' s: 7 prompt + 1 decode tokens</title>'
ok '... and requests in them' has page.html '<title>request 1: prefill 17.5 ms, 20 prompt and 2 output'
ok '... densities' has page.html '<title>compact-fp, executed</title>'
charts=$(sed -n 's/^\(FIRST\|CHART\|EACH\|QUERY\)(\([a-z_]*\).*/\2/p' "$srcdir/src/report/chart_list.h")
listed() { # a file that is not listed is in no page
	for sql in "$srcdir"/src/report/charts/*.sql; do
		echo "$charts" | grep -qx "$(basename "$sql" .sql)" || { echo "$sql"; return 1; }
	done
}
if [ -n "$charts" ]; then
	ok 'every file of charts/ is in the page' listed
else
	skip 'every file of charts/ is in the page' 'no sources here'
fi
is 'each chart has its SQL, and so have the tables that it reads' \
	"$(grep -c '<summary>SQL' page.html) $(grep -c '<summary>make_' page.html)" '13 22'
ok 'nothing is fetched' lacks page.html http
ok '... and nothing but the page is named' sh -c '! grep -Eq "(src|href)=\"[^#]" page.html'

ar report --run 2 --html two.html sample.db || exit 99
ok '--run shows one run beside its dense run' has two.html 'compact-fp, against dense: TTFT p50 2.00x faster'
ok '... and no other' lacks two.html tri-shape

for option in '--format csv' '--dialect vllm'; do
	# shellcheck disable=SC2086
	ok "$option is wrong usage" fails 2 "${option% *} has no effect with --html" \
		"$ATTNREPLAY" report $option --html x.html sample.db
done
ok 'so is a run that there is not' fails 2 'no run 9' \
	"$ATTNREPLAY" report --run 9 --html x.html sample.db
ok 'a file that is no database is bad data' fails 3 'page.html: ' \
	"$ATTNREPLAY" report --html x.html page.html
ok '... and leaves no page' [ ! -e x.html ]

label=$srcdir/src/report/sections/make_label.sql
coloured() { # a method without a colour of its own
	"$ATTNREPLAY" methods | sed -n '/^methods/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vx dense >names
	[ -s names ] && while read -r m; do grep -q "('$m', [0-9]*)" "$label" || { echo "$m"; return 1; }; done <names
}
if [ -e "$label" ]; then
	ok 'each method has a colour; else append it to make_label.sql' coloured
	is '... of its own' "$(grep -o "('[a-z-]*', [0-9]*)" "$label" | sed 's/.*, //' | sort | uniq -d)" ''
	is '... that the page has; else append it to chart_style.c' "$(grep -o "('[a-z-]*', [0-9]*)" "$label" |
		sed 's/.*, \(.*\))/\1/' | while read -r n; do grep -q "\.c$n{color:var(--c$n)}" page.html || echo "$n"; done)" ''
	grep -o "WHEN '[a-z_ ]*' THEN [0-9]*" "$srcdir/src/report/charts/phases.sql" >styles
	is 'each phase has one; else add it to phases.sql' "$("$ATTNREPLAY" sql --format csv sample.db \
		'SELECT name FROM phase' | sed 1d | while read -r p; do grep -q "'$p'" styles || echo "$p"; done)" ''
	is '... of its own, too' "$(sed 's/.* //' styles | sort | uniq -d)" ''
else
	skip 'each method has a colour; else append it to make_label.sql' 'no sources here'
	skip '... of its own' 'no sources here'
	skip '... that the page has' 'no sources here'
	skip 'each phase has one; else add it to phases.sql' 'no sources here'
	skip '... of its own, too' 'no sources here'
fi

# ---- runs that differ in rate and chunk size ----

sweep() { # sweep RATE TOKENS
	ar -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --requests 20 --rate "$1" \
		--max-num-batched-tokens "$2" --slo ttft:150ms --backend cost --db sweep.db >out
}
sweep 1 512 && sweep 20 1024 && ar report --html sweep.html sweep.db || exit 99
ok 'over the rate there is a curve of goodput' has sweep.html '<title>cost at 20 a second: '
ok '... and over the chunk size one of latency' has sweep.html '>TTFT p50, ms</text>'

# ---- runs of sessions ----

agents() { # agents CHUNK
	ar -q run --trace "$srcdir/tests/data/weka-2.jsonl" --loop sessions --backend cost \
		--max-num-batched-tokens "$1" --num-gpu-blocks 20000 --enable-prefix-caching --db agents.db >out
}
agents 512 && ar report --html one.html agents.db && agents 8192 && ar report --html two.html agents.db || exit 99
ok 'runs of sessions have a chart' has two.html ' sessions an hour, half of them end within '
ok '... but one run alone has none' lacks one.html ' sessions an hour, half of them end within '

# ---- many runs ----

for rate in 2 3 4 5; do sweep $rate 512; done && ar report --html many.html sweep.db || exit 99
ok 'small charts are drawn of more than four runs' [ "$(grep -c '<summary>cost' many.html)" -gt 8 ]
for rate in 1 2 3 4 5 6; do
	ar -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --rate $rate --backend cost \
		--intervals off --db long.db >out || exit 99
done
ar report --html long.html long.db || exit 99
is '... large ones of four' "$(grep -c '^<p class="note">2 more runs are left out' long.html)" 1

# ---- several databases ----

ar report --html both.html --slo ttft:10ms sample.db sweep.db || exit 99
ok 'several databases are one page' has both.html '<header><b>sample.db, sweep.db</b>' \
	'compact-fp, against dense: TTFT p50 2.00x faster' '>run 2 of sweep.db</td>'
well_formed '... which is XML' both.html
ok '... whose long tables are folded' has both.html '<details class="rows"><summary>'
cp sample.db copy.db
ok '... also with a baseline of another database' ar report --html x.html --baseline copy.db:1 \
	sample.db:2
ok '... which is in it' has x.html '>run 1 of copy.db</td>' 'compact-fp, against dense: TTFT p50 2.00x faster'
mkdir four && for i in 1 2 3 4; do cp sample.db four/$i.db; done
ar report --html four.html four || exit 99
ok 'many databases are counted' has four.html '<header><b>four/ 4 databases</b>'
ok '... and answer together, by rate and by length' has four.html \
	'<h1>Faster, at a cost: compact-fp is 2.00x faster at TTFT p50; its interval is above 1 at 4 of 4' \
	'By length: it is faster at all prompt lengths, 2 to 20 tokens.'
for out in ./sample.db sweep.db; do
	ok "$out is no output" fails 2 "$out: it is a database to report; name another file" \
		"$ATTNREPLAY" report --html "$out" sample.db sweep.db
done
for e in perfetto nsys; do
	ok "$e is of one database" fails 2 \
		"--$e is of one database; join them first: attnreplay merge --no-key ALL.db sample.db" \
		"$ATTNREPLAY" report --html x.html --$e x sample.db sweep.db
done
no_kernel_names() { ATTNREPLAY_LIBSTDCXX=none silent 0 "$ATTNREPLAY" report --html x.html sample.db; }
ok 'the page needs no names of kernels' no_kernel_names

# ---- the baseline ----

ar report --html named.html --baseline 2 --run 1 sample.db || exit 99
ok 'titles and sentences name the baseline' has named.html \
	'<h3>TTFT of each request, times faster than compact-fp' '>times faster than compact-fp</text>' \
	'<title>as fast as compact-fp' '<title>dense: TTFT p50 2.00x slower [2.00, 2.00] than compact-fp' \
	'dense, against compact-fp: TTFT p50 2.00x slower'
ok '... which needs no baseline itself' lacks named.html 'there is no dense run'
ar report --html same.html --baseline copy.db:1 copy.db:1 sample.db:1 || exit 99
ok 'a run as fast as the baseline gains nothing' has same.html 'as fast, 1.00x [1.00, 1.00] at TTFT p50'
if command -v sqlite3 >/dev/null; then
	sqlite3 copy.db "UPDATE eval_prompt SET n_best = 0, exact = 0 WHERE task = 'vt'"
	ar report --html copy.html copy.db || exit 99
	is 'where dense attention answers little, rows are grey, and say so' \
		"$(grep '^<tr class="weak">' copy.html | grep -c 'dense below 60 %')" 2
	is '... others are not' "$(grep -c '<tr class="weak">.*multikey' copy.html)" 0
	cp sample.db range.db
	sqlite3 range.db "UPDATE replicate_latency SET p50 = p50 * 3
	  WHERE run_id = 2 AND metric = 'ttft' AND replicate_no % 2"
	ar report --html range.html range.db || exit 99
	ok 'an interval that holds 1 shows nothing' has range.html \
		'<h1>Not shown: compact-fp is 1.50x slower to 2.00x faster at TTFT p50.</h1>'
	cp sample.db near.db
	sqlite3 near.db "UPDATE request_outcome SET first_token_ns = first_token_ns + 250000 WHERE run_id = 2;
	  UPDATE replicate_latency SET p50 = p50 * 1.1
	  WHERE run_id = 2 AND metric = 'ttft' AND replicate_no % 2"
	ar report --html near.html --baseline sample.db:1 sample.db:2 near.db:2 || exit 99
	ok 'of two runs the faster one is named' has near.html '<h1>Faster, at a cost: compact-fp (run 1) is 2.00x'
	sqlite3 near.db 'UPDATE accuracy_sample SET rel_l2 = rel_l2 / 5 WHERE run_id = 2'
	ar report --html near.html --baseline sample.db:1 sample.db:2 near.db:2 || exit 99
	ok '... the more exact one, if they are not told apart' has near.html \
		'compact-fp (run 2) is 1.91x faster [1.82, 2.00]' 'compact-fp (run 1) is faster still, 2.00x' \
		'TPOT p50: compact-fp (run 2) is 2.18x faster, without an interval.' "<small>no$(printf '\302\240')interval</small>"
	cp sample.db other.db
	sqlite3 other.db "UPDATE method SET name = 'xattention' WHERE name = 'compact-fp'"
	ar report --html other.html sample.db other.db || exit 99
	ok 'a method of one setting is said to have one' has other.html \
		' is 2.00x faster at TTFT p50, at the one setting that has it.</h1>'
	sqlite3 sweep.db 'UPDATE replicate SET good = 0 WHERE run_id = 1'
	ar report --html outside.html sweep.db || exit 99
	ok 'a goodput beyond its replicates has no interval, and the cell says so, and a note' has outside.html \
		'a second; no interval: it lies outside of what replicates give"' \
		'run 1: no interval of goodput: it lies outside of what replicates give'
	sqlite3 copy.db 'UPDATE iteration SET host_ns = 3e6 WHERE run_id = 2'
	ar report --html host.html copy.db || exit 99
	ok 'the wait for the host has a bar and a sentence' has host.html \
		'<title>compact-fp, wait for the host: ' ' ms for the host, with dense 0.0 ms.'
	sqlite3 copy.db 'DELETE FROM replicate_latency WHERE run_id = 2'
	ar report --html host.html copy.db || exit 99
	ok 'without replicates there is no interval, and the cell says so' has host.html 'ms with dense; no interval: '
	ok '... as does the answer' has host.html ' is 2.00x faster at TTFT p50, without an interval'
else
	skip 'where dense attention answers little, rows are grey, and say so' 'no sqlite3'
	skip '... others are not' 'no sqlite3'
	skip 'a method of one setting is said to have one' 'no sqlite3'
	skip 'a goodput beyond its replicates has no interval, and the cell says so, and a note' 'no sqlite3'
	skip 'the wait for the host has a bar and a sentence' 'no sqlite3'
	skip 'without replicates there is no interval, and the cell says so' 'no sqlite3'
	skip '... as does the answer' 'no sqlite3'
fi

# ---- foreign names ----

cat >'a<b>&"]]>.csv' <<'E'
TIMESTAMP,ContextTokens,GeneratedTokens
2023-11-16 18:00:00.0000000,10,1
2023-11-16 18:00:00.0000000,10,3
E
ar -q run --trace 'a<b>&"]]>.csv' --backend cost --db 'o<i>.db' >out || exit 99
ar report --html odd.html 'o<i>.db' || exit 99
well_formed 'a page of hostile names is XML' odd.html
ok '... with the names' has odd.html 'o&lt;i&gt;.db' 'a&lt;b&gt;&amp;&#34;]]&gt;.csv'
ok '... as text alone' sh -c '! grep -Eq "o<i>|a<b>" odd.html'

# ---- many requests ----

ar -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" --repeat 50 --time-scale 0.01 \
	--max-output-tokens 4 --keep-entries no --backend cost --slo ttft:1s --intervals off \
	--db many.db >out || exit 99
ar report --html many.html many.db || exit 99
small() { ls -l many.html && [ "$(wc -c <many.html)" -lt 400000 ]; }
ok 'a page of 10,000 requests is small' small
well_formed '... and XML' many.html
ok '... and tells how many it has' has many.html 'the first 80 of 10000 requests'

# ---- checkers and browsers ----

if command -v tidy >/dev/null; then
	checked() { # tidy does not know what is in an <svg>
		tidy -q -e page.html 2>tidy.txt
		grep -v '<svg> proprietary attribute' tidy.txt
		[ $? = 1 ]
	}
	ok 'tidy finds nothing' checked
else
	skip 'tidy finds nothing' 'no tidy'
fi

# The page in a frame of the width: a script that is added zooms, points at a mark, and tells the
# outer page what it sees.
cat >probe.js <<'E'
addEventListener("load", () => {
  const width = document.documentElement.scrollWidth, zoom = document.querySelector(".zoom");
  const plot = zoom.querySelector(".plot"), box = plot.getBoundingClientRect();
  const at = (type, x) => plot.dispatchEvent(new PointerEvent(type,
    { bubbles: true, clientX: box.left + x * box.width, clientY: box.top + 5 }));
  at("pointerdown", 0.25);
  at("pointerup", 0.75);
  const title = document.querySelector("svg.chart g > title"), mark = title.parentNode;
  mark.dispatchEvent(new PointerEvent("pointermove", { bubbles: true }));
  const shown = document.getElementById("tip").textContent === title.textContent;
  parent.postMessage(["see", width <= innerWidth, innerWidth,
    document.querySelectorAll("nav button").length, (+zoom.dataset.from).toFixed(2),
    (+zoom.dataset.to).toFixed(2), shown, document.querySelector("nav details").open, "end"].join(" "), "*");
});
E
sed 's#</body>#<script src="probe.js"></script></body>#' page.html >probe.html
browse() { # browse WIDTH: "see FITS WIDTH BUTTONS FROM TO SHOWN CONTENTS end"
	cat >frame.html <<E
<!DOCTYPE html><title>t</title><script>onmessage = (e) => document.title = e.data;</script>
<iframe width="$1" height="900" src="probe.html"></iframe>
E
	timeout 60 "$browser" --headless --no-sandbox --disable-gpu --enable-logging=stderr \
		--user-data-dir="$tmp/profile" --window-size=1400,900 --dump-dom \
		"file://$tmp/frame.html" 2>console | grep -o 'see .* end'
}
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome)
for width in 1600 1280 390; do
	what="in Chromium, $width pixels wide: nothing scrolls sideways, zoom and titles work, contents fit"
	bar=$([ $width -ge 1500 ] && echo true || echo false)
	if [ -n "$browser" ]; then
		is "$what" "$(browse $width)" "see true $width 1 0.25 0.75 true $bar end"
		is '... and the console is empty' "$(grep CONSOLE console)" ''
	else
		skip "$what" 'no chromium'
		skip '... and the console is empty' 'no chromium'
	fi
done
picture="$srcdir/contrib/page_png.sh"
ok 'a picture needs its parts named' fails 2 'usage: page_png.sh PAGE.html' "$picture" page.html p.png 300
if command -v chromium >/dev/null && command -v pngquant >/dev/null; then
	ok 'a picture of some parts of the page is drawn' "$picture" page.html p.png 300 words latency
	is '... as a PNG' "$(head -c 4 p.png | tail -c 3)" PNG
else
	skip 'a picture of some parts of the page is drawn' 'no chromium, or no pngquant'
	skip '... as a PNG' 'no chromium, or no pngquant'
fi
finish
