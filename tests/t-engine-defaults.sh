#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# What engines take where their users set nothing: by policy and GPU, beside what is given, in the
# header, keys and --resume.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	awk 'BEGIN { for (i = 0; i < 8; i++) printf "2023-11-16 18:00:0%d.0,%d,4\n", i, 100 + i }'
} >t.csv
run() { "$ATTNREPLAY" run --trace t.csv "$@"; }
cost() { run --backend cost "$@"; }
roofline() { run --backend roofline --model llama-3.1-8b "$@"; }
header() { sed -n 's/^defaults  //p' out; }
budget() { sed -n 's/^policy    [^,]*, \([0-9]*\) tokens and \([0-9]*\) requests.*/\1 \2/p' out; }
value() { "$ATTNREPLAY" sql --format csv "$1" "$2" | sed 1d; }
option() { value "$1" "SELECT value FROM run_param WHERE run_id = $2 AND key = '$3'"; }

# ---- which GPU ----

cost >out
is 'without a GPU the defaults are those of an H100' "$(header)" \
	'of vllm-0.33 on h100 (no GPU is named)'
is '... of which the header has the values' "$(sed -n '/^policy/p; /^blocks/s/[0-9]* of/N of/p' out)" \
	'policy    vllm-0.33, 8192 tokens and 1024 requests an iteration, planned ahead
blocks    N of 16 tokens (auto), one reserved, prefix cache'
while read -r gpu want; do
	roofline --gpu "$gpu" >out 2>err
	is "--gpu $gpu" "$(header), $(budget)" "of vllm-0.33 on $gpu (--gpu), $want"
done <<'EOT'
h200 8192 1024
h100 8192 1024
a100 2048 256
l40s 2048 256
EOT
cp "$ATTNREPLAY_DATA/replay/cost/gpus/a100.json" mine.json
roofline --gpu mine.json >out 2>err
is 'a file of a GPU tells what it is' "$(header), $(budget)" \
	'of vllm-0.33 on mine.json, an A100 (--gpu), 2048 256'
sed '/memory_bytes/d' "$ATTNREPLAY_DATA/replay/cost/gpus/h100.json" >old.json
roofline --gpu old.json >out 2>err
is '... of unknown memory it is no large one' "$(budget)" '2048 256'
"$(dirname "$ATTNREPLAY")/tests/make-db" sample.db || exit 99
cost --costs sample.db:2 --costs-extrapolate >out 2>&1
is 'costs tell the GPU' "$(header | sed 's/:.*//')" 'of vllm-0.33 on NVIDIA H200 (of the costs)'

# ---- which policy ----

while read -r policy want; do
	cost --policy "$policy" >out 2>err
	is "the defaults of $policy" "$(budget) $(sed -n 's/^blocks *[0-9]* of \([0-9]*\) .*/\1/p' out)" \
		"$want"
done <<'EOT'
vllm-0.16 8192 1024 16
vllm 8192 1024 16
sglang 8192 2048 1
trtllm-no-evict 8192 2048 32
sarathi 512 128 16
orca 8192 128 16
EOT
cost --policy trtllm-no-evict >out
is 'what a policy does not model stays off' "$(header)" 'of trtllm-no-evict-1.2 on h100 (no GPU is '\
"named): no asynchronous scheduling (not modelled for this policy), the engine's own is on; no prefix "\
"cache (not modelled for this policy), the engine's own is on"

# ---- beside what is given ----

cost --max-num-seqs 256 >out
is 'what is given is kept and named' "$(header), $(budget)" \
	"of vllm-0.33 on h100 (no GPU is named): 256 requests, the engine's own 1024, 8192 256"
cost --max-num-batched-tokens 64 >out
is 'requests follow a smaller budget' "$(budget)" '64 64'
cost --max-num-seqs 16k >out
is 'a budget follows more requests' "$(budget)" '16000 16000'
ok 'both given are refused as ever' fails 2 'some running requests would get no token' \
	"$ATTNREPLAY" run --backend cost --trace t.csv --max-num-seqs 16k --max-num-batched-tokens 8k
roofline --gpu h100 --max-num-seqs 2 --max-model-len 300 >out 2>err
is 'a budget is no more than all requests of the longest length have' "$(budget)" '600 2'
sed 's/"model_type": *"llama"/"model_type": "odd"/; s/\("max_position_embeddings": *\)[0-9]*/\1400/' \
	"$ATTNREPLAY_DATA/model/presets/llama-3.1-8b.json" >odd.json
