#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay bench method, decode and paper: the planned cases, and, with a GPU, a quick run of both.
. "$srcdir/tests/tap.sh"

sample=$srcdir/traces/samples/niah-2k.arc
method() { "$ATTNREPLAY" bench method "$@"; }
paper() { "$ATTNREPLAY" bench paper "$@"; }
values() { sed "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/" | tr '\n' ' '; } # values MEMBER <LINES
no_space() { # no_space COMMAND...: the table still goes to standard output
	"$@" --dry-run --json /dev/full >/dev/null 2>"$tmp/full"
	[ $? = 1 ] && grep -q '/dev/full: cannot write' "$tmp/full"
}

# ---- method ----

dry() { method --dry-run --format json "$@"; }
ok 'an unknown method is wrong usage' \
	fails 2 "method 'nope': unknown name" method --dry-run --method nope
ok 'and so is one of a list' \
	fails 2 "unknown selector 'nope'" \
	method --dry-run --method dense,select=nope/union=none/exec=paged
ok 'a count that is none is wrong usage' \
	fails 2 "chunk 'two': want" method --dry-run --chunk two
ok 'options of other modes are unknown' \
	fails 2 "unknown option '--what'" method --what dense
ok 'nothing is left of less than nothing'         fails 2 'left' method --dry-run --left -1
ok 'an operand is wrong usage'                   fails 2 "unexpected operand 'x'" method x
ok 'a shape that is too large is refused' \
	fails 2 'too large; lower one of them' method --dry-run --batch 100000
ok 'a head size without kernels is refused' \
	fails 2 'attend: head size 96; supported 64, 128' method --dry-run --head-dim 96
ok 'GPUs that do not divide the heads are refused' \
	fails 2 'does not divide 16 query heads and 4 KV heads' method --dry-run --tp 8
ok 'random inputs have no layers' \
	fails 2 'layer without --capture' method --dry-run --layer 1
ok 'a capture that is not there is bad data' \
	fails 3 'no/where' method --dry-run --capture /no/where
ok 'a layer that a capture lacks is refused' \
	fails 2 'holds 1 layers from 5 to 5' method --dry-run --capture "$sample" --layer 5,6
ok 'heads that a capture lacks are refused' \
	fails 2 'has 8 query heads over 2 KV heads of size 128, which cannot make 16 over 2' \
	method --dry-run --capture "$sample" --q-heads 16 --kv-heads 2
ok 'a file that cannot be made is an error' \
	fails 1 '/no/where: cannot create' method --dry-run --json /no/where
ok 'a full disk is an error'                     no_space method

is 'dense is measured first, once' \
	"$(dry --method compact-fp,dense,flashprefill:alpha=0.1 --context 8K | values method)" \
	'dense compact-fp flashprefill:alpha=0.1 '
is 'and where it was not asked for' \
	"$(dry --method trishape --context 8K | values method)" 'dense trishape '
dry --method dense --batch 1,2 --chunk 128,1K --context 512 >"$tmp/shapes"
is 'shapes are combined' "$(values batch <"$tmp/shapes")" '1 1 2 2 '
is 'a chunk is no longer than its context' "$(values chunk <"$tmp/shapes")" '128 512 128 512 '
is 'the prompt may go on after the chunk' "$(dry --method dense --left 4K | values left)" '4096 '
is 'blocks are those of the method' "$(dry --context 8K \
	--method select=density,block=64/union=none/exec=blocksparse | values block_size)" '128 64 '
is 'heads are those of the capture' \
	"$(dry --method dense --context 8K --capture "$sample" | values q_heads)" '8 '
is 'and may be shared by GPUs' \
	"$(dry --method dense --context 8K --capture "$sample" --tp 2 | values kv_heads)" '1 '
is 'or be those of the capture repeated' \
	"$(dry --method dense --context 8K --capture "$sample" --q-heads 16 \
	--kv-heads 4 | values input_repeats)" '2 '
is 'rows name the input' \
	"$(dry --method dense --context 8K --capture "$sample" | values input)" 'niah-2k.arc '
is 'and its tokens' \
	"$(dry --method dense --context 8K --capture "$sample" | values input_tokens)" '2112 '
