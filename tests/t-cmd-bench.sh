#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay bench: the planned cases, their work, and, with a GPU, a quick run.
. "$srcdir/tests/tap.sh"

bench() { "$ATTNREPLAY" bench attention "$@"; }
dry() { bench --dry-run --format json "$@"; }
values() { sed "s/.*\"$1\":\"\{0,1\}\([^,\"}]*\).*/\1/" | tr '\n' ' '; } # values MEMBER <LINES
small='--batch 1 --chunk 256 --context 512 --repeat 3'
no_space() { # the table still goes to standard output
	bench --dry-run --json /dev/full >/dev/null 2>"$tmp/full"
	[ $? = 1 ] && grep -q '/dev/full: cannot write' "$tmp/full"
}

ok 'without what to measure it is wrong usage' \
	fails 2 'no mode given; want attention, method, decode, delta, ssm, paper, host or collective' "$ATTNREPLAY" bench
ok 'something else to measure is wrong usage' \
	fails 2 "unknown mode 'mlp'; want attention, method, decode, delta, ssm, paper, host or collective" "$ATTNREPLAY" bench mlp
ok 'an unknown case is wrong usage' \
	fails 2 "what 'dense,x': want some of" bench --what dense,x
ok 'an empty list is wrong usage'               fails 2 "batch '': want a value" bench --batch ''
ok 'a count that is none is wrong usage'        fails 2 "chunk '1,two': want" bench --chunk 1,two
ok 'a count of 0 is wrong usage'                fails 2 "context '0': want" bench --context 0
ok 'a density above 1 is wrong usage' \
	fails 2 "density '0.1,1.1': want up to 64 numbers" bench --density 0.1,1.1
ok 'heads that do not divide are refused' \
	fails 2 '16 query heads are no multiple of 3 KV heads' bench --kv-heads 3
ok 'a head size without kernels is refused' \
	fails 2 'attend: head size 96; supported 64, 128' bench --head-dim 96
ok 'so is a block size' \
	fails 2 'attend: page size 96; supported 64, 128$' bench --block-size 96
ok 'a past of broken blocks is refused' \
	fails 2 'a context of 1000 tokens is no multiple of the block size, 128' \
	bench --what past --context 1000 --chunk 64
ok 'a shape that is too large is refused' \
	fails 2 'too large; lower one of them' bench --batch 100000
ok 'and that before anything is measured' \
	fails 2 'context of 16777216 tokens is too long' bench --context 8K,16M
ok 'a file that cannot be made is an error' \
	fails 1 '/no/where: cannot create' bench --dry-run --json /no/where
ok 'a full disk is an error'                    no_space

dry >"$tmp/all" || exit 99
is 'the default shapes are those of the comparison' "$(grep -c '"what":"dense"' "$tmp/all")" 19
is 'tables and selection need a past' "$(grep -c '"what":"table"\|"what":"select"' "$tmp/all")" 48
is 'decode has shapes of its own' "$(grep '"what":"decode"' "$tmp/all" | values batch)" '8 8 64 '
is 'without a GPU there are no times' "$(grep -vc '"us":null' "$tmp/all")" 0

dry --what dense --batch 1,2 --chunk 128,1K --context 512 >"$tmp/some"
is 'shapes are combined' "$(values batch <"$tmp/some")" '1 1 2 2 '
is 'a chunk is no longer than its context' "$(values chunk <"$tmp/some")" '128 512 128 512 '
# 16 heads, (128 rows with 384 earlier keys each, and their triangle) * 4 * 128
is 'work is counted exactly' \
	"$(values flops <"$tmp/some")" '470286336 1075838976 940572672 2151677952 '
is 'decode reads its keys and values once' \
	"$(dry --what decode --batch 8 --context 32K | values bytes)" '536870912 '
is 'and under a table those that it lists' \
	"$(dry --what decode-table --batch 8 --context 32K --density 0,1 | values bytes)" \
	'2097152 536870912 '
is 'a density of 0 leaves the chunk itself' \
	"$(dry --what table --batch 1 --chunk 128 --context 1152 --density 0,1 | values flops)" \
	'67633152 1141374976 '
dry --what blocksparse --batch 1 --chunk 128 --context 1152 --density 0 --block-size 64 >"$tmp/half"
is 'lists of smaller blocks leave two triangles of it' \
	"$(values 'block_size":64.*"flops' <"$tmp/half")" '34078720 '
is 'the seed draws other lists' "$(for s in 1 2 1; do
	dry --what blocksparse --batch 1 --context 8K --density 0.3 --seed $s | values flops; done |
	tr ' ' '\n' | sort | uniq -c | sort -n | awk '{ print $1 }' | tr '\n' ' ')" '1 2 '
dry --what copy,gather --batch 1 --chunk 128 --context 1152 --density 0 >"$tmp/moved"
is 'executors that copy have a row for it' \
	"$(values what <"$tmp/moved")" 'copy-move copy-attend gather-move gather-attend '
