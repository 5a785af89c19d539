#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# usage: contrib/rank_ends.sh BUILD [TRIES [KIND ...]]
#
# How runs of four ranks end when one of their processes is killed or hangs.  Each kind of end has
# TRIES moments (50 unless given), five side by side.  BUILD is a build folder with
# tests/fake_nccl.so: ranks run on the host, with modelled times.  The line of a kind says of how
# many tries these are true:
#
#   ended     no process is left within the limit; median and longest time to the end of the last
#   line      standard error has at most one line
#   whole     the database opens, and its check says ok
#   kept      it has all iterations that it had when the end began
#   status    what it says of the run
#
# The kinds, with their limits:
#
#   prefill, decode   a rank is killed while all rows are of prompts, or are decodes: 5 s
#   first             rank 0 is killed, which writes the database: 5 s
#   stop              a rank gets SIGSTOP: 15 s, of which 2 s are --comm-timeout
#   hang              a rank does not return from a call of NCCL: 15 s, with the same timeout
#   term, parent      the command gets SIGTERM, or is killed: 1 s and 5 s
#   late              a rank needs 2 ms longer in each call, as in all kinds; nothing else happens:
#                     the run is done in 60 s
set -eu
. "$(dirname "$0")/common.sh"
[ $# -ge 1 ] || wrong_usage
ATTNREPLAY=$(cd "$1" && pwd)/attnreplay
ATTNREPLAY_NCCL=$(cd "$1" && pwd)/tests/fake_nccl.so
export ATTNREPLAY ATTNREPLAY_NCCL
[ -f "$ATTNREPLAY_NCCL" ] || { echo "$1: no tests/fake_nccl.so; make it there" >&2; exit 1; }
tries=${2:-50}
shift $(($# > 1 ? 2 : 1))
[ $# -gt 0 ] || set -- prefill decode first stop hang term parent late
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT

rows() { # rows REQUESTS PROMPT OUTPUT: a trace of requests that are all there at once
	awk -v n="$1" -v line="2023-11-16 18:00:00.0,$2,$3" 'BEGIN {
		print "TIMESTAMP,ContextTokens,GeneratedTokens"; while (n--) print line }'
}
rows 1000 8000 1 >"$tmp/prefill.csv"
rows 4 16 800 >"$tmp/decode.csv"
now() { echo $(($(date +%s%N) / 1000000)); }
query() { attnreplay sql --format csv "$db" "$1" 2>/dev/null | tail -n +2; }
stored() { query 'SELECT count(*) FROM iteration'; }
begun() { [ -s "$db" ] && [ "$(stored)" != 0 ] && [ "$(stored)" ]; }
alive() { # of these processes some run, or may run on
	for p in "$@"; do grep -q '^[^)]*) [^XZ]' "/proc/$p/stat" 2>/dev/null && return; done
	return 1
}
objects() { find /dev/shm -name 'fake-nccl*' | wc -l; }
limit() { # in milliseconds
	case $1 in
	term) echo 1000 ;;
	stop | hang) echo 15000 ;;
	late) echo 60000 ;;
	*) echo 5000 ;;
	esac
}

go() { # go TRACE
	exec "$ATTNREPLAY" -q run --trace "$tmp/$1.csv" --host none --backend roofline --gpu h100 \
		--model llama-3.1-8b --tp 4 --ranks local --comm-timeout 2s --intervals off \
		--db "$db" >/dev/null 2>"$db.err"
}
hit() { # hit KIND COMMAND RANK...
	kind=$1 command=$2 first=$3
	shift 3
	shift $((i % 3))
	case $kind in
	prefill | decode) kill -KILL "$1" ;;
	stop) kill -STOP "$1" ;;
	first) kill -KILL "$first" ;;
	term) kill -TERM "$command" ;;
	parent) kill -KILL "$command" ;;
	esac
}
# Write a line: whether all have ended in time, milliseconds, whether there is one line at most,
# whether the file is whole, whether iterations are kept, status.
try() { # try KIND TRACE
	db=$tmp/$1-$i.db
	[ "$1" != hang ] || export FAKE_NCCL_HANG=$((i % 4)):$((100 + 10 * i))
	FAKE_NCCL_SLOW=1:2000 go "$2" &
	command=$!
	until begun; do sleep 0.02; done
	ranks=$(cat "/proc/$command/task/$command/children")
	sleep "$(awk -v i="$i" -v n="$tries" 'BEGIN { print 0.5 * i / n }')"
	had=$(stored)
	begin=$(now)
	# shellcheck disable=SC2086
	hit "$1" "$command" $ranks
	status=0
	wait "$command" 2>/dev/null || status=$?
	# shellcheck disable=SC2086
	while alive $ranks && [ $(($(now) - begin)) -lt 70000 ]; do sleep 0.01; done
	ms=$(($(now) - begin))
	in_time=$((ms <= $(limit "$1") && (status != 0 || $([ "$1" = late ] && echo 1 || echo 0))))
	echo "$in_time $ms $(($(wc -l <"$db.err") < 2))" \
		"$([ "$(query 'PRAGMA integrity_check')" = ok ] && echo 1 || echo 0)" \
		"$(($(stored) >= had))" "$(query 'SELECT status FROM run')" >"$db.says"
}
before=$(objects)
printf '%-8s %5s %9s %10s %9s %5s %6s %5s  %s\n' end tries ended median longest line whole kept \
	status
for kind in "$@"; do
	trace=decode
	[ "$kind" != prefill ] || trace=prefill
	i=0
	while [ $i -lt "$tries" ]; do
		try "$kind" $trace &
		i=$((i + 1))
		[ $((i % 5)) != 0 ] || wait
	done
	wait
	cat "$tmp/$kind"-*.says | sort -n -k 2 | awk -v kind="$kind" '
		{ ended += $1; ms[NR] = $2; line += $3; whole += $4; kept += $5; n[$6]++ }
		END {
			for (s in n) says = says (says ? ", " : "") n[s] " " s
			printf "%-8s %5d %9d %7d ms %6d ms %5d %6d %5d  %s\n", kind, NR, ended,
				ms[int((NR + 1) / 2)], ms[NR], line, whole, kept, says
		}'
done
echo "objects of shared memory: $before before, $(objects) after"
