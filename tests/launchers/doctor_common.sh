# Shared by the doctor's scripts here: two hosts as network namespaces, joined by a bridge in a third that plays the switch,
# and what the doctor of each says. Sourced with the arguments BIN TEMP, and re-enters the script in namespaces of its own.
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
temp=$(mktemp -d "$temp/doctor.XXXXXX")
trap 'rm -rf "$temp"' EXIT
export TUTTI_JOB_KEY=a-secret-of-this-test
unset TUTTI_INTERFACE TUTTI_PORT_RANGE

# Fresh hosts 10.99.0.1 and 10.99.0.2 with an interface net0 each; link0 and link1 are the switch's ports.
hosts_up() {
  local h
  for h in host0 host1 switch; do
    ip netns del $h 2>/dev/null || true
    ip netns add $h
    ip -n $h link set lo up
  done
  ip -n switch link add bridge type bridge
  ip -n switch link set bridge up
  for h in 0 1; do
    ip link add net0 netns host$h type veth peer name link$h netns switch
    ip -n switch link set link$h master bridge
    ip -n switch link set link$h up
    ip -n host$h addr add 10.99.0.$((h + 1))/24 dev net0
    ip -n host$h link set net0 up
  done
}

# on HOST COMMAND...
on() { ip netns exec host"$1" "${@:2}"; }

# doctor HOST [FLAGS]: as rank HOST of two that meet at $address (10.99.0.1), port 29511; output in $temp/HOST.txt, status in $temp/HOST.rc.
doctor() {
  local rc=0
  TUTTI_RANK=$1 TUTTI_RANK_COUNT=2 TUTTI_ADDRESS=${address:-10.99.0.1}:29511 \
    on "$1" ${wrap[$1]:-} "$bin/tutti" doctor --wait "${wait_seconds:-20}" --folder "$temp" "${@:2}" >"$temp/$1.txt" 2>&1 || rc=$?
  echo $rc >"$temp/$1.rc"
}
declare -A wrap=()                   # by host: what stands before the command

# Both doctors, side by side.
both() {
  doctor 1 &
  local other=$!
  doctor 0 "$@"
  wait $other
}

# says HOST STATUS PATTERN...: its exit status, and lines that match each pattern (one line of a wrapped text is joined first).
says() {
  local host=$1 status=$2 pattern joined
  joined=$(sed -E ':a;N;$!ba;s/\n {5,}/ /g' "$temp/$host.txt")
  if [[ $(cat "$temp/$host.rc") != "$status" ]]; then
    echo "$name: rank $host ended with $(cat "$temp/$host.rc") instead of $status" >&2
    cat "$temp"/?.txt >&2
    exit 1
  fi
  for pattern in "${@:3}"; do
    if ! grep -Eq -- "$pattern" <<<"$joined"; then
      echo "$name: rank $host does not say: $pattern" >&2
      cat "$temp"/?.txt >&2
      exit 1
    fi
  done
}
found() { echo "$name: found"; }
