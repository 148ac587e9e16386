#!/usr/bin/env bash
# Two hosts of one machine, joined by a line of 1 Gbit/s: a contender of `compare` with half of its ranks on each.
#   link.sh FOLDER tutti|openmpi|gloo RANKS WHAT THE PROGRAM IS ASKED...
# Each host is a network namespace and a host name; the line is a veth pair whose ends tbf holds to the rate. Wants root,
# ip and tc. What it made is gone when it ends.
set -euo pipefail
folder=$1 library=$2 ranks=$3
shift 3
((EUID == 0)) || { echo "link.sh: network namespaces want root" >&2; exit 2; }
for tool in ip tc nsenter; do
  command -v $tool >/dev/null || { echo "link.sh: no command $tool here (packages iproute2, util-linux)" >&2; exit 2; }
done
((ranks % 2 == 0)) || { echo "link.sh: $ranks ranks do not halve over two hosts" >&2; exit 2; }
half=$((ranks / 2))
hosts=("link$$a" "link$$b") addresses=(10.98.7.1 10.98.7.2)
temp=$(mktemp -d)
cleanup() {
  local host
  for host in "${hosts[@]}"; do
    ip netns pids "$host" 2>/dev/null | xargs -r kill -KILL 2>/dev/null || true
    ip netns del "$host" 2>/dev/null || true
  done
  rm -rf "$temp"
}
trap cleanup EXIT
trap 'exit 143' TERM INT

for host in "${hosts[@]}"; do
  ip netns add "$host"
  ip -n "$host" link set lo up
done
ip -n "${hosts[0]}" link add line type veth peer name line netns "${hosts[1]}"
for i in 0 1; do
  ip -n "${hosts[i]}" address add "${addresses[i]}/24" dev line
  ip -n "${hosts[i]}" link set line up
  tc -n "${hosts[i]}" qdisc add dev line root tbf rate 1gbit burst 96kb latency 20ms
done

# on HOST COMMAND...: with its network, its name, and its network in /sys.
on() {
  nsenter --net="/run/netns/${hosts[$1]}" unshare --uts --mount bash -c \
    'mount -t sysfs none /sys && hostname "$0" && exec "$@"' "host$1" "${@:2}"
}

# How a launcher of MPI starts its part on a host: AGENT [OPTIONS] ADDRESS COMMAND...
{
  echo '#!/usr/bin/env bash'
  declare -p hosts addresses
  declare -f on
  echo 'while [[ $1 == -* ]]; do shift; done'
  echo '[[ $1 == "${addresses[0]}" ]]; host=$?; shift'
  echo 'on "$host" bash -c "$*"'
} >"$temp/agent"
chmod +x "$temp/agent"

by_tutti_run() {
  local i
  export TUTTI_JOB_KEY=$RANDOM$RANDOM$RANDOM
  for i in 1 0; do
    COMPARE_ADDRESS=${addresses[i]} on "$i" "$folder/tutti" run --no-prefix -n "$half" --nnodes 2 --node-rank "$i" \
      --master-addr "${addresses[0]}" --master-port 29533 "$@" &
  done
  wait -n && wait -n
}

case $library in
  tutti) by_tutti_run "$folder/compare_tutti" "$@" ;;
  gloo)
    export COMPARE_FOLDER=$temp/store
    mkdir "$COMPARE_FOLDER"
    by_tutti_run "$folder/compare_gloo" "$@"
    ;;
  openmpi)
    export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1
    on 0 mpirun.openmpi -n "$ranks" --host "${addresses[0]}:$half,${addresses[1]}:$half" --bind-to none \
      --mca plm_rsh_agent "$temp/agent" --mca oob_tcp_if_include line --mca pml ob1 --mca btl self,vader,tcp \
      --mca btl_tcp_if_include line "$folder/compare_openmpi" "$@"
    ;;
  *) echo "link.sh: no contender '$library'" >&2; exit 2 ;;
esac
