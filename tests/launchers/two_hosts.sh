# Two network namespaces joined by a veth pair are two hosts: `tutti run` on each, two ranks a host, one world.
if [[ ${3:-} != inside ]]; then
  source "$(dirname "$0")/common.sh"
  ((EUID == 0)) || skip "network namespaces need root"
  command -v ip >/dev/null || skip "no ip command (package iproute2)"
  unshare -nm true 2>/dev/null || skip "unshare -nm is not allowed here"
  exec unshare -nm bash "$0" "$1" "$2" inside
fi
source "$(dirname "$0")/common.sh"
mkdir -p /run/netns
mount -t tmpfs none /run/netns       # names go with this process
ip netns add host0
ip netns add host1
ip link add v0 netns host0 type veth peer name v1 netns host1
for h in 0 1; do
  ip -n host$h addr add 10.99.0.$((h + 1))/24 dev v$h
  ip -n host$h link set lo up
  ip -n host$h link set v$h up
done
export TUTTI_JOB_KEY=a-secret-of-this-test
on_host() {
  ip netns exec host"$1" "$bin/tutti" run --no-prefix --nnodes 2 --node-rank "$1" --nproc-per-node 2 \
    --master-addr 10.99.0.1 --master-port 29511 "$bin/all_reduce_perf" "${sweep[@]}"
}
on_host 1 >"$temp/host1.txt" &
other=$!
on_host 0 >"$temp/host0.txt"
wait $other
check "two hosts" 4 shm+tcp "$temp/host0.txt"
