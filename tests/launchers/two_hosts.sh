# `tutti run` on each of two hosts, two ranks a host, one world.
source "$(dirname "$0")/hosts.sh"
hosts_up 2
export TUTTI_JOB_KEY=a-secret-of-this-test
on_host() {
  on "$1" "$bin/tutti" run --no-prefix --nnodes 2 --node-rank "$1" --nproc-per-node 2 \
    --master-addr 10.99.0.1 --master-port 29511 "${@:2}" "$bin/all_reduce_perf" "${sweep[@]}"
}
for how in c10d static; do
  on_host 1 --rdzv-backend $how >"$temp/host1.txt" &
  other=$!
  on_host 0 --rdzv-backend $how >"$temp/host0.txt"
  wait $other
  check "two hosts, $how" 4 shm+tcp "$temp/host0.txt"
done