# 4 KV heads, 128 keys and values of 256 bytes, read and written
is 'and the bytes of it' "$(values bytes <"$tmp/moved")" '524288 null 524288 null '
bench --dry-run --json "$tmp/file" --what dense,select --batch 1 --context 8K >"$tmp/table"
is 'the table has a heading and the rows' "$(wc -l <"$tmp/table")" 4
is 'the file has the rows' "$(values what <"$tmp/file")" 'dense select metadata '

is 'every row may see all of the past' \
	"$(dry --what past,dense --batch 1 --chunk 128 --context 512 | values flops)" \
	'470286336 536870912 '

printf '%s\n' '# ours' 'dense,past 1,2 128 512 # both' '' 'table	2 128 1K 0.5' \
	'decode 8 1 1K' >"$tmp/cases"
lines() { printf '%s\n' "$@" >"$tmp/lines"; fails 2 "lines:$#: $text" \
	bench --dry-run --format json --cases "$tmp/lines"; }
is 'cases may come from a file, in its order' \
	"$(dry --cases "$tmp/cases" | values what)" 'dense past dense past table decode '
is 'or from standard input' "$(dry --cases - <"$tmp/cases" | values batch)" '1 1 2 2 2 8 '
is 'with their density' \
	"$(dry --cases "$tmp/cases" | values density)" 'null null null null 0.5 null '
is 'and else that of the option' \
	"$(echo 'table 1 128 1K' | dry --cases - --density 0.2 | values density)" '0.2 '
answers() { # its rows come before the next line goes
	mkfifo "$tmp/to" "$tmp/from"
	dry --cases - <"$tmp/to" >"$tmp/from" &
	exec 3>"$tmp/to" 4<"$tmp/from"
	for batch in 1 2 3; do
		echo "dense $batch 128 512" >&3
		read -r row <&4
		case $row in *"\"batch\":$batch,"*) ;; *) return 1 ;; esac
	done
	exec 3>&- 4<&-
	wait $!
}
ok 'a case is answered before the next one is there' answers
text='want WHAT BATCH CHUNK CONTEXT'
ok 'a line with too little is named' lines 'dense 1 128'
ok 'and one with too much' lines '#' 'dense 1 128 1K 1 1'
text="--chunk 'two': want up to 64 counts"
ok 'and what is wrong in it' lines 'dense 1 two 1K'
text='nothing to select from: the context must be at least 128 tokens longer'
ok 'a line without a case is wrong' lines 'table 1 1K 1K'
text='case past: a context of 1000 tokens'
ok 'and a shape that cannot be' lines 'past 1 64 1000'
ok 'a file of cases says all shapes' \
	fails 2 '--cases replaces --batch, --chunk, --context' bench --dry-run --cases - --batch 1
ok 'one that is not there is bad data' \
	fails 3 '/no/where: No such file' bench --dry-run --cases /no/where
ok 'one that cannot be read, too'      fails 3 'Is a directory' dry --cases "$tmp"

# ---- real lists ----

# 3 blocks, the chunk in the last one; head 0 keeps block 0, head 1 only its own
lists() { # lists FILE NAME=VALUE...: that file with other members
	file=$tmp/$1
	shift
	set -- context=256 chunk=128 q_heads=2 kv_heads=1 block_tokens=128 \
		'blocks=[[[0,2]],[[2]]]' 'tables=[[0,2]]' "$@"
	for member; do printf '"%s":%s\n' "${member%%=*}" "${member#*=}"; done |
		awk -F: '{ i = index($0, ":"); v[$1] = substr($0, i + 1) }
			END { for (k in v) if (v[k] != "") o = o "," k ":" v[k]
				print "{\"selections\":[{" substr(o, 2) "}]}" }' >"$file"
}
lists real
real() { dry --batch 2 --q-heads 4 --kv-heads 2 --lists "$tmp/real" "$@"; }
real --what table,blocksparse,decode-table,dense >"$tmp/real.rows"
is 'lists of a file give the shape' \
	"$(values 'context' <"$tmp/real.rows")" '384 384 384 384 '
# 4 heads of 128 rows: 128 keys and a triangle each, or for every other head a triangle
is 'their blocks are counted, heads repeated' \
	"$(grep -v dense "$tmp/real.rows" | values flops)" '100925440 67371008 1048576 '
is 'so are those that decodes read' "$(grep decode "$tmp/real.rows" | values bytes)" '524288 '
is 'the density is that of the lists, or of the tables' \
	"$(grep -v dense "$tmp/real.rows" | values density)" '0.5 0.25 0.5 '
ok 'and of nothing else' \
	fails 2 'density has no effect with --lists' real --density 0.5
is 'rows say which lists' "$(values lists <"$tmp/real.rows")" \
	"null $tmp/real $tmp/real $tmp/real "
