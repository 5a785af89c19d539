#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay methods lists exactly the methods that --method takes.
. "$srcdir/tests/tap.sh"

methods() { "$ATTNREPLAY" methods "$@"; }

# The names of both lists, the one for people and the one for programs, are the same.
lists_all() {
	methods | sed -n '/^compositions/q; s/^  \([a-z][^ ]*\) .*/\1/p' | sort >"$tmp/names"
	methods --json - | grep -o '{"name":"[^"]*","title"' | cut -d'"' -f4 | sort >"$tmp/json"
	[ "$(wc -l <"$tmp/names")" -gt 40 ] && diff "$tmp/names" "$tmp/json"
}

# the composition printed for a name parses to the same method as the name
compositions_hold() {
	methods --all | sed -n '/^methods,/,/^$/p; /^presets,/,/^$/p' |
		awk 'NF && /^  [a-z]/ { name = $1 } $1 == "is" { print name, $2 }' \
		>"$tmp/names"
	[ -s "$tmp/names" ] || return 1
	while read -r name spec; do
		[ "$(methods "$name:exec=${spec##*exec=}")" = "$(methods "$spec")" ] ||
			{ echo "$name"; return 1; }
	done <"$tmp/names"
}

selector() { methods flashprefill | sed -n '/^selectors/,$p'; }
fields() { selector | grep -o '^ *[a-z][a-z-]*=[XNR01|]*' | tr -d ' ' | tr '\n' ' '; }

is 'the list is short: a line for each name' "$(methods | grep -c '^    ')" 0
ok '... and fits on two screens' test "$(methods | wc -l)" -le 100
is '... it says where the rest is' "$(methods | tail -1)" \
	"'attnreplay methods NAME' shows one in full, and --all shows all."
ok 'every method, selector, union and executor is listed' lists_all
ok 'a name prints the same as its composition'            compositions_hold
is 'a selector lists its parameters' \
	"$(fields)" 'alpha=X sink=N window=N last-n=N last-n-rule=R dense-first=0|1 '
is 'ranges and defaults are those of the table' \
	"$(selector | grep -c -e '^    alpha=X  *0.01  *0 to 1  ' \
	-e '^    window=N  *4  *1 to 65536  ')" 2
choices() { methods xattention | sed -n '/^selectors/,$p' | awk '$3 ~ /[|]/ { printf "%s ", $3 }'; }
is 'choices stand in the place of a range' "$(choices)" '4|8|16 doc|code 64|128 '
is 'a method shows what it sets as defaults' \
	"$(methods compact-fp | grep -c -e '^    alpha=X  *0.06  *0 to 1  ' \
	-e '^    sink=N  *2  *0 to 65536  ')" 2
is 'an executor shows what it takes' "$(methods paged | sed -n 's/^    takes *//p')" \
	'all blocks, a table per head group'
# the parser agrees with every pair of the matrix
pairs_hold() {
	methods --all | sed -n '/^compositions/,$p' >"$tmp/matrix"
	awk 'NR == 2 { for (i = 1; i <= NF; i++) exec[i] = $i; next }
		NR > 2 && !/^   / { n = split($0, s, /, */); next }
		NR > 2 { for (i = 2; i <= NF; i++) for (k = 1; k <= n; k++) {
			sub(/^ */, "", s[k])
			print "select=" s[k] "/union=" $1 "/exec=" exec[i - 1], $i } }' \
		"$tmp/matrix" >"$tmp/pairs"
	[ "$(sort -u "$tmp/pairs" | wc -l)" -gt 20 ] || return 1
	while read -r spec mark; do
		methods "$spec" >/dev/null 2>&1 && got=x || got=-
		[ $got = "$mark" ] || { echo "$spec is $got"; return 1; }
	done <"$tmp/pairs"
}
ok 'the matrix says which compositions are possible' pairs_hold
is 'every selector is in it' \
	"$(methods --all | sed -n '/^compositions/,$p' | grep '^  [a-z]' | tr ',' '\n' | wc -w)" \
	"$(methods | sed -n '/^selectors/,/^$/p' | grep -c '^  [a-z]')"
is 'a preset has the parameters of its model' "$(methods compact-fp@qwen3-30b-a3b:alpha=0.1)" \
	'{"alpha":0.1,"dense-first":true,"exec":"paged","last-n":0,"last-n-rule":"open","select":"flashprefill","sink":2,"union":"sub-group","window":4}'
presets_are_of_models() { # and of methods
	methods | sed -n '/^presets,/,/^$/p' | sed -n 's/^  \([a-z][^ ]*\) .*/\1/p' >"$tmp/presets"
	[ -s "$tmp/presets" ] || return 1
	while IFS=@ read -r method model; do
		[ -e "$srcdir/model/presets/$model.json" ] && methods "$method" | grep -q '^methods,' ||
			{ echo "$method@$model"; return 1; }
	done <"$tmp/presets"
}
is 'a preset is listed in short, and in full when it is asked for' \
	"$(methods --all | sed -n '/^presets/,/^$/p' | grep -c alpha=X) $(methods \
	compact-fp@llama-3.1-8b | grep -c 'alpha=X *0.06 ')" '0 1'
ok 'presets are of methods and of models that there are' presets_are_of_models
is 'lines fit into 110 columns' "$(methods --all | awk 'length > 110')" ''
ok '--all is for the whole list' fails 2 '--all has no effect with a name' methods --all dense
is 'a name limits the list' "$(methods group | grep -c '^  [a-z]')" 1
is 'a spelling prints its record' "$(methods compact-fp:alpha=0.5,sink=0)" \
	'{"alpha":0.5,"dense-first":true,"exec":"paged","last-n":0,"last-n-rule":"open","select":"flashprefill","sink":0,"union":"group","window":4}'
is 'presets are those of the papers' \
	"$(methods | sed -n '/^presets,/,/^$/p' | sed -n 's/^  \([a-z][^ ]*\) .*/\1/p' | tr '\n' \
	' ')" \
	'bfla@llama-3.1-8b compact-fp@llama-3.1-8b compact-fp@qwen3-30b-a3b compact-sa@llama-3.1-8b flashprefill@llama-3.1-8b flashprefill@qwen3-30b-a3b flexprefill@llama-3.1-8b minference@llama-3.1-8b quoka@llama-3.1-8b quoka@qwen3-30b-a3b seer@llama-3.1-8b xattention@llama-3.1-8b xattention@qwen3-30b-a3b '
ok 'each with its source' sh -c '[ "$("$ATTNREPLAY" methods --all | sed -n "/^presets,/,/^$/p" |
	grep -c "^    from  *[A-Z]")" = 13 ]'
ok 'a preset that is not there is refused, naming those there are' fails 2 \
	"compact-fp has no preset 'gpt-2': want one of llama-3.1-8b, qwen3-30b-a3b, or give" \
	methods compact-fp@gpt-2:alpha=0.1
ok 'a method may have none' \
	fails 2 "trishape has no preset 'x': give its parameters" methods trishape@x
ok 'and a preset needs a method' \
	fails 2 "method 'nope@llama-3.1-8b': unknown name" methods nope@llama-3.1-8b
ok 'a selector is no method, and the message says how to write one' fails 2 \
	"method 'oracle': a selector, not a method; write select=oracle/union=none/exec=blocksparse" \
	"$ATTNREPLAY" run --trace x --model m --capture c --method oracle
ok '... with its parameters' fails 2 \
	'write select=oracle,density=0.2/union=none/exec=blocksparse' methods oracle:density=0.2
ok 'an unknown name is wrong usage'  fails 2 "method 'nope': unknown name" methods nope
ok 'an impossible pair is refused' \
	fails 2 "takes all blocks, a table" methods select=flashprefill/exec=paged
# ---- what kernels support ----

support() { methods --support "$@"; }
families() { support "$@" | sed -n '3,$p' | awk '{ printf "%s ", $1 }'; }
missing() { support "$@" | awk -v k="$kernels" '$1 == k' | sed 's/.*kv-bf16  *//'; }

is 'all families of kernels are listed once' "$(families | tr ' ' '\n' | sort | uniq -d)" ''
is 'those of a method are what a run needs' "$(families compact-fp)" 'flashprefill attend decode '
is 'dense attention needs no selector' "$(families dense)" 'attend decode '
is 'pages are those of the method' "$(support seer | head -1)" \
	"$(support --block-size 64 seer | head -1)"
kernels=attend
is 'a missing head size is named' "$(missing --cc 8.0 --head-dim 256)" 'head size 256'
is '... unless there is a kernel' "$(missing --cc 8.0 --head-dim 128)" -
kernels=seer
is 'so is a page size' "$(missing --block-size 128)" 'page size 128'
is 'an old GPU has no sizes' "$(support --cc 7.5 dense | awk '$1 == "decode"' | tr -s ' ')" \
	' decode 8.0 - - - compute capability 7.5'
same_json() {
	support --json "$tmp/x.json" --cc 8.0 --head-dim 256 >"$tmp/table" &&
		[ "$(grep -o '"kernels":"[^"]*"' "$tmp/x.json" | cut -d'"' -f4)" = \
			"$(sed -n '3,$p' "$tmp/table" | awk '{ print $1 }')" ] &&
		grep -q '"head_size":256,"block_size":128,"cache":"kv-bf16","capability":"8.0"' "$tmp/x.json" &&
		grep -q '"kernels":"attend",.*"missing":"head size 256"' "$tmp/x.json"
}
ok 'the JSON document has the same rows' same_json
is 'and stands alone on standard output' "$(support --json - | head -c 12)" '{"schema":"a'
ok 'a capability that is none is wrong usage' \
	fails 2 "--cc '9': want a compute capability such as 9.0" methods --support --cc 9
ok '--all does not go with it' fails 2 '--all has no effect with --support' methods --support --all
ok 'a requirement needs the table' fails 2 'have no effect without --support' methods --cc 9.0
ok 'a method that is none is refused' fails 2 "method 'x'" methods --support x

ok 'a second operand is wrong usage' fails 2 "'b' is one operand too many" methods a b
ok 'an unknown option is wrong usage' fails 2 "unknown option '--x'" methods --x
finish
