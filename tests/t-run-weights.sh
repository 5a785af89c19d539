#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A run with real weights: a tiny Llama of random values, and prompts of token ids.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

# ---- the model ----

vocab=70 hidden=32

# tensors: NAME ROWS [COLS], in the order of the file
tensors() {
	echo "model.embed_tokens.weight $vocab $hidden"
	for i in 0 1; do
		l=model.layers.$i
		printf '%s\n' "$l.input_layernorm.weight $hidden" \
			"$l.self_attn.q_proj.weight 32 $hidden" \
			"$l.self_attn.k_proj.weight 16 $hidden" \
			"$l.self_attn.v_proj.weight 16 $hidden" \
			"$l.self_attn.o_proj.weight $hidden 32" \
			"$l.post_attention_layernorm.weight $hidden" \
			"$l.mlp.gate_proj.weight 48 $hidden" "$l.mlp.up_proj.weight 48 $hidden" \
			"$l.mlp.down_proj.weight $hidden 48"
	done
	echo "model.norm.weight $hidden"
}

header() { # header of 4096 bytes
	tensors | awk '
		{ n = $2 * ($3 ? $3 : 1) * 2
		  s = s sprintf("%s\"%s\":{\"dtype\":\"BF16\",\"shape\":[%s],\"data_offsets\":[%.0f,%.0f]}",
			s ? "," : "", $1, $2 ($3 ? "," $3 : ""), at, at + n)
		  at += n }
		END { printf "%-4096s", "{" s "}" }'
}

size() { tensors | awk '{ n += $2 * ($3 ? $3 : 1) * 2 } END { printf "%.0f", n + 4104 }'; }

# bf16 of 1 for norms, else of 0.03 to 0.5, positive or negative; none of the bytes is 0
data() { # data SEED
	tensors | awk -v seed="$1" '
		{ n = $2 * ($3 ? $3 : 1)
		  for (i = 0; i < n; i++) {
			seed = (seed * 1103515 + 12345) % 2147483
			low = 1 + seed % 255
			high = 61 + seed % 2 + 128 * (int(seed / 7) % 2)
			if ($3) printf "%c%c", low, high
			else printf "%c%c", 128, 63
		  } }'
}

model() { # model DIR SEED
	mkdir -p "$1"
	cat >"$1/config.json" <<END
{"model_type":"llama","hidden_size":32,"num_hidden_layers":2,"num_attention_heads":4,
"num_key_value_heads":2,"head_dim":8,"intermediate_size":48,"vocab_size":70,
"max_position_embeddings":2000,"rms_norm_eps":1e-5,"tie_word_embeddings":true,"rope_theta":10000}
END
	{ printf '\000\020\000\000\000\000\000\000'; header; data "$2"; } >"$1/model.safetensors"
}

model tiny 5
is 'the model has all of its bytes' "$(wc -c <tiny/model.safetensors)" "$(size)"
printf '%s\n' '[1, 2, 3, 5, 8, 13, 21, 34, 55]' '' \
	"{\"task\":\"x\",\"prompt\":[$(seq -s, 0 69),$(seq -s, 0 2 68)]}" >prompts.jsonl
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	printf '2023-11-16 18:00:0%s.0,%s\n' 0 9,2 1 90,3 2 700,4 3 105,3
} >t.csv
# The formula moves the clock, so that chunks do not depend on how fast this machine is.  A pool as large
# as this machine's memory has millions of blocks of so small a model, which take seconds to clear.
pool='--num-gpu-blocks 2000'
run() { "$ATTNREPLAY" run --backend cpu --clock formula --trace t.csv \
	--max-num-batched-tokens 128 $pool "$@"; }
tiny() { run --weights tiny --prompts prompts.jsonl "$@"; }
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n +2; }

# ---- what runs ----

sparse=compact-fp:alpha=1,sink=1,window=1,dense-first=0
methods=dense,$sparse,dense+lazyllm:layers=0:0.5
ok 'a model runs with its weights, by any method' tiny --method $methods --accuracy 1 --db a.db \
	--json a.json
