#!/usr/bin/env bash
# The choice of algorithms over a slow link: two network namespaces as two hosts, joined by a veth pair that is held to a rate.
#   perf/regret/shaped.sh [RATE] [RANKS A HOST...] [-- ARGUMENTS OF regret]      default: 1gbit 1 2
# Wants root, iproute2, and build/bin. Nothing stays behind: names and interfaces end with this process.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
if [[ ${SHAPED_INSIDE:-} != 1 ]]; then
  ((EUID == 0)) || { echo "network namespaces need root" >&2; exit 2; }
  SHAPED_INSIDE=1 exec unshare -nm bash "$0" "$@"
fi
rate=${1:-1gbit}
(($#)) && shift
per_host=()
while (($#)) && [[ $1 != -- ]]; do per_host+=("$1"); shift; done
(($#)) && shift
((${#per_host[@]})) || per_host=(1 2)
mkdir -p /run/netns
mount -t tmpfs none /run/netns
ip netns add host0
ip netns add host1
ip link add v0 netns host0 type veth peer name v1 netns host1
for h in 0 1; do
  ip -n host$h addr add 10.99.0.$((h + 1))/24 dev v$h
  ip -n host$h link set lo up
  ip -n host$h link set v$h up
  ip netns exec host$h tc qdisc add dev v$h root tbf rate "$rate" burst 96kb latency 20ms
done
export TUTTI_JOB_KEY=of-this-measurement
port=29520
for n in "${per_host[@]}"; do
  on_host() {
    ip netns exec host"$1" "$here/build/bin/tutti" run --no-prefix --nnodes 2 --node-rank "$1" -n "$n" --master-addr 10.99.0.1 --master-port $port \
      "$here/build/bin/regret" --launched --transports auto --label "$rate" "${@:2}"
  }
  on_host 1 "$@" &
  on_host 0 "$@"
  wait $!
  port=$((port + 1))
done
