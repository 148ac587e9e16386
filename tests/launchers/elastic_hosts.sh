# A training on three hosts that loses one after another: ranks are killed, a host's launcher is killed and started again, the one
# where all met among them, and a host is cut off and returns. The weights at the end are the bytes of an undisturbed run. Hosts meet
# at an address, or by a file.
source "$(dirname "$0")/hosts.sh"
[[ -x $bin/train ]] || skip "the trainer is not built here"
hosts_up 3
# A step takes its time on the wire, so that what happens to the hosts falls into the training on fast machines too.
for h in 0 1 2; do on $h tc qdisc add dev net0 root tbf rate 60mbit burst 64kb latency 50ms; done
temp=$(mktemp -d "$temp/elastic.XXXXXX")
trap 'rm -rf "$temp"; kill $(jobs -p) 2>/dev/null || true' EXIT
export TUTTI_JOB_KEY=a-secret-of-this-test TUTTI_INIT_TIMEOUT=100s TUTTI_LINK_TIMEOUT=1s TUTTI_TIMEOUT=8s
train=("$bin/train" --layers 3 --heads 2 --width 64 --context 16 --batch 2 --micro-batches 8 --seed 5 --deterministic --hash --threads 1 --steps 250)
undisturbed() { wanted=$("${train[@]}" | sed -n 's/^weights sha256 //p') && [[ ${#wanted} == 64 ]]; }
undisturbed

declare -A launcher=()
# host NUMBER FLAGS...: starts, or starts again, the launcher of a host.
host() {
  ip netns exec host"$1" "$bin/tutti" run --no-prefix -n 1 --nnodes 3 --max-restarts 20 --min-ranks 1 "${@:2}" "${train[@]}" >>"$temp/host$1.txt" 2>&1 &
  launcher[$1]=$!
}
fail() {
  echo "$1" >&2
  grep -v '^step' "$temp"/host*.txt >&2
  exit 1
}
# until_step N: some host has said that step N is done.
until_step() {
  local i
  for ((i = 0; i < 1200; i++)); do
    if cat "$temp"/host*.txt | grep -q "^step $1/"; then return; fi
    sleep 0.1
  done
  fail "step $1 never came"
}
until_says() {
  local i
  for ((i = 0; i < 600; i++)); do
    if grep -q -- "$2" "$temp/host$1.txt"; then return; fi
    sleep 0.1
  done
  fail "host $1 does not say: $2"
}
# A launcher is two processes; when the outer one is killed the inner one ends all.
kill_host() {
  kill -KILL "${launcher[$1]}"
  wait "${launcher[$1]}" 2>/dev/null || true
  until_gone "$1"
}
until_gone() {
  local i
  for ((i = 0; i < 300; i++)); do
    if [[ -z $(ip netns pids host"$1") ]]; then return; fi
    sleep 0.1
  done
  fail "processes are left on host $1"
}
# until_ranks N: the training goes on with N ranks, as the last word of it says.
until_ranks() {
  local i
  for ((i = 0; i < 900; i++)); do
    if [[ $(cat "$temp"/host*.txt | sed -n 's/^world \([0-9]*\): going on .* with \([0-9]*\) ranks.*/\1 \2/p' | sort -n | tail -n 1) == *" $1" ]]; then return; fi
    sleep 0.1
  done
  fail "the training never went on with $1 ranks"
}
rank_on() { ip netns pids host"$1" | xargs -r ps -o pid=,comm= -p | awk '$2 == "train" {print $1}'; }
bytes_are_right() {
  local got
  got=$(cat "$temp"/host*.txt | sed -n 's/^weights sha256 //p' | sort -u)
  [[ $got == "$wanted" ]] || fail "$1: the weights are $got instead of $wanted"
  echo "$1: the same bytes"
}
all_end_well() {
  local h rc
  for h in "${!launcher[@]}"; do
    rc=0
    wait "${launcher[$h]}" || rc=$?
    ((rc == 0)) || fail "$1: host $h ended with $rc"
  done
}

# By an address. Host 2 is late: the others say whom they wait for.
address() { host "$1" --node-rank "$1" --master-addr 10.99.0.1 --master-port 29511 --host-names a,b,c; }
address 1
address 0
until_says 0 '2 of 3 hosts joined, waiting for c, [0-9]* s left'
address 2
until_step 5
kill -KILL $(rank_on 1)
until_says 1 'it is started again'
until_ranks 3
kill_host 2                              # a host that is lost, and comes back
until_ranks 2
address 2
until_ranks 3
kill_host 0                              # the one where all met
until_ranks 2
address 0
until_ranks 3
ip -n switch link set link1 down         # cut off
until_ranks 2
ip -n switch link set link1 up
until_ranks 3
all_end_well address
bytes_are_right "three hosts by an address"

# By a file. No number, no key, no address is given.
unset TUTTI_JOB_KEY
rm "$temp"/host*.txt
launcher=()
train+=(--steps 120)
undisturbed
for h in 2 0 1; do host $h --rendezvous "$temp/job"; done
until_step 5
kill_host 0
until_ranks 2
host 0 --rendezvous "$temp/job"
until_ranks 3
kill -KILL $(rank_on 2)
until_ranks 2
until_ranks 3
all_end_well file
bytes_are_right "three hosts by a file"
[[ ! -e $temp/job ]] || fail "the file stays behind"
