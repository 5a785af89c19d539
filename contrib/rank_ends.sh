#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/rank_ends.sh BUILD [TRIES]
#
# How runs of four ranks end when one of their processes is killed or hangs, at TRIES moments each
# (50 unless given).  BUILD is a build folder with tests/fake_nccl.so: ranks run on the host, with
# modelled times.  For each kind of end a line says how many runs ended, with at most one line on
# standard error, the longest time to the end of the last process, and what their databases say:
# status, whether there are iterations, and the check of the file.
#
#   prefill, decode   a rank is killed while all rows are of prompts, or are decodes
#   hang              a rank stops; --comm-timeout is 2 s, and 20 times the longest iteration
#   first             rank 0 is killed, which writes the database
#   term, parent      the command gets SIGTERM, or is killed
#   late              a rank needs 2 ms longer in each iteration, and nothing else happens
set -eu
. "$(dirname "$0")/common.sh"
[ $# = 1 ] || [ $# = 2 ] || wrong_usage
ATTNREPLAY=$(cd "$1" && pwd)/attnreplay
ATTNREPLAY_NCCL=$(cd "$1" && pwd)/tests/fake_nccl.so
export ATTNREPLAY ATTNREPLAY_NCCL
[ -f "$ATTNREPLAY_NCCL" ] || { echo "$1: no tests/fake_nccl.so; make it there" >&2; exit 1; }
tries=${2:-50}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

rows() { # rows REQUESTS PROMPT OUTPUT: a trace of requests that are all there at once
	awk -v n="$1" -v line="2023-11-16 18:00:00.0,$2,$3" 'BEGIN {
		print "TIMESTAMP,ContextTokens,GeneratedTokens"; while (n--) print line }'
}
rows 1000 8000 1 >"$tmp/prefill.csv"
rows 4 16 800 >"$tmp/decode.csv"
now() { date +%s%N; }
begun() { # begun DB: iterations are stored
	[ -s "$1" ] && [ "$(attnreplay sql --format csv "$1" 'SELECT count(*) > 0 FROM iteration' \
		2>/dev/null | tail -n 1)" = 1 ]
}
alive() { for p in "$@"; do kill -0 "$p" 2>/dev/null && return; done; return 1; }

go() { # go TRACE DB
	exec "$ATTNREPLAY" -q run --trace "$tmp/$1.csv" --host none --backend roofline --gpu h100 \
		--model llama-3.1-8b --tp 4 --ranks local --comm-timeout 2s --intervals off --db "$2" \
		>/dev/null 2>"$2.err"
}
hit() { # hit KIND COMMAND RANK...: at try $i
	kind=$1 command=$2
	shift 2
	shift $((1 + i % 3))
	case $kind in
	prefill | decode) kill -KILL "$1" ;;
	hang) kill -STOP "$1" ;;
	first) kill -KILL "$first" ;;
	term) kill -TERM "$command" ;;
	parent) kill -KILL "$command" ;;
	esac
}
try() { # try KIND TRACE: adds to ended, lines, longest
	db=$tmp/$1-$i.db
	FAKE_NCCL_SLOW=1:2000 go "$2" "$db" &
	command=$!
	until begun "$db"; do sleep 0.02; done
	sleep "$(awk -v i="$i" -v n="$tries" 'BEGIN { print 0.5 * i / n }')"
	ranks=$(cat "/proc/$command/task/$command/children")
	first=${ranks%% *}
	begin=$(now)
	# shellcheck disable=SC2086
	[ "$1" = late ] || hit "$1" "$command" $ranks
	status=0
	wait "$command" 2>/dev/null || status=$?
	waits=0
	# shellcheck disable=SC2086
	while alive $ranks && [ $waits -lt 500 ]; do sleep 0.02; waits=$((waits + 1)); done
	ms=$((($(now) - begin) / 1000000))
	[ $ms -le $longest ] || longest=$ms
	[ $waits = 500 ] || { [ "$1" != late ] && [ $status = 0 ]; } || ended=$((ended + 1))
	[ "$(wc -l <"$db.err")" -gt 1 ] || lines=$((lines + 1))
	attnreplay sql --format csv "$db" "SELECT status, (SELECT count(*) > 0 FROM iteration) AS some,
		(SELECT * FROM pragma_integrity_check) AS whole FROM run" 2>&1 | tail -n 1 >>"$tmp/$1.says"
}
shared=$(find /dev/shm -name 'fake-nccl*' | wc -l)
for kind in prefill decode hang first term parent late; do
	trace=decode
	[ $kind != prefill ] || trace=prefill
	ended=0 lines=0 longest=0 i=0
	while [ $i -lt "$tries" ]; do
		try $kind $trace
		i=$((i + 1))
	done
	printf '%-8s ended %d of %d, with one line at most %d, after %d ms at most; database: %s\n' $kind \
		$ended "$tries" $lines $longest "$(sort "$tmp/$kind.says" | uniq -c | tr -s ' \n' ' ')"
done
echo "objects of shared memory: $shared before, $(find /dev/shm -name 'fake-nccl*' | wc -l) after"
