#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# --json of run, search, sweep, trace info, methods, capture info and tune: the same figures as the text, and the
# ways to write them.  tests/t-outputs.sh has the rest of the files.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
trace=$ATTNREPLAY_DATA/traces/samples/azure-2023-code-200.csv
ar() { "$ATTNREPLAY" "$@"; }
cost() { ar run --backend cost --trace "$trace" --requests 9 "$@"; }
cpu() { ar run --backend cpu --trace "$trace" --requests 2 --max-prompt-tokens 40 \
	--max-output-tokens 2 --model niah-llama-14m --capture "$arc" --sample-layers 1 "$@"; }
subcommand() { # WHICH ARGUMENT...
	which=$1
	shift
	case $which in
	run) cost "$@" ;;
	trace) ar trace info "$@" "$trace" ;;
	methods | method) ar methods "$@" ;;
	capture) ar capture info "$@" "$arc" ;;
	search) ar search rate --slo $slo --backend cost --trace "$trace" --requests 9 "$@" ;;
	sweep) ar sweep two.sweep --plan "$@" ;;
	tune) ar -q tune $tuned "$@" ;;
	esac
}
printf '%s\n' "trace = $trace" 'backend = cost' 'max-num-seqs = [8, 16]' >two.sweep
tuned="--method flashprefill,dense --target density=0.8 --tolerance 0.05 --capture $arc --tokens 600
	--chunk 128 --chunks 1"
slo=ttft:p50:100ms,e2e:p99:10s
python=
command -v python3 >/dev/null && python=python3
holds() { # FILE CONDITION: on the document d and its first run r
	"$python" -c 'import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
r = d.get("runs", [None])[0]
assert eval("(" + sys.argv[2] + ")"), json.dumps(d)[:2000]' "$@"
}
has() { # DESCRIPTION FILE CONDITION
	if [ "$python" ]; then
		ok "$1" holds "$2" "$3"
	else
		skip "$1" 'no python3'
	fi
}

for c in run trace methods capture search sweep tune; do
	subcommand $c >$c.text
	ok "$c writes a file" subcommand $c --json $c.json
	subcommand $c --json again.json >again.text
	ok '... and its text as before' cmp $c.text again.text
	ok '... the same a second time' cmp $c.json again.json
	subcommand $c --json - >alone 2>err
	ok '... - is standard output, with JSON alone' cmp $c.json alone
	is '... and no message' "$(cat err)" ''
	ok '... which may be full' fails 1 '^attnreplay: /dev/full: cannot write: No space left' \
		sh -c '"$@" >/dev/null' - "$ATTNREPLAY" $(case $c in
		run) echo "run --backend cost --trace $trace --json /dev/full" ;;
		trace) echo "trace info $trace --json /dev/full" ;;
		methods) echo 'methods --json /dev/full' ;;
		capture) echo "capture info $arc --json /dev/full" ;;
		search) echo "search rate --slo $slo --backend cost --trace $trace --json /dev/full" ;;
		sweep) echo 'sweep two.sweep --plan --json /dev/full' ;;
		tune) echo "-q tune $tuned --json /dev/full" ;;
		esac)
	full() {
		subcommand $c --json - >/dev/full 2>err
		[ $? = 1 ] && grep -q '^attnreplay: /dev/stdout: cannot write: No space left' err
	}
	ok '... as standard output may' full
	ok '... a folder that is missing is named' fails 1 '^attnreplay: /no/where: cannot create' \
		sh -c '"$@" >/dev/null' - "$ATTNREPLAY" $(case $c in
		run) echo "run --backend cost --trace $trace --json /no/where" ;;
		trace) echo "trace info $trace --json /no/where" ;;
		methods) echo 'methods --json /no/where' ;;
		capture) echo "capture info $arc --json /no/where" ;;
		search) echo "search rate --slo $slo --backend cost --trace $trace --json /no/where" ;;
		sweep) echo 'sweep two.sweep --plan --json /no/where' ;;
		tune) echo "-q tune $tuned --json /no/where" ;;
		esac)
	has '... it names its schema' $c.json "d['schema'].startswith('attnreplay-$c')"
done

# ---- run ----

has 'run has a latency with the figures of the text' run.json \
	"'%-8s%10d%14.3f%14.3f%14.3f%14.3f' % ('TTFT', *(r['latency_ms']['TTFT'][k]
	for k in ('count', 'mean', 'p50', 'p90', 'p99'))) in open('run.text').read().split('\n')"
