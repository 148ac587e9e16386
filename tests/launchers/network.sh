# Hosts on this machine: network namespaces, joined by a bridge in one more that plays the switch. Sourced; the script begins anew in
# namespaces of its own, so that nothing stays behind. Where that cannot be it calls the script's `skip`, with the reason.
if [[ ${OWN_NETWORK:-} != yes ]]; then
  ((EUID == 0)) || skip "network namespaces need root"
  command -v ip >/dev/null || skip "no ip command (package iproute2)"
  unshare -nm true 2>/dev/null || skip "unshare -nm is not allowed here"
  OWN_NETWORK=yes exec unshare -nm bash "$0" "$@"
fi
unset OWN_NETWORK
mkdir -p /run/netns
mount -t tmpfs none /run/netns       # names go with this process

# hosts_up COUNT: fresh hosts host0, host1, ... with the addresses 10.99.0.1, .2, ... on an interface net0 each; link0, link1, ... are
# the switch's ports.
hosts_up() {
  local h
  for h in $(seq 0 $(($1 - 1))) switch; do
    [[ $h == switch ]] || h=host$h
    ip netns del "$h" 2>/dev/null || true
    ip netns add "$h"
    ip -n "$h" link set lo up
  done
  ip -n switch link add bridge type bridge
  ip -n switch link set bridge up
  for h in $(seq 0 $(($1 - 1))); do
    ip link add net0 netns host$h type veth peer name link$h netns switch
    ip -n switch link set link$h master bridge
    ip -n switch link set link$h up
    ip -n host$h addr add 10.99.0.$((h + 1))/24 dev net0
    ip -n host$h link set net0 up
  done
}

# on HOST COMMAND...
on() { ip netns exec host"$1" "${@:2}"; }
