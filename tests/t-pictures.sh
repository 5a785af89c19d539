#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The pictures of doc/ are those that the program makes today: parts of pages, and curves.
. "$srcdir/tests/tap.sh"

pictures=$srcdir/build-aux/pictures
if ! [ -f "$pictures" ]; then
	echo '1..0 # SKIP no sources here'
	exit 0
fi
mkdir "$tmp/bin"
ln -s "$ATTNREPLAY" "$tmp/bin/attnreplay"
PATH=$tmp/bin:$PATH

ok 'the pages are made' eval '"$pictures" sums >"$tmp/sums"'
sed -n 's/^| \(report-[^ ]*\) .* \([0-9]*\) |$/\1 \2/p' "$srcdir/doc/pictures.md" >"$tmp/drawn"
is 'doc/pictures.md has the checksums that they have now; else build-aux/pictures draw' \
	"$(cat "$tmp/sums")" "$(cat "$tmp/drawn")"
is 'README shows these pictures, and each has a database' \
	"$(sed -n 's/.*(doc\/\(report-.*\)\.png).*/\1/p' "$srcdir/README.md" | sort)" \
	"$(cd "$srcdir/doc" && ls report-*.db.gz | sed 's/\.db\.gz//')"
is '... and no others' "$(cd "$srcdir/doc" && ls report-*.png | sed 's/\.png//')" \
	"$(cut -d ' ' -f 1 "$tmp/drawn" | sort)"
is 'arguments are checked' "$("$pictures" 2>&1; echo $?)" \
	"$(printf '%s\n' 'usage: build-aux/pictures sums|draw' 2)"
for csv in "$srcdir"/doc/accuracy-density*.csv; do
	svg=${csv%.csv}.svg
	ok "doc/$(basename "$svg") is what curve draws now; else draw it with attnreplay curve --svg" \
		eval 'attnreplay curve --svg "$tmp/curve.svg" "$csv" && cmp "$tmp/curve.svg" "$svg"'
done

# A copy of what it reads: another figure is seen, and drawn where there is a browser.
mkdir "$tmp/copy" "$tmp/copy/build-aux" "$tmp/copy/contrib" "$tmp/copy/doc"
cp "$pictures" "$tmp/copy/build-aux/"
cp "$srcdir/contrib/page_png.sh" "$srcdir/contrib/common.sh" "$tmp/copy/contrib/"
cp "$srcdir/doc/report-chunks.db.gz" "$tmp/copy/doc/"
sed '/^| report-[^c]/d; s/[0-9]* |$/1 |/' "$srcdir/doc/pictures.md" >"$tmp/copy/doc/pictures.md"
pictures=$tmp/copy/build-aux/pictures
png_size() { od -An -tx1 -j16 -N8 "$1"; }
if command -v chromium >/dev/null && command -v pngquant >/dev/null; then
	ok 'a picture is drawn' "$pictures" draw
	is '... of the same size' "$(png_size "$tmp/copy/doc/report-chunks.png")" \
		"$(png_size "$srcdir/doc/report-chunks.png")"
	is '... with its checksum' "$(grep -c " $(sed -n 's/report-chunks //p' "$tmp/sums") |$" \
		"$tmp/copy/doc/pictures.md")" 1
else
	for what in 'a picture is drawn' '... of the same size' '... with its checksum'; do
		skip "$what" 'no chromium, or no pngquant'
	done
fi
sed -i 's/chunk/timeline/2' "$tmp/copy/doc/pictures.md"
ok 'another page has another checksum' eval '"$pictures" sums >"$tmp/other" &&
	! grep -qxF "$(cat "$tmp/other")" "$tmp/sums"'
finish
