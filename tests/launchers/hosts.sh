# Hosts of a test (network.sh), and launchers on them. Sourced with the arguments BIN TEMP.
source "$(dirname "$0")/common.sh"
source "$(dirname "$0")/network.sh"

# A launcher a host, its output and its ranks' in $temp/hostN.txt. `attempt`, where a script sets it, is told of in complaints.
declare -A launcher=()

# launch HOST ARGUMENTS OF tutti run...: starts it, or starts it again, for one rank.
launch() {
  ip netns exec host"$1" "$bin/tutti" run --no-prefix -n 1 "${@:2}" >>"$temp/host$1.txt" 2>&1 &
  launcher[$1]=$!
}
# launch_at HOST HOSTS ARGUMENTS...: they meet at host 0's address.
launch_at() { launch "$1" --nnodes "$2" --node-rank "$1" --master-addr 10.99.0.1 --master-port 29511 "${@:3}"; }
# A launcher is two processes; when the outer one is killed the inner one ends all.
kill_launcher() {
  kill -KILL "${launcher[$1]}"
  wait "${launcher[$1]}" 2>/dev/null || true
  eventually "processes are left on host $1" nobody_on "$1"
}
nobody_on() { [[ -z $(ip netns pids host"$1") ]]; }
# ends HOST STATUS: its launcher does, with that exit status.
ends() {
  local rc=0
  wait "${launcher[$1]}" || rc=$?
  ((rc == $2)) || fail "host $1 ended with $rc instead of $2"
}
said() { grep -Eq -- "$2" "$temp/host$1.txt"; }
says() { said "$@" || fail "host $1 does not say: $2"; }
until_says() { eventually "host $1 does not say: $2" said "$@"; }
# fail TEXT: with all that launchers and ranks said, but for the steps of a training.
fail() {
  echo "${attempt:+$attempt: }$1" >&2
  grep -hv '^step ' "$temp"/host*.txt >&2
  exit 1
}
