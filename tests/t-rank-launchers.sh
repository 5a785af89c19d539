#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# attnreplay run --ranks env under a real srun and a real mpirun: two ranks of this host over a fake
# NCCL, and of two GPUs over NCCL.  They end with one whole database, also if one of them is killed.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/slurm.sh"

cd "$tmp" || exit 99
unset $(env | sed -n 's/^\(SLURM_[A-Z_]*\|OMPI_[A-Za-z_]*\|PMI[X]*_[A-Z_]*\|NCCL_COMM_ID\)=.*/\1/p')
fake=$(dirname "$ATTNREPLAY")/tests/fake_nccl.so
trace=$srcdir/traces/samples/azure-2023-code-200.csv
# mpirun wants to find what starts ranks on other hosts, of which there are none.
OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_plm_rsh_agent=sh
export OMPI_ALLOW_RUN_AS_ROOT OMPI_ALLOW_RUN_AS_ROOT_CONFIRM OMPI_MCA_plm_rsh_agent
query() { "$ATTNREPLAY" sql --format csv "$1" "$2" 2>/dev/null | tail -n 1; }

with_srun() { srun -n 2 "$@"; }
with_mpirun() { mpirun -np 2 --oversubscribe "$@"; }
rank() ( # rank PLACE LAUNCHER OPTION...: the command of both ranks
	place=$1 with=with_$2
	shift 2
	case $place in
	host)
		export ATTNREPLAY_NCCL="$fake"
		set -- --backend roofline --gpu h100 "$@"
		;;
	GPUs)
		set -- --backend cuda --sample-layers 2 --capture random:0 --accuracy 0 \
			--num-gpu-blocks 4000 "$@"
		;;
	esac
	$with "$ATTNREPLAY" -q run --host none --model llama-3.1-8b --tp 2 --ranks env \
		--comm-timeout 5s --intervals off "$@"
)
whole() { # whole DB STATUS
	is '... the database is whole' "$(query "$1" 'PRAGMA integrity_check')" ok
	is '... and has iterations of both ranks' "$(query "$1" "SELECT status IN ($2), (SELECT count(*)
		FROM iteration) > 5, (SELECT count(DISTINCT rank) FROM run_rank), (SELECT count(*)
		FROM iteration_rank) = 2 * (SELECT count(*) FROM iteration) FROM run")" 1,1,2,1
}
echo TIMESTAMP,ContextTokens,GeneratedTokens >long.csv
for i in 1 2 3 4; do echo '2023-11-16 18:17:03.0,64,15000'; done >>long.csv
processes() { # the ranks of this test, by what they run
	for p in /proc/[0-9]*; do
		tr '\0' ' ' 2>/dev/null <"$p/cmdline" | grep -q "^$ATTNREPLAY .* --db killed.db $" &&
			echo "${p#/proc/}"
	done
}
begun() { # also if it has ended
	gone $! || [ "$(query killed.db 'SELECT count(*) > 20 FROM iteration')" = 1 ]
}
killed() { # killed PLACE LAUNCHER: a rank, in the middle of a run
	rm -f killed.db*
	FAKE_NCCL_SLOW=1:1000 rank "$1" "$2" --trace long.csv --db killed.db >out 2>err &
	until_true begun
	for p in $(processes); do
		r=$(tr '\0' '\n' <"/proc/$p/environ" |
			sed -n 's/^\(SLURM_PROCID\|OMPI_COMM_WORLD_RANK\)=//p')
		[ "$r" != 1 ] || kill -KILL "$p"
	done
	wait $! && return 1
	sed 's/^/# /' err
	[ -z "$(processes)" ] && [ -s killed.db ]
}
by() { # by LAUNCHER PLACE: runs that end, and one with a killed rank
	ok "two ranks of $1 end on $2" rank "$2" "$1" --trace "$trace" --requests 10 \
		--max-output-tokens 20 --db "$1-$2.db"
	whole "$1-$2.db" "'done'"
	ok '... and no id is left behind' [ ! -e "$1-$2.db.ncclid" ]
	ok "one of them is killed on $2, which ends the other" killed "$2" "$1"
	whole killed.db "'failed', 'aborted'"
}

gpus=
"$ATTNREPLAY" -q run --host none --backend cuda --model llama-3.1-8b --sample-layers 1 --tp 2 \
	--ranks local --capture random:0 --accuracy 0 --num-gpu-blocks 400 --trace "$trace" \
	--requests 1 --max-prompt-tokens 64 --max-output-tokens 2 >out 2>err && gpus=GPUs
for launcher in srun mpirun; do
	reason="no $launcher"
	if { [ $launcher = srun ] && ! slurm_starts srun; } || ! command -v $launcher >/dev/null; then
		skip "two ranks of $launcher end on host" "$reason"
		skip "two ranks of $launcher end on GPUs" "$reason"
		continue
	fi
	if [ -e "$fake" ]; then
		by $launcher host
	else
		skip "two ranks of $launcher end on host" "no ${fake##*/}"
	fi
	if [ -z "$gpus" ]; then
		skip "two ranks of $launcher end on GPUs" 'no two GPUs'
	else
		by $launcher GPUs
	fi
done
finish