run --backend roofline --gpu h100 --model odd.json --as-model llama --max-num-seqs 2 >out 2>err
is '... as the model is read' "$(budget)" '800 2'
cost --policy trtllm-no-evict --max-num-batched-tokens 16 >out
ok 'a block is no more than the budget' grep -q '^blocks .* of 16 tokens' out
cost --no-async-scheduling --no-enable-prefix-caching >out
is 'flags are turned off' "$(header)" "of vllm-0.33 on h100 (no GPU is named): no asynchronous \
scheduling, the engine's own is on; no prefix cache, the engine's own is on"
printf '%s\n' 'trace = t.csv' 'backend = cost' 'enable-prefix-caching = no' no-async-scheduling >job
"$ATTNREPLAY" run --job job >job.out
is '... in a job file as well' "$(sed -n 's/^defaults  //p' job.out)" "$(header)"
ok "other engines' words for it are known" fails 2 "did you mean '--no-enable-prefix-caching'" \
	"$ATTNREPLAY" run --backend cost --trace t.csv --disable-radix-cache
ok '... and for the other' fails 2 "did you mean '--no-async-scheduling'" \
	"$ATTNREPLAY" run --backend cost --trace t.csv --disable-overlap-schedule

# ---- where a run cannot have it ----

drop=dense+lazyllm:layers=0:0.5
cpu="--backend cpu --model niah-llama-14m --accuracy 0 --requests 1
	--capture $ATTNREPLAY_DATA/traces/samples/niah-2k.arc --method dense,$drop"
run $cpu >out 2>err
is 'a dropper has no prefix cache' "$(header)" "of vllm-0.33 on h100 (no GPU is named): no prefix \
cache ('$drop' drops tokens), the engine's own is on"
ok '... and refuses one that is given' fails 2 'leave out --enable-prefix-caching' "$ATTNREPLAY" run \
	--trace t.csv $cpu --enable-prefix-caching
run --backend roofline --policy vllm-0.19 --model qwen3-next-80b-a3b --tp 2 --gpu h200 >out 2>err
is 'older engines have none for linear layers' "$(header)" 'of vllm-0.19 on h200 (--gpu)'

# ---- none ----

cost --engine-defaults none >out
is 'none gives the former values' "$(header), $(budget)" "none; beside vllm-0.33 on h100 (no GPU is \
named): 256 requests, the engine's own 1024; no asynchronous scheduling, the engine's own is on; no \
prefix cache, the engine's own is on, 8192 256"

# ---- records, keys, --resume ----

key() { roofline --gpu h100 "$@" --db keys.db 2>err >out && value keys.db 'SELECT run_key FROM run ORDER BY run_id DESC LIMIT 1'; }
own=$(key)
is 'values make the key, not where they are from' "$(key --engine-defaults none --max-num-seqs 1024 \
	--enable-prefix-caching --async-scheduling --gpu-memory-utilization 0.92 --rates engine)" "$own"
ok '... and other values another' test "$(key --max-num-seqs 1000)" != "$own"
is 'a run stores the values' "$(option keys.db 1 max-num-seqs) $(option keys.db 1 async-scheduling)" \
	'1024 1'
is '... and what differs' "$(value keys.db 'SELECT engine_defaults FROM run' | sed -n '1p; $p')" \
	"of vllm-0.33 on h100 (--gpu)
\"of vllm-0.33 on h100 (--gpu): 1000 requests, the engine's own 1024\""
"$ATTNREPLAY" report keys.db >report
is '... which the report says' "$(grep -E ': (1000 req|defaults)' report)" "run 3: 1000 requests, the \
engine's own 1024
run 2: defaults of the engine are left out"
two="--backend cpu --clock formula --model niah-llama-14m --sample-layers 1 --accuracy 0
	--attention-only --capture $ATTNREPLAY_DATA/traces/samples/niah-2k.arc --method dense,compact-fp"
# Options as an older program stored them: of vllm-0.16, without engine-defaults.
older() { # older DB: a command of which the second run is left to do
	run $plain $two --db "$1" >out 2>&1
	python3 - "$1" <<-'EOT'
	import json, sqlite3, sys
	db = sqlite3.connect(sys.argv[1])
	db.execute("PRAGMA foreign_keys = 0")
	for run, text in db.execute("SELECT run_id, options FROM run").fetchall():
	    o = json.loads(text)
	    del o["engine-defaults"]
	    db.execute("UPDATE run SET options = ? WHERE run_id = ?", (json.dumps(o), run))
	db.execute("UPDATE run SET status = 'aborted', pid = 999999 WHERE run_id = 2")
	db.commit()
	EOT
}
if command -v python3 >/dev/null; then
	older old.db
	ok 'an older command is resumed' "$ATTNREPLAY" run --resume old.db
	is '... with the values that it stored' "$(option old.db 3 max-num-seqs) \
$(option old.db 3 async-scheduling) $(option old.db 3 policy) $(value old.db \
	'SELECT a.run_key = b.run_key FROM run a, run b WHERE a.run_id = 2 AND b.run_id = 3')" \
		'256 0 vllm-0.16 1'
else
	skip 'an older command is resumed' 'no python3'
fi
finish