counts=$srcdir/kernels/methods/selection_count.h
what='rows have the raw counts of selections in the database'
if [ -e "$counts" ]; then
	is "$what" "$(dry --method dense |
		grep -o '"[a-z]*_\(total\|sel\|full\|open\)"\|"empty_rows"' | tr -d '"' | tr '\n' ' ')" \
		"$(sed -n '/SKIP_COUNTS/q; s/^	X(\([a-z_]*\), .*/\1/p' "$counts" | tr '\n' ' ')"
else
	skip "$what" 'no sources here'
fi
is 'without a GPU there are no times' "$(dry | grep -c '"core_us":null.*"speedup":null')" 2
method --dry-run --capture "$sample" --json "$tmp/file" >"$tmp/table"
ok 'the table says how the capture is used' \
	grep -q 'input: niah-2k.arc.* repeated where the context is longer' "$tmp/table"
is 'it has a heading and the rows' "$(wc -l <"$tmp/table")" 4
is 'the file has the rows' "$(values context <"$tmp/file")" '131072 131072 '

# ---- decode ----

decode() { "$ATTNREPLAY" bench decode "$@"; }
ok 'an unknown part for decodes is wrong usage' \
	fails 2 "'nope'" decode --dry-run --decode nope
is 'dense decodes that skip are a part' "$(decode --dry-run --format json \
	--decode dense/skip=softmax,decode=500,parts=0 | sed 's/.*"decode":"\([^"]*\)".*/\1/')" \
	"$(printf '%s\n' dense dense/skip=softmax,decode=500,parts=0)"
is 'layers that take lists have a row of their own' "$(decode --dry-run --format json \
	--decode tidal,budget=64 | sed 's/.*"decode":"\([^"]*\)".*/\1/')" \
	"$(printf '%s\n' dense tidal,budget=64 'tidal,budget=64 (takes)')"
is 'lists that a pruner cuts are a part' "$(decode --dry-run --format json \
	--decode quest,quest/prune=twilight,p=0.85 | sed 's/.*"decode":"\([^"]*\)".*/\1/')" \
	"$(printf '%s\n' dense quest quest/prune=twilight,p=0.85)"
ok 'a page that does not divide a block is refused' \
	fails 2 'page=128 does not divide the 64 tokens' \
	decode --dry-run --block-size 64 --decode quest,page=128
ok 'a head size without kernels of decodes is refused' \
	fails 2 'head size 96; supported 64, 128' decode --dry-run --head-dim 96
ok 'too many requests are refused' \
	fails 2 'too large; lower one of them' decode --dry-run --batch 100000
ok 'a count of the context that is none is wrong usage' \
	fails 2 "context 'two': want" decode --dry-run --context two
ok 'options of prefill are unknown' \
	fails 2 "unknown option '--left'" decode --dry-run --left 1
ok 'the file of decodes may not be writable' \
	fails 1 '/no/where: cannot create' decode --dry-run --json /no/where
ok 'or full'                                     no_space decode
decode --dry-run --format json --decode quest,page=4,budget=64,streaming --batch 1,2 \
	--chunk 128,1K --context 512 >"$tmp/decode"
is 'dense decodes are measured first' "$(head -n 3 "$tmp/decode" | values decode)" \
	'dense quest streaming '
is 'batches and chunks are combined' "$(values chunk <"$tmp/decode")" \
	'128 128 128 512 512 512 128 128 128 512 512 512 '
is 'without a GPU there are no times of decodes' \
	"$(grep -c '"decode_us":null.*"executed":null' "$tmp/decode")" 12

# ---- paper ----

ok 'a table must be named'                       fails 2 'no table given; name one with --table NAME' paper
ok 'one that is not there is wrong usage'        fails 2 "unknown table 'nope'" paper --table nope
ok 'shapes are those of the paper' \
	fails 2 "unknown option '--batch'" paper --table ca-4 --batch 1
ok 'so many GPUs cannot share its heads' \
	fails 2 'tp 3: does not divide 32 query heads' paper --table ca-4 --dry-run --tp 3
ok 'its file may not be writable' \
	fails 1 '/no/where: cannot create' paper --table ca-4 --dry-run --json /no/where
ok 'or full'                                     no_space paper --table ca-4
paper --table list >"$tmp/list"
ok 'the tables can be listed' grep -q '^ca-4 .*attention latency by context' "$tmp/list"
bad=0
for t in $(sed -n 's/^\([a-z0-9-]*\) .*/\1/p' "$tmp/list"); do
	case $t in
	bfla-[12]) model='--model llama-3.1-8b' ;;
	*) model= ;;
	esac
	# shellcheck disable=SC2086
	paper --table "$t" --dry-run $model >"$tmp/t" 2>"$tmp/err" && [ ! -s "$tmp/err" ] ||
		bad=$((bad + 1))
	grep -q "^$t: " "$tmp/t" || bad=$((bad + 1))
done
is 'every table in the list has a plan' "$bad $(wc -l <"$tmp/list")" '0 52'
paper --table ca-4 --dry-run --format json >"$tmp/ca4"
is 'every row and column is a line' "$(wc -l <"$tmp/ca4")" 35
is 'figures are those of a call' \
	"$(grep '"row":"Dense"' "$tmp/ca4" | values paper | cut -d ' ' -f 5 | cut -c 1-6)" 13.593
is 'the total is as printed' \
	"$(grep '"row":"CompactAttention-FP"' "$tmp/ca4" | values paper_total_ms)" \
	'531.5 1274.7 3292 8292 20489.7 '
is 'the speedup is over the dense row' \
	"$(grep '"row":"CompactAttention-FP"' "$tmp/ca4" | values paper_speedup |
	cut -d ' ' -f 5 | cut -c 1-4)" 2.71
is 'heads are those of one of the GPUs' \
	"$(head -1 "$tmp/ca4" | values q_heads)$(head -1 "$tmp/ca4" | values kv_heads)" '16 4 '
is 'of as many as are asked for' \
	"$(paper --table ca-4 --tp 4 --dry-run --format json | head -1 | values q_heads)" '8 '
is 'chunks and samples of them are counted' \
	"$(grep '"row":"Dense"' "$tmp/ca4" | values chunks)$(grep '"row":"Dense"' "$tmp/ca4" |
	values samples)" \
	'8 16 32 64 128 8 8 8 8 8 '
is 'all may be measured' \
	"$(paper --table ca-5 --dry-run --format json --sample-chunks 0 | values samples)" \
	'256 128 64 256 128 64 '
is 'some tables are about the last chunk' \
	"$(paper --table ca-9 --dry-run --format json | values samples | tr -d ' ')" \
	1111111111111111111111111
paper --table ca-calls --dry-run --match --format json >"$tmp/calls"
is 'the calls have what the paper leaves out' \
	"$(values paper_sparsity <"$tmp/calls")" 'null 75 null null null 69.8 70.2 '
is 'and the goal' "$(values target <"$tmp/calls")" '2 2 2 2 2 2 2 '
is 'a method without its table says so' \
	"$(grep -c '"method":"xattention".*"note":"one threshold"' "$tmp/calls")" 1
is 'a method without its file is another, and says so' \
	"$(grep -c '"method":"seer:gate=mean".*"note":"untrained gate"' "$tmp/calls")" 1
is 'with its file it is itself' \
	"$(paper --table ca-calls --dry-run --use seer=seer:gate=x --format json |
	grep -c '"method":"seer:gate=x".*"note":null')" 1
ok 'a method too long for the table is skipped' grep -q '^skipped: --use .*longer than' <<-END
	$(paper --table ca-calls --dry-run --use "seer=seer:gate=$(printf '%09000d' 0)")
END
ok 'the table says what is matched' grep -q '^matched: .* within 2 percentage points' <<-END
	$(paper --table ca-calls --dry-run --match)
END
paper --table ca-1b --dry-run --capture "$sample" --format json >"$tmp/masks"
is 'kernels run under random masks and under those of selectors' \
	"$(grep -c '"row":"[A-Za-z]*, own mask"' "$tmp/masks") $(wc -l <"$tmp/masks")" '6 12'
is '... at the sparsity of the figure' \
	"$(grep -c '"paper_sparsity":90,.*"sparsity_of":"sparsity"' "$tmp/masks")" 12
ok 'the table says what it leaves to others' grep -q '^differs: .*whole attention modules' <<-END
	$(paper --table ca-4 --dry-run)
END
ok 'or runs under another name' grep -q '^differs: .*packed it is what CA-FP runs' <<-END
	$(paper --table ca-7c --dry-run)
END
paper --table ca-9 --dry-run >"$tmp/t"
ok 'and that random inputs are none of a model' grep -q '^differs: random inputs' "$tmp/t"
paper --table ca-2 --dry-run --capture "$sample" --tp 2 >"$tmp/captured"
ok 'other heads than the model has differ' \
	grep -q '^differs: 8 query heads over 2 KV heads.* 32 over 4' "$tmp/captured"
paper --table ca-calls --dry-run --capture "$sample" >"$tmp/repeated"
ok 'heads of a capture are repeated to those of the model' grep -q \
	'^input: niah-2k.arc.*; its 8 query heads over 2 KV heads 2 times$' "$tmp/repeated"
same_heads() { ! grep '^differs: [0-9]* query heads' "$tmp/repeated"; }
ok 'which then do not differ' same_heads
ok 'and other shares of them' grep -q "^differs: --tp 2, the paper's is 1" "$tmp/captured"
is 'a method that is not there is skipped by name' \
	"$(paper --table ca-5 --dry-run --use compact-fp=nope | tail -1 |
	cut -d : -f 1-2)" "skipped: method 'nope'"
