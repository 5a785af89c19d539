#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --ranks env: ranks that a launcher starts find each other by a file or a variable,
# and compare what they run.  The launchers here are their variables; NCCL is a fake one.
. "$srcdir/tests/tap.sh"

ATTNREPLAY_NCCL=$(dirname "$ATTNREPLAY")/tests/fake_nccl.so
export ATTNREPLAY_NCCL
unset $(env | sed -n 's/^\(SLURM_[A-Z_]*\|OMPI_[A-Za-z_]*\|PMI[X]*_[A-Z_]*\|MPI_LOCALRANKID\|NCCL_COMM_ID\)=.*/\1/p')
cd "$tmp" || exit 99
trace=$srcdir/traces/samples/azure-2023-code-200.csv
rank() { $exec "$ATTNREPLAY" run --trace "$trace" --host none --backend roofline --gpu h100 \
	--model llama-3.1-8b --requests 10 --ranks env "$@"; }
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" | tail -n +2; }

exec=
srun() ( # srun RANK SIZE COMMAND...: as a task of a step
	SLURM_JOB_ID=7 SLURM_STEP_ID=${step:-0} SLURM_PROCID=$1 SLURM_NTASKS=$2 SLURM_LOCALID=$1
	export SLURM_JOB_ID SLURM_STEP_ID SLURM_PROCID SLURM_NTASKS SLURM_LOCALID
	shift 2
	"$@"
)
mpirun() ( # mpirun RANK SIZE COMMAND...: in a batch script of Slurm
	SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=$2 SLURM_LOCALID=0
	OMPI_COMM_WORLD_RANK=$1 OMPI_COMM_WORLD_SIZE=$2 OMPI_COMM_WORLD_LOCAL_RANK=$1
	export SLURM_JOB_ID SLURM_PROCID SLURM_NTASKS SLURM_LOCALID
	export OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE OMPI_COMM_WORLD_LOCAL_RANK
	shift 2
	"$@"
)
# together LAUNCHER SIZE OPTION...: all ranks, with N.out, N.err and N.rc for each; own=RANK:OPTION
# is of that rank alone
together() {
	launcher=$1 size=$2
	shift 2
	for r in $(seq 0 $((size - 1))); do
		more=
		[ "${own%%:*}" = "$r" ] && more=${own#*:}
		(
			$launcher "$r" "$size" rank --tp "$size" "$@" $more >"$r.out" 2>"$r.err"
			echo $? >"$r.rc"
		) &
	done
	wait
	cat $(seq -f %.0f.rc 0 $((size - 1))) | tr '\n' ' ' | sed 's/ $//'
}
lines() { cat ?.err | grep -vc '^fake NCCL'; }

# ---- they find each other ----

for launcher in srun mpirun; do
	for size in 2 4; do
		rm -f ./*.db ?.out
		is "$size ranks of $launcher end" "$(together $launcher $size --intervals off --db x.db)" \
			"$(seq -s' ' $size | sed 's/[0-9]/0/g')"
		is '... rank 0 alone prints' "$(cat [1-9].out ?.err | wc -c)" 0
		is '... and stores what all told' "$(query x.db "SELECT (SELECT count(*) FROM run_rank),
			(SELECT count(*) FROM iteration_rank) / (SELECT count(*) FROM iteration) AS n")" \
			"$size,$size"
		ok '... no id is left behind' [ ! -e x.db.ncclid ]
	done
done
"$ATTNREPLAY" -q run --trace "$trace" --host none --backend roofline --gpu h100 --model llama-3.1-8b \
	--requests 10 --tp 4 >one.out
is 'the results are those of one rank' "$(grep '^[A-Z]' 0.out)" "$(grep '^[A-Z]' one.out)"
is 'a run names the library' "$(query x.db 'SELECT nccl FROM run')" \
	'2.28.9 NCCL_NVLS_ENABLE=0 NCCL_RUNTIME_CONNECT=0 NCCL_RAS_ENABLE=0'
by_hand() { r=$1; shift 2; "$@" --rank "$r"; }
is 'options name a rank, too' "$(together by_hand 2 --nccl-id id)" '0 0'
is '... and methods meet one after the other' \
	"$(together by_hand 2 --nccl-id id --method dense,compact-fp --density compact-fp=0.2)" '0 0'
ok '... and print both' grep -q '^compact-fp: 10 requests ok' 0.out
named() { NCCL_COMM_ID=fake-$$:9 by_hand "$@"; }
is 'a variable names the place to meet' "$(together named 2)" '0 0'
is '... with nothing left behind' "$(ls /dev/shm | grep -c "fake-$$")" 0

# ---- they compare what they run ----

differs() { # differs OPTION WHAT...: rank 1 has the option
	own="1:$1"
	shift
	is "rank 1 with another $1 ends all" "$(together by_hand 2 --nccl-id id)" '2 2'
	own=
	ok '... which is named once' grep -qxF "attnreplay: rank 1 has another $2; give all ranks the same" 0.err
	is '... by rank 0' "$(lines)" 1
}
head -n 60 "$trace" >short.csv
differs --requests=9 option "requests than rank 0: '9' instead of '10'"
differs "--trace short.csv" trace \
	"trace-sha256 than rank 0: '$(sha256sum <short.csv | cut -c-64)' instead of '$(sha256sum <"$trace" |
	cut -c-64)'"
differs --gpu=h200 GPU "gpu than rank 0: 'h200' instead of 'h100'"
versions() { r=$1; shift 2; FAKE_NCCL_VERSION=229$((10 + r)) "$@" --rank "$r"; }
is 'other versions of NCCL end all' "$(together versions 2 --nccl-id id)" '2 2'
ok '... and are named' grep -q "rank 1 has another NCCL than rank 0: '2.29.11' instead of '2.29.10'" 0.err

# ---- they do not come, or fail ----

two() { rank --tp 2 --comm-join 500ms "$@"; }
begin=$(date +%s)
ok 'a rank without rank 0 gives up' fails 4 'rank 1 of 2: no answer from rank 0 within 500 ms' \
	two --rank 1 --nccl-id id
ok 'rank 0 does so, too' fails 4 'rank 0 of 2: no answer from the other ranks within 500 ms' \
	two --rank 0 --nccl-id id
ok '... soon' [ $(($(date +%s) - begin)) -lt 20 ]
ok '... and leaves no id' [ ! -e id ]

step=1
srun 0 2 rank --tp 2 --nccl-id kept >0.out 2>0.err &
tries=0
while [ ! -e kept ] && [ $tries -lt 500 ]; do sleep 0.02; tries=$((tries + 1)); done
cp kept old
srun 1 2 rank --tp 2 --nccl-id kept >1.out 2>1.err
wait
is 'an id has 176 bytes' "$(wc -c <old)" 176
ok '... and goes when all are there' [ ! -e kept ]
stale='the id of other ranks, or of an earlier run; remove it'
refuses() { # refuses WHAT RANK SIZE: with the file id
	ok "$1" fails 3 "^attnreplay: id: $stale\$" srun "$2" "$3" rank --tp "$3" --nccl-id id
}
cp old id
refuses 'rank 0 takes none that is there' 0 2
refuses 'an id of other ranks is refused' 1 4
step=2
refuses '... and one of another step' 1 2
step=1
head -c 100 old >id
refuses 'half of an id is none' 1 2
rm id
ok 'a folder that is not there' fails 1 'no/id: cannot write the id of the ranks: No such file' \
	two --rank 0 --nccl-id no/id
ok 'a file that cannot be read' fails 1 '^attnreplay: trace: Not a directory\|short.csv/id: Not a dir' \
	two --rank 1 --nccl-id short.csv/id

fails_alone() { # fails_alone WHAT STATUSES MESSAGE: rank 0 alone says why the ranks have ended
	is "$1" "$2" '1 1'
	ok '... with one line, of rank 0' grep -q "^attnreplay: $3" 0.err
	is '... alone' "$(lines)" 1
}
fails_alone 'a rank that fails ends the others' "$(together by_hand 2 --nccl-id id --db no/x.db)" 'no/x.db: '
breaks() { r=$1; shift 2; FAKE_NCCL_ERROR=1:40:6 "$@" --rank "$r" --db broken.db; }
statuses=$(together breaks 2 --nccl-id id)
is 'one that NCCL leaves ends the others' "$statuses" '1 1'
ok '... and the run is stored' [ "$(query broken.db "SELECT status = 'failed', (SELECT count(*)
	FROM iteration) > 30 AS n FROM run")" = 1,1 ]
stops() {
	r=$1 exec=exec
	shift 2
	FAKE_NCCL_SLOW=$r:20000 "$@" --rank "$r" --db stopped.db &
	if [ "$r" = 1 ]; then
		until [ -s stopped.db ]; do sleep 0.05; done
		sleep 0.5
		kill $!
	fi
	wait $!
}
fails_alone 'a rank that is stopped ends the others' "$(together stops 2 --nccl-id id --requests 60)" \
	'iteration [0-9]*: rank 1 was interrupted'
is '... and the run is stored so' "$(query stopped.db 'SELECT status FROM run')" aborted

# ---- usage ----

no_launcher='no launcher started this process, so its rank is not known; start it with srun or'
ok 'a rank has to be known' fails 2 "$no_launcher" two --nccl-id id
batch() ( SLURM_JOB_ID=7 SLURM_PROCID=0 SLURM_NTASKS=2
	export SLURM_JOB_ID SLURM_PROCID SLURM_NTASKS
	two --nccl-id id)
ok 'a batch script is none' fails 2 'this is the script of Slurm job 7 and no step of it' batch
ok 'a rank is below --tp' fails 2 'rank 2: want 0 to 1, as --tp is 2' two --rank 2 --nccl-id id
ok 'a launcher starts as many' fails 2 'srun started 4 ranks, but --tp is 2; give equal numbers' \
	srun 0 4 rank --tp 2 --nccl-id id
ok 'they need a place to meet' fails 2 'name one in --nccl-id, or set NCCL_COMM_ID to HOST:PORT' \
	two --rank 0
for o in 'rank 1' 'nccl-id id'; do
	ok "--${o% *} is for ranks of a launcher" fails 2 \
		"${o% *} has no effect without --ranks env; leave it out" two --ranks local --$o
done
ok 'one rank is no group' fails 2 'ranks env has no effect with --tp 1; leave it out' \
	rank --tp 1 --rank 0 --nccl-id id
finish