is 'a case of a file may name lists' \
	"$(printf '%s\n' "blocksparse 1 128 384 $tmp/real" 'blocksparse 1 128 384 0.5' |
	dry --cases - --q-heads 2 --kv-heads 1 | values lists)" "$tmp/real null "
wrong() { # wrong STATUS MESSAGE NAME=VALUE...: a file with these members is refused
	status=$1 message=$2
	shift 2
	lists wrong "$@"
	fails "$status" "$message" bench --dry-run --what table,blocksparse --batch 1 \
		--q-heads 4 --kv-heads 2 --lists "$tmp/wrong"
}
ok 'a file that is not there is bad data' \
	fails 3 '/no/where: No such file' bench --dry-run --lists /no/where
echo '{' >"$tmp/broken"
ok 'so is one that is no JSON' \
	fails 3 'broken:2: ' bench --dry-run --lists "$tmp/broken"
echo '{"selections":[]}' >"$tmp/none"
ok 'and one without a selection' \
	fails 3 'none: 0 selections of .*; want one' bench --dry-run --lists "$tmp/none"
ok 'a member that is no count is named' \
	wrong 3 "'chunk': want an integer from 1 to 8388608" chunk=0
ok 'a block past the end is bad data'    wrong 3 "'blocks': want lists of blocks below 3" \
	'blocks=[[[0,3]],[[2]]]'
ok 'so is a list that is none'           wrong 3 "'blocks': want lists" 'blocks=[[[0]],[2]]'
ok 'and one head too many'               wrong 3 "'blocks': want lists" \
	'blocks=[[[0]],[[2]],[[2]]]'
ok 'and a query block too many'          wrong 3 "'blocks': want lists" 'blocks=[[[0],[0]],[[2]]]'
ok 'a table is a list, too'              wrong 3 "'tables': want lists" 'tables=[2]'
ok 'or holds a block past the end'       wrong 3 "'tables': want lists" 'tables=[[-1]]'
ok 'a selection of tokens has no lists'  wrong 3 'no lists of blocks and no table' \
	blocks= tables=
ok 'more blocks than lists can name are too many' \
	wrong 3 '65537 blocks of 128 tokens; want at most 65535' context=8388608
ok 'block-sparse needs lists of blocks' \
	wrong 2 'case blocksparse: the lists have no blocks' blocks=
ok 'a table needs one for each KV head' \
	wrong 2 'case table: the lists have no table for each KV head' 'tables=[[0],[0]]'
ok 'the shape is that of the lists' \
	fails 2 'the lists are of chunk 128, context 384 and blocks of 128 tokens' \
	real --what table --context 512
ok 'with as many query heads for a KV head' \
	fails 2 'the lists are of 2 query heads and 1 KV heads' real --what table --kv-heads 4
ok 'a file of cases says which lists' \
	fails 2 'replaces --batch, --chunk, --context and --lists' bench --dry-run --cases - \
	--lists "$tmp/real"
selected() { # bench counts the blocks that select chose as select does
	"$ATTNREPLAY" select --capture "$srcdir/traces/samples/niah-2k.arc" --method flashprefill \
		--context 1024 --chunk 256 --picture none --json "$tmp/selected" >/dev/null &&
		[ "$(dry --batch 1 --what blocksparse --lists "$tmp/selected" | values executed)" = \
			"$(tr -d ' \n' <"$tmp/selected" |
			sed 's/.*"executed","scope":"causal"[^}]*"density":\([0-9.]*\).*/\1/') " ]
}
ok 'a selection of a capture is measured as it is' selected

# shellcheck disable=SC2086
bench $small \
	--what dense,past,table,blocksparse,copy,gather,decode,decode-table,window,decode-window,mixed,select \
	--json "$tmp/ours" >"$tmp/out" 2>"$tmp/err"
status=$?
if [ $status = 4 ]; then
	[ "${ATTNREPLAY_REQUIRE_GPU:-}" = 1 ] && { echo 'Bail out! no usable GPU'; exit 1; }
	is 'without a GPU standard output is empty' "$(cat "$tmp/out")" ''
	ok 'and the message says what to do' grep -q 'dry-run' "$tmp/err"
	skip 'a small benchmark runs' 'no usable GPU'
	skip 'every row has a time' 'no usable GPU'
	skip 'every result is near the reference' 'no usable GPU'
else
	is 'a small benchmark runs' "$status $(cat "$tmp/err")" '0 '
	is 'every row has a time' "$(grep -c '"us":[0-9]' "$tmp/ours")" "$(wc -l <"$tmp/ours")"
	is 'every result is near the reference' \
		"$(grep -c '"rel_l2":0.00\|"bits_off":0' "$tmp/ours")" \
		"$(grep -vc '"what":"\(gemm\|copy\|[a-z]*-move\)"' "$tmp/ours")"
fi
finish
