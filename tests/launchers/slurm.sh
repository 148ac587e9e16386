# Slurm's own daemons: one slurmctld and three slurmd on this host, each a node of its own, and munged between them. srun starts ranks
# without our launcher, and one `tutti run` a node, which find each other by what Slurm says.
if [[ ${3:-} != inside ]]; then
  source "$(dirname "$0")/common.sh"
  ((EUID == 0)) || skip "Slurm's daemons need root"
  for program in slurmctld slurmd srun munged; do
    command -v $program >/dev/null || skip "no $program (packages slurmctld, slurmd, slurm-client, munge)"
  done
  unshare -mpf --mount-proc true 2>/dev/null || skip "unshare -mp is not allowed here"
  exec unshare -mpf --mount-proc bash "$0" "$1" "$2" inside      # with processes of its own: none is left behind
fi
source "$(dirname "$0")/common.sh"
temp=$(mktemp -d "$temp/slurm.XXXXXX")
finish() {
  local daemons
  daemons=$(jobs -p)
  [[ -z $daemons ]] || kill -KILL $daemons 2>/dev/null || true
  wait 2>/dev/null || true
  rm -rf "$temp" 2>/dev/null || rm -rf "$temp"
}
trap finish EXIT
free_ports() { python3 -c 'import socket, sys
held = [socket.socket() for _ in range(int(sys.argv[1]))]
for s in held: s.bind(("127.0.0.1", 0))
print(*(s.getsockname()[1] for s in held))' "$1"; }
read -r control first second third <<<"$(free_ports 4)"

# The nodes are names of this host, for this script alone.
printf '127.0.0.1 localhost %s node0 node1 node2\n' "$(hostname)" >"$temp/hosts"
mount --bind "$temp/hosts" /etc/hosts
chmod 755 "$temp"
mkdir -m 755 "$temp/munge"
dd if=/dev/urandom of="$temp/munge/key" bs=1024 count=1 status=none
chmod 400 "$temp/munge/key"
munged --foreground --force --key-file="$temp/munge/key" --socket="$temp/munge/socket" --pid-file="$temp/munge/pid" \
  --seed-file="$temp/munge/seed" --log-file="$temp/munge/log" >"$temp/munged.txt" 2>&1 &
cat >"$temp/slurm.conf" <<CONF
ClusterName=test
SlurmctldHost=$(hostname)(127.0.0.1)
SlurmctldPort=$control
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=$temp/munge/socket
CryptoType=crypto/munge
StateSaveLocation=$temp/state
SlurmdSpoolDir=$temp/spool.%n
SlurmctldPidFile=$temp/slurmctld.pid
SlurmdPidFile=$temp/slurmd.%n.pid
SlurmctldLogFile=$temp/slurmctld.log
SlurmdLogFile=$temp/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
SchedulerType=sched/builtin
SelectType=select/linear
ReturnToService=2
NodeName=node0 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$first CPUs=2
NodeName=node1 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$second CPUs=2
NodeName=node2 NodeHostname=$(hostname) NodeAddr=127.0.0.1 Port=$third CPUs=2
PartitionName=all Nodes=node[0-2] Default=YES MaxTime=INFINITE State=UP
CONF
export SLURM_CONF=$temp/slurm.conf
mkdir "$temp/state"
fail() {
  echo "$1" >&2
  tail -n 20 "$temp"/*.log "$temp"/*.txt >&2
  exit 1
}
eventually "munged opens no socket" test -S "$temp/munge/socket"
slurmctld -D >"$temp/slurmctld.txt" 2>&1 &
for node in node0 node1 node2; do
  mkdir "$temp/spool.$node"
  slurmd -D -N $node >"$temp/$node.txt" 2>&1 &
done
all_idle() { [[ $(sinfo -h -t idle -o %D 2>/dev/null) == 3 ]]; }
eventually "the three nodes are not idle" all_idle

srun -N 3 --ntasks-per-node=1 "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/plain.txt"
check "srun" 3 shm "$temp/plain.txt"
export TUTTI_JOB_KEY=a-secret-of-this-test
srun -N 3 --ntasks-per-node=1 "$bin/tutti" run --no-prefix -n 2 "$bin/all_reduce_perf" "${sweep[@]}" >"$temp/run.txt"
check "srun tutti run" 6 shm "$temp/run.txt"
rc=0
srun -N 3 --ntasks-per-node=1 "$bin/tutti" run -n 1 sh -c '[ $TUTTI_RANK != 1 ] || exit 7; sleep 1000' >"$temp/fails.txt" 2>&1 || rc=$?
grep -q 'first failure: rank 1 on .* ended with exit status 7' "$temp/fails.txt" || { cat "$temp/fails.txt" >&2; exit 1; }
grep -q 'all were stopped by us: on another host rank 1 on .* ended with exit status 7' "$temp/fails.txt" || { cat "$temp/fails.txt" >&2; exit 1; }
((rc != 0))
rc=0
srun -N 1 -n 2 "$bin/tutti" run -n 1 true >"$temp/twice.txt" 2>&1 || rc=$?
grep -q 'give srun --ntasks-per-node=1' "$temp/twice.txt" || { cat "$temp/twice.txt" >&2; exit 1; }
echo "srun tutti run: a failure ends the job, two launchers on a node are refused"