is 'and its figures stay' "$(paper --table ca-5 --dry-run --use compact-fp=nope --format json |
	grep '"note":"skipped"' | values paper_total_ms)" '25441.7 20489.7 19921 '
is 'a method may be replaced' \
	"$(paper --table ca-5 --dry-run --use compact-fp=compact-fp:alpha=0.1 --format json |
	grep -c '"method":"compact-fp:alpha=0.1".*"note":null')" 3
is 'and what replaces it is not replaced again' \
	"$(paper --table ca-5 --dry-run --use compact-fp=flashprefill \
	--use flashprefill=nope --format json | grep -c '"method":"flashprefill".*"note":null')" 3

# ---- whole models ----

ok 'a configuration that is not here is asked for' \
	fails 2 'bfla-1: the configuration of its model is not part of this program; give one' \
	paper --table bfla-1 --dry-run
ok 'a table of one layer needs no model' \
	fails 2 'table ca-4 measures one layer' paper --table ca-4 --dry-run --model llama-3.1-8b
ok 'whole models are not matched' \
	fails 2 'match: table up-1-llama states no sparsity' paper --table up-1-llama --match
ok 'so many ranks cannot share its heads' fails 2 'into 3 parts' paper --table up-1-next --tp 3
paper --table up-1-gemma --dry-run --format json >"$tmp/up1"
is 'whole prefills are those of a rank of eight' \
	"$(sed -n 1p "$tmp/up1" | values q_heads)$(sed -n 1p "$tmp/up1" | values kv_heads)$(
		sed -n 1p "$tmp/up1" | values tp)" '2 1 8 '
