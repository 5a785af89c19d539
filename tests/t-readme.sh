#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The commands of the README and of doc/ work and print what is shown there, and draw its pictures.
. "$srcdir/tests/tap.sh"

if ! [ -f "$srcdir/build-aux/run-doc" ]; then
	echo '1..0 # SKIP no sources here'
	exit 0
fi
mkdir "$tmp/bin"
ln -s "$ATTNREPLAY" "$tmp/bin/attnreplay"
PATH=$tmp/bin:$PATH
run_doc() { # run_doc DOCUMENT: into $tmp/new and $tmp/here
	rm -rf "$tmp/here"
	"$srcdir/build-aux/run-doc" "$1" "$tmp/here" >"$tmp/new" 2>"$tmp/said" && return
	tail -n 15 "$tmp/said"
	return 1
}
unchanged() { # unchanged DOCUMENT
	diff "$1" "$tmp/new" && return
	echo "'make readme' in the build folder writes what commands print now"
	return 1
}
for document in "$srcdir/README.md" "$srcdir"/doc/*.md; do
	name=${document#"$srcdir"/}
	ok "the commands of $name work" run_doc "$document"
	ok '... and print what it shows' unchanged "$document"
	if [ "$name" = README.md ]; then
		ok '... and draw its picture' \
			cmp "$tmp/here/accuracy-density.svg" "$srcdir/doc/accuracy-density.svg"
		ok 'its first command is shown with its output' grep -q '^    TTFT  ' "$tmp/new"
	fi
done
grep '	' "$srcdir/build-aux/run-doc.elsewhere" >"$tmp/elsewhere"
ok 'some commands run elsewhere' test -s "$tmp/elsewhere"
while IFS='	' read -r text why; do
	if cat "$srcdir/README.md" "$srcdir"/doc/*.md | grep '^    ' | grep -qFe "$text"; then
		skip "the commands with '$text'" "$why"
	else
		ok "there is a command with '$text'" false
	fi
done <"$tmp/elsewhere"

# ---- run-doc itself ----

cat >"$tmp/doc.md" <<'END'
# A document

    greeting=hello

Text.

    $ echo $greeting \
        twice; echo; echo end
    old output

    of two parts
    $ true
    more

The end.
END
is 'the output of commands is made anew' "$("$srcdir/build-aux/run-doc" "$tmp/doc.md" "$tmp/1" 2>"$tmp/said")" \
	"$(sed 's/old output/hello twice/; s/of two parts/end/; /more/d' "$tmp/doc.md")"
is 'each command is said, with its time' "$(sed -n 's/^== [0-9.]* s: *//p' "$tmp/said")" \
	"$(printf '%s\n' greeting=hello '$ echo $greeting \' '$ true')"
printf '%s\n' '    echo before' '' text '' '    ls none' >"$tmp/bad.md"
fails_at() {
	"$srcdir/build-aux/run-doc" "$tmp/bad.md" "$tmp/2" 2>"$tmp/said" && return 1
	cat "$tmp/said"
	grep -q '^== did not end: *ls none$' "$tmp/said" &&
		grep -q 'none.*No such file' "$tmp/said" &&
		grep -q "of '$tmp/bad.md' failed with status 2" "$tmp/said"
}
ok 'a command that fails is named' fails_at
is 'arguments are checked' "$("$srcdir/build-aux/run-doc" 2>&1; echo $?)" \
	"$(printf '%s\n' 'usage: build-aux/run-doc DOCUMENT FOLDER' 2)"
finish
