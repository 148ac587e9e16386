# Shared by the doctor's scripts here: two hosts, and what the doctor of each says. Sourced with the arguments BIN TEMP.
source "$(dirname "$0")/hosts.sh"
temp=$(mktemp -d "$temp/doctor.XXXXXX")
trap 'rm -rf "$temp"' EXIT
export TUTTI_JOB_KEY=a-secret-of-this-test
unset TUTTI_INTERFACE TUTTI_PORT_RANGE

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
