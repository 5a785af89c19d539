# SPDX-License-Identifier: Apache-2.0
# A small TAP producer for shell tests: . "$srcdir/tests/tap.sh"
#
# Each script gets $ATTNREPLAY (the program), $ATTNREPLAY_DATA (the folder of model/presets/ and
# traces/), $srcdir, and from here $tmp, a temporary folder.
n=0 failed=0
tmp=$(mktemp -d) || exit 99
trap 'rm -rf "$tmp"' EXIT
export LC_ALL=C
# Options of 'attnreplay run' for tests of something else than what engines set by default.
plain='--policy vllm-0.16 --engine-defaults none'
export plain
# Programs that get this variable do not look for leaks when they end.  In a build with sanitizers that
# may never end under zsh, or where timeout(1) signals the process and its group.
no_leak_check="ASAN_OPTIONS=${ASAN_OPTIONS:+$ASAN_OPTIONS:}detect_leaks=0"

ok() { # ok DESCRIPTION COMMAND...: pass when the command succeeds
	what=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/.log" 2>&1; then
		echo "ok $n - $what"
	else
		echo "not ok $n - $what"
		sed 's/^/# /' "$tmp/.log" | head -20
		failed=1
	fi
}

skip() { # skip DESCRIPTION REASON
	n=$((n + 1))
	echo "ok $n - $1 # SKIP $2"
}

is() { # is DESCRIPTION GOT WANT
	n=$((n + 1))
	if [ "$2" = "$3" ]; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		printf '%s\n' "got: $2" "want: $3" | sed 's/^/# /'
		failed=1
	fi
}

# silent STATUS COMMAND...: the command exits with STATUS and prints nothing to standard output
silent() {
	want=$1
	shift
	"$@" >"$tmp/.out" 2>"$tmp/.err"
	got=$?
	cat "$tmp/.err"
	[ "$got" = "$want" ] || { echo "exit status $got, want $want"; return 1; }
	[ ! -s "$tmp/.out" ] || { echo "wrote to standard output"; return 1; }
}

# fails STATUS PATTERN COMMAND...: like silent, and one line on standard error matches PATTERN
fails() {
	want=$1 pattern=$2
	shift 2
	silent "$want" "$@" && grep -q -e "$pattern" "$tmp/.err"
}

# says STATUS MESSAGE COMMAND...: like silent, and standard error is "attnreplay: MESSAGE"
says() {
	want=$1 message=$2
	shift 2
	silent "$want" "$@" || return
	[ "$(cat "$tmp/.err")" = "attnreplay: $message" ] || { echo "want: $message"; return 1; }
}

sanitized() { # the program has sanitizers
	grep -q __asan_init "$ATTNREPLAY"
}

# sparse N: the step from one to the next of many cases that one rule decides.  It is 1, or N under
# sanitizers, where the program starts ten times as slowly.  Those find wrong accesses, and the
# other build wrong rules.
sparse() {
	if sanitized; then echo "$1"; else echo 1; fi
}

# as_nobody COMMAND...: without the rights of root, who may write everywhere.  The command must be of a
# folder that all may read.
as_nobody() {
	if [ "$(id -u)" = 0 ]; then
		setpriv --reuid=65534 --regid=65534 --clear-groups "$@"
	else
		"$@"
	fi
}

# catches PID: wait until process PID, the program under test, catches interrupts
catches() {
	for i in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20; do
		for j in 1 2 3 4 5 6 7 8 9 10; do
			awk '$1 == "Name:" { name = $2 } $1 == "SigCgt:" { mask = $2 }
				END { exit name != "attnreplay" || mask !~ /[2367abef]$/ }' \
				"/proc/$1/status" && return
			sleep 0.05
		done
	done
	return 1
}

# $catchable COMMAND...: with signals that the shell or its parent ignores set back to their defaults
catchable='env --default-signal=HUP,INT'

safetensors() { # safetensors HEADER BYTES: a file of this header, shorter than 65536, and zeros
	printf "\\$(printf %o $((${#1} % 256)))\\$(printf %o $((${#1} / 256)))"
	printf '\0\0\0\0\0\0'
	printf %s "$1"
	head -c "$2" /dev/zero
}

finish() { # at the end of each script
	echo "1..$n"
	exit $failed
}