has '... and its counts' run.json "f\"{r['iterations']} iterations, {r['entries']} entries, \
{r['prefill_tokens']} prefill and {r['decode_tokens']} decode tokens\" in open('run.text').read() and
	r['ok'] == 9 and r['rejected'] == r['unfinished'] == 0"
has '... no goodput without limits, and no number of a run' run.json \
	"r['goodput'] is None and r['run_id'] is None and r['db'] is None"
cost --slo ttft:100ms --json slo.json >slo.text
has 'with limits the goodput of the text' slo.json \
	"'goodput: %d of %d requests (%.1f %%) within %s, %.4g a second' % (r['goodput']['requests'],
	r['goodput']['of'], 100 * r['goodput']['share'], r['goodput']['slo'], r['goodput']['per_s'])
	in open('slo.text').read().split('\n')"
cpu --method dense,compact-fp:alpha=0.5 --db r.db --json two.json >two.text
has 'two methods are two runs with numbers' two.json \
	"[(x['method'], x['run_id'], x['db'], x['clock']) for x in d['runs']] ==
	[('dense', 1, 'r.db', 'cpu'), ('compact-fp:alpha=0.5', 2, 'r.db', 'cpu')]"
has '... and parameters' two.json "d['runs'][1]['parameters']['alpha'] == 0.5"
has '... and accuracy' two.json "r['accuracy']['rel_l2_max'] == 0"
cpu --method dense,compact-fp:alpha=0.5 --json - >two.alone 2>&1
has 'two methods write to standard output' two.alone "len(d['runs']) == 2"
ar run --backend cost --trace "$trace" --requests 2 --max-prompt-tokens 40 --max-output-tokens 2 \
	--costs r.db:2 --costs-extrapolate --json costs.json >costs.text 2>&1
has 'a run of costs has the method of these' costs.json \
	"r['method'] == 'compact-fp:alpha=0.5' and r['model'] == 'niah-llama-14m' and
	r['costs_measured'] + r['costs_interpolated'] + r['costs_extrapolated'] == r['iterations']"
late() {
	echo before >late.json
	cpu --method dense,seer:gate=no.safetensors --json late.json >/dev/null 2>&1
	[ $? = 3 ] && [ "$(cat late.json)" = before ] && [ -z "$(ls | grep tmp)" ]
}
ok 'a run that fails leaves the file before' late
stuck() { # the first method writes, in a process of its own
	cpu --method dense,compact-fp --json /dev/full >/dev/null 2>err
	[ $? = 1 ] && grep -q '^attnreplay: /dev/full: cannot write: No space left' err
}
ok 'a full disk stops a run of two methods' stuck
ok 'the database is another file' says 2 './x.db: given for two outputs; name another file' \
	cost --json x.db --db ./x.db
ok '... and is not made' [ ! -e x.db ]
ln -s loop loop
ok 'a name that leads nowhere is no output' fails 1 'loop: cannot write: Too many levels' \
	cost --json loop --db y.db

# ---- search ----

has 'search has the curve of the text' search.json \
	"[l.split() for l in open('search.text') if l.split()[-1:] in (['yes'], ['no'])] ==
	[['%.4g' % p['rate'], '%.4g' % p['done_per_s'], *('%.3f' % x for x in p['latency_ms']),
	'yes' if p['kept'] else 'no'] for p in d['curves'][0]['points']]"
has '... the rate, and the one that failed' search.json \
	"'cost: %.4g requests a second keep the limits, %.4g do not' % (d['curves'][0]['best'],
	d['curves'][0]['failed']) in open('search.text').read() and
	len(d['curves'][0]['points']) > 3"
has '... and the limits' search.json "d['searched'] == 'rate' and [(l['metric'], l['percentile'],
	l['limit_ms']) for l in d['limits']] == [('ttft', 50, 100), ('e2e', 99, 10000)]"
ar search chunk --slo ttft:1s --lowest 64 --highest 128 --backend cost --trace "$trace" \
	--requests 9 --json chunk.json >chunk.text
has 'a limit of each request has no latency of its own' chunk.json \
	"[(p['chunk'], p['requests'], p['latency_ms']) for p in d['curves'][0]['points']] ==
	[(64, 9, [None]), (128, 9, [None])] and d['limits'][0]['percentile'] is None"
ok 'the database of a search is another file' says 2 \
	'./x.db: given for two outputs; name another file' subcommand search --json x.db --db ./x.db

