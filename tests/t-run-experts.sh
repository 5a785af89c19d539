#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --ep and --routing: experts that are spread over ranks or engines.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

trace=$srcdir/traces/samples/azure-2023-code-200.csv
all() { "$ATTNREPLAY" -q run --trace "$trace" --requests 12 --max-output-tokens 8 "$@"; }
run() { all --backend roofline --gpu h200 --model qwen3-30b-a3b --host none "$@"; }
header() { sed -n "s/^$1 *//p"; }
tpot() { sed -n 's/^TPOT *[0-9]* *//p' | cut -d ' ' -f 1; }
query() { "$ATTNREPLAY" sql --format csv "$1" "$(printf %s "$2" | tr '\n' ' ')" | tail -n +2; }
longer() { awk "BEGIN { exit !($1 > $2) }"; }
refused() { pattern=$1; shift; fails 2 "$pattern" "$@"; }

# ---- the ranks of one engine ----

run --tp 4 >split
run --tp 4 --ep 4 --db even.db --intervals off >even
is 'ranks have whole experts' "$(header experts <even)" 'on 4 ranks; rows go to them by even'
is '... of the size of slices' "$(header memory <even)" "$(header memory <split)"
is '... and the same messages' "$(query even.db "SELECT kernels / 98.0 FROM v_phase_time
	WHERE phase = 'comm'")" "$(query even.db 'SELECT count(*) * 1.0 FROM iteration')"
for rule in uniform zipf:1; do
	run --tp 4 --ep 4 --routing $rule >drawn
	is "rows go by $rule" "$(header experts <drawn)" "on 4 ranks; rows go to them by $rule"
	ok '... so that the slowest rank takes longer' longer "$(tpot <drawn)" "$(tpot <even)"
	run --tp 4 --ep 4 --routing $rule >again
	ok '... as it does again' cmp -s drawn again
	run --tp 4 --ep 4 --routing $rule --routing-seed 2 >again
	ok '... and another seed draws others' sh -c '! cmp -s drawn again'
done
{ echo layer expert weight && for i in 0 1 2 3 4 5 6 7 8 9; do echo 0 $i 1; done; } >weights
run --tp 4 --ep 4 --routing weights >file
ok 'a file can give all rows to one rank' longer "$(tpot <file)" "$(tpot <drawn)"
run --routing even --db even1.db --intervals off >even1
run --db none.db --intervals off >none
rows() { for t in iteration request_outcome request_span token_gap; do query "$1" "SELECT * FROM $t"; done; }
rows even1.db >even1
rows none.db >none
ok 'even is as without the option, to the byte' cmp -s even1 none
run --routing uniform --db one.db --intervals off >one
is 'one rank draws, too' "$(header experts <one)" 'rows go to them by uniform'
rows one.db >one
ok '... which changes what it runs' sh -c '! cmp -s one none'

# ---- engines ----

few() { run --replicas 4 "$@"; }
few >alone
for way in agrs a2a a2a-experts; do
	few --ep 4 --ep-backend $way --routing uniform --db $way.db --intervals off >$way
	is "$way: engines share experts" "$(header experts <$way)" \
		'on 4 engines, which wait for each other; rows go to them by uniform'
	is '... and have messages in 48 layers' "$(query $way.db "SELECT kernels / 96.0 FROM v_phase_time
		WHERE phase = 'comm'")" "$(query $way.db 'SELECT count(*) * 1.0 FROM iteration')"
	is '... and iterations that end together' "$(query $way.db 'SELECT count(*) FROM iteration a
		JOIN iteration b ON a.iter_no < b.iter_no WHERE a.end_ns <> b.end_ns AND
		a.start_ns < b.end_ns AND b.start_ns < a.end_ns')" 0
	is '... and serve all' "$(query $way.db "SELECT count(*) FROM request_outcome WHERE outcome = 'ok'")" 12
	ok '... which takes longer' longer "$(tpot <$way)" "$(tpot <alone)"
done
ok 'engines by themselves say so' grep -q '^replicas .*, and none waits for another$' alone
ok '... and those that share experts do not' grep -q '^replicas .*; each has what is said below$' agrs
ok '... and have more room for KV' longer "$(sed -n 's/^memory.*: \([0-9]*\) blocks.*/\1/p' agrs)" \
	"$(sed -n 's/^memory.*: \([0-9]*\) blocks.*/\1/p' alone)"
is 'their messages are those of a preset' "$(header comm <agrs)$(header comm <a2a)" \
	'of 4 ranks, measured: h200-vllmof 4 ranks, measured: h200-vllm'
few --ep 4 --comm model >out
is '... or of a ring' "$(header comm <out)" \
	'a ring of 4 ranks over NVLink 4, 450 GB/s a way: modelled, not measured'
{
	echo '# attnreplay collectives 1'
	echo collective type ranks hosts mode bytes n p10_ns p50_ns p90_ns kernel
	for c in allgather reducescatter; do echo $c bf16 4 1 inline 1000000 9 1 20000 90000 -; done
} >table
few --ep 4 --comm table >out
is '... or of a table' "$(header comm <out)" 'of 4 ranks, measured: table'
few --ep 4 --comm none >out
is '... or left out' "$(header comm <out)" \
	'none: those of 4 ranks are left out, so iterations are too short'
"$ATTNREPLAY" report agrs.db >report
ok 'a report says that they wait' grep -q \
	'4 engines share their experts: each waits for the slowest, and routing takes no time' report
ok '... and what their messages are' grep -q 'collectives of 4 engines' report

# ---- engines with ranks of their own ----

