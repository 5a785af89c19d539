#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The examples of the man pages work as printed, on the sample data.
. "$srcdir/tests/tap.sh"

# Files that the pages assume: the source tree, two databases, a compressed trace, a job file.
mkdir "$tmp/bin" "$tmp/here"
ln -s "$ATTNREPLAY" "$tmp/bin/attnreplay"
PATH=$tmp/bin:$PATH
ln -s "$srcdir/traces" "$srcdir/model" "$tmp/here"
"$(dirname "$ATTNREPLAY")/tests/make-db" "$tmp/here/a.db" ||
	{ echo 'Bail out! no sample database'; exit 1; }
cp "$tmp/here/a.db" "$tmp/here/b.db"
gzip -c "$srcdir/traces/samples/azure-2023-code-200.csv" >"$tmp/here/azure-2024.csv.gz"

# Print the commands of a page's EXAMPLES.  In a block that shows a session, only lines after a
# prompt are commands; the other lines are output.
page_commands() { # page_commands PAGE
	sed -n '/^\.Sh EXAMPLES/,$p' "$1" | awk '
		NR > 1 && /^\.Sh/ { exit }
		/^\.Dl / { sub(/^\.Dl /, ""); print; next }
		/^\.Bd/ { on = 1; session = 0; next }
		/^\.Ed/ { on = 0; next }
		on && /^\$ / { session = 1; sub(/^\$ /, ""); print; next }
		on && !session' | sed 's/\\e$/\\/'
}

session_lines() { # session_lines PAGE: what its sessions print
	awk '/^\$ / { on = 1; next } /^\.Ed/ { on = 0 } on' "$1"
}

works() { # works FILE: its commands succeed, one after the other
	cat "$1"
	(cd "$tmp/here" && sh -e "$1" >"$tmp/out") || return 1
	[ -s "$tmp/out" ]
}

# Examples of these commands need a GPU, weights, captures or runs that are not here.
elsewhere='bench calibrate curve eval import-engine search sweep tune'
if command -v duckdb >/dev/null; then
	without=
else
	without='/^duckdb /d'
	skip 'DuckDB makes Parquet of a table' 'no duckdb'
fi
for page in "$srcdir"/man/*.1.in; do
	name=$(basename "$page" .1.in)
	case " $elsewhere " in *" ${name#attnreplay-} "*) continue ;; esac
	session_lines "$page" >"$tmp/here/job"
	# Commands that need the weights of a model cannot run here.
	page_commands "$page" | sed "/capture_hf\.py\|--weights DIR/,\$d; $without" >"$tmp/$name.sh"
	ok "the examples of $name(1) work" works "$tmp/$name.sh"
done
finish