# ---- the clock of a CPU ----

note='times of this CPU show mechanics, not the speed of a GPU'
is 'times of a CPU carry a note, once' "$(grep -c "$note" two.text)" 1
is '... others do not' "$(grep -c "$note" run.text)" 0
ar report r.db >report
is '... the report has it, too' \
	"$(grep -c 'times of a CPU show mechanics, not the speed of a GPU' report)" 1
cost --db cost.db >/dev/null
ar report cost.db >report
is '... for these alone' "$(grep -c mechanics report)" 0

# ---- the others ----

has 'trace info has the figures of the text' trace.json \
	"d['requests'] == 200 and 'mean %.1f, min %d' % (d['prompt_tokens']['sum'] / 200,
	d['prompt_tokens']['min']) in open('trace.text').read()"
ok '--json is of info alone' fails 2 "^attnreplay: --json has no effect in 'trace head'" \
	ar trace head --json x "$trace"
has 'capture info has the figures of the text' capture.json \
	"'tensor bytes  %d' % d['tensor_bytes'] in open('capture.text').read() and d['layers'] == [5]"
for v in 'pack x' verify 'unpack x'; do
	ok "--json is not of capture ${v% x}" fails 2 'takes no options of info; leave them out' \
		ar capture ${v% x} --json y "$arc" ${v#"${v% x}"}
done
ok 'options of pack are not of info' fails 2 'capture info takes no options of make and pack' \
	ar capture info --level 3 "$arc"
listed=$(ar methods | grep -c '^  ')
has 'methods has each entry of the text' methods.json \
	"sum(len(d[k]) for k in ('methods', 'presets', 'selectors', 'unions', 'executors', 'droppers', 'parts')) == $listed"
ar methods flashprefill --json one.json >/dev/null
has 'a name has its entries alone' one.json "[len(d[k]) for k in ('methods', 'presets', 'selectors',
	'unions', 'executors', 'droppers', 'parts')] == [1, 0, 1, 0, 0, 0, 0]"
has '... with parameters' one.json "next(p for p in d['selectors'][0]['parameters']
	if p['name'] == 'alpha') == {'name': 'alpha', 'default': '0.01', 'min': 0, 'max': 1,
	'meaning': d['selectors'][0]['parameters'][0]['meaning']}"
ar methods flashprefill:alpha=0.2 --json m.json >m.text
has 'a method has its values' m.json "d['values'] == json.load(open('m.text')) and
	d['method'] == 'flashprefill:alpha=0.2'"
ok 'a method that is none writes no file' fails 2 "method 'nope'" ar methods nope --json nope.json
ok '... at all' [ ! -e nope.json ]
# ---- sweep ----

has 'a plan has the points of the file' sweep.json "d['file'] == 'two.sweep' and d['points_of_file'] == 2
	and [(p['point'], p['state'], p['database']) for p in d['points']] == [(0, 'todo', None),
	(1, 'todo', None)] and [p['arguments'][-2:] for p in d['points']] == [['--max-num-seqs', '8'],
	['--max-num-seqs', '16']] and [p['key'] for p in d['points']] ==
	[l.split('\t')[1] for l in open('sweep.text')]"
ar sweep two.sweep --out points --index 1 --json one.json >one.text
has 'a run has the points that it ran' one.json "[(p['point'], p['state'], p['database']) for p in
	d['points']] == [(1, 'done', 'points/' + d['points'][0]['key'] + '.db')]"
ar sweep two.sweep --out points --all --json - >all.json
has '... and those that were there, without text' all.json "[p['state'] for p in d['points']] ==
	['done', 'there']"
ar sweep two.sweep --out points --plan --json - >plan.json
has '... which a plan calls done' plan.json "[p['state'] for p in
	d['points']] == ['done', 'done']"
printf '%s\n' 'skip-requests = [0, 1000000, 5]' >>two.sweep
failing() { ar sweep two.sweep --out points --all --json failed.json >failed.text; }
ok 'a sweep that fails writes the file' fails 3 'point 1 ended with exit status 3' failing
has '... with the points that failed and those that did not begin' failed.json "[p['state'] for p in d['points']] == ['there',
	'failed', 'todo', 'todo', 'todo', 'todo']"
ok 'a number of points is no JSON' fails 2 'json has no effect with --count' \
	"$ATTNREPLAY" sweep two.sweep --count --json x.json
finish
