#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --comm: collectives between ranks, on a modelled GPU.
. "$srcdir/tests/tap.sh"

table=$srcdir/tests/data/corpus/files/collectives
run() { "$ATTNREPLAY" -q run --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
	--requests 3 --max-output-tokens 4 "$@"; }
modelled() { run --backend roofline --gpu h100 --model llama-3.1-70b --host none "$@"; }
split() { modelled --tp 4 "$@"; }
comm() { grep '^comm ' | cut -c 11-; }
tpot() { sed -n 's/^TPOT *[0-9]* *//p' | cut -d ' ' -f 1; }
query() { # query DB SELECT: the rows; the header is the query itself, so it stands in one line
	"$ATTNREPLAY" sql --format csv "$1" "$(printf %s "$2" | tr '\n' ' ')" | tail -n +2
}
longer() { awk "BEGIN { exit !($1 > $2) }"; }

split >"$tmp/ring"
is 'ranks have collectives, which are modelled' "$(comm <"$tmp/ring")" \
	'a ring of 4 ranks over NVLink 4, 450 GB/s a way: modelled, not measured'
split --comm model >"$tmp/model"
is '... the same when asked' "$(tail -n 8 "$tmp/model")" "$(tail -n 8 "$tmp/ring")"
split --comm none >"$tmp/none"
is '... unless left out, as the header says' "$(comm <"$tmp/none")" \
	'none: those of 4 ranks are left out, so iterations are too short'
ok '... which takes less time' longer "$(tpot <"$tmp/ring")" "$(tpot <"$tmp/none")"
split --comm "$table" --db "$tmp/db" >"$tmp/table"
is 'a table has measured ones' "$(comm <"$tmp/table")" "of 4 ranks, measured: $table"
ok '... which take time, too' longer "$(tpot <"$tmp/table")" "$(tpot <"$tmp/none")"
is 'their phase has them' "$(query "$tmp/db" "SELECT core, kernels / (80 * 2 + 2)
	FROM v_phase_time WHERE phase = 'comm'")" \
	"0,$(query "$tmp/db" 'SELECT count(*) FROM iteration')"
is '... and its kernels are counted' "$(sed -n 's/^collectives: \([0-9]*\) by RING_LL, \([0-9]*\) by RING_LL128$/\1 + \2/p' \
	"$tmp/table" | xargs expr)" "$(query "$tmp/db" 'SELECT 162 * count(*) FROM iteration')"
split --comm "$table" --json - >"$tmp/json"
ok '... in JSON, too' grep -q '"comm_messages":{"RING_LL":[1-9]' "$tmp/json"
took() { query "$1" "SELECT ms FROM v_phase_time WHERE phase = 'comm'"; }
split --db "$tmp/engine.db" >"$tmp/out"
split --rates own --db "$tmp/own.db" >"$tmp/out"
ok 'an engine has collectives of its own, which are faster' longer "$(took "$tmp/own.db")" \
	"$(took "$tmp/engine.db")"
reports() { # reports DB TEXT: the report of its run has this of collectives
	"$ATTNREPLAY" report "$1" >"$tmp/report" && grep -q " collectives  *1  *$2" "$tmp/report"
}
ok 'a report says so' reports "$tmp/engine.db" 'collectives of 4 ranks are those of a ring over the link'
ok '... and of a table' reports "$tmp/db" "collectives of 4 ranks are from $table, and no rank is late"
split --comm none --db "$tmp/none.db" >"$tmp/out"
ok '... and if they are left out' reports "$tmp/none.db" \
	'one rank of 4 ran alone: its times are without collectives'
is 'one rank has none' "$(run --backend roofline --model llama-3.1-8b | comm)" ''

# ---- presets ----

pair() { run --backend roofline --gpu h200 --model llama-3.1-8b --host none --tp 2 "$@"; }
pair --db "$tmp/pair.db" >"$tmp/pair"
is 'ranks of a GPU with a preset have measured ones, of the engine' "$(comm <"$tmp/pair")" \
	'of 2 ranks, measured: h200-vllm'
is '... whose kernels are counted' "$(sed -n 's/^collectives: [0-9]* by \([a-zA-Z-]*\), [0-9]* by \([A-Z_]*\)$/\1 \2/p' \
	"$tmp/pair")" 'vllm-custom RING_LL'
ok '... which a report says' sh -c '"$ATTNREPLAY" report "$1" |
	grep -q "collectives of 2 ranks are from h200-vllm, and no rank is late"' sh "$tmp/pair.db"
is '... the same when asked' "$(pair --comm h200-vllm | tail -n 6)" "$(grep -v ^stored "$tmp/pair" | tail -n 6)"
for other in '--rates own' '--policy sglang' '--comm h200-nccl'; do
	is "... or those of NCCL, with $other" "$(pair $other | comm)" 'of 2 ranks, measured: h200-nccl'