tiny --accuracy 0 >out 2>err
is '... without a word' "$(cat err)" ''
is '... the header says what runs' "$(sed -n '2,4p' out)" \
'model     tiny, 2 layers, 4/2 heads of 8
weights   tiny
prompts   prompts.jsonl: 2 for 4 requests; to the lengths of the trace 1 are cut and 1 repeated'
is '... and all requests are served' "$(query a.db "SELECT method, status, ok FROM v_run")" \
"dense,done,4
\"$sparse\",done,4
dense+lazyllm:layers=0:0.5,done,4"
is 'table Runs says whose activations they are' \
	"$(query a.db 'SELECT DISTINCT capture FROM v_run')" 'weights of tiny'
is '--json, too' "$(grep -c '"weights":"tiny","captures":null' a.json)" 3
is 'whole layers have a time' "$(query a.db "SELECT group_concat(name) FROM (SELECT DISTINCT name
	FROM iteration_phase JOIN phase USING(phase_id) WHERE run_id = 1 ORDER BY phase_id)")" \
	'"linear,norm,rope,attend,decode,head"'
is 'dense is dense in all layers' "$(query a.db "SELECT count(DISTINCT layer), max(rel_l2)
	FROM accuracy_sample WHERE run_id = 1")" 2,0
is 'a sparse method is not' "$(query a.db "SELECT max(rel_l2) > 0.01 FROM accuracy_sample
	WHERE run_id = 2")" 1
notes() { "$ATTNREPLAY" report a.db | sed -n '/^Notes$/,$p'; }
ok '... and the report says what its accuracy is' eval \
	"notes | grep -q '^runs 1 to 3: with weights, accuracy is the error of single layers on what'"
is '... not that activations are replayed, nor that drops have no effect' \
	"$(notes | grep -c 'replayed activations\|no drift')" 0

again() { # the same accuracy, to the last bit, as in a.db
	tiny --method $methods --accuracy 1 --db "$@" >/dev/null || return
	q='SELECT run_id, req_no, chunk_no, layer, head, rel_l2, cosine, mass_recall FROM accuracy_sample
		ORDER BY 1, 2, 3, 4, 5'
	query a.db "$q" >want
	query "$1" "$q" >got
	[ "$(wc -l <want)" -gt 50 ] && cmp want got
}
ok 'a run repeats itself' again b.db
key() { query "$1" 'SELECT run_key FROM run WHERE run_id = 1'; }
is '... which its key says' "$(key b.db)" "$(key a.db)"
ok 'drawn tokens run, too' tiny --temperature 0.7 --seed 3 --accuracy 0 --db hot.db
ok '... and have another key' [ "$(key hot.db)" != "$(key a.db)" ]
ok 'so have other prompts' eval 'sed s/55/54/ prompts.jsonl >other.jsonl &&
	run --weights tiny --prompts other.jsonl --method $methods --accuracy 1 --db p.db &&
	[ "$(key p.db)" != "$(key a.db)" ]'
model other 6
ok '... and other weights' eval 'run --weights other --prompts prompts.jsonl --method $methods \
	--accuracy 1 --db o.db && [ "$(key o.db)" != "$(key a.db)" ]'
ok 'a plan made ahead' tiny --async-scheduling
ok 'a prefix cache' tiny --enable-prefix-caching
{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	printf '2023-11-16 18:00:0%s.0,%s\n' 0 9,2 1 640,3 2 9,2 3 705,3
} >twice.csv
shared() { # shared FILE OPTION...: the second prompt of 69 and 34 tokens, repeated, comes twice
	db=$1
	shift
	tiny --trace twice.csv --enable-prefix-caching --method "$sparse" --accuracy 1 --db "$db" "$@"
}
ok 'pages of requests that begin with the same tokens' shared one.db
is '... are shared in steps of 16 tokens' "$(query one.db 'SELECT cached_tokens FROM v_run')" 640
ok '... or computed by each' shared own.db --share-kv=no
samples='SELECT req_no, chunk_no, layer, head, rel_l2, cosine, mass_recall FROM accuracy_sample
	ORDER BY 1, 2, 3, 4'
is '... with the same accuracy, to the last bit' "$(query one.db "$samples")" \
	"$(query own.db "$samples")"
is '... which is not that of dense' "$(query one.db \
	'SELECT max(rel_l2) > 0.01 FROM accuracy_sample WHERE req_no = 3')" 1
