#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A selector from outside of the tree: built with an installed attnreplay, used by every command
# that takes methods, and each fault of one.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

if ! { cc --version && make --version; } >/dev/null 2>&1; then
	skip 'selectors outside of the tree' 'no C compiler or no make'
	finish
fi

# ---- the prefix, and the example ----

top=$(dirname "$ATTNREPLAY")
prefix=$tmp/prefix
installs() {
	env -u MAKEFLAGS -u MAKELEVEL make -C "$top" install-nobase_pkgincludeHEADERS \
		pkgincludedir="$prefix/include/attnreplay" &&
		mkdir -p "$prefix/bin" "$prefix/share" && cp "$ATTNREPLAY" "$prefix/bin" &&
		ln -s "$srcdir" "$prefix/share/attnreplay"
}
builds() {
	cp -R "$srcdir/contrib/selector" . && chmod -R u+w selector &&
		env -u MAKEFLAGS -u MAKELEVEL make -C selector PREFIX="$prefix"
}
alone() { # each header needs no other, in C and in C++
	find "$prefix/include" -name '*.h' | while read -r h; do
		for language in c c++; do
			cc -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include/attnreplay" \
				-x $language "$h" || exit 1
		done
	done
}
attnreplay() { (unset ATTNREPLAY_DATA && "$prefix/bin/attnreplay" "$@"); }

ok 'headers are installed'                     installs
ok '... and each stands alone'                 alone
ok 'the example is built from the prefix alone' builds
so=selector/pagebound.so
page='select=pagebound,density=0.3/exec=blocksparse'
sum=$(sha256sum $so | cut -d' ' -f1)
arc=$srcdir/traces/samples/niah-2k.arc

# ---- the commands ----

printf '%s\n' TIMESTAMP,ContextTokens,GeneratedTokens '2023-11-16 18:00:00,700,2' >t.csv
bare() { attnreplay run --trace t.csv --model niah-llama-14m --sample-layers 1 "$@"; }
run() { bare --backend cpu --capture "$arc" --accuracy 1 "$@"; }
sql() { attnreplay sql --format csv "$@" | tail -n +2; }
key() { # key FILE.so: of a run with it
	rm -f k.db && run --selector "$1" --method "$page" --db k.db >/dev/null &&
		sql k.db 'SELECT run_key FROM run'
}
lists() { attnreplay methods --selector $so pagebound | grep -q '^    density=X '; }
records() { attnreplay methods --selector $so "$page" |
	grep -q "\"selector-file\":\"$so\",\"selector-sha256\":\"$sum\""; }
selects() { attnreplay select --selector $so --capture "$arc" --layer 5 --chunk 256 \
	--method "$page,pagebound,dense" 2>&1 | grep -q 'a selector, not a method'; }
shows() { attnreplay select --selector $so --capture "$arc" --layer 5 --chunk 256 \
	--method "$page" --scores --json s.json >/dev/null && grep -q '"scores"' s.json; }
tunes() { attnreplay tune --selector $so --capture "$arc" --tokens 1024 --target density=0.5 \
	--method select=pagebound/exec=blocksparse --json t.json >/dev/null &&
	grep -q pagebound t.json; }
models() { bare --backend roofline --gpu h200 --capture "$arc" --selector $so --method "$page" \
	--json r.json >/dev/null && grep -q pagebound r.json; }
plans() { bare --backend cpu --capture "$arc" --selector $so --method "0-3:dense;4-:$page"; }

ok 'methods lists it'                          lists
ok '... and a method has its file and checksum' records
ok 'select knows that it is a selector'        selects
ok '... and shows what it keeps'               shows
ok 'tune finds its threshold'                  tunes
ok 'backend roofline has its cost'             models
ok 'a plan of layers takes it'                 plans
ok 'run takes it beside another method' \
	run --selector $so --method "$page,dense" --db a.db
is '... and the record has its checksum' "$(sql a.db "SELECT count(*) FROM method
	WHERE json_extract(params, '\$.selector-sha256') = '$sum'")" 1
ok 'a job file may name it' sh -c "echo 'selector = $so' >job &&
	'$prefix/bin/attnreplay' run --job job --trace t.csv --model niah-llama-14m \
	--sample-layers 1 --backend cpu --capture '$arc' --method '$page' >job.out"

# ---- what tests hold it to ----

for t in selectors select-rules select-agree; do
	ok "t-$t passes with it" "$top/tests/t-$t" "$tmp/$so"
done

# ---- its content is in keys, its name is not ----

cp $so copy.so
cp $so other.so && echo >>other.so
is 'a copy has the same key'  "$(key copy.so)" "$(key $so)"
ok 'another content has not'  test "$(key other.so)" != "$(key $so)"
ok '... and one content is loaded once' \
	attnreplay methods --selector $so --selector copy.so pagebound
