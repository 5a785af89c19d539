#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# The edges of every number that an option takes: what is no number, or beyond the range that --help
# states, is refused by a message that names the option.  The options are those of --help, so a new
# one is tested without a change here.
. "$srcdir/tests/tap.sh"
cd "$tmp" || exit 99

# numbers COMMAND: "OPTION LEAST MOST" of its options that take a number or a time, - for no end
numbers() {
	"$ATTNREPLAY" "$1" --help | awk '
	/^ +(-., )?--[a-z]/ { flush() ; text = "" }
	{ text = text " " $0 }
	function flush(   a, i, word) {
		gsub(/ +/, " ", text)
		split(text, word, " ")
		i = word[1] ~ /^--/ ? 1 : 2
		if (word[i + 1] !~ /^(N|X|K|J|H|ID|TIME|SHARE|SIZE)([|].*)?$/) return
		a[1] = a[2] = "-"
		if (match(text, /\[at least [^];]*/)) a[1] = substr(text, RSTART + 10, RLENGTH - 10)
		else if (match(text, /\[[^]; ]+ to [^];]+/)) {
			split(substr(text, RSTART + 1, RLENGTH - 1), a, " to ")
		}
		print substr(word[i], 3), a[1], a[2]
	}
	END { flush() }'
}

# refused OPTION VALUE COMMAND...: wrong usage whose message names the option, or why it has no effect
refused() {
	option=$1 value=$2
	shift 2
	"$@" "--$option=$value" >.out 2>.err
	status=$?
	[ $status = 2 ] && grep -q "^attnreplay: .*$option" .err && return
	echo "$option=$value: status $status, $(head -n 1 .err)" >>faults
}

# One parser reads all numbers.  So with sanitizers each option takes its turn at every fourth of the 15
# values, in the end at all of them.
turn=0 step=$(sparse 4)

# Each with the action, if it needs one, for which its options are read.
edges() { # COMMAND...
	: >faults
	options=0
	while read -r option least most; do
		grep -qx "$option" tested && continue
		[ "$1" = run ] && echo "$option" >>of_run
		for value in nan -nan inf -inf 1x '' ' ' ' 1' '1 ' 0x 1e400 -1e400 1e 1_0 1,0 ; do
			turn=$((turn + 1))
			[ $((turn % step)) = 0 ] || continue
			refused "$option" "$value" "$ATTNREPLAY" "$@"
		done
		case $least in -* | '') ;; *) refused "$option" -1 "$ATTNREPLAY" "$@" ;; esac
		case $most in -) ;; *) refused "$option" 18446744073709551616 "$ATTNREPLAY" "$@" ;; esac
		options=$((options + 1))
	done <"$1.options"
	is "$*: bad numbers for $options options are refused by name" "$(cat faults)" ''
	ok '... of which there are some' [ $options -gt 0 ]
}

trace=$ATTNREPLAY_DATA/traces/samples/azure-2023-code-200.csv
printf '%s\n' "trace = $trace" 'backend = cost' 'requests = 1' >one.sweep
: >tested
: >of_run
for c in run tune select capture calibrate search sweep bench report methods; do
	numbers $c >$c.options
done
numbers trace | grep -E '^(count|lines) ' >trace.options
edges run --trace "$trace" --backend cost --requests 1
cp of_run tested
edges trace info "$trace"
edges tune
edges select
edges capture make
edges calibrate host
edges search rate
edges sweep one.sweep --out out
edges bench attention
edges report none.db
edges methods

# A number behind a database names a run.  What is none belongs to the file's name.
"$ATTNREPLAY" run --trace "$trace" --backend cost --requests 1 --db a.db >/dev/null 2>&1
operands() { # operands STATUS MESSAGE RUN...: each way to name a run, which writes nothing
	want=$1 message=$2
	shift 2
	for run; do
		for c in 'merge -o out.db' 'merge out.db' report 'report --perfetto out.json' 'report --nsys out.db' \
			'report --html out.html' 'diff a.db:1'; do
			case $want,$c in 2,merge*) continue ;; esac
			"$ATTNREPLAY" $c "a.db:$run" >.out 2>.err
			status=$?
			[ $status = "$want" ] && grep -q "^attnreplay: .*$message" .err && ! ls out.* >/dev/null 2>&1 ||
				echo "$c a.db:$run: status $status, $(head -n 1 .err)"
		done
	done
}
is 'numbers of runs that there are not are refused' \
	"$(operands 2 'no run' 4294967297 9223372036854775807)" ''
is '... and what is no number' "$(operands 3 'a.db:.*: No such file' 0 00 -1 nan 1e3 '' \
	9223372036854775808 18446744073709551616)" ''
finish
