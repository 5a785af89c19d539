#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Names and contents of files that hold terminal escapes, control characters or bytes that are no
# UTF-8: the terminal gets none of them, and XML, JSON and CSV stay well-formed.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

sample=$ATTNREPLAY_DATA/traces/samples/niah-2k.arc
esc=$(printf '\033') c1=$(printf '\302\233') bad=$(printf '\377')
odd="a${esc}]0;x]]><b&'\"${c1}2J$bad"
shown="a\\x1b]0;x]]><b&'\"\\xc2\\x9b2J\\xff"
ar() { "$ATTNREPLAY" "$@"; }

# clean COMMAND...: standard output and error together hold no control character and only UTF-8
clean() {
	"$@" >out 2>&1
	LC_ALL=C sed -n l out | head -20
	! LC_ALL=C tr -d '\n' <out | LC_ALL=C grep -q "$(printf '[\001-\037\177]')" &&
		! LC_ALL=C grep -q "$(printf '\302[\200-\237]')" out && iconv -f UTF-8 -t UTF-8 out >utf8
}
shows() { # TEXT COMMAND...
	text=$1
	shift
	clean "$@" && grep -qF -e "$text" out
}

# ---- captures ----

header='{"__metadata__":{"rope_applied":"true","model":"m\u001b[31mred\u009bx\u007f"},
"layers.5.q":{"dtype":"BF16","shape":[8,16,128],"data_offsets":[0,32768]},
"layers.5.k":{"dtype":"BF16","shape":[2,16,128],"data_offsets":[32768,40960]},
"layers.5.v":{"dtype":"BF16","shape":[2,16,128],"data_offsets":[40960,49152]}}'
safetensors "$header" 49152 >red.safetensors
ok 'capture info shows the model of a file' shows 'model         m\x1b[31mred\xc2\x9bx\x7f' \
	ar capture info red.safetensors
cp "$sample" "$odd.arc"
ok 'capture verify shows the name of a file' shows "$shown.arc: 3 tensors" \
	ar capture verify "$odd.arc"
ok 'an error shows the name of a file' shows "attnreplay: $shown: No such file" \
	ar capture info "$odd"
ok 'a wrong option is shown' shows "unknown option '--$shown'" ar capture "--$odd"
ok '... and a wrong command' shows "unknown command '$shown'" ar "$odd"
ok 'a message is one line' shows 'a\x0ab' ar "a
b"

# ---- traces and runs ----

cat >types.jsonl <<'E'
{"chat_id": 1, "parent_chat_id": -1, "turn": 1, "timestamp": 0, "input_length": 20, "output_length": 2, "hash_ids": [1, 2], "type": "t\u001b[2Jx\u009b"}
E
cp types.jsonl "$odd.jsonl"
ok 'trace info shows the type of a request' shows '1 of t\x1b[2Jx\xc2\x9b' ar trace info types.jsonl
ok '... and the name of a file' shows "$shown.jsonl" ar trace info "$odd.jsonl"
ok 'run shows the names of its files' shows "$shown.jsonl" \
	ar run --trace "$odd.jsonl" --model niah-llama-14m --backend cpu --capture "$odd.arc" \
	--sample-layers 1 --accuracy 0 --db r.db
ok '... of captures, too' grep -qF "$shown.arc" out
ar run --backend cost --trace "$odd.jsonl" --db "$odd.db" --json run.json >out
ar trace info --json trace.json "$odd.jsonl" >out
ar capture info --json capture.json "$odd.arc" >out
for f in run trace capture; do
	ok "JSON of $f is UTF-8" iconv -f UTF-8 -t UTF-8 $f.json -o utf8
	ok '... escapes control characters' grep -qF '\u009b2J' $f.json
	if command -v python3 >/dev/null; then
		ok '... and holds the name' python3 -c 'import json, sys
d = json.load(open(sys.argv[1], encoding="utf-8"))
name = d["runs"][0]["trace"] if "runs" in d else d["file"]
assert name.startswith("a\x1b]0;x]]><b&\x27\"\x9b2J\ufffd."), ascii(name)' $f.json
	else
		skip '... and holds the name' 'no python3'
	fi
done
ok 'report shows names of a database' shows "$shown" ar report r.db

# ---- sql ----

ok 'a column name of sql is shown' shows 'x\x1b[1m' ar sql r.db "SELECT 1 AS \"x$esc[1m\""
ok '... and a cell, with C1 control characters' shows 'a\x1bb\xc2\x9bc\x0ad\xff' \
	ar sql r.db "SELECT 'a' || char(27) || 'b' || char(155) || 'c' || char(10) || 'd' ||
	CAST(x'ff' AS TEXT)"
ok 'an SQL error is shown' shows '\x1b' ar sql r.db "SELECT $esc"
json_cell() { clean ar sql --format json r.db "SELECT char(155, 127, 27) || '<' ||
	CAST(x'ff' AS TEXT) AS x" && grep -qF '"\u009b\u007f\u001b<'"$(printf '\357\277\275')" out; }
ok 'JSON of sql escapes control characters and is UTF-8' json_cell

# ---- select ----

pick() { ar select --capture "$odd.arc" --context 512 --chunk 256 --method dense "$@"; }
ok 'select shows the name of a capture' shows "$shown.arc, layer 5" pick --picture none
pick --json x.json --svg x.svg --csv x.csv >out
if command -v python3 >/dev/null; then
	ok 'its SVG is XML' python3 -c 'import xml.dom.minidom as x; x.parse("x.svg")'
	ok 'its JSON is UTF-8' python3 -c 'import json
name = json.load(open("x.json", encoding="utf-8"))["selections"][0]["capture"]
assert name == "a\x1b]0;x]]><b&\x27\"\x9b2J\ufffd.arc", ascii(name)'
else
	skip 'its SVG is XML' 'no python'
	skip 'its JSON is UTF-8' 'no python'
fi
ok '... and its SVG' iconv -f UTF-8 -t UTF-8 x.svg -o utf8
ok '... which has no ]]>' sh -c '! grep -qF "]]>" x.svg'
ar bench method --dry-run --capture "$odd.arc" --method dense --json b.json >/dev/null 2>&1
ok 'JSON of bench is UTF-8' iconv -f UTF-8 -t UTF-8 b.json -o utf8
bench_line() { clean ar bench method --dry-run --capture "$odd.arc" --method dense --format json &&
	grep -qF '\u009b2J' out; }
ok '... and escapes control characters' bench_line
ok 'JSON of a trace is UTF-8' sh -c '"$1" trace convert "$2" | iconv -f UTF-8 -t UTF-8 >utf8' \
	- "$ATTNREPLAY" "$odd.jsonl"

# ---- formulas in CSV ----

is 'CSV marks text that a spreadsheet would run' "$(ar sql --format csv r.db "SELECT
	'=1+1' AS \"=x\", '+a', '-a,b' AS b, '@a' AS c, char(9) || '=a' AS d")" \
	"'=x,'+a',b,c,d
'=1+1,'+a,\"'-a,b\",'@a,'$(printf '\t')=a"
is '... but no number and no dash' "$(ar sql --format csv r.db "SELECT -1 AS a, '-1.5' AS b,
	'+2e3' AS c, '-' AS d, -0.5 AS e, 'a=b' AS f" | tail -1)" '-1,-1.5,+2e3,-,-0.5,a=b'
cp "$sample" =x.arc
ar select --capture =x.arc --context 512 --chunk 256 --method dense --csv x.csv >out
is '... and CSV of select does, too' "$(tail -1 x.csv | cut -d, -f1)" "'=x.arc"
finish
