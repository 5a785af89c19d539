#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay select on the sample: its output in every format, and its refusals.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

arc=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
show()    { "$ATTNREPLAY" select --capture "$arc" "$@"; }
small()   { show --context 512 --chunk 256 "$@"; }
wrong()   { message=$1; shift; says 2 "$message" "$@"; }
density() { awk -v s="$1" -v c="$2" '$1 == s && $2 == c { print $4, $5 }' "${3:-out}"; }
rows()    { grep -c '^  |.*|$' "$1"; }
member()  { grep -o "\"$1\":[^,}]*" "${2:-x.json}" | sed 's/^"[a-z_]*"://' | tr '\n' ' '; }

# ---- the text ----

small --method dense >out || exit 99
is 'dense selects all of the past'      "$(density selected past)"     '64 64'
is '... and all that is causal'         "$(density selected causal)"   '88 88'
is '... of what is not it leaves more'  "$(density selected full)"     '88 96'
is 'unions are counted, too' \
	"$(density q-block past) $(density sub-group past) $(density group past)" \
	'32 32 8 8 8 8'
is '... with the chunk open'            "$(density group full)"        '12 12'
# 8 heads, 256 rows with 512 earlier keys and their triangle
is 'pairs are exact'                    "$(density executed causal)"   '1311744 1311744'
is 'dense is like itself' \
	"$(grep -c 'relative L2 mean 0 max 0, cosine min 1.000000, recall mean 1.0000' out)" 1

small --method select=trishape,start=128,recent=128/union=group/exec=paged >out
is 'two of four blocks are half of the past' "$(density selected past)"  '32 64'
is 'all query blocks keep the same ones'     "$(density group past)"     '4 8'
is '... and the sets say so' "$(grep -c 'alike by 1.0000' out)" 1
is 'pairs follow the table' \
	"$(density executed causal)" "$((8 * (256 * 256 + 256 * 257 / 2))) 1311744"
is 'the picture has a row a query block, and a column a block' "$(grep '|' out | tr '\n' ' ')" \
	'  |#  ## |   |#  ###| '
small --method trishape:start=128,recent=128 --head 5 >out
is 'a head has its blocks' "$(grep 'query block [0-9]*:' out | tr '\n' ' ')" \
	'  query block 4: 0 3-4   query block 5: 0 3-5 '
is '... and its table'     "$(grep 'table' out)" '  its table 1: 0 3-5'
is '... alone'             "$(grep -c '^ *[0-7] *[01]  ' out)" 1
small --method trishape:start=128,recent=128 --head 5 --picture unicode >out
is 'two query blocks are one line in Unicode' "$(rows out)" 1
is '... of half blocks' "$(grep -c '|█  ██▄|' out)" 1
is 'no picture is none' "$(small --picture none | grep -c '|')" 0
is 'a mean of heads has shades' \
	"$(small --method flashprefill | grep '|' | tr -d '|# \n' | tr -d '.:+')" ''
show --context 1024 --chunk 256 --method seer:gate=mean,threshold=1 --json empty.json --head 0 >out
is 'empty rows are counted' \
	"$(sed -n 's/ are empty.*//p' out | tr -s ' ') $(member empty_rows empty.json)" \
	' 32 of 32 rows (query head, query block) 32 '
show --context 1024 --chunk 256 --method compact-sa:gate=mean,threshold=1 --json empty.json >out
is '... but not where a union opens the chunk' \
	"$(grep -c 'are empty' out) $(member empty_rows empty.json)" '0 0 '
show --chunk 256 --context 0 --method dense --picture ascii >out
is 'a first chunk has no past to speak of' \
	"$(awk '$1 == "selected" && $2 == "past" { print $4, $5, $6 }' out)" '0 0 -'
is 'the default is the last chunk of the prompt' "$(show --chunk 16 --method dense | head -1)" \
	'niah-2k.arc, layer 5, context 2088, chunk 16: dense'
is 'methods come one after the other' \
	"$(small --method dense,compact-fp:alpha=0.1,sink=1 | grep -c '^niah')" 2

# The selection of whole query blocks does not depend on where chunks begin.
one() { show --method flashprefill --head 2 --picture none "$@" | grep "query block $block:"; }
block=7
is 'a query block selects the same in any chunk' \
	"$(one --context 896 --chunk 128)" "$(one --context 640 --chunk 512)"