for way in agrs a2a; do
	run --tp 2 --replicas 4 --ep 8 --ep-backend $way --routing uniform --db both.db --intervals off >both
	is "$way: the ranks of engines share experts" "$(header experts <both)" \
		'on 8 ranks of 4 engines, which wait for each other; rows go to them by uniform'
	# The embedding, 48 sums after attention, logits; two messages of experts and a gather of the results.
	is '... and have messages of both' "$(query both.db "SELECT kernels / 194.0 FROM v_phase_time
		WHERE phase = 'comm'")" "$(query both.db 'SELECT count(*) * 1.0 FROM iteration')"
	rm both.db
done
run --tp 2 --replicas 4 --ep 2 >apart
ok '... which takes longer than by themselves' longer "$(tpot <both)" "$(tpot <apart)"
run --engine-args 'vllm serve qwen3-30b-a3b -tp 2 -dp 2 --enable-expert-parallel' >out
is "as vLLM's flags have it" "$(header experts <out)" \
	'on 4 ranks of 2 engines, which wait for each other; rows go to them by even'
all --backend roofline --gpu h200 --host none \
	--engine-args 'vllm serve qwen3-30b-a3b -dp 1 --enable-expert-parallel' >out
ok '... also for one engine by itself' grep -q '^TPOT' out
{
	cat table
	echo allreduce bf16 2 1 inline 1000000 9 1 20000 90000 -
	echo allgather bf16 2 1 inline 1000000 9 1 10000 90000 other
} >table2
run --tp 2 --replicas 2 --ep 4 --comm table2 >out
is 'a table has lines of both' "$(header comm <out)" 'of 4 ranks, measured: table2'
ok '... which are told apart' grep -q 'collectives: [0-9]* by -, [0-9]* by other' out
ok '... and are needed' fails 2 'table: no allreduce in bf16 of 2 ranks' \
	run --tp 2 --replicas 2 --ep 4 --comm table
run --tp 2 --replicas 2 --ep 4 --db both.db --intervals off >out
"$ATTNREPLAY" report both.db >report
ok 'a report says how many wait' grep -q \
	'2 engines share their experts: each waits for the slowest, and routing takes no time' report
ok '... and whose their messages are' grep -q 'collectives of 4 ranks' report

# ---- costs of a GPU ----

if command -v sqlite3 >/dev/null; then
	measured() { # measured DB OPTION...: costs as of a GPU
		db=$1
		shift
		run "$@" --db "$db" --intervals off >out
		sqlite3 "$db" "INSERT INTO gpu(uuid, name, cc_major, cc_minor, sm_count, l2_bytes,
			mem_bytes) VALUES('1', 'NVIDIA H200', 9, 0, 132, 50000000, 150000000000);
			UPDATE run SET gpu_id = 1, clock = 'cupti'"
	}
	costs() { db=$1; shift; all --backend cost --host none --costs "$db" --costs-extrapolate "$@"; }
	measured gpu.db
	costs gpu.db --replicas 2 --ep 2 >out
	is 'measured costs get the messages alone' "$(header experts <out)" \
		'on 2 engines, which wait for each other; rows go to them by even; only their messages are modelled'
	is '... of a preset' "$(header comm <out)" 'of 2 ranks, measured: h200-vllm'
	costs gpu.db --replicas 2 >two
	ok '... which take time' longer "$(tpot <out)" "$(tpot <two)"
	measured gpu4.db --tp 4
	ok 'costs of a rank have its experts' refused 'ep has no effect: the costs of gpu4.db:1 are of a rank' \
		costs gpu4.db --tp 4 --ep 4
else
	for i in 1 2 3 4; do skip "costs of a GPU $i" "no sqlite3"; done
fi

# ---- refusals ----

ok 'ranks must be there' refused 'ep 4: want as many as --tp, or times --replicas that are not apart; they are 2 and 1' \
	run --tp 2 --ep 4
ok '... and not others' refused 'ep 4: want as many as --tp, or times --replicas that are not apart; they are 8 and 4' \
	run --tp 8 --replicas 4 --ep 4
ok '... nor prefill apart' refused 'ep 2: want as many' run --prefill-replicas 2 --decode-replicas 2 --ep 2
ok 'engines have a backend, ranks have none' refused 'ep-backend has no effect without --ep above --tp' \
	run --tp 4 --ep 4 --ep-backend a2a
ok 'even draws nothing' refused 'routing-seed has no effect without --routing' run --routing-seed 3
ok 'attention alone has no experts' refused 'ep has no effect with --attention-only' \
	run --tp 4 --ep 4 --attention-only
ok '... which nothing goes to' refused 'routing has no effect with --attention-only' \
	run --routing uniform --attention-only
ok 'kernels run all experts' refused 'ep 2: backend cpu runs a rank with all experts; take --backend roofline' \
	all --backend cpu --model qwen3-30b-a3b --tp 2 --ep 2
ok 'a model must have experts' refused 'ep has no effect: llama-3.1-8b has no experts' \
	run --model llama-3.1-8b --tp 2 --ep 2
ok '... to go to' refused 'routing has no effect: llama-3.1-8b has no experts' \
	run --model llama-3.1-8b --routing uniform
ok '... that divide' refused 'cannot spread model .qwen3-30b-a3b. over 3 ranks: the 128 experts of layer 0' \
	run --replicas 3 --ep 3
ok 'a rule has a form' refused "routing 'zipf:9': want even, uniform, zipf:A" run --routing zipf:9
ok 'a file must be there' fails 3 'no-such-file' run --routing no-such-file
finish