done
for other in '--tp 16' '--comm model' '--gpu h100'; do
	is "... or a ring, with $other" "$(pair $other | comm | cut -d ' ' -f 1-2)" 'a ring'
done
for preset in h200-nccl h200-vllm; do
	is "... with what stages send, of $preset" "$(pair --pp 2 --comm $preset | comm)" \
		"of 2 ranks, measured: $preset"
done
pair --comm h200-nccl --db "$tmp/named.db" >"$tmp/out"
is '... and stored' "$(query "$tmp/named.db" 'SELECT comm FROM run')" h200-nccl
ok '... which is refused for other ranks when asked' fails 2 \
	'no allreduce in bf16 of 16 ranks on one host; the file has ranks 2, 4, 8; take' \
	pair --tp 16 --comm h200-nccl
# ms to launch the first iteration, a prompt that no graph holds, of 32 layers with 10 kernels
launched() {
	pair --host vllm-0.24 --host-seed 0 --db "$tmp/launched.db" "$@" >"$tmp/out"
	query "$tmp/launched.db" 'SELECT host_launch_ns FROM iteration LIMIT 1'
	rm -f "$tmp/launched.db"
}
alone=$(launched --comm none)
for comm in h200-nccl model; do
	is "the host launches collectives, with $comm" "$(($(launched --comm $comm) * 320 / alone))" \
		$((320 + 2 * 32 + 2))
done
is '... where no graph holds them' "$(launched --comm h200-nccl --max-num-batched-tokens 512)" \
	"$(launched --comm none --max-num-batched-tokens 512)"
for seed in 1 2 3 4 5 6; do
	echo $(($(launched --comm model --host-seed $seed) * 320 / \
		$(launched --comm none --host-seed $seed)))
done | sort -nu >"$tmp/slower"
ok 'each rank draws its host' [ "$(wc -l <"$tmp/slower")" -gt 1 ]
ok '... and the slowest counts' [ "$(head -n 1 "$tmp/slower")" -ge 385 ]	# rounded
python=${PYTHON:-python3}
if "$python" -c '' 2>/dev/null; then
	printf '%s\n' 'collective type ranks hosts mode bytes n p10_ns p50_ns p90_ns kernel' \
		'allreduce bf16 2 1 graph 4096 9 100 200 300 K' 'allreduce bf16 2 1 inline 4096 9 100 200 300 K' \
		>"$tmp/chain"
	is 'a table gets what collectives take longer in graphs' \
		"$(PYTHONDONTWRITEBYTECODE=1 "$python" "$srcdir/contrib/comm_tables.py" graphs "$tmp/chain" 50)" \
		'# in graphs 50 ns more than that, as between the kernels of a model
collective type ranks hosts mode bytes n p10_ns p50_ns p90_ns kernel
allreduce bf16 2 1 graph 4096 9 150 250 350 K
allreduce bf16 2 1 inline 4096 9 100 200 300 K'
else
	skip 'a table gets what collectives take longer in graphs' 'no python3'
fi
printf 'not a table\n' >"$tmp/h200-vllm"
ok 'a file has the name before a preset' sh -c 'cd "$1" && "$ATTNREPLAY" -q run --trace "$2" \
	--backend roofline --model llama-3.1-8b --tp 2 --comm h200-vllm 2>&1 |
	grep -q "h200-vllm:1: want"' sh "$tmp" "$(cd "$srcdir" && pwd)/traces/samples/azure-2023-code-200.csv"

if command -v sqlite3 >/dev/null; then
	measured() { # measured DB GPU OPTION...: costs as of a GPU
		db=$tmp/$1 gpu=$2
		shift 2
		split "$@" --db "$db" >"$tmp/out"
		sqlite3 "$db" "INSERT INTO gpu(uuid, name, cc_major, cc_minor, sm_count, l2_bytes,
			mem_bytes) VALUES('1', '$gpu', 9, 0, 132, 50000000, 80000000000);
			UPDATE run SET gpu_id = 1, clock = 'cupti'"
	}
	costs() { db=$1; shift; run --backend cost --host none --costs "$tmp/$db" "$@"; }
	measured with.db 'NVIDIA H100 80GB HBM3'
	measured without.db 'NVIDIA H100 80GB HBM3' --comm none
	costs with.db >"$tmp/out"
	is 'costs have the collectives of their run' "$(comm <"$tmp/out")" \
		'those in the run with the costs'
	is '... once' "$(tpot <"$tmp/out")" "$(tpot <"$tmp/ring")"
	ok '... and no others' fails 2 "comm has no effect: the costs of $tmp/with.db:1 have coll" \
		costs with.db --comm model
	costs without.db >"$tmp/out"
	is '... or get those that they lack' "$(comm <"$tmp/out")" "$(comm <"$tmp/ring")"
	ok '... which take time' longer "$(tpot <"$tmp/out")" "$(tpot <"$tmp/none")"
	costs with.db --db "$tmp/costs.db" >"$tmp/out"
	ok '... which a report says' reports "$tmp/costs.db" 'collectives of 4 ranks are in the costs'
	is '... unless left out' "$(costs without.db --comm none | tpot)" "$(tpot <"$tmp/none")"
	is '... or from a table' "$(costs without.db --comm "$table" | tpot)" "$(tpot <"$tmp/table")"
	measured other.db 'NVIDIA H100 PCIe' --comm none
	ok 'a card for PCIe has another link' fails 2 \
		'the link between GPUs of NVIDIA H100 PCIe is not known' costs other.db
	measured rare.db 'NVIDIA A10' --comm none
	ok '... as has a GPU without a preset' fails 2 'GPUs of NVIDIA A10 is not' costs rare.db