ok 'of two contents the second is refused' \
	fails 2 "^attnreplay: other.so: selector 'pagebound' exists" \
	attnreplay methods --selector $so --selector other.so

# ---- faults ----

fault() { # fault NAME: build fault-NAME.so
	cc -shared -fPIC -I"$prefix/include/attnreplay" -DFAULT="$1" -o "fault-$1.so" \
		"$srcdir/tests/plugin_fault.c"
}
for f in NONE VERSION NO_WORK NO_SUPPORT NAME OUTSIDE STATE CRASH; do
	fault $f || exit 99
done
echo 'int x;' >empty.c && cc -shared -fPIC -o empty.so empty.c || exit 99
echo 'int unknown(void); int x(void) { return unknown(); }' >open.c &&
	cc -shared -fPIC -o open.so open.c || exit 99
echo text >text.so
mkfifo pipe.so || exit 99
head -c 5000 $so >cut.so || exit 99
refused() { # refused STATUS FILE MESSAGE: one line
	says "$1" "$2: $3" attnreplay methods --selector "$2"
}
ok 'one without fault is loaded'  attnreplay methods --selector fault-NONE.so fault
ok 'a missing file is refused'    refused 3 none.so 'No such file or directory'
ok 'so is a folder'               refused 3 selector 'not a regular file'
ok '... a pipe, which nothing is read from' refused 3 pipe.so 'not a regular file'
ok '... no shared object'         refused 3 text.so 'cannot be loaded: file too short'
ok '... one that is cut' refused 3 cut.so \
	'cannot be loaded: its end is missing: build or copy it again'
ok '... one that needs more than there is' \
	refused 3 open.so 'cannot be loaded: undefined symbol: unknown'
ok '... one without a selector' \
	refused 3 empty.so 'it does not define selector_plugin, see kernels/select/selector.h'
ok '... one of another version' refused 3 fault-VERSION.so \
	"it is of version 6 of selector.h, and this program has 5: build it again with the headers\
 of this program"
ok '... one that lacks a member' refused 2 fault-NO_WORK.so \
	"selector 'fault': .work: count FLOPs, bytes and launches, see kernels/select/work.h"
ok '... kernels for no GPU' refused 2 fault-NO_SUPPORT.so \
	"selector 'fault': .support: say what its kernels run"
ok '... a name that is taken' refused 2 fault-NAME.so \
	"selector 'quoka' exists already: give it another name"

all='select=fault/exec=blocksparse'
goes_on() { # goes_on FAULT MESSAGE: the method of the fault ends with a line, the others go on
	rm -f g.db
	run --selector "fault-$1.so" --method "dense,$all,$page" --selector $so --db g.db >out 2>err
	[ $? != 0 ] || return
	cat err
	[ "$(wc -l <err)" = 1 ] && grep -q "^attnreplay: .*fault-$1.so: .*$2" err &&
		[ "$(sql g.db "SELECT count(*) FROM run WHERE status = 'done'")" = 2 ]
}
alone_crashes() {
	run --selector fault-CRASH.so --method "$all" --db alone.db >out 2>err
	[ $? = 1 ] && [ "$(wc -l <err)" = 1 ] &&
		grep -q '^attnreplay: fault-CRASH.so: .*by signal 11$' err
}
ok 'one that writes outside of its mask is stopped, the others go on' \
	goes_on OUTSIDE 'wrote outside of its selection'
ok '... or of its state' goes_on STATE 'wrote outside of its state'
if sanitized; then
	skip '... or crashes' 'the sanitizer has its own words'
else
	ok '... or crashes' goes_on CRASH 'ended without a result, by signal 11'
	ok '... alone, too' alone_crashes
fi

# ---- a run whose file is gone ----

run --selector fault-OUTSIDE.so --selector copy.so --method "$page,$all" --db gone.db \
	>/dev/null 2>&1
resume() { attnreplay run --resume gone.db "$@"; }
resumes() { # what is left fails as it did
	resume --selector copy.so --selector fault-OUTSIDE.so 2>err
	grep -q 'wrote outside of its selection' err
}
ok 'a run of a plug-in is resumed'      resumes
mv fault-OUTSIDE.so away.so
ok 'a run whose file is gone is read'   attnreplay report gone.db
ok '... and merged'                     attnreplay merge merged.db gone.db a.db
ok '... but not resumed'  says 3 'fault-OUTSIDE.so: No such file or directory' \
	resume --selector copy.so --selector fault-OUTSIDE.so
ok '... and a database loads no code' \
	fails 2 '^attnreplay: gone.db: run 1: a selector is from a file.*: add --selector f' resume
cp fault-NONE.so fault-OUTSIDE.so
ok '... nor with a file that differs'   fails 3 'an input file changed since run' \
	resume --selector copy.so --selector fault-OUTSIDE.so
finish