is '... whose speedups are as published' "$(values paper_speedup <"$tmp/up1")" \
	'1.03 1.04 1.02 1.06 1.64 null 1.49 null '
is 'the method has what is published for the model' \
	"$(grep -c '"method":"uniprefill:p=0.98,min-tokens=1024"' "$tmp/up1")" 2
is 'batches and contexts of a table' \
	"$(paper --table up-2-next --dry-run --format json | grep -c '"batch":64')" 4
ok 'what the ranks leave out is said' grep -q '^differs: .*without all-reduces' <<-END
	$(paper --table up-2-llama --dry-run)
END

# ---- on a GPU ----

paper --table ca-2 --capture "$sample" --repeat 2 --sample-chunks 2 \
	--format json >"$tmp/ours" 2>"$tmp/err"
status=$?
if [ $status = 4 ]; then
	[ "${ATTNREPLAY_REQUIRE_GPU:-}" = 1 ] && { echo 'Bail out! no usable GPU'; exit 1; }
	is 'without a GPU standard output is empty' "$(cat "$tmp/ours")" ''
	ok 'and the message says what to do' grep -q 'dry-run' "$tmp/err"
	for t in 'a paper runs' 'a union is no sparser' 'methods run' \
		'every result is near double precision' \
		'all blocks give what dense attention gives' \
		'half the blocks are about half the work' \
		'in the middle of a prompt trishape leaves blocks out, at its end none' \
		'stages add up' 'parts for decodes run' 'and read a part of the keys'; do
		skip "$t" 'no usable GPU'
	done
	for t in 'methods are matched' 'to what the paper leaves out' 'and say how' \
		'masks are matched' 'to the sparsity of the figure, or drawn'; do
		skip "$t" 'no usable GPU'
	done
