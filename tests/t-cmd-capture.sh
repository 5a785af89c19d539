#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay capture on the sample.
. "$srcdir/tests/tap.sh"

sample=$srcdir/traces/samples/niah-2k.arc
capture() { "$ATTNREPLAY" capture "$@"; }
size()    { wc -c <"$1" | tr -d ' '; }
help_ok() { capture --help | grep -q -e '--frame-tokens N'; }
no_options_elsewhere() { fails 2 'takes no options' "$ATTNREPLAY" capture "$1" \
	--level 3 "$sample" $2; }
interrupted_file_gone() { [ "$(ls "$tmp" | grep -c tmp)" = 0 ]; }

is 'info says what the sample holds' "$(capture info "$sample")" \
'container     arc
model         niah-llama-14m
layer numbers 5
q heads       8
kv heads      2
head dim      128
tokens        2112
prompt        2104
rope          applied, theta 500000
frame tokens  512
checksum      '"$(tail -c 40 "$sample" | head -c 32 | od -An -v -tx1 | tr -d ' \n')"'
tensor bytes  6488064
file bytes    '"$(size "$sample")"
is 'verify reads all of it' "$(capture verify "$sample")" \
	'niah-2k.arc: 3 tensors of 2112 tokens are sound'

ok 'the sample unpacks' capture unpack "$sample" "$tmp/a.safetensors"
is 'to a header and its tensors' "$(($(size "$tmp/a.safetensors") - 6488064 < 1000))" 1
ok 'and packs again' capture pack --level 19 --frame-tokens=512 "$tmp/a.safetensors" "$tmp/b.arc"
ok 'to the same tensors' sh -c \
	'"$ATTNREPLAY" capture unpack "$1/b.arc" "$1/b.safetensors" && cmp "$1/a.safetensors" "$1/b.safetensors"' \
	- "$tmp"
ok 'other frames hold the same' sh -c \
	'"$ATTNREPLAY" capture pack --level 1 --frame-tokens 100 "$1/b.arc" "$1/c.arc" &&
	 "$ATTNREPLAY" capture unpack "$1/c.arc" "$1/c.safetensors" &&
	 cmp "$1/a.safetensors" "$1/c.safetensors"' - "$tmp"
ok 'a part of it is packed' capture pack --layers 5 --tokens 1k "$sample" "$tmp/d.arc"
is 'and says so' \
	"$(capture info "$tmp/d.arc" | grep -E '^(tokens|prompt|layer|frame)' | tr -s ' ' |
	tr '\n' ' ')" \
	'layer numbers 5 tokens 1000 prompt 1000 frame tokens 1024 '

ok 'a short one unpacks' sh -c '"$ATTNREPLAY" capture pack --tokens 4 "$1" "$2/e.arc" &&
	"$ATTNREPLAY" capture unpack "$2/e.arc" "$2/e.safetensors"' - "$sample" "$tmp"
# The file begins with the length of its header in 8 bytes; below 65536 two of them count.
length=$(head -c 8 "$tmp/e.safetensors" | od -An -v -tu8 | tr -d ' ')
tail -c +9 "$tmp/e.safetensors" | head -c "$length" |
	sed 's/"rope_theta"/"rope_scaling":"{\\"type\\":\\"linear\\",\\"factor\\":4,'\
'\\"partial_rotary_factor\\":0.25}",&/' >"$tmp/header"
bytes=$(size "$tmp/header")
{
	printf "\\$(printf %o $((bytes % 256)))\\$(printf %o $((bytes / 256)))\\0\\0\\0\\0\\0\\0"
	cat "$tmp/header"
	tail -c +$((9 + length)) "$tmp/e.safetensors"
} >"$tmp/f.safetensors"
is 'info names a scaled RoPE of a part of the head' \
	"$(capture info "$tmp/f.safetensors" | grep '^rope')" \
	'rope          applied, theta 500000, linear factor 4, on 0.25 of a head'
ok 'in JSON, too' sh -c '"$ATTNREPLAY" capture info --json - "$1" | grep -q "$2"' - \
	"$tmp/f.safetensors" \
	'"rope_scaling": *{"rope_type": *"linear", *"factor": *4, *"partial_rotary_factor": *0.25}'

