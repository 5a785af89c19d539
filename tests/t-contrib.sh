#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The scripts of contrib/: each prints help without what only its work needs, and finds the program.
. "$srcdir/tests/tap.sh"

python=${PYTHON:-python3}
export PYTHONDONTWRITEBYTECODE=1

# Each package that is no part of Python fails to be imported.
mkdir "$tmp/none"
for package in gguf numpy safetensors tokenizers torch transformers vllm; do
	echo 'raise ImportError("imported for help")' >"$tmp/none/$package.py"
done
helps() { # helps COMMAND...: print what the script is for, and how to call it
	PYTHONPATH=$tmp/none "$@" --help >"$tmp/help" 2>&1 && grep -q '^usage: ' "$tmp/help" &&
		[ "$(wc -l <"$tmp/help")" -gt 3 ] || { cat "$tmp/help"; return 1; }
}
for script in "$srcdir"/contrib/*.sh; do
	[ "$(basename "$script")" = common.sh ] || ok "$(basename "$script") --help" helps sh "$script"
done
if "$python" -c 'import argparse' 2>/dev/null; then
	for script in "$srcdir"/contrib/*.py; do
		grep -q '^if __name__' "$script" || continue	# a part of others
		ok "$(basename "$script") --help" helps "$python" "$script"
	done
fi
is 'without arguments a script says how to call it' \
	"$(sh "$srcdir/contrib/curve.sh" 2>&1; echo $?)" \
	"$(printf 'usage: contrib/curve.sh FOLDER --capture FILE [OPTION]...\n2')"
is 'one that needs a build says so' "$(BUILD=$tmp/none sh "$srcdir/contrib/check_configs.sh" a b 2>&1)" \
	"check_configs.sh: no build in '$tmp/none', which knows the sizes; name its folder as BUILD"

# ---- the table of agents ----

agents() { # agents OPTION...: into $tmp/agents
	sh "$srcdir/contrib/agents.sh" "$tmp/agents" --trace "$srcdir/tests/data/weka-2.jsonl" \
		--prompt-scale 0.02 --output-scale 0.02 --model niah-llama-14m --sample-layers 1 \
		--backend cpu --capture "$ATTNREPLAY_DATA/traces/samples/niah-2k.arc" \
		--accuracy 1 --accuracy-decode 1 --clock formula --cost-fixed 10ms "$@" \
		>"$tmp/table" 2>"$tmp/said" || { cat "$tmp/said"; return 1; }
}
ok 'agents.sh runs its methods' agents
ok '... each has a line with a figure in each column' \
	test "$(grep -cE '^\| [a-z0-9].*( \| [0-9.]+){8} \|$' "$tmp/table")" = 11
is '... sparse prefills and decodes, alone and together' \
	"$(grep -c '^| dense/' "$tmp/table") $(grep -c '^| compact-fp.*/' "$tmp/table")" '5 4'
METHODS=quest ok '... or those that are named, without an evictor' agents
ok '... into the same table' eval 'grep "^| quest |" "$tmp/table" && grep "^| dense |" "$tmp/table"'

# ---- the program: named, unpacked, built, installed, or missing ----

mkdir -p "$tmp/share/contrib" "$tmp/bin"
cp "$srcdir/contrib/program" "$tmp/share/contrib/"
says() { # says FILE WORD: make a program that prints WORD and its arguments
	printf '#!/bin/sh\necho %s "$@"\n' "$2" >"$1" && chmod +x "$1"
}
program() { "$tmp/share/contrib/program" 'a b'; }
ATTNREPLAY=	# tests export it
says "$tmp/bin/attnreplay" installed
is 'a program that is missing is named' "$(program 2>&1; echo $?)" \
	"$(printf '%s\n' 'program: no attnreplay is built or installed; name the program as ATTNREPLAY' 127)"
is 'the installed one is found' "$(PATH=$tmp/bin:$PATH program)" 'installed a b'
mkdir "$tmp/share/build"
says "$tmp/share/build/attnreplay" built
is '... after the one that was built' "$(PATH=$tmp/bin:$PATH program)" 'built a b'
says "$tmp/share/run" run
is '... or unpacked' "$(program)" "run $(cd "$tmp/share" && pwd)/attnreplay a b"
ATTNREPLAY=$tmp/bin/attnreplay
is '... and after the one that is named' "$(program)" 'installed a b'
finish
