#!/usr/bin/env bash
# The choice of algorithms over a slow link: two network namespaces as two hosts, what they send is held to a rate.
#   perf/regret/shaped.sh [RATE] [RANKS A HOST...] [-- ARGUMENTS OF regret]      default: 1gbit 1 2
# Wants root, iproute2, and build/bin. Nothing stays behind: names and interfaces end with this process.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
skip() { echo "$1" >&2; exit 2; }
source "$here/tests/launchers/network.sh"
rate=${1:-1gbit}
(($#)) && shift
per_host=()
while (($#)) && [[ $1 != -- ]]; do per_host+=("$1"); shift; done
(($#)) && shift
((${#per_host[@]})) || per_host=(1 2)
hosts_up 2
for h in 0 1; do on $h tc qdisc add dev net0 root tbf rate "$rate" burst 96kb latency 20ms; done
export TUTTI_JOB_KEY=of-this-measurement
port=29520
for n in "${per_host[@]}"; do
  on_host() {
    on "$1" "$here/build/bin/tutti" run --no-prefix --nnodes 2 --node-rank "$1" -n "$n" --master-addr 10.99.0.1 --master-port $port \
      "$here/build/bin/regret" --launched --transports auto --label "$rate" "${@:2}"
  }
  on_host 1 "$@" &
  on_host 0 "$@"
  wait $!
  port=$((port + 1))
done
