#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay bench delta and ssm, and droppers in bench method: the planned cases, and, with a GPU, a quick run.
. "$srcdir/tests/tap.sh"

delta() { "$ATTNREPLAY" bench delta "$@"; }
ssm() { "$ATTNREPLAY" bench ssm "$@"; }
method() { "$ATTNREPLAY" bench method "$@"; }
values() { sed "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/" | tr '\n' ' '; } # values MEMBER <LINES

# ---- delta ----

ok 'a model without linear layers is refused' \
	fails 2 "model 'llama-3.1-8b' has no linear layers" delta --dry-run --model llama-3.1-8b
ok 'so is one that is not there' fails 3 no/where delta --dry-run --model no/where
ok 'GPUs must divide its heads' fails 2 'into 3 parts.*change --tp' delta --dry-run --tp 3
ok 'a batch that is too large is refused' \
	fails 2 'batch 1000, chunk 1048576: too large' delta --dry-run --batch 1000 --chunk 1M
ok 'options of other modes are unknown' fails 2 "unknown option '--context'" delta --context 1K
ok 'a file that cannot be made is an error' \
	fails 1 '/no/where: cannot create' delta --dry-run --json /no/where
delta --dry-run --format json --batch 1,2 --chunk 64,1K --tp 8 >"$tmp/delta"
is 'prompts and decodes of each batch are measured, alone and as layers' \
	"$(values what <"$tmp/delta")" \
	"$(for i in 1 2; do
		printf 'prefill prefill-layer prefill prefill-layer decode decode-layer '
	done)"
is 'heads are those of a GPU' "$(head -1 "$tmp/delta" | values k_heads)$(
	head -1 "$tmp/delta" | values v_heads)" '2 4 '
# 4 value heads of 64 rows: three products with the state of 128 x 128, two with 64 rows in k and v
is 'products are counted' "$(head -1 "$tmp/delta" | values flops)" \
	"$((64 * 4 * (3 * 2 * 128 * 128 + 2 * 2 * 64 * 256))) "
# the projections of 64 rows, their output, and the state that is written
is 'bytes are counted' "$(head -1 "$tmp/delta" | values bytes)" \
	"$((64 * 2 * (2 * 256 + 2 * 512 + 8 + 512) + 4 * 4 * 128 * 128 + 2 * 3 * 1024)) "
# also the projections of 2048 channels to q, k, v, z, b and a, and from the values
is 'products of the projections are counted' "$(sed -n 2p "$tmp/delta" | values flops)" \
	"$((64 * 4 * (3 * 2 * 128 * 128 + 2 * 2 * 64 * 256) + 64 * 2 * 2048 * (4 * 512 + 8)))\
 "
# rows of 2048 channels before and after, the weights, and the state
is 'bytes of a layer are counted' "$(sed -n 2p "$tmp/delta" | values bytes)" \
	"$((64 * 2 * 2 * 2048 + 2 * 2048 * (4 * 512 + 8) + 4 * 4 * 128 * 128 + 2 * 3 * 1024)) "

# ---- ssm ----

ok 'a model without state-space layers is refused' \
	fails 2 "model 'llama-3.1-8b' has no state-space layers" ssm --dry-run --model llama-3.1-8b
ok 'a batch of them that is too large is refused' \
	fails 2 'batch 1000, chunk 1048576: too large' ssm --dry-run --batch 1000 --chunk 1M
ssm --dry-run --format json --batch 1 --chunk 64 --tp 8 >"$tmp/ssm"
is 'a Mamba-2 layer is measured alone and as a layer' "$(values what <"$tmp/ssm")" \
	'prefill prefill-layer decode decode-layer '
is 'its groups and heads are those of a GPU' "$(head -1 "$tmp/ssm" | values k_heads)$(
	head -1 "$tmp/ssm" | values v_heads)" '1 8 '
# 8 heads of 64 x 128, one group: two products with the state, B and x of 128 rows
is 'its products are counted' "$(head -1 "$tmp/ssm" | values flops)" \
	"$((64 * (4 * 8 * 64 * 128 + 2 * 128 * (128 + 8 * 64)))) "
# z, x, B, C and time steps of 64 rows, their output, and the state that is written
is 'its bytes are counted' "$(head -1 "$tmp/ssm" | values bytes)" \
	"$((64 * 2 * (3 * 512 + 2 * 128 + 8) + 4 * 512 * 128 + 2 * 3 * (512 + 256))) "

# ---- droppers ----

ok 'plans of layers are no method of a layer' \
	fails 2 'measures one layer; give it one method' \
	method --dry-run --method '0-1:dense;2-:compact-fp'
is 'a dropper is a method' \
	"$(method --dry-run --format json --method uniprefill:layers=0 | values method)" \
	'dense uniprefill:layers=0 '
ok 'it acts after the layer of the input' fails 2 "layer 1: model 'bench' has 1 layers" \
	method --dry-run --method uniprefill:layers=1
sample=$srcdir/traces/samples/niah-2k.arc # layer 5
ok '... after each of them' fails 2 'does not act after layer 5 of the input; name that one' \
	method --dry-run --capture "$sample" --method uniprefill:layers=2
is '... which the dropper names' \
	"$(method --dry-run --capture "$sample" --method uniprefill:layers=2+5 | tail -n +3 | wc -l)" 2

# ---- on a GPU ----

delta --batch 2 --chunk 300 --repeat 3 --format json >"$tmp/ours" 2>"$tmp/err"
status=$?
if [ $status = 4 ]; then
	[ "${ATTNREPLAY_REQUIRE_GPU:-}" = 1 ] && { echo 'Bail out! no usable GPU'; exit 1; }
	for t in 'a linear layer runs' 'its rows are near the reference' \
		'a state-space layer runs' 'so are its rows' 'a dropper runs' \
		'it keeps a part of the rows'; do
		skip "$t" 'no usable GPU'
	done
else
	is 'a linear layer runs' "$status $(cat "$tmp/err")" '0 '
	is 'its rows are near the reference' "$(grep -c '"rel_l2":0' "$tmp/ours")" \
		"$(wc -l <"$tmp/ours")"
	ssm --batch 2 --chunk 300 --repeat 3 --format json >"$tmp/ours" 2>"$tmp/err"
	is 'a state-space layer runs' "$? $(cat "$tmp/err")" '0 '
	is 'so are its rows' "$(grep -c '"rel_l2":0' "$tmp/ours")" "$(wc -l <"$tmp/ours")"
	method --batch 2 --chunk 2K --context 2K --repeat 3 --format json \
		--method uniprefill:layers=0,p=0.5 >"$tmp/ours" 2>"$tmp/err"
	is 'a dropper runs' "$? $(cat "$tmp/err")" '0 '
	ok 'it keeps a part of the rows' grep -q '"drop_us":[1-9].*"kept":0\.[1-9]' "$tmp/ours"
fi
finish