else
	is 'a paper runs' "$status $(cat "$tmp/err")" '0 '
	# before a union the density is lower than after it
	ok 'a union is no sparser' \
		awk '{ x[NR] = $1 } END { if (NR < 12) exit 1; for (c = 1; c <= 3; c++)
		if (x[c] < x[c + 3] || x[c + 3] < x[c + 6] || x[c + 6] < x[c + 9]) exit 1 }' <<-END
		$(values ours <"$tmp/ours" | tr ' ' '\n')
	END
	paper --table ca-calls --match --capture "$sample" --repeat 2 --sample-chunks 2 \
		--format json \
		>"$tmp/ours" 2>"$tmp/err"
	is 'methods are matched' "$? $(cat "$tmp/err")" '0 '
	ok 'to what the paper leaves out' \
		awk -F '"paper_sparsity":|,"ours_sparsity":|,"sparsity_of"' '
		$2 != "null" { n += $3 - $2 <= 2 && $2 - $3 <= 2 } END { exit n != 3 }' "$tmp/ours"
	is 'and say how' \
		"$(grep \
		-c '"note":"\(matches as stated\|matched by\|attends to random\)' "$tmp/ours")" 3
	paper --table ca-1b --match --capture "$sample" --repeat 2 --sample-chunks 2 \
		--format json >"$tmp/ours" 2>"$tmp/err"
	is 'masks are matched' "$? $(cat "$tmp/err")" '0 '
	ok 'to the sparsity of the figure, or drawn' \
		awk -F '"paper_sparsity":|,"ours_sparsity":|,"sparsity_of"' '
		/attends to random blocks/ || ($3 - $2 <= 2 && $2 - $3 <= 2 &&
		/"note":"[^"]*(matches as stated|matched by)/) { n++ } END { exit n != 12 }' "$tmp/ours"
	method --batch 2 --chunk 256 --context 4K --repeat 3 --format json \
		--method select=density,density=1/union=none/exec=blocksparse,select=density,density=0.5/union=none/exec=blocksparse,compact-fp-copy \
		>"$tmp/ours" 2>"$tmp/err"
	is 'methods run' "$? $(cat "$tmp/err")" '0 '
	is 'every result is near double precision' "$(grep -c '"rel_l2":0.00' "$tmp/ours")" 4
	ok 'all blocks give what dense attention gives' \
		grep -q 'density=1/.*"executed":1,.*"dense_l2":\(0,\|0\.00\)' "$tmp/ours"
	ok 'half the blocks are about half the work' \
		grep -q 'density=0.5/.*"executed":0.5' "$tmp/ours"
	is 'in the middle of a prompt trishape leaves blocks out, at its end none' \
		"$(for left in 8K 0; do
			method --batch 1 --chunk 256 --context 8K --repeat 3 --format json \
				--left $left --method trishape
		done 2>&1 | values executed | awk '{ print ($2 < 0.5), $4 }')" '1 1'
	ok 'stages add up' \
		grep -q 'compact-fp-copy.*"select_us":[1-9].*"copy_us":[0-9.]*,"attend_us":[1-9]' \
		"$tmp/ours"
	decode --batch 2 --chunk 256 --context 4K --repeat 3 --format json \
		--decode quest,budget=512,streaming,recent=508 >"$tmp/ours" 2>"$tmp/err"
	is 'parts for decodes run' "$? $(cat "$tmp/err")" '0 '
	is 'and read a part of the keys' \
		"$(values executed <"$tmp/ours" | awk '{ print $1, ($2 >= 0.125 && $2 <= 0.5), $3 }')" \
		'1 1 0.125'
fi
finish
