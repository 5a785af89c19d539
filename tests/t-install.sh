#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# An installed program finds its data files from any folder.
. "$srcdir/tests/tap.sh"

mkdir -p "$tmp/bin" "$tmp/share"
cp "$ATTNREPLAY" "$tmp/bin/attnreplay"
top=$(cd "$srcdir" && pwd)
ln -s "$top" "$tmp/share/attnreplay"
trace=traces/samples/azure-2023-code-200.csv
capture=traces/samples/niah-2k.arc

installed() { (unset ATTNREPLAY_DATA && cd "$tmp" && bin/attnreplay "$@"); }
replays() {
	installed run --trace $trace --skip-requests 4 --requests 1 --max-output-tokens 2 \
		--backend cpu --model niah-llama-14m --capture $capture --sample-layers 1
}
own_first() { # the current folder comes before the installed one
	mkdir -p "$tmp/traces/samples" && head -3 "$top/$trace" >"$tmp/$trace" &&
	installed trace info $trace | grep -q '^requests  *2$'
}

ok 'a trace is found'               installed trace info $trace
ok 'a capture is found'             installed capture info $capture
ok 'a preset is found, all of it replays' replays
ok 'a missing file has the name that was given' \
	fails 3 'traces/samples/none.csv: No such file' installed trace info traces/samples/none.csv
ok 'a file of the current folder goes first' own_first
finish
