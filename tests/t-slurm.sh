#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A sweep as a job array of Slurm: 12 points in 4 tasks, one of them killed and submitted again.
# Slurm runs here with files and ports of its own.
. "$srcdir/tests/tap.sh"
. "$srcdir/tests/slurm.sh"

cd "$tmp" || exit 99
mkdir run
export ATTNREPLAY
if ! slurm_starts sbatch scancel bash; then
	skip 'a sweep runs as an array of Slurm' "$reason"
	finish
fi

# ---- 12 points ----

awk 'BEGIN { print "TIMESTAMP,ContextTokens,GeneratedTokens"
	for (i = 0; i < 256; i++) print "2023-11-16 18:00:00,500,20000" }' >long.csv
cp "$srcdir/traces/samples/azure-2023-code-200.csv" t.csv
cat >job.sweep <<'EOT'
zip: trace, requests = [t.csv, 20], [t.csv, 40], [long.csv, 256]
backend = cost
policy = [vllm-0.19, sglang-0.5.21]
max-num-batched-tokens = [512, 1024]
block-size = 512
EOT
sweep() { "$ATTNREPLAY" sweep job.sweep "$@"; }
submit() { sbatch --parsable --array="$1" --output="$tmp/run/%A_%a.log" --time=5 \
	"$srcdir/contrib/slurm/sweep.sbatch" job.sweep out; }
ended() { [ -z "$(squeue -h)" ]; }
states() { sweep --plan --out out | cut -f 1,3 | tr '\t\n' ': '; }
works() { ls /tmp/attnreplay-*/"$(sweep --plan --index 9 | cut -f 2)".db >/dev/null 2>&1; }

is 'the file has 12 points' "$(sweep --count)" 12
job=$(submit 0-11:3)
ok 'an array of 4 tasks is submitted, the last one works' until_true works
scancel "${job}_9"
ok '... and is killed, the others end' until_true ended
is 'the points of the other tasks are done' "$(states | cut -d ' ' -f 1-9)" \
	'0:done 1:done 2:done 3:done 4:done 5:done 6:done 7:done 8:done'
is '... the killed task says that it was' "$(grep -c '^attnreplay: interrupted; the same command' \
	"run/${job}_9.log")" 1
todo=$(states | tr ' ' '\n' | grep -c todo)
ok "... and left points, $todo, without their databases" test "$todo" -gt 0 -a \
	"$(ls out | grep -c '^[0-9a-f]*\.db$')" = $((12 - todo))
done_before=$(cd out && ls -i --time-style=full-iso -l ./*[0-9a-f].db | grep -v failed)
job=$(submit 9-11:3)
ok 'its task is submitted again' until_true ended
is '... and does what is missing' "$(states | tr ' ' '\n' | grep -c done)" 12
is '... and nothing else' "$(cd out && ls -i --time-style=full-iso -l ./*[0-9a-f].db |
	grep -v failed | grep -cF "$done_before")" $((12 - todo))
job=$(submit 0-11:3)
ok 'the array is submitted again' until_true ended
is '... and finds every point' "$(cat run/"${job}"_*.log | grep -c ' is there$')" 12

# ---- the same points without Slurm ----

sweep --all --out ref --jobs 2 >/dev/null
differ=0 rows=0
for k in $(sweep --plan | cut -f 2); do
	for query in 'SELECT iter_no, start_ns, end_ns, composition FROM iteration' \
		'SELECT * FROM request_outcome' 'SELECT run_key, status, num_blocks FROM run'; do
		"$ATTNREPLAY" sql --format csv "out/$k.db" "$query" >a.csv
		"$ATTNREPLAY" sql --format csv "ref/$k.db" "$query" >b.csv
		rows=$((rows + $(wc -l <a.csv)))
		cmp -s a.csv b.csv || differ=$((differ + 1))
	done
done
is "the databases have equal rows without Slurm ($rows lines)" $differ 0

# ---- one database ----

rows() { "$ATTNREPLAY" sql --format csv "$1" 'SELECT run_key, i.iter_no, start_ns, end_ns, composition
	FROM iteration i JOIN run USING(run_id)' | tail -n +2; }
merged() { "$ATTNREPLAY" merge all.db out/*[0-9a-f].db >/dev/null && rows all.db | sort | sha256sum; }
if "$ATTNREPLAY" help merge >/dev/null 2>&1; then
	rm -f out/*.failed.db
	want=$(for db in ref/*.db; do rows "$db"; done | sort | sha256sum)
	is 'the databases of the array make one of equal rows' "$(merged)" "$want"
	is '... also if they are merged twice' "$(merged)" "$want"
else
	skip 'the databases of the array make one of equal rows' 'no command merge'
fi
finish
