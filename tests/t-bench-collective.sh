#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay bench collective over a fake NCCL in the memory of the host: its cases, its table, and
# how it ends when a rank fails.
. "$srcdir/tests/tap.sh"

collective() { "$ATTNREPLAY" bench collective "$@"; }

# ---- usage, and cases without a GPU ----

ok 'ranks are needed' fails 2 'needs --tp N, the ranks, from 2 to 64' collective
ok '... and not too many' fails 2 'needs --tp N, the ranks, from 2 to 64' collective --tp 65
for sizes in 1K 1K:x 4K:1K 128:1K 1K:2G 1K:2K:3K; do
	ok "sizes '$sizes' are refused" fails 2 "'$sizes': want the smallest and the largest" \
		collective --tp 2 --sizes $sizes
done
for devices in 0 0,1,2 x; do
	ok "devices '$devices' are not of two ranks" fails 2 \
		"'$devices': want the number of a GPU for each of 2 ranks" collective --tp 2 --devices $devices
done
ok 'NCCL itself does not reach the host' fails 2 'name a library that does in ATTNREPLAY_NCCL' \
	env -u ATTNREPLAY_NCCL "$ATTNREPLAY" bench collective --tp 2 --memory host
no_gpu() { CUDA_VISIBLE_DEVICES='' collective --tp 2; }
ok 'without a GPU nothing is measured' fails 4 . no_gpu
collective --tp 3 --sizes 1K:1536 --dry-run --format json >"$tmp/dry"
is 'sizes grow by a half and a third, and ranks share them' \
	"$(sed 's/.*"what":"\([a-z]*\)","mode":"\([a-z]*\)".*"bytes":\([0-9]*\).*/\1 \2 \3/' "$tmp/dry" |
		tr '\n' ';')" \
	"$(for op in allreduce allgather reducescatter alltoall; do for mode in inline graph; do
		printf '%s 1020;%s 1536;' "$op $mode" "$op $mode"
	done; done)"

# ---- ranks ----

ATTNREPLAY_NCCL=$(dirname "$ATTNREPLAY")/tests/fake_nccl.so
export ATTNREPLAY_NCCL
host() { collective --tp 2 --memory host --sizes 1K:6K --repeat 3 "$@"; }
host --devices 0,0 --out "$tmp/table" --json "$tmp/json" >"$tmp/out"
is 'ranks measure' $? 0
is '... a line for each case' "$(wc -l <"$tmp/out")" 61
is '... of all collectives' "$(awk 'NR > 1 { print $1 }' "$tmp/out" | uniq | tr '\n' ' ')" \
	'allreduce allgather reducescatter alltoall sendrecv '
is '... of which some give all ranks the same' "$(awk 'NR > 1 && $NF == "yes" { print $1 }' "$tmp/out" |
	uniq | tr '\n' ' ')" 'allreduce allgather '
is '... as JSON, too' "$(grep -c '"same_bits":"yes"' "$tmp/json")" 24
is '... whose results differ by case alone' \
	"$(sed -n '/same_bits":"yes"/s/.*"digest":"\([0-9a-f]*\)".*/\1/p' "$tmp/json" | sort -u | wc -l)" 12
is 'the table says what was measured' "$(sed -n '2s/measured .*//p' "$tmp/table")" \
	'# gpu none  ranks 2  nccl 2.28.9  nvls 0  driver none  '
ok '... has the median between its limits' \
	awk 'NR > 4 && !($8 <= $9 && $9 <= $10 && $9 > 0) { exit 1 }' "$tmp/table"
ok '... and collectives of runs are from it' sh -c '"$ATTNREPLAY" run --trace \
	"$srcdir/traces/samples/azure-2023-code-200.csv" --requests 3 --host none --backend roofline \
	--model llama-3.1-8b --tp 2 --comm "$1" | grep -q "of 2 ranks, measured: $1"' sh "$tmp/table"
ok 'other seeds give other inputs' sh -c '"$0" bench collective --tp 2 --memory host --repeat 1 \
	--sizes 1K:1K --seed 2 --format json | grep '"'"'"digest"'"'"' >"$1/seed" &&
	! grep -qFf "$1/seed" "$1/json"' "$ATTNREPLAY" "$tmp"

# ---- failures ----

# breaks NAME=VALUE STATUS PATTERN: it fails so, and leaves no table
breaks() {
	(export "$1"; host --out "$tmp/broken" >"$tmp/out" 2>"$tmp/err")
	is_status $? "$2" && [ ! -e "$tmp/broken" ] && grep -q -e "$3" "$tmp/err"
}
is_status() { [ "$1" = "$2" ] || { cat "$tmp/err"; echo "exit status $1, want $2"; return 1; }; }
ok 'a table that cannot be made is an error' fails 1 '/no/where: cannot create' host --out /no/where
ok '... as is a file of rows' fails 1 '/no/where: cannot create' host --json /no/where
ok 'a rank that dies ends it' breaks FAKE_NCCL_DIE=1:20 1 \
	'rank 1 of 2 (pid [0-9]*) ended by signal 6 in call 19'
ok 'so does an error of NCCL' breaks FAKE_NCCL_ERROR=1:20:3 1 'rank 1 of 2: NCCL cannot'
ok 'ranks that gather different data are named' breaks FAKE_NCCL_WRONG=1:85 1 \
	'ranks have gathered different data in 1 cases, so there is no file; check NCCL and the link'
ok 'a library may be missing' breaks ATTNREPLAY_NCCL=/no/where 4 "cannot load '/no/where', which"
stopped() {
	FAKE_NCCL_SLOW=1:20000 "$ATTNREPLAY" bench collective --tp 2 --memory host 2>"$tmp/err" &
	sleep 0.5
	kill -TERM $!
	wait $! && return 1
	grep -q interrupted "$tmp/err"
}
ok 'a user can stop it' stopped
finish
