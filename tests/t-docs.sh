#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The man pages, the README, the completion and the program agree.
. "$srcdir/tests/tap.sh"

man=$(dirname "$ATTNREPLAY")/man
commands=$("$ATTNREPLAY" --help | sed -n '/^commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p')

help_options() { # help_options COMMAND
	"$ATTNREPLAY" "$1" --help | sed -n 's/^  \(-., \|    \)--\([a-z0-9-]*\).*/\2/p' | sort -u
}

# Every command has --help, so a page may name it.
page_options() { # page_options PAGE
	grep -o 'Fl Fl [a-z0-9-]*' "$1" | sed 's/Fl Fl //' | grep -vx help | sort -u
}

# Print "COMMAND OPTION" for each option in the command lines of a file; lines that end in a
# backslash, in roff \e, go on.
used_options() { # used_options FILE
	awk '
		function scan(s,   w, n, i, c) {
			gsub(/\\-/, "-", s)
			gsub(/[`|;&()<>]/, " | ", s)
			n = split(s, w, /[ \t]+/)
			for (i = 1; i <= n; i++) {
				if (w[i] ~ /(^|\/)attnreplay$/) c = "attnreplay"
				else if (w[i] == "|") c = ""
				else if (c == "attnreplay" && w[i] !~ /^-/) c = w[i]
				else if (c != "" && w[i] ~ /^--[a-z]/) print c, w[i]
			}
		}
		{ line = line $0 }
		/\\e?$/ { sub(/\\e?$/, " ", line); next }
		{ scan(line); line = "" }' "$1" |
		sed -n 's/^\([a-z-]*\) --\([a-z0-9-]*\).*/\1 \2/p' | sort -u
}

policies=$("$ATTNREPLAY" run --trace x --policy none 2>&1 | sed -n 's/.*want one of //p' | tr -d ,)
for p in $policies; do
	ok "policy $p is in the man page" grep -q "^\.It $p\$" "$man/attnreplay-run.1"
done

presets=0
for m in "$srcdir"/model/presets/*.json; do
	m=$(basename "$m" .json) presets=$((presets + 1))
	ok "preset $m is in the man page" grep -Eq "^\.Cm $m( [,.])?$" "$man/attnreplay.1"
	ok "... and in the README" grep -q "^| .--model. .*\`$m\`" "$srcdir/README.md"
done
ok 'there are presets' test $presets -gt 1

# completions SHELL WORD...: what completing the last word of a command line offers.
completions() {
	shell=$1
	shift
	export "$no_leak_check"
	case $shell in
	bash)
		bash -c '. "$srcdir/contrib/attnreplay.bash"
			COMP_WORDS=("$ATTNREPLAY" "$@") COMP_CWORD=$#
			_attnreplay
			printf "%s\n" "${COMPREPLY[@]}"' bash "$@"
		;;
	# The functions of the completion system are there only while a line is edited.
	zsh)
		zsh -fc 'compadd() { print -rl -- ${(M)@[2,-1]:#$words[CURRENT]*} }
			compset() { words[CURRENT]=${words[CURRENT]#*=} }
			_files() { : }
			words=("$ATTNREPLAY" "$@") CURRENT=$#words
			. "$srcdir/contrib/attnreplay.zsh"' zsh "$@"
		;;
	fish)
		fish --no-config -c 'source $srcdir/contrib/attnreplay.fish
			function attnreplay; $ATTNREPLAY $argv; end
			complete -C "attnreplay $argv"' "$*" | sed 's/\t.*//'
		;;
	esac
}
for shell in bash zsh fish; do
	if ! command -v $shell >/dev/null; then
		skip "$shell completes values, actions and commands" "no $shell"
		continue
	fi
	offers() { # offers DESCRIPTION WANT WORD...
		what=$1 want=$2
		shift 2
		is "$shell $what" "$(completions $shell "$@" | sort)" "$(printf '%s\n' $want | sort)"
	}
	case $shell in
	bash) equals='--clock = m' offered=measured ;;
	zsh) equals=--clock=m offered=measured ;;
	fish) equals=--clock=m offered=--clock=measured ;;
	esac
	ok "$shell finds no error in its completion" $shell -n "$srcdir/contrib/attnreplay.$shell"
	offers 'completes the values of an option' 'measured formula' run --clock ''
	offers '... a long list of them' "$policies" run --policy ''
	offers '... after an equals sign' "$offered" run $equals
	offers '... of an option in the middle of a line' 'open' run --clock measured --loop op
	offers 'completes the actions of a command' 'info convert head synth' trace ''
	offers 'completes commands' report rep
	offers '... for help' "$commands" help ''
	offers '... which has no options' '' help --x
done

echo 'attnreplay help
attnreplay version' >"$tmp/known"
for c in $commands; do
	(echo help; help_options "$c") | sed "s/^/$c /"
done >>"$tmp/known"
sort -u -o "$tmp/known" "$tmp/known"
only_known() { # only_known FILE: every option that it uses exists
	used_options "$1" | comm -23 - "$tmp/known" >"$tmp/unknown"
	sed 's/^/unknown: /' "$tmp/unknown"
	[ ! -s "$tmp/unknown" ]
}

for c in $commands; do
	page=$man/attnreplay-$c.1
	ok "$c has a man page" test -s "$page"
	is "the page of $c has the options of its --help" "$(page_options "$page")" \
	   "$(help_options "$c")"
	for shell in bash zsh fish; do
		if command -v $shell >/dev/null; then
			is "completion of $shell offers the options of $c" \
			   "$(completions $shell "$c" -- | sort)" \
			   "$( (echo help; help_options "$c") | sed 's/^/--/' | sort)"
		else
			skip "completion of $shell offers the options of $c" "no $shell"
		fi
	done
done

for page in "$man"/*.[15]; do
	name=${page##*/}
	ok "the command lines in $name use options that exist" only_known "$page"
	ok "$name carries a version" grep -q '^\.Os attnreplay [0-9]' "$page"
	is "configure and make left no name to fill in $name" "$(grep -o '@[A-Z_]*@' "$page")" ''
	[ "$name" = attnreplay.1 ] ||
		ok "attnreplay.1 refers to $name" \
		grep -q "Xr ${name%.?} ${name##*.}" "$man/attnreplay.1"
	# A clock that is behind makes the date of the page lie in the future.
	if command -v mandoc >/dev/null; then
		is "mandoc finds nothing wrong in $name" \
		   "$(mandoc -T lint -W warning "$page" | grep -v 'date in the future')" ''
	else
		skip "mandoc finds nothing wrong in $name" 'no mandoc'
	fi
	# man(1) uses groff on most systems of GNU.
	if command -v groff >/dev/null && [ -n "$(groff -mdoc -Tutf8 "$page" 2>/dev/null)" ]; then
		is "groff finds nothing wrong in $name" \
		   "$(groff -mdoc -Tutf8 -ww "$page" 2>&1 >/dev/null)" ''
	else
		skip "groff finds nothing wrong in $name" 'no groff'
	fi
done

# The README lists every method, policy and format of the program.
listed() { # listed OPTION NAME...: in the row of the option
	option=$1
	shift
	[ $# -gt 0 ] || return 1
	grep "^| .$option. |" "$srcdir/README.md" >"$tmp/listed" || return 1
	for name; do
		grep -qF "\`$name\`" "$tmp/listed" && continue
		echo "add $name to the row of $option in README.md"
		return 1
	done
}
methods=$("$ATTNREPLAY" methods | sed -n '/^methods,/,/^$/s/^  \([a-z][a-z0-9-]*\) .*/\1/p')
formats=$("$ATTNREPLAY" trace info --format none \
	"$srcdir/traces/samples/azure-2023-code-200.csv" 2>&1 | sed 's/.*want one of //; s/,//g')
ok 'the README lists every method' listed --method $methods
ok '... every policy' listed --policy $policies
ok '... and every format of traces' listed --format $formats

# The glossary lists the phases, in their order.
"$ATTNREPLAY" -q run --backend cost --trace "$srcdir/traces/samples/azure-2023-code-200.csv" \
	--requests 1 --db "$tmp/phases.db" >/dev/null
phases() { # phases WHERE: their names
	"$ATTNREPLAY" sql --format csv "$tmp/phases.db" \
		"SELECT group_concat(name, ', ') FROM (SELECT name FROM phase WHERE $1 ORDER BY phase_id)" |
		tail -n 1 | tr -d '"'
}
glossary() { # glossary TERM BEFORE NAMES
	tr '\n' ' ' <"$srcdir/man/attnreplay.1.in" | grep -F ".It $1 $2 $3. .It" && return
	echo "man/attnreplay.1.in lacks: .It $1 $2 $3."
	return 1
}
ok 'the glossary has the phases' glossary phase 'The purpose of a kernel:' "$(phases 1)"
ok '... and those of the attention core' glossary 'attention core' 'The phases' "$(phases core)"

ok 'README.md shows command lines' test -n "$(used_options "$srcdir/README.md")"
ok 'the command lines in README.md use options that exist' only_known "$srcdir/README.md"
finish