ok 'a radix cache' tiny --policy sglang --block-size 1 --enable-prefix-caching
ok 'a model by name, if it is the same' tiny --model tiny/config.json
ok 'search' eval '"$ATTNREPLAY" search chunk --lowest 128 --highest 256 --slo ttft:p99:10s \
	--backend cpu --clock formula --trace t.csv $pool --weights tiny --prompts prompts.jsonl \
	--accuracy 0 >found && grep -q "^weights   tiny$" found'
printf '%s\n' 'trace = t.csv' 'backend = cpu' 'clock = formula' 'weights = tiny' \
	'prompts = prompts.jsonl' 'accuracy = 0' 'num-gpu-blocks = 2000' \
	'max-num-batched-tokens = [100, 160]' >two.sweep
ok 'sweep' "$ATTNREPLAY" sweep two.sweep --out points --all
is '... of two points' \
	"$(for f in points/*.db; do query "$f" 'SELECT capture, ok FROM v_run'; done)" \
'weights of tiny,4
weights of tiny,4'

# ---- one rank of several ----

tiny --tp 2 --method $methods --accuracy 1 --db tp.db --json tp.json >out 2>err
is 'a rank of two is half of the model' "$(sed -n '2,3p' out)" \
'model     tiny, 2 layers, 2/1 heads of 8 on each of 2 ranks
weights   tiny, slices of rank 0 (partial sums: tokens, accuracy and selections are of no model)'
is '... which serves all requests' "$(query tp.db 'SELECT ok FROM v_run')" "4
4
4"
is '... table Runs says whose activations they are' \
	"$(query tp.db 'SELECT DISTINCT capture FROM v_run')" \
	'"weights of tiny, rank 0 of 2 alone: partial sums"'
ok '... a line says that it is not the model' grep -q \
	'^attnreplay: warning: rank 0 of 2 runs alone: .* partial sums, so .* are of no model$' err
is '... one line' "$(wc -l <err)" 1
is '... --json has the number of ranks' "$(grep -c '"tp":2,"weights":"tiny"' tp.json)" 3
ok '... so do the notes' eval \
	'"$ATTNREPLAY" report tp.db | grep -q " rank  *1 to 3  *rank 0 of 2 ran alone"'