head -c 100000 "$sample" >"$tmp/cut.arc"
ok 'a truncated file is bad data' \
	fails 3 'cut.arc: truncated' "$ATTNREPLAY" capture verify "$tmp/cut.arc"
cp "$sample" "$tmp/bad.arc"
chmod u+w "$tmp/bad.arc"
printf X | dd of="$tmp/bad.arc" bs=1 seek=3000000 conv=notrunc 2>/dev/null
ok 'a damaged frame is bad data and named' \
	fails 3 'bad.arc: layer 5 k, tokens 0 to 511: damaged frame' "$ATTNREPLAY" \
	capture verify "$tmp/bad.arc"
ok 'its index is whole, so info still works' capture info "$tmp/bad.arc"
ok 'it does not unpack' \
	fails 3 'damaged frame' "$ATTNREPLAY" capture unpack "$tmp/bad.arc" "$tmp/bad.st"
ok 'and leaves no file' test ! -e "$tmp/bad.st"
ok 'nor a temporary one' interrupted_file_gone
ok 'text is no capture' \
	fails 3 'neither an .arc file nor safetensors' "$ATTNREPLAY" capture info "$0"
ok 'a missing file is bad data' fails 3 'No such file' "$ATTNREPLAY" capture info "$tmp/none"

ok '--help lists the options' help_ok
make() { fails "$1" "$2" "$ATTNREPLAY" capture make "$3" "$4" "$5" "$6" "$7" "$8"; }
echo '[1,2]' >"$tmp/prompt"
ok 'make needs weights' make 2 'capture make needs --weights' --prompt "$tmp/prompt" -o "$tmp/m" -q -q
ok 'and a prompt' make 2 'capture make needs --prompt' --weights "$tmp" -o "$tmp/m" -q -q
ok 'and a file to write' make 2 'capture make needs --output' --weights "$tmp" \
	--prompt "$tmp/prompt" -q -q
ok 'make takes no file' fails 2 'capture make takes 0 files, not 1' "$ATTNREPLAY" capture make x
ok 'a preset has no weights' make 3 'niah-llama-14m/model.safetensors: No such file' \
	--weights niah-llama-14m --prompt "$tmp/prompt" -o "$tmp/m"
ok 'and leaves no file' test ! -e "$tmp/m"
ok 'pack takes no weights' fails 2 'capture pack takes no options of make' "$ATTNREPLAY" capture \
	pack --weights "$tmp" "$sample" "$tmp/m"
ok 'no action is wrong usage' fails 2 'no action given; want info, make' "$ATTNREPLAY" capture
ok 'an unknown action is named' fails 2 "unknown action 'look'" "$ATTNREPLAY" capture look "$sample"
ok 'a missing operand' \
	fails 2 'capture pack takes 2 files, not 1' "$ATTNREPLAY" capture pack "$sample"
ok 'one too many' fails 2 'capture info takes 1 file, not 2' "$ATTNREPLAY" capture info "$sample" x
ok 'options are for pack: info' no_options_elsewhere info
ok 'options are for pack: unpack' no_options_elsewhere unpack x
ok 'options are for pack: verify' no_options_elsewhere verify
for l in 5, ,5 5-4 5,5 4-5,5 x 5-x 4095 -; do
	ok "layers '$l' are wrong usage" \
		fails 2 "layers '$l': want ascending" "$ATTNREPLAY" capture pack --layers="$l" \
		"$sample" "$tmp/x"
done
ok 'a layer that is not there' \
	fails 2 'has no layer 4' "$ATTNREPLAY" capture pack --layers 4-6 "$sample" "$tmp/x"
ok 'too many tokens' \
	fails 2 'has 2112 tokens' "$ATTNREPLAY" capture pack --tokens 2113 "$sample" "$tmp/x"
ok 'a level zstd lacks' fails 2 'level' "$ATTNREPLAY" capture pack --level 23 "$sample" "$tmp/x"
ok 'an output folder that is not there' \
	fails 1 'cannot create' "$ATTNREPLAY" capture pack "$sample" "$tmp/none/x"
finish