# The last two query blocks of the prompt, rows 1920 to 2103, are the dense tail.
tail=compact-fp:alpha=0.5,sink=1,window=1,last-n=2
show --context 1664 --chunk 256 --method "$tail" >body
show --context 1664 --chunk 440 --method "$tail" >out
is 'tables are made without a dense tail' "$(density selected past) $(density group past)" \
	"$(density selected past body) $(density group past body)"
is '... whose rows see everything' "$(density executed causal)" \
	"$(density executed causal body |
	awk '{ n = 8 * (1921 + 2104) * 184 / 2; print $1 + n, $2 + n }')"

# ---- files ----

small --method compact-fp,trishape:start=128,recent=128 --json x.json --csv x.csv \
	--svg x.svg >out || exit 99
is 'JSON names its schema' "$(head -1 x.json)" '{"schema":"attnreplay-select-2","selections":['
is '... and ends'          "$(tail -1 x.json)" ']}'
is '... has each method'   "$(member method | tr -d '"')" 'compact-fp trishape:start=128 '
is '... and place' \
	"$(member context | cut -d' ' -f1) $(member left | cut -d' ' \
	-f1) $(member past_blocks | cut -d' ' -f1)" '512 1336 4'
is '... every list of blocks' \
	"$(tail -2 x.json | head -1 | grep -o '"blocks":.*"table_heads"' |
	grep -o '\[0,3,4\]\|\[0,3,4,5\]' | wc -l | tr -d ' ')" 16
is '... the tables' \
	"$(tail -2 x.json | head -1 | grep -o '"table_heads".*')" \
	'"table_heads":4,"tables":[[0,3,4,5],[0,3,4,5]]}'
is '... and no scores unless asked for' "$(grep -c scores x.json)" 0
is 'CSV has a heading and a line each' "$(wc -l <x.csv | tr -d ' ')" 3
is '... of as many fields' \
	"$(sed 's/"[^"]*\(""[^"]*\)*"/x/g' x.csv | awk -F, '{ print NF }' | sort -u)" 18
is '... with the densities' "$(sed -n 's/.*}",//p' x.csv | tail -1 | cut -d, -f1-5)" \
	"0.5,0.5,0.5,$(awk 'BEGIN { printf "%.9g", 8 * (256 * 256 + 256 * 257 / 2) / 1311744 }'),1"
is 'SVG has a panel for each head and table' "$(grep -c 'class="frame"' x.svg)" 20
is '... and is closed' "$(tail -1 x.svg)" '</svg>'
if command -v python3 >/dev/null; then
	ok 'JSON is JSON' python3 -c 'import json; json.load(open("x.json"))'
	ok 'SVG is XML'   python3 -c 'import xml.dom.minidom as x; x.parse("x.svg")'
	small --method flashprefill --scores --json s.json >out
	cat >check.py <<'P'
import json
s = json.load(open("s.json"))["selections"][0]
p, n = s["parameters"], s["past_blocks"]
for head, blocks in zip(s["scores"], s["blocks"]):
    for i, (score, kept) in enumerate(zip(head, blocks)):
        assert len(score) == n + i + 1 and max(score) == 1
        for j, x in enumerate(score):
            always = j < p["sink"] or n + i - j < p["window"]
            assert (j in kept) == (always or x >= p["alpha"]), (i, j, x)
P
	ok 'scores and parameters explain every block' python3 check.py
	filter=block=128,pool=mean,local=128,mass=0,threshold=0.05,min-tokens=0
	small --method xattention:threshold=0.8,seer:gate=mean,threshold=0.02,proxyattn:mass=0.7 \
		--scores --json s.json >out
	small --method select=oracle,density=0.4/exec=blocksparse,quoka,bfla:$filter \
		--scores --json t.json >out
	cat >rules.py <<'P'
import json
def rows(s): # scores, kept, and those that are kept for their places
    n = s["past_blocks"]
    for head, blocks in zip(s["scores"], s["blocks"]):
        for i, (score, kept) in enumerate(zip(head, blocks)):
            assert len(score) == n + i + 1
            yield score, set(kept), {0, n + i}
def best(score, kept, placed): # what is kept is no less than what is not
    chosen = [score[j] for j in kept - placed]
    others = [x for j, x in enumerate(score) if j not in kept | placed]
    assert not chosen or min(chosen) >= max(others, default=-9)
    return chosen