first() { query "$1" "SELECT run_id, req_no, chunk_no, head, rel_l2, mass_recall
	FROM accuracy_sample WHERE layer = $2 AND head < 2 ORDER BY 1, 2, 3, 4"; }
is 'heads of the first layer are those of the model, to the last bit' \
	"$(first tp.db 0 | wc -l) $(first tp.db 0)" "$(first a.db 0 | wc -l) $(first a.db 0)"
ok '... those of the next one are not' [ "$(first tp.db 1)" != "$(first a.db 1)" ]
ok 'a search says so, once' eval '"$ATTNREPLAY" search chunk --lowest 128 --highest 256 \
	--slo ttft:p99:10s --backend cpu --clock formula --trace t.csv $pool --weights tiny \
	--prompts prompts.jsonl --accuracy 0 --tp 2 2>&1 >found | grep -c "rank 0 of" | grep -qx 1'

# All ranks: an iteration adds up its rows after the embeddings and twice in each of two layers, and the
# ranks give each other logits of 35 tokens for rows that emit; most prompts' chunks have none.
(
	ATTNREPLAY_NCCL=$(dirname "$ATTNREPLAY")/tests/fake_nccl.so FAKE_NCCL_RECORD=messages
	export ATTNREPLAY_NCCL FAKE_NCCL_RECORD
	tiny --tp 2 --ranks local --method dense --accuracy 0 --db ranks.db >out 2>err
)
is 'ranks run the whole model together' "$(cat err; sed -n 's/^dense: \(.*\) in .*/\1/p' out)" \
	'4 requests ok, 0 rejected, 0 unfinished'
is '... and the header says so' "$(sed -n 3p out)" 'weights   tiny, a slice on each of 2 ranks'
is '... as does table Runs' "$(query ranks.db 'SELECT capture FROM v_run')" 'weights of tiny'
ok '... and no note calls it a part' eval '! "$ATTNREPLAY" report ranks.db | grep "ran alone"'
query ranks.db 'SELECT 32 * (prefill_tokens + decode_tokens) AS n FROM iteration
	WHERE batch_size > 0 ORDER BY iter_no' | awk '{ for (i = 0; i < 5; i++) print }' >want
awk '/^allreduce 9 / { print $3 }' messages >got
ok '... by the sums of an engine' cmp want got
query ranks.db 'SELECT 4 * 35 * sum(emit) AS n FROM iteration_request GROUP BY iter_no HAVING sum(emit) > 0
	ORDER BY iter_no' >want
awk '/^allgather 1 / && $3 % 140 == 0 { print $3 }' messages >got
ok '... and its logits' cmp want got
is '... of some iterations alone' "$(query ranks.db "SELECT (SELECT count(*) FROM iteration) > $(wc -l <got)
	AS more")" 1
is '... which take time' "$(query ranks.db "SELECT sum(gpu_ns) > 0 AS x FROM iteration_phase
	JOIN phase USING(phase_id) WHERE name = 'comm'")" 1

# ---- resumed ----

{
	echo TIMESTAMP,ContextTokens,GeneratedTokens
	printf '2023-11-16 18:00:0%s.0,%s\n' 0 9,700 1 90,700
} >long.csv
ok 'a pool that preempts' "$ATTNREPLAY" run --backend cpu --clock formula --trace long.csv \
	--weights tiny --prompts prompts.jsonl --num-gpu-blocks 70 --accuracy 0 --db small.db
is '... does so, and all are served' "$(query small.db \
	"SELECT sum(n_preempt) > 0, count(*) FROM request_outcome WHERE outcome = 'ok'")" 1,2
long() { exec "$ATTNREPLAY" run --backend cpu --clock formula --trace long.csv $pool --weights tiny \
	--prompts prompts.jsonl --method dense,compact-fp --accuracy 0 --db cut.db; }
killed() {
	{ long >out 2>&1; } &
	pid=$!
	until [ "$(query cut.db 'SELECT count(*) FROM run' 2>/dev/null)" = 2 ]; do
		kill -s 0 $pid || return
		sleep 0.02
	done
	kill -s KILL $pid
	wait $pid
	[ $? = 137 ]
}
ok 'a run is killed in its second method' killed
cp prompts.jsonl kept.jsonl
cp other.jsonl prompts.jsonl
ok '... and not resumed with other prompts' fails 3 \
	'cut.db: an input file changed since run 1, .* one of: .*prompts prompts.jsonl' \
	"$ATTNREPLAY" run --resume cut.db
cp kept.jsonl prompts.jsonl
mv tiny kept
cp -r other tiny
ok '... nor with other weights' fails 3 'one of: .*weights tiny' "$ATTNREPLAY" run --resume cut.db
rm -r tiny
mv kept tiny
ok '... but with the same' "$ATTNREPLAY" run --resume cut.db
is '... to its end' \
	"$(query cut.db "SELECT count(*) FROM v_run WHERE status = 'done' AND ok = 2")" 2

# ---- what is refused ----

has() { awk -v gib="$1" '$1 == "MemAvailable:" { exit $2 < gib * 1024 * 1024 }' /proc/meminfo; }
refused() { # refused STATUS MESSAGE OPTION...: in one line, and nothing is stored
	status=$1 message=$2
	shift 2
	rm -f x.db
	fails "$status" "$message" "$ATTNREPLAY" run --trace t.csv --backend cpu --db x.db "$@" &&
		[ ! -e x.db ] && [ "$(wc -l <"$tmp/.err")" = 1 ]
}
both='--weights tiny --prompts prompts.jsonl'
arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
: >empty.jsonl
echo '[1, 2' >cut.jsonl
echo '[1, 70]' >high.jsonl
echo '{"answer": [1]}' >odd.jsonl
copy() { # copy DIR: of the model
	rm -rf "$1"
	cp -r tiny "$1"
}
change() { # change DIR SED: the header of the weights
	copy "$1"
	LC_ALL=C sed "$2" tiny/model.safetensors >"$1/model.safetensors"
}
change wide 's/"shape":\[48,32\]/"shape":[32,48]/'
change short 's/"model.norm.weight"/"model.narm.weight"/'
copy nan
{ head -c 4104 tiny/model.safetensors; printf '\300\177'; tail -c +4107 tiny/model.safetensors; } \
	>nan/model.safetensors
copy index
rm index/model.safetensors
echo '{"weight_map":{"model.norm.weight":"model-00002-of-00002.safetensors"}}' \
	>index/model.safetensors.index.json
copy experts
sed 's/"llama"/"mixtral","num_local_experts":4,"num_experts_per_tok":2/' tiny/config.json \
	>experts/config.json
yes '[1,2,3]' | head -n 20000 >many.jsonl
ok 'many prompts need no more memory than there is' \
	run --weights tiny --prompts many.jsonl --max-memory 4M --accuracy 0
while IFS='|' read -r status message options; do
	# shellcheck disable=SC2086
	ok "$options" refused "$status" "$message" $options
done <<END
2|no prompts given; --weights runs the model on tokens, so name a file of token ids|--weights tiny
2|prompts '-': standard input is read once|--weights tiny --prompts -
2|prompts has no effect without --weights; leave it out|--prompts prompts.jsonl --model niah-llama-14m --capture $arc
2|temperature has no effect without --weights|--temperature 1 --model niah-llama-14m --capture $arc
2|capture has no effect with --weights|$both --capture $arc
2|layers has no effect with --weights|$both --layers 0
2|sample-layers has no effect with --weights|$both --sample-layers 1
2|extend has no effect with --weights|$both --extend tile
2|attention-only has no effect with --weights|$both --attention-only
2|weights has no effect with backend cost|$both --backend cost
2|weights has no effect with a backend that computes no reference|$both --backend roofline
2|cannot split model 'tiny' into 3 parts: query heads 4 is no multiple of it|$both --tp 3
2|cannot split model 'tiny' into 4 parts: vocabulary 70 is no multiple of it|$both --tp 4
2|model 'niah-llama-14m' is not that of tiny/config.json|$both --model niah-llama-14m
3|/no/where: No such file|--weights tiny --prompts /no/where
3|empty.jsonl: the file has no prompts|--weights tiny --prompts empty.jsonl
3|cut.jsonl:1: want a JSON list of token ids|--weights tiny --prompts cut.jsonl
3|odd.jsonl:1: the record lacks "prompt"|--weights tiny --prompts odd.jsonl
3|many.jsonl:[0-9]*: the prompts take more than 1 MiB; use a part of the file|--weights tiny --prompts many.jsonl --max-memory 1M
3|high.jsonl: request 0: token 1 of the prompt is 70, but the vocabulary has 70|--weights tiny --prompts high.jsonl
3|/no/where: no such file|--weights /no/where --prompts prompts.jsonl
3|model-00002-of-00002.safetensors: No such file|--weights index --prompts prompts.jsonl
3|short: no tensor 'model.norm.weight'|--weights short --prompts prompts.jsonl
3|wide/model.safetensors: .*mlp.gate_proj.weight|--weights wide --prompts prompts.jsonl
3|nan/model.safetensors: .*model.embed_tokens.weight.* not finite|--weights nan --prompts prompts.jsonl
3|experts/config.json: weights of architecture 'mistral' with experts are not known|--weights experts --prompts prompts.jsonl
END
mkdir huge
vocab=16000000 hidden=4000
{ printf '\000\020\000\000\000\000\000\000'; header; } >huge/model.safetensors
sed "s/70/$vocab/; s/32/$hidden/" tiny/config.json >huge/config.json
if has 119 || ! truncate -s "$(size)" huge/model.safetensors; then
	skip 'weights that do not fit' 'the machine has more memory, or no files with holes'
else
	ok 'weights that do not fit' refused 1 'huge: the weights need 119.2 GiB, but .* available' \
		--weights huge --prompts prompts.jsonl
fi
if has 240; then
	skip 'a cache that does not fit' 'the machine has more memory'
else
	ok 'a cache that does not fit' fails 1 \
		'the whole model tiny needs 248.0 GiB for 130000000 KV blocks and' \
		tiny --num-gpu-blocks 130000000
fi
echo '2023-11-16 18:00:09.0,2001,3' >>t.csv
run --weights tiny --prompts prompts.jsonl --accuracy 0 >out 2>err
is "a request past the model's length is rejected" "$(sed -n 's/^dense: \(.*\) in .*/\1/p' out)" \
	'4 requests ok, 1 rejected, 0 unfinished'
ok '... with a warning' grep -q 't.csv:6: request rejected: .*2000' err
finish