else
	skip 'costs have the collectives of their run' 'no sqlite3'
fi

ok 'one rank has no choice' fails 2 'comm has no effect with --tp 1; leave it out' \
	modelled --comm none --tp 1
ok '... nor has attention alone' fails 2 'comm has no effect with --attention-only; leave it out' \
	split --comm none --attention-only
is '... where there is nothing to say' "$(split --attention-only | comm)" ''
ok '... nor has a run whose clock is no GPU' fails 2 \
	'comm has no effect where no GPU is the clock; leave it out' run --backend cpu \
	--model smollm2-135m --tp 3 --capture random:0 --comm none --accuracy 0
ok '... be it the formula' fails 2 'comm has no effect with --clock formula; leave it out' \
	split --comm none --clock formula
ok 'a table must have as many ranks' fails 2 \
	"$table: no allreduce in bf16 of 8 ranks on one host; the file has ranks 4; take" \
	modelled --tp 8 --comm "$table"
ok '... and be there' fails 3 'nothing: No such file' split --comm nothing
grep -v '"link\|"ring' "$srcdir/replay/cost/gpus/h100.json" >"$tmp/gpu.json"
ok 'a GPU of which no link is known has no model' fails 2 \
	"the link between GPUs of $tmp/gpu.json is not known, so collectives cannot be modelled; give a table with --comm FILE, or leave them out with --comm none" \
	split --gpu "$tmp/gpu.json"
is '... but may have a table' "$(split --gpu "$tmp/gpu.json" --comm "$table" | comm)" \
	"of 4 ranks, measured: $table"
bad_gpu() { sed "$1" "$srcdir/replay/cost/gpus/h100.json" >"$tmp/bad.json"
	fails 3 "$2" split --gpu "$tmp/bad.json"; }
ok 'a link has a rate' bad_gpu '/link_gbps/d' "'link_gbps': want a number from 0.001 to 1e9"
ok '... and a ring' bad_gpu '/^  "ring"/d' "'ring': want an object beside link_gbps"
ok '... with all of its members' bad_gpu 's/"share": 0.603, //' \
	"'ring': want an object with share, from 0.001 to 10, and fixed_ns and hop_ns"
ok '... of an engine, too' bad_gpu 's/"hop_ns": 105/"hop_ns": -1/' "'engines.vllm.ring': want"

# ---- a rank on a GPU ----

real() { run --backend cuda --model llama-3.1-8b --tp 4 --sample-layers 1 --capture random:1 --accuracy 0 \
	--num-gpu-blocks 4000 --host none "$@"; }
real --comm "$table" --intervals off --db "$tmp/real.db" >"$tmp/real" 2>"$tmp/err"
status=$?
if [ $status = 4 ]; then
	[ "${ATTNREPLAY_REQUIRE_GPU:-}" = 1 ] && { echo 'Bail out! no usable GPU'; exit 1; }
	skip 'a rank that runs on a GPU has collectives' 'no usable GPU'
	skip '... in its clock' 'no usable GPU'
	skip '... and their phase' 'no usable GPU'
	skip '... unless left out, as the header says' 'no usable GPU'
else
	is 'a rank that runs on a GPU has collectives' "$(comm <"$tmp/real")" \
		"of 4 ranks, measured: $table"
	is '... in its clock' "$(query "$tmp/real.db" "SELECT min(end_ns - start_ns - coalesce(host_ns, 0)
		> gpu_ns) FROM iteration JOIN iteration_phase USING(run_id, iter_no)
		JOIN phase USING(phase_id) WHERE name = 'comm'")" 1
	is '... and their phase' "$(query "$tmp/real.db" "SELECT kernels / (1 * 2 + 2)
		FROM v_phase_time WHERE phase = 'comm'")" \
		"$(query "$tmp/real.db" 'SELECT count(*) FROM iteration')"
	is '... unless left out, as the header says' "$(real --comm none | comm)" \
		'none: those of 4 ranks are left out, so iterations are too short'
fi
finish
