#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: page_png.sh PAGE.html OUT.png HEIGHT PART...
#
# Draw the parts with these names, of a page of 'attnreplay report --html', as a PNG of 1200 pixels by
# HEIGHT.  The contents of the page link to the names; the first screen is 'first'.  It takes Chromium and
# pngquant.  If OUT ends in .html, it is the page with these parts alone.
set -eu
. "$(dirname "$0")/common.sh"
[ $# -gt 3 ] || wrong_usage
page=$1 out=$2 height=$3
shift 3
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
awk -v parts=" $* " '
	/^<header>/ { keep = index(parts, " first ") }
	/^<nav>|^<script>|^<details class="lacking">/ { keep = 0 }
	/^<(h2|details) id="/ { n = $0; gsub(/^<(h2|details) id="|".*/, "", n); keep = index(parts, " " n " ") }
	NR == 1 { keep = 1 }
	keep' "$page" >"$tmp/page.html"
case $out in
*.html)
	cp "$tmp/page.html" "$out"
	exit
	;;
esac
chromium --headless --no-sandbox --hide-scrollbars --user-data-dir="$tmp/profile" \
	--window-size="1200,$height" --screenshot="$tmp/page.png" "file://$tmp/page.html" >"$tmp/log" 2>&1 ||
	{ cat "$tmp/log" >&2; exit 1; }
pngquant --force --output "$out" 192 "$tmp/page.png"