x, seer, proxy = json.load(open("s.json"))["selections"]
for score, kept, placed in rows(x):
    chosen, held = best(score, kept, placed), sum(score[j] for j in kept)
    assert abs(sum(score) - 1) < 1e-6 and held > 0.8 - 1e-6
    assert not chosen or held - min(chosen) < 0.8
for score, kept, _ in rows(seer):
    assert kept == {j for j, x in enumerate(score) if x > 0.02}
for score, kept, placed in rows(proxy):
    best(score, kept, placed)
    assert placed <= kept and 0 < max(score) <= 1
oracle, quoka, bfla = json.load(open("t.json"))["selections"]
cells = [(x, j in kept) for score, kept, _ in rows(oracle) for j, x in enumerate(score)]
assert min(x for x, k in cells if k) >= max(x for x, k in cells if not k)
for score, kept in zip(quoka["scores"], quoka["tokens"]):
    assert len(score) == 512 and len(kept) == 128
    best(score, set(kept), set())
group, n, some = bfla["q_heads"] // bfla["kv_heads"], bfla["past_blocks"], 0
for h, blocks in enumerate(bfla["blocks"]):
    heads = bfla["scores"][h // group * group:(h // group + 1) * group]
    for i, kept in enumerate(blocks):
        for j in range(n + i + 1):
            high = max(s[i][j] for s in heads) > 0.05
            some += high and 0 < j < n + i - 1
            assert (j in kept) == (high or j == 0 or j >= n + i - 1), (h, i, j)
assert some
P
	ok '... and of every selector that has any' python3 rules.py
else
	skip 'JSON is JSON' 'no python'
	skip 'SVG is XML' 'no python'
	skip 'scores and parameters explain every block' 'no python'
	skip '... and of every selector that has any' 'no python'
fi
small --method dense --json d.json >out
is 'dense lists every block' \
	"$(grep -o '"blocks":\[\[\[[^]]*\],\[[^]]*\]' d.json)" \
	'"blocks":[[[0,1,2,3,4],[0,1,2,3,4,5]'
model() { # its heads agree, and nothing changes
	small --model niah-llama-14m >a && small >b && cmp a b
}
ok 'the model of the capture changes nothing' model
rank() { small --tp 2 >out && grep -q '; 4 query heads, 1 KV heads;' out &&
	! grep -q '^ *4 *[01]  ' out; }
ok 'a rank has its heads only' rank

# ---- agreement with attnreplay run ----

agrees() {
	echo TIMESTAMP,ContextTokens,GeneratedTokens >t.csv
	echo '2023-11-16 18:00:00,768,1' >>t.csv
	"$ATTNREPLAY" run --backend cpu --trace t.csv --model niah-llama-14m --capture "$arc" \
		--sample-layers 1 --method compact-fp:$params --max-num-batched-tokens 256 --accuracy 1 \
		--db r.db >/dev/null || return 1
	"$ATTNREPLAY" sql --format csv r.db \
		"SELECT sum(tiles_sel) || ' ' || sum(tiles_total) || ' ' ||
		sum(exec_sel) || ' ' || sum(exec_total) AS v FROM selection_stat
		WHERE chunk_no = 2" | tail -1 >run
	small --prompt-tokens 768 --method compact-fp:$params >out
	echo "$(density selected past) $(density executed causal)" >select
	cat run select
	cmp run select
}
# The query of the manual page that computes densities by definition, for that chunk.
query=$(awk '/^SELECT/ { q = "" } { q = q "\n" $0 }
	/GROUP BY/ && q ~ /chunk_full/ { print q; exit }' \
	"$srcdir/man/attnreplay-db.5.in" | sed 's/tiles_total > 0/& AND chunk_no = 2/')
defined() {
	"$ATTNREPLAY" sql --format csv r.db "$query" | tail -1 | tr , '\n' |
		awk 'NR > 1 { printf "%.4f\n", $1 }' >run
	for d in 'selected past' 'selected causal' 'selected full' 'q-block full' \
	         'sub-group full' 'group full'; do
		awk -v d="$d" '$1 " " $2 == d { print $6 }' out
	done >select
	paste run select
	cmp run select && [ "$(sort -u run | wc -l)" -gt 4 ]
}
params=alpha=0.3,sink=1,window=1
ok 'a run counts the same chunk alike' agrees
ok '... by every definition' defined

# ---- kernels ----

lists() { grep -o '"blocks":.*' "$1"; }
method=dense,trishape:start=128,recent=128,select=density,density=0.4/union=none/exec=blocksparse
small --method $method,compact-fp --backend cuda --json k.json >k.out 2>err
status=$?
if [ $status = 4 ]; then
	[ "${ATTNREPLAY_REQUIRE_GPU:-}" = 1 ] && { echo 'Bail out! no usable GPU'; exit 1; }
	skip 'kernels select what the references do' 'no usable GPU'
	skip '... and are as near to dense' 'no usable GPU'
else
	small --method $method,compact-fp --json c.json >c.out
	is 'kernels select what the references do' \
		"$(lists k.json | head -3)" "$(lists c.json | head -3)"
	figures() { sed -n 's/.*relative L2 mean \([^ ]*\).*recall mean \([^ ]*\).*/\1 \2/p' "$1"; }
	near() {
		figures k.out >a
		figures c.out >b
		paste -d' ' a b
		paste -d' ' a b | awk '{ x = $1 - $3; y = $2 - $4 }
			x * x > 1e-4 || y * y > 1e-4 { bad = 1 } END { exit bad || NR != 4 }'
	}
	ok '... and are as near to dense' near
fi

# ---- random values ----

drawn() { "$ATTNREPLAY" select --capture random:1 --model smollm2-135m --chunk 128 "$@"; }
drawn --context 128 --layer 3 --method quoka >out 2>err
ok 'random values have the shape of the model' grep -q '^random:1, layer 3, context 128, chunk 128: ' out
ok '... all heads of it' grep -q '; 9 query heads, 3 KV heads;' out
ok '... and accuracy of none' grep -q '^  against dense on values of no model: ' out
is '... without a warning' "$(cat err)" ''
show --model llama-3.1-8b --tp 4 --context 0 --chunk 16 --method dense 2>err >/dev/null
is 'a capture of another model gets a warning, once' "$(cat err)" \
'attnreplay: warning: niah-2k.arc was captured from niah-llama-14m, not from llama-3.1-8b; '\
'accuracy and selections are those of niah-llama-14m'
drawn --prompt-tokens 256 --layer 3 --method quoka >again
ok '... the same each time, at the end of the prompt if no context is given' cmp out again
is '... and one layer if none is named' \
	"$(drawn --context 0 --method dense | grep -c '^random:1, layer')" 1

# ---- refusals ----

ok 'a capture is needed' wrong 'no capture given; name one with --capture FILE, or take random values with --capture random:0' \
	"$ATTNREPLAY" select
drawn() { "$ATTNREPLAY" select --capture random:1 --method dense --chunk 16 "$@"; }
ok 'random values need a model' wrong \
	'random:1 has the shape of a model; name one with --model' drawn --context 0
ok '... and a place' wrong \
	'random:1 has any length; give the place of the chunk with --context' \
	drawn --model smollm2-135m
ok '... and a model that exists' fails 3 '^attnreplay: nope: no such file' drawn --model nope --context 0
ok '... which can be split' fails 2 'query heads 9 is no multiple of it' \
	drawn --model smollm2-135m --tp 2 --context 0
ok '... and a seed' wrong "capture 'random:y': want random:SEED with a whole number, such as random:0; put ./ before the name of a file" \
	drawn --capture random:y --model smollm2-135m --context 0
ok 'operands are not' wrong "'x' is one operand too many: select takes options only" show x
ok 'a chunk past the end' wrong \
	'niah-2k.arc has 2112 tokens, but a chunk of 1024 after a context of 2000 needs 3024; lower --context or --chunk' \
	show --context 2000
ok 'a prompt that ends in the chunk' wrong \
	'prompt-tokens 700: too few, the chunk ends at 768; raise it, or lower --context or --chunk' \
	small --prompt-tokens 700
ok 'a layer that is not captured' wrong "layer '4-5': niah-2k.arc does not hold layer 4; \
'attnreplay capture info' lists those it holds" small --layer 4-5
ok 'a layer twice' wrong "layer '5,5': a layer is listed twice" small --layer 5,5
ok 'no layer at all' wrong "layer 'x': want numbers and ranges such as 0,4,8-11" small --layer x
ok 'a head that is none' wrong 'head 8: want a query head from 0 to 7' small --head 8
ok 'a model of other heads' wrong \
	'niah-2k.arc has 8/2 heads of 128, model llama-3.1-8b has 32/8 of 128; take the model it was captured from, or --tp 4, whose ranks have such heads, or --capture random:0' \
	small --model llama-3.1-8b
sed 's/"num_hidden_layers": 8/"num_hidden_layers": 5/' \
	"$ATTNREPLAY_DATA/model/presets/niah-llama-14m.json" >five.json
ok 'a model with fewer layers' wrong \
	'niah-2k.arc holds layer 5, but model five has 5 layers; name the model that it was captured from' \
	small --model ./five.json
ok 'a split that leaves a rest' \
	fails 2 'query heads 8 is no multiple of it; change --tp' small --tp 3
ok 'an unknown method' fails 2 "method 'nope': unknown name" small --method nope
ok 'scores without a file' wrong '--scores adds to the JSON; add --json FILE' small --scores
ok 'scores of a selector without' wrong "method 'dense': selector 'none' has no scores; leave out --scores" \
	small --method compact-fp,dense --scores --json y.json
ok 'scores of kernels' wrong '--scores has no effect with --backend cuda; use --backend cpu' \
	small --backend cuda --scores --json y.json
for o in json csv svg; do
	ok "--$o into no folder" fails 1 '/no/where: cannot create' small --$o /no/where
	full() { small --method dense --$o /dev/full >/dev/null 2>err; [ $? = 1 ] &&
		grep -q '/dev/full: cannot write' err; }
	ok "... or to a full disk" full
	kept() { echo before >kept; small --method seer:gate=no.safetensors --$o kept 2>/dev/null
		[ $? = 3 ] && [ "$(cat kept)" = before ]; }
	ok '... which a method that cannot be opened leaves as it was' kept
done
ok 'a file that is no capture' \
	fails 3 'neither an .arc file nor safetensors' "$ATTNREPLAY" select --capture "$0"
header='{"__metadata__":{"rope_applied":"true"},
"layers.5.q":{"dtype":"BF16","shape":[8,16,128],"data_offsets":[0,32768]},
"layers.5.k":{"dtype":"BF16","shape":[2,16,128],"data_offsets":[32768,40960]},
"layers.5.v":{"dtype":"BF16","shape":[2,16,128],"data_offsets":[40960,49152]}}'
safetensors "$header" 49152 >raw.safetensors
raw() { "$ATTNREPLAY" select --capture raw.safetensors --context 0 --chunk 16 --method dense "$@"; }
ok 'a capture that does not say its rotary embedding needs none where nobody asks' raw
ok '... and takes that of the model' raw --model niah-llama-14m
"$ATTNREPLAY" capture unpack "$arc" known.safetensors || exit 99
LC_ALL=C sed 's/"rope_theta"/"xope_theta"/' known.safetensors >unknown.safetensors
of() { "$ATTNREPLAY" select --capture "$1.safetensors" --context 1536 --chunk 256 |
	grep -v safetensors; }
is '... nor is a figure another' "$(of unknown)" "$(of known)"
gated() { "$ATTNREPLAY" select --capture unknown.safetensors --context 512 --chunk 256 \
	--method seer:gate=mean "$@" >out; }
ok '... but a gate for keys before it asks' \
	says 3 "method 'seer:gate=mean': the gate is for keys before their \
rotary embedding, which is not known; pack the capture with its rope_theta, or name its model" gated
ok '... which the model answers' gated --model niah-llama-14m
spoil() { # BYTES OFFSET: in the tensors
	cp raw.safetensors odd.safetensors
	printf "$1" |
		dd of=odd.safetensors bs=1 seek=$((8 + ${#header} + $2)) conv=notrunc 2>/dev/null
}
odd() { "$ATTNREPLAY" select --capture odd.safetensors --model niah-llama-14m --context 0 \
	--chunk 16 "$@"; }
spoil '\300\177' $((32768 + (16 + 3) * 256 + 8))	# in k, head 1, token 3
ok 'what is not a number is bad data' says 3 \
	'odd.safetensors: layer 5 k, head 1, token 3 is not finite; capture it again' odd
ok '... and not sound' fails 3 'layer 5 k, head 1, token 3 is not finite' \
	"$ATTNREPLAY" capture verify odd.safetensors
spoil '\200\377' $((16 * 256 * 8 - 2))	# the last of q
ok '... nor is an infinite value' says 3 \
	'odd.safetensors: layer 5 q, head 7, token 15 is not finite; capture it again' odd
finish
