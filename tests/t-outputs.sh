#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Output files: written whole or not at all, through links, into devices and pipes, with the mode of
# the file before.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

trace=$ATTNREPLAY_DATA/traces/samples/azure-2023-code-200.csv
ar() { "$ATTNREPLAY" "$@"; }
arc=small.arc
ar capture pack --tokens 256 "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" $arc || exit 99
"$(dirname "$ATTNREPLAY")/tests/make-db" sample.db || exit 99
cat >made.csv <<'E'
method,density_executed,rel_l2_mean,recall_mean
a:x=1,0.5,0.2,0.6
E
small() { ar select --capture "$arc" --context 128 --chunk 128 --method dense "$@"; }

exporters=$(ar report --help | sed -n 's/^ *--\([a-z]*\) FILE  .*/\1/p')

# write WRITER FILE: each writer of a file
write() {
	case $1 in
	pack) ar capture pack "$arc" "$2" ;;
	unpack) ar capture unpack "$arc" "$2" ;;
	calibrate) ar calibrate xattention --capture "$arc" --tokens 256 -o "$2" ;;
	synth) ar trace synth --count 3 -o "$2" ;;
	json | csv | svg) small "--$1" "$2" ;;
	curve) ar curve --svg "$2" made.csv ;;
	points) ar curve --points "$2" made.csv ;;
	bench) ar bench attention --dry-run --context 4K --json "$2" ;;
	run) ar run --backend cost --trace "$trace" --requests 9 --json "$2" ;;
	info) ar trace info --json "$2" "$trace" ;;
	methods) ar methods --json "$2" ;;
	capture) ar capture info --json "$2" "$arc" ;;
	convert) ar trace convert -o "$2" "$trace" ;;
	make) ar capture make --weights model --prompt prompt -o "$2" ;;
	plan) ar calibrate plan --capture "$arc" --tokens 256 --chunk 128 --method quoka -o "$2" ;;
	search) ar search rate --backend cost --trace "$trace" --requests 9 --slo ttft:p99:1s --json "$2" ;;
	*) ar report --"$1" "$2" sample.db ;;
	esac
}
needs_regular() { # FILE: the writer refused it, as it can be none but a regular file
	cat err
	grep -q "^attnreplay: $1: not a regular file" err
}
# The superuser tests a device of his own: a program with a defect would replace /dev/null.
device() { # WRITER: the device stays one
	null=/dev/null
	if [ -w /dev ]; then
		null=null
		rm -f null
		mknod null c 1 3 || return
	fi
	write "$1" "$null" >out 2>err || needs_regular "$null" || return
	[ -c "$null" ]
}
pipe() { # the reader gets the bytes of a file
	rm -f pipe
	mkfifo pipe || return
	cat pipe >read &
	if ! write "$1" pipe >/dev/null 2>err; then
		kill $! 2>/dev/null
		needs_regular pipe
		return
	fi
	[ -p pipe ] || { kill $!; echo 'no pipe is written'; return 1; }
	wait $!
	cmp read "$1.want"
}
linked() { # a link to a file in another folder stays a link
	rm -rf there link
	mkdir there
	[ "$2" = missing ] || echo before >there/file
	ln -s there/file link
	write "$1" link >/dev/null && [ -L link ] && cmp there/file "$1.want" &&
		[ "$(ls there)" = file ]
}
twice_linked() {
	rm -rf there link
	mkdir there
	ln -s "$tmp/there/one" link
	ln -s two there/one
	write "$1" link >/dev/null && [ -L link ] && [ -L there/one ] && cmp there/two "$1.want"
}
mode() { # MODE: kept
	rm -f moded
	echo before >moded
	chmod "$2" moded
	write "$1" moded >/dev/null && cmp moded "$1.want" && stat -c %a moded &&
		[ "$(stat -c %a moded)" = "$2" ]
}
into_stdout() { # what was there before stays
	echo before >out
	ln -sf /proc/self/fd/1 stdout
	write "$1" stdout >>out && [ "$(head -1 out)" = before ] &&
		tail -c "$(wc -c <"$1.want")" out | cmp - "$1.want"
}
mkdir model
cp "$srcdir/tests/data/corpus/weights/qwen3.json" model/config.json
cp "$srcdir/tests/data/corpus/weights/bf16.safetensors" model/model.safetensors
echo '[0, 1, 2]' >prompt
for w in pack unpack calibrate synth json csv svg curve points bench run info methods capture \
	convert make plan search $exporters; do
	ok "$w writes a file" write $w $w.want
	is '... with the mode of a new one' "$(stat -c %a $w.want)" \
		"$(umask 022; : >new; stat -c %a new)"
	ok '... writes a device' device $w
	ok '... a pipe' pipe $w
	ok '... through a link' linked $w there
	ok '... to a missing file as well' linked $w missing
	ok '... and through two' twice_linked $w
	ok '... keeps a private mode' mode $w 600
	ok '... and a wide one' mode $w 666
	case $w in
	pack | unpack | calibrate | synth | convert | make) ok '... writes to standard output' into_stdout $w ;;
	esac
done
ln -s loop loop
ok 'a link to itself is an error' fails 1 'loop: cannot write: Too many levels' \
	ar capture unpack "$arc" loop

# ---- whole or not at all ----

# The disk is full: the file before stays, and nothing of the new one.
cut() { # WRITER BLOCKS: of 512 bytes
	rm -rf cut
	mkdir cut
	echo before >cut/file
	(ulimit -f "$2" && write "$1" cut/file) >/dev/null 2>err
	status=$?
	cat err
	[ $status = 1 ] && grep -q 'cut/file: cannot write: \(File too large\|disk I/O error\)' err &&
		[ "$(cat cut/file)" = before ] && [ "$(ls cut)" = file ]
}
for w in json svg curve unpack run info methods search $exporters; do
	ok "$w leaves no cut file" cut $w 1
done
ok 'bench leaves no cut file' cut bench 1
# A later method fails: neither do the files of the others appear.
late() {
	echo before >late.json
	rm -f late.csv
	small --method dense,seer:gate=no.safetensors --json late.json --csv late.csv >/dev/null 2>&1
	[ $? = 3 ] && [ "$(cat late.json)" = before ] && [ ! -e late.csv ] && [ ! -e late.json.*tmp ]
}
ok 'select that fails late leaves the files before' late

# ---- two outputs ----

mkdir -p sub
ln -s x.out same
for pair in 'x.out x.out' './x.out x.out' 'sub/../x.out x.out' 'same x.out'; do
	first=${pair% *} second=${pair#* }
	ok "$first and $second are one file" \
		says 2 "$second: given for two outputs; name another file" \
		ar select --capture "$arc" --json "$first" --svg "$second"
done
ok '... which is not there' [ ! -e x.out ]
ok 'other files are not one' small --json sub/x --csv x
finish
