# SPDX-License-Identifier: Apache-2.0
# A Slurm of this host alone, for tests: . "$srcdir/tests/slurm.sh" behind tap.sh.  Its files are in
# $tmp, and its ports are its own.  It ends with the script.

# slurm_starts TOOL...: start it, where these tools are, too; else say why not in $reason
slurm_starts() {
	PATH=$PATH:/usr/sbin
	for tool in slurmctld slurmd munged squeue sinfo "$@"; do
		command -v "$tool" >/dev/null && continue
		reason="no $tool"
		return 1
	done
	reason='slurmd needs root'
	[ "$(id -u)" = 0 ] || return
	unset SLURM_TMPDIR TMPDIR
	mkdir "$tmp/state" "$tmp/spool"
	dd if=/dev/urandom of="$tmp/munge.key" bs=128 count=1 status=none
	chmod 600 "$tmp/munge.key"
	slurm_conf "$(hostname -s)" >"$tmp/slurm.conf"
	# Version 2 of cgroups, which a host may have, needs systemd.  Nothing here uses either.
	echo CgroupPlugin=cgroup/v1 >"$tmp/cgroup.conf"
	export SLURM_CONF="$tmp/slurm.conf"
	trap 'slurm_stop; rm -rf "$tmp"' EXIT
	munged --key-file="$tmp/munge.key" --socket="$tmp/munge.sock" --pid-file="$tmp/munged.pid" \
		--log-file="$tmp/munged.log" --seed-file="$tmp/munge.seed" --force >/dev/null 2>&1
	slurmctld >/dev/null 2>&1
	slurmd >/dev/null 2>&1
	reason='Slurm does not start here'
	until_true slurm_idle && return
	tail -n 3 "$tmp/slurmctld.log" "$tmp/slurmd.log" 2>/dev/null | sed 's/^/# /'
	return 1
}
slurm_conf() { # slurm_conf NODE
	cat <<END
ClusterName=one
SlurmctldHost=$1(127.0.0.1)
SlurmctldPort=$((20000 + 2 * ($$ % 6000)))
SlurmdPort=$((20001 + 2 * ($$ % 6000)))
SlurmUser=root
AuthInfo=socket=$tmp/munge.sock
StateSaveLocation=$tmp/state
SlurmdSpoolDir=$tmp/spool
SlurmctldPidFile=$tmp/slurmctld.pid
SlurmdPidFile=$tmp/slurmd.pid
SlurmctldLogFile=$tmp/slurmctld.log
SlurmdLogFile=$tmp/slurmd.log
ProctrackType=proctrack/linuxproc
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
SchedulerType=sched/builtin
SchedulerParameters=batch_sched_delay=0,sched_interval=1
KillWait=2
NodeName=$1 NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES State=UP
END
}
until_true() { # until_true COMMAND...: within two minutes
	for i in $(seq 600); do
		"$@" && return
		sleep 0.2
	done
	return 1
}
gone() { ! kill -0 "$1" 2>/dev/null; }
slurm_idle() { sinfo -h -o %T 2>/dev/null | grep -q idle; }
slurm_stop() {
	for daemon in slurmd slurmctld munged; do
		[ -s "$tmp/$daemon.pid" ] || continue
		pid=$(cat "$tmp/$daemon.pid")
		kill "$pid" && until_true gone "$pid"
	done >/dev/null 2>&1
}
