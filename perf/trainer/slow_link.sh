#!/usr/bin/env bash
# What of the exchange of gradients a slow link leaves exposed: two ranks of one thread in two network namespaces, joined by a veth pair that
# is held to a rate, train 6 layers of width 384 (vocabulary 8192, 128 tokens, 4 samples a rank). Beside backward the exchange is free, so of
# it only what is longer than backward should be waited for. Each host has a core of its own, for its rank and what drives its exchange; with ANY_CORE=1
# both share all of this machine's, and the scheduler moves ranks into each other's way.
#   perf/trainer/slow_link.sh [RATE [STEPS [FLAGS OF train...]]]      default: 1gbit 20; BUILD names another build folder than build
# Prints medians over steps and ranks; fails where exposed > (communication - backward) + 10 % of the communication. Wants root and iproute2.
# Nothing stays behind: names and interfaces end with this process.
set -euo pipefail
here=$(cd "$(dirname "$0")/../.." && pwd)
if [[ ${SLOW_LINK_INSIDE:-} != 1 ]]; then
  ((EUID == 0)) || { echo "network namespaces need root" >&2; exit 2; }
  SLOW_LINK_INSIDE=1 exec unshare -nm bash "$0" "$@"
fi
rate=${1:-1gbit} steps=${2:-20} build=${BUILD:-$here/build}
shift $(($# < 2 ? $# : 2))
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
unset OPENBLAS_CORETYPE     # may hold OpenBLAS to slower kernels than the processor has
export TUTTI_JOB_KEY=of-this-measurement
run=$(mktemp -d)
trap 'rm -rf "$run"' EXIT
on_host() {
  local own=(taskset -c "$(($1 % $(nproc)))")
  [[ ${ANY_CORE:-} ]] && own=()
  ip netns exec host"$1" "${own[@]}" "$build/bin/tutti" run --no-prefix --nnodes 2 --node-rank "$1" -n 1 --master-addr 10.99.0.1 --master-port 29520 \
    "$build/bin/train" --layers 6 --heads 6 --width 384 --vocabulary 8192 --context 128 --batch 4 --micro-batches 2 --threads 1 \
    --steps $((steps + 2)) --checkpoint-every 0 --light-every 0 --run "$run/log" "${@:2}" >"$run/$1.log" 2>&1
}
on_host 1 "$@" &
on_host 0 "$@" || { cat "$run/0.log" >&2; exit 1; }
wait $! || { cat "$run/1.log" >&2; exit 1; }
python3 - "$rate" "$run"/log/rank-*.jsonl <<'PYTHON'
import json, statistics, sys
logs = [[json.loads(line) for line in open(path)][2:] for path in sys.argv[2:]]      # the first steps warm up
of = {name: statistics.median(step[name + "_seconds"] for log in logs for step in log) for name in ("exposed", "exchange", "backward", "compute")}
step = statistics.median(s["seconds"] for log in logs for s in log)
bound = max(0, of["exchange"] - of["backward"]) + 0.1 * of["exchange"]
print("%s, %d ranks, %d steps: %.1f ms a step, %.0f tokens/s" % (sys.argv[1], len(logs), len(logs[0]), 1e3 * step, logs[0][0]["tokens"] / step))
print("communication %.1f ms, backward %.1f ms, compute %.1f ms, exposed communication %.1f ms" %
      tuple(1e3 * of[name] for name in ("exchange", "backward", "compute", "exposed")))
print("(communication - backward) + 10 %%: %.1f ms: %s" % (1e3 * bound, "kept" if of["exposed"] <= bound else "not kept"))
sys.exit(of["exposed"] > bound)
PYTHON
