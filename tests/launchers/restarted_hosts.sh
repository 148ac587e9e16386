# A program that takes no part in the roster, under --max-restarts on two hosts: when a rank fails anywhere, the ranks of both hosts are
# started again together, up to so many times; a host whose launcher is killed comes back into the round that is under way. Hosts meet
# at an address, or by a file.
source "$(dirname "$0")/hosts.sh"
hosts_up 2
temp=$(mktemp -d "$temp/restarted.XXXXXX")
trap 'rm -rf "$temp"; kill $(jobs -p) 2>/dev/null || true' EXIT
export TUTTI_JOB_KEY=a-secret-of-this-test TUTTI_INIT_TIMEOUT=60s bin

cat >"$temp/program" <<'P'
#!/bin/bash
echo "rank $RANK in round $TORCHELASTIC_RESTART_COUNT"
begun=$(dirname "$0")/begun-$TORCHELASTIC_RESTART_COUNT
touch "$begun-$RANK"
together() { until [[ -e $begun-0 && -e $begun-1 ]]; do sleep 0.02; done; }
case $how-$TORCHELASTIC_RESTART_COUNT-$RANK in
  falls-0-1) together; exit 4 ;;                        # of host 1
  falls-1-0) together; exit 5 ;;                        # of host 0
  falls-[01]-*) exec sleep 1000 ;;
  always-*-1) together; exit 6 ;;
  always-*) exec sleep 1000 ;;
  early-0-1) exec sleep 1000 ;;
  early-0-0) exit 0 ;;
  lost-0-*) exec "$bin/all_reduce_perf" -b 1K -e 1K -n 100000000 ;;
esac
exec "$bin/all_reduce_perf" -b 8 -e 1M -f 16 -n 5
P
chmod +x "$temp/program"

address() { launch_at "$1" 2 --max-restarts "$restarts" "$temp/program"; }
file() { launch "$1" --nnodes 2 --node-rank "$1" --rendezvous "$temp/job" --max-restarts "$restarts" "$temp/program"; }
fresh() {
  rm -f "$temp"/host*.txt "$temp"/begun-*
  export how=$1
  attempt=$1 restarts=$2
}

for way in address file; do
  fresh falls 2
  $way 1
  $way 0
  ends 0 0
  ends 1 0
  says 0 'rank 1 on .* ended with exit status 4; all ranks of all hosts are started again \(restart 1 of 2\) \[TUTTI-E909\]'
  says 1 'rank 0 on .* ended with exit status 5; all ranks of all hosts are started again \(restart 2 of 2\) \[TUTTI-E909\]'
  (($(cat "$temp"/host*.txt | grep -c '^rank [01] in round') == 6)) || fail "not each rank was started three times"
  check "$way: both hosts started again, twice" 2 tcp "$temp/host0.txt"
done

fresh always 1
address 0
address 1
ends 1 6
ends 0 143
says 1 'first failure: rank 1 on .* ended with exit status 6 \[TUTTI-E909\]'
says 0 'all were stopped by us: on another host rank 1 on .* ended with exit status 6 \[TUTTI-E911\]'
echo "restarts are used up: both hosts end"

fresh lost 3
address 0
address 1
until_says 1 'rank 1 in round 0'
until_says 0 'rank 0 in round 0'
kill_launcher 1
until_says 0 'started again \(restart 1 of 3\)'
address 1
ends 0 0
ends 1 0
sed -n '/^rank 0 in round 1/,$p' "$temp/host0.txt" >"$temp/last.txt"
check "a host was lost and came back" 2 tcp "$temp/last.txt"

fresh early 0
address 0
address 1
until_says 0 'rank 0 in round 0'
until_says 1 'rank 1 in round 0'
kill -TERM "${launcher[1]}"
ends 1 143
ends 0 1
says 0 'the ranks of this host were done, those of another were not: the job was ended on .* \[TUTTI-E4'
echo "who is done first waits for the other host, and hears of its end"
