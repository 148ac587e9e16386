# A training on three hosts that loses one after another: ranks are killed, a host's launcher is killed and started again, the one
# where all met among them, and a host is cut off and returns. The weights at the end are the bytes of an undisturbed run. Hosts meet
# at an address, or by a file.
source "$(dirname "$0")/hosts.sh"
[[ -x $bin/train ]] || skip "the trainer is not built here"
hosts_up 3
# A step takes its time on the wire, so that what happens to the hosts falls into the training on fast machines too. What is left of the
# training then needs no such time.
slow() { for h in 0 1 2; do on $h tc qdisc add dev net0 root tbf rate 60mbit burst 64kb latency 50ms; done; }
fast() { for h in 0 1 2; do on $h tc qdisc del dev net0 root; done; }
temp=$(mktemp -d "$temp/elastic.XXXXXX")
trap 'rm -rf "$temp"; kill $(jobs -p) 2>/dev/null || true' EXIT
export TUTTI_JOB_KEY=a-secret-of-this-test TUTTI_INIT_TIMEOUT=100s TUTTI_LINK_TIMEOUT=1s TUTTI_TIMEOUT=8s
train=("$bin/train" --layers 3 --heads 2 --width 64 --context 16 --batch 2 --micro-batches 8 --seed 5 --deterministic --hash --threads 1 --steps 250)
undisturbed() { wanted=$("${train[@]}" | sed -n 's/^weights sha256 //p') && [[ ${#wanted} == 64 ]]; }
undisturbed

# Some host has said that step N is done.
step_done() { grep -q "^step $1/" "$temp"/host*.txt; }
until_step() { eventually "step $1 never came" step_done "$1"; }
# The training goes on with N ranks, as the last word of it says.
goes_on_with() {
  [[ $(sed -n 's/^world \([0-9]*\): going on .* with \([0-9]*\) ranks.*/\1 \2/p' "$temp"/host*.txt | sort -n | tail -n 1) == *" $1" ]]
}
until_ranks() { eventually "the training never went on with $1 ranks" goes_on_with "$1"; }
rank_on() { ip netns pids host"$1" | xargs -r ps -o pid=,comm= -p | awk '$2 == "train" {print $1}'; }
bytes_are_right() {
  local got
  got=$(cat "$temp"/host*.txt | sed -n 's/^weights sha256 //p' | sort -u)
  [[ $got == "$wanted" ]] || fail "$1: the weights are $got instead of $wanted"
  echo "$1: the same bytes"
}
all_end_well() {
  local h
  for h in 0 1 2; do ends $h 0; done
}

# By an address. Host 2 is late: the others say whom they wait for.
elastic=(--max-restarts 20 --min-ranks 1)
address() { launch_at "$1" 3 "${elastic[@]}" --host-names a,b,c "${train[@]}"; }
slow
address 1
address 0
until_says 0 '2 of 3 hosts joined, waiting for c, [0-9]+ s left'
address 2
until_step 5
kill -KILL $(rank_on 1)
until_says 1 'it is started again'
until_ranks 3
kill_launcher 2                          # a host that is lost, and comes back
until_ranks 2
address 2
until_ranks 3
kill_launcher 0                          # the one where all met
until_ranks 2
address 0
until_ranks 3
ip -n switch link set link1 down         # cut off
until_ranks 2
ip -n switch link set link1 up
until_ranks 3
fast
attempt=address all_end_well
bytes_are_right "three hosts by an address"

# By a file. No number, no key, no address is given.
unset TUTTI_JOB_KEY
rm "$temp"/host*.txt
launcher=()
train+=(--steps 120)
undisturbed
file() { launch "$1" --nnodes 3 "${elastic[@]}" --rendezvous "$temp/job" "${train[@]}"; }
slow
for h in 2 0 1; do file $h; done
until_step 5
kill_launcher 0
until_ranks 2
file 0
until_ranks 3
kill -KILL $(rank_on 2)
until_ranks 2
until_ranks 3
fast
all_end_well
bytes_are_right "three hosts by a file"
[[ ! -e $temp/job ]] || fail "the file stays behind"
